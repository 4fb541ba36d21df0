"""Data poisoning: attacks on the attackers' own records; see `tacit.aggregation.attacks.model`."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from tacit.runtime.arrays import Array
from tacit.sites.federation import Federation, require_rows
from tacit.sites.table import Table

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
