"""Training steps on records, and what else a site tells about them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from tacit.audits.canaries import LONG, CanariedContributions, dummy_cohort
from tacit.audits.lower_bounds import Evidence, ratios
from tacit.audits.mechanisms.base import (
    CLIP,
    DELTA,
    FEW,
    SITE,
    Marks,
    Primitive,
    canary_primitive,
    toss_coins,
    zeros,
)
from tacit.audits.mechanisms.site_level import SPREAD, SPREAD_NOISE, even_split
from tacit.learning.batches import Batch
from tacit.learning.optimizers import LocalTrainingSpec, Program, descend
from tacit.learning.task import Task
from tacit.privacy.accounting.release import Release
from tacit.privacy.mechanisms.base import (
    Contributions,
    CountNoise,
    Mechanism,
    NoiseLaw,
    Norm,
    RecordLevel,
    Rows,
)
from tacit.privacy.policy import Privacy
from tacit.runs.stopping import NoisyLoss, Stopping
from tacit.runtime.arrays import Array
from tacit.runtime.keys import Key
from tacit.sites.federation import Federation
from tacit.sites.table import Table


class EmptyContributions:
    """Contributions of no records to no coordinates, at one site."""

    def lengths(self, norm: Norm) -> Array:
        """None."""
        return np.zeros((1, 0))

    def total(self, factors: Array | None) -> Array:
        """None."""
        return np.zeros((1, 0))


NOBODY = EmptyContributions()


def records(multiplier: float, **fields: Any) -> Primitive:
    """Training steps on records, or risk groups: each step draws, clips, adds up and adds noise."""
    usual: dict[str, Any] = {"law": "gaussian", "steps": 1, "rate": 1.0}
    mechanism = RecordLevel(clip=CLIP, multiplier=multiplier, rehearsal=True, **{**usual, **fields})

    def play(planted: RecordLevel, key: Key) -> None:
        for step in range(planted.steps):
            planted.noisy_sums(NOBODY, [key / SITE / "noise"], step)

    return canary_primitive(mechanism, play, delta=0.0 if mechanism.law == "laplace" else DELTA)


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
    """A program in which each record that is there moves a coordinate of its own, by more than it may.

    Args:
        present: Who is there.
    """

    present: Marks
    numbers_per_record: int = 1
    working_numbers: int = 2**30

    @property
    def size(self) -> int:
        """A coordinate for each."""
        return len(self.present)

    def contributions(self, weights: Array, batch: Batch, store: Table) -> Contributions:
        """What the records of a batch contribute, at the one site that there is."""
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
    """Keeps the scores of what a mechanism says of coordinates."""

    mechanism: RecordLevel
    price: Release
    scores: Array

    def noisy_sums(self, contributions: Contributions, keys: Sequence[Key], step: int) -> Array:
        """The noisy sums."""
        sums = self.mechanism.noisy_sums(contributions, keys, step)
        np.add(self.scores, ratios(self.price, sums[0]), out=self.scores)
        return sums


def number_of_records() -> Primitive:
    """How many records a site holds, as it is bought."""
    counting = CountNoise(law="laplace", scale=0.5)
    mechanism = RecordLevel(
        law="gaussian", clip=CLIP, multiplier=1.0, steps=1, rate=1.0, counts=counting, rehearsal=True
    )
    (price,) = mechanism.count_releases([SITE])

    def attack(attacked: RecordLevel, count: int, key: Key) -> Evidence:
        present = toss_coins(count, key)
        told = [attacked.noisy_count(100 + int(there), key / number) for number, there in enumerate(present)]
        return Evidence(ratios(price, np.array(told) - 100), present)

    return Primitive(mechanism, (price,), attack, most=FEW, delta=0.0)


def watched_loss() -> Primitive:
    """The loss of records that are kept apart, by which a run decides when to stop."""
    privacy = Privacy(unit="record", epsilon=1.0, delta=DELTA, clip=CLIP, rehearsal=True)
    apart = Federation({SITE: dummy_cohort(2).store})
    mechanism = NoisyLoss(apart, Stopping(epsilon=0.5, bound=CLIP), privacy, 1.0)
    price = mechanism.release(1)

    def attack(attacked: NoisyLoss, count: int, key: Key) -> Evidence:
        present = toss_coins(count, key)
        losses = [SimpleNamespace(losses=partial(_constant, found)) for found in (0.0, LONG)]
        told = [
            attacked.scores(cast(Task, losses[int(there)]), zeros(1), key / number)["watched_loss"]
            for number, there in enumerate(present)
        ]
        return Evidence(ratios(price[0], np.array(told)), present)

    return Primitive(mechanism, price, attack, most=FEW)


def _constant(value: float, *_: object) -> Array:
    return np.full(1, value)
