"""From records to a federation: a cause is chosen, a share held out, the rest dealt out or kept by site."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
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


@dataclass(frozen=True, eq=False, kw_only=True)
class PartitionOptions:
    """Options of a partition of records, beside the sites.

    Args:
        share: The share of records to hold out.
        test: Records to score on, if none are held out.
        public: True if the records are public.
        reference: Public records of the same kind, if there are any.
        origin: The tables of an experiment file that they come from.
        encoding: The encoding of the features.
    """

    share: float
    origin: Mapping[str, Any]
    test: Table | None = None
    public: bool = False
    reference: Table | None = None
    encoding: Encoding | None = None

    def build(self, tables: Mapping[str, Table], held: Table | None, **more: Any) -> RowFederation:
        """Build the federation of these sites, with the records that were held out."""
        records = sum(map(len, tables.values())) if self.public else None
        return RowFederation(
            tables, held_out=self.test if held is None else held, held_out_public=self.public or held is None,
            public=self.public, records=records, reference=self.reference, origin=self.origin,
            encoding=self.encoding, **more,
        )  # fmt: skip


def horizontal_federation(
    whole: Table, split: SplitByCount, key: Key, options: PartitionOptions
) -> RowFederation:
    """One table dealt out, a share of it held out first."""
    trained, apart = hold_out(whole, options.share, key)
    training = whole.take(trained)
    tables = {name: training.take(rows, f"site {name}") for name, rows in split(training, key).items()}
    return options.build(tables, whole.take(apart, "the held-out records") if len(apart) else None)


def natural_federation(parts: Mapping[str, Table], key: Key, options: PartitionOptions) -> RowFederation:
    """Build a federation of the real sites, and hold out a share of each, with the sites' names."""
    apart = {name: hold_out(part, options.share, key / name) for name, part in parts.items()}
    tables = {name: part.take(apart[name][0]) for name, part in parts.items()}
    held = [part.take(apart[name][1]) for name, part in parts.items() if len(apart[name][1])]
    names = [name for name in parts for _ in apart[name][1]] if held else None
    whole = concatenate(held, "the held-out records") if held else None
    return options.build(tables, whole, held_out_sites=names)


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
            'cause = "any" is not allowed where events are coded 1 and 2 and none 0: every record would have '
            "an event. Where 1 means censored and 2 the event, set cause = 2; if no record is censored, code "
            "all events 1"
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
