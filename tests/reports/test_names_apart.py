"""Runs side by side have names that differ, and the price of a ledger stands where it is seen."""

import pytest

from tacit.reports.run import releases
from tacit.reports.text import display_width, tell_apart

LONG = [f"runs/tcga/a-private-model-with-a-long-name-{kind}-ph-r3" for kind in ("poisson", "cox")]


@pytest.mark.parametrize(
    ("names", "shown"),
    [
        (["runs/x", "runs/y"], ["x", "y"]),
        (LONG, ["...poisson...", "...cox..."]),
        (["runs/one"], ["runs/one"]),
        (["a", "a/b"], ["a", "a/b"]),
        (["same", "same"], ["same", "same"]),
    ],
)
def test_runs_side_by_side_are_told_apart(names, shown):
    assert tell_apart(names) == shown
    assert all(display_width(name) <= 30 for name in tell_apart(names))


def test_the_price_so_far_is_the_second_column_of_a_ledger():
    row = {
        "first": 1, "last": 5, "subject": "records@a", "purpose": "round 1", "law": "gaussian", "scale": 1.4,
        "sensitivity": 1.0, "rate": 0.2, "count": 5, "running_epsilon": 2.999,
    }  # fmt: skip
    grid = releases("All", {"releases": [row]})
    assert (grid.header[1], grid.rows[0][1]) == ("epsilon so far", "2.999")
    assert len(grid.header) == len(grid.rows[0])
