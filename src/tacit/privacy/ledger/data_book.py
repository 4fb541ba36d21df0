"""The book of the data: one lifetime ledger for all runs on the same people.

A run has a ledger of its own; people bear what all runs on their records cost together. Their book lies
beside the file that the records came from (`patients.csv.ledger`), and in the user's state directory, where
it is found again when the file is renamed, saved anew or extended, or when the records came as arrays. A run
charges the book for its whole plan before anything leaves, once, however often it is resumed.

People who are in two different files cannot be known. Records at remote sites are in the ledgers of those
sites, public records and rehearsals in none.
"""

import hashlib
import os
import secrets
from collections import Counter
from collections.abc import Generator, Iterable, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from tacit.errors import BudgetExhausted, LedgerUnusable
from tacit.privacy.accounting.release import Release, Unit, by_subject, from_dict, in_any_round
from tacit.privacy.ledger.chain import EVERYONE, RECORDS, Budget
from tacit.privacy.ledger.data_index import Entry, Index, Matches
from tacit.privacy.ledger.store import Ledger
from tacit.privacy.ledger.total import AllRuns
from tacit.runtime.fingerprints import People

SUFFIX = ".ledger"
SUBJECTS: dict[Unit, str] = {"record": RECORDS, "site": "sites"}
NEAR = (
    "some of these records are also in other data that were used under a promise: for people in both, the "
    "two totals add up"
)
# Separator between a run and its plan, or what it paid beyond its plan.
AFTER = ":"


@dataclass(frozen=True)
class Charge:
    """Releases paid under one ticket, and the delta that their plan states, where that was written down."""

    releases: list[Release]
    delta: float | None = None


# Charges by their tickets.
Charges = dict[str, Charge]


@dataclass(frozen=True)
class Receipt:
    """Receipt of a charge that covers several runs: the paying run, and its plan.

    `DataBook.charge_ahead` makes it; a run whose federation carries one looks for its charge in the book.
    """

    run: str
    plan: tuple[Release, ...]


def beside(file: Path) -> Path:
    """The ledger beside a file of data."""
    return file.with_name(file.name + SUFFIX)


def envelope(releases: Iterable[Release], name: str = "") -> list[Release]:
    """Return the releases that bound a plan's cost for any one person, or any one site.

    The book has one subject for all people of the data, because sites may be other ones in the next run, and
    a person may be at another site in the next version of the file.

    Args:
        releases: A plan, about the subjects of its run.
        name: Name of the run.

    Guarantee:
        For every subject of the plan and every kind of release, there are at least as many as concern that
        subject: whatever a person's site is, the plan costs that person at most what the envelope costs. What
        vertical parties release about the same people is added up.
    """
    rows, found = list(releases), list[Release]()
    for unit, subject in SUBJECTS.items():
        most: Counter[Release] = Counter()
        for group in by_subject(row for row in rows if row.unit == unit).values():
            own: Counter[Release] = Counter()
            for row in group:
                aim = in_any_round(row.purpose) or "rounds"
                purpose = f"{name}: {aim}" if name else aim
                own[replace(row, count=1, party="", subject=subject, purpose=purpose)] += row.count
            # The larger count of each kind.
            most |= own
        found += [replace(row, count=times) for row, times in most.items()]
    return found


def charge_plan(ledger: Ledger, releases: Sequence[Release], digest: str, delta: float | None = None) -> bool:
    """Charge a whole plan at once, under its digest, with the delta that it states."""
    return ledger.charge(releases, ticket=digest, plan=digest, delta=delta)


def owe_plan(ledger: Ledger, releases: Sequence[Release], digest: str, delta: float | None = None) -> bool:
    """Record a whole plan that was charged elsewhere, even beyond the budget."""
    return ledger.owe(releases, ticket=digest, plan=digest, delta=delta)


