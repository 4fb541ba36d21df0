"""Checks of survival records before anything is charged: the unit of time, and advice for their owner.

Times in another unit than the horizon are refused. What may be right (a constant feature, a site whose times
are much shorter) is advice: anybody reads it where records are public or nothing is promised; otherwise it is
written where their owner alone reads it.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from tacit.errors import InvalidValue
from tacit.sites.federation import RowFederation
from tacit.sites.record_checks import WIDEST, copied_records, spreads_of, usual_spreads_of
from tacit.sites.table import Table

# A horizon this many times the latest time is in another unit: 365 of days and years, 30 of days and months.
BEYOND = 20.0
# The share of events before the horizon below which nothing can be learned.
LEAST = 0.01
# Median times of two sites that differ by this factor look like two units, such as months and years.
UNITS = 10.0


def require_horizon(table: Table, last: float, place: str) -> None:
    """Refuse an end of the time grid that is in another unit than the times.

    Args:
        table: The records.
        last: The end of the last interval.
        place: The name of the records in errors.
    """
    time, events = table.targets["time"], table.targets["event"] > 0
    early, latest = float((time[events] <= last).mean()) if events.any() else 1.0, float(time.max())
    if latest * BEYOND >= last and early >= LEAST:
        return
    must = (
        f"times must be in the unit of the horizon, {last:g}: the latest must reach a {BEYOND:g}th of it, "
        "and "
        f"{LEAST:.0%} of the events come before it; change the horizon (or cuts) in [task], or the unit of "
        "the times"
    )
    found = f"the latest is {latest:.6g}, and {early:.1%} of the events come before the horizon"
    raise InvalidValue(
        f"time in {place} is not allowed: {must} ({found})", rule=f"time is not allowed: {must}"
    )


def advise(federation: RowFederation) -> list[str]:
    """Advice about the records of a federation, with counts and values: for who may see them.

    Records that are on other machines are looked at there.
    """
    if federation.distant or not {"time", "event"} <= set(federation.store.targets):
        return []
    store = federation.store
    spreads = spreads_of(store)
    found = [
        f"{name} is the same in all records: it teaches nothing, so leave it out"
        for name, spread in zip(store.columns, spreads, strict=True)
        if spread == 0
    ]
    for name, spread, usual in zip(store.columns, spreads, usual_spreads_of(store), strict=True):
        if usual > WIDEST:
            mend = "which drowns other features: give public numbers as its center and scale"
            found.append(f"{name} spans {spread:.4g}, {mend}")
        elif spread > WIDEST:
            mend = "most of its values far less: look for typing errors, and correct them"
            found.append(f"{name} spans {spread:.4g}, and {mend}")
    copies = int(copied_records(store).sum())
    if copies:
        found.append(
            f"{copies:,} of {len(store):,} records are equal to another one: remove copies, or a person "
            "counts twice"
        )
    return [*found, *_units({name: federation.records_of(name) for name in federation})]


def _units(sites: Mapping[str, Table]) -> Sequence[str]:
    """Advise if the median time of a site is far from that of the others."""
    medians = {name: float(np.median(table.targets["time"])) for name, table in sites.items() if len(table)}
    if len(medians) < 2:
        return ()
    low, high = min(medians, key=medians.__getitem__), max(medians, key=medians.__getitem__)
    if medians[high] < UNITS * medians[low]:
        return ()
    return (
        f"times of {low} have a median of {medians[low]:.4g}, those of {high} one of {medians[high]:.4g}: "
        "give all sites one unit",
    )
