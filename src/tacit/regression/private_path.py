"""Server of a private regression: from noisy sums of bounded records to coefficients with standard errors.

The first round releases noisy moments of (1, x, y). They give a center and a whitening of the columns, so
that records are short in every direction, and a start. The later rounds release scores at points that come
ever nearer to the estimate, with growing shares of one noise; one of them also releases the information. The
points are shrunk toward the start by what the noise leaves open; the estimate is not. Everything here is
post-processing of what was released.
"""

import math
from dataclasses import dataclass, replace

import numpy as np

from tacit.regression.bounded import (
    GROWTH,
    LEVEL,
    SECOND,
    WITHIN,
    Point,
    UnitScale,
    from_upper_half,
    residuals,
    width,
)
from tacit.regression.families import FAMILIES
from tacit.runtime.arrays import Array

# Shares of the promise of moments and information; the rest is for scores, of which the last round has
# `SCORES` times as much as the first. `SCALED` of a score of a linear model is for the scale.
MOMENTS, INFORMED, SCORES, SCALED = 0.18, 0.12, 6.0, 0.06
# With fewer rounds, the points do not come near the estimate.
FEWEST_ROUNDS = 4
# Rounds that an estimate is averaged over, and points on the way.
AVERAGED, AHEAD = 4, 3
# Noise that is aimed at, in standard errors; bounds in typical lengths: the least and the largest.
AIMED, BOUNDS = 0.4, (1.5, 6.0)
# Prior deviation of effects, in units of the outcome's own scale per deviation of a column; of the level.
EFFECT, FLOATING = 0.6, 1.5
# Prior deviation of the relative error of an information matrix, and where the ratio is cut off.
DOUBT, RATIOS = 0.2, (0.3, 4.0)
# Widening of the noise's part of a covariance by what is unknown of the information.
WIDER = 1.2
# Prior variance of a correlation that is shrunk.
CORRELATED = 0.09
STRIDE = 1.5
NODES, _MASSES = np.polynomial.hermite_e.hermegauss(15)
NODE_WEIGHTS = _MASSES / _MASSES.sum()


def shares_of(rounds: int) -> tuple[tuple[float, float, float, float], ...]:
    """Return the shares of the promise of each round: of moments, score, information and scale."""
    if rounds == 1:
        return ((1.0, 0.0, 0.0, 0.0),)
    grown = np.geomspace(1.0, SCORES, rounds - 1)
    scores = (1 - MOMENTS - INFORMED) * grown / grown.sum()
    asked = informed_round(rounds)
    return (
        (MOMENTS, 0.0, 0.0, 0.0),
        *((0.0, float(own), INFORMED * (number == asked), 0.0) for number, own in enumerate(scores, start=2)),
    )


def informed_round(rounds: int) -> int:
    """Return the round that is asked for the information."""
    return 1 + math.ceil((rounds - 1) / 2)


@dataclass(frozen=True)
class Parts:
    """Parts of a round's contributions.

    Args:
        share: Share of the promise.
        weights: Weights of moments, score, information and scale; their squares add up to 1.
    """

    share: float
    weights: tuple[float, float, float, float]

    @classmethod
    def of(cls, kind: str, number: int, rounds: int) -> "Parts":
        """Return the parts of a round."""
        moments, score, informed, _ = shares_of(rounds)[number - 1]
        scaled = SCALED * score * (kind == "linear")
        own = (moments, score - scaled, informed, scaled)
        whole = sum(own)
        first, second, third, fourth = (math.sqrt(one / whole) for one in own)
        return cls(whole, (first, second, third, fourth))