class DataBook:
    """The lifetime account of the people in one data set.

    All ledgers that are known to be about these people are brought together before one of them is charged,
    and all of them are charged: beside the files, and in the state directory.

    Args:
        people: Description of the people whose records they are.
        index: Index that recognizes data; by default that of this user.
    """

    def __init__(self, people: People, index: Index | None = None) -> None:
        self.people, self.index = people, index or Index()

    def check(self, plan: Iterable[Release]) -> None:
        """Raise `BudgetExhausted` if a plan would pass the lifetime budget; write nothing."""
        rows = envelope(plan)
        with ExitStack() as stack:
            for ledger in _open_readable(self._list_existing(self._find()), stack):
                with _name_lifetime(ledger.path), ledger.copy() as tried:
                    _bind_records(tried)
                    tried.check(rows)

    def charge(
        self,
        plan: Iterable[Release],
        *,
        run: str,
        name: str = "",
        part: str = "plan",
        ticket: str = "",
        delta: float | None = None,
    ) -> bool:
        """Pay for a plan before any of it leaves.

        Args:
            plan: Releases of the run, about its own subjects.
            run: Identifier of the run; a secret digest discloses nothing about it.
            name: Name of the run.
            part: Part of the run, where it pays more than once.
            ticket: Identifier of this charge among others of the run; by default from part and releases.
            delta: The delta that the run states, at which the book is priced where nobody names another.

        Returns:
            Whether anything was charged: False if this very plan of this run was paid before.

        Raises:
            BudgetExhausted: The lifetime budget would be exceeded; nothing was charged.

        Guarantee:
            When this returns, every book of these people is charged, on disk; when it raises
            `BudgetExhausted`, none is. After a crash in between, the same charge brings all of them together
            again, so no book stays behind what left.
        """
        rows = envelope(plan, name)
        if not rows:
            return False
        content = ticket or repr((part, rows))
        ticket = f"{run}{AFTER}{hashlib.sha256(content.encode()).hexdigest()[:32]}"
        with self._open() as (ledgers, entries):
            unpaid = [ledger for ledger in ledgers if ticket not in _read_charges(ledger)]
            for ledger in unpaid:
                with _name_lifetime(ledger.path):
                    ledger.check(rows)
            paid = [charge_plan(ledger, rows, ticket, delta) for ledger in unpaid]
            for entry in entries:
                self.index.mark(entry, ticket)
        return any(paid)

    def charge_ahead(
        self, plan: Sequence[Release], *, run: str, name: str = "", delta: float | None = None
    ) -> "Receipt":
        """Pay for a plan that several runs carry out, such as all candidates of a tuning."""
        _ = self.charge(plan, run=run, name=name, delta=delta)
        return Receipt(run, tuple(plan))

    def accept(self, receipt: object) -> "Receipt | None":
        """Return a receipt if a ledger of these people holds its charge; None for anything else."""
        if not isinstance(receipt, Receipt):
            return None
        return receipt if self.knows(receipt.run) else None

    def knows(self, run: str) -> bool:
        """Return True if a ledger of these people holds a charge of a run."""
        with ExitStack() as stack:
            return any(
                ticket.partition(AFTER)[0] == run
                for ledger in _open_readable(self._list_existing(self._find()), stack)
                for ticket in _read_charges(ledger)
            )

    def allow(self, epsilon: float, delta: float) -> None:
        """Set the lifetime budget of these people, which outranks that of every run."""
        budget = Budget(epsilon, delta)
        with self._open() as (ledgers, _):
            for ledger in ledgers:
                ledger.allow_lifetime(epsilon=budget.epsilon, delta=budget.delta)

    def total(self, delta: float, unit: Unit) -> AllRuns:
        """Price all runs on these people together."""
        found = self._find()
        notes = (NEAR,) if found.near else ()
        with ExitStack() as stack:
            ledgers = _open_readable(self._list_existing(found), stack)
            if not ledgers:
                return AllRuns(runs=0, epsilon=0.0, delta=delta, unit=unit, lifetime=None, notes=notes)
            union = stack.enter_context(_unite(ledgers))
            charged = _read_charges(union)
            epsilon = union.spent(delta, subject=SUBJECTS[unit])
            budgets = [ledger.budgets().get(EVERYONE) for ledger in ledgers]
        limits = [budget for budget in budgets if budget is not None]
        least = min(limits, key=lambda budget: budget.epsilon, default=None)
        return AllRuns(
            runs=len({ticket.partition(AFTER)[0] for ticket in charged}),
            epsilon=epsilon,
            delta=delta,
            unit=unit,
            lifetime=None if least is None else (least.epsilon, least.delta),
            notes=(*notes, *_note_other_units(charged, unit)),
        )

    def ledgers(self) -> list[Path]:
        """Return the ledgers of these people, largest first, and the one beside the file before others."""
        with ExitStack() as stack:
            found = _open_readable(self._list_existing(self._find()), stack)
            found.sort(key=lambda ledger: -len(_read_charges(ledger)))
            return [ledger.path for ledger in found if ledger.path is not None]

    def unite(self) -> Ledger | None:
        """Unite all ledgers of these people in memory; None where there is none."""
        with ExitStack() as stack:
            ledgers = _open_readable(self._list_existing(self._find()), stack)
            return _unite(ledgers) if ledgers else None

    def _find(self) -> Matches:
        return self.index.find(self.people)

    def _list_existing(self, found: Matches) -> list[Path]:
        """List the existing ledgers of these people.

        Raises:
            LedgerUnusable: The ledger of an entry is gone, and no other one holds its runs.
        """
        places = _list_beside(self.people.files)
        for entry in found.same:
            places += [entry.book, *_list_beside(entry.files)]
        there = _drop_duplicates([place for place in places if place.exists()])
        for entry in found.same:
            if not entry.book.exists():
                _require_copy(entry, there)
        return there

    @contextmanager
    def _open(self) -> Generator[tuple[list[Ledger], tuple[Entry, ...]]]:
        """Open all ledgers of these people, created if there is none, and unite them; and their entries."""
        with ExitStack() as stack:
            kept = self._keep(stack)
            places = self._list_existing(Matches(kept, ()))
            places += [place for place in (entry.book for entry in kept) if place not in places]
            ledgers = list[Ledger]()
            for place in _drop_duplicates(_list_beside(self.people.files)):
                # A folder that cannot be written leaves the state directory.
                with suppress(LedgerUnusable):
                    if not place.exists():
                        ledgers.append(stack.enter_context(Ledger(place)))
            ledgers += [stack.enter_context(Ledger(place)) for place in places]
            if not ledgers:
                raise LedgerUnusable(
                    f"the book of the data can be written neither beside the file nor in {self.index.root}: "
                    "private records need one; make one of them writable, or set XDG_STATE_HOME"
                )
            bring_together(ledgers)
            for entry in kept:
                self.index.mark(entry)
            yield ledgers, kept

    def _keep(self, stack: ExitStack) -> tuple[Entry, ...]:
        """Return the entries of these people in the locked index; none if there can be no index."""
        try:
            stack.enter_context(self.index.lock())
        except LedgerUnusable:
            if not self.people.files:
                raise
            return ()
        same = self._find().same
        kept = self.index.keep(self.people, same[0] if same else None)
        return (kept, *same[1:])


