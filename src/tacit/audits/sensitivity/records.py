"""Tables as rows of numbers, and rows of numbers as tables."""

from dataclasses import dataclass

import numpy as np

from tacit.audits.sensitivity.neighbours import Array, Domain
from tacit.sites.table import Table

# A target of no more values than this has no others.
FEW_VALUES = 10
# The least that a target may be which is always above 0.
LEAST = 1e-300


@dataclass(frozen=True, eq=False)
class Form:
    """What records of a kind consist of, by an example of them."""

    example: Table

    def table(self, rows: Array) -> Table:
        """Rows of numbers as the records that they are."""
        start = len(self.example.columns)
        targets: dict[str, Array] = {}
        for name, values in self.example.targets.items():
            numbers = int(np.prod(values.shape[1:], dtype=np.int64))
            targets[name] = rows[:, start : start + numbers].reshape(len(rows), *values.shape[1:])
            start += numbers
        return Table(rows[:, : len(self.example.columns)], targets, self.example.columns)

    def domain(self) -> Domain:
        """What records may be: any features, and targets of the sign, or the few values, that they have."""
        flat = [values.reshape(len(values), -1) for values in self.example.targets.values()]
        pool, width = np.concatenate([self.example.features, *flat], axis=1), len(self.example.columns)
        least = pool.min(axis=0)
        low = np.where(least > 0, LEAST, np.where(least == 0, 0.0, -np.inf))
        low[:width] = -np.inf
        several = np.array([len(np.unique(values)) for values in pool.T])
        kept = several <= min(FEW_VALUES, len(pool) / 2)
        kept[:width] = False
        return Domain(pool, low, np.full_like(low, np.inf), kept)
