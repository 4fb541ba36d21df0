"""Prices that read alike are one place on an axis: solved budgets differ in the sixth digit."""

import numpy as np
import pandas as pd
import pytest

from tacit.reports.plots.privacy_utility import frontier, merge_close, privacy_utility


def test_runs_at_one_budget_stand_above_each_other():
    rows = [
        {"name": "a", "epsilon": 2.99924, "score": 0.667},
        {"name": "b", "epsilon": 2.99925, "score": 0.655},
        {"name": "c", "epsilon": 7.999, "score": 0.67},
    ]
    figure = frontier(rows, "C-index")
    assert figure is not None
    assert list(figure.axes[0].get_xticks()) == pytest.approx([2.99924, 7.999])
    assert frontier(rows[:2], "C-index").axes[0].get_xticks() == pytest.approx([2.99924])


def test_sweeps_at_one_budget_have_one_mark():
    table = pd.DataFrame(
        {"epsilon": [2.99924, 2.99925, 1.0], "score": [0.6, 0.7, 0.5], "method": ["a", "b", "a"]}
    )
    figure = privacy_utility(table)
    assert figure.axes[0].get_xticks() == pytest.approx([1.0, 2.99924])


def test_prices_that_can_be_told_apart_are_left_alone():
    assert np.array_equal(merge_close([3.0, 1.0, 3.1]), [3.0, 1.0, 3.1])
    assert np.array_equal(merge_close([3.001, 3.0]), [3.0, 3.0])
    assert len(merge_close([])) == 0
