"""Built-in tasks, plans, reports, exports and statistics in an environment without torch and pyarrow."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Importing them fails as it does where they are not installed.
BLOCK = """
import sys
from importlib.abc import MetaPathFinder


class Absent(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "pyarrow"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, Absent())
"""


def without_torch(code: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", BLOCK + code, *words], capture_output=True, text=True, cwd=ROOT, timeout=600
    )


COMMAND = """
from tacit.cli.app import main
main()
"""


@pytest.mark.parametrize(
    ("example", "options"),
    [
        ("survival.toml", ("--set", "rounds=2")),
        ("functional.toml", ()),
        ("control-cartpole.toml", ("--set", "rounds=2")),
    ],
)
def test_each_example_runs_and_reports_without_torch(example, options, tmp_path):
    out = tmp_path / "run"
    found = without_torch(COMMAND, "run", f"examples/{example}", *options, "--out", str(out), "--json")
    assert found.returncode == 0, found.stderr
    assert json.loads(found.stdout)["rounds"] >= 1
    for verb in (("show", str(out)), ("report", str(out), "-o", str(tmp_path / "report.html"))):
        shown = without_torch(COMMAND, *verb)
        assert shown.returncode == 0, shown.stderr
    assert (tmp_path / "report.html").stat().st_size > 10_000


def test_a_parquet_file_needs_its_extra_and_says_so(tmp_path):
    (tmp_path / "data.parquet").write_bytes(b"PAR1")
    found = without_torch(
        "from tacit.sites.table import read_frame\n"
        "try:\n    read_frame(sys.argv[1])\nexcept Exception as error:\n    print(error)\n",
        str(tmp_path / "data.parquet"),
    )
    assert "pip install 'tacit[parquet]'" in found.stdout, found.stderr