def bring_together(ledgers: Sequence[Ledger]) -> None:
    """Merge ledgers of the same people: write into each the charges that only others have.

    Guarantee:
        Afterwards each holds at least what any of them held, so whichever is read states no less.
    """
    known = [_read_charges(ledger) for ledger in ledgers]
    for ledger, own in zip(ledgers, known, strict=True):
        _take_over(ledger, own, known)
    _share_budgets(ledgers)


def _share_budgets(ledgers: Sequence[Ledger]) -> None:
    """Copy the budgets of each ledger to those without one for the same subject."""
    for ledger in ledgers:
        _bind_records(ledger)
    budgets = [ledger.budgets() for ledger in ledgers]
    for ledger, limits in zip(ledgers, budgets, strict=True):
        for other in budgets:
            for subject, budget in other.items():
                if subject not in limits and subject not in ledger.budgets():
                    ledger.allow(epsilon=budget.epsilon, delta=budget.delta, subject=subject)


def _bind_records(ledger: Ledger) -> None:
    """Set everyone's budget for the subject `records` too, where an older version has not.

    Runs that protect whole sites are charged to `sites`: otherwise their records would have no lifetime.
    """
    budgets = ledger.budgets()
    budget = budgets.get(EVERYONE)
    if budget is not None and RECORDS not in budgets:
        ledger.allow(epsilon=budget.epsilon, delta=budget.delta, subject=RECORDS)


