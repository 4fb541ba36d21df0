"""Accounting of releases: the only place where an epsilon comes from.

Unsampled Gaussians compose exactly in closed form; pure releases add up; everything else goes through privacy
loss distributions. Every number is an upper bound, and the claim is the smallest of them. A bound that fails
in any way (an exception, NaN, infinity, zero, a negative number) counts as infinite: an epsilon that is too
small is the worst bug there is.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from tacit.errors import require, require_count, require_positive, require_rate, require_word
from tacit.privacy.accounting import gaussian, pld, theorems
from tacit.privacy.accounting.release import (
    COARSEST,
    ROUNDED,
    Counts,
    Event,
    Law,
    Relation,
    Release,
    Sampled,
    by_subject,
    clipped_release,
    group_events,
    max_loss,
    require_delta,
    variance,
)

# The error of a grid is quadratic in it, so a grid is fine enough when the one before, four times as coarse,
# differs by less than fifteen times this share.
ACCURACY = 1e-3
# Rounding of Fourier transforms, and cut tails: their largest effect on delta, for each release and in all.
ROUNDING, TRUNCATION = 2e-15, 1e-13
# An epsilon that is proven to be below the first, or that may be above the second, needs no better proof.
NEGLIGIBLE, ABSURD = 1e-6, 1e9
# Grid points of one release; beyond them the grid stays coarse, which overstates.
MOST_POINTS = 100_000


def epsilon(releases: Iterable[Release], delta: float) -> float:
    """The smallest epsilon we can prove for all of these releases together.

    Costs add up (by composition) within a subject; over subjects, who are different people, the largest
    counts.

    Guarantee:
        At least the true epsilon at `delta`; infinite where nothing can be proven.
    """
    require_delta(delta)
    return max(
        (epsilon_of(group_events(group), delta) for group in by_subject(releases).values()), default=0.0
    )


def calibrate(
    epsilon: float,
    delta: float,
    steps: int = 1,
    *,
    rate: float = 1.0,
    relation: Relation = "add-remove",
    mechanism: Law = "gaussian",
    sampled: Sampled = "unit",
    beside: Sequence[Release] = (),
) -> float:
    """The least noise, as a multiple of the clip bound, with which `steps` releases cost at most `epsilon`.

    Args:
        epsilon: Budget of all the releases together.
        delta: The probability with which that may fail; 0 only for Laplace, discrete or not.
        steps: Number of releases.
        rate: Probability of the secret, independent draw by which each unit joins a step.
        relation: Under `replace` one unit moves a sum by twice its bound.
        mechanism: `gaussian` for L2 bounds, `laplace` for L1 bounds, `discrete` for L2 bounds of `COARSEST`
            or more steps of a lattice, `discrete-laplace` for counts.
        sampled: Unit of the sampling: units, or fixed groups of them.
        beside: Other releases about the same records, paid from the same epsilon.

    Guarantee:
        `epsilon()` of the same releases with this noise, and of those beside, is at most the target.
    """
    require_word("mechanism", mechanism, ("gaussian", "laplace", "discrete", "discrete-laplace"))
    require_positive("epsilon", epsilon)
    require(epsilon >= NEGLIGIBLE, "epsilon", epsilon, f"at least {NEGLIGIBLE:g}")
    require_count("steps", steps)
    require_rate("rate", rate)
    require_delta(delta, mechanism)
    if mechanism == "discrete":
        require(rate == 1, "rate", rate, "1 with discrete noise: sampling is not priced")
        # The Gaussian that it is a rounding of, and the effect of rounding on the coarsest lattice allowed.
        plain = calibrate(epsilon, delta, steps, relation=relation, sampled=sampled, beside=beside)
        return math.hypot(plain, math.sqrt(ROUNDED) / COARSEST) * (1 + 1e-12)

    def plan(multiplier: float) -> list[Release]:
        one = clipped_release(
            multiplier, count=steps, rate=rate, relation=relation, law=mechanism, sampled=sampled
        )
        return [one, *(replace(other, subject=one.subject) for other in beside)]

    def price(multiplier: float) -> float:
        return cost(plan(multiplier), delta)

    # Under one relation, as they are priced together.
    first, *others = by_subject(plan(1.0))["records"]
    taken = cost(others, delta)
    require(taken < epsilon, "epsilon", epsilon, f"above {taken:.4g}, the price of the other releases")
    if mechanism in ("laplace", "discrete-laplace") and delta == 0:
        # A little more, so that rounding in the division by a clip bound does not exceed the budget.
        multiplier = (1 + 1e-9) * first.sensitivity / _invert_amplification((epsilon - taken) / steps, rate)
    elif mechanism == "gaussian" and rate == 1 and not beside:
        multiplier = first.sensitivity * math.sqrt(steps) * gaussian.multiplier_of(epsilon, delta)
    else:
        guess: Price = lambda z: _guess(group_events(plan(z)), delta)  # noqa: E731
        coarse: Price = lambda z: _coarse_bound(group_events(plan(z)), delta)  # noqa: E731
        multiplier = smallest_noise([guess, coarse, price], epsilon)
    while price(multiplier) > epsilon:
        multiplier *= 1 + 1e-6
    return multiplier


def affordable(releases: Iterable[Release], epsilon: float, delta: float) -> bool:
    """Return True if the releases together cost at most `epsilon`; cheaper than computing their price."""
    require_delta(delta)
    return all(
        is_within_budget(group_events(group), epsilon, delta) for group in by_subject(releases).values()
    )


def compare(releases: Iterable[Release], delta: float) -> dict[str, float | None]:
    """Compute the epsilon of the costliest subject by each well-known theorem; None where one does not apply.

    These are comparisons. What we claim is `epsilon()`.
    """
    require_delta(delta)
    # Sites with equal releases have equal prices: each kind of site is priced once.
    groups = list({_likeness(group): group for group in by_subject(releases).values()}.values())
    bounds = {"rdp": _rdp, **theorems.THEOREMS}
    return {
        name: _largest([_evaluate_theorem(bound, group, delta) for group in groups])
        for name, bound in bounds.items()
    }


def _likeness(releases: Iterable[Release]) -> tuple[tuple[Release, int], ...]:
    """Return the releases of a subject without unit, subject, party and purpose."""
    counts = Counter[Release]()
    for release in releases:
        counts[replace(release, unit="record", subject="records", count=1, party="", purpose="")] += (
            release.count
        )
    return tuple(sorted(counts.items(), key=repr))


def deltas(releases: Iterable[Release], epsilons: NDArray[np.float64]) -> NDArray[np.float64]:
    """The delta that these releases of one subject keep together, at each epsilon.

    Guarantee:
        At least the truth; 1 where nothing can be proven.
    """
    counts = group_events(releases)
    if all(kind.law == "gaussian" and kind.rate == 1 for kind, _ in counts):
        noise = sum(times / kind.multiplier**2 for kind, times in counts) ** -0.5
        return np.array([gaussian.delta_of(noise, value) for value in epsilons])
    guess = _valid(lambda: _guess(counts, 1e-5))
    grid = max(_coarsest(counts, guess), _finest(counts, guess))
    hidden = ROUNDING * sum(times for _, times in counts) + TRUNCATION
    try:
        found = pld.deltas(counts, epsilons, grid) + hidden
    except Exception:
        found = np.ones_like(epsilons)
    # Pure releases keep their total epsilon with certainty.
    found = np.where(epsilons >= total_pure_epsilon(releases), 0.0, found)
    return np.where(np.isfinite(found), np.clip(found, 0.0, 1.0), 1.0)


def total_pure_epsilon(releases: Iterable[Release]) -> float:
    """The epsilon of these releases of one subject at delta 0; infinite where one of them has none."""
    return sum(times * kind.pure for kind, times in group_events(releases)) * (1 + 1e-12)


cost = epsilon  # `calibrate` has an argument of that name


@lru_cache(maxsize=4096)
def epsilon_of(counts: Counts, delta: float) -> float:
    """The smallest epsilon that can be proven for releases of one subject, counted by kind."""
    exact = _exact(counts, delta)
    return min(_bounds(counts, delta)) if exact is None else exact


@lru_cache(maxsize=4096)
def _coarse_bound(counts: Counts, delta: float) -> float:
    """Return a valid bound that is cheap: searches for one promise ask for the same ones again."""
    return min(islice(_bounds(counts, delta), 3))


def is_within_budget(counts: Counts, budget: float, delta: float) -> bool:
    """Return True if releases of one subject, composed as one fixed plan, cost at most a budget."""
    exact = _exact(counts, delta)
    # Any bound that fits the budget settles it, so the cheap and coarse ones come first.
    return any(bound <= budget for bound in (_bounds(counts, delta) if exact is None else [exact]))


def _bounds(counts: Counts, delta: float) -> Iterator[float]:
    """Valid bounds, from the cheapest to the tightest."""
    cheap = [_valid(lambda: _without_draws(counts, delta)), _valid(lambda: _basic_bound(counts, delta))]
    yield from cheap
    hidden = ROUNDING * sum(times for _, times in counts) + TRUNCATION
    if not NEGLIGIBLE < min(cheap) < ABSURD:
        return
    if delta >= 10 * hidden:
        yield from _numeric(counts, delta - hidden, min(cheap))
    elif delta > 0:
        yield _valid(lambda: _rdp([_example(kind, times) for kind, times in counts], delta) or math.inf)


def _valid(bound: Callable[[], float]) -> float:
    try:
        value = float(bound())
    except Exception:
        return math.inf
    return value if value > 0 else math.inf


def _exact(counts: Counts, delta: float) -> float | None:
    """Return the exact closed form for unsampled Gaussians, or for one kind of generic pure release."""
    if all(kind.law == "gaussian" and kind.rate == 1 for kind, _ in counts):
        return _valid(lambda: _without_draws(counts, delta))
    (kind, times), *others = counts
    if others or delta == 0 or not kind.pure_only:
        return None
    return _valid(lambda: theorems.pure_composition(kind.pure, times, delta))


def _without_draws(counts: Counts, delta: float) -> float:
    """Bound releases as if none were sampled: Gaussians as one Gaussian, plus the pure epsilons."""
    precision = sum(times / kind.multiplier**2 for kind, times in counts if kind.law == "gaussian")
    theorems = sum(times * kind.pure for kind, times in counts if kind.law != "gaussian")
    if precision == 0:
        return theorems
    return math.inf if delta == 0 else gaussian.epsilon_of(precision**-0.5, delta) + theorems


def _basic_bound(counts: Counts, delta: float) -> float:
    """Basic composition over single, amplified releases: loose, but right where draws are very rare."""
    singles = [_example(kind, times) for kind, times in counts]
    return theorems.basic_epsilon(singles, delta) or math.inf


def _example(kind: Event, times: int) -> Release:
    return Release(
        law=kind.law,
        scale=kind.multiplier,
        sensitivity=1.0,
        bound=0.5,
        rate=kind.rate,
        relation="replace" if kind.two_sided else "add-remove",
        count=times,
    )


def _numeric(counts: Counts, delta: float, ceiling: float) -> Iterator[float]:
    """Bound epsilon by privacy loss distributions on finer and finer grids, until bounds converge."""
    guess = _valid(lambda: _guess(counts, delta))
    many = sum(times for _, times in counts) > pld.MANY
    grid, previous = max(_coarsest(counts, guess), _finest(counts, min(guess, ceiling))), math.inf
    while True:
        bound = _valid(partial(pld.epsilon, counts, delta, grid))
        yield bound
        finest = grid if many else _finest(counts, bound)
        if grid <= finest or (bound < ceiling and previous - bound <= 15 * ACCURACY * bound):
            return
        previous, grid = bound, max(grid / 4, finest)


def _coarsest(counts: Counts, guess: float) -> float:
    """Return the coarsest grid: a small share of epsilon and of a single loss's spread."""
    return _power_of_four(min(16e-3 * guess, 0.6 * _spread(counts)))


