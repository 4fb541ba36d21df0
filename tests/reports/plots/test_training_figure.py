"""A run is drawn from its record and its promise alone, whether it is over or not."""

import numpy as np
import pandas as pd
import pytest

from looking import require_legible, title, words
from tacit import Open, Privacy
from tacit.errors import InvalidValue
from tacit.learning.record import Record, Round
from tacit.privacy.statement import state
from tacit.reports.plots.training import RunSnapshot, format_score, history_of, scores_of, training


def record(scores, epsilon=None, **others):
    rounds = tuple(
        Round(
            number=number, rounds=9, sites=3, scores=found, budget=epsilon, seconds=1.5,
            epsilon=None if epsilon is None else epsilon * number / 9,
        )
        for number, found in enumerate(scores, start=1)
    )  # fmt: skip
    return Record(rounds=rounds, **others)


PRIVATE = state(Privacy(unit="record", epsilon=3.0, delta=1e-4, clip=1.0), [])


def test_a_history_has_a_row_for_each_round():
    found = history_of(record([{"r2": 0.1}, {}, {"r2": 0.3}], epsilon=9.0))
    expected = pd.DataFrame(
        {"sites": 3, "r2": [0.1, np.nan, 0.3], "epsilon": [1.0, 2.0, 3.0], "seconds": 1.5},
        index=pd.Index([1, 2, 3], name="round"),
    )
    pd.testing.assert_frame_equal(found, expected)
    assert history_of(Record()).empty


def test_a_run_that_goes_on_is_drawn_from_its_record_and_its_promise():
    going_on = record([{"r2": 0.1}, {"r2": 0.3}], epsilon=9.0, baselines={"pooled": {"r2": 0.4}})
    figure = training(RunSnapshot(going_on, PRIVATE))
    assert title(figure) == "After 2 rounds: R2 0.300"
    assert [line.get_xydata().tolist() for line in figure.axes[0].lines[1:]] == [[[1, 0.1], [2, 0.3]]]
    assert [axes.get_ylabel() for axes in figure.axes] == ["R2", "Epsilon"]
    assert "pooled 0.400" in words(figure)
    assert "for any one record" in words(figure)
    require_legible(figure)


def test_without_a_score_the_price_alone_is_drawn():
    figure = training(RunSnapshot(record([{}, {}], epsilon=9.0), PRIVATE))
    assert [axes.get_ylabel() for axes in figure.axes] == ["Epsilon"]
    assert title(figure) == "After 2 rounds: epsilon 2 spent"
    require_legible(figure)
    with pytest.raises(InvalidValue, match="with a score"):
        training(RunSnapshot(record([{}, {}]), state(Open(), [])))


def test_scores_of_one_world_and_ends_of_intervals_have_no_panel():
    names = ["return", "return_low", "return_high", "return@windy", "train_return", "solved", "solo_low"]
    assert scores_of(names) == ["return", "solved", "solo_low"]
    figure = training(RunSnapshot(record([dict.fromkeys(names, 1.0)]), state(Open(), [])))
    assert [axes.get_ylabel() for axes in figure.axes] == ["return", "share solved", "solo_low"]


def test_rounds_without_a_finite_score_are_left_out():
    figure = training(RunSnapshot(record([{"r2": np.inf}, {"r2": 0.2}, {"r2": np.nan}]), state(Open(), [])))
    assert [line.get_xydata().tolist() for line in figure.axes[0].lines] == [[[2, 0.2]]]


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0.0, "0.000"), (0.63249, "0.632"), (-12.3456, "-12.346"), (487.25, "487.2"), (-1301.2, "-1,301"),
     (2.5e6, "2,500,000"), (0.00012, "1.2e-04")],
)  # fmt: skip
def test_numbers_have_no_digits_that_say_nothing(value, expected):
    assert format_score(value) == expected
