"""What a promise needs to know about the work that it is made for; all of it public."""

from collections.abc import Collection, Mapping, Sequence
from typing import ClassVar, Literal, Protocol, TypeVar

from tacit.errors import Refused, require

Made = TypeVar("Made")
Norm = Literal["l2", "l1"]
# Whose presence is protected.
Unit = Literal["record", "site"]
# What becomes of an aggregator when every site adds noise: it stands, it loses more than the mean does, or it
# follows liars.
Fragility = Literal["stands", "suffers", "breaks"]
# Groups of sites whose sums are all that an aggregator needs.
SiteGroups = tuple[tuple[str, ...], ...]
# What the sites of a federation hold: records of their own, columns of the same records, or worlds.
Layout = Literal["rows", "columns", "environments"]
# How a loss that couples records is cut into risk groups, and what a draw then selects.
Groups = Literal["none", "records", "groups"]


class TaskSpec(Protocol):
    """What a promise needs to know about a task; all of it public. Its `kind` is its name."""

    kind: ClassVar[str]

    @property
    def separable(self) -> bool:
        """Whether the loss is a sum over records."""
        ...

    @property
    def groups(self) -> Groups:
        """Whether the loss is formed inside risk groups, and whether records or whole groups are drawn."""
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
        """The public number that sums of drawn records are divided by, if the task says one."""
        ...

    @property
    def shuffled(self) -> bool:
        """Whether records are dealt out in shuffled batches instead of drawn independently."""
        ...


class QuerySpec(Protocol):
    """What a promise needs to know about a question that is asked once, before or after all rounds.

    Args:
        kind: Its name.
        share: What part of a promise to records it may cost.
    """

    kind: ClassVar[str]
    share: ClassVar[float]

    def record_bound(self, norm: Norm) -> float:
        """The bound of what one record contributes to the sums that answer it; longer ones are clipped."""
        ...


class AggregatorSpec(Protocol):
    """What a promise needs to know about an aggregator. Its `kind` is its name."""

    kind: ClassVar[str]

    @property
    def weights(self) -> str | Mapping[str, float]:
        """How the sites are weighed: `uniform`, or a public weight for each; record counts are private."""
        ...

    @property
    def under_noise(self) -> Fragility:
        """What becomes of it when every site adds noise to its update."""
        ...

    def sensitivity(self, clip: float, sites: float, norm: Norm = "l2") -> float | None:
        """How far one update, clipped in this norm, moves the aggregate of so many sites.

        A site that is not there counts as an update of zeros. None if there is no bound.
        """
        ...

    def parties(self, names: Sequence[str], number: int) -> SiteGroups | None:
        """Groups of sites whose sums are all it needs in a round; None if it looks at every single update."""
        ...


def name_of(aggregation: AggregatorSpec) -> str:
    """What to call an aggregator; a user's own has the name of its class."""
    said = getattr(aggregation, "name", None) or getattr(aggregation, "kind", None)
    return said or type(aggregation).__name__


def fragility(aggregation: AggregatorSpec) -> Fragility:
    """What becomes of it under noise; a user's own need not say."""
    return getattr(aggregation, "under_noise", "stands")


def parties_of(aggregation: AggregatorSpec, names: Sequence[str]) -> SiteGroups | None:
    """Whose sums are all it needs; a user's own may look at every update."""
    return aggregation.parties(names, 0) if hasattr(aggregation, "parties") else None


def sensitivity_of(aggregation: AggregatorSpec, clip: float, sites: float, norm: Norm) -> float | None:
    """How far one clipped update moves its result; a user's own may speak of the L2 norm alone."""
    if norm == "l2":
        return aggregation.sensitivity(clip, sites)
    return aggregation.sensitivity(clip, sites, norm) if hasattr(aggregation, "under_noise") else None


def require_public(weights: str | Mapping[str, float], federation: Collection[str]) -> None:
    """Refuse weights that would have to be taken from records."""
    if isinstance(weights, Mapping):
        # The denominator is the weight of everybody, so everybody must have one, and nobody else.
        require(set(weights) == set(federation), "weights", sorted(weights), "one for each site")
    elif weights not in ("uniform", "public"):
        raise Refused(
            f'weights = "{weights}" cannot be kept private: the number of records at a site is a secret. '
            'Use weights = "uniform", or give public weights.'
        )


def layout_of(work: object) -> Layout:
    """What sites hold that work is for: records of their own, or columns of the same ones."""
    return getattr(work, "layout", "rows")


def exempt(work: object) -> tuple[str, ...]:
    """What of a record the work lets out as it is, in words; nothing unless it says so."""
    return getattr(work, "exempt", ())


def with_privacy(work: Made, privacy: object) -> Made:
    """The work as a promise wants it, if it asks; public choices alone."""
    wanted = getattr(work, "with_privacy", None)
    return work if wanted is None else wanted(privacy)
