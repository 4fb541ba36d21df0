"""Files of run directories: names, keys, ledger rows and the resolved experiment of open and private runs."""

import capture
import pytest

# Noise and price of each release.
ROW = ("number", "subject", "purpose", "law", "sensitivity", "rate", "count")


@pytest.fixture(params=capture.RUNS)
def pair(request, train):
    """A run directory of today, and as it was recorded."""
    found = capture.describe_directory(train(request.param))
    return found, capture.load(f"directories/{request.param}")


def test_files_are_the_same(pair):
    found, golden = pair
    assert found["files"] == golden["files"]
    assert found["environment.json"] == golden["environment.json"]


def test_contents_are_the_same(pair):
    found, golden = pair
    assert capture.compare(found, golden) == []


def test_the_ledger_is_charged_for_the_same_releases(pair):
    found, golden = ([row for row in one["ledger.db"]["rows"] if row["kind"] == "release"] for one in pair)
    assert [[row[key] for key in ROW] for row in found] == [[row[key] for key in ROW] for row in golden]
    scales = ([row["scale"] for row in rows] for rows in (found, golden))
    assert next(scales) == pytest.approx(next(scales), rel=1e-12)
