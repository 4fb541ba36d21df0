"""Published tables of benchmarks show the measured results."""

import ast
import json
import sys
from importlib import import_module
from inspect import signature
from pathlib import Path

import pytest

from bench import COMPARISONS, tables
from bench import __main__ as command
from bench.racing import Recorded

ROOT = Path(__file__).parents[2]
# What both environments have.
ANYWHERE = {"bench", "numpy"}


def found(**changes):
    race = {
        "race": "a race", "group": "races", "peer": "peer 1.0", "by": "cpu", "ratio": 12.34, "lowest": 9.0,
        "highest": 15.0, "goal": 20, "apart": 1e-12, "recorded": None,
        "repeats": {"ours": 7, "theirs": 7}, "cpu_seconds": {"ours": 0.001, "theirs": 0.0123},
        "wall_seconds": {"ours": 0.001, "theirs": 0.0123}, "peak_megabytes": {"ours": 100, "theirs": 200},
    }  # fmt: skip
    return race | changes


def test_a_race_is_a_line_that_says_what_was_missed():
    line = tables.raced([found()]).splitlines()[-1]
    assert line == "| a race | peer 1.0 | 12.3 ms | 1 ms | 12 | 9.0 to 15 | 1e-12 | 20, missed |"
    assert "missed" not in tables.raced([found(ratio=20.5)])
    assert "recorded" in tables.raced([found(recorded="somewhere", apart=None)])


def test_memory_is_told_in_megabytes():
    assert "| 200 MB | 100 MB |" in tables.raced([found(by="peak")])


def test_groups_gather_races_and_say_what_was_missed_and_where_others_are_better():
    races = [found(), found(ratio=30), found(peer="other", goal=None, ratio=0.5)]
    lines = tables.grouped({"metrics": {"races": races, "seconds": 120}}).splitlines()[2:]
    assert lines == [
        "| races | peer 1.0 | 12 to 30 | 20, missed by 1 of 2 | `make bench-metrics` |",
        "",
        "Of all 3 comparisons with peers, we are behind in 1: a race against other (0.50). "
        "All of it took 2 minutes.",
    ]
    assert "behind in none" in tables.behind([found()])


@pytest.mark.parametrize(
    ("value", "said"), [(0.123, "0.12"), (0.97, "1.0"), (3.14, "3.1"), (42.4, "42"), (12345, "12,000")]
)
def test_numbers_have_two_digits(value, said):
    assert tables.number(value) == said


@pytest.mark.parametrize("path", [ROOT / "README.md", tables.PAGE], ids=lambda path: path.name)
def test_what_is_published_is_what_is_kept(path):
    results = tables.read()
    assert list(results) == list(COMPARISONS)
    expected = tables.grouped(results) if path.name == "README.md" else tables.page(results)
    assert tables.published(path) == expected.strip()


def test_a_run_changes_no_published_result_until_it_is_published(tmp_path, monkeypatch):
    kept, latest = tmp_path / "results", tmp_path / "latest"
    kept.mkdir()
    (kept / "step.json").write_text("{}")
    monkeypatch.setattr(tables, "RESULTS", kept)
    monkeypatch.setattr(tables, "LATEST", latest)
    written = list[str]()
    monkeypatch.setattr(tables, "_between", lambda path, text: written.append(path.name))
    monkeypatch.setattr(tables, "grouped", lambda results: "")
    monkeypatch.setattr(tables, "page", lambda results: "")
    tables.write("step", {"races": []})
    assert json.loads((kept / "step.json").read_text()) == {}
    tables.publish()
    assert json.loads((kept / "step.json").read_text()) == {"races": []}
    assert not list(latest.iterdir())
    assert written == ["README.md", "bench.md"]


def test_a_comparison_writes_beside_what_these_tests_look_at(tmp_path, monkeypatch):
    """`make bench-step` on a slow machine, whatever it finds, leaves `make test` as it was."""
    looked_at = [*tables.RESULTS.iterdir(), ROOT / "README.md", tables.PAGE]
    before = [path.read_bytes() for path in looked_at]
    assert "/bench/latest/" in (ROOT / ".gitignore").read_text().splitlines()
    assert tables.LATEST == ROOT / "bench" / "latest"
    monkeypatch.setattr(tables, "LATEST", tmp_path / "latest")
    slow = found(ratio=0.01)
    monkeypatch.setattr(command, "compared", lambda name: {"seconds": 1.0, "races": [slow], "growths": []})
    command.main(["step"])
    assert json.loads((tmp_path / "latest" / "step.json").read_text())["races"] == [slow]
    assert [path.read_bytes() for path in looked_at] == before
    assert sorted(tables.RESULTS.iterdir()) == sorted(looked_at[:-2])


@pytest.mark.parametrize("name", COMPARISONS)
def test_what_is_kept_was_found_by_the_races_that_there_are(name):
    kept = json.loads((tables.RESULTS / f"{name}.json").read_text())
    module = import_module(f"bench.{name}")
    expected = [(race.name, peer) for race in getattr(module, "RACES", ()) for peer in race.theirs]
    assert [(race["race"], race["peer"]) for race in kept["races"]] == expected
    assert [(one["growth"], one["over"]) for one in kept["growths"]] == [
        (one.name, one.over) for one in getattr(module, "GROWTHS", ())
    ]


@pytest.mark.parametrize("name", COMPARISONS)
def test_sides_can_be_found_and_take_what_they_are_given(name):
    module = import_module(f"bench.{name}")
    races = [(race.given, [race.ours, *race.theirs.values()]) for race in getattr(module, "RACES", ())]
    races += [
        ({one.over: value}, list(one.sides.values()))
        for one in getattr(module, "GROWTHS", ())
        for value in one.values
    ]
    assert races
    for given, sides in races:
        assert json.loads(json.dumps(dict(given))) == given
        for side in sides:
            if not isinstance(side, Recorded):
                assert getattr(module, side.__name__) is side
                signature(side).bind(**given)


@pytest.mark.parametrize("name", ["racing", "sides", *COMPARISONS])
def test_files_load_in_either_environment(name):
    """At their top they import nothing that only one of them has."""
    tree = ast.parse((ROOT / "bench" / f"{name}.py").read_text())
    imported = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    names = {
        alias.name.partition(".")[0]
        for node in imported
        if isinstance(node, ast.Import)
        for alias in node.names
    }
    names |= {str(node.module).partition(".")[0] for node in imported if isinstance(node, ast.ImportFrom)}
    assert names - ANYWHERE <= sys.stdlib_module_names
