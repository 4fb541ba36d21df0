"""Commands of the README print what it shows."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tacit.experiments import experiment

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
EXAMPLE = ROOT / "examples" / "survival.toml"


def test_the_demo_prints_the_scores_of_the_readme():
    summary = experiment.read(EXAMPLE).run(None).summary()
    table = next(part for part in summary.split("\n\n") if "federated" in part)
    assert table in README


SHOWN = re.findall(r"```python\n# examples/(\w+)\.py\n(.*?)```\n\n```\n(.*?)```", README, re.DOTALL)


def test_each_workload_is_shown():
    assert [name for name, _, _ in SHOWN] == ["survival_api", "functional_api", "control_api"]


@pytest.mark.parametrize(("name", "code", "printed"), SHOWN, ids=[name for name, _, _ in SHOWN])
def test_what_is_shown_is_taken_from_a_script_that_is_run(name, code, printed):
    """The scripts and what they print are checked by test_example_scripts.py."""
    script = (ROOT / "examples" / f"{name}.py").read_text()
    output = (ROOT / "examples" / "output" / f"{name}.txt").read_text()
    assert in_order(code, script)
    assert in_order(printed, output)
    known = [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "F821", "-"]
    assert subprocess.run(known, input=code, text=True, capture_output=True).returncode == 0


def in_order(part: str, whole: str) -> bool:
    """Return True if the lines of one are among those of the other, in the same order."""
    left = iter(whole.splitlines())
    return all(line in left for line in part.splitlines() if line.strip())


def test_the_template_is_the_example():
    template = ROOT / "src" / "tacit" / "experiments" / "templates" / "survival.toml"
    assert template.read_text() == EXAMPLE.read_text()
