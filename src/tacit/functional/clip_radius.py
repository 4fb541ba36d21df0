"""Clip radii of curves, bought by a noisy histogram of lengths; correction of the clipping bias.

Each party counts how many of its curves fall in each public bin of length. With noise the counts can be
released, and anything derived from them is free: a quantile that becomes a clip radius, and the bias of
clipping to it. Replacing a curve moves one count from a bin to another, whatever the bins are: so they cover
every length that a curve in sensible units can have.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from tacit.errors import require, require_count, require_positive
from tacit.learning.task import InitialQueryBase, Updates
from tacit.privacy.contracts import Layout, Norm
from tacit.privacy.mechanisms.base import Mechanism
from tacit.privacy.mechanisms.vertical import EVERYBODY
from tacit.runtime.arrays import Array
from tacit.runtime.keys import Key
from tacit.sites.federation import Cohort

LEAST, MOST, PER_DECADE = 1e-3, 1e6, 16
# The first and the last bin also hold what is shorter and longer. Each bin ends 15 % beyond its beginning.
EDGES: Array = np.geomspace(LEAST, MOST, round(math.log10(MOST / LEAST)) * PER_DECADE + 1)
EDGES.flags.writeable = False
# L2 sensitivity of a histogram to a replaced curve: one less here, one more there.
SENSITIVITY = math.sqrt(2)
# Candidate laws of lengths: chi with these degrees of freedom, or lognormal with these deviations.
FREEDOMS, SPREADS = (2, 3, 4, 6, 10, 20, 50), (0.15, 0.3, 0.5, 0.8)
# Widespread laws fit noise best; they are believed when they are this many times as likely as others.
WIDE, RELUCTANCE = (2, 0.8), 8.0
# Prior of scaled curves: length 1, with this standard deviation in powers of 10.
DECADES = 2.0
# By which share a law may miss what is in a bin, before there is reason to believe the bin.
MISSED = 0.5
# A count this many standard deviations from its law is believed.
FIRM = 4.0
# Above the first share, zero curves do not count; above the second, too few others are left to tell.
MANY, NOTHING = 0.1, 0.98
# Curves longer than this multiple of most lengths are clipped when means are formed, and the bias of clipping
# is capped likewise: neither a few outliers nor noise should decide all coefficients.
MOST_LENGTHS, LONGER, FARTHEST = 0.9, 1.5, 3.0


def bin_indicators(lengths: ArrayLike) -> Array:
    """A 1 in the bin that each length falls in (lengths, bins); what is not finite counts as 0."""
    given = np.asarray(lengths, dtype=np.float64)
    require(given.ndim == 1 and given.size > 0, "lengths", f"shape {given.shape}", "a list of at least one")
    finite = np.where(np.isfinite(given), given, 0.0)
    bins = (np.searchsorted(EDGES, finite, side="left") - 1).clip(0, len(EDGES) - 2)
    found = np.zeros((len(given), len(EDGES) - 1))
    found[np.arange(len(given)), bins] = 1.0
    return found


def histogram(lengths: ArrayLike) -> Array:
    """Count the lengths in each bin (bins,).

    Guarantee:
        Replacing one length moves the result by at most `SENSITIVITY` in L2.
    """
    return bin_indicators(lengths).sum(axis=0)


def radius(noisy: ArrayLike, quantile: float, *, deviation: float, count: int) -> float:
    """Return a quantile of lengths, as the upper end of its bin, from a noisy histogram.

    Zero curves, such as the degrees above 22 on a cold day, say nothing about the lengths of others: if there
    are many, the first bin counts only if it holds nearly all curves.

    Args:
        noisy: The released histogram.
        quantile: The share of curves to leave unclipped, above 0 and below 1.
        deviation: The standard deviation of the noise in each bin; 0 if there is none.
        count: The public number of curves.
    """
    require(0 < quantile < 1, "quantile", quantile, "above 0 and below 1")
    found = shares(noisy, deviation=deviation, count=count)
    if MANY < found[0] < NOTHING:
        found = np.append(0.0, found[1:] / found[1:].sum())
    return float(EDGES[1 + _quantile_bin(found, quantile)])


def clip_correction(noisy: ArrayLike, bound: float, *, deviation: float, count: int) -> float:
    """Return the factor by which coefficients learned from clipped curves are too large: 1 or more.

    A curve x of length r becomes k x, k = min(1, bound / r). What its response owes to x is learnt from
    E[k x y'] = E[k x x'] B and E[k^2 x x'], which is too small: by E[k r^2] / E[k^2 r^2] if long curves have
    the shapes that others have. Of responses that were clipped, it is the factor by which they are too short.

    Args:
        noisy: The histogram as it was let out.
        bound: The clip radius.
        deviation: The standard deviation of the noise in each bin; 0 if there is none.
        count: The public number of curves.
    """
    require_positive("bound", bound)
    found = shares(noisy, deviation=deviation, count=count)
    middles = np.sqrt(EDGES[:-1] * EDGES[1:])
    longest = LONGER * float(EDGES[1 + _quantile_bin(found, MOST_LENGTHS)])
    lengths = np.minimum(middles, max(bound, longest))
    clipped = np.minimum(lengths, bound)
    return min(float((found @ (clipped * lengths)) / (found @ clipped**2)), FARTHEST)


def shares(noisy: ArrayLike, *, deviation: float, count: int) -> Array:
    """Estimate the share of lengths in each bin from a noisy histogram (bins,).

    Bins that hold less than their noise are known through the others: all laws of a large family, each as
    likely as the noise makes it, say what to expect there. A bin that holds much more than that is believed.

    Args:
        noisy: The histogram as it was let out.
        deviation: The standard deviation of the noise in each bin; 0 if there is none.
        count: The public number of curves.
    """
    given = np.asarray(noisy, dtype=np.float64)
    sized = given.shape == (len(EDGES) - 1,) and bool(np.isfinite(given).all())
    require(sized, "noisy", f"shape {given.shape}", f"{len(EDGES) - 1} finite numbers, one for each bin")
    require(0 <= deviation < math.inf, "deviation", deviation, "at least 0 and finite")
    require_count("count", count)
    # Curves that are nothing follow no law.
    nothing = min(given[0], float(count)) if given[0] > FIRM * deviation else 0.0
    others = given - np.append(nothing, np.zeros(len(given) - 1))
    if deviation > 0:
        others = _smooth(others, deviation, max(count - nothing, 1.0))
    positive = np.maximum(others + np.append(nothing, np.zeros(len(given) - 1)), 0.0)
    # Nothing at all can be left only where there was nothing but noise: then all lengths are alike.
    return positive / positive.sum() if positive.sum() > 0 else np.full(len(positive), 1 / len(positive))


def _smooth(given: Array, deviation: float, count: float) -> Array:
    """Smooth a noisy histogram by a Bayesian average over candidate laws of lengths."""
    laws, likely = _laws()
    # The noise of the sample itself counts as well; half of it is in a handful of bins.
    variance = deviation**2 + count / 20
    fits = likely - ((given / count - laws) ** 2).sum(axis=1) * count**2 / (2 * variance)
    weights = np.exp(fits - fits.max())
    expected = count * (weights @ laws) / weights.sum()
    missing = given - expected
    doubt = (MISSED * expected) ** 2
    trust = np.where(np.abs(missing) > FIRM * deviation, 1.0, doubt / (doubt + deviation**2))
    return expected + trust * missing


def _quantile_bin(found: Array, quantile: float) -> int:
    """The bin that holds a quantile."""
    # A share that rounding left a hair below is reached.
    return min(int(np.searchsorted(np.cumsum(found), quantile - 1e-12)), len(found) - 1)


@lru_cache(maxsize=1)
def _laws() -> tuple[Array, Array]:
    """Shares of lengths as they may be, anywhere (laws, bins), and the logarithm of how likely each is."""
    bins, step = len(EDGES) - 1, math.log(EDGES[1] / EDGES[0])
    laws, likely = list[Array](), list[Array]()
    for offset in (0.0, step / 2):
        # The logarithm of a length in units of its law, far enough for every place that a law may have.
        ends = (np.arange(2.0 * bins) - bins + 0.5) * step + offset
        for shape in (*FREEDOMS, *SPREADS):
            windows = np.lib.stride_tricks.sliding_window_view(_below(shape, ends), bins + 1)
            inner = np.diff(windows, axis=1).astype(np.float64)
            inner[:, 0] += windows[:, 0]
            inner[:, -1] += 1 - windows[:, -1]
            laws.append(inner)
            powers = (math.log(LEAST) - ends[: len(inner)]) / math.log(10)
            likely.append(-((powers / DECADES) ** 2) / 2 - math.log(RELUCTANCE if shape in WIDE else 1.0))
    return np.concatenate(laws), np.concatenate(likely)


def _below(shape: float, logarithms: Array) -> Array:
    """The share of lengths below, by their logarithms: in units of the mean square, or of the median."""
    from scipy.special import gammainc, ndtr

    if shape in FREEDOMS:
        return np.asarray(gammainc(shape / 2, shape / 2 * np.exp(2 * logarithms)), dtype=np.float64)
    return np.asarray(ndtr(logarithms / shape), dtype=np.float64)


@dataclass(frozen=True, kw_only=True)
class ClipRadiusQuery(InitialQueryBase):
    """Initial query for clip radii: each party's noisy histogram of the lengths of its curves.

    Args:
        coordinates: Computes the coordinates of a named curve.
        columns: The queried curves, each with its holder; a single entry stands for all before they are
            known.
        quantile: The share of curves that a radius leaves unclipped.
        records: The number of subjects.
        parties: The number of parties.
    """

    coordinates: Callable[[str, Any], Array]
    columns: Mapping[str, str] = field(default_factory=lambda: {"all curves": EVERYBODY})
    quantile: float
    records: int
    parties: int
    kind: ClassVar[str] = "clip radii"
    # Less of it would buy radii that few subjects and little epsilon leave to chance.
    share: ClassVar[float] = 0.15
    layout: ClassVar[Layout] = "columns"
    # Asked even of public records: a rehearsal must cost the same as the private run.
    always: ClassVar[bool] = True

    @property
    def width(self) -> int:
        """As many numbers as there are bins, for each curve."""
        return len(self.columns) * (len(EDGES) - 1)

    @property
    def placeholder(self) -> dict[str, Any]:
        """Curves of length 1, none of which is clipped."""
        return {"radius": dict.fromkeys(self.columns, 1.0), "stretch": dict.fromkeys(self.columns, 1.0)}

    def record_bound(self, norm: Norm) -> float:
        """Each curve is in one bin."""
        return 1.0

    def train(self, state: Array, cohort: Cohort, mechanism: Mechanism, key: Key) -> Updates:
        """The counts of each party; zeros for curves that others hold."""
        bins = len(EDGES) - 1
        rows = np.zeros((len(cohort), self.width), dtype=np.float64)
        for place, (party, held) in enumerate(zip(cohort.names, cohort.holdings, strict=True)):
            for slot, name in enumerate(self.columns):
                if name not in held:
                    continue
                lengths = np.linalg.norm(self.coordinates(name, held[name]), axis=1)
                counted = mechanism.noisy_sum(bin_indicators(lengths), key / party / name)
                rows[place, slot * bins : (slot + 1) * bins] = counted
        return Updates(cohort.names, rows)

    def decode(self, combined: Array, noise: float = 0.0) -> dict[str, Any]:
        """A radius for each curve, and by how much it shortens those that are longer."""
        # Each curve was counted by one party, and answers are means over all.
        counts = combined.reshape(len(self.columns), -1) * self.parties
        deviation, count = noise * self.parties, self.records
        radii: dict[str, float] = {}
        stretches: dict[str, float] = {}
        for name, row in zip(self.columns, counts, strict=True):
            radii[name] = radius(row, self.quantile, deviation=deviation, count=count)
            stretches[name] = clip_correction(row, radii[name], deviation=deviation, count=count)
        return {"radius": radii, "stretch": stretches}
