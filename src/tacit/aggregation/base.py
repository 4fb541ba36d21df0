"""Contract of an aggregator, and the base of robust rules: the number of dishonest sites they tolerate.

A dishonest (Byzantine) site, or liar, sends arbitrary updates. A rule that should tolerate f of them is
refused if there are too few other sites to outvote them; f is never lowered during a run.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, Self, cast, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from tacit.aggregation.kernels import sum_rows
from tacit.errors import InvalidValue, TacitError, TooFewSites, require
from tacit.learning.query import Updates
from tacit.privacy.contracts import AggregatorSpec, Fragility, Norm, SiteGroups
from tacit.privacy.policy import Open, Privacy
from tacit.runtime.arrays import Array, as_array, as_numpy
from tacit.runtime.contracts import Adapted, Shaped, name_of
from tacit.runtime.jit import contiguous

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


# Real numbers of either precision, one row for each site.
Rows = NDArray[np.floating]

# Numbers in memory at a time: two megabytes, and enough columns for matrix products.
BLOCK = 1 << 18
COLUMNS = 1 << 11


class Aggregator(AggregatorSpec, Protocol):
    """Aggregator: combines one vector per site into one vector."""

    kind: ClassVar[str]

    def resolve(self, sites: int, privacy: Privacy | Open) -> "Aggregator":
        """Resolve the aggregator for a federation and a privacy policy, for a whole run.

        Raises:
            TooFewSites: It cannot serve so few sites.
        """
        ...

    def tolerates(self, sites: int) -> int:
        """Return the number f of dishonest sites that it tolerates among `sites` sites.

        Raises:
            TooFewSites: Too few sites for the configured f.
        """
        ...

    def __call__(self, updates: "Updates | ArrayLike", *, sites: float | None = None) -> Array:
        """Combine the updates (sites, coordinates); see `Mean` for the public denominator `sites`."""
        ...

    def shares(self, updates: "Updates | ArrayLike") -> Array | None:
        """Return the share of each update in the result, as an explanation; None where coordinates differ."""
        ...

    def combine_groups(self, means: Updates) -> Array:
        """Combine the means of its `parties`, where the server sees only their sums."""
        ...


class AggregatorBase(ABC):
    """Base of aggregators, with a default for everything but how they combine."""

    kind: ClassVar[str] = "own"

    @property
    def name(self) -> str:
        """Name in sentences: the kind, or the name of a class without one."""
        return type(self).__name__ if self.kind == "own" else self.kind

    @property
    def weights(self) -> str | Mapping[str, float]:
        """Return uniform weights."""
        return "uniform"

    @property
    def under_noise(self) -> Fragility:
        """Return `stands`: noise averages out."""
        return "stands"

    def resolve(self, sites: int, privacy: Privacy | Open) -> "Aggregator":
        """Return this aggregator."""
        return self

    def tolerates(self, sites: int) -> int:
        """Return 0: a single dishonest site can move the result anywhere."""
        return 0

    def sensitivity(self, clip: float, sites: float, norm: Norm = "l2") -> float | None:
        """Return None: no bound is known."""
        return None

    def parties(self, names: Sequence[str], number: int) -> SiteGroups | None:
        """Return None: every single update is needed."""
        return None

    def shares(self, updates: "Updates | ArrayLike") -> Array | None:
        """Return None: there are no shares, or every coordinate has its own."""
        return None

    @abstractmethod
    def __call__(self, updates: "Updates | ArrayLike", *, sites: float | None = None) -> Array:
        """Combine the updates (sites, coordinates)."""

    def combine_groups(self, means: Updates) -> Array:
        """Combine the means of groups like updates."""
        return self(means)


@dataclass(frozen=True, kw_only=True)
class Rule(AggregatorBase):
    """Base of the robust rules.

    Args:
        f: Number of dishonest sites to tolerate; by default the largest below a third of the sites.
    """

    f: int | None = None
    kind: ClassVar[str]

    def __post_init__(self) -> None:
        if isinstance(self.f, np.integer):
            object.__setattr__(self, "f", int(self.f))
        require_liars(self.f)

    @classmethod
    def min_sites(cls, f: int) -> int:
        """Return the fewest sites among which f dishonest ones can be tolerated."""
        return 2 * f + 1

    @classmethod
    def default_f(cls, sites: int) -> int:
        """Return the default f for `sites` sites: the largest below a third that the rule supports."""
        return max((f for f in range((sites + 2) // 3) if cls.min_sites(f) <= sites), default=0)

    def tolerates(self, sites: int) -> int:
        """Return the number f of dishonest sites that it tolerates among `sites` sites."""
        f = self.default_f(sites) if self.f is None else self.f
        if sites < self.min_sites(f):
            raise TooFewSites(
                f"f = {f} is not allowed with {sites} sites: {self.kind} needs at least {self.min_sites(f)} "
                "to tolerate that number of dishonest ones"
            )
        return f

    def resolve(self, sites: int, privacy: Privacy | Open) -> Self:
        """Return the rule with f resolved for a federation of `sites` sites."""
        return replace(self, f=self.tolerates(sites))


def require_liars(f: object) -> None:
    """Refuse a number of dishonest sites that is none."""
    whole = isinstance(f, int) and not isinstance(f, bool) and f >= 0
    require(f is None or whole, "f", f, "a whole number of at least 0, or left out")


@runtime_checkable
class Weighing(Protocol):
    """A custom rule that gives its sites public weights."""

    weights: str | Mapping[str, float]


@runtime_checkable
class Bounded(Protocol):
    """A custom rule that knows how far one update moves its result, in the L2 norm."""

    def sensitivity(self, clip: float, sites: float) -> float | None:
        """Sensitivity of the result to one update that is clipped."""
        ...


@runtime_checkable
class Resolvable(Protocol):
    """A custom aggregator that can be resolved for a federation."""

    def resolve(self, sites: int, privacy: Privacy | Open) -> Any:  # noqa: ANN401
        """Resolve the aggregator for a federation and a privacy policy."""
        ...


@dataclass(frozen=True)
class CustomAggregator(AggregatorBase):
    """A custom aggregator, which only has to combine updates.

    Args:
        combine: From the updates (sites, coordinates), and the public denominator where there is one, to one
            vector; it may have a `sensitivity(clip, sites)` in the L2 norm.
    """

    combine: Callable[..., object]

    @property
    def name(self) -> str:
        """Name given by its author."""
        return name_of(self.combine)

    @property
    def weights(self) -> str | Mapping[str, float]:
        """Return its weights; uniform by default."""
        rule: object = self.combine
        return rule.weights if isinstance(rule, Weighing) else "uniform"

    def __call__(self, updates: "Updates | ArrayLike", *, sites: float | None = None) -> Array:
        """Call the custom rule and check its result.

        Raises:
            InvalidValue: It fails, or what it returns is not one vector.
        """
        try:
            combined = self.combine(updates) if sites is None else self.combine(updates, sites=sites)
        except TacitError:
            raise
        except Exception as error:
            # It is the user's: whatever it raises is theirs to mend.
            raise InvalidValue(f"aggregation {self.name} failed: {type(error).__name__}: {error}") from error
        width = rows_of(updates)[0].shape[1]
        found = tuple(combined.shape) if isinstance(combined, Shaped) else ()
        require(found == (width,), f"aggregation {self.name}", f"shape {found}", f"one vector of {width}")
        return as_array(cast("ArrayLike", combined))

    def sensitivity(self, clip: float, sites: float, norm: Norm = "l2") -> float | None:
        """Return the sensitivity that it declares in the L2 norm; None in others."""
        rule: object = self.combine
        return rule.sensitivity(clip, sites) if norm == "l2" and isinstance(rule, Bounded) else None


class _AdaptedAggregator(Adapted, AggregatorBase):
    """An aggregator of a user's own that can be resolved and does not inherit `AggregatorBase`."""

    def __call__(self, updates: "Updates | ArrayLike", *, sites: float | None = None) -> Array:
        """Combine the updates (sites, coordinates)."""
        return self.own(updates) if sites is None else self.own(updates, sites=sites)


