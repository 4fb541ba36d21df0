"""Readable view of a ledger: every release, and the running epsilon.

Reading changes nothing and needs no data; a copy of the file is enough.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, groupby
from pathlib import Path
from typing import Any

from tacit.errors import LedgerError
from tacit.privacy.accounting.release import Release, in_any_round
from tacit.privacy.ledger.chain import LedgerState
from tacit.privacy.ledger.plans import Basis
from tacit.privacy.ledger.store import Ledger
from tacit.privacy.statement import facts, released_in_words

Row = dict[str, Any]
# Number of running prices, spread evenly.
RUNNING_PRICES = 30
# Keys in which equal releases at other sites, or in other rounds, differ.
OWN = (
    "number", "at", "hash", "ticket", "plan", "owed", "subject", "party", "kind", "purpose", "running_epsilon"
)  # fmt: skip
# Keys that merged releases share and a line shows.
TOLD = ("law", "scale", "sensitivity", "relation", "rate", "count", "unit")
OTHER = "it is not the ledger of this run, or an older state of it"
# More lines than these are read by programs.
MOST_LINES = 400


def account(path: Path, delta: float | None = None, *, also: Sequence[str] = ()) -> dict[str, Any]:
    """Return a ledger row by row, with the running price.

    Args:
        path: The file.
        delta: Delta of the prices; by default that of its budgets.
        also: Subjects to be priced even if nothing was charged to them by name.
    """
    with Ledger(path, mode="read") as ledger:
        return account_of(ledger, delta, also)


def account_of(ledger: Ledger, delta: float | None = None, also: Sequence[str] = ()) -> dict[str, Any]:
    """Return the rows of an open ledger, with the running price."""
    return _account(ledger, ledger.entries(), delta, also)


def render_html(ledger: Ledger) -> str | None:
    """Render a ledger for a notebook; None where it is closed or damaged."""
    try:
        delta, budgets = ledger.usual_delta(), ledger.budgets()
        spent = f"epsilon {ledger.spent(delta):.4g} at delta {delta:g}"
        plans, released = ledger.count_plans(), released_in_words(ledger.releases())
        head = ledger.head
    except LedgerError:
        return None
    if not budgets and plans > 1:
        spent += ", as a budget fixed in advance"
    allowed = [
        (f"Budget of {name}", f"epsilon {b.epsilon:g} at delta {b.delta:g}") for name, b in budgets.items()
    ]
    told = [("Released", words) for words in released] or [("Released", "nothing")]
    return facts(f"Ledger {ledger.path or 'in memory'}", [("Spent", spent), *allowed, *told, ("Head", head)])


def _account(
    ledger: Ledger, entries: Sequence[Row], delta: float | None, also: Sequence[str] = ()
) -> dict[str, Any]:
    budgets = {name: vars(budget) for name, budget in ledger.budgets().items()}
    rows = [entry for entry in entries if entry["kind"] == "release"]
    # Computed outside the lock: the file is read, and charges do not wait for it.
    prices = price_rows(entries, ledger.usual_delta() if delta is None else delta, also)
    return {"path": str(ledger.path), **prices, "budgets": budgets, "head": ledger.head, "releases": rows}


def price_rows(entries: Sequence[Row], delta: float, also: Sequence[str] = ()) -> dict[str, Any]:
    """Return the prices of a ledger's rows, in total and by subject, and add running epsilons to some rows.

    `epsilon` is the valid bound: by composition for one plan, by a filter for several. Beside it
    are both numbers for all of it: as one fixed plan, and as plans of which each may have followed from the
    last.
    """
    rows = [entry for entry in entries if entry["kind"] == "release"]
    ends = [0, *accumulate(len(group) for group in _group(rows))]
    some = {ends[round(place * (len(ends) - 1) / RUNNING_PRICES)] for place in range(RUNNING_PRICES + 1)}
    account, count = LedgerState(), 0

    def spent(basis: Basis = "valid") -> float:
        return max(account.spent(delta, name, basis=basis) for name in (None, *also))

    for entry in entries:
        account.append_entry(entry)
        if entry["kind"] == "release":
            count += 1
            entry["running_epsilon"] = spent() if count in some else None
    return {
        "events": len(rows),
        "valid": True,
        "epsilon": spent(),
        "delta": delta,
        "subjects": {
            name: account.pricing(name).epsilon(delta)
            for name in dict.fromkeys([*account.plans.charged, *(also if rows else ())])
        },
        "plans": len(account.plans.names()),
        "epsilon_as_planned": spent("planned"),
        "epsilon_as_lifetime": spent("lifetime"),
    }


def ledger_summary(
    path: Path | None, releases: Iterable[Release], delta: float | None, head: str | None = None
) -> dict[str, Any]:
    """Summarize the ledger of a run for its report: validity, and its releases, equal ones in one line.

    When each was charged is left out: where it is secret who was drawn, the time between two would tell.

    Args:
        path: The file; without one, nothing but the releases is known.
        releases: Charged releases, where there is no file.
        delta: The probability at which it is priced; None in an open run, which was charged for nothing.
        head: The hash of a row that must be in it, if that is known.
    """
    if path is None:
        # All charges of one run are one plan.
        same = {"kind": "release", "at": "", "ticket": None, "plan": "run"}
        rows = [{"number": place, **same, **row.as_dict()} for place, row in enumerate(releases, start=1)]
        whole: dict[str, Any] = {"valid": None, "problems": [], "head": None, "budgets": {}}
        return {**price_rows(rows, delta or 0.0), **whole, "releases": lines(rows)}
    try:
        with Ledger(path, mode="read") as ledger:
            entries = ledger.entries()
            found = _wrong(ledger, entries, delta, head)
            if not found:
                read = _account(ledger, entries, delta)
                return {**read, "problems": found, "releases": lines(read["releases"])}
    except LedgerError as error:
        found = [str(error)]
    nothing: dict[str, Any] = {
        **dict.fromkeys(("epsilon", "epsilon_as_planned", "epsilon_as_lifetime")),
        "events": 0, "plans": 0, "subjects": {}, "budgets": {}, "releases": [],
    }  # fmt: skip
    return {"path": str(path), "valid": False, "problems": found, "delta": delta, "head": None, **nothing}


def problems(path: Path, head: str | None = None) -> list[str]:
    """Return the problems of a run's ledger; empty if it verifies and holds the row that the run knows.

    Args:
        path: The file.
        head: The hash of a row that must be in it, if that is known.
    """
    try:
        with Ledger(path, mode="read") as ledger:
            return _wrong(ledger, ledger.entries(), None, head)
    except LedgerError as error:
        return [str(error)]


def _wrong(ledger: Ledger, entries: Sequence[Row], delta: float | None, head: str | None) -> list[str]:
    lost = head is not None and all(entry["hash"] != head for entry in entries)
    return [*ledger.verify(delta).problems, *([OTHER] if lost else [])]


def lines(rows: Sequence[Row]) -> list[Row]:
    """Merge consecutive releases that differ only in their subject into one line each.

    If that leaves too many lines, equal rounds are merged as well.
    """
    return [_line(group) for group in _group(rows)]


def _group(rows: Sequence[Row]) -> list[list[Row]]:
    found = [list(group) for _, group in groupby(rows, key=lambda row: _alike(row, row["purpose"]))]
    if len(found) > MOST_LINES:
        whole = groupby(rows, key=lambda row: _alike(row, in_any_round(row["purpose"])))
        found = [list(group) for _, group in whole]
    return found


def _alike(row: Mapping[str, Any], purpose: str) -> tuple[Any, ...]:
    return (purpose, *(value for name, value in row.items() if name not in OWN))


def _line(rows: Sequence[Row]) -> Row:
    """Merge equal rows into one: first and last number, subjects, and the price after the last."""
    first, last = rows[0], rows[-1]
    subjects = list(dict.fromkeys(row["subject"] for row in rows))
    purposes = list(dict.fromkeys(row["purpose"] for row in rows))
    known = [row["running_epsilon"] for row in rows if row["running_epsilon"] is not None]
    return {
        **{name: first[name] for name in TOLD},
        "first": first["number"],
        "last": last["number"],
        "subject": subjects[0] if len(subjects) == 1 else f"{len(subjects)} subjects",
        "subjects": subjects,
        "purpose": purposes[0] if len(purposes) == 1 else f"{purposes[0]} to {purposes[-1]}",
        "running_epsilon": known[-1] if known else None,
    }
