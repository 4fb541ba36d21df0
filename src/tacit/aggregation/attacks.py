"""Attacks by dishonest (Byzantine) sites, for rehearsals: on their records, or on their updates.

Liars know everything: each other, the honest updates and the rule that combines them. Each attack says what
liars do to their records before the first round, or what they send instead of their updates. Nothing here
protects anyone; only rehearsals and open runs accept one.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from tacit.aggregation.base import Aggregator, rows_of
from tacit.errors import (
    TooFewSites,
    is_between,
    require,
    require_count,
    require_positive,
    require_rate,
    require_word,
)
from tacit.learning.query import Updates
from tacit.runtime.arrays import Array
from tacit.runtime.keys import Key
from tacit.sites.federation import Federation, require_rows
from tacit.sites.table import Table

# The aggregate if all attackers send a vector, or one each.
Outcome = Callable[[Array], Array]


@dataclass(frozen=True, kw_only=True)
class Attack:
    """Dishonest sites, in a rehearsal.

    Args:
        liars: Number of dishonest sites.
    """

    liars: int
    kind: ClassVar[str] = ""

    def __post_init__(self) -> None:
        require_count("liars", self.liars)

    @property
    def name(self) -> str:
        """Its kind; a user's own has the name of its class."""
        return self.kind or type(self).__name__

    def draw_liars(self, sites: Sequence[str], key: Key) -> tuple[str, ...]:
        """Draw the attackers among these sites; the same key gives the same ones."""
        allowed = f"fewer than the {len(sites)} sites: at least one must be honest"
        require(self.liars < len(sites), "liars", self.liars, allowed)
        drawn = (key / "liars").generator().permutation(len(sites))[: self.liars]
        ordered = sorted(sites)
        return tuple(sorted(ordered[int(place)] for place in drawn))

    def poison_data(self, federation: Federation, liars: Sequence[str], key: Key) -> Federation:
        """Return the federation with the attackers' changed records; held-out records stay unchanged."""
        return federation

    def poison_updates(
        self, updates: Updates, liars: Sequence[str], aggregation: Aggregator, key: Key
    ) -> Updates:
        """Return the updates that the server gets in a round.

        Args:
            updates: Honest updates of all sites, attackers included; stay unchanged.
            liars: The attackers, whether they take part in this round or not.
            aggregation: The aggregation rule; an adaptive attack tries it.
            key: Key of the draws; rounds and sites have keys of their own below it.
        """
        rows, order = rows_of(updates)
        values = rows.astype(np.float64)
        lying = np.isin(np.array(updates.names, dtype=np.str_)[order], list(liars))
        # Broken updates are not aggregated: attackers know that too.
        honest = ~lying & np.isfinite(values).all(axis=1)
        if not lying.any() or not honest.any():
            return updates

        def substitute(lie: Array) -> Updates:
            matrix = updates.matrix.copy()
            matrix[order[lying]] = np.broadcast_to(lie, (int(lying.sum()), rows.shape[1]))
            return Updates(updates.names, matrix, updates.round)

        def outcome(lie: Array) -> Array:
            kept = order[lying | honest]
            names = tuple(updates.names[int(place)] for place in kept)
            seen = Updates(names, substitute(lie).matrix[kept], updates.round)
            return aggregation(seen)

        return substitute(self.craft(values[lying], values[honest], outcome, key / "lies" / updates.round))

    def craft(self, own: Array, honest: Array, outcome: Outcome, key: Key) -> Array:
        """Return the updates of the attackers in a round: one vector for all, or one row each.

        Args:
            own: Their honest updates (liars, coordinates), in the order of their names.
            honest: The updates of the other sites.
            outcome: The aggregate as a function of the attackers' updates.
            key: The key of the round.
        """
        return own


# Strengths of an adaptive attack; it takes the one that does most harm.
SCALES = (0.1, 0.25, 0.5, 1.0, 1.5, 2.5, 5.0, 10.0)


@dataclass(frozen=True, kw_only=True)
class SignFlip(Attack):
    """Sign flip: each dishonest site sends its own update with the opposite sign.

    Args:
        liars: Number of dishonest sites.
        scale: Factor on the length of the update.
    """

    scale: float = 1.0
    kind: ClassVar[str] = "sign-flip"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive("scale", self.scale)

    def craft(self, own: Array, honest: Array, outcome: Outcome, key: Key) -> Array:
        """Return the own updates, negated."""
        return -self.scale * own