def as_aggregator(aggregation: object) -> Aggregator:
    """Return an aggregator: ours unchanged, a user's own adapted once."""
    if isinstance(aggregation, AggregatorBase):
        return aggregation
    if isinstance(aggregation, Resolvable):
        return _AdaptedAggregator(aggregation)
    require(callable(aggregation), "aggregation", aggregation, "callable with the updates of a round")
    return CustomAggregator(cast("Callable[..., object]", aggregation))


def user_choice(aggregation: Aggregator) -> object | None:
    """Return the user's choice: an aggregator of ours or a custom one; None where the task brings its own."""
    if isinstance(aggregation, AggregatorBase) and aggregation.kind == "join":
        return None
    if isinstance(aggregation, _AdaptedAggregator):
        return aggregation.own
    return aggregation.combine if isinstance(aggregation, CustomAggregator) else aggregation


def rows_of(updates: "Updates | ArrayLike") -> tuple[Rows, NDArray[np.intp]]:
    """The updates as an array of reals, one row per site, and which of the given rows each is.

    Rows are sorted by the names of the sites, so that sums do not depend on who answered first. Nothing is
    copied that is in order already.
    """
    if not isinstance(updates, Updates):
        matrix = _real(updates)
        return matrix, np.arange(len(matrix))
    order = np.argsort(np.array(updates.names, dtype=np.str_), kind="stable")
    matrix = _real(updates.matrix)
    in_order = bool((order == np.arange(len(order))).all())
    return matrix if in_order else matrix[order], order


