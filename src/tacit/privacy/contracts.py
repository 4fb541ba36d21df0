"""Protocols of a task, a query and an aggregator: the public facts that a promise needs to know."""

from collections.abc import Collection, Mapping, Sequence
from typing import ClassVar, Literal, Protocol

from tacit.errors import Refused, require
from tacit.runtime.contracts import Layout as Layout

Norm = Literal["l2", "l1"]
# Effect of noise at every site on an aggregator: it stands, it loses more than the mean does, or it follows
# attackers.
Fragility = Literal["stands", "suffers", "breaks"]
# Groups of sites whose sums suffice for an aggregator.
SiteGroups = tuple[tuple[str, ...], ...]
# Risk groups of a loss that couples records, and the unit of sampling.
Groups = Literal["none", "records", "groups"]
# Kind of a share of a promise: of its epsilon, or of its one Gaussian noise, which composes exactly: with
# noise multiplier z, a release of share f has multiplier z / sqrt(f).
ShareOf = Literal["epsilon", "noise"]


class TrainingSpec(Protocol):
    """Public facts about local training. `kind` is its name."""

    kind: ClassVar[str]

    @property
    def separable(self) -> bool:
        """Return True if the loss is a sum over records."""
        ...

    @property
    def groups(self) -> Groups:
        """Risk groups of the loss: none, or groups of which records or whole groups are sampled."""
        ...

    @property
    def steps(self) -> int:
        """Local steps in a round."""
        ...

    @property
    def sample(self) -> float:
        """Probability with which each record, or group, joins a step."""
        ...

    @property
    def batch(self) -> int | None:
        """Public number that sums of sampled records are divided by, if the task sets one."""
        ...

    @property
    def shuffled(self) -> bool:
        """Return True if records come in shuffled batches instead of being sampled independently."""
        ...


class TaskSpec(TrainingSpec, Protocol):
    """Public facts about a task that a promise needs; `tacit.learning.task.TaskBase` has defaults for them.

    Args:
        layout: Layout of the sites' data that it works on.
        own_bound: Bound of a record's contribution that holds by construction; None if it has none.
    """

    layout: ClassVar[Layout]
    own_bound: ClassVar[float | None]

    @property
    def cells_per_record(self) -> int | None:
        """The most cells that one record moves by 1 each, if it sends counts of records; otherwise None."""
        ...

    @property
    def exempt(self) -> tuple[str, ...]:
        """Return the descriptions of a record's parts that it leaves unprotected."""
        ...

    def round_shares(self, rounds: int) -> tuple[float, ...] | None:
        """Return the share of each round in the noise of a promise; None if all rounds are alike."""
        ...

    @property
    def width(self) -> int | None:
        """Number of coordinates of an update; None if it is not known before the data are."""
        ...

    @property
    def lengths(self) -> Mapping[str, float] | None:
        """Clip radius of each protected column; None where the policy sets one bound for all."""
        ...


class QuerySpec(Protocol):
    """Public facts about an initial or final query.

    Args:
        kind: Its name.
        share: Share of a record-level promise that it may cost.
        share_of: What that is a share of.
        layout: Layout of the sites' data that it asks about.
    """

    kind: ClassVar[str]
    share: ClassVar[float]
    share_of: ClassVar[ShareOf]
    layout: ClassVar[Layout]

    @property
    def cells_per_record(self) -> int | None:
        """The most cells that one record moves by 1 each, if the answer counts records; otherwise None."""
        ...

    @property
    def columns(self) -> Mapping[str, str]:
        """Return the columns that it asks about, each with its holder; empty for rows."""
        ...

    def record_bound(self, norm: Norm) -> float:
        """Return the bound of one record's contribution to the answer; longer ones are clipped."""
        ...


class AggregatorSpec(Protocol):
    """Public facts about an aggregator that a promise needs.

    Args:
        kind: Its kind in an experiment file.
    """

    kind: ClassVar[str]

    @property
    def name(self) -> str:
        """Name in sentences."""
        ...

    @property
    def weights(self) -> str | Mapping[str, float]:
        """Weights of the sites: `uniform`, or a public weight for each; record counts are private."""
        ...

    @property
    def under_noise(self) -> Fragility:
        """Fragility of the aggregator when every site adds noise to its update."""
        ...

    def sensitivity(self, clip: float, sites: float, norm: Norm = "l2") -> float | None:
        """Sensitivity of the aggregate to one update that is clipped in this norm; None if there is no bound.

        An absent site counts as an update of zeros.
        """
        ...

    def parties(self, names: Sequence[str], number: int) -> SiteGroups | None:
        """Return the groups of sites whose sums suffice in a round; None if the rule needs every update."""
        ...


def require_public(weights: str | Mapping[str, float], federation: Collection[str]) -> None:
    """Refuse weights that would have to be taken from records."""
    if isinstance(weights, Mapping):
        # The denominator is the weight of all sites, so each site needs a weight, and no other name may have
        # one.
        require(set(weights) == set(federation), "weights", sorted(weights), "one for each site")
    elif weights not in ("uniform", "public"):
        raise Refused(
            f'weights = "{weights}" cannot be kept private: the number of records of a site is private. Use '
            'weights = "uniform", or give public weights.'
        )
