"""The scripts in examples/ run as they are, and print what is kept beside them.

To renew what is kept: `python examples/NAME.py > examples/output/NAME.txt`.
"""

import runpy
import warnings
from pathlib import Path

import pytest

from printed import difference

EXAMPLES = Path(__file__).parents[1] / "examples"
OUTPUT = EXAMPLES / "output"
# How far numbers may be off: sums differ between machines, and agents make much of little.
TOLERANCE = {"survival_api": 0.02, "functional_api": 0.05, "control_api": 0.6, "own_env": 0.6}
SCRIPTS = sorted(script.stem for script in EXAMPLES.glob("*.py"))


@pytest.mark.parametrize("name", SCRIPTS)
def test_an_example_prints_what_is_kept(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    # In this process, which has loaded what scripts need.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    kept = (OUTPUT / f"{name}.txt").read_text()
    assert difference(capsys.readouterr().out, kept, TOLERANCE.get(name, 0.02)) is None
    for report in tmp_path.glob("*.html"):
        assert report.read_text().startswith("<!doctype html>")


def test_every_kept_output_is_of_a_script():
    assert sorted(file.stem for file in OUTPUT.iterdir()) == SCRIPTS


@pytest.mark.parametrize("name", ["survival_api", "functional_api", "control_api"])
def test_scripts_to_copy_are_short(name):
    code = (EXAMPLES / f"{name}.py").read_text().split('"""', 2)[2]
    lines = [line for line in code.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    assert 10 <= len(lines) <= 30
