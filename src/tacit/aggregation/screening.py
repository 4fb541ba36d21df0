"""Screening of replies: malformed updates are rejected before aggregation.

A malformed reply cannot end a run. It is counted, named with its reason, and left out of this round; the site
is asked again in the next.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from tacit.errors import require, require_count, require_positive
from tacit.learning.query import Updates
from tacit.learning.record import Fault, Reason
from tacit.privacy.contracts import Norm
from tacit.runtime.arrays import TensorLike, as_numpy

# Honest sites differ in length, but not by this factor from the one in the middle.
ABSURD = 1e3
# Longer vectors have no squares in double precision.
LONGEST = 1e150
# Numbers that updates may be of.
REALS = ("float32", "float64")


@dataclass(frozen=True, eq=False, kw_only=True)
class Reply:
    """Reply of a site, not yet checked.

    Args:
        site: Its claimed sender.
        round: Its claimed round.
        ticket: The name of the question that it answers.
        vector: The update, if it is one.
    """

    site: str
    round: int
    ticket: str
    vector: object


@dataclass(frozen=True, kw_only=True)
class Screen:
    """Checks of the updates of a round.

    Args:
        names: The sites that were asked.
        width: Number of coordinates of an update.
        round: The number of the round.
        ticket: The name of the question; no two rounds of any run have the same.
        limit: Bound of an honest update, and its norm, where that is public. Otherwise an update a thousand
            times as long as the median one is rejected.
    """

    names: tuple[str, ...]
    width: int
    round: int
    ticket: str
    limit: tuple[float, Norm] | None = None

    def __post_init__(self) -> None:
        require_count("width", self.width)
        require(len(set(self.names)) == len(self.names), "names", self.names, "each site once")
        if self.limit is not None:
            require_positive("limit", self.limit[0])

    def __call__(self, replies: Iterable[Reply]) -> tuple[Updates, tuple[Fault, ...]]:
        """Return the valid updates, in the order of the sites, and the faults of others."""
        faults: list[Fault] = []
        kept: dict[str, NDArray[np.float64]] = {}
        for reply in replies:
            found = self._fault(reply, kept)
            if found is None:
                kept[reply.site] = np.array(_plain(reply.vector), dtype=np.float64)
            else:
                faults.append(found)
        long = self._too_long(kept)
        faults += [Fault(site=name, reason="too-long", detail=detail) for name, detail in long.items()]
        return self._updates({name: row for name, row in kept.items() if name not in long}), tuple(faults)

    def rows(self, updates: Updates) -> tuple[Updates, tuple[Fault, ...]]:
        """Screen updates that are a matrix already."""
        matrix = updates.matrix
        if updates.names == self.names and self._sound(matrix):
            return self._updates(dict(zip(self.names, matrix, strict=True))), ()
        pairs = zip(updates.names, matrix, strict=True)
        return self(Reply(site=name, round=self.round, ticket=self.ticket, vector=row) for name, row in pairs)

    def _sound(self, matrix: NDArray[Any]) -> bool:
        """Return True if all rows are valid, by one fast test; in doubt, each is checked by itself."""
        fits = matrix.dtype.name in REALS and matrix.shape == (len(self.names), self.width)
        if not fits or len(matrix) == 0:
            return False
        rows = matrix.astype(np.float64, copy=False)
        bound, norm = (None, "l2") if self.limit is None else self.limit
        # Rows that are not finite have no length below any limit.
        with np.errstate(over="ignore", invalid="ignore"):
            lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows)) if norm == "l2" else np.abs(rows).sum(axis=1)
        middle = float(np.sort(lengths)[(len(lengths) - 1) // 2])
        limit = min(ABSURD * middle, LONGEST) if bound is None else bound
        # Squares of shorter vectors may vanish.
        return middle > 1 / LONGEST and bool((lengths < limit * (1 - 1e-9)).all())

    def _fault(self, reply: Reply, kept: Mapping[str, NDArray[np.float64]]) -> Fault | None:
        """Return the fault of a reply, by itself and beside earlier ones; None if it is valid."""
        if reply.site not in self.names:
            return _fault_of(reply, "unknown", "it was not asked in this round")
        if reply.round < self.round:
            return _fault_of(reply, "late", f"an answer to round {reply.round} came in round {self.round}")
        if reply.round != self.round or reply.ticket != self.ticket:
            return _fault_of(reply, "replay", "it answers another question than the one of this round")
        vector = _plain(reply.vector)
        if isinstance(vector, str):
            return _fault_of(reply, "schema", f"{vector} came, a vector of reals was expected")
        if vector.shape != (self.width,):
            return _fault_of(reply, "schema", f"shape {vector.shape} came, ({self.width},) was expected")
        if not np.isfinite(vector).all():
            bad = int((~np.isfinite(vector)).sum())
            return _fault_of(reply, "not-finite", f"{bad} of {self.width} numbers are not finite")
        if reply.site in kept:
            same = np.array_equal(kept[reply.site], vector)
            words = ("duplicate", "the same update came twice") if same else TWO_FACES
            return _fault_of(reply, *cast("tuple[Reason, str]", words))
        return None

    def _too_long(self, kept: Mapping[str, NDArray[np.float64]]) -> dict[str, str]:
        """Return the updates that are longer than any honest one can be, and by how much."""
        bound, norm = (None, "l2") if self.limit is None else self.limit
        lengths = {name: _length(row, norm) for name, row in kept.items()}
        # Of two in the middle the shorter: half the sites cannot raise the limit.
        middle = sorted(lengths.values())[(len(lengths) - 1) // 2] if lengths else 0.0
        usual = ABSURD * middle if middle > 0 else LONGEST
        # A clipped update may be longer by a rounding.
        limit = min(usual, LONGEST) if bound is None else bound * (1 + 1e-9)
        return {
            name: f"its length {length:.3g} is above {limit:.3g}, which no honest update reaches"
            for name, length in lengths.items()
            if length > limit
        }

    def _updates(self, kept: Mapping[str, NDArray[np.float64]]) -> Updates:
        names = tuple(name for name in self.names if name in kept)
        rows = [kept[name] for name in names]
        matrix = np.stack(rows, dtype=np.float64) if rows else np.zeros((0, self.width))
        return Updates(names, matrix, round=self.round)


TWO_FACES: tuple[Reason, str] = ("equivocation", "two different updates came; the first one counts")


def anonymize(faults: Iterable[Fault]) -> tuple[Fault, ...]:
    """Remove the sites' names from faults, for rounds with secret participation."""
    return tuple(replace(fault, site="") for fault in faults)


def _fault_of(reply: Reply, reason: Reason, detail: str) -> Fault:
    return Fault(site=reply.site, reason=reason, detail=detail)


def _plain(vector: object) -> NDArray[np.floating] | str:
    """Return a vector of reals as an array, without copying; or, as a word, the type of anything else."""
    if isinstance(vector, TensorLike):
        try:
            vector = as_numpy(vector)
        except (TypeError, RuntimeError):
            # Tensors that are sparse, or of numbers that numpy does not know.
            return "a tensor that is not an array"
    if not isinstance(vector, np.ndarray):
        return type(vector).__name__
    array = cast("NDArray[Any]", vector)
    return array if array.dtype.name in REALS else f"an array of {array.dtype}"


def _length(row: NDArray[np.float64], norm: Norm) -> float:
    """Return the norm of a vector, also of one whose squares overflow."""
    largest = float(np.abs(row).max(initial=0.0))
    if largest in (0.0, np.inf):
        return largest
    return largest * float(np.linalg.norm(row / largest, ord=2 if norm == "l2" else 1))
