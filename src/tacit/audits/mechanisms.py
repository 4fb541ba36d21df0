"""Attacks on every mechanism: each adversary distinguishes the worst neighboring data sets.

An adversary uses nothing but the mechanism's own methods, the ones that a run calls, and knows everything but
whether its canary is there. Beside those listed in `PRIMITIVES`, the autoencoder that makes up records uses
training steps like any other.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from tacit.aggregation.mean import Mean
from tacit.audits.canaries import (
    LONG,
    CanariedContributions,
    Canaries,
    EmptyContributions,
    dummy_cohort,
    with_canaries,
)
from tacit.audits.lower_bounds import Bounds, Evidence, bounds, ratios
from tacit.learning.batches import Batch
from tacit.learning.optimizers import LocalTrainingSpec, Program, descend
from tacit.learning.record import Tell, silent
from tacit.learning.task import TaskBase
from tacit.privacy.accounting.release import Relation, Release
from tacit.privacy.mechanisms.adaptive_clipping import AdaptiveBound
from tacit.privacy.mechanisms.base import (
    BoundedSum,
    Contributions,
    CountNoise,
    Mechanism,
    NoiseLaw,
    RecordLevel,
    Rows,
)
from tacit.privacy.mechanisms.counts import NoisyCounts, SecureCounts
from tacit.privacy.mechanisms.secure_records import SecureRecordSum
from tacit.privacy.mechanisms.secure_sum import SecureSum
from tacit.privacy.mechanisms.selection import PrivateQuantile, Selection
from tacit.privacy.mechanisms.site_level import SiteLevel
from tacit.privacy.mechanisms.vertical import ClippedSecureGram, GramMatrix, LocalColumns, NoisyHistograms
from tacit.runs.stopping import NoisyLoss
from tacit.runtime.arrays import Array
from tacit.runtime.keys import Key
from tacit.sites.federation import RowFederation
from tacit.sites.table import Table

Marks = NDArray[np.bool_]
DELTA = 1e-5
CLIP = 0.5
SITES = 5
SITE = "site"
# The number of canaries; fewer where each costs a call of its own.
MANY, FEW = 5000, 2000
# Laws whose price has no delta.
PURE = ("laplace", "discrete-laplace", "selection")
# The length of vectors whose norm is spread evenly over all numbers, and the noise that then distinguishes
# clipped from unclipped ones.
SPREAD = 64
SPREAD_NOISE: Mapping[NoiseLaw, float] = {"gaussian": 2.0, "laplace": 2 / 3}
COLUMNS: Mapping[str, float] = {"x": 1.0, "y": 2.0}


def audit_mechanisms(*, confidence: float = 0.95, seed: int = 0, tell: Tell = silent) -> dict[str, Bounds]:
    """Audit every mechanism by canaries.

    Args:
        confidence: With which probability all bounds together are to hold.
        seed: The seed.
        tell: Receives progress.
    """
    found: dict[str, Bounds] = {}
    for number, (name, make) in enumerate(PRIMITIVES.items()):
        tell("attacking every mechanism", number / len(PRIMITIVES))
        # The doubt is shared: many tests, one verdict.
        each = 1 - (1 - confidence) / len(PRIMITIVES)
        found[name] = make().audit(confidence=each, seed=seed)
    return found


@dataclass(frozen=True)
class Primitive:
    """One mechanism with its price and an attack on it.

    Args:
        mechanism: The mechanism.
        price: The releases that it charges.
        attack: Returns an adversary's evidence about a number of canaries; called with the mechanism, which
            may be a broken one, so that the price is the claim and not the truth.
        most: The largest useful number of canaries.
    """

    mechanism: Any
    price: tuple[Release, ...]
    attack: Callable[[Any, int, Key], Evidence]
    most: int = MANY

    @property
    def delta(self) -> float:
        """At which delta the price is stated: 0 where all of it is purely private."""
        return 0.0 if all(release.law in PURE for release in self.price) else DELTA

    def audit(self, *, mechanism: Any = None, confidence: float = 0.95, seed: int = 0) -> Bounds:  # noqa: ANN401
        """Attack the mechanism, or another one that claims the same price."""
        key = Key(seed, rehearsal=True)
        evidence = self.attack(mechanism or self.mechanism, self.most, key)
        return bounds(evidence, self.price, self.delta, confidence=confidence)


def canary_primitive(
    mechanism: Mechanism, play: Callable[[Any, Key], object], *, most: int = MANY
) -> Primitive:
    """Return the primitive of a mechanism that takes canaries; `play` uses it, without any records."""

    def attack(attacked: Mechanism, count: int, key: Key) -> Evidence:
        canaries = Canaries(count, [SITE], key / "coins")
        play(with_canaries(attacked, canaries, aggregation=Mean(), sites=SITES), key)
        return canaries.evidence()

    return Primitive(mechanism, mechanism.release(1, [SITE]), attack, most)


def one_by_one(
    mechanism: object,
    price: tuple[Release, ...],
    ask: Callable[[Any, bool, Key], object],
    read: Callable[[Array], Array],
    *,
    most: int = FEW,
) -> Primitive:
    """Attack a mechanism by one query for each canary, with scores from all answers."""

    def attack(attacked: object, count: int, key: Key) -> Evidence:
        present = toss_coins(count, key)
        told = [ask(attacked, bool(there), key / number) for number, there in enumerate(present)]
        return Evidence(read(np.array(told, dtype=np.float64)), present)

    return Primitive(mechanism, price, attack, most)


def toss_coins(count: int, key: Key) -> Marks:
    """Toss a fair coin for the presence of each canary."""
    return (key / "coins").generator().random(count) < 0.5


def updates(multiplier: float, **fields: Any) -> Primitive:
    """Whole updates, with noise at the site or at the server."""
    usual: dict[str, Any] = {"law": "gaussian", "reach": CLIP}
    mechanism = SiteLevel(clip=CLIP, multiplier=multiplier, rehearsal=True, **{**usual, **fields})

    def play(planted: SiteLevel, key: Key) -> None:
        planted.at_server(planted.at_site(np.zeros(1), key / SITE / "update"), key / "server")

    return canary_primitive(mechanism, play)


def spread_updates(law: NoiseLaw) -> Primitive:
    """Updates one at a time, as a run has them, spread evenly over many numbers: only a norm bounds them."""
    primitive, long = updates(SPREAD_NOISE[law], law=law, where="site"), np.full(SPREAD, LONG * CLIP)
    own = even_split(primitive.price[0], "replace")
    return one_by_one(
        primitive.mechanism,
        primitive.price,
        lambda attacked, there, key: attacked.at_site(long if there else -long, key / SITE / "update"),
        lambda told: ratios(own, told).sum(axis=1),
    )


def even_split(price: Release, relation: Relation) -> Release:
    """The price of one of many numbers that share the bound evenly."""
    share = CLIP / (SPREAD if price.law == "laplace" else math.sqrt(SPREAD))
    sides = 2 if relation == "replace" else 1
    return replace(price, sensitivity=sides * share, bound=share)


def secure_sum() -> Primitive:
    """Secure aggregation: a noisy sum over sites without visible parts."""
    mechanism = SecureSum(clip=CLIP, multiplier=1.0, colluders=1, sites=SITES, rehearsal=True)
    return canary_primitive(
        mechanism, lambda planted, key: planted.at_site(np.zeros(1), key / SITE / "update"), most=FEW
    )


def secure_record_sum() -> Primitive:
    """Secure aggregation of records: a noisy sum over the records of all sites."""
    mechanism = SecureRecordSum(clip=CLIP, multiplier=1.0, colluders=1, sites=SITES, rehearsal=True)
    return canary_primitive(
        mechanism, lambda planted, key: planted.noisy_sum(np.zeros((0, 1)), key / SITE / "noise"), most=FEW
    )


def noisy_counts() -> Primitive:
    """Counts of records with discrete Laplace noise at the site."""
    mechanism = NoisyCounts(cells=1, multiplier=0.5, rehearsal=True)
    return canary_primitive(
        mechanism, lambda planted, key: planted.noisy_sums(NOBODY, [key / SITE / "noise"], 0)
    )


def secure_counts() -> Primitive:
    """Secure aggregation of counts of records, with shares of discrete Laplace noise."""
    mechanism = SecureCounts(clip=1.0, multiplier=0.5, colluders=1, sites=SITES, rehearsal=True)
    return canary_primitive(
        mechanism, lambda planted, key: planted.noisy_sums(NOBODY, [key / SITE / "noise"], 0)
    )


def adaptive_clipping() -> Primitive:
    """A bound of updates that follows their lengths."""
    mechanism = AdaptiveBound(rehearsal=True, expected=1000, noise=0.5)
    lengths = {True: np.full(1, 9.0), False: np.zeros(0)}

    def ask(attacked: AdaptiveBound, there: bool, key: Key) -> float:
        # The noisy count of long contributions is what the move of the bound shows.
        return attacked.expected / attacked.speed * math.log(attacked.next(1.0, lengths[there], key))

    return one_by_one(mechanism, (mechanism.release(),), ask, partial(ratios, mechanism.release()))


NOBODY = EmptyContributions()


def records(multiplier: float, **fields: Any) -> Primitive:
    """Training steps on records, or risk groups: each step draws, clips, adds up and adds noise."""
    usual: dict[str, Any] = {"law": "gaussian", "steps": 1, "rate": 1.0}
    mechanism = RecordLevel(clip=CLIP, multiplier=multiplier, rehearsal=True, **{**usual, **fields})

    def play(planted: RecordLevel, key: Key) -> None:
        for step in range(planted.steps):
            planted.noisy_sums(NOBODY, [key / SITE / "noise"], step)

    return canary_primitive(mechanism, play)


def spread_records(law: NoiseLaw) -> Primitive:
    """Records whose gradients are spread evenly over many numbers, each alone at its site."""
    primitive = records(SPREAD_NOISE[law] / 2, law=law)
    own = even_split(primitive.price[0], "add-remove")

    def attack(attacked: RecordLevel, count: int, key: Key) -> Evidence:
        present = toss_coins(count, key)
        rows = np.where(present, LONG * CLIP, 0.0)[:, None, None] * np.ones((1, 1, SPREAD))
        keys = [key / number / SITE / "noise" for number in range(count)]
        return Evidence(ratios(own, attacked.noisy_sums(Rows(rows), keys, 0)).sum(axis=1), present)

    return replace(primitive, attack=attack, most=FEW)


@dataclass(frozen=True, eq=False)
class OneCoordinateEach:
    """A program in which each present record moves a coordinate of its own, by more than its clip norm.

    Args:
        present: True for present records.
    """

    present: Marks
    numbers_per_record: int = 1
    working_numbers: int = 2**30

    @property
    def size(self) -> int:
        """A coordinate for each."""
        return len(self.present)

    def contributions(self, weights: Array, batch: Batch, store: Table) -> Contributions:
        """Return the contributions of a batch's records, at the single site."""
        here = batch.rows[batch.present]
        own = np.zeros((1, self.size))
        own[0, here] = LONG * CLIP * self.present[here]
        return CanariedContributions(NOBODY, own)


