"""Runs of the command draw no figures, except in `test_reporting.py`, which looks at reports."""

import pytest

EMPTY = '<svg xmlns="http://www.w3.org/2000/svg" width="9pt" height="9pt" viewBox="0 0 9 9" version="1.1"/>'


@pytest.fixture(autouse=True)
def undrawn(monkeypatch):
    """Make the figures of a report, and neither lay them out nor draw them: that is most of a short run."""
    monkeypatch.setattr("tacit.reports.plots.style.FigureLayout.execute", lambda self, figure: None)
    monkeypatch.setattr("tacit.reports.page.html._matplotlib_svg", lambda picture: EMPTY)
