"""Mutants are the same on every machine, change one place each, and meet the tests that execute it."""

import ast
import signal
import tomllib
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest

from mutants import tracing
from mutants.__main__ import summarize
from mutants.cache import VERDICTS, VerdictCache
from mutants.changes import SCOPE, Mutant, mutants, places, sample
from mutants.running import WRITTEN, Verdict, copy_tree, mirror, select_tests

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "tacit"
SMALL = b'''"""A module."""
LIMIT: int = 3
WORDS = "a" + "b"


def one(x: "tuple[int, 3]", most: float = 0.5) -> float:
    """Not 7."""
    if x <= LIMIT:
        raise ValueError(f"{x * 2} is above 9")
    return -x * (
        2.0 + most
    )


@compiled
def two(x):
    return x[0] != 1
'''


def changes(source: bytes) -> list[tuple[str, str, bool]]:
    return [(one.before, one.after, one.within is None) for one in mutants("small.py", source, 1)]


def test_numbers_operators_and_comparisons_are_changed_and_words_are_not():
    found = {(before, on_import) for before, _, on_import in changes(SMALL)}
    assert found == {
        ("3", True), ("0.5", True), ("<=", False), ("-", False), ("*", False), ("2.0", False), ("+", False),
        ("0", True), ("!=", True), ("1", True),
    }  # fmt: skip


def test_a_statement_over_several_lines_is_executed_where_any_of_them_is():
    (number,) = [one for one in mutants("small.py", SMALL, 1) if one.before == "2.0"]
    assert number.within == (10, 12)
    assert number.line == 11


def test_every_mutant_of_the_scope_is_another_program():
    found = list(places(PACKAGE, 1))
    assert len(found) > 1000
    assert {one.path.split("/")[0] for one in found} >= {pattern.split("/")[0] for pattern in SCOPE}
    for one in found[::20]:
        source = (PACKAGE / one.path).read_bytes()
        changed = one.apply(source)
        assert ast.dump(ast.parse(changed)) != ast.dump(ast.parse(source)), str(one)
        assert changed.count(b"\n") == source.count(b"\n")


def test_every_equivalent_mutant_that_is_listed_is_one_of_the_scope_and_has_a_reason():
    """The list follows the code: a line that was changed may have mutants that count."""
    listed = tomllib.loads((ROOT / "mutants" / "equivalent.toml").read_text())["mutant"]
    known = {(one.path, one.text, one.before) for one in places(PACKAGE, 1)}
    assert [one for one in listed if (one["path"], one["text"], one["before"]) not in known] == []
    assert all(len(one["why"]) > 20 for one in listed)


def test_the_same_seed_draws_the_same_mutants():
    assert sample(PACKAGE, 50, 1) == sample(PACKAGE, 50, 1) != sample(PACKAGE, 50, 2)
    assert len(set(sample(PACKAGE, 50, 1))) == 50


@pytest.mark.parametrize(
    ("path", "first", "folder"),
    [
        ("privacy/mechanisms/base.py", "tests/privacy/mechanisms/test_base.py", "tests/privacy"),
        ("aggregation/secure/shamir.py", "tests/aggregation/secure/test_shamir.py", "tests/aggregation"),
        ("runs/trainer.py", "tests/runs/test_trainer.py", "tests/runs"),
    ],
)
def test_the_tests_of_a_module_are_those_of_its_folder_its_own_first(path: str, first: str, folder: str):
    files = mirror(ROOT, path)
    assert files[0] == first
    assert {file.startswith(f"{folder}/") for file in files} == {True}


def test_tests_that_execute_the_statement_of_a_mutant_are_selected_first():
    known = {
        "a.py::one": {"seconds": 1.0, "setup": {}, "call": {"small.py": [9]}},
        "a.py::two": {"seconds": 2.0, "setup": {}, "call": {"small.py": [9, 11]}},
        "b.py::three": {"seconds": 3.0, "setup": {"small.py": [10]}, "call": {}},
        # It may look at what a fixture, or a cache, has kept.
        "b.py::four": {"seconds": 4.0, "call": {}},
        "c.py::five": {"seconds": 5.0, "setup": {}, "call": {"other.py": [11]}},
    }

    def mutant(within: tuple[int, int] | None) -> Mutant:
        return Mutant("small.py", 11, 0, 1, "2", "3", "number", "", within)

    found = select_tests(mutant((10, 12)), known, ["a.py", "b.py", "c.py"])
    assert list(found.items()) == [
        ("a.py::two", 2.0), ("b.py::three", 3.0), ("a.py::one", 1.0), ("b.py::four", 4.0)
    ]  # fmt: skip
    assert list(select_tests(mutant((10, 12)), known, ["a.py"])) == ["a.py::two", "a.py::one"]
    assert len(select_tests(mutant(None), known, ["a.py", "c.py"])) == 3