def pad_rows(rows: Rows, sites: float | None) -> Rows:
    """Pad the rows with zeros, one row for each expected site that is absent.

    Where the server adds noise, a site that is not there counts as one that sends nothing: then one site more
    or less changes a single row, whatever the rule.
    """
    missing = 0 if sites is None else round(sites) - len(rows)
    if missing <= 0:
        return rows
    return np.concatenate([rows, np.zeros((missing, rows.shape[1]), dtype=rows.dtype)])


def _real(matrix: "ArrayLike") -> Rows:
    values = as_numpy(matrix)
    kept: Rows = values if values.dtype.name in ("float32", "float64") else values.astype(np.float64)
    require(kept.ndim == 2, "updates", f"shape {kept.shape}", "one row for each site (sites, coordinates)")
    return kept


Where = Literal["none", "site", "server", "secure"]


def noise_of(privacy: Privacy | Open) -> Where:
    """Return the party that adds noise to whole updates, or to record sums."""
    return "none" if isinstance(privacy, Open) else privacy.noise


def weighted_sum(rows: Rows, weights: Array, over: float = 1.0) -> Array:
    """The sum of the rows, each times its weight, over a number (coordinates), a new array."""
    counted, total = np.flatnonzero(weights), np.empty(rows.shape[1])
    kept = weights[counted]
    if len(counted) and (kept == kept[0]).all():
        # Without a product for each number.
        sum_rows(contiguous(rows), counted, kept[0], over, total)
        return total
    for part, block in double_blocks(rows):
        total[part] = weights @ block
    return total if over == 1 else np.divide(total, over, out=total)


def double_blocks(rows: Rows, about: int | None = None) -> Iterator[tuple[slice, Array]]:
    """Yield the columns in blocks, in double precision, less one of the rows on request.

    A block is gone when the next one comes.
    """
    # One space for all: new pages would cost more than the numbers that are written to them.
    space = np.empty(0)
    for part in blocks(rows):
        block = rows[:, part]
        if about is None and rows.dtype == np.float64:
            yield part, block.astype(np.float64, copy=False)
            continue
        space = space if space.size else np.empty(block.shape)
        room = space[:, : block.shape[1]]
        np.copyto(room, block)
        if about is not None:
            room -= room[about].copy()
        yield part, room


def blocks(rows: Rows) -> Iterator[slice]:
    """The columns, some at a time."""
    width = max(COLUMNS, BLOCK // max(len(rows), 1))
    return (slice(start, start + width) for start in range(0, rows.shape[1], width))
