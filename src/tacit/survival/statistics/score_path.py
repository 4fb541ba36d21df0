"""Server half of a private Cox regression: post-processing of what the sites have released.

Three kinds of sums arrive, each with noise of known size (`bounded_score`). Moments give the baseline, the
functions of time, a whitening of the features, and a prior of the information. Events give the information
itself. Then every round gives a score: the server moves to where the noise says that the estimate is, learns
the information better from the differences of scores, and averages the last rounds. Nothing here sees a
record, so nothing here costs anything.

The information is an estimate with an error that is kept entry by entry, in a frame in which its prior is
diagonal. Where columns are nearly collinear the noise of the moments hides the information of a direction;
the error of that direction is then large, and so are the errors of all coefficients that depend on it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tacit.runtime.arrays import Array
from tacit.survival.life_table import nearest_counts
from tacit.survival.statistics.bounded_score import (
    OMEGA,
    TRENDS,
    MomentLayout,
    Regressors,
    symmetric_matrix,
)

# Whitened features keep a variance below 1 where that of their column is below this, in units of its range.
KEPT_VARIANCE, LEAST_VARIANCE = 0.25, 0.05
# Prior deviations: of a correlation; of the information relative to its prior; of the mean of events from
# that of all; and of the trends of that mean.
CORRELATED, DEVIATES, MEANS, DRIFTS = 0.3, 0.2, 0.3, 0.1
# Prior deviations of effects of whitened features, of functions of time, and of the level.
EFFECT, TREND, LEVEL = 0.4, 0.5, 0.7
# The longest step in effects, and in each function of time.
STRIDE, SHIFT = 1.5, 0.7
# Ratios of the information to its prior lie between these.
RATIOS = (0.3, 4.0)
# Bounds of the share of the information that weights and ends of follow-up leave.
SHARES = (0.3, 1.2)
# The bound takes noise of about this many standard errors, and follows a typical record for between so many
# expected events.
NOISE_ASKED, SHORTEST, LONGEST = 0.4, 1.5, 12.0
# R over s0^2: at least this, and this for each expected event that a typical record is followed for, so that
# the information has the weights of the score.
INFO = (2.25, 1.2)
# Rounds that are averaged: on the way, and at the end.
RECENT, FINAL = 3, 4


@dataclass(frozen=True, eq=False)
class Baseline:
    """Exits by interval, as far as noise shows them.

    Args:
        hazards: Events expected in each interval of a record that is at risk throughout it (intervals,).
        levels: Log ratio of the hazard of each level to that of all (levels,).
        trends: Functions of time after the level (intervals, trends - 1).
        events: Number of events.
        by_level: Number of events of each level (levels,).
        records: Number of records.
    """

    hazards: Array
    levels: Array
    trends: Array
    events: float
    by_level: Array
    records: float

    @classmethod
    def of(cls, sums: tuple[Array, Array], layout: MomentLayout, noises: tuple[float, float]) -> "Baseline":
        """From counts of exits and of sites, with noise of these deviations in a cell."""
        (exits, sites), (noise, noise_by_site) = sums, noises
        left = 2 * layout.intervals + 1
        counts = nearest_counts(exits[:left]) if noise > 0 else exits[:left]
        gone, beyond = counts[:-1].reshape(-1, 2), float(counts[-1])
        leaving, happened = gone.sum(axis=1), gone[:, 1]
        at_risk = np.cumsum(leaving[::-1])[::-1] + beyond
        lived = at_risk - leaving / 2
        if layout.late:
            entered = nearest_counts(exits[left:]) if noise > 0 else exits[left:]
            later = np.cumsum(entered[::-1])[::-1]
            lived = at_risk - later[1:] - entered[:-1] / 2 - leaving / 2
        lived, events = np.maximum(lived, 0.5), max(float(happened.sum()), 1.0)
        # As if a few more had lived and died at the mean rate, as many as noise could hide.
        more = noise + 0.5
        hazards = (happened + more) / (lived + more * float(lived.sum()) / events)
        middle = (np.cumsum(happened + more) - (happened + more) / 2) / (happened + more).sum()
        records, trends = max(float(counts.sum()), 2.0), legendre_polynomials(2 * middle - 1)
        levels, shares = _levels(sites.reshape(-1, 2), events / records, noise_by_site)
        return cls(hazards, levels, trends, events, shares * events, records)


def legendre_polynomials(points: Array) -> Array:
    """Return the Legendre polynomials of degrees 1 to 3, of mean square 1 (points, 3)."""
    found = (points, (3 * points**2 - 1) / 2, (5 * points**3 - 3 * points) / 2)
    return np.stack([np.sqrt(2 * degree + 1) * own for degree, own in enumerate(found, start=1)], axis=1)


def _levels(counts: Array, rate: float, noise: float) -> tuple[Array, Array]:
    """Return log hazard ratios of levels, and their shares of the events, from censored and events."""
    if not len(counts):
        return np.zeros(1), np.ones(1)
    # As if each had as many more, of both kinds, as noise could hide.
    happened = np.maximum(counts[:, 1], 0.0) + (noise + 1.0) * rate
    there = np.maximum(counts.sum(axis=1), 0.0) + noise + 1.0
    ratio = np.clip(happened / there / rate, 1 / 4, 4.0)
    return np.log(ratio), happened / happened.sum()


@dataclass(frozen=True, eq=False)
class Start:
    """Start of the path, by the moments: regressors, and a prior of the information in a diagonal frame.

    Args:
        regressors: The regressors, centered at the mean of all records.
        baseline: The baseline.
        frame: T (regressors, regressors): T' A T is the information relative to its prior.
        prior: Its prior mean (regressors, regressors).
        doubt: Its prior variance, entry by entry.
        typical: Length of the regressors of a typical record.
    """

    regressors: Regressors
    baseline: Baseline
    frame: Array
    prior: Array
    doubt: Array
    typical: float

    @property
    def followed(self) -> float:
        """Expected events up to which a typical record is followed."""
        return self.regressors.bound / self.typical


def start_from_moments(
    sums: Array,
    layout: MomentLayout,
    ends: Array,
    noise: float,
    noises: Sequence[float],
    followed: float | None = None,
) -> Start:
    """Return baseline, whitening and bounds from the first release.

    Args:
        sums: The sums over all sites, as they were released.
        layout: Their layout.
        ends: The ends of the intervals.
        noise: The standard deviation of their noise.
        noises: That of each round, in units of its bound.
        followed: Expected events to follow a typical record for; by default as many as the noise allows.
    """
    exits, sites, moments = layout.split(sums)
    units = layout.units
    by_site = noise / units[1] if units[1] else 0.0
    base = Baseline.of((exits, sites), layout, (noise / units[0], by_site))
    white = Whitening.of(moments, layout.columns, base.records, noise / units[2])
    typical = float(np.sqrt(white.kept.sum() + OMEGA**2 * TRENDS))
    used = 1 / np.sqrt(sum(1 / max(own, 1e-9) ** 2 for own in list(noises)[1:][-FINAL:]))
    # By the column that is shortest, whose effect is known worst.
    asked = NOISE_ASKED * np.sqrt(base.events) / used * np.sqrt(white.kept.min(initial=1.0))
    multiple = float(np.clip(asked / typical, SHORTEST, LONGEST)) if followed is None else followed
    regressors = Regressors(
        ends=ends,
        log_rates=np.log(base.hazards) + base.levels[:, None],
        trends=base.trends,
        center=white.mean,
        whitening=white.matrix,
        bound=multiple * typical,
        information_bound=max(INFO[0], INFO[1] * multiple) * typical**2,
    )
    return Start(regressors, base, *_prior_information(base, white), typical)


@dataclass(frozen=True, eq=False)
class Whitening:
    """Whitening of features that keeps the scales of rare columns, and what the noise hides of it.

    Args:
        mean: m (columns,).
        kept: Variances of whitened features (columns,).
        matrix: B (columns, columns).
        vectors: Directions of the correlations (columns, columns).
        expected: Expected variance of each direction after whitening, 1 where noise hides nothing (columns,).
        doubt: Its variance (columns,).
    """

    mean: Array
    kept: Array
    matrix: Array
    vectors: Array
    expected: Array
    doubt: Array

    @classmethod
    def of(cls, moments: Array, columns: int, records: float, noise: float) -> "Whitening":
        """From moments with noise of this deviation on the diagonal."""
        mean, variances, found, doubts = _covariances(moments, columns, records, noise)
        values, vectors = np.linalg.eigh(found)
        spread = float(np.sqrt(np.mean(doubts)))
        # Half of the spectral size of the noise that is left in the correlations.
        raised = np.maximum(values, max(spread * np.sqrt(columns), 1e-3))
        expected, uncertain = _positive_part(values, spread)
        kept = np.minimum(variances / KEPT_VARIANCE, 1.0)
        root = (vectors / np.sqrt(raised)) @ vectors.T
        matrix = np.sqrt(kept)[:, None] * root / np.sqrt(variances)[None, :]
        return cls(mean, kept, matrix, vectors, expected / raised, uncertain / raised**2)


def _prior_information(base: Baseline, white: Whitening) -> tuple[Array, Array, Array]:
    """Return the frame, and the prior mean and variance of the information in it."""
    levels = len(base.by_level)
    functions = OMEGA**2 * np.append(base.by_level, np.full(TRENDS - 1, base.events))
    sizes = np.append(functions, base.events * white.kept)
    first = len(functions)
    turn, prior = np.eye(len(sizes)), np.eye(len(sizes))
    turn[first:, first:] = white.vectors
    prior[first:, first:] = np.diag(white.expected)
    doubt = np.full((len(sizes), len(sizes)), DEVIATES**2)
    doubt[:levels, first:] = doubt[first:, :levels] = MEANS**2
    doubt[levels:first, first:] = doubt[first:, levels:first] = DRIFTS**2
    between = np.outer(white.expected, white.expected)
    hidden = np.sqrt(np.outer(white.doubt, white.doubt))
    doubt[first:, first:] = DEVIATES**2 * between + hidden
    return turn / np.sqrt(sizes)[:, None], prior, doubt


def _covariances(
    moments: Array, columns: int, records: float, noise: float
) -> tuple[Array, Array, Array, Array]:
    """Mean, variances, shrunk correlations of features, and the variance of the noise left in them."""
    gram = symmetric_matrix(moments, columns + 1)
    mean = gram[0, 1:] / records
    covariance = gram[1:, 1:] / records - np.outer(mean, mean)
    variances = np.maximum(covariance.diagonal(), LEAST_VARIANCE)
    sizes = np.outer(variances, variances)
    doubts = (noise / records) ** 2 / 2 / sizes
    shrink = CORRELATED**2 / (CORRELATED**2 + doubts)
    found = np.clip(covariance / np.sqrt(sizes), -1.0, 1.0) * shrink
    np.fill_diagonal(found, 1.0)
    left = doubts * shrink
    return mean, variances, found, left


def _positive_part(values: Array, spread: float) -> tuple[Array, Array]:
    """Mean and variance of normal variables around `values`, given that they are above 0."""
    from scipy.stats import norm

    if spread <= 0:
        return np.maximum(values, 1e-9), np.zeros_like(values)
    ratio = values / spread
    hazard = np.exp(norm.logpdf(ratio) - norm.logcdf(ratio))
    return values + spread * hazard, spread**2 * np.maximum(1 - hazard * (hazard + ratio), 1e-6)


@dataclass(frozen=True, eq=False)
class Information:
    """The information with its error, relative to its prior.

    Args:
        frame: T.
        prior: Prior mean of T' A T (regressors, regressors).
        relative: T' A T.
        doubt: The variance of each entry of it.
    """

    frame: Array
    prior: Array
    relative: Array
    doubt: Array

    @property
    def matrix(self) -> Array:
        """A (regressors, regressors)."""
        back = np.linalg.inv(self.frame)
        return back.T @ self.relative @ back

    def bounded(self) -> "Information":
        """With eigenvalues, relative to those of the prior, within bounds."""
        root = np.sqrt(self.prior.diagonal())
        values, vectors = np.linalg.eigh(self.relative / np.outer(root, root))
        kept = (vectors * np.clip(values, *RATIOS)) @ vectors.T
        return replace(self, relative=kept * np.outer(root, root))

    def with_difference(self, step: Array, change: Array, variance: float) -> "Information":
        """Update by A step = change + noise: the posterior mean, entry by entry independent before.

        Args:
            step: Difference of two points (regressors,).
            change: Difference of their scores, with its sign turned.
            variance: Variance of its noise.
        """
        if not np.any(step):
            return self
        moved = np.linalg.solve(self.frame, step)
        rest = self.frame.T @ change - self.relative @ moved
        between = self.doubt * np.outer(moved, moved)
        np.fill_diagonal(between, self.doubt @ moved**2)
        whole = between + variance * self.frame.T @ self.frame
        # Without noise it may be singular.
        whole += 1e-6 * float(np.trace(whole)) / len(whole) * np.eye(len(whole))
        inverse = np.linalg.inv(whole)
        pull = inverse @ rest
        gain = np.outer(pull, moved) + np.outer(moved, pull)
        np.fill_diagonal(gain, pull * moved)
        squares = moved**2
        known = np.outer(inverse.diagonal(), squares) + np.outer(squares, inverse.diagonal())
        known += 2 * inverse * np.outer(moved, moved)
        np.fill_diagonal(known, inverse.diagonal() * squares)
        doubt = np.maximum(self.doubt - self.doubt**2 * known, 0.05 * self.doubt)
        return replace(self, relative=self.relative + self.doubt * gain, doubt=doubt)

    def error_of(self, moments: Array) -> Array:
        """Expectation of (error of A) e e' (error of A) where e e' has this expectation."""
        back = np.linalg.inv(self.frame)
        inner = back @ moments @ back.T
        # Entries are symmetric, and independent otherwise.
        found = self.doubt * inner.T
        np.fill_diagonal(found, self.doubt @ inner.diagonal())
        return back.T @ found @ back


def informed(start: Start, upper: Array, noise: float) -> tuple[Information, Regressors]:
    """Combine released information with its prior, and center features at the mean of events.

    Args:
        start: What the moments gave.
        upper: The released sums, in units of their bound.
        noise: The standard deviation of their noise.
    """
    public = start.regressors
    size, scale = public.size, public.information_bound
    frame = start.frame
    relative = frame.T @ (symmetric_matrix(upper, size) * scale) @ frame
    squares = frame**2
    diagonal = (noise * scale) ** 2
    variance = squares.T @ (np.full((size, size), diagonal / 2) + np.eye(size) * diagonal / 2) @ squares
    # Weights and ends of follow-up take about the same share from all of it, which is known better.
    ahead, precision = start.prior.diagonal(), 1 / (start.doubt + variance).diagonal()
    share = float(np.clip(precision @ (ahead * relative.diagonal()) / (precision @ ahead**2), *SHARES))
    prior, doubt = share * start.prior, share**2 * start.doubt
    gain = doubt / (doubt + variance)
    left = np.maximum(doubt * (1 - gain), 1e-9)
    found = Information(frame, prior, prior + gain * (relative - prior), left)
    return found.bounded(), public


def recentered(found: Information, public: Regressors) -> tuple[Information, Regressors]:
    """Center features at the mean of events: high risks get shorter, and are followed for longer."""
    matrix, levels = found.matrix, public.levels
    first = levels + public.trends.shape[1]
    mean = OMEGA * matrix[:levels, first:].sum(axis=0) / matrix[:levels, :levels].sum()
    shear = np.eye(public.size)
    shear[first:, :levels] = -mean[:, None] / OMEGA
    moved = public.center + np.asarray(np.linalg.solve(public.whitening, mean), dtype=np.float64)
    # T' A T stays as it is if T becomes S^-T T.
    frame = np.linalg.solve(shear.T, found.frame)
    return replace(found, frame=frame), replace(public, center=moved)


@dataclass(frozen=True, eq=False)
class ScorePath:
    """Points, scores and information after some rounds.

    Args:
        public: The regressors.
        information: The information as it is known.
        points: Points that the sites were asked at, and the next one (rounds + 1, regressors).
        scores: Their answers (rounds, regressors).
        deviations: The noise in each (rounds,).
    """

    public: Regressors
    information: Information
    points: tuple[Array, ...]
    scores: tuple[Array, ...] = ()
    deviations: tuple[float, ...] = ()

    @classmethod
    def begin(cls, start: Start, upper: Array, noise: float) -> "ScorePath":
        """From no effect."""
        found, public = informed(start, upper, noise)
        found, public = recentered(found, public)
        return cls(public, found, (np.zeros(public.size),))

    def step(self, released: Array, noise: float) -> "ScorePath":
        """Take a round's sums of scores, in units of their bound, with noise of this deviation."""
        scores, deviations = (
            (*self.scores, released * self.public.bound),
            (*self.deviations, noise * self.public.bound),
        )
        here = replace(self, scores=scores, deviations=deviations)
        if len(scores) > 1:
            variance = deviations[-1] ** 2 + deviations[-2] ** 2
            found = self.information.with_difference(
                self.points[-1] - self.points[-2], scores[-2] - scores[-1], variance
            )
            here = replace(here, information=found.bounded())
        found, variance = here.average(RECENT)
        inverse = np.linalg.inv(here.information.matrix)
        prior = here.prior_variances
        around = variance * inverse @ inverse + np.diag(prior)
        aim = prior * np.linalg.solve(around, found)
        return replace(here, points=(*self.points, self.points[-1] + self._limit(aim - self.points[-1])))

    @property
    def prior_variances(self) -> Array:
        """Prior variance of each coefficient."""
        public = self.public
        deviations = [LEVEL / OMEGA] * public.levels + [TREND / OMEGA] * public.trends.shape[1]
        return np.array(deviations + [EFFECT] * len(public.center)) ** 2

    def _limit(self, step: Array) -> Array:
        first = self.public.size - len(self.public.center)
        trends, effects = step[:first], step[first:]
        length = max(float(np.linalg.norm(effects)), 1e-12)
        return np.concatenate(
            [np.clip(trends, -SHIFT / OMEGA, SHIFT / OMEGA), effects * min(1.0, STRIDE / length)]
        )

    def average(self, rounds: int) -> tuple[Array, float]:
        """Mean Newton estimate of the last rounds, by precision; the variance of the noise in its score."""
        inverse = np.linalg.inv(self.information.matrix)
        points, scores = np.stack(self.points[: len(self.scores)]), np.stack(self.scores)
        weights = 1 / np.maximum(np.array(self.deviations), 1e-9) ** 2
        found, weights = (points + scores @ inverse)[-rounds:], weights[-rounds:]
        return weights @ found / weights.sum(), float(1 / weights.sum())

    def _noise_of_points(self, rounds: int) -> float:
        """The variance of the noise in the scores behind the points of the last rounds, by precision."""
        weights = 1 / np.maximum(np.array(self.deviations), 1e-9) ** 2
        last = range(max(len(weights) - rounds, 1), len(weights))
        behind = np.array([1 / weights[max(number - RECENT, 0) : number].sum() for number in last])
        return float(weights[list(last)] @ behind / weights[list(last)].sum())

    def estimate(self) -> tuple[Array, Array, Array]:
        """Return coefficients of scaled features, their covariance by the model, and that of the noise."""
        found, variance = self.average(FINAL)
        inverse = np.linalg.inv(self.information.matrix)
        rounds = min(FINAL, len(self.scores))
        weights = 1 / np.maximum(np.array(self.deviations[-rounds:]), 1e-9) ** 2
        center = weights @ np.stack(self.points[-rounds - 1 : -1]) / weights.sum()
        noise = variance * inverse @ inverse
        # How far the points were from the truth: given how they were found, and the noisy step that is left.
        before = self._noise_of_points(rounds) * inverse @ inverse
        wide = np.diag(self.prior_variances)
        prior = wide - wide @ np.linalg.solve(wide + before, wide)
        gain = np.linalg.solve(prior + noise, prior).T
        left = gain @ (found - center)
        away = np.outer(left, left) + prior - gain @ prior
        noise = noise + inverse @ self.information.error_of(away) @ inverse
        back = self.public.whitening.T
        first = self.public.size - len(self.public.center)
        return (
            back @ found[first:],
            back @ inverse[first:, first:] @ back.T,
            back @ noise[first:, first:] @ back.T,
        )