def test_the_copied_tree_has_every_module_and_test_and_nothing_that_commands_write(tmp_path):
    tree, copy = tmp_path / "tree", tmp_path / "copy"
    for name in WRITTEN:
        (tree / name).mkdir(parents=True)
    for name in ("src", "tests"):
        (tree / name).symlink_to(ROOT / name)
    copy_tree(tree, copy)
    for name in ("src", "tests"):
        modules = {path.relative_to(ROOT) for path in (ROOT / name).rglob("*.py")}
        assert modules == {path.relative_to(copy) for path in (copy / name).rglob("*.py")}
    assert not any((copy / name).exists() for name in WRITTEN)


def drawn(count: int) -> list[Mutant]:
    return [Mutant("small.py", line, 0, 1, "2", "3", "number", "", None) for line in range(count)]


def test_a_late_mutant_is_not_killed_and_one_that_times_out_is(capsys):
    found = [Verdict(one, "killed", "") for one in drawn(18)]
    assert (
        summarize(
            [*found, *(Verdict(one, "timeout", "") for one in drawn(1)), Verdict(found[0].mutant, "late", "")]
        )
        == 0
    )
    assert "killed 19 of 20 (95.0%), 1 of them by timeout; 1 were late" in capsys.readouterr().out
    assert summarize([*found, *(Verdict(one, "late", "") for one in drawn(2))]) == 1


def test_a_test_that_does_not_end_is_ended_by_its_processor_time_and_says_so(monkeypatch):
    """Code that handles every error does not hold it back, and the next test is not bounded by it."""
    monkeypatch.setattr(tracing, "GRACE", 0.2)
    item = SimpleNamespace(nodeid="a.py::one")

    def endless() -> None:
        while True:
            with suppress(Exception):
                sum(range(1000))

    before = signal.getsignal(signal.SIGPROF)
    bound = tracing._Bounds({"a.py::one": 0.01}).pytest_runtest_protocol(item)
    next(bound)
    with pytest.raises(tracing.CpuTimeout, match="more than 0 seconds of processor time"):
        endless()
    bound.close()
    assert signal.getitimer(signal.ITIMER_PROF) == (0.0, 0.0)
    signal.signal(signal.SIGPROF, before)


def test_a_killed_mutant_is_cached_until_its_module_changes_and_a_survivor_is_tested_again(tmp_path):
    module = tmp_path / "src" / "tacit" / "small.py"
    module.parent.mkdir(parents=True)
    module.write_bytes(SMALL)
    first, other, cut = drawn(3)
    cache = VerdictCache(tmp_path / "kept", tmp_path)
    cache.add(Verdict(first, "killed", "FAILED a.py::one"))
    cache.add(Verdict(other, "survived", "2 tests"))
    cache.add(Verdict(cut, "killed", "FAILED a.py::two"))
    record = tmp_path / "kept" / VERDICTS
    record.write_text(record.read_text()[:-9])
    again = VerdictCache(tmp_path / "kept", tmp_path)
    assert again.killed(first) == Verdict(first, "killed", "FAILED a.py::one")
    assert again.killed(other) is None
    assert again.killed(cut) is None
    assert VerdictCache(None, tmp_path).killed(first) is None
    module.write_bytes(SMALL.replace(b"2.0", b"4.0"))
    assert again.killed(first) is None


def test_a_trace_is_kept_until_the_package_or_the_file_of_tests_changes(tmp_path):
    (tmp_path / "src").mkdir()
    module, tests = tmp_path / "src" / "small.py", tmp_path / "test_small.py"
    module.write_bytes(SMALL)
    tests.write_text("")
    calls: list[object] = []

    def run(files, modules):
        calls.append((files, modules))
        return {"test_small.py::one": {"seconds": float(len(calls))}}

    def trace() -> float:
        cache = VerdictCache(tmp_path / "kept", tmp_path)
        return cache.trace("test_small.py", ["small.py"], run)["test_small.py::one"]["seconds"]

    assert [trace(), trace()] == [1.0, 1.0]
    tests.write_text("# Another.")
    assert [trace(), trace()] == [2.0, 2.0]
    module.write_bytes(SMALL + b"# Another.")
    assert trace() == 3.0
    assert calls == [(["test_small.py"], ["small.py"])] * 3
