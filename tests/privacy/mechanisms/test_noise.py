"""The noise has the law and the scale it is said to have.

Draws come from rehearsal keys, so every verdict repeats. `FALSE_ALARM` is the share of seeds on which a right
implementation would be accused; the power tests show that the same test accuses a wrong one.
"""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from tacit.errors import InvalidValue
from tacit.privacy.mechanisms import noise
from tacit.runtime.keys import Key

FALSE_ALARM = 1e-6
DRAWS = 200_000
REHEARSAL = Key(2024, rehearsal=True)
ENTROPY = bytes(range(32))
ADD = {"gaussian": noise.gaussian, "laplace": noise.laplace}
LAWS = {"gaussian": stats.norm, "laplace": stats.laplace}


def sample(law: str, scale: float, key: Key = REHEARSAL, count: int = DRAWS) -> np.ndarray:
    return ADD[law](np.zeros(count), scale, key / law)


def accused(draws: np.ndarray, law: str, scale: float) -> bool:
    """Return True if a Kolmogorov-Smirnov test rejects the law."""
    return bool(stats.kstest(draws, LAWS[law](scale=scale).cdf).pvalue < FALSE_ALARM)


@pytest.mark.parametrize("law", ADD)
@pytest.mark.parametrize("scale", [1e-6, 0.37, 1.0, 1e4])
def test_noise_has_its_law_and_scale(law, scale):
    assert not accused(sample(law, scale), law, scale)


@pytest.mark.parametrize("law", ADD)
@pytest.mark.parametrize("error", [0.95, 1.05])
def test_the_test_of_the_law_accuses_a_scale_that_is_off_by_five_per_cent(law, error):
    assert accused(sample(law, error), law, 1.0)


def test_the_test_of_the_law_accuses_the_wrong_law_of_the_right_variance():
    assert accused(sample("gaussian", math.sqrt(2)), "laplace", 1.0)
    assert accused(sample("laplace", math.sqrt(0.5)), "gaussian", 1.0)


@pytest.mark.parametrize("law", ADD)
def test_noise_has_its_law_over_many_keys_of_one_draw_each(law):
    draws = np.array([sample(law, 2.0, REHEARSAL / number, 1)[0] for number in range(10_000)])
    assert not accused(draws, law, 2.0)


def test_gaussian_noise_has_the_variance_it_is_charged_for():
    # The sum of squares over the variance has the chi-square law.
    total = float((sample("gaussian", 3.0) ** 2).sum()) / 9.0
    low, high = stats.chi2(DRAWS).isf([1 - FALSE_ALARM / 2, FALSE_ALARM / 2])
    assert low < total < high
    assert high / low < 1.04


def test_laplace_noise_has_the_spread_it_is_charged_for():
    # Twice the sum of absolute values over the scale has the chi-square law with two degrees each.
    total = 2 * float(np.abs(sample("laplace", 3.0)).sum()) / 3.0
    low, high = stats.chi2(2 * DRAWS).isf([1 - FALSE_ALARM / 2, FALSE_ALARM / 2])
    assert low < total < high
    assert high / low < 1.04


@pytest.mark.parametrize("law", ADD)
def test_noise_is_symmetric_about_the_values(law):
    positive = int((sample(law, 1.0) > 0).sum())
    assert stats.binomtest(positive, DRAWS).pvalue > FALSE_ALARM


@pytest.mark.parametrize("law", ADD)
def test_the_tails_are_as_heavy_as_they_should_be(law):
    draws = np.abs(sample(law, 1.0))
    for edge in (2.0, 3.0, 4.0):
        beyond = 2 * LAWS[law].sf(edge)
        assert stats.binomtest(int((draws > edge).sum()), DRAWS, beyond).pvalue > FALSE_ALARM


def correlated(one: np.ndarray, other: np.ndarray) -> bool:
    bound = stats.norm.isf(FALSE_ALARM / 2) / math.sqrt(one.size)
    return any(
        abs(np.corrcoef(shape(one), shape(other))[0, 1]) > bound for shape in (np.asarray, np.abs, np.sign)
    )


@pytest.mark.parametrize("law", ADD)
@pytest.mark.parametrize("lag", [1, 2, 8])
def test_coordinates_are_independent(law, lag):
    draws = sample(law, 1.0)
    assert not correlated(draws[:-lag], draws[lag:])


@pytest.mark.parametrize("law", ADD)
def test_keys_are_independent(law):
    assert not correlated(sample(law, 1.0, REHEARSAL / 1), sample(law, 1.0, REHEARSAL / 2))


def test_the_test_of_independence_accuses_a_hint_of_dependence():
    one, other = sample("gaussian", 1.0, REHEARSAL / 1), sample("gaussian", 1.0, REHEARSAL / 2)
    assert correlated(one, other + 0.03 * one)
    assert correlated(one, np.abs(one) * np.sign(other))


@pytest.mark.parametrize("law", ADD)
def test_the_same_values_under_the_same_key_get_the_same_noise(law):
    values = np.linspace(-1, 1, 100)
    first, second = (ADD[law](values, 1.0, Key(7, entropy=ENTROPY) / 3) for _ in range(2))
    assert (first == second).all()