def _take_over(ledger: Ledger, own: Charges, known: Iterable[Charges]) -> None:
    """Write into a ledger the charges that only others have."""
    for other in known:
        for ticket, charge in other.items():
            if ticket not in own:
                own[ticket] = charge
                _ = owe_plan(ledger, charge.releases, ticket, charge.delta)


def _unite(ledgers: Sequence[Ledger]) -> Ledger:
    """Unite ledgers in memory: another user may have charged one of them."""
    known = [_read_charges(ledger) for ledger in ledgers]
    fullest = max(range(len(known)), key=lambda place: len(known[place]))
    union = ledgers[fullest].copy()
    _take_over(union, known[fullest], known)
    return union


def _require_copy(entry: Entry, places: Iterable[Path]) -> None:
    """Refuse to begin anew where the ledger of an entry is lost, and none of these has its last charge."""
    ticket = entry.known.ticket
    if ticket is None:
        return
    copies = places if ticket else [place for place in _list_beside(entry.files) if place.exists()]
    with ExitStack() as stack:
        for ledger in _open_readable(copies, stack):
            if not ticket or ticket in _read_charges(ledger):
                return
    raise LedgerUnusable(
        f"{entry.book} is lost, and with it the runs charged to these people: restore it from a backup; "
        f"without one, move {entry.place} away, which loses those runs"
    )


def _open_readable(paths: Iterable[Path], stack: ExitStack) -> list[Ledger]:
    """Open the existing ledgers for reading; one whose creation was interrupted holds nothing."""
    found: list[Ledger] = []
    for path in paths:
        try:
            found.append(stack.enter_context(Ledger(path, mode="read")))
        except LedgerUnusable:
            if not path.exists() or path.stat().st_size > 0:
                raise
    return found


def new_run() -> str:
    """Draw a name for a run without a secret of its own."""
    return secrets.token_hex(16)


def _read_charges(ledger: Ledger) -> Charges:
    """Read the charges of a ledger by their tickets."""
    fields, found, deltas = Release.__dataclass_fields__, Charges(), dict[str, float]()
    for entry in ledger.entries():
        if entry["kind"] == "plan" and "delta" in entry:
            deltas[entry["plan"]] = entry["delta"]
        if entry["kind"] == "release":
            # A charge without a ticket counts as a run of its own.
            ticket = entry["ticket"] or f"{entry['hash'][:32]}{AFTER}"
            charge = found.setdefault(ticket, Charge([], deltas.get(entry.get("plan", ""))))
            charge.releases.append(from_dict({key: entry[key] for key in fields}))
    return found


def _note_other_units(charged: Charges, unit: Unit) -> Iterable[str]:
    """Note the runs that promise nothing about this unit."""
    if unit == "record":
        # A promise about whole sites covers their records, and is in the total.
        return
    of_records = [ticket for ticket, charge in charged.items() if charge.releases[0].unit == "record"]
    runs = {ticket.partition(AFTER)[0] for ticket in of_records}
    if runs:
        protect = "protects" if len(runs) == 1 else "protect"
        yield f"{len(runs)} of these runs {protect} single records only, not whole sites"


def _list_beside(files: Iterable[Path]) -> list[Path]:
    """List the ledgers beside files, by the given names and by resolved paths."""
    return [beside(place) for file in files for place in (file, Path(os.path.realpath(file)))]


def _drop_duplicates(places: Iterable[Path]) -> list[Path]:
    """Drop paths that lead to the same file."""
    found: dict[str, Path] = {}
    for place in places:
        found.setdefault(os.path.realpath(place), place)
    return list(found.values())


@contextmanager
def _name_lifetime(path: Path | None) -> Generator[None]:
    """Name the exceeded lifetime budget in the error."""
    try:
        yield
    except BudgetExhausted as error:
        raise BudgetExhausted(
            f"the lifetime budget of these records does not cover it: {error} (book: {path})"
        ) from error
