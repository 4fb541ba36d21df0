"""Boosting task: predict curves of one party from curves of others, each released once.

The state is the release itself, put together. All that follows, the whole path of boosting, its stopping and
its degrees of freedom, is worked out from it and costs nothing, however often.

The initial query buys clip radii of curves by a noisy histogram of lengths, and corrects the clipping bias.
Each party counts how many of its curves fall in each public bin of length. With noise the counts can be
released, and anything derived from them is free: a quantile that becomes a clip radius, and the bias of
clipping to it. Replacing a curve moves one count from a bin to another, whatever the bins are: so they cover
every length that a curve in sensible units can have.
"""

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit.errors import InvalidValue, require, require_count, require_positive, require_word
from tacit.functional.boosting.moments import NOISY_FOLDS, decode_sums, encode_sums, encoded_length, products
from tacit.functional.config import FEW, FEW_Y, FunctionalConfig
from tacit.functional.data.remote import Agreed
from tacit.learning.query import InitialQueryBase, Updates
from tacit.learning.record import Simplest, identity_of
from tacit.learning.task import Goal, TaskBase
from tacit.privacy.contracts import Layout, Norm
from tacit.privacy.mechanisms.base import Mechanism, NoPrivacy
from tacit.privacy.mechanisms.secure_gram import from_upper_triangle
from tacit.privacy.mechanisms.vertical import (
    EVERYBODY,
    MOST_ADDED,
    ClippedColumns,
    ClippedSecureGram,
    GramMatrix,
    LocalColumns,
    require_radius,
)
from tacit.privacy.policy import Open, Privacy, Provenance
from tacit.runtime.arrays import Array
from tacit.runtime.keys import Key
from tacit.runtime.threads import one_thread
from tacit.sites.federation import Cohort, Federation
from tacit.sites.vertical import Subjects, VerticalFederation

if TYPE_CHECKING:
    from tacit.functional.curves import Curves
    from tacit.functional.model import Model
    from tacit.learning.record import Round
    from tacit.reports.page.blocks import Figure

# File with predictions of held-out subjects; the number of subjects and of times in it.
PREDICTIONS, SHOWN, SHOWN_TIMES = "predictions.json", 60, 41
# The share of curves that a bought clip radius leaves unclipped.
QUANTILES = {"local": 0.5, "moments": 0.8}
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


