"""Synthetic data augmentation: patients drawn by an autoencoder that each site trains on its events.

With `MVAEC` what a site draws stays there; with `MVAES` it is pooled and dealt out again. Under a promise
about single records the autoencoder is trained with noise and charged, and what it draws is free. All
synthetic patients have the event, as in the method this follows, so event rates rise: compare with a model
that was trained to its end without them before you believe in a gain.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Literal, TypeGuard

import numpy as np
from numpy.typing import NDArray

from tacit.errors import (
    LEAST_RATE,
    MOST_STEPS,
    MOST_WIDTH,
    InvalidValue,
    Refused,
    require,
    require_count,
    require_positive,
    require_rate,
    require_word,
)
from tacit.privacy.accounting import calibrate
from tacit.privacy.accounting.release import Release, View
from tacit.privacy.mechanisms.base import CountNoise, Mechanism, NoPrivacy, RecordLevel
from tacit.privacy.policy import Open, Privacy, Provenance, require_bound
from tacit.runtime.contracts import fields_of
from tacit.runtime.keys import Key
from tacit.sites.federation import Federation, RowFederation, places_of, require_rows
from tacit.sites.table import Table, concatenate

if TYPE_CHECKING:
    from tacit.survival.augment.mvae import Scale

# Number of events of each participating site, and sentences about the other sites.
SiteEventCounts = tuple[dict[str, float], tuple[str, ...]]
# A site with fewer records trains no autoencoder; a single event would be copied, not learned from.
FEWEST_RECORDS, FEWEST_EVENTS = 10, 2
# Share of its epsilon that the number of events may cost.
COUNT_SHARE = 0.1


@dataclass(frozen=True, kw_only=True)
class Augmentation(ABC):
    """Options of synthetic data augmentation; the kinds decide where the records go.

    Args:
        latent: Number of latent variables of a record.
        hidden: Width of the hidden layers.
        alpha: Weight of the Kullback-Leibler divergence.
        beta: Weight of the squared error in the time.
        k: Number of synthetic records for each event.
        steps: Training steps of the autoencoder.
        sample: Probability with which each record joins a step.
        lr: Learning rate of the first steps.
        residuals: `drawn` adds noise to decoded records, so that every column varies as much as the real one;
            `none` leaves the means that the decoders give.
        epsilon: Budget of the whole augmentation, as a part of a record-level promise.
        clip: Bound of one record's gradient, under such a promise.
        span: Public times between which nearly all events happen. Such a promise needs it, unless there are
            public reference records; without these, features are taken as standardized.
    """

    latent: int = 10
    hidden: int = 30
    alpha: float = 1.0
    beta: float = 1.0
    k: float = 0.5
    steps: int = 500
    sample: float = 1.0
    lr: float = 0.01
    residuals: Literal["drawn", "none"] = "drawn"
    epsilon: float | None = None
    clip: float = 1.0
    span: Sequence[float] | None = None
    kind: ClassVar[str]
    # The view: who sees the synthetic records, or results computed from them.
    view: ClassVar[View]

    def __post_init__(self) -> None:
        require_count("latent", self.latent, MOST_WIDTH)
        require_count("hidden", self.hidden, MOST_WIDTH)
        require_count("steps", self.steps, MOST_STEPS)
        for name, given in fields_of(self, ("alpha", "beta", "k", "lr")).items():
            require_positive(name, given)
        require_bound("clip", self.clip)
        require_rate("sample", self.sample, LEAST_RATE)
        require_word("residuals", self.residuals, ("drawn", "none"))
        if self.epsilon is not None:
            require_positive("epsilon", self.epsilon)
        if self.span is not None:
            rising = len(self.span) == 2 and 0 < self.span[0] < self.span[1] < np.inf
            require(rising, "span", list(self.span), "two times above 0, the earlier one first")

    @abstractmethod
    def deal(self, drawn: Mapping[str, Table], key: Key) -> dict[str, Table]:
        """Assign the synthetic records of all sites to the sites."""

    def reserve(self, privacy: Privacy | Open) -> Privacy | Open:
        """Return the promise that is left for training after augmentation; refuse options that break it."""
        if not _protects_records(privacy):
            self._require_free(privacy)
            return privacy
        if self.epsilon is None:
            raise Refused(
                "[augment] epsilon is missing: synthetic records reveal single records, so their autoencoder "
                "must be trained with noise. Give it a part of the promise's epsilon"
            )
        if privacy.epsilon is None:
            return privacy
        below = self.epsilon < privacy.epsilon
        require(below, "[augment] epsilon", self.epsilon, "below that of the promise")
        # The parts add up: (e1, d1) and (e2, d2) make (e1 + e2, d1 + d2), and the ledger finds less.
        rest = 1 - self.epsilon / privacy.epsilon
        return replace(privacy, epsilon=privacy.epsilon - self.epsilon, delta=privacy.delta * rest)

    def check(self, federation: Federation, privacy: Privacy | Open, provenance: Provenance) -> None:
        """Refuse records that cannot be augmented, before `release` is charged."""
        sites = require_rows(federation)
        _require_usable(sites)
        _ = self.reserve(privacy)
        if _protects_records(privacy) and not provenance.allowed:
            _ = self._public_scale(sites, provenance)

    def mechanism(self, privacy: Privacy | Open) -> Mechanism:
        """Return the mechanism of event counts and training; the null mechanism where nothing is charged.

        Guarantee:
            All steps together cost any one record at most what the count of events leaves of `epsilon`.
        """
        if not _protects_records(privacy):
            return NoPrivacy()
        share = 1.0 if privacy.epsilon is None else self._epsilon / privacy.epsilon
        multiplier = calibrate(
            epsilon=(1 - COUNT_SHARE) * self._epsilon,
            delta=privacy.delta * share,
            steps=self.steps,
            rate=self.sample,
            mechanism=privacy.mechanism,
        )
        return RecordLevel(
            law=privacy.mechanism,
            clip=self.clip,
            multiplier=multiplier,
            steps=self.steps,
            rate=self.sample,
            rehearsal=privacy.rehearsal,
            # One record moves a number of events by 1.
            counts=CountNoise(law="laplace", scale=1 / (COUNT_SHARE * self._epsilon)),
        )

    def release(self, privacy: Privacy | Open, names: Collection[str]) -> tuple[Release, ...]:
        """The price, charged before anything is trained: for each site a count of events, and all steps."""
        mechanism, counted = self.mechanism(privacy), "number of events, for augmentation"
        counts = [
            replace(price, view=self.view, purpose=counted) for price in mechanism.count_releases(names)
        ]
        steps = [
            replace(price, view=self.view, purpose="training of the autoencoder")
            for price in mechanism.release(0, names)
        ]
        return (*counts, *steps)

    def augment(
        self, federation: Federation, privacy: Privacy | Open, provenance: Provenance, key: Key
    ) -> "AugmentedFederation":
        """Return the federation with synthetic records beside the real ones, once `release` is paid.

        Args:
            federation: The sites; their records have a `time` and an `event` of 0 or 1.
            privacy: The whole promise, as it was given to `reserve` and `release`.
            provenance: Whom to ask before anything leaves without protection.
            key: The same one draws the same records; each site draws from `key / name`.

        Guarantee:
            Under a promise about records, synthetic records, how many there are and who is left out are made
            from noisy counts and noisy sums of clipped gradients alone, each priced by `release`. Once they
            are given, a real record still enters later training by its own contributions alone: the prices
            add up. Under a promise about sites, everything stays at the site, whose whole update is guarded.
        """
        self.check(federation, privacy, provenance)
        sites = require_rows(federation)
        if isinstance(privacy, Open) and self.view == "sites":
            provenance.look(
                "synthetic records of every site, which may resemble real ones, sent to all sites",
                instead="pay for them with [augment] epsilon, or use MVAEC",
            )
        mechanism = self.mechanism(privacy)
        if _protects_records(privacy):
            public = self._public_scale(sites, provenance)
            events, notes = _noisy_event_counts(sites, mechanism, key)
        else:
            public, (events, notes) = None, _exact_counts(sites, provenance)
        drawn = self._draw_records(sites, events, public, mechanism, key)
        # At site level, the number of synthetic records is a secret of the site.
        known = isinstance(privacy, Open) or privacy.unit == "record"
        return AugmentedFederation(sites, self.deal(drawn, key / "deal"), notes, known=known)

    @property
    def _epsilon(self) -> float:
        assert self.epsilon is not None, "reserve comes first"
        return self.epsilon

    def _require_free(self, privacy: Privacy | Open) -> None:
        """Refuse a run without a record-level promise where one is needed, or paid for."""
        if self.epsilon is not None:
            raise Refused("[augment] epsilon is for runs that protect records. Remove it")
        if isinstance(privacy, Privacy) and self.view == "sites":
            raise Refused(
                'MVAES does not go with unit = "site": synthetic records depend on the whole site, and no '
                'clipping bounds that. Use MVAEC, or unit = "record".'
            )

    def _public_scale(self, federation: RowFederation, provenance: Provenance) -> "Scale":
        """Return the scale for standardizing without private statistics."""
        from tacit.survival.augment.mvae import Scale, unit_scale

        store, reference = federation.store, federation.reference
        if reference is not None:
            scale = Scale.from_events(reference.take(_event_mask(reference))).keep_constant_columns()
            return scale if self.span is None else scale.with_span(self.span)
        scale = unit_scale(len(store.columns))
        if self.span is not None:
            return scale.with_span(self.span)
        provenance.look(
            "the span of event times, for augmentation",
            instead="give a public `span` in [augment], two times between which nearly all events happen",
        )
        own = Scale.from_events(store.take(_event_mask(store)))
        return replace(scale, center=own.center, width=own.width, ends=own.ends)

    def _draw_records(
        self,
        federation: RowFederation,
        events: Mapping[str, float],
        public: "Scale | None",
        mechanism: Mechanism,
        key: Key,
    ) -> dict[str, Table]:
        """Synthetic records by each site's own autoencoder, in proportion to its events."""
        numbers = {name: round(self.k * events[name]) for name in sorted(events)}
        names = tuple(name for name, number in numbers.items() if number > 0)
        if not names:
            return {}
        from tacit.survival.augment.mvae import Autoencoder, Scale, TrainingOptions, cohort_of, draw, train

        tables = {name: federation.records_of(name) for name in names}
        if public is None:
            # If no price counts on the draw, censored records can be left out.
            tables = {name: table.take(_event_mask(table)) for name, table in tables.items()}
        scales = {name: public or Scale.from_events(table) for name, table in tables.items()}
        network = Autoencoder(len(federation.store.columns), self.latent, self.hidden, self.alpha, self.beta)
        weights = train(
            network,
            cohort_of({name: scales[name].standardise(table) for name, table in tables.items()}),
            mechanism,
            [key / name for name in names],
            TrainingOptions(steps=self.steps, sample=self.sample, lr=self.lr),
            start=network.start(key / "weights"),
            expected=np.array([self.sample * events[name] for name in names]),
        )
        if not bool(np.isfinite(weights).all()):
            raise InvalidValue(f"[augment] lr = {self.lr} is not allowed: the autoencoder diverged; lower it")
        drawn = {
            name: draw(network, row, numbers[name], key / name, residuals=self.residuals)
            for name, row in zip(names, weights, strict=True)
        }
        return {name: scales[name].destandardise(made, federation.store) for name, made in drawn.items()}