@pytest.mark.parametrize("law", ADD)
def test_other_values_under_the_same_key_get_unrelated_noise(law):
    key = Key(7, entropy=ENTROPY)
    values = np.zeros(DRAWS)
    moved = values.copy()
    moved[0] = 1e-12
    one, other = ADD[law](values, 1.0, key) - values, ADD[law](moved, 1.0, key) - moved
    assert not correlated(one, other)
    assert not (one == other).any()


@pytest.mark.parametrize("law", ADD)
def test_another_scale_under_the_same_key_gets_unrelated_noise(law):
    # Otherwise two releases of one value could be solved for it.
    key = Key(7, entropy=ENTROPY)
    assert not correlated(ADD[law](np.zeros(DRAWS), 1.0, key), ADD[law](np.zeros(DRAWS), 2.0, key))


def test_another_law_under_the_same_key_gets_unrelated_noise():
    key, values = Key(7, entropy=ENTROPY), np.zeros(DRAWS)
    assert not correlated(noise.gaussian(values, 1.0, key), noise.laplace(values, 1.0, key))


@pytest.mark.parametrize("law", ADD)
def test_two_runs_get_unrelated_noise(law):
    one = ADD[law](np.zeros(1000), 1.0, Key(7))
    other = ADD[law](np.zeros(1000), 1.0, Key(7))
    assert not correlated(one, other)


@pytest.mark.parametrize("law", ADD)
def test_noise_is_added_to_the_values(law):
    values = np.linspace(-5, 5, 11).reshape(1, 11)
    noised = ADD[law](values, 0.25, REHEARSAL)
    assert noised.shape == values.shape
    np.testing.assert_allclose(noised - ADD[law](np.zeros((1, 11)), 0.25, REHEARSAL), values, atol=1e-8)


def test_the_values_are_left_as_they_were():
    values = np.ones(3)
    noise.gaussian(values, 1.0, REHEARSAL)
    assert values.tolist() == [1, 1, 1]


@pytest.mark.parametrize("key", [REHEARSAL, Key(7, entropy=ENTROPY)], ids=["rehearsal", "secret"])
@pytest.mark.parametrize("law", ADD)
def test_rows_with_a_key_each_get_the_noise_that_they_would_get_alone(law, key):
    rows = np.linspace(-5, 5, 21).reshape(3, 7)
    together = ADD[law](rows, 0.7, *(key / site for site in "abc"))
    alone = [ADD[law](row, 0.7, key / site) for row, site in zip(rows, "abc", strict=True)]
    assert (together == np.array(alone)).all()


@pytest.mark.parametrize("count", [0, 2, 4])
def test_rows_are_not_shared_out_among_keys_in_any_other_way(count):
    with pytest.raises(AssertionError, match="one for each row"):
        noise.gaussian(np.zeros((3, 8)), 1.0, *(REHEARSAL / site for site in range(count)))


def test_no_values_stay_no_values():
    assert noise.gaussian(np.zeros(0), 1.0, REHEARSAL).shape == (0,)


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=5), st.floats(1e-3, 1e6), st.sampled_from(sorted(ADD))
)
def test_results_lie_on_a_grid_that_depends_on_the_scale_alone(values, scale, law):
    step = 2.0 ** (math.floor(math.log2(scale)) - noise.GRID_BITS)
    assert scale * 2.0**-31 < step <= scale * 2.0**-30
    steps = ADD[law](np.array(values), scale, Key(7)) / step
    assert (steps == np.round(steps)).all()


def most_extreme(monkeypatch: pytest.MonkeyPatch, law: str) -> float:
    """The largest draw out of constant streams, all zeros and all ones."""

    draws: list[float] = []
    for byte in (b"\x00", b"\xff"):

        def fill(places: list[bytes], room: memoryview, byte: bytes = byte) -> None:
            room[:] = byte * len(room)

        monkeypatch.setattr("tacit.runtime.keys._cipher", lambda _run, fill=fill: fill)
        draws.append(abs(float(ADD[law](np.zeros(1), 1.0, REHEARSAL)[0])))
    return max(draws)


@pytest.mark.parametrize(("law", "far"), [("gaussian", 9.0), ("laplace", 45.0)])
def test_the_tails_are_finer_than_the_grid(monkeypatch, law, far):
    # Where neighboring draws lie further apart than the grid, the results have holes, and where those lie
    # tells the value: whoever sees a result in the tail knows which of two neighbors it was, whatever
    # epsilon says. With uniforms on a lattice of 2^-52 that happens to one Gaussian in 2e7 and to one Laplace
    # in 4e6. The most extreme draw shows the lattice: these distances have probability 2e-19 and 3e-20.
    assert far < most_extreme(monkeypatch, law) < math.inf


@pytest.mark.parametrize("law", ADD)
@pytest.mark.parametrize("scale", [0.0, -1.0, math.nan, math.inf])
def test_a_scale_that_protects_nobody_is_refused(law, scale):
    with pytest.raises(InvalidValue, match="scale"):
        ADD[law](np.zeros(3), scale, REHEARSAL)


@pytest.mark.parametrize("law", ADD)
@pytest.mark.parametrize("broken", [math.nan, math.inf])
def test_values_that_were_not_clipped_are_refused(law, broken):
    with pytest.raises(InvalidValue, match="clipped"):
        ADD[law](np.array([0.0, broken]), 1.0, REHEARSAL)
