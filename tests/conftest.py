"""What every test shares: Hypothesis without deadlines, since machines are shared and noisy; a browser."""

from hypothesis import settings

from browsing import MISSING, chromium, program

__all__ = ["chromium"]

settings.register_profile("tacit", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("tacit")


def pytest_terminal_summary(terminalreporter):
    """Say loudly what was not tested."""
    if program() is None:
        terminalreporter.section("NOT TESTED", red=True, bold=True)
        terminalreporter.line(MISSING)
