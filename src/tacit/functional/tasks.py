"""The task: curves of one party from curves of others, each released once.

The state is the release itself, put together. All that follows, the whole path of boosting, its stopping and
its degrees of freedom, is worked out from it and costs nothing, however often.
"""

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

import numpy as np
from numpy.typing import NDArray

from tacit.errors import InvalidValue, require, require_word
from tacit.functional.boosting.moments import NOISY_FOLDS, decode_sums, encode_sums, encoded_length, products
from tacit.functional.clip_radius import ClipRadiusQuery
from tacit.functional.config import FEW, FEW_Y, FunctionalConfig
from tacit.functional.data.remote import Agreed
from tacit.learning.record import identity_of
from tacit.learning.task import Goal, TaskBase, Updates
from tacit.privacy.contracts import Layout
from tacit.privacy.mechanisms.base import Mechanism, NoPrivacy
from tacit.privacy.mechanisms.secure_gram import from_upper_triangle
from tacit.privacy.mechanisms.vertical import (
    MOST_ADDED,
    ClippedSecureGram,
    GramMatrix,
    LocalColumns,
    require_radius,
)
from tacit.privacy.policy import Open, Privacy
from tacit.privacy.provenance import Provenance
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

# The share of curves that a bought clip radius leaves unclipped.
QUANTILES = {"local": 0.5, "moments": 0.8}


@dataclass(frozen=True, kw_only=True)
class Boosting(FunctionalConfig, TaskBase):
    """Curves predicted from curves that other parties hold, by boosting."""

    kind: ClassVar[str] = "functional-boosting"
    layout: ClassVar[Layout] = "columns"
    # Defaults of an experiment file.
    usual: ClassVar[Mapping[str, Any]] = {"rounds": 1, "data": "simulated-curves", "sites": "columns"}

    def with_privacy(self, privacy: Privacy | Open) -> Self:
        """This as a promise wants it: what is released, and how many coordinates of a curve."""
        if isinstance(privacy, Open):
            radius = None if self.radius == "private" else self.radius
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
        """This with the curves of the federation known.

        Raises:
            InvalidValue: There is no response, or a curve that nothing can be learnt from.
        """
        assert isinstance(federation, VerticalFederation), "the loop has looked"
        columns = _curves_of(federation)
        require_word("response", self.response, columns)
        predictors = tuple(name for name in columns if name != self.response)
        require(bool(predictors), "predictors", "none", f"at least one curve beside {self.response}")
        for given, field in ((self.center, "center"), (self.scale, "scale")):
            for name in given:
                require_word(field, name, columns)
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
        """This with what is public about the noise."""
        if type(mechanism) is NoPrivacy:
            return self
        own = cast("LocalColumns | GramMatrix | ClippedSecureGram", mechanism)
        noise = own.multiplier if isinstance(own, LocalColumns) else own.sigma
        radius = dict(own.radii) if self.radius is None else self.radius
        return replace(self, noise=float(noise), radius=radius, secret=isinstance(own, ClippedSecureGram))

    @property
    def identity(self) -> str | None:
        """Everything that the work depends on."""
        return identity_of(self)

    @property
    def goal(self) -> Goal:
        """The share of the response that is explained."""
        return ("r2", "max")

    @property
    def initial_query(self) -> ClipRadiusQuery | None:
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
        """Nothing is known yet."""
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
        """Products that were taken in secret, in the order of the model instead of that of the parties."""
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

    def pictures(
        self, state: Array, rounds: "Sequence[Round]", read: "Callable[[str], bytes | None]"
    ) -> "list[Figure]":
        """The figures of a report: surfaces, the path of boosting, and where it stopped."""
        from tacit.functional.figures.report import pictures

        return pictures(self, state, rounds, read)

    def rivals(self, federation: Federation) -> "dict[str, Callable[[Subjects], dict[str, float]]]":
        """Train baselines without noise: on the active party's own curves, and on all curves pooled."""
        from tacit.functional.model import without_noise

        assert isinstance(federation, VerticalFederation), "the loop has looked"
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
    """Refuse curves that nothing can be learnt from; ask where their domain was taken from them."""
    found.require_varying()
    if found.guessed:
        what = f"the domain of {name}, from the first time to the last at which any subject was observed"
        provenance.look(what, instead="give the domain of its curves")


def _run_scores(scores: Mapping[str, float]) -> dict[str, float]:
    """The scores of a run; one that is too large to be a number is left out."""
    return {name: scores[name] for name in ("r2", "ril2") if not math.isinf(scores[name])}


TASKS = {Boosting.kind: Boosting}