@dataclass(frozen=True, eq=False)
class PathState:
    """State between rounds: all of it was released, and is public.

    Args:
        number: Number of finished rounds.
        records: Number of records, as far as weights tell.
        point: Numbers that the sites are asked at.
        spread: Variances of the whitened columns (columns,).
        start: The parameters that points are shrunk toward (parameters,).
        points: Parameters of past rounds (rounds, parameters).
        scores: Their scores, in natural units (rounds, parameters).
        noises: The standard deviations of their noise (rounds,); 0 where there is no score.
        scales: The log of the scale of past rounds, and what they found it to be (rounds, 2).
        information: The noisy information (parameters, parameters); 0 before.
        doubt: The standard deviation of its noise on the diagonal.
        asked: Parameters and scale that it was asked at (parameters + 1,).
    """

    number: int
    records: float
    point: Point
    spread: Array
    start: Array
    points: Array
    scores: Array
    noises: Array
    scales: Array
    information: Array
    doubt: float
    asked: Array

    @classmethod
    def begin(cls, columns: int, rounds: int) -> "PathState":
        """Before the first round: columns as their ranges have them."""
        size = 1 + columns
        longest = 1.5 + columns / 2
        point = Point(np.zeros(columns), np.eye(columns), np.zeros(size), 1.0, (longest, 1.0, 1.0))
        return cls(
            0, 1.0, point, np.ones(columns), np.zeros(size), np.zeros((rounds, size)),
            np.zeros((rounds, size)), np.zeros(rounds), np.zeros((rounds, 2)), np.zeros((size, size)), 0.0,
            np.zeros(size + 1),
        )  # fmt: skip

    def encode(self) -> Array:
        """As a flat vector."""
        point = self.point
        head = [self.number, self.records, point.scale, *point.bounds, self.doubt]
        arrays = (
            point.center, point.whitening, point.parameters, self.spread, self.start, self.points,
            self.scores, self.noises, self.scales, self.information, self.asked,
        )  # fmt: skip
        return np.concatenate([np.asarray(head, dtype=np.float64), *(array.ravel() for array in arrays)])

    @classmethod
    def decode(cls, state: Array, columns: int, rounds: int) -> "PathState":
        """From a flat vector."""
        size = 1 + columns
        shapes = (
            (columns,), (columns, columns), (size,), (columns,), (size,), (rounds, size), (rounds, size),
            (rounds,), (rounds, 2), (size, size), (size + 1,),
        )  # fmt: skip
        ends = np.cumsum([7, *(math.prod(shape) for shape in shapes)])
        head, *flat = np.split(state, ends[:-1])
        center, whitening, parameters, spread, start, points, scores, noises, scales, information, asked = (
            part.reshape(shape) for part, shape in zip(flat, shapes, strict=True)
        )
        number, records, scale, *bounds, doubt = head.tolist()
        first, second, third = bounds
        point = Point(center, whitening, parameters, scale, (first, second, third))
        return cls(
            round(number), records, point, spread, start, points, scores, noises, scales, information, doubt,
            asked,
        )  # fmt: skip


