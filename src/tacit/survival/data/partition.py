"""From records to a federation: a cause is chosen, a share held out, the rest dealt out or kept by site."""

from collections.abc import Iterable, Mapping
from typing import Any, Literal

import numpy as np

from tacit.errors import InvalidValue, require
from tacit.runtime.keys import Key
from tacit.sites.encoding import Encoding
from tacit.sites.federation import FEWEST_RECORDS, RowFederation
from tacit.sites.splits import ByColumn, SplitByCount, hold_out
from tacit.sites.table import Table, concatenate

Split = SplitByCount | ByColumn
Cause = int | Literal["any"]
TARGETS = ("time", "event")


def horizontal_federation(
    whole: Table,
    split: SplitByCount,
    key: Key,
    *,
    share: float,
    test: Table | None = None,
    public: bool = False,
    reference: Table | None = None,
    origin: Mapping[str, Any],
    encoding: Encoding | None = None,
) -> RowFederation:
    """One table dealt out, a share of it held out first."""
    trained, apart = hold_out(whole, share, key)
    training = whole.take(trained)
    tables = {name: training.take(rows, f"site {name}") for name, rows in split(training, key).items()}
    return RowFederation(
        tables,
        held_out=test if len(apart) == 0 else whole.take(apart, "the held-out records"),
        held_out_public=public or len(apart) == 0,
        public=public,
        records=len(training) if public else None,
        reference=reference,
        origin=origin,
        encoding=encoding,
    )


def natural_federation(
    parts: Mapping[str, Table],
    key: Key,
    *,
    share: float,
    test: Table | None = None,
    public: bool = False,
    origin: Mapping[str, Any],
    encoding: Encoding,
) -> RowFederation:
    """Build a federation of the real sites, and hold out a share of each, with the sites' names."""
    apart = {name: hold_out(part, share, key / name) for name, part in parts.items()}
    tables = {name: part.take(apart[name][0]) for name, part in parts.items()}
    held = [part.take(apart[name][1]) for name, part in parts.items() if len(apart[name][1])]
    return RowFederation(
        tables,
        held_out=concatenate(held, "the held-out records") if held else test,
        held_out_public=public or not held,
        public=public,
        records=sum(len(table) for table in tables.values()) if public else None,
        origin=origin,
        encoding=encoding,
        held_out_sites=[name for name in parts for _ in apart[name][1]] if held else None,
    )


def select_cause(table: Table, cause: Cause | None) -> Table:
    """The table with events of this cause alone; all others count as censored.

    Args:
        table: Records whose events are coded by their cause.
        cause: The cause; "any" makes all causes one, None leaves the codes unchanged.
    """
    if cause is None:
        return table
    event = table.targets["event"]
    happened = event > 0 if cause == "any" else event == cause
    targets = {**table.targets, "event": happened.astype(np.float64)}
    return Table(table.features, targets, table.columns, table.place)


def require_cause(cause: object) -> None:
    """Refuse an invalid cause."""
    whole = isinstance(cause, int) and not isinstance(cause, bool) and cause >= 1
    require(cause in (None, "any") or whole, "cause", cause, 'a whole number of at least 1, or "any"')


def require_cause_events(cause: Cause | None, tables: Iterable[Table], place: str) -> None:
    """Refuse a cause that no record has, and any cause where the codes are those of censored and event."""
    codes = {int(code) for table in tables for code in np.unique(table.targets["event"])}
    seen = {code for code in codes if code > 0}
    if cause == "any" and codes == {1, 2}:
        told = (
            'cause = "any" is not allowed where events are coded 1 and 2 and none 0: everybody would have an '
            "event. "
            "Where 1 means censored and 2 the event, say cause = 2; where nobody is censored, code all "
            "events 1"
        )
        raise InvalidValue(told, rule=told)
    if isinstance(cause, int) and cause not in seen:
        there = ", ".join(str(code) for code in sorted(seen)) or "none at all"
        raise InvalidValue(
            f"cause = {cause} is not allowed: the causes in {place} are {there}",
            rule=f"cause = {cause} is not allowed: some record must have an event of that cause",
        )


def require_share(given: float) -> None:
    """Refuse an invalid held-out share."""
    require(0 <= given < 1, "held_out", given, "at least 0 and below 1")


def can_participate(table: Table) -> bool:
    """Return True if a site of these records can take part."""
    return len(table) >= FEWEST_RECORDS and bool(table.targets["event"].any())