def local_work() -> Primitive:
    """The steps that a site takes: batches are drawn, and go through the mechanism, as in any training."""
    mechanism = RecordLevel(law="gaussian", clip=CLIP, multiplier=0.7, steps=8, rate=0.2, rehearsal=True)
    work = SimpleNamespace(
        steps=8, sample=0.2, epochs=None, batch=1, risk_groups=None, separable=True, lr=0.1, optimizer="sgd",
        proximal=0.0, decay=0.0,
    )  # fmt: skip

    def attack(attacked: RecordLevel, count: int, key: Key) -> Evidence:
        present = toss_coins(count, key)
        ear = ScoreRecorder(attacked, mechanism.release(1, [SITE])[0], np.zeros(count))
        start = np.zeros((1, count))
        descend(
            cast(LocalTrainingSpec, work),
            cast(Program, OneCoordinateEach(present)),
            start,
            dummy_cohort(count),
            cast(Mechanism, ear),
            [key / SITE],
        )
        return Evidence(ear.scores, present)

    return Primitive(mechanism, mechanism.release(1, [SITE]), attack)


@dataclass(frozen=True, eq=False)
class ScoreRecorder:
    """Recorder of the scores that a mechanism gives for coordinates."""

    mechanism: RecordLevel
    price: Release
    scores: Array

    def noisy_sums(self, contributions: Contributions, keys: Sequence[Key], step: int) -> Array:
        """The noisy sums."""
        sums = self.mechanism.noisy_sums(contributions, keys, step)
        np.add(self.scores, ratios(self.price, sums[0]), out=self.scores)
        return sums