@dataclass(frozen=True, kw_only=True)
class Scaling(Attack):
    """Scaling: all dishonest sites send a large multiple of the honest mean.

    Args:
        liars: Number of dishonest sites.
        factor: The multiple; below 0 it undoes what the others learn.
    """

    factor: float = -10.0
    kind: ClassVar[str] = "scaling"

    def __post_init__(self) -> None:
        super().__post_init__()
        require(is_between(self.factor, -np.inf, np.inf), "factor", self.factor, "a finite number")

    def craft(self, own: Array, honest: Array, outcome: Outcome, key: Key) -> Array:
        """Return a multiple of the honest mean."""
        return self.factor * honest.mean(axis=0)


@dataclass(frozen=True, kw_only=True)
class GaussianNoise(Attack):
    """Gaussian noise: each dishonest site sends noise instead of an update.

    Args:
        liars: Number of dishonest sites.
        scale: Length of the noise, in lengths of a typical honest update.
    """

    scale: float = 10.0
    kind: ClassVar[str] = "gaussian"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive("scale", self.scale)

    def craft(self, own: Array, honest: Array, outcome: Outcome, key: Key) -> Array:
        """Draw normal noise."""
        # The root of the mean square of all honest numbers: the length of a row over the root of the width.
        typical = float(np.sqrt(np.mean(honest**2))) if honest.size else 0.0
        return self.scale * typical * (key / "noise").generator().standard_normal(own.shape)


@dataclass(frozen=True, kw_only=True)
class LabelFlip(Attack):
    """Label flip: dishonest sites train on mirrored outcomes; the shortest time becomes the longest."""

    kind: ClassVar[str] = "label-flip"

    def poison_data(self, federation: Federation, liars: Sequence[str], key: Key) -> Federation:
        """Mirror the attackers' targets between their smallest and largest."""
        return change_records(federation, liars, flip_outcomes)


@dataclass(frozen=True, kw_only=True)
class Alie(Attack):
    """A little is enough (ALIE, Baruch and others 2019): inside the spread of the honest updates.

    Args:
        liars: Number of dishonest sites.
        deviations: Standard deviations from the honest mean, in every coordinate. The default is that of the
            paper, at which some honest sites are farther off; it is 0 for very few dishonest sites.
    """

    deviations: float | None = None
    kind: ClassVar[str] = "alie"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.deviations is not None:
            require_positive("deviations", self.deviations)

    def craft(self, own: Array, honest: Array, outcome: Outcome, key: Key) -> Array:
        """Return the honest mean minus some standard deviations."""
        away = z_max(len(own), len(honest)) if self.deviations is None else self.deviations
        return honest.mean(axis=0) - away * honest.std(axis=0)


@dataclass(frozen=True, kw_only=True)
class InnerProduct(Attack):
    """Inner-product manipulation (Xie and others 2019): the honest mean with the opposite sign.

    Args:
        liars: Number of dishonest sites.
        strength: Factor on the length of the mean; short updates are hard to tell from honest ones.
    """

    strength: float = 1.0
    kind: ClassVar[str] = "inner-product"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive("strength", self.strength)

    def craft(self, own: Array, honest: Array, outcome: Outcome, key: Key) -> Array:
        """Return the honest mean, negated."""
        return -self.strength * honest.mean(axis=0)


@dataclass(frozen=True, kw_only=True)
class Mimic(Attack):
    """Mimic: all dishonest sites copy the honest site that is farthest out, so that it counts many times.

    Karimireddy and others 2022.
    """

    kind: ClassVar[str] = "mimic"

    def craft(self, own: Array, honest: Array, outcome: Outcome, key: Key) -> Array:
        """Return the honest update that is farthest along the first principal direction."""
        apart = honest - honest.mean(axis=0)
        # The last eigenvector of the Gram matrix holds the places along that direction, up to a factor.
        places = np.abs(np.linalg.eigh(apart @ apart.T)[1][:, -1])
        return honest[int(places.argmax())]