@dataclass(frozen=True, kw_only=True)
class MVAEC(Augmentation):
    """Synthetic records stay at the site that drew them. See `Augmentation`."""

    kind: ClassVar[str] = "mvaec"
    view: ClassVar[View] = "server"

    def deal(self, drawn: Mapping[str, Table], key: Key) -> dict[str, Table]:
        """Leave every site its own synthetic records."""
        return dict(drawn)


@dataclass(frozen=True, kw_only=True)
class MVAES(Augmentation):
    """Pooled synthetic records, dealt out again: each site gets as many as it gave. See `Augmentation`."""

    kind: ClassVar[str] = "mvaes"
    view: ClassVar[View] = "sites"

    def deal(self, drawn: Mapping[str, Table], key: Key) -> dict[str, Table]:
        """Shuffle all synthetic records; each site gets as many as it drew."""
        if not drawn:
            return {}
        names = sorted(drawn)
        pool = concatenate([drawn[name] for name in names], "synthetic records")
        order = key.generator().permutation(len(pool))
        ends = np.cumsum([len(drawn[name]) for name in names]).tolist()
        return {name: pool.take(rows) for name, rows in zip(names, np.split(order, ends[:-1]), strict=True)}


AUGMENTATIONS: Mapping[str, type[Augmentation]] = {kind.kind: kind for kind in (MVAEC, MVAES)}


