"""Promises of the package's shape: light imports, one door each, nothing pickled, small files."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import tacit

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "src" / "tacit").rglob("*.py"))


def imported_by(code: str) -> set[str]:
    listing = "import sys; print(' '.join(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}; {listing}"], capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


def test_importing_tacit_loads_nothing_heavy():
    assert not {"numpy", "torch", "scipy", "dp_accounting", "typer"} & imported_by("import tacit")


def test_help_loads_nothing_heavy_either():
    code = (
        "import sys; sys.argv = ['tacit', '--help']\nimport contextlib, io\nfrom tacit.cli.app import main\n"
    )
    code += "with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit): main()\npass"
    listing = "\nprint(' '.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code + listing], capture_output=True, text=True, check=True)
    assert "typer" in done.stdout.split()
    assert not {"numpy", "torch", "scipy", "dp_accounting", "rich"} & set(done.stdout.split())


def test_a_plan_is_made_without_torch():
    code = f"from tacit.cli.verbs import plan; plan.plan_file({str(ROOT / 'examples' / 'survival.toml')!r})"
    assert "torch" not in imported_by(code)


def test_the_public_names_are_complete_sorted_and_there():
    assert tacit.__all__ == sorted(tacit.__all__)
    assert len(tacit.__all__) <= 20
    # The siblings of one base, by the names that users know.
    known = {"Federation": "RowFederation", "Columns": "VerticalFederation", "Worlds": "EnvFederation"}
    for name in tacit.__all__:
        assert getattr(tacit, name).__name__ == known.get(name, name)


def test_no_module_takes_the_place_of_a_public_name():
    modules = {path.stem for path in (ROOT / "src" / "tacit").iterdir()}
    assert not modules & set(tacit.__all__)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = tacit.nonsense


def test_a_module_is_small_says_what_it_is_for_and_pickles_nothing():
    wrong = {str(path.relative_to(ROOT)): found for path in SOURCES if (found := faults_of(path))}
    assert wrong == {}


def faults_of(path: Path) -> list[str]:
    """List the rules that a module breaks."""
    text = path.read_text()
    pickles = re.search(r"\bpickle\b|torch\.load", text)
    if path.name == "stable_baselines.py":
        # Files of Stable-Baselines3 are pickled: they are read as tensors alone, and written by torch.
        loads = text.count("torch.load("), text.count("weights_only=True)")
        pickles = set(re.findall(r"pickle\.(\w+)", text)) != {"dumps"} or loads != (1, 1)
    found = {
        "more than 600 lines": text.count("\n") > 600,
        "no docstring": not ast.get_docstring(ast.parse(text)),
        "unpickles, or 1.25": re.search(r"\bpickle\.load|Unpickler|allow_pickle|1\.25", text),
        "pickles": pickles,
    }
    return [fault for fault, there in found.items() if there]


def test_the_version_is_that_of_the_metadata():
    assert re.fullmatch(r"\d+\.\d+\.\d+", tacit.__version__)


def test_no_two_files_of_tests_have_one_name():
    """pytest takes the second for the first, and then fails only where both are collected."""
    names = [path.name for path in (ROOT / "tests").rglob("test_*.py")]
    assert sorted(set(names)) == sorted(names)
