"""Sampling of sites: at the promised rate, afresh in every round, in the order of the sites."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from tacit.errors import InvalidValue
from tacit.runtime.keys import Key
from tacit.sites.sampling import Fixed, Poisson

# The draws below are fixed by their keys; this is the share of keys on which each would raise an alarm.
FALSE_ALARM = 1e-6
NAMES = [f"site-{number}" for number in range(60)]
ROUNDS = 400


def rounds_of(draw: Poisson | Fixed, participation: float = 1.0, rounds: int = ROUNDS) -> np.ndarray:
    """Return the sampled sites of each round (rounds, sites)."""
    key = Key(5, rehearsal=True)
    drawn = [set(draw(NAMES, participation, key / number / "who")) for number in range(1, rounds + 1)]
    return np.array([[name in came for name in NAMES] for came in drawn])


@pytest.mark.parametrize("rate", [0.02, 0.3, 0.9])
def test_each_site_joins_at_the_promised_rate(rate: float):
    came = rounds_of(Poisson(), rate)
    assert stats.binomtest(int(came.sum()), came.size, rate).pvalue > FALSE_ALARM
    for site in came.T:
        assert stats.binomtest(int(site.sum()), ROUNDS, rate).pvalue > FALSE_ALARM


def test_sites_join_independently_so_their_number_varies_as_a_binomial():
    counts = rounds_of(Poisson(), 0.3).sum(axis=1)
    spread = counts.var(ddof=1) / (len(NAMES) * 0.3 * 0.7)
    low, high = stats.chi2(ROUNDS - 1).ppf([FALSE_ALARM / 2, 1 - FALSE_ALARM / 2]) / (ROUNDS - 1)
    assert low < spread < high


def test_a_round_tells_nothing_about_the_next():
    came = rounds_of(Poisson(), 0.3)
    both = int((came[1:] & came[:-1]).sum())
    assert stats.binomtest(both, came[1:].size, 0.09).pvalue > FALSE_ALARM
    assert len({tuple(row) for row in came.tolist()}) == ROUNDS


def test_a_site_tells_nothing_about_its_neighbour():
    came = rounds_of(Poisson(), 0.3)
    assert stats.binomtest(int((came[:, 1:] & came[:, :-1]).sum()), came[:, 1:].size, 0.09).pvalue > 1e-6


@given(st.lists(st.text(min_size=1), unique=True, max_size=30), st.floats(0.01, 1), st.integers())
def test_names_keep_their_order(names: list[str], rate: float, seed: int):
    drawn = Poisson()(names, rate, Key(seed))
    assert drawn == [name for name in names if name in set(drawn)]


@given(st.data())
def test_a_fixed_draw_keeps_the_order_and_its_number(data: st.DataObject):
    names = data.draw(st.lists(st.text(min_size=1), unique=True, min_size=1, max_size=30))
    count = data.draw(st.integers(1, len(names)))
    drawn = Fixed(count=count)(names, 1.0, Key(data.draw(st.integers())))
    assert len(drawn) == count
    assert drawn == [name for name in names if name in set(drawn)]


def test_with_certainty_everybody_joins():
    assert Poisson()(NAMES, 1.0, Key(1)) == NAMES
    assert Fixed(count=len(NAMES))(NAMES, 0.5, Key(1)) == NAMES


def test_maybe_nobody_joins():
    assert [] in [Poisson()(["oslo", "bergen"], 0.3, Key(1, rehearsal=True) / round) for round in range(20)]


def test_nobody_can_foretell_a_secret_draw_from_the_seed():
    drawn = {tuple(Poisson()(NAMES, 0.5, Key(1) / 1 / "who")) for _ in range(5)}
    assert len(drawn) == 5


def test_a_draw_repeats_in_a_rehearsal_and_after_a_crash():
    entropy = bytes(range(32))
    for key in (Key(1, rehearsal=True), Key(1, entropy=entropy)):
        again = Key(1, rehearsal=key.rehearsal, entropy=entropy)
        assert Poisson()(NAMES, 0.5, key / 3) == Poisson()(NAMES, 0.5, again / 3)


def test_a_fixed_draw_is_public_and_repeats_with_the_seed():
    assert Fixed(count=7)(NAMES, 1.0, Key(1) / 3) == Fixed(count=7)(NAMES, 1.0, Key(1) / 3)
    assert Fixed(count=7)(NAMES, 1.0, Key(1) / 3) != Fixed(count=7)(NAMES, 1.0, Key(2) / 3)


def test_a_fixed_draw_takes_exactly_so_many_and_prefers_nobody():
    came = rounds_of(Fixed(count=15))
    assert (came.sum(axis=1) == 15).all()
    assert len({tuple(row) for row in came.tolist()}) == ROUNDS
    for site in came.T:
        assert stats.binomtest(int(site.sum()), ROUNDS, 0.25).pvalue > FALSE_ALARM


@pytest.mark.parametrize("count", [0, -1, 61])
def test_a_number_that_the_federation_cannot_give_is_refused(count: int):
    with pytest.raises(
        InvalidValue, match=rf"count = {count} is not allowed: it must be (at most 60|a whole)"
    ):
        Fixed(count=count)(NAMES, 1.0, Key(1))


def test_a_draw_says_whether_a_price_may_count_on_it():
    assert (Poisson().kind, Fixed(count=1).kind) == ("poisson", "fixed")