def number_of_records() -> Primitive:
    """Noisy count of a site's records."""
    counting = CountNoise(law="laplace", scale=0.5)
    mechanism = RecordLevel(
        law="gaussian", clip=CLIP, multiplier=1.0, steps=1, rate=1.0, counts=counting, rehearsal=True
    )
    (price,) = mechanism.count_releases([SITE])
    return one_by_one(
        mechanism,
        (price,),
        lambda attacked, there, key: attacked.noisy_count(100 + int(there), key),
        lambda told: ratios(price, told - 100),
    )


def watched_loss() -> Primitive:
    """Attack the noisy loss of reserved records, by which a run stops early."""
    apart = RowFederation({SITE: dummy_cohort(2).store})
    mechanism = BoundedSum(law="gaussian", bound=CLIP, multiplier=1.0, purpose="watched loss", rehearsal=True)
    price = mechanism.release(1, [SITE])
    losses = [SimpleNamespace(losses=partial(_constant, found)) for found in (0.0, LONG)]

    def ask(attacked: BoundedSum, there: bool, key: Key) -> float:
        watch = NoisyLoss(apart, attacked, patience=None)
        return watch.scores(cast(TaskBase, losses[int(there)]), np.zeros(1), key)["watched_loss"]

    return one_by_one(mechanism, price, ask, partial(ratios, price[0]))


