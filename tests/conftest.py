"""What every test shares: Hypothesis without deadlines, since machines are shared and noisy; a browser."""

import os
import tempfile

import pytest
from hypothesis import settings

from browsing import MISSING, chromium, program

__all__ = ["chromium"]

# What is written about a user's data goes to no real user's folder.
os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp(prefix="tacit-state-")

settings.register_profile("tacit", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("tacit")


# The books of data that tests use are kept away from those of whoever runs them; subprocesses inherit it.
STATES = tempfile.TemporaryDirectory(prefix="tacit-states-")
os.environ["XDG_STATE_HOME"] = STATES.name


@pytest.fixture(autouse=True)
def own_state(monkeypatch):
    """Give each test a state directory of its own: its data are new to it."""
    monkeypatch.setenv("XDG_STATE_HOME", tempfile.mkdtemp(dir=STATES.name))


def pytest_terminal_summary(terminalreporter):
    """Say loudly what was not tested."""
    if program() is None:
        terminalreporter.section("NOT TESTED", red=True, bold=True)
        terminalreporter.line(MISSING)