class AugmentedFederation(RowFederation):
    """A federation whose sites hold synthetic records beside their own.

    Args:
        federation: The real one.
        synthetic: Records added to each site; sites without any may be left out.
        notes: Sentences about excluded sites, with reasons.
        known: Whether it is public how many records were added, if it is public how many there were.
    """

    def __init__(
        self, federation: RowFederation, synthetic: Mapping[str, Table], notes: Sequence[str], *, known: bool
    ) -> None:
        # All other attributes of a federation are copied.
        vars(self).update(vars(federation))
        vars(self).pop("fingerprint", None)
        self.synthetic, self.notes = dict(synthetic), tuple(notes)
        parts = {
            name: concatenate(
                [federation.records_of(name), *([synthetic[name]] if name in synthetic else [])]
            )
            for name in federation
        }
        self.store = concatenate([*parts.values()])
        self.places = places_of(parts, [len(part) for part in parts.values()])
        if known and federation.records is not None:
            self.records = federation.records + sum(len(table) for table in synthetic.values())


def _protects_records(privacy: Privacy | Open) -> TypeGuard[Privacy]:
    return isinstance(privacy, Privacy) and privacy.unit == "record"


def _event_mask(table: Table) -> NDArray[np.bool_]:
    return table.targets["event"] == 1