def _constant(value: float, *_: object) -> Array:
    return np.full(1, value)


def curves(direction: int) -> Primitive:
    """Curves as their coordinates, each person's by itself, along one of the coordinates."""
    mechanism = LocalColumns(
        multiplier=1.0, radii=COLUMNS, holders=dict.fromkeys(COLUMNS, SITE), widths=dict.fromkeys(COLUMNS, 4),
        rehearsal=True,
    )  # fmt: skip

    def attack(attacked: LocalColumns, count: int, key: Key) -> Evidence:
        present = toss_coins(count, key)
        scores = np.zeros(count)
        for price, (column, radius) in zip(mechanism.release(1, [SITE]), COLUMNS.items(), strict=True):
            rows = np.zeros((count, 4))
            rows[:, direction] = LONG * radius * np.where(present, 1, -1)
            scores += ratios(price, attacked.noisy_rows(rows, column, key / SITE / column)[:, direction])
        return Evidence(scores, present)

    return Primitive(mechanism, mechanism.release(1, [SITE]), attack)


def products() -> Primitive:
    """Products of all curves, with noise of a server."""
    mechanism = GramMatrix(
        multiplier=1.0, radii=COLUMNS, holders=dict.fromkeys(COLUMNS, SITE), rehearsal=True
    )
    return canary_primitive(
        mechanism, lambda planted, key: planted.at_server(np.zeros(6), key / "server"), most=FEW
    )


def secure_products() -> Primitive:
    """Attack secure products of all curves of the parties."""
    mechanism = ClippedSecureGram(
        multiplier=0.5, radii=dict.fromkeys("xyz", 1.0), widths=((1,), (1,), (1,)), records=1, rehearsal=True
    )
    return canary_primitive(
        mechanism, lambda planted, key: planted.at_site(np.zeros(1), key / SITE / "update"), most=FEW
    )


