"""Scores under the promise: each site holds records out by a secret draw; one noisy table scores the model.

A record is trained on or held out, never both. The draw of a record depends on that record's own coin alone,
so one record more or less changes either the training or the table: with the coins fixed, the other part has
the same law, and mixing over coins keeps (epsilon, delta) by joint convexity. A record therefore costs the
larger of the two prices, not their sum. Held-out records are a subject of their own on the ledger of the run.
The book of the data and the ledger of a site's life outlast the coins of one run: there both prices add up.
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from tacit.errors import Refused, require, require_positive
from tacit.learning.noisy_scores import Noise
from tacit.learning.query import EvaluationQueryBase
from tacit.learning.record import Evaluated
from tacit.learning.task import TaskBase
from tacit.privacy.accounting.release import Release
from tacit.privacy.ledger.chain import HELD_OUT
from tacit.privacy.mechanisms.base import Mechanism
from tacit.privacy.policy import Open, Privacy
from tacit.runtime.arrays import Array
from tacit.runtime.keys import Key
from tacit.sites.federation import Federation, RowFederation, require_rows

# The largest share of records that may be held out.
MOST = 0.5
PURPOSE = "evaluation"


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Scores that are bought on private records, which each site holds out of training by a secret draw.

    Args:
        epsilon: Price of the scores for any one held-out record, by default the epsilon of the promise. A
            record is trained on or held out, so a run costs the larger of this and the price of training.
        share: Probability with which a record is held out.
    """

    epsilon: float | None = None
    share: float = 0.2
    kind: ClassVar[str] = "held-out"

    def __post_init__(self) -> None:
        if self.epsilon is not None:
            require_positive("epsilon", self.epsilon)
        require(0 < self.share <= MOST, "share", self.share, f"above 0 and at most {MOST:g}")

    def check(self, task: TaskBase, privacy: Privacy | Open, *, clusters: bool, late: bool = False) -> None:
        """Refuse what cannot be scored in this way, before anything is charged.

        Args:
            task: The task.
            privacy: The promise.
            clusters: True if there are several models.
            late: True if records enter late.

        Raises:
            Refused: The task has no such scores, or the promise is about whole sites.
        """
        if task.evaluation(math.inf, None) is None:
            raise Refused(
                f"[evaluate] does not go with {task.kind}: its scores do not come from a table of counts. "
                "Leave it out"
            )
        if clusters:
            raise Refused(
                "[evaluate] does not go with [clusters]: it scores one model. Leave one of them out"
            )
        if late:
            raise Refused(
                "[evaluate] does not go with entry times: a record that enters late is in two cells of the "
                "table. Leave [evaluate] out"
            )
        if isinstance(privacy, Open):
            return
        if privacy.unit != "record":
            raise Refused(
                '[evaluate] buys scores for runs that protect records, and this one has unit = "site". Leave '
                "it out, or score on public records"
            )
        if privacy.epsilon is None:
            allowed = "a number above 0, as the promise is given by its noise_multiplier"
            require(self.epsilon is not None, "[evaluate] epsilon", self.epsilon, allowed)
        elif self.epsilon is not None:
            allowed = f"at most {privacy.epsilon:g}, the epsilon of the promise"
            require(self.epsilon <= privacy.epsilon, "[evaluate] epsilon", self.epsilon, allowed)

    def price(self, privacy: Privacy | Open) -> float:
        """Return the epsilon of the scores for any one held-out record; infinite in an open run."""
        if isinstance(privacy, Open):
            return math.inf
        return self.epsilon or privacy.epsilon or math.inf

    def query(
        self, task: TaskBase, privacy: Privacy | Open, records: int | None, sites: int
    ) -> EvaluationQueryBase | None:
        """Return the query that scores a task.

        Args:
            task: The task.
            privacy: The promise.
            records: The number of all records, if it is public.
            sites: The number of sites.
        """
        held_out = None if records is None else round(self.share * records)
        # Several noises are as one of a smaller epsilon, with the same variance.
        noises = sites if privacy.noise == "site" else 1
        return task.evaluation(self.price(privacy) / math.sqrt(noises), held_out)

    def release(self, mechanism: Mechanism, names: Collection[str]) -> list[Release]:
        """Return the releases of the table: about the held-out records of each site, and no others."""
        return [
            replace(release, subject=f"{HELD_OUT}@{name}", purpose=PURPOSE)
            for name in names
            for release in mechanism.release(0, [name])
        ]

    def split(self, federation: Federation, key: Key) -> tuple[Federation, Federation]:
        """Return the sites with the records to train on, and with those held out.

        Remote sites split their own records: to the coordinator only the expected numbers change.
        """
        if federation.distant:
            known = federation.records
            kept = None if known is None else known - round(self.share * known)
            return federation.with_record_count(kept), federation
        rows = require_rows(federation)
        sizes = {name: size for name, (_, size) in rows.places.items()}
        return rows.split(self.draw(sizes, key), self.share)

    def at_site(self, own: Federation, name: str, key: Key, *, held_out: bool) -> Federation:
        """Return the part of a remote site's records that is trained on, or that is held out."""
        rows = require_rows(own)
        marks = self.draw({name: len(rows.store)}, key)
        return rows.split(marks, self.share)[int(held_out)]

    def draw(self, sizes: Mapping[str, int], key: Key) -> NDArray[np.bool_]:
        """Draw the coin of each record, site after site: independent of all records, and secret."""
        coins = [(key / "held-out" / name).secret().uniform((size,)) for name, size in sizes.items()]
        return np.concatenate([np.zeros(0), *coins]) < self.share

    def score_counts(
        self,
        question: EvaluationQueryBase,
        privacy: Privacy | Open,
        state: Array,
        counts: Array,
        noise: Noise,
    ) -> Evaluated:
        """Return the scores of a model by the noisy counts of all sites."""
        found, price = question.scores(state, counts, noise), self.price(privacy)
        return replace(found, epsilon=price if math.isfinite(price) else None, share=self.share)

    def choice(self, privacy: Privacy | Open) -> str:
        """Describe the price in a sentence, for a plan."""
        if isinstance(privacy, Open):
            return f"{self.share:.0%} of the records are held out of training and scored"
        return (
            f"{self.share:.0%} of the records are held out of training and scored for epsilon "
            f"{self.price(privacy):g}, at no cost beside that of training; in "
            "lifetime budgets both prices add up"
        )

    def lifetime_note(self, total: float) -> str:
        """Describe the price in a lifetime in a sentence; `total` is that of all runs so far."""
        return (
            f"in a lifetime the prices of training and scores add up, to epsilon {total:.4g} so far, because "
            "the next run holds out other records"
        )

    @property
    def public_fact(self) -> str:
        """Describe the draw and its price for a statement."""
        return (
            f"each record is held out of training with probability {self.share:g}, by a secret draw that "
            "depends on no other record; its price is the larger of training and evaluation"
        )


def enter_late(federation: Federation) -> bool:
    """Return True if the records of these sites enter late."""
    return isinstance(federation, RowFederation) and "entry" in federation.store.targets