def _noisy_event_counts(federation: Federation, mechanism: Mechanism, key: Key) -> SiteEventCounts:
    """Return noisy event counts of the sites, and notes on those with too few."""
    found = dict[str, float]()
    notes: list[str] = []
    for name in federation:
        events = int(_event_mask(federation.records_of(name)).sum())
        told = mechanism.noisy_count(events, key / name / "events")
        # More events than there are records in all can only be noise.
        told = told if federation.records is None else min(told, float(federation.records))
        if told >= FEWEST_RECORDS:
            found[name] = told
            continue
        notes.append(
            f"site {name} is left out of augmentation: by its noisy count it has about "
            f"{max(round(told), 0)} events, and needs {FEWEST_RECORDS}"
        )
    return found, tuple(notes)


def _exact_counts(federation: Federation, provenance: Provenance) -> SiteEventCounts:
    """Count the events of each site with enough of them; if allowed, name the sites that are left out."""
    found: dict[str, float] = {}
    notes: list[str] = []
    for name in federation:
        happened = _event_mask(federation.records_of(name))
        if len(happened) >= FEWEST_RECORDS and happened.sum() >= FEWEST_EVENTS:
            found[name] = float(happened.sum())
            continue
        notes.append(
            f"site {name} is left out of augmentation: it has {len(happened)} records and {happened.sum()} "
            f"events, and needs {FEWEST_RECORDS} and {FEWEST_EVENTS}"
        )
    if not provenance.allowed:
        return found, ()
    if notes:
        provenance.look(
            "the sites that are too small for augmentation", instead="leave these sites out yourself"
        )
    return found, tuple(notes)


def _require_usable(federation: RowFederation) -> None:
    """Refuse records that an autoencoder of one kind of event cannot model."""
    targets = federation.store.targets
    for name in ("time", "event"):
        if name not in targets:
            raise InvalidValue(f"{name} is missing: augmentation needs a time and an event")
    require("entry" not in targets, "entry", "a target", "left out: synthetic patients have no late entry")
    require(bool(np.isin(targets["event"], (0, 1)).all()), "event", "several causes", "0 or 1 to augment")
    require(bool((targets["time"] > 0).all()), "time", "some of 0 or less", "above 0 everywhere")
