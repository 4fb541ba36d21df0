"""Where the coordinates of each curve are: at which party, and in which columns of all of them together."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tacit.errors import TooFewSites

Array = NDArray[np.float64]
# How many rows are multiplied at once: each number is then rounded so often at the most.
BLOCK = 256


@dataclass(frozen=True, kw_only=True, eq=False)
class Blocks:
    """The curves of all parties side by side: predictors in an order of their own, the response last.

    Args:
        parties: The curves of each party, in the order in which it sends them.
        order: All predictors, whoever holds them.
        response: What is predicted.
        width: How many coordinates a predictor has.
        width_y: How many the response has.
        records: How many subjects there are; public.
    """

    parties: Mapping[str, Sequence[str]]
    order: tuple[str, ...]
    response: str
    width: int
    width_y: int
    records: int

    @cached_property
    def widths(self) -> dict[str, int]:
        """How many coordinates each curve has, in the order of the columns."""
        return {**dict.fromkeys(self.order, self.width), self.response: self.width_y}

    @cached_property
    def places(self) -> dict[str, slice]:
        """The columns of each curve."""
        ends = np.cumsum(list(self.widths.values())).tolist()
        starts = [0, *ends[:-1]]
        return {
            name: slice(*span) for name, span in zip(self.widths, zip(starts, ends, strict=True), strict=True)
        }

    @property
    def predictors(self) -> tuple[slice, ...]:
        """The columns of each predictor."""
        return tuple(self.places[name] for name in self.order)

    @property
    def columns(self) -> int:
        """How many columns there are in all."""
        return len(self.order) * self.width + self.width_y

    def column_count(self, party: str) -> int:
        """How many columns a party sends."""
        return sum(self.widths[name] for name in self.parties[party])

    def assemble(self, rows: Mapping[str, Array]) -> Array:
        """What parties sent (numbers), as the columns of all curves (records, columns).

        Raises:
            TooFewSites: Somebody sent nothing that can be used.
        """
        missing = [party for party in self.parties if party not in rows]
        if missing:
            raise TooFewSites(
                f"{', '.join(missing)} sent nothing that can be used, and every party is needed"
            )
        whole = np.empty((self.records, self.columns))
        for party, names in self.parties.items():
            many = self.column_count(party)
            own, start = rows[party][: self.records * many].reshape(self.records, many), 0
            for name in names:
                whole[:, self.places[name]] = own[:, start : start + self.widths[name]]
                start += self.widths[name]
        return whole

    def by_party(self) -> NDArray[np.intp]:
        """Where each column is if the columns of parties stand side by side in the order of the parties."""
        listed = [
            np.arange(self.columns)[self.places[name]] for names in self.parties.values() for name in names
        ]
        return np.argsort(np.concatenate(listed))


def products(rows: Array) -> Array:
    """The upper triangle, row by row, of W'W for W = [1, rows].

    Guarantee:
        Products are added up in blocks of `BLOCK` rows, and blocks with compensation (Neumaier 1974): each
        number is off by at most 260 * 2^-53 times the sum of the sizes of what is added up.
    """
    whole = np.hstack([np.ones((len(rows), 1)), rows])
    total, lost = np.zeros((2, whole.shape[1], whole.shape[1]))
    for start in range(0, len(whole), BLOCK):
        part = whole[start : start + BLOCK]
        added = part.T @ part
        new = total + added
        larger = np.abs(total) >= np.abs(added)
        lost += np.where(larger, (total - new) + added, (added - new) + total)
        total = new
    return (total + lost)[np.triu_indices(whole.shape[1])]
