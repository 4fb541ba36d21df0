"""Validation of times and events, and the interval grid of discrete-time models."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from tacit.errors import MOST_CUTS, InvalidValue, require, require_count, require_positive
from tacit.privacy.policy import Provenance
from tacit.runtime.arrays import Array
from tacit.sites.federation import RowFederation
from tacit.sites.table import Table

# Share of the events that the grid covers; the very last ones are far apart.
LAST_LEVEL = 0.99
# Advice about codes of events.
CODES = (
    'of several causes choose one, as in [data] cause = 1, or "any"; where 1 means censored and 2 the event, '
    "as in some programs, set cause = 2"
)


def require_values(
    time: Array,
    event: Array,
    place: str,
    causes: int | None = 1,
    *,
    entry: Array | None = None,
    weight: Array | None = None,
) -> None:
    """Refuse times that are not above 0, and events that are neither 0 nor one of the causes.

    Args:
        time: End of each record.
        event: Event at the end of each record.
        place: Owner of the records.
        causes: Number of causes; None for any number.
        entry: From when on each record is at risk, if that is not 0.
        weight: Weight of each record, if that is not 1.
    """
    _require_all(time > 0, "time", place, "above 0")
    if causes is None:
        whole = (event >= 0) & (event == np.floor(event))
        _require_all(whole, "event", place, "0 (censored), or the cause as a whole number from 1 on")
    elif not bool(np.isin(event, range(causes + 1)).all()):
        allowed = "1 (happened)" if causes == 1 else f"a cause from 1 to {causes}"
        mend = f"; {CODES}" if bool((event > causes).any()) else ""
        must = f"it must be {allowed} or 0 (censored)"
        raise InvalidValue(
            f"event in {place} is not allowed: {must}{mend}",
            rule=f"event is not allowed: {must}; {CODES}",
            rows=np.flatnonzero(~np.isin(event, range(causes + 1))) + 1,
        )
    if entry is not None:
        _require_all(entry >= 0, "entry", place, "at least 0")
        _require_all(entry < time, "entry", place, "before the time")
    if weight is not None:
        _require_all(weight > 0, "weight", place, "above 0")


def _require_all(fine: NDArray[np.bool_], name: str, place: str, allowed: str) -> None:
    wrong = int((~fine).sum())
    if wrong:
        given, mend = f"{wrong} of {len(fine)} records are not {allowed}", "correct them, or remove them"
        raise InvalidValue(
            f"{name} in {place} is not allowed: {given}; {mend}",
            rule=f"{name} is not allowed: it must be {allowed} in every record; {mend}",
            rows=np.flatnonzero(~fine) + 1,
        )


def require_outcomes(table: Table, place: str) -> None:
    """Refuse a table whose targets are not named time and event."""
    missing = [name for name in ("time", "event") if name not in table.targets]
    if not missing:
        return
    others = [name for name in table.targets if name not in ("time", "event", "entry", "weight")]
    mend = "give them as targets"
    if len(others) == len(missing):
        names = ", ".join(f'"{old}": "{new}"' for old, new in zip(others, missing, strict=True))
        mend = f"rename the columns, as by frame.rename(columns={{{names}}}), and name them so in targets"
    told = f"{missing[0]} is missing in {place}: the targets of survival data are time and event; {mend}"
    raise InvalidValue(told, rule=told)


def require_survival(table: Table, place: str, mend: str, causes: int | None = 1) -> None:
    """Refuse a table without valid times and events, or without any event; `mend` is the advice."""
    targets = table.targets
    require_outcomes(table, place)
    entry, weight = targets.get("entry"), targets.get("weight")
    require_values(targets["time"], targets["event"], place, causes, entry=entry, weight=weight)
    if not bool(targets["event"].any()):
        raise InvalidValue(
            f"event in {place} is not allowed: all {len(table)} records are censored, so the data carry no "
            f"information about event times; {mend}",
            rule=f"event in {place} is not allowed: one record at least must have an event; {mend}",
        )


def require_sites(federation: RowFederation, causes: int | None = 1) -> None:
    """Refuse a federation in which some site cannot take part; the message names it.

    Not every site needs every cause, but one site must have seen it. Remote sites look at their own records.
    """
    for name, site in () if federation.distant else federation.items():
        require_survival(site.table, f"site {name}", "leave the site out, or merge it with another", causes)
    if isinstance(federation.held_out, Table):
        require_survival(federation.held_out, "the held-out records", "hold out more, or none", causes)
    if federation.distant:
        return
    seen = set(np.unique(federation.store.targets["event"]).astype(int).tolist())
    absent = [cause for cause in range(1, (causes or 0) + 1) if cause not in seen]
    if absent:
        mend = "number the causes from 1 on without gaps, or choose one, as in [data] cause = 1"
        raise InvalidValue(
            f"causes = {causes} is not allowed: no site has an event of cause {absent[0]}; {mend}",
            rule=f"causes = {causes} is not allowed: each must have an event at some site; {mend}",
        )


def require_cuts(cuts: int | Sequence[float]) -> None:
    """Refuse a number of intervals below 1, and ends that do not ascend from 0."""
    if isinstance(cuts, int):
        require_count("cuts", cuts, MOST_CUTS)
        return
    require(len(cuts) <= MOST_CUTS, "cuts", f"{len(cuts):,} of them", f"at most {MOST_CUTS:,}")
    ends = [float(cut) for cut in cuts]
    rising = bool(ends) and all(low < high < np.inf for low, high in pairwise([0.0, *ends]))
    require(rising, "cuts", list(cuts), "finite, above 0 and ascending")


def time_grid(
    cuts: int | Sequence[float], horizon: float | None, federation: RowFederation, provenance: Provenance
) -> list[float] | None:
    """Return the ends of the intervals, ascending; the first begins at 0. None if they have to be bought.

    Args:
        cuts: The ends themselves, or how many there shall be.
        horizon: The last end, public; the intervals are then equally long.
        federation: Federation whose public reference records give quantiles, where neither is given.
        provenance: Whom to ask before looking at the sites' own records.
    """
    require_cuts(cuts)
    if not isinstance(cuts, int):
        return [float(cut) for cut in cuts]
    if horizon is not None:
        require_positive("horizon", horizon)
        return [float(end) for end in np.linspace(0, horizon, cuts + 1)[1:]]
    if federation.distant:
        # Public records are at the coordinator, and all sites need the same grid: a query finds it.
        return None
    if federation.reference is not None:
        provenance.declare_public(["the time grid, from public reference records"])
        return _quantiles(federation.reference, cuts)
    if not provenance.allowed:
        return None
    provenance.look("the time grid, as quantiles of all event times", instead="buy it")
    return _quantiles(federation.store, cuts)


def _quantiles(table: Table, cuts: int) -> list[float]:
    happened = table.targets["time"][table.targets["event"] > 0]
    require(len(happened) > 0, "cuts", cuts, "the ends themselves: there is no event to place them by")
    levels = np.linspace(0, LAST_LEVEL, cuts + 1)[1:]
    return [float(end) for end in np.unique(np.quantile(happened, levels))]