def _finest(counts: Counts, bound: float) -> float:
    """Return the finest grid: beyond it, more points gain little."""
    widest = max(max(max_loss(kind) for kind, _ in counts), bound / 4 if math.isfinite(bound) else 0.0)
    # From epsilon 0.1 on, the library's own grid of 1e-4 is fine enough, unless single losses are smaller.
    enough = _power_of_four(min(4.0**-6, 0.15 * _spread(counts))) if bound > 0.1 else 0.0
    return max(4 * _power_of_four(widest / MOST_POINTS), enough)


def _power_of_four(scale: float) -> float:
    # Nearby questions then share their grid, and with it their distributions.
    return 4.0 ** math.floor(math.log(scale, 4)) if 0 < scale < math.inf else 1.0


def _guess(counts: Counts, delta: float) -> float:
    """The central limit of the privacy loss: enough to choose a grid and to start a search, never a claim."""
    whole = sum(times * variance(kind) for kind, times in counts)
    # Draws that are too rare for a double leave no variance at all.
    return gaussian.epsilon_of(whole**-0.5, delta) if whole > 0 else gaussian.SMALLEST


def _spread(counts: Counts) -> float:
    """Return the smallest standard deviation of a single privacy loss among the kinds that matter."""
    shares = [(times * variance(kind), variance(kind)) for kind, times in counts]
    return min(math.sqrt(single) for share, single in shares if share >= 0.01 * sum(s for s, _ in shares))


