"""An aggregator of the user's own is called as it is, and what it returns is looked at."""

import numpy as np
import pytest

from tacit import Open
from tacit.aggregation.base import CustomAggregator, as_aggregator, user_choice
from tacit.aggregation.mean import Join, Mean
from tacit.errors import InvalidValue
from tacit.learning.task import Updates

ROWS = np.arange(12.0).reshape(4, 3)


class Halved:
    """The mean of the rows, halved, with a bound of its own."""

    def __call__(self, updates, sites=None):
        return np.asarray(np.asarray(updates)).mean(axis=0) / 2

    def sensitivity(self, clip, sites):
        return clip / (2 * sites)


def test_what_it_returns_is_one_vector_as_long_as_an_update():
    own = as_aggregator(Halved())
    assert isinstance(own, CustomAggregator)
    assert own(ROWS).tolist() == (ROWS.mean(axis=0) / 2).tolist()
    for wrong in (lambda updates: np.zeros(4), lambda updates: np.zeros((1, 3)), lambda updates: 0.0):
        with pytest.raises(InvalidValue, match="one vector of 3"):
            as_aggregator(wrong)(ROWS)


def test_what_it_raises_is_told_with_its_name():
    with pytest.raises(InvalidValue, match="failed: ZeroDivisionError"):
        as_aggregator(lambda updates: 1 / 0)(ROWS)


def test_its_bound_is_believed_in_the_norm_that_it_is_of():
    own = as_aggregator(Halved())
    assert own.sensitivity(3.0, 2) == own.sensitivity(3.0, 2, "l2") == 0.75
    assert own.sensitivity(3.0, 2, "l1") is None
    assert as_aggregator(lambda updates: updates.mean(axis=0)).sensitivity(3.0, 2) is None


def test_nothing_is_claimed_for_it():
    own = as_aggregator(Halved())
    assert own.tolerates(10) == 0
    assert own.resolve(10, Open()) is own
    assert own.shares(ROWS) is None
    assert own.parties(["a", "b"], 1) is None


def test_the_user_is_given_back_what_the_user_gave():
    halved, join = Halved(), Join(lambda updates: updates.matrix, lambda updates: updates.matrix)
    assert user_choice(as_aggregator(halved)) is halved
    assert user_choice(Mean()) == Mean()
    assert user_choice(join) is None
    assert join.tolerates(7) == 0


def test_a_mean_stands_no_liar_and_shares_by_its_weights():
    named = Updates(("a", "b", "c", "d"), ROWS)
    assert Mean().tolerates(9) == 0
    assert Mean().shares(named).tolist() == [0.25] * 4
    weighted = Mean(weights={"a": 1.0, "b": 2.0, "c": 1.0, "d": 4.0})
    assert weighted.shares(named).tolist() == [0.125, 0.25, 0.125, 0.5]