@dataclass(frozen=True)
class PrivatePath:
    """Rule of a private regression: what is asked in a round, and what follows from the answer.

    Args:
        scale: Public ranges of the variables.
        noises: The standard deviation of the noise in the sum of each round over all sites.
    """

    scale: UnitScale
    noises: tuple[float, ...]

    @property
    def rounds(self) -> int:
        """Number of rounds."""
        return len(self.noises)

    @property
    def kind(self) -> str:
        """The family."""
        return self.scale.kind

    @property
    def columns(self) -> int:
        """Number of columns."""
        return len(self.scale.low)

    def begin(self) -> PathState:
        """Before the first round."""
        return PathState.begin(self.columns, self.rounds)

    def parts(self, number: int) -> Parts:
        """Return the parts of a round's contributions."""
        return Parts.of(self.kind, number, self.rounds)

    def advance(self, state: PathState, summed: Array) -> PathState:
        """Return the next state, given the noisy sum of contributions over all sites."""
        number = state.number + 1
        parts, noise = self.parts(number), self.noises[number - 1]
        assert len(summed) == width(self.columns, parts.weights)
        if parts.weights[0]:
            return self._with_moments(state, summed, noise)
        return self._with_score(state, summed, parts, noise)

    def _with_moments(self, state: PathState, summed: Array, noise: float) -> PathState:
        """Center, whitening and start from noisy moments."""
        columns, bound = self.columns, state.point.bounds[0]
        size = columns + 2
        gram = from_upper_half(summed * bound, size)
        doubt = noise * bound
        records = max(float(gram[0, 0]), 2 * doubt, 10.0)
        center = np.clip(gram[0, 1 : size - 1] / records, -1, 1)
        cross = gram[1:, 1:] / records - np.outer(gram[0, 1:], gram[0, 1:]) / records**2
        # Entries beside the diagonal have half the variance.
        error = doubt / records
        variances = np.clip(np.diag(cross)[:-1], max(0.01, min(error, 0.3)), 1.0)
        unit = np.sqrt(variances)
        told = error**2 / 2 / np.outer(variances, variances)
        alike = cross[:-1, :-1] / np.outer(unit, unit) * (CORRELATED / (CORRELATED + told))
        np.fill_diagonal(alike, 1.0)
        values, vectors = np.linalg.eigh(np.clip(alike, -1, 1))
        floor = 0.05 + 0.5 * float(np.sqrt(2 * columns * told.mean()))
        values = np.maximum(values, min(floor, 0.5))
        spread = np.minimum(variances / 0.25, 1.0)
        whitening = np.sqrt(spread)[:, None] * ((vectors / np.sqrt(values)) @ vectors.T) / unit
        start, scale = self._start(gram, cross, whitening, spread, records, error)
        begun = replace(
            state, number=1, records=records, spread=spread, start=start,
            point=Point(center, whitening, start, scale, state.point.bounds),
        )  # fmt: skip
        return replace(begun, point=replace(begun.point, bounds=self._bounds(begun)))

    def _start(
        self, gram: Array, cross: Array, whitening: Array, spread: Array, records: float, error: float
    ) -> tuple[Array, float]:
        """Return parameters by one step from noisy moments, shrunk by their noise, and a residual scale."""
        mean = float(gram[0, -1]) / records
        covariance = whitening @ cross[:-1, -1]
        doubts = error**2 / 2 * (whitening**2).sum(axis=1) / spread**2
        if self.kind == "linear":
            variance = float(np.clip(cross[-1, -1], 0.01, 1.0))
            slopes = covariance / spread
            slopes = slopes * variance / (variance + doubts)
            rest = variance - float(slopes**2 @ spread)
            return np.append(mean / LEVEL, slopes), math.sqrt(max(rest, 0.1 * variance, 1e-3))
        if self.kind == "logistic":
            chance = float(np.clip(mean, 0.02, 0.98))
            level, weight = math.log(chance / (1 - chance)), chance * (1 - chance)
        else:
            chance = max(mean, error, 1e-3)
            weight = chance
            exposed = math.sqrt(self.scale.exposed[0] * self.scale.exposed[1])
            level = math.log(chance * self.scale.ends[1] / exposed)
        slopes = covariance / spread / weight
        slopes = slopes * EFFECT**2 / (EFFECT**2 + doubts / weight**2)
        length = float(np.sqrt(slopes**2 @ spread))
        slopes = slopes * min(1.0, STRIDE / max(length, 1e-12))
        if self.kind == "poisson":
            level -= float(slopes**2 @ spread) / 2
        return np.append(level / LEVEL, slopes), 1.0

    def _bounds(self, state: PathState) -> tuple[float, float, float]:
        """Return the bounds of moments, score and information, from published numbers."""
        typical = math.sqrt(LEVEL**2 + float(state.spread.sum()))
        usual = self.model_information(state.start, state)
        level = usual[0, 0] / LEVEL**2 / state.records
        exposed = 0.5 * math.log(self.scale.exposed[0] * self.scale.exposed[1])
        middle = np.array([state.start[0] * LEVEL + exposed])
        reach = float(residuals(self.kind, middle, np.zeros(1), state.point.scale)[1][0])
        noise = self.noises[-1] * math.sqrt(self.parts(self.rounds).share / (1 - MOMENTS - INFORMED))
        # Noise in a sum of scores is C times it; information of a typical direction is records times level.
        aimed = AIMED * math.sqrt(max(level * state.records, 1.0)) / max(noise, 1e-9)
        if self.kind == "linear":
            aimed *= math.sqrt(SECOND * state.point.scale / WITHIN)
        often = float(np.clip(aimed / (typical * reach), *BOUNDS))
        largest = {"linear": 1.0 / state.point.scale, "logistic": 0.25}.get(self.kind, math.inf)
        informed = min(3 * level, largest) * (often * typical) ** 2
        return state.point.bounds[0], often * typical * reach, informed

    def model_information(self, parameters: Array, state: PathState, scale: float | None = None) -> Array:
        """Return the information at parameters if whitened columns were normal (parameters, parameters)."""
        if self.kind == "linear":
            flat = WITHIN / (state.point.scale if scale is None else scale)
            moments = (flat, 0.0, flat)
        else:
            exposed = 0.5 * math.log(self.scale.exposed[0] * self.scale.exposed[1])
            length = float(np.sqrt(parameters[1:] ** 2 @ state.spread))
            predictor = np.clip(parameters[0] * LEVEL + exposed + length * NODES, -30, 20)
            own = residuals(self.kind, predictor, np.zeros_like(predictor), 1.0)[2] * NODE_WEIGHTS
            moments = (float(own.sum()), float(own @ NODES), float(own @ NODES**2))
        root = np.sqrt(state.spread)
        way = root * parameters[1:]
        way = way / max(float(np.linalg.norm(way)), 1e-12)
        inner = moments[0] * np.eye(self.columns) + (moments[2] - moments[0]) * np.outer(way, way)
        found = np.zeros((1 + self.columns, 1 + self.columns))
        found[0, 0] = LEVEL**2 * moments[0]
        found[0, 1:] = found[1:, 0] = LEVEL * moments[1] * root * way
        found[1:, 1:] = root[:, None] * inner * root
        # Rounding and rare outcomes must not make it singular.
        return state.records * (found + 1e-6 * np.diag(np.diag(found)) + 1e-9 * np.eye(len(found)))

    def _with_score(self, state: PathState, summed: Array, parts: Parts, noise: float) -> PathState:
        """With the noisy score of a round, and what else it was asked for."""
        number, size, bounds = state.number + 1, 1 + self.columns, state.point.bounds
        at = number - 1
        points, scores = state.points.copy(), state.scores.copy()
        noises, scales = state.noises.copy(), state.scales.copy()
        points[at], noises[at] = state.point.parameters, noise / parts.weights[1] * bounds[1]
        scores[at] = summed[:size] * bounds[1] / parts.weights[1]
        after = replace(state, number=number, points=points, scores=scores, noises=noises, scales=scales)
        used = size
        if parts.weights[2]:
            used += size * (size + 1) // 2
            factor = bounds[2] / parts.weights[2]
            after = replace(
                after, information=from_upper_half(summed[size:used] * factor, size), doubt=noise * factor,
                asked=np.append(state.point.parameters, state.point.scale),
            )  # fmt: skip
        if parts.weights[3]:
            change = float(summed[used]) / parts.weights[3] / (GROWTH * max(after.records, 1.0))
            error = noise / parts.weights[3] / (GROWTH * max(after.records, 1.0))
            trusted = 1 / (1 + (error / 0.3) ** 2)
            scales[at] = (
                math.log(state.point.scale),
                math.log(state.point.scale) + trusted * float(np.clip(change, -0.7, 0.7)),
            )
        return self._move(after)

    def _move(self, state: PathState) -> PathState:
        """Move to the shrunk estimate of the last rounds."""
        information, _ = self.information(state, state.point.parameters)
        found, variance = self.average(state, information, AHEAD)
        inverse = np.linalg.inv(information)
        size = np.sqrt(variance) * inverse
        noise = size @ size.T
        prior = np.diag(np.append(FLOATING, np.full(self.columns, self._effect(state))) ** 2)
        gain = np.asarray(np.linalg.solve(prior + noise, prior).T, dtype=np.float64)
        wanted = state.start + gain @ (found - state.start)
        step = wanted - state.point.parameters
        units = np.append(LEVEL, np.sqrt(state.spread)) / self._unit(state)
        step = step * min(1.0, STRIDE / max(float(np.linalg.norm(step * units)), 1e-12))
        scale = state.point.scale
        if self.kind == "linear":
            scale = math.exp(float(np.clip(self.log_scale(state), math.log(0.02), math.log(1.5))))
        point = replace(state.point, parameters=state.point.parameters + step, scale=scale)
        return replace(state, point=point)

    def _unit(self, state: PathState) -> float:
        return state.point.scale if self.kind == "linear" else 1.0

    def _effect(self, state: PathState) -> float:
        return 2 * self._unit(state) if self.kind == "linear" else EFFECT

    def log_scale(self, state: PathState) -> float:
        """The log of the scale of residuals, from the last rounds."""
        first = max(1, state.number - AVERAGED)
        found = state.scales[first : state.number, 1]
        shares = np.array([self.parts(place + 1).share for place in range(first, state.number)])
        return float(found @ shares / shares.sum())

    def average(self, state: PathState, information: Array, many: int) -> tuple[Array, float]:
        """Return the estimate of the last rounds, by precision, and the noise variance of its score."""
        used = slice(max(1, state.number - many), state.number)
        if state.number < 2:
            return state.point.parameters, math.inf
        precision = 1 / np.maximum(state.noises[used], 1e-9) ** 2
        inverse = np.linalg.inv(information)
        found = state.points[used] + state.scores[used] @ inverse
        return precision @ found / precision.sum(), 1 / float(precision.sum())

    def information(self, state: PathState, parameters: Array) -> tuple[Array, float]:
        """Return the information at parameters, and the mean variance of its relative error.

        Before it was released it is that of normal columns; after that, the released one corrects it.
        """
        model = self.model_information(parameters, state)
        if not state.doubt:
            return model, DOUBT**2
        before = self.model_information(state.asked[:-1], state, float(state.asked[-1]))
        values, vectors = np.linalg.eigh(before)
        inner = (vectors / np.sqrt(values)) @ vectors.T
        change = inner @ state.information @ inner - np.eye(len(values))
        weight = np.diag(inner @ inner)
        unsure = state.doubt**2 * np.outer(weight, weight) * (1 + np.eye(len(values))) / 2
        kept = DOUBT**2 / (DOUBT**2 + unsure)
        # Of the number of records, which all entries share, more is known than of any one.
        common = float(np.trace(change)) / len(values)
        told = float(np.diag(unsure).mean()) / len(values)
        common *= 0.25 / (0.25 + told)
        rest = (change - common * np.eye(len(values))) * kept
        turned, ways = np.linalg.eigh(np.eye(len(values)) * (1 + common) + rest)
        ratio = (ways * np.clip(turned, *RATIOS)) @ ways.T
        roots, now = np.linalg.eigh(model)
        half = (now * np.sqrt(roots)) @ now.T
        return half @ ratio @ half, float((unsure * kept).mean())