def _invert_amplification(epsilon: float, rate: float) -> float:
    """Invert amplification: return the epsilon that sampling with `rate` turns into `epsilon`."""
    return math.log1p(math.expm1(epsilon) / rate) if epsilon < 30 else epsilon - math.log(rate)


def _rdp(releases: Sequence[Release], delta: float) -> float | None:
    """Renyi privacy (Mironov 2017), by the library where draws are involved."""
    if delta == 0 or any(release.two_sided for release in releases):
        return None
    if all(release.rate == 1 for release in releases):
        return theorems.rdp_epsilon(sum(release.count * theorems.rho(release) for release in releases), delta)
    return pld.rdp(releases, delta)


def _evaluate_theorem(bound: theorems.Theorem, releases: Sequence[Release], delta: float) -> float | None:
    value = _valid(lambda: bound(releases, delta) or math.inf)
    return value if math.isfinite(value) else None


def _largest(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return max(known) if known and len(known) == len(values) else None


Price = Callable[[float], float]

# A search stops between this share of the target and the target; rough prices are searched roughly.
CLOSE, ROUGH = 0.9995, 0.98
# Less noise than this is never asked for, even where a rare draw would allow none at all.
LEAST = 1e-2


def smallest_noise(prices: Sequence[Price], target: float) -> float:
    """Return the smallest noise whose price is at most the target.

    Args:
        prices: Price of a given noise, from a rough guess to the price that counts; may be infinite. Each
            search starts where the one before ended.
        target: Price not to exceed.

    Guarantee:
        By the last of the prices, the answer costs at most the target, and as a rule almost that.
    """
    noise, slope = 1.0, 1.0
    for price in prices[:-1]:
        found, steep = _search(price, target, noise, slope, ROUGH)
        # A guess that never gets below the target is no place to start from.
        noise, slope = (found, steep) if math.isfinite(found) else (noise, slope)
    return _search(prices[-1], target, noise, slope, CLOSE)[0]


def _search(price: Price, target: float, noise: float, slope: float, close: float) -> tuple[float, float]:
    """Search for the noise; return it, and the slope of the price there, on log scales."""
    scarce, enough, last = 0.0, math.inf, None
    for _ in range(200):
        value = price(noise)
        scarce, enough = (scarce, noise) if value <= target else (noise, enough)
        settled = close * target <= value <= target or enough <= scarce * (1 + 1e-3)
        if settled or enough <= LEAST:
            break
        if last and math.isfinite(value) and last[1] != value and last[0] != noise:
            slope = max(math.log(last[1] / value) / math.log(noise / last[0]), 0.1)
        last = (noise, value) if math.isfinite(value) else None
        # Aim just below the target, so as to end on the safe side.
        factor = (value / (target * (1 + close) / 2)) ** (1 / slope) if last else 4.0
        noise = _inside(noise * min(max(factor, 0.25), 4.0), scarce, enough)
    return enough, slope


def _inside(noise: float, scarce: float, enough: float) -> float:
    if scarce < noise < enough:
        return noise
    return math.sqrt(scarce * enough) if scarce > 0 and math.isfinite(enough) else noise
