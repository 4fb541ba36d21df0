"""Evidence from releases: right on average, the same whatever the parties, in pairs whose noise is apart."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_evidence import debias_rows

from tacit.errors import InvalidValue
from tacit.functional.boosting.debias import (
    GAIN,
    JUDGED,
    LEARNT,
    PAIRS,
    BlockShape,
    debias_moments,
    fission,
    symmetric,
)
from tacit.functional.boosting.moments import NOISY_FOLDS
from tacit.runtime.keys import Key

WIDTHS, M = (3, 2), 2
BLOCKS = (slice(0, 3), slice(3, 5))
SHAPE = BlockShape(blocks=BLOCKS, roughness=[np.arange(3.0), np.arange(2.0)], roughness_y=np.arange(2.0))
RADII = (2.0, 1.5, 4.0)


def curves(seed, count):
    draws = np.random.default_rng(seed)
    x = draws.normal(size=(count, 5)) @ draws.normal(size=(5, 5)) * 0.3 + draws.normal(size=5)
    y = x @ draws.normal(size=(5, M)) + 0.3 * draws.normal(size=(count, M))
    return x, y


def clipped(rows, bound):
    return rows * np.minimum(1, bound / np.linalg.norm(rows, axis=1))[:, None]


def products(x, y):
    parts = [x[:, block] for block in BLOCKS]
    units = [clipped(part, bound) / bound for part, bound in zip([*parts, y], RADII, strict=True)]
    rows = np.hstack([np.ones((len(x), 1)), *units])
    return rows.T @ rows, np.hstack(units) * np.repeat(RADII, (*WIDTHS, M))


def covariance(rows):
    return np.cov(rows.T)


def joined(moments):
    return np.block([[moments.xx, moments.xy], [moments.xy.T, moments.yy]])


def misses(draws, truth):
    """By how many standard errors the mean of draws misses the truth, at the root of the mean square."""
    draws = np.array(draws)
    error = draws.std(axis=0, ddof=1) / np.sqrt(len(draws))
    return np.sqrt((((draws.mean(axis=0) - truth) / error) ** 2).mean())


@given(st.integers(0, 1000), st.integers(12, 60), st.integers(2, 6))
def test_without_noise_rows_give_covariances_of_contiguous_folds(seed, count, folds):
    x, y = curves(seed, count)
    found = debias_rows(x, y, folds=folds, shape=SHAPE)
    rows = np.hstack([x, y])
    assert np.allclose(joined(found.whole), covariance(rows))
    assert found.whole.xx is found.raw.xx
    assert found.floors == (0.0, 0.0)
    assert not found.optimism
    ends = [count * fold // folds for fold in range(folds + 1)]
    for fold, (learnt, judged) in enumerate(found.splits):
        inside = (np.arange(count) >= ends[fold]) & (np.arange(count) < ends[fold + 1])
        assert np.allclose(joined(learnt), covariance(rows[~inside]))
        assert np.allclose(joined(judged), covariance(rows[inside]))
        assert (learnt.count, judged.count) == ((~inside).sum(), inside.sum())


def test_with_noise_halves_of_the_folds_judge_each_other():
    x, y = curves(1, 41)
    found = debias_rows(x, y, variances=(0.1, 0.2), shape=SHAPE)
    quarter = np.repeat(range(NOISY_FOLDS), np.diff([41 * fold // NOISY_FOLDS for fold in range(5)]))
    noise = np.diag(np.r_[np.repeat([0.1, 0.2], WIDTHS), np.zeros(M)])
    for (learnt, judged), half in zip(found.splits, combinations(range(NOISY_FOLDS), 2), strict=True):
        inside = np.isin(quarter, half)
        rows = np.hstack([x, y])
        assert np.allclose(joined(learnt), covariance(rows[inside]) - noise)
        assert np.allclose(joined(judged), covariance(rows[~inside]) - noise)


def test_large_means_do_not_swallow_what_varies():
    x, y = curves(2, 50)
    near, far = debias_rows(x, y, shape=SHAPE), debias_rows(x + 1e7, y - 1e7, shape=SHAPE)
    assert np.allclose(joined(near.whole), joined(far.whole), rtol=1e-6, atol=1e-7)


def test_noise_is_taken_off_rows_right_on_average():
    x, y = curves(3, 40)
    noise = np.sqrt(np.repeat([0.5, 1.5], WIDTHS))
    draws = np.random.default_rng(0)
    raw, halves = [], []
    for _ in range(500):
        noisy = debias_rows(
            x + noise * draws.normal(size=x.shape),
            y + 0.7 * draws.normal(size=y.shape),
            variances=(0.5, 1.5),
            variance_y=0.49,
            shape=SHAPE,
        )
        raw.append(joined(noisy.raw))
        halves.append(joined(noisy.splits[0][0]))
    assert misses(raw, covariance(np.hstack([x, y]))) < 1.4
    assert misses(halves, covariance(np.hstack([x, y])[:20])) < 1.4


def test_noise_is_taken_off_moments_right_on_average():
    x, y = curves(4, 30)
    exact, rows = products(x, y)
    draws = np.random.default_rng(0)
    # So much that the noise of the means counts too.
    sigma = 15.0
    raw, learnt, judged = [], [], []
    for number in range(500):
        noisy = exact + symmetric(len(exact), sigma, draws)
        found = debias_moments(noisy, sigma=sigma, radii=RADII, count=30, key=Key(number), shape=SHAPE)
        raw.append(joined(found.raw))
        learnt.append(joined(found.splits[0][0]))
        judged.append(joined(found.splits[0][1]))
    for kind in (raw, learnt, judged):
        assert misses(kind, covariance(rows)) < 1.4


def test_without_noise_moments_and_rows_say_the_same():
    x, y = curves(5, 60)
    exact, rows = products(x, y)
    of_all = debias_moments(exact, sigma=0.0, radii=RADII, count=60, key=Key(0), shape=SHAPE)
    one_by_one = debias_rows(rows[:, :5], rows[:, 5:], shape=SHAPE)
    assert np.allclose(joined(of_all.whole), joined(one_by_one.whole))
    assert of_all.floors == (0.0, 0.0)
    assert of_all.optimism
    # There is one pair, which judges itself: degrees of freedom have to do it.
    ((learnt, judged),) = of_all.splits
    assert np.array_equal(learnt.xx, judged.xx)


@settings(max_examples=25)
@given(st.integers(0, 1000), st.floats(0.1, 30))
def test_no_combination_of_predictors_has_a_negative_variance(seed, noise):
    x, y = curves(seed, 20)
    draws = np.random.default_rng(seed)
    exact, _ = products(x, y)
    noisy = x + noise * draws.normal(size=x.shape)
    for found in (
        debias_rows(noisy, y, variances=(noise**2, noise**2), shape=SHAPE),
        debias_moments(
            exact + symmetric(len(exact), noise, draws),
            sigma=noise,
            radii=RADII,
            count=20,
            key=Key(0),
            shape=SHAPE,
        ),
    ):
        # Rounding is relative to what was repaired; what is left may be nothing at all.
        scale = np.linalg.norm(found.raw.xx)
        assert np.linalg.eigvalsh(found.whole.xx)[0] > -1e-9 * scale
        assert (found.whole.xy == found.raw.xy).all()


def test_what_has_no_noise_is_hardly_touched_by_the_repair_of_what_has():
    x, y = curves(6, 25)
    noisy = x.copy()
    noisy[:, 3:] += 20 * np.random.default_rng(0).normal(size=(25, 2))
    found = debias_rows(noisy, y, variances=(0.0, 400.0), shape=SHAPE)
    assert np.linalg.eigvalsh(found.raw.xx)[0] < -1
    assert np.allclose(found.whole.xx[:3, :3], found.raw.xx[:3, :3], rtol=1e-3, atol=1e-4)
    assert found.floors[0] == 0.0


def test_floors_are_what_noise_does_to_eigenvalues():
    draws = np.random.default_rng(0)
    count, width, deviation = 4000, 30, 3.0
    shape = BlockShape(blocks=(slice(0, width),), roughness=[np.zeros(width)], roughness_y=np.zeros(1))
    x, y = deviation * draws.normal(size=(count, width)), np.zeros((count, 1))
    rows = debias_rows(x, y, variances=(deviation**2,), shape=shape)
    noise = symmetric(width + 2, 50.0, draws)
    moments = debias_moments(noise, sigma=50.0, radii=(3.0, 1.0), count=count, key=Key(0), shape=shape)
    for found in (rows, moments):
        assert np.linalg.eigvalsh(found.raw.xx)[-1] == pytest.approx(found.floors[0], rel=0.15)


def test_one_release_becomes_two_with_independent_noise():
    size, sigma = 6, 2.0
    draws = np.random.default_rng(0)
    ones, others = [], []
    for number in range(4000):
        noise = symmetric(size, sigma, draws)
        one, other = next(fission(noise, sigma, Key(number)))
        assert np.array_equal(one, one.T)
        ones.append(one)
        others.append(other)
    one, other = np.array(ones), np.array(others)
    law = np.where(np.eye(size) == 1, sigma, sigma / np.sqrt(2))
    assert np.allclose(one.std(axis=0), LEARNT * law, rtol=0.06)
    assert np.allclose(other.std(axis=0), JUDGED * law, rtol=0.06)
    together = (one * other).mean(axis=0) / (LEARNT * JUDGED * law**2)
    assert abs(together).max() < 4.5 / np.sqrt(4000)
    assert np.allclose([LEARNT**2, JUDGED**2], [1 + GAIN**2, 1 + GAIN**-2])


def test_pairs_repeat_with_their_key_and_differ_among_themselves():
    x, y = curves(7, 30)
    exact, _ = products(x, y)
    told = {"sigma": 1.0, "radii": RADII, "count": 30, "shape": SHAPE}
    first, again = (debias_moments(exact, key=Key(3) / "fit", **told) for _ in range(2))
    other = debias_moments(exact, key=Key(4) / "fit", **told)
    assert len(first.splits) == PAIRS
    for (one, _), (same, _) in zip(first.splits, again.splits, strict=True):
        assert np.array_equal(one.xx, same.xx)
    seen = [pair[0].xx[0, 0] for pair in (*first.splits, *other.splits)]
    assert len(set(seen)) == 2 * PAIRS


def test_stretching_shortens_coefficients_and_lengthens_responses():
    x, y = curves(8, 200)
    plain, stretched = (
        debias_rows(x, y, shape=SHAPE),
        debias_rows(x, y, shape=replace(SHAPE, stretches=(1.5, 1.5, 1.2))),
    )
    before, after = (np.linalg.solve(found.whole.xx, found.whole.xy) for found in (plain, stretched))
    assert np.allclose(after, before * 1.2 / 1.5)
    assert np.allclose(stretched.whole.yy, plain.whole.yy * 1.2**2)


def test_what_does_not_fit_is_refused_by_name():
    x, y = curves(9, 20)
    exact, _ = products(x, y)
    told = {"sigma": 1.0, "radii": RADII, "count": 20, "key": Key(0), "shape": SHAPE}
    for field, changed in (
        ("folds", lambda: debias_rows(x, y, folds=11, shape=SHAPE)),
        ("variances", lambda: debias_rows(x, y, variances=(-1.0, 1.0), shape=SHAPE)),
        ("variances", lambda: debias_rows(x, y, variances=(1.0,), shape=SHAPE)),
        ("variance_y", lambda: debias_rows(x, y, variance_y=-1.0, shape=SHAPE)),
        ("stretches", lambda: replace(SHAPE, stretches=(0.5, 1.0, 1.0))),
        ("blocks", lambda: replace(SHAPE, blocks=(slice(0, 3), slice(4, 5)))),
        ("roughness", lambda: replace(SHAPE, roughness=[np.zeros(3)])),
        ("noisy", lambda: debias_moments(exact[1:, 1:], **told)),
        ("noisy", lambda: debias_moments(exact * np.inf, **told)),
        ("sigma", lambda: debias_moments(exact, **{**told, "sigma": -1.0})),
        ("radii", lambda: debias_moments(exact, **{**told, "radii": (1.0, 1.0)})),
        ("radii", lambda: debias_moments(exact, **{**told, "radii": (1.0, 0.0, 1.0)})),
        ("count", lambda: debias_moments(exact, **{**told, "count": 1})),
    ):
        with pytest.raises(InvalidValue, match=f"^{field} = "):
            changed()
