"""Run the fast tests of a mutant's folder, in a copy of the tree and never in the tree itself."""

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
from mutants.server import LATE, TIMEOUT
from mutants.tracing import GRACE, SELECT, TIMES, TRACE, CpuTimeout

IGNORED = shutil.ignore_patterns(".venv*", ".git", "__pycache__", ".*_cache", ".hypothesis")
# Folders that commands write into the tree; packages have such names too.
WRITTEN = ("site", "dist", "runs", "examples/runs")
# Verdicts that count as killed.
KILLED = ("killed", "timeout")
# Exit codes of pytest; a file may have slow tests alone.
SOME_FAIL, NO_TESTS = 1, 5
PLUGIN = ("-p", "mutants.tracing", "-p", "no:cacheprovider", "-m", "not slow", "-q")


@dataclass(frozen=True)
class Verdict:
    """Verdict on a mutant.

    Args:
        mutant: The mutant.
        fate: The outcome. A timeout of processor time counts as killed. A late mutant, which exceeded its
            time on the clock, does not: it may have waited for other work of the machine.
        detail: The first test that failed, or the reason.
    """

    mutant: Mutant
    fate: Literal["killed", "timeout", "late", "survived", "equivalent"]
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

    def trace(self, tests: Sequence[str], modules: Iterable[str]) -> dict[str, Any]:
        """Run tests without any mutant; return the lines of the modules that each executes, and its seconds.

        Raises:
            RuntimeError: pytest does not run.
        """
        listed = self._place / "trace.json"
        listed.write_text(json.dumps({"modules": sorted(modules)}))
        code, output = self._pytest(tests, {TRACE: str(listed)}, None)
        if code not in (0, SOME_FAIL, NO_TESTS):
            raise RuntimeError(f"tests do not run without any change:\n{output[-3000:]}")
        return json.loads(listed.read_text())["tests"]

    def run(self, mutant: Mutant, files: Sequence[str], tests: Mapping[str, float]) -> Verdict:
        """Run the selected tests on the tree with a mutant's change.

        Args:
            mutant: The mutant.
            files: The files of tests, in the order in which to run them.
            tests: The selected tests in them, each with its seconds without a change.
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
        _drop_bytecode(path)
        try:
            code, output = self._pytest(["-x", *files], extra, GRACE + TIMES * sum(tests.values()))
        finally:
            path.write_bytes(before)
            _drop_bytecode(path)
        if code in (4, NO_TESTS):
            raise RuntimeError(f"pytest did not run for {mutant}:\n{output[-3000:]}")
        if code == 0:
            return Verdict(mutant, "survived", f"{len(tests)} tests")
        if code == LATE:
            return Verdict(mutant, "late", f"{len(tests)} tests")
        failed = [line for line in output.splitlines() if line.startswith(("FAILED", "ERROR"))]
        timeout = code == TIMEOUT or f"{CpuTimeout.__name__}: more than" in output
        detail = failed[0].split(" - ")[0] if failed else f"exit {code}"
        return Verdict(mutant, "timeout" if timeout else "killed", detail)

    def close(self) -> None:
        """End the process that runs tests."""
        assert self._server.stdin is not None
        self._server.stdin.close()
        self._server.wait()

    def _pytest(
        self, tests: Sequence[str], extra: Mapping[str, str], seconds: float | None
    ) -> tuple[int, str]:
        """Return the exit code of pytest and its output."""
        output = self._place / "output.txt"
        env = {
            "PYTHONPATH": str(self.root / "src"), "NUMBA_CACHE_DIR": str(self._place / "numba"), **extra,
        }  # fmt: skip
        arguments = [*PLUGIN, f"--basetemp={self._place / 't'}", *tests]
        request = {
            "arguments": arguments, "root": str(self.root), "env": env, "output": str(output),
            "seconds": seconds,
        }  # fmt: skip
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.write(json.dumps(request) + "\n")
        self._server.stdin.flush()
        code = int(self._server.stdout.readline())
        return code, output.read_text(errors="replace") if output.exists() else ""


def copy_tree(origin: Path, to: Path) -> None:
    """Copy everything that tests need, without files that commands have written."""
    written = {origin / name for name in WRITTEN}

    def ignore(folder: str, names: list[str]) -> set[str]:
        return IGNORED(folder, names) | {name for name in names if Path(folder, name) in written}

    shutil.copytree(origin, to, ignore=ignore)


def _drop_bytecode(path: Path) -> None:
    """Delete the bytecode of a module: by age and size, Python could take an old file for a new one."""
    for cached in (path.parent / "__pycache__").glob(f"{path.stem}.*"):
        cached.unlink()


def mirror(root: Path, path: str) -> list[str]:
    """Return the test files of the folder that mirrors a module's; the one of the same name comes first."""
    module = Path(path)
    files = sorted((root / "tests" / module.parts[0]).rglob("test_*.py"))
    beside = [file for file in files if file.parent == root / "tests" / module.parent]
    named = [file for file in beside if file.stem.removeprefix("test_").startswith(module.stem)]
    return [file.relative_to(root).as_posix() for file in (*named, *(f for f in files if f not in named))]


def select_tests(
    mutant: Mutant, known: Mapping[str, dict[str, Any]], files: Sequence[str]
) -> dict[str, float]:
    """Select the tests that may kill a mutant, with their seconds, those that execute its statement first.

    The other tests of their files follow, since fixtures and caches share results. All tests are selected if
    no trace shows which ones execute the statement: on import, and in compiled functions.
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
    """Create a folder with a short name: sockets of tests have paths of at most 100 bytes."""
    return tempfile.TemporaryDirectory(prefix="mut", ignore_cleanup_errors=True)
