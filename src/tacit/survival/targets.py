"""Times and events: what makes them valid, and the grid of intervals that discrete-time models see."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from tacit.errors import InvalidValue, require, require_count, require_positive
from tacit.privacy.provenance import Provenance
from tacit.sites.site import Federation
from tacit.sites.tables import Table

Array = NDArray[np.float64]


def require_values(time: Array, event: Array, place: str) -> None:
    """Refuse times that are not above 0, and events that are neither 0 nor 1."""
    early = int((time <= 0).sum())
    if early:
        raise InvalidValue(f"time in {place} is not allowed: {early} of {len(time)} records are not above 0")
    if not bool(np.isin(event, (0, 1)).all()):
        raise InvalidValue(f"event in {place} is not allowed: it must be 1 (happened) or 0 (censored)")


def require_survival(table: Table, place: str, mend: str) -> None:
    """Refuse a table without valid times and events, or without any event; `mend` says what to do then."""
    for name in ("time", "event"):
        if name not in table.targets:
            raise InvalidValue(f"{name} is missing in {place}: survival data have a time and an event")
    require_values(table.targets["time"], table.targets["event"], place)
    if not bool(table.targets["event"].any()):
        raise InvalidValue(
            f"event in {place} is not allowed: all {len(table)} records are censored, so nothing can be "
            f"learnt about when events happen; {mend}"
        )


def require_sites(federation: Federation) -> None:
    """Refuse a federation in which some site cannot take part; the message names it."""
    for name, site in federation.items():
        require_survival(site.table, f"site {name}", "leave the site out, or merge it with another")
    if federation.held_out is not None:
        require_survival(federation.held_out, "the held-out records", "hold out more, or none")


def require_cuts(cuts: int | Sequence[float]) -> None:
    """Refuse a number of intervals below 1, and ends that do not ascend from 0."""
    if isinstance(cuts, int):
        require_count("cuts", cuts)
        return
    ends = [float(cut) for cut in cuts]
    rising = bool(ends) and all(low < high < np.inf for low, high in pairwise([0.0, *ends]))
    require(rising, "cuts", list(cuts), "finite, above 0 and ascending")


def grid(
    cuts: int | Sequence[float], horizon: float | None, federation: Federation, provenance: Provenance
) -> list[float]:
    """The ends of the intervals, ascending; the first begins at 0.

    Args:
        cuts: The ends themselves, or how many there shall be.
        horizon: The last end, public; the intervals are then equally long.
        federation: Whose public reference records give quantiles, where neither is said.
        provenance: Whom to ask before looking at the sites' own records.
    """
    require_cuts(cuts)
    if not isinstance(cuts, int):
        return [float(cut) for cut in cuts]
    if horizon is not None:
        require_positive("horizon", horizon)
        return [float(end) for end in np.linspace(0, horizon, cuts + 1)[1:]]
    if federation.reference is not None:
        provenance.agreed(["the time grid, from public reference records"])
        return _quantiles(federation.reference, cuts)
    provenance.look(
        "the time grid, as quantiles of all event times",
        instead="give a public `horizon`, or the `cuts` themselves, in [task]",
    )
    return _quantiles(federation.store, cuts)


def _quantiles(table: Table, cuts: int) -> list[float]:
    happened = table.targets["time"][table.targets["event"] == 1]
    require(len(happened) > 0, "cuts", cuts, "the ends themselves: no event is there to place them by")
    levels = np.linspace(0, 0.99, cuts + 1)[1:]
    return [float(end) for end in np.unique(np.quantile(happened, levels))]