def histogram() -> Primitive:
    """Noisy histogram: counts of records in several bins."""
    mechanism = NoisyHistograms(multiplier=1.0, holders={"x": SITE}, purpose="lengths", rehearsal=True)

    def play(planted: NoisyHistograms, key: Key) -> None:
        planted.noisy_sum(np.zeros(2)[None], key / SITE / "x")

    return canary_primitive(mechanism, play, most=FEW)


def choice(
    mechanism: Selection | PrivateQuantile, pair: Mapping[bool, Sequence[float]], seen: Callable[[Any], bool]
) -> Primitive:
    """Attack private selection: one outcome distinguishes the worst neighbors."""
    return one_by_one(
        mechanism,
        (mechanism.release(),),
        lambda attacked, there, key: seen(attacked.choose(pair[there], key)),
        lambda told: np.where(told > 0, 1.0, -1.0),
        most=MANY,
    )


def exponential() -> Primitive:
    """One of several chosen by the exponential mechanism."""
    # One record moves one score up and all the others down.
    pair = {True: [1.0] + [-1.0] * 19, False: [0.0] * 20}
    return choice(Selection(rehearsal=True, epsilon=2.0, rule="exponential"), pair, lambda place: place == 0)


def permute_and_flip() -> Primitive:
    """One of several chosen by permute and flip."""
    pair = {True: [0.0, 0.0], False: [-1.0, 1.0]}
    rule = Selection(rehearsal=True, epsilon=2.0, rule="permute-and-flip")
    return choice(rule, pair, lambda place: place == 0)


def quantile() -> Primitive:
    """A quantile of private numbers."""
    # The largest of two numbers becomes the smallest: a short gap gains a rank, and the long one loses it.
    pair = {True: [0.0, 0.05], False: [0.05, 1.0]}
    rule = PrivateQuantile(rehearsal=True, quantile=0.5, low=0.0, high=1.0, epsilon=2.0)
    return choice(rule, pair, lambda place: place < 0.05)


PRIMITIVES: Mapping[str, Callable[[], Primitive]] = {
    "a training step": lambda: records(1.0),
    "training steps, records drawn": lambda: records(0.7, rate=0.5, steps=8),
    "training steps, Laplace": lambda: records(0.5, law="laplace"),
    "training steps, spread": lambda: spread_records("gaussian"),
    "training steps, spread, Laplace": lambda: spread_records("laplace"),
    "local work, records drawn": local_work,
    "risk groups": lambda: records(2.0, grouped=True),
    "risk groups, drawn": lambda: records(1.0, grouped=True, sampled="group", rate=0.5, steps=4),
    "update of a site": lambda: updates(2.0, where="site"),
    "update of a site, Laplace": lambda: updates(1.0, where="site", law="laplace"),
    "update of a site, spread": lambda: spread_updates("gaussian"),
    "update of a site, spread, Laplace": lambda: spread_updates("laplace"),
    "mean of updates": lambda: updates(1.0, where="server", reach=CLIP / SITES),
    "mean of updates, Laplace": lambda: updates(0.5, where="server", reach=CLIP / SITES, law="laplace"),
    "mean of updates, sites drawn": lambda: updates(0.5, where="server", reach=CLIP / SITES / 0.5, rate=0.5),
    "sum in secret": secure_sum,
    "sum of records in secret": secure_record_sum,
    "counts of records": noisy_counts,
    "counts of records in secret": secure_counts,
    **{f"curves, direction {number + 1}": lambda number=number: curves(number) for number in range(4)},
    "products of curves": products,
    "products in secret": secure_products,
    "histogram": histogram,
    "bound that follows": adaptive_clipping,
    "number of records": number_of_records,
    "watched loss": watched_loss,
    "choice, exponential": exponential,
    "choice, permute and flip": permute_and_flip,
    "quantile": quantile,
}
