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


def require_survival(table: Table, place: str) -> None:
    """Refuse a table whose times are negative, whose events are not 0 or 1, or that has no event at all."""
    for name in ("time", "event"):
        if name not in table.targets:
            raise InvalidValue(f"{name} is missing in {place}: survival data have a time and an event")
    time, event = table.targets["time"], table.targets["event"]
    if bool((time <= 0).any()):
        raise InvalidValue(f"time in {place} is not allowed: {int((time <= 0).sum())} are not above 0")
    if not bool(np.isin(event, (0, 1)).all()):
        raise InvalidValue(f"event in {place} is not allowed: it must be 1 (happened) or 0 (censored)")
    if not bool(event.any()):
        raise InvalidValue(
            f"event in {place} is not allowed: all {len(event)} records are censored; nothing can be learnt "
            "about when events happen. Leave the site out, or merge it with another"
        )


def require_sites(federation: Federation) -> None:
    """Refuse a federation in which some site cannot take part; the message names it."""
    for name, site in federation.items():
        require_survival(site.table, f"site {name}")
    if federation.held_out is not None:
        require_survival(federation.held_out, "the held-out records")


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
    if not isinstance(cuts, int):
        ends = [float(cut) for cut in cuts]
        rising = bool(ends) and all(low < high for low, high in pairwise([0.0, *ends]))
        require(rising and bool(np.isfinite(ends).all()), "cuts", cuts, "finite, above 0 and ascending")
        return ends
    require_count("cuts", cuts)
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
    levels = np.linspace(0, 0.99, cuts + 1)[1:]
    return [float(end) for end in np.unique(np.quantile(happened, levels))]
