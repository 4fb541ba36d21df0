"""An aggregator of your own: a dataclass with one method, from one vector per site to one vector.

Run it: `python examples/own_aggregator.py`. In a file it is `[aggregation] kind = "own_aggregator:Midmean"`.
"""

from dataclasses import dataclass

import numpy as np

import tacit
from tacit.aggregation.attacks import SignFlip
from tacit.learning.task import Updates
from tacit.runtime.arrays import Array
from tacit.sites.splits import Dirichlet
from tacit.survival import LogisticHazard
from tacit.survival.data.sources import Simulated


@dataclass(frozen=True, kw_only=True)
class Midmean:
    """The mean of the middle half of the sites, coordinate by coordinate."""

    share: float = 0.5

    def __call__(self, updates: Updates) -> Array:
        """Sort each coordinate of the updates (sites, coordinates), drop both ends, average the rest."""
        drop = round(len(updates.names) * (1 - self.share) / 2)
        ranked = np.sort(updates.matrix, axis=0)
        return ranked[drop : len(ranked) - drop].mean(axis=0)


def main() -> None:
    """Train with two dishonest sites of nine, and compare with the mean."""
    federation = Simulated(records=3000, features=20).open(Dirichlet(count=9), seed=7)
    task = LogisticHazard(hidden=[], steps=2, sample=0.5, lr=1.0)
    attack = SignFlip(liars=2, scale=10.0)
    for rule in (tacit.Mean(), Midmean()):
        run = tacit.fit(task, federation, aggregation=rule, attack=attack, rounds=10, seed=7)
        print(f"{type(rule).__name__:8} C-index {run.scores['c_index']:.3f}")


if __name__ == "__main__":
    main()
