"""Bounds that double precision has no lengths for are refused; all others hold, in every precision."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tacit import Privacy
from tacit.errors import InvalidValue
from tacit.privacy.mechanisms.adaptive_clipping import AdaptiveClipping
from tacit.privacy.mechanisms.base import RecordLevel, Rows, clip_factors
from tacit.privacy.mechanisms.clip import clip_rows, lengths
from tacit.privacy.mechanisms.site_level import SiteLevel
from tacit.privacy.mechanisms.vertical import LocalColumns, clip_to_bound

BEYOND = [1e-200, 9e-51, 1e50, 1e200, 5e-324, 0.0, -1.0, math.inf, math.nan]
RECORDS = {"law": "gaussian", "multiplier": 1.0, "steps": 1, "rate": 1.0}
TINY_BOUNDS = [1e-49, 1e-46, 2e-45, 1e-44, 1e-40, 3e-38]


@pytest.mark.parametrize("clip", BEYOND)
@pytest.mark.parametrize(
    "made",
    [
        lambda clip: Privacy(unit="record", delta=1e-6, epsilon=1.0, clip=clip),
        lambda clip: Privacy(unit="site", delta=1e-6, epsilon=1.0, clip=clip, clip_quantile=0.5),
        lambda clip: RecordLevel(clip=clip, **RECORDS),
        lambda clip: SiteLevel(law="gaussian", clip=clip, multiplier=1.0, where="site", reach=clip),
        lambda clip: AdaptiveClipping(blocks=(2,), quantile=0.5, start=clip),
        lambda clip: LocalColumns(multiplier=1.0, radii={"x": clip}, holders={"x": "a"}, widths={"x": 2}),
        lambda clip: clip_factors(np.ones(3), clip),
    ],
)
def test_a_bound_beyond_all_lengths_is_refused(made, clip):
    with pytest.raises(
        InvalidValue, match=r"is not allowed: it must be a number above 1e-50 and below 1e\+50"
    ):
        made(clip)


@pytest.mark.parametrize("clip", [1.1e-50, 1.0, 9e49])
def test_any_other_bound_is_taken(clip):
    assert Privacy(unit="record", delta=1e-6, epsilon=1.0, clip=clip).clip == clip


@settings(deadline=None, max_examples=200)
@given(
    st.lists(st.floats(-(2.0**127), 2.0**127, width=32), min_size=1, max_size=4), st.sampled_from(TINY_BOUNDS)
)
@example([1.0, 1.0], 2e-45)
@example([1.0], 1e-45)
def test_a_row_of_single_precision_is_not_rounded_up_beyond_a_tiny_bound(row, bound):
    found = clip_rows(np.array(row, dtype=np.float32), bound)
    square = sum(Fraction(value) ** 2 for value in found.tolist())
    assert square <= (Fraction(bound) * (1 + Fraction(1, 2**50))) ** 2


@settings(deadline=None, max_examples=200)
@given(
    st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=3, max_size=3),
    st.integers(-49, 49).map(lambda power: float(f"1e{power}")),
)
def test_rows_that_are_written_out_are_clipped_whatever_their_size(row, bound):
    rows = np.array([row])
    contributions = Rows(rows[None])
    sums = contributions.total(clip_factors(contributions.lengths("l2"), bound))[0]
    for found in (sums, clip_to_bound(rows, bound)[0]):
        square = sum(Fraction(value) ** 2 for value in found.tolist())
        assert square <= (Fraction(bound) * (1 + Fraction(1, 2**50))) ** 2


@settings(deadline=None, max_examples=200)
@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=4))
def test_lengths_of_rows_are_exact_whatever_their_size(row):
    found = float(lengths(np.array(row, dtype=np.float64)))
    square = sum(Fraction(value) ** 2 for value in row)
    if math.isinf(found):
        assert square > Fraction(1.79e308) ** 2
    else:
        lacking = Fraction(5e-324) * 4
        assert square <= (Fraction(found) * (1 + Fraction(1, 10**12)) + lacking) ** 2
        assert square >= max(Fraction(found) * (1 - Fraction(1, 10**12)) - lacking, Fraction(0)) ** 2