@dataclass(frozen=True, kw_only=True)
class Backdoor(Attack):
    """Backdoor: records with a trigger get the best outcome, and boosted updates replace the model.

    Bagdasaryan and others 2020.

    Args:
        liars: Number of dishonest sites.
        column: The feature that is the trigger; by default the first.
        value: The value that the trigger is set to.
        share: Share of the dishonest sites' records that get the trigger; the others keep the model good
            elsewhere.
        boost: Factor on the length of the updates; by default the sites of a round over its dishonest ones.
    """

    column: str | None = None
    value: float = 10.0
    share: float = 0.5
    boost: float | None = None
    kind: ClassVar[str] = "backdoor"

    def __post_init__(self) -> None:
        super().__post_init__()
        require(is_between(self.value, -np.inf, np.inf), "value", self.value, "a finite number")
        require_rate("share", self.share)
        if self.boost is not None:
            require_positive("boost", self.boost)

    def poison_data(self, federation: Federation, liars: Sequence[str], key: Key) -> Federation:
        """Add the trigger, with the best known outcome, to some of the attackers' records."""
        draws = (key / "trigger").generator()
        marks = {name: draws.random(len(federation.records_of(name))) < self.share for name in sorted(liars)}

        def taught(table: Table, name: str) -> Table:
            return add_trigger(table, self.trigger_index(table), self.value, marks[name], rewarded=True)

        return change_records(federation, liars, taught)

    def add_trigger(self, table: Table) -> Table:
        """Return the records with the trigger and their own outcomes, to measure a backdoor."""
        everybody = np.ones(len(table), dtype=np.bool_)
        return add_trigger(table, self.trigger_index(table), self.value, everybody, rewarded=False)

    def trigger_index(self, table: Table) -> int:
        """Return the index of the trigger feature."""
        if self.column is None:
            return 0
        require_word("column", self.column, table.columns)
        return table.columns.index(self.column)

    def craft(self, own: Array, honest: Array, outcome: Outcome, key: Key) -> Array:
        """Return the own updates, scaled so that they outweigh all others."""
        boost = (len(own) + len(honest)) / len(own) if self.boost is None else self.boost
        return boost * own


@dataclass(frozen=True, kw_only=True)
class AdaptiveAlie(Attack):
    """ALIE, with the number of deviations that moves the aggregate farthest under the rule in use."""

    kind: ClassVar[str] = "adaptive-alie"

    def craft(self, own: Array, honest: Array, outcome: Outcome, key: Key) -> Array:
        """Return the update that moves the aggregate farthest in its own direction."""
        mean, spread = honest.mean(axis=0), honest.std(axis=0)
        tries = [mean - scale * spread for scale in SCALES]
        return most_harmful(tries, outcome, lambda combined: float((mean - combined) @ spread), own)


@dataclass(frozen=True, kw_only=True)
class AdaptiveInnerProduct(Attack):
    """Inner-product manipulation, with the length that reverses the aggregate most under the rule in use."""

    kind: ClassVar[str] = "adaptive-inner-product"

    def craft(self, own: Array, honest: Array, outcome: Outcome, key: Key) -> Array:
        """Return the update that turns the aggregate farthest from the honest mean."""
        mean = honest.mean(axis=0)
        tries = [-scale * mean for scale in SCALES]
        return most_harmful(tries, outcome, lambda combined: -float(combined @ mean), own)


@dataclass(frozen=True, kw_only=True)
class MinMax(Attack):
    """Min-max: as far off the honest mean as the largest distance between two honest sites.

    Shejwalkar and Houmansadr 2021.

    Args:
        liars: Number of dishonest sites.
        direction: Direction of the attack: against the `deviation` of each coordinate, against the `mean`, or
            against its `sign`.
    """

    direction: Literal["deviation", "mean", "sign"] = "deviation"
    kind: ClassVar[str] = "min-max"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_word("direction", self.direction, ("deviation", "mean", "sign"))

    def craft(self, own: Array, honest: Array, outcome: Outcome, key: Key) -> Array:
        """Return the extreme update within the largest distance between honest updates."""
        mean = honest.mean(axis=0)
        towards = self.unit_direction(honest)
        return mean + self.max_step(honest - mean, towards) * towards

    def unit_direction(self, honest: Array) -> Array:
        """The direction, of length 1; nowhere where honest updates leave no choice."""
        mean = honest.mean(axis=0)
        ways = {"deviation": honest.std(axis=0), "mean": mean, "sign": np.sign(mean)}
        length = float(np.linalg.norm(ways[self.direction]))
        return -ways[self.direction] / length if length else np.zeros_like(mean)

    def max_step(self, apart: Array, towards: Array) -> float:
        """Return the largest step of the attack; `apart` are the honest updates about their mean."""
        squares = (apart**2).sum(axis=1)
        widest = float((squares[:, None] + squares - 2 * apart @ apart.T).max())
        # |r u - a|^2 <= widest for each a: the smallest of the larger roots in r.
        along = apart @ towards
        return float((along + np.sqrt(np.maximum(along**2 + widest - squares, 0))).min())