@dataclass(frozen=True, kw_only=True)
class Boosting(FunctionalConfig, TaskBase):
    """Curves predicted from curves that other parties hold, by boosting."""

    kind: ClassVar[str] = "functional-boosting"
    layout: ClassVar[Layout] = "columns"
    # Defaults of an experiment file.
    usual: ClassVar[Mapping[str, Any]] = {"rounds": 1, "data": "simulated-curves", "sites": "columns"}

    def with_privacy(self, privacy: Privacy | Open) -> Self:
        """Resolve the release, and the number of coordinates of a curve, for a promise."""
        if isinstance(privacy, Open):
            # To compare a promise with, radii are asked for as under it, and answered exactly.
            radius = None if self.radius == "private" and privacy.clip is None else self.radius
            return replace(self, release=self.release or "local", radius=radius)
        if self.radius is None:
            require_radius("clip", privacy.clip)
        release = self.release or ("local" if privacy.noise == "site" else "moments")
        few = self.components or min(FEW, self.size)
        # By default the response has more coordinates, since they carry its mean curve.
        few_y = self.components_y or (few if self.components else min(FEW_Y, self.size))
        folds = NOISY_FOLDS if release == "local" else self.folds
        return replace(self, release=release, components=few, components_y=few_y, folds=folds)

    def bind(self, federation: Federation, provenance: Provenance) -> Self:
        """Bind the task to the curves of a federation.

        Raises:
            InvalidValue: There is no response, or a curve that nothing can be learned from.
        """
        assert isinstance(federation, VerticalFederation), "the run has read the data"
        columns = _curves_of(federation)
        require_word("response", self.response, columns)
        predictors = tuple(name for name in columns if name != self.response)
        require(bool(predictors), "predictors", "none", f"at least one curve beside {self.response}")
        for given, option in ((self.center, "center"), (self.scale, "scale")):
            for name in given:
                require_word(option, name, columns)
        for name, found in columns.items():
            # Parties elsewhere look at their own curves.
            if not isinstance(found, Agreed):
                _require_usable(name, found, provenance)
            self._require_enough(name, len(found))
        settled = replace(
            self,
            parties={party: tuple(names) for party, names in federation.holdings.items()},
            predictors=predictors,
            domains={name: found.domain for name, found in columns.items()},
            records=len(federation.subjects),
            # Results of `bind` cannot be preset.
            noise=None,
            secret=False,
            stretch={},
        )
        settled._require_radii(columns)
        grids = all(not isinstance(found, Agreed) and found.owners is None for found in columns.values())
        provenance.declare_public([
            "the subjects and their order, on which the parties agreed",
            "the party of each curve, its domain" + (" and its grid" if grids else ""),
        ])  # fmt: skip
        return settled

    def _require_enough(self, name: str, count: int) -> None:
        few = f"{name} has {count} subjects, fewer than"
        if count < self.size:
            raise InvalidValue(f"{few} its {self.size} basis functions: use a smaller size, or more subjects")
        if count < 2 * self.folds:
            raise InvalidValue(f"{few} 2 for each of {self.folds} folds: use fewer folds, or more subjects")
        allowed = f"at most {MOST_ADDED:,}: products of more are rounded by more than their noise covers"
        require(not self.release_moments or count <= MOST_ADDED, f"subjects of {name}", count, allowed)

    def _require_radii(self, columns: Mapping[str, object]) -> None:
        if not isinstance(self.radius, dict):
            return
        for name in self.radius:
            require_word("radius", name, columns)
        missing = [name for name in self.protected if name not in self.radius]
        allowed = f"one for each of {', '.join(self.protected)}"
        require(not missing, "radius", self.radius, allowed)

    def with_mechanism(self, mechanism: Mechanism) -> Self:
        """Return the task with the public facts about the noise."""
        if type(mechanism) is NoPrivacy:
            return self
        if isinstance(mechanism, ClippedColumns):
            known = dict(mechanism.radii) if self.radius is None else self.radius
            # Clipped curves have a reach, and noise of scale 0.
            return replace(self, radius=known, noise=0.0)
        own = cast("LocalColumns | GramMatrix | ClippedSecureGram", mechanism)
        noise = own.multiplier if isinstance(own, LocalColumns) else own.sigma
        radius = dict(own.radii) if self.radius is None else self.radius
        return replace(self, noise=float(noise), radius=radius, secret=isinstance(own, ClippedSecureGram))

    @property
    def identity(self) -> str | None:
        """Identity of everything that the work depends on."""
        return identity_of(self)

    @property
    def goal(self) -> Goal:
        """The share of the response that is explained."""
        return ("r2", "max")

    @property
    def initial_query(self) -> "ClipRadiusQuery | None":
        """The question for radii that are to be bought."""
        if self.radius != "private":
            return None
        return ClipRadiusQuery(
            coordinates=self.coordinates_of,
            quantile=self.quantile or QUANTILES[self.release or "local"],
            records=self.records or 1,
            parties=len(self.parties) or 1,
            **({"columns": self.holders} if self.holders else {}),
        )

    def coordinates_of(self, name: str, found: "Curves") -> Array:
        """The coordinates of curves in their frame (subjects, coordinates), in public units."""
        shifted = found.standardise(self.center.get(name, 0.0), self.scale.get(name, 1.0))
        return shifted.coordinates(self.frame_of(name), self.smooth)

    def start(self, federation: Federation, key: Key) -> Array:
        """Return the empty state."""
        columns = self.column_blocks.columns
        numbers = (
            (columns + 1) * (columns + 2) // 2
            if self.release_moments
            else encoded_length(columns, self.folds)
        )
        return np.zeros(numbers, dtype=np.float64)

    @property
    def sent(self) -> int:
        """Count of numbers that each party sends, padded to the longest."""
        blocks = self.column_blocks
        return max(blocks.column_count(party) for party in self.parties) * blocks.records

    def train(self, state: Array, cohort: Cohort, mechanism: Mechanism, key: Key) -> Updates:
        """The coordinates of each party's curves as they leave it, padded to the longest."""
        rows = np.zeros((len(cohort), self.sent), dtype=np.float64)
        for place, (party, held) in enumerate(zip(cohort.names, cohort.holdings, strict=True)):
            own = [
                mechanism.noisy_rows(self.coordinates_of(name, held[name]), name, key / party / name)
                for name in self.parties[party]
            ]
            flat = np.hstack(own).ravel()
            rows[place, : flat.size] = flat
        return Updates(cohort.names, rows)

    def join_columns(self, updates: Updates) -> Array:
        """Sums over parts of the subjects, or over all of them; no subject is in the state."""
        rows = dict(zip(updates.names, updates.matrix, strict=True))
        whole = self.column_blocks.assemble(rows)
        if self.release_moments:
            return products(whole)
        return encode_sums(whole, self.column_blocks.columns - self.width_y, self.folds)

    def join_products(self, updates: Updates) -> Array:
        """Reorder secure products from the order of the parties to that of the model."""
        side = self.column_blocks.columns + 1
        order = np.concatenate([[0], 1 + self.column_blocks.by_party()])
        whole = from_upper_triangle(updates.matrix[0])[np.ix_(order, order)]
        return whole[np.triu_indices(side)]

    def advance(self, state: Array, step: Array) -> Array:
        """Replace the state by the release."""
        return step

    def score(self, state: Array, held_out: Subjects) -> dict[str, float]:
        """Score the model on held-out subjects: R2 and the relative integrated square error."""
        found = _run_scores(self.model(state).score(held_out.columns, held_out[self.response]))
        if any(math.isnan(value) for value in found.values()):
            raise InvalidValue(
                f"{self.response} is 0, or the same for all of them, and there is nothing to explain"
            )
        return found

    def simplest(self, start: Array, held_out: Subjects) -> Simplest | None:
        """The mean curve of the scored subjects, predicted for each of them."""
        from tacit.functional.model import empty_model

        found = empty_model(self).score_mean(held_out[self.response])
        how = "the mean of the scored curves, for every subject"
        return Simplest(name="mean curve", how=how, scores=_run_scores(found), lower=("ril2",))

    def losses(self, state: Array, table: object) -> NDArray[np.float64]:
        """Not supported: a fit of one round is not watched."""
        raise AssertionError("a fit of one round has no rounds to watch")

    def model(self, state: Array) -> "Model":
        """Fit the model to the released state; cached for the last one."""
        known = hashlib.sha256(state.tobytes()).digest()
        last: tuple[bytes, Model] | None = vars(self).get("_last")
        if last is None or last[0] != known:
            with one_thread():
                last = (known, self._fit(state))
            object.__setattr__(self, "_last", last)
        return last[1]

    def _fit(self, state: Array) -> "Model":
        from tacit.functional.model import empty_model, from_moments, from_sums

        if not bool(state.any()):
            return empty_model(self)
        if self.release_moments:
            return from_moments(self, from_upper_triangle(state))
        return from_sums(self, *decode_sums(state, self.column_blocks.columns, self.folds))

    def findings(self, state: Array) -> list[str]:
        """Return sentences on the selected predictors and the traffic."""
        model = self.model(state)
        known, many = ", ".join(model.selected) or "none", "s" * (model.steps != 1)
        share = f"{len(model.selected)} of {len(self.predictors)} predictors"
        return [
            f"selected {known} ({share}) in {model.steps} step{many}",
            f"the parties sent {model.bytes_sent / 2**20:.2f} MB, once",
        ]

    @property
    def bytes_sent(self) -> Mapping[str, int]:
        """Bytes that each party sends, once."""
        from tacit.functional.model import count_bytes_sent

        return {party: count_bytes_sent(self, party) for party in self.parties}

    def illustrate(self, state: Array, held_out: Subjects) -> dict[str, bytes]:
        """Return true and predicted curves of the first held-out subjects, at some of the times."""
        true, predicted, times = self.model(state).compare(held_out.columns, held_out[self.response])
        places = np.unique(np.linspace(0, len(times) - 1, SHOWN_TIMES).round().astype(int))
        told = {name: rows[:SHOWN][:, places] for name, rows in (("true", true), ("predicted", predicted))}
        content = {"of": len(true), "times": times[places].tolist()}
        content |= {name: np.round(rows, 6).tolist() for name, rows in told.items()}
        return {PREDICTIONS: msgspec.json.encode(content)}

    def pictures(
        self, state: Array, rounds: "Sequence[Round]", read: "Callable[[str], bytes | None]"
    ) -> "list[Figure]":
        """The figures of a report: surfaces, the path of boosting, and where it stopped."""
        from tacit.functional.figures import pictures

        return pictures(self, state, rounds, read)

    def rivals(self, federation: Federation) -> "dict[str, Callable[[Subjects], dict[str, float]]]":
        """Train baselines without noise: on the active party's own curves, and on all curves pooled."""
        from tacit.functional.model import without_noise

        assert isinstance(federation, VerticalFederation), "the run has read the data"
        own = federation.holdings[federation.holder(self.response)]
        both = {"alone": own, "pooled": federation.subjects.columns}
        with one_thread():
            models = {
                name: without_noise(self, cast("Mapping[str, Curves]", columns))
                for name, columns in both.items()
            }

        def scoring(model: "Model") -> "Callable[[Subjects], dict[str, float]]":
            return lambda subjects: _run_scores(model.score(subjects.columns, subjects[self.response]))

        return {name: scoring(model) for name, model in models.items()}


