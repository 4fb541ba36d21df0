"""Plugin of pytest: record the lines that each test executes, or run selected tests with time limits.

Lines that a fixture executes count for all tests of its file, which may use the same result.
"""

import json
import os
import signal
import sys
import threading
from collections.abc import Generator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

TRACE, SELECT = "TACIT_MUTANTS_TRACE", "TACIT_MUTANTS_SELECT"
# A test times out after TIMES its seconds plus GRACE. Seconds are of processor time, not of the clock: other
# work of the machine must not kill a mutant.
TIMES, GRACE = 10, 60.0
ROOT = Path.cwd()
PACKAGE = f"{ROOT / 'src' / 'tacit'}{os.sep}"


class CpuTimeout(BaseException):
    """A test exceeded its processor time; not an `Exception`, so that no handler of errors catches it."""


class Tracer:
    """Tracer of the executed lines of some modules."""

    def __init__(self, watched: set[str]) -> None:
        self._watched, self._paths = watched, dict[str, str | None]()
        self.lines: set[tuple[str, int]] = set()

    def __call__(self, frame: FrameType, event: str, given: object) -> Any:  # noqa: ANN401
        """Trace a function if it is in one of the modules."""
        name = frame.f_code.co_filename
        if name not in self._paths:
            path = name.removeprefix(PACKAGE) if name.startswith(PACKAGE) else None
            self._paths[name] = path if path in self._watched else None
        if (path := self._paths[name]) is None:
            return None
        lines = self.lines
        lines.add((path, frame.f_lineno))

        def local(frame: FrameType, event: str, given: object) -> Any:  # noqa: ANN401
            lines.add((path, frame.f_lineno))
            return local

        return local

    def take(self) -> dict[str, list[int]]:
        """Return the lines executed since the last call, by module, and forget them."""
        found: dict[str, list[int]] = {}
        for path, line in sorted(self.lines):
            found.setdefault(path, []).append(line)
        self.lines.clear()
        return found


def pytest_configure(config: pytest.Config) -> None:
    """Refuse to test another package than the one beside the tests; start the tracer."""
    import tacit

    assert str(tacit.__file__).startswith(PACKAGE), f"{tacit.__file__} is not in {PACKAGE}"
    if TRACE in os.environ:
        request = json.loads(Path(os.environ[TRACE]).read_text())
        config.pluginmanager.register(_Tracing(Path(os.environ[TRACE]), Tracer(set(request["modules"]))))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the selected tests, in the order of the selection."""
    if SELECT in os.environ:
        seconds: dict[str, float] = json.loads(Path(os.environ[SELECT]).read_text())
        config.pluginmanager.register(_Bounds(seconds))
        wanted = {test: place for place, test in enumerate(seconds)}
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in wanted])
        items[:] = sorted(
            (item for item in items if item.nodeid in wanted), key=lambda item: wanted[item.nodeid]
        )


class _Bounds:
    """Limit of the processor time of each test, its fixtures included."""

    def __init__(self, seconds: dict[str, float]) -> None:
        self._seconds = seconds

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        def end(number: int, frame: FrameType | None) -> None:
            raise CpuTimeout(f"more than {bound:.0f} seconds of processor time")

        bound = GRACE + TIMES * self._seconds[item.nodeid]
        signal.signal(signal.SIGPROF, end)
        # A second signal follows, in case the first one was held back.
        signal.setitimer(signal.ITIMER_PROF, bound, GRACE)
        try:
            return (yield)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)


class _Tracing:
    """Recorder of the lines that each test executes, written at the end of the session."""

    def __init__(self, place: Path, tracer: Tracer) -> None:
        self._place, self._tracer = place, tracer
        self._tests: dict[str, dict[str, Any]] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, Any, Any]:
        return (yield from self._trace(item, "setup"))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, Any, Any]:
        return (yield from self._trace(item, "call"))

    def _trace(self, item: pytest.Item, phase: str) -> Generator[None, Any, Any]:
        sys.settrace(self._tracer)
        threading.settrace(self._tracer)
        try:
            return (yield)
        finally:
            sys.settrace(None)
            threading.settrace(None)  # pyright: ignore[reportArgumentType]
            self._tests.setdefault(item.nodeid, {"seconds": 0.0})[phase] = self._tracer.take()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        found = self._tests.setdefault(report.nodeid, {"seconds": 0.0})
        found["seconds"] += report.duration
        found["failed"] = found.get("failed", False) or report.failed

    def pytest_sessionfinish(self) -> None:
        self._place.write_text(json.dumps({"tests": self._tests}))
