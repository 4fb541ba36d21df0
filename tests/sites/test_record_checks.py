"""Checks of records before a charge: what is refused, and that no single record decides on it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.errors import InvalidValue
from tacit.sites.record_checks import WIDEST, require_scaled, require_single, usual_spreads_of
from tacit.sites.table import Table


def table(values) -> Table:
    return Table(np.asarray(values, dtype=np.float64)[:, None], {}, ("platelets",))


def test_a_feature_that_usually_spans_more_than_a_hundred_is_refused_with_a_way_out():
    require_scaled(table(np.linspace(0.0, WIDEST, 40)), "oslo")
    with pytest.raises(InvalidValue, match=r'platelets in oslo is not allowed: .* scale = { "platelets" ='):
        require_scaled(table(np.linspace(100.0, 300.0, 40)), "oslo")


@given(st.integers(2, 60), st.sampled_from([1e3, 98765.0, 1e300, -1e300]), st.integers(0, 60))
def test_one_record_of_absurd_size_is_not_revealed_by_a_refusal(records, absurd, place):
    ages = np.random.default_rng(records).uniform(-50.0, 50.0, records)
    require_scaled(table(ages), "oslo")
    require_scaled(table(np.insert(ages, min(place, records), absurd)), "oslo")


@pytest.mark.parametrize(("records", "kept"), [(3, (1, 1)), (39, (1, 37)), (40, (2, 37)), (100, (5, 94))])
def test_the_usual_spread_leaves_out_one_in_twenty_at_each_end_and_at_least_one(records, kept):
    values = np.cumsum(np.arange(records, dtype=np.float64))
    low, high = kept
    assert usual_spreads_of(table(values[::-1])) == values[high] - values[low]


@pytest.mark.parametrize("records", [0, 1, 2])
def test_a_few_records_have_no_usual_spread(records):
    assert usual_spreads_of(table(np.arange(records) * 1e9)).tolist() == [0.0]


def cohort(places, coarse=False) -> Table:
    """Records of 200 people, those at the given places."""
    draws = np.random.default_rng(0)
    age = draws.normal(60, 9, 200).round(1)
    time = draws.integers(1, 13, 200) * 1.0 if coarse else draws.exponential(30, 200)
    values = np.c_[age > 60 if coarse else age, draws.integers(0, 2, 200)][places] * 1.0
    targets = {"time": time[places], "event": draws.integers(0, 2, 200)[places] * 1.0}
    return Table(values, targets, ("age", "sex"))


ONCE = np.arange(200)


@pytest.mark.parametrize(
    "places",
    [np.repeat(ONCE, 2), np.append(np.repeat(ONCE[1:], 3), 0), np.append(ONCE, ONCE[:30])],
    ids=["all twice", "199 of 200 thrice", "30 of 200 twice"],
)
def test_copies_of_a_tenth_of_the_records_or_more_are_refused_and_their_number_is_for_the_owner(places):
    with pytest.raises(InvalidValue, match="no record may be there twice") as refused:
        require_single(cohort(places), "oslo")
    assert f"of {len(places)} are equal to another one" in str(refused.value)
    # What all may read is the same for all data.
    assert refused.value.rule == (
        "records are not allowed: no record may be there twice: a promise about single records would be "
        "weaker by the number of copies; remove the copies (equal in three digits of every column), or "
        'protect whole sites, by [privacy] unit = "site"'
    )
    assert set(ONCE[np.bincount(places) > 1]) == set(places[np.array(refused.value.rows) - 1])
    require_single(cohort(np.unique(places)), "oslo")


def test_few_copies_and_records_that_are_equal_by_chance_are_not_refused():
    require_single(cohort(np.append(ONCE, ONCE[:8])), "oslo")
    coarse = cohort(ONCE, coarse=True)
    assert len(np.unique(np.c_[coarse.features, *coarse.targets.values()], axis=0)) < 100
    require_single(coarse, "oslo")
