"""Shared settings of all tests: Hypothesis without deadlines, files in memory, own books, a browser."""

import gc
import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings

from browsing import MISSING, chromium, program

__all__ = ["chromium"]

settings.register_profile("tacit", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("tacit")

MEMORY, ROOM = Path("/dev/shm"), 4 * 2**30


def keep_files_in_memory() -> None:
    """Keep temporary files in memory, if there is room: each synced write of a ledger waits for a disk."""
    if "TMPDIR" in os.environ or not os.access(MEMORY, os.W_OK | os.X_OK):
        return
    found = os.statvfs(MEMORY)
    if found.f_bavail * found.f_frsize > ROOM and not found.f_flag & os.ST_NOEXEC:
        os.environ["TMPDIR"], tempfile.tempdir = str(MEMORY), None


keep_files_in_memory()

# The books of data that tests use are kept away from those of whoever runs them; subprocesses inherit it.
STATES = tempfile.TemporaryDirectory(prefix="tacit-states-")
os.environ["XDG_STATE_HOME"] = STATES.name


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Keep the garbage collector away from modules and tests: they stay until the end."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(autouse=True)
def own_state(monkeypatch):
    """Give each test a state directory of its own: its data are new to it."""
    monkeypatch.setenv("XDG_STATE_HOME", tempfile.mkdtemp(dir=STATES.name))


def pytest_terminal_summary(terminalreporter):
    """Say loudly what was not tested."""
    if program() is None:
        terminalreporter.section("NOT TESTED", red=True, bold=True)
        terminalreporter.line(MISSING)