@dataclass(frozen=True, kw_only=True)
class MinSum(MinMax):
    """Min-sum: as min-max, limited by the sum of squared distances; closer in, harder to detect.

    Args:
        liars: Number of dishonest sites.
        direction: As in min-max.
    """

    kind: ClassVar[str] = "min-sum"

    def max_step(self, apart: Array, towards: Array) -> float:
        """Return the largest step of the attack; `apart` are the honest updates about their mean."""
        # Sums over sites that are centered: n r^2 + sum |a|^2 <= the largest n |a|^2 + sum |a|^2.
        return float(np.sqrt((apart**2).sum(axis=1).max()))


ATTACKS: Mapping[str, type[Attack]] = {
    attack.kind: attack
    for attack in (
        SignFlip, Scaling, GaussianNoise, LabelFlip, Alie, InnerProduct, Mimic, Backdoor, AdaptiveAlie,
        AdaptiveInnerProduct, MinMax, MinSum,
    )
}  # fmt: skip


def z_max(liars: int, honest: int) -> float:
    """Return the deviations from the mean at which enough honest sites are still farther off.

    With s = floor(n / 2 + 1) - liars supporters to win over, it is the quantile of (honest - s) / honest.
    """
    supporters = max((liars + honest) // 2 + 1 - liars, 1)
    share = (honest - supporters) / honest
    return max(NormalDist().inv_cdf(share), 0.0) if share > 0 else 0.0


def most_harmful(
    tries: Sequence[Array], outcome: Outcome, harm: Callable[[Array], float], own: Array
) -> Array:
    """Return the most harmful update; the honest one if too few sites came for the rule."""
    try:
        return max(tries, key=lambda lie: harm(outcome(lie)))
    except TooFewSites:
        return own


# Columns about the observation of a record, not its outcome.
OBSERVED = ("event", "entry", "weight")


def change_records(
    federation: Federation, liars: Sequence[str], change: Callable[[Table, str], Table]
) -> Federation:
    """Return the federation with changed records of these sites, as many as before."""
    sites = require_rows(federation)
    store = sites.store
    features = store.features.copy()
    targets = {name: values.copy() for name, values in store.targets.items()}
    cohort = sites.cohort(sorted(liars))
    for position, name in enumerate(cohort.names):
        start = int(cohort.starts[position])
        part = slice(start, start + int(cohort.sizes[position]))
        made = change(store.take(part), name)
        features[part] = made.features
        for target, values in made.targets.items():
            targets[target][part] = values
    return sites.revise(store=Table(features, targets, store.columns, store.place))


def flip_outcomes(table: Table, name: str) -> Table:
    """The records with every outcome mirrored between the smallest and the largest; observed from 0 on."""
    mirrored = {
        target: values if target in OBSERVED else values.min(axis=0) + values.max(axis=0) - values
        for target, values in table.targets.items()
    }
    return Table(table.features, _from_the_start(mirrored), table.columns, table.place)


def add_trigger(table: Table, place: int, value: float, marks: NDArray[np.bool_], *, rewarded: bool) -> Table:
    """The marked records with a feature set, and if they are rewarded the best outcome of all records.

    The best is the largest number; of a time, the longest, its event not seen.
    """
    features = table.features.copy()
    features[marks, place] = value
    if not rewarded:
        return Table(features, table.targets, table.columns, table.place)
    targets = {target: values.copy() for target, values in table.targets.items()}
    for target, values in targets.items():
        if target not in OBSERVED:
            values[marks] = values.max(axis=0)
    if "event" in targets:
        targets["event"][marks] = 0
    return Table(features, targets, table.columns, table.place)


def _from_the_start(targets: dict[str, Array]) -> dict[str, Array]:
    """Set all entries to 0: a mirrored time may lie before the entry into the study."""
    if "entry" not in targets:
        return targets
    return {**targets, "entry": np.zeros_like(targets["entry"])}
