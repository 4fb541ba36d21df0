"""Mutants against the fast tests of their folder, each in a copy of the tree and never in the tree itself."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from mutants.changes import Mutant
from mutants.server import ENDLESS, LATE
from mutants.tracing import GRACE, SELECT, TIMES, TRACE, Endless

LEFT_OUT = shutil.ignore_patterns(".venv*", ".git", "__pycache__", ".*_cache", ".hypothesis")
# What commands write into the tree; packages have such names too.
WRITTEN = ("site", "dist", "runs", "examples/runs")
# Exit codes of pytest; a file may have slow tests alone.
SOME_FAIL, NO_TESTS = 1, 5
PLUGIN = ("-p", "mutants.tracing", "-p", "no:cacheprovider", "-m", "not slow", "-q")


@dataclass(frozen=True)
class Verdict:
    """What became of a mutant.

    Args:
        mutant: The mutant.
        fate: The outcome. One that does not end is caught too; one that is late is not: it may have waited
            for other work of the machine.
        detail: The first test that failed, or the reason.
    """

    mutant: Mutant
    fate: Literal["caught", "endless", "late", "survived", "equivalent"]
    detail: str


class Tree:
    """A copy of everything that tests need, in which modules can be changed."""

    def __init__(self, origin: Path, place: Path) -> None:
        self.root, self._place = place / "tree", place
        copy_tree(origin, self.root)
        self._server = subprocess.Popen(
            [sys.executable, "-m", "mutants.server"], cwd=self.root, text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"}, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip

    def traced(self, tests: Sequence[str], modules: Iterable[str]) -> dict[str, Any]:
        """Run tests on the tree as it is: which lines of the modules each executes, and how long it takes.

        Raises:
            RuntimeError: They do not run.
        """
        listed = self._place / "trace.json"
        listed.write_text(json.dumps({"modules": sorted(modules)}))
        code, said = self._pytest(tests, {TRACE: str(listed)}, None)
        if code not in (0, SOME_FAIL, NO_TESTS):
            raise RuntimeError(f"tests do not run without any change:\n{said[-3000:]}")
        return json.loads(listed.read_text())["tests"]

    def judged(self, mutant: Mutant, files: Sequence[str], tests: Mapping[str, float]) -> Verdict:
        """Run the tests that concern a mutant on the tree with its change.

        Args:
            mutant: The mutant.
            files: The files of tests, in the order in which to run them.
            tests: The tests in them that concern it, each with the seconds that it takes without a change.
        """
        path = self.root / "src" / "tacit" / mutant.path
        before, listed = path.read_bytes(), self._place / "select.json"
        listed.write_text(json.dumps(dict(tests)))
        extra = {SELECT: str(listed)}
        if b"compiled" in before:
            # Machine code of other modules may hold a part of this one.
            shutil.rmtree(self._place / "machine", ignore_errors=True)
            extra["NUMBA_CACHE_DIR"] = str(self._place / "machine")
        path.write_bytes(mutant.apply(before))
        _forget(path)
        try:
            code, said = self._pytest(["-x", *files], extra, GRACE + TIMES * sum(tests.values()))
        finally:
            path.write_bytes(before)
            _forget(path)
        if code in (4, NO_TESTS):
            raise RuntimeError(f"pytest did not run for {mutant}:\n{said[-3000:]}")
        if code == 0:
            return Verdict(mutant, "survived", f"{len(tests)} tests")
        if code == LATE:
            return Verdict(mutant, "late", f"{len(tests)} tests")
        failed = [line for line in said.splitlines() if line.startswith(("FAILED", "ERROR"))]
        endless = code == ENDLESS or f"{Endless.__name__}: more than" in said
        detail = failed[0].split(" - ")[0] if failed else f"exit {code}"
        return Verdict(mutant, "endless" if endless else "caught", detail)

    def close(self) -> None:
        """End the process that runs tests."""
        assert self._server.stdin is not None
        self._server.stdin.close()
        self._server.wait()

    def _pytest(
        self, tests: Sequence[str], extra: Mapping[str, str], seconds: float | None
    ) -> tuple[int, str]:
        """The exit code of pytest, and what it said."""
        said = self._place / "said.txt"
        env = {
            "PYTHONPATH": str(self.root / "src"), "NUMBA_CACHE_DIR": str(self._place / "numba"), **extra,
        }  # fmt: skip
        words = [*PLUGIN, f"--basetemp={self._place / 't'}", *tests]
        asked = {"words": words, "root": str(self.root), "env": env, "said": str(said), "seconds": seconds}
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.write(json.dumps(asked) + "\n")
        self._server.stdin.flush()
        code = int(self._server.stdout.readline())
        return code, said.read_text(errors="replace") if said.exists() else ""


def copy_tree(origin: Path, to: Path) -> None:
    """Copy whatever tests need, and nothing that commands have written."""
    written = {origin / name for name in WRITTEN}

    def left_out(folder: str, names: list[str]) -> set[str]:
        return LEFT_OUT(folder, names) | {name for name in names if Path(folder, name) in written}

    shutil.copytree(origin, to, ignore=left_out)


def _forget(path: Path) -> None:
    """Take away the bytecode of a module: by age and size, Python could take an old file for a new one."""
    for cached in (path.parent / "__pycache__").glob(f"{path.stem}.*"):
        cached.unlink()


def mirror(root: Path, path: str) -> list[str]:
    """The files of tests in the folder that mirrors a module's; the one of the same name comes first."""
    module = Path(path)
    files = sorted((root / "tests" / module.parts[0]).rglob("test_*.py"))
    beside = [file for file in files if file.parent == root / "tests" / module.parent]
    named = [file for file in beside if file.stem.removeprefix("test_").startswith(module.stem)]
    return [file.relative_to(root).as_posix() for file in (*named, *(f for f in files if f not in named))]


def concerned(mutant: Mutant, known: Mapping[str, dict[str, Any]], files: Sequence[str]) -> dict[str, float]:
    """The tests that may tell a mutant, with their seconds; those that execute its statement come first.

    The others of their files follow: what a test has made may be kept in a cache for the next. All tests
    count where it cannot be told who executes a statement: on import, and where it is compiled.
    """
    places = {file: place for place, file in enumerate(files)}
    inside = [test for test in known if test.split("::")[0] in places]
    tests = {test: known[test] for test in sorted(inside, key=lambda test: places[test.split("::")[0]])}
    if mutant.within is None:
        return {test: found["seconds"] for test, found in tests.items()}
    first, last = mutant.within

    def executes(found: dict[str, Any], phase: str) -> bool:
        return any(first <= line <= last for line in found.get(phase, {}).get(mutant.path, ()))

    own = {test for test, found in tests.items() if executes(found, "setup") or executes(found, "call")}
    beside = {test.split("::")[0] for test in own}
    chosen = [*(test for test in tests if test in own), *(test for test in tests if test not in own)]
    return {test: tests[test]["seconds"] for test in chosen if test.split("::")[0] in beside}


def place_of_trees() -> "tempfile.TemporaryDirectory[str]":
    """A folder with a short name: sockets of tests have paths of at most 100 bytes."""
    return tempfile.TemporaryDirectory(prefix="mut", ignore_cleanup_errors=True)