def _curves_of(federation: VerticalFederation) -> "dict[str, Curves | Agreed]":
    """Return the columns of all parties, checked to be curves of the same subjects."""
    from tacit.functional.curves import Curves, require_same_subjects

    found: dict[str, Curves | Agreed] = {}
    for name, column in federation.subjects.columns.items():
        if not isinstance(column, Curves | Agreed):
            kind = type(column).__name__
            raise InvalidValue(f"{name} is not allowed: it is of type {kind}, and must be made by `curves`")
        found[name] = column
    require_same_subjects({name: column for name, column in found.items() if isinstance(column, Curves)})
    return found


def _require_usable(name: str, found: "Curves", provenance: Provenance) -> None:
    """Refuse constant curves; refuse or note a domain that was taken from private curves."""
    found.require_varying()
    if found.guessed:
        what = f"the domain of {name}, from the first time to the last at which any subject was observed"
        provenance.look(what, instead="give the domain of its curves")


def _run_scores(scores: Mapping[str, float]) -> dict[str, float]:
    """Return the scores of a run; one that is too large to be a number is left out."""
    return {name: scores[name] for name in ("r2", "ril2") if not math.isinf(scores[name])}


def bin_indicators(lengths: ArrayLike) -> Array:
    """Return a 1 in the bin of each length (lengths, bins); lengths that are not finite count as 0."""
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

    A curve x of length r becomes k x, k = min(1, bound / r). What its response owes to x is learned from
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
    """Return the bin that holds a quantile."""
    # A share that rounding left a hair below is reached.
    return min(int(np.searchsorted(np.cumsum(found), quantile - 1e-12)), len(found) - 1)


@lru_cache(maxsize=1)
def _laws() -> tuple[Array, Array]:
    """Return candidate laws of lengths (laws, bins) and the logarithms of their prior probabilities."""
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
    """Return the distribution function of lengths at logarithms, in units of mean square or median."""
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


TASKS = {Boosting.kind: Boosting}
