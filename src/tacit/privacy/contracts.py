"""Protocols of a task, a query and an aggregator: the public facts that a promise needs to know."""

from collections.abc import Collection, Mapping, Sequence
from typing import ClassVar, Literal, Protocol, TypeVar

from tacit.errors import Refused, require

Made = TypeVar("Made")
Norm = Literal["l2", "l1"]
# The unit whose presence is protected.
Unit = Literal["record", "site"]
# Effect of noise at every site on an aggregator: it stands, it loses more than the mean does, or it follows
# attackers.
Fragility = Literal["stands", "suffers", "breaks"]
# Groups of sites whose sums suffice for an aggregator.
SiteGroups = tuple[tuple[str, ...], ...]
# Data layout of a federation: records of each site's own, columns of the same records, or environments.
Layout = Literal["rows", "columns", "environments"]
# Risk groups of a loss that couples records, and the unit of sampling.
Groups = Literal["none", "records", "groups"]


class TaskSpec(Protocol):
    """Public facts about a task that a promise needs. `kind` is its name."""

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


class QuerySpec(Protocol):
    """Public facts about a query that is asked once, before or after all rounds.

    Args:
        kind: Its name.
        share: Share of a record-level promise that it may cost.
    """

    kind: ClassVar[str]
    share: ClassVar[float]

    def record_bound(self, norm: Norm) -> float:
        """Return the bound of one record's contribution to the answer; longer ones are clipped."""
        ...


class AggregatorSpec(Protocol):
    """Public facts about an aggregator that a promise needs. `kind` is its name."""

    kind: ClassVar[str]

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


def name_of(aggregation: AggregatorSpec) -> str:
    """Return the name of an aggregator; a custom one has the name of its class."""
    said = getattr(aggregation, "name", None) or getattr(aggregation, "kind", None)
    return said or type(aggregation).__name__


def fragility(aggregation: AggregatorSpec) -> Fragility:
    """Return the fragility of an aggregator under noise; a custom one may leave it out."""
    return getattr(aggregation, "under_noise", "stands")


def parties_of(aggregation: AggregatorSpec, names: Sequence[str]) -> SiteGroups | None:
    """Return the groups whose sums suffice for an aggregator; None if it needs every update."""
    return aggregation.parties(names, 0) if hasattr(aggregation, "parties") else None


def sensitivity_of(aggregation: AggregatorSpec, clip: float, sites: float, norm: Norm) -> float | None:
    """Return the sensitivity of an aggregator to one clipped update; custom ones may know L2 alone."""
    if norm == "l2":
        return aggregation.sensitivity(clip, sites)
    return aggregation.sensitivity(clip, sites, norm) if hasattr(aggregation, "under_noise") else None


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


def layout_of(work: object) -> Layout:
    """Return the layout of the sites' data that a task works on: rows, columns or environments."""
    return getattr(work, "layout", "rows")


def exempt(work: object) -> tuple[str, ...]:
    """Return the descriptions of a record's parts that a task leaves unprotected; empty by default."""
    return getattr(work, "exempt", ())


def with_privacy(work: Made, privacy: object) -> Made:
    """Return the task under a promise, if it depends on that; from public choices alone."""
    wanted = getattr(work, "with_privacy", None)
    return work if wanted is None else wanted(privacy)