def deviation_of(kind: str, scale: float) -> float:
    """Return the variance of bounded residuals over their mean slope, 1 where that is their variance."""
    return SECOND * scale / WITHIN if FAMILIES[kind].dispersed else 1.0


@dataclass(frozen=True, eq=False)
class PrivateEstimate:
    """Estimate of a private regression, in the units of the records.

    Args:
        coefficients: Intercept and effects (coefficients,).
        model: Their covariance without noise (coefficients, coefficients).
        noise: What the noise adds to it (coefficients, coefficients).
        deviation: The residual deviation of a linear model; 1 for others.
        records: Number of records, about.
    """

    coefficients: Array
    model: Array
    noise: Array
    deviation: float
    records: float


def estimate(path: PrivatePath, state: PathState) -> PrivateEstimate:
    """Return the estimate of the last rounds, which is not shrunk, with its covariance."""
    scale = path.scale
    information, doubt = path.information(state, state.point.parameters)
    found, variance = path.average(state, information, AVERAGED)
    inverse = np.linalg.inv(information)
    model = deviation_of(path.kind, state.point.scale) * inverse
    # Before the first score nothing is known, and a covariance has to be a number.
    variance = min(variance, 1e12)
    noise = variance * (1 + WIDER * len(found) * doubt) * inverse @ inverse
    # Predictor: LEVEL parameter_0 + slopes' B ((x - middle) / half - m).
    size, unit = len(found), (scale.ends[1] - scale.ends[0]) / 2 if path.kind == "linear" else 1.0
    turned = np.zeros((size, size))
    slopes = state.point.whitening.T / scale.half[:, None]
    turned[0, 0], turned[1:, 1:] = LEVEL, slopes
    turned[0, 1:] = -state.point.center @ state.point.whitening.T - scale.center @ slopes
    turned *= unit
    coefficients = turned @ found
    usual = max(float(path.model_information(state.point.parameters, state)[0, 0]), 1e-12)
    if path.kind == "linear":
        coefficients[0] += sum(scale.ends) / 2
    return PrivateEstimate(
        coefficients, turned @ model @ turned.T, turned @ noise @ turned.T, unit * state.point.scale,
        float(information[0, 0]) / usual * state.records,
    )  # fmt: skip
