"""Checks of records before a charge: what is refused, and that no single record decides on it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.errors import InvalidValue
from tacit.sites.record_checks import WIDEST, require_scaled, usual_spreads_of
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
