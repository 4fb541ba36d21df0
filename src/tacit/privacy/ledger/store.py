"""Append-only ledger of everything that left the sites.

The ledger is charged before a round is sent, so a crash can waste budget but never exceed it. Every row
carries the hash of all rows before it, so a changed ledger is found. It knows releases, not data; it can be
published. A ledger outlives runs: what several experiments cost the same people is added up here. What
belongs to one fixed plan is composed; several plans, each of which may have been chosen by the results of the
last, are held against a filter (`filters`).

SQLite file of a ledger: opening, append-only triggers, and error messages.

The only door to `sqlite3`. It knows rows, not releases.
"""

import math
import os
import secrets
import sqlite3
from collections.abc import Generator, Iterable, Mapping
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, TextIO

import msgspec

from tacit.errors import (
    BudgetExhausted,
    LedgerError,
    LedgerTampered,
    LedgerUnusable,
    Refused,
    TacitError,
    require,
    require_word,
)
from tacit.privacy import accounting
from tacit.privacy.accounting.release import Release, require_subject
from tacit.privacy.ledger.chain import (
    EVERYONE,
    FORMAT,
    RECORDS,
    Budget,
    LedgerState,
    chain_hash,
    planned_rows,
)
from tacit.privacy.ledger.plans import Basis, max_epsilon, require_plan
from tacit.runtime import files


@dataclass(frozen=True)
class Verification:
    """Result of verifying a whole ledger; epsilon is infinite where the ledger cannot be trusted."""

    events: int
    valid: bool
    epsilon: float
    delta: float | None
    head: str
    problems: tuple[str, ...]
    epsilon_as_planned: float = math.inf
    epsilon_as_lifetime: float = math.inf


class Ledger:
    """Ledger of all releases, their price and their budgets.

    Args:
        path: The file, made if it is not there; None keeps the account in memory.
        mode: `write` to charge, `read` to look.

    Guarantee:
        When `charge` returns, the charge is on disk; when it raises, nothing has changed. That holds for any
        number of processes that charge one file at the same time.
    """

    def __init__(
        self, path: str | os.PathLike[str] | None = None, *, mode: Literal["write", "read"] = "write"
    ) -> None:
        require_word("mode", mode, ("write", "read"))
        self.path = Path(path) if path is not None else None
        self._account = LedgerState()
        with explain_errors(self.path, "opened"):
            self._connection = connect(self.path, mode)
        try:
            with self._transaction("DEFERRED" if mode == "read" else "IMMEDIATE", "opened"):
                pass
        except BaseException:
            self._connection.close()
            raise

    def allow(self, *, epsilon: float, delta: float, subject: str = EVERYONE) -> None:
        """Set the budget of a subject, or of every subject without its own; recorded like a charge.

        A budget may be set again; the ledger keeps both, and the later one counts.
        """
        budget = Budget(epsilon, delta)
        if subject != EVERYONE:
            # A budget under another spelling than the releases would bind no release.
            require_subject(subject, "site" if subject.partition("@")[0] == "sites" else "record")
        with self._writing():
            if self._account.budgets.get(subject) != budget:
                limits = {"epsilon": float(epsilon), "delta": float(delta)}
                self._append({"kind": "budget", "subject": subject, **limits})

    def allow_lifetime(self, *, epsilon: float, delta: float) -> None:
        """Set the lifetime budget of people: for every subject and, by name, for single records.

        A budget for every subject binds those charged by name, and site-level releases charge no record so.
        """
        for subject in (EVERYONE, RECORDS):
            self.allow(epsilon=epsilon, delta=delta, subject=subject)

    def register(
        self, releases: Iterable[Release], *, plan: str, resumed: bool = False, delta: float | None = None
    ) -> bool:
        """Register a fixed plan before its first charge, so that its charges may come one by one.

        Args:
            releases: All that will be released under it, at most. What is charged under its name beyond that
                is a plan of its own.
            plan: Its name.
            resumed: Whether it is the plan of the run that has charged this ledger before rows had plans. No
                budget is asked about the whole of it, so its charges are held against the filter unless the
                budget bears all of it.
            delta: The delta at which it states its price, if no budget says so (`usual_delta`).

        Returns:
            Whether it was written; False if it had been before, with the same releases.

        Raises:
            BudgetExhausted: A subject's budget could not bear all of it; nothing was written.
            Refused: The name belongs to other releases, or a plan is resumed that no run has begun; nothing
                was written.
        """
        require_plan(plan)
        if delta is not None:
            accounting.require_delta(delta)
        rows = list(releases)
        with self._writing():
            known = self._account.plans.known.get(plan)
            if known is not None:
                if planned_rows(known.releases) != planned_rows(rows):
                    raise Refused(
                        f"plan {plan!r} is registered with other releases; give this plan another name"
                    )
                return False
            if resumed and not self._account.plans.has_former_run():
                raise Refused(
                    f"plan {plan!r} cannot be resumed: this ledger has no charges from before plans; "
                    "register it without resumed"
                )
            self._check([] if resumed else rows, plan)
            self._append_plan(plan, rows, resumed=resumed, delta=delta)
        return True

    def has_former_run(self) -> bool:
        """Return True if a run without plans has charged this ledger, and no plan has adopted it."""
        with self._reading():
            return self._account.plans.has_former_run()

    def charge(
        self,
        releases: Iterable[Release],
        *,
        ticket: str | None = None,
        plan: str | None = None,
        delta: float | None = None,
    ) -> bool:
        """Pay for releases before they happen.

        Args:
            releases: The planned releases; all of them are charged, or none.
            ticket: A name for this very charge. Charged again under the same ticket, as a resumed run does
                for a round with the same inputs and therefore the same noise, it costs nothing more.
            plan: The fixed plan that this charge is a part of: one that was registered, or one of which this
                charge is the whole. None is a plan of its own, under a name that nothing else has.
            delta: The delta at which a plan that this charge is the whole of states its price: the default of
                later prices (`usual_delta`), and no limit.

        Returns:
            Whether anything was charged: False if the ticket had paid for the same releases before.

        Raises:
            BudgetExhausted: A subject's budget would be exceeded; nothing was charged.
        """
        return self._pay(list(releases), ticket, plan, delta, owed=False)

    def owe(
        self,
        releases: Iterable[Release],
        *,
        ticket: str,
        plan: str | None = None,
        delta: float | None = None,
    ) -> bool:
        """Record releases that must be stated, even beyond the budget, such as the rest of an abandoned plan.

        Nothing may be released under it. A budget that is exceeded by it bears no further charge.
        """
        return self._pay(list(releases), ticket, plan, delta, owed=True)

    def _pay(
        self, rows: list[Release], ticket: str | None, plan: str | None, delta: float | None, *, owed: bool
    ) -> bool:
        if plan is not None:
            require_plan(plan)
        if delta is not None:
            accounting.require_delta(delta)
            require(plan is not None, "delta", delta, "given with a plan: it is what that plan states")
        with self._writing():
            account = self._account
            if ticket is not None and ticket in account.tickets:
                if account.tickets[ticket] != rows:
                    raise Refused(
                        f"ticket {ticket!r} was charged for other releases; charge these under a new ticket"
                    )
                return False
            name = f"#{account.number + 1}" if plan is None else plan
            if not owed:
                self._check(rows, name)
            if rows and plan is not None and plan not in account.plans.known:
                self._append_plan(plan, rows, delta=delta)
            told = {"ticket": ticket, "plan": name, **({"owed": True} if owed else {})}
            for release in rows:
                self._append({"kind": "release", **told, **release.as_dict()}, at=account.times.get(name))
        return bool(rows)

    def check(self, releases: Iterable[Release], *, plan: str | None = None) -> None:
        """Raise `BudgetExhausted` if these releases could not be charged now; charge nothing.

        A plan that has been checked as a whole makes each of its charges cheap.
        """
        with self._reading():
            self._check(list(releases), f"#{self._account.number + 1}" if plan is None else plan)

    def spent(self, delta: float | None = None, *, subject: str | None = None) -> float:
        """Epsilon so far, of the costliest subject or of one; at `usual_delta` unless another is given.

        Guarantee:
            About one plan, what composition proves of the releases so far, if results did not decide which of
            the plan were left out: who stops a plan early by looking at results owes its rest (`owe`), as
            runs do. About several, the smallest budget whose filter would have let them pass, however each
            was chosen by the results of those before. That is a promise if such a budget was set before the
            first of them (`allow`): without one, deciding by results to go on may raise delta.
        """
        return self._spent(delta, subject, "valid")

    def spent_as_planned(self, delta: float | None = None, *, subject: str | None = None) -> float:
        """Epsilon so far as if everything had been one plan, fixed before the first release.

        Beside `spent` it shows what it costs that plans were chosen in turn. Of several plans it is no
        promise.
        """
        return self._spent(delta, subject, "planned")

    def prices(self, delta: float) -> dict[str, float]:
        """Return the epsilon spent by each subject, by its name."""
        accounting.require_delta(delta)
        with self._reading():
            return self._account.prices(delta)

    def _spent(self, delta: float | None, subject: str | None, basis: Basis) -> float:
        if delta is not None:
            accounting.require_delta(delta)
        with self._reading():
            chosen = self._account.usual_delta(subject) if delta is None else delta
            return self._account.spent(chosen, subject, basis=basis)

    def usual_delta(self, subject: str | None = None) -> float:
        """The delta of a subject's budget; for all, the smallest of any budget, which holds for each.

        Without a budget it is the smallest delta above 0 that a plan states: epsilon at that delta holds at
        the deltas of all other plans, too. Plans that state none count as 1e-5.
        """
        with self._reading():
            return self._account.usual_delta(subject)

    def stated_deltas(self) -> list[float]:
        """Return the deltas at which plans state their price, smallest first; 1e-5 for those without one."""
        with self._reading():
            return self._account.stated_deltas()

    def releases(self) -> list[Release]:
        """Everything that was charged, equal releases counted together."""
        with self._reading():
            return self._account.releases()

    def count_plans(self) -> int:
        """Count the plans that have begun."""
        with self._reading():
            return len(self._account.plans.names())

    def budgets(self) -> Mapping[str, Budget]:
        """The budget of each subject; `*` stands for all others."""
        with self._reading():
            return dict(self._account.budgets)

    @property
    def head(self) -> str:
        """Hash of the last row: with a copy of it, a restored old ledger can be detected."""
        with self._reading():
            return self._account.head.hex()

    def entries(self) -> list[dict[str, Any]]:
        """Every row as it was written: its number, its time, its content, its hash."""
        with self._reading():
            return self._entries()

    def _repr_html_(self) -> str | None:
        from tacit.privacy.ledger.view import render_html

        return render_html(self)

    def export(self, stream: TextIO) -> None:
        """Write every row as one line of JSON."""
        for entry in self.entries():
            stream.write(msgspec.json.encode(entry).decode() + "\n")

    def verify(self, delta: float | None = None) -> Verification:
        """Check the file, every hash and the total price, all at one instant."""
        with self._reading():
            events = sum(entry["kind"] == "release" for entry in self._entries())
            problems = tuple(damage(self._connection, self.path))
            chosen = self._account.usual_delta() if delta is None else delta
            prices = [self._account.pricings(basis=basis) for basis in ("valid", "planned", "lifetime")]
            head = self._account.head.hex()
        # Computed outside the lock, so that charges do not wait for it.
        valid, *both = (math.inf if problems else max_epsilon(rows, chosen) for rows in prices)
        return Verification(events, not problems, valid, chosen, head, problems, *both)

    def copy(self) -> "Ledger":
        """Copy the rows into memory, to try charges."""
        copied = Ledger()
        with self._reading():
            self._connection.backup(copied._connection)
        copied._account = LedgerState()
        return copied

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def __enter__(self) -> "Ledger":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _entries(self) -> list[dict[str, Any]]:
        fresh, entries = LedgerState(), list[dict[str, Any]]()
        query = "SELECT number, body, hash FROM entries ORDER BY number"
        for number, body, digest in self._connection.execute(query):
            fresh.append(number, body, digest)
            entries.append({"number": number, **msgspec.json.decode(body), "hash": digest.hex()})
        return entries

    def _check(self, rows: list[Release], plan: str) -> None:
        account, charge = self._account, self._account.plans.pending(rows, plan)
        for subject in account.plans.affected_subjects(charge, also=account.budgets.keys() - {EVERYONE}):
            budget = account.budget(subject)
            if budget is None or account.plans.can_afford(subject, charge, budget.epsilon, budget.delta):
                continue
            priced = account.plans.pricing_after(subject, charge)
            cost = priced.epsilon(budget.delta)
            turns = "" if priced.first is None else " over plans chosen one after another"
            raise BudgetExhausted(
                f"budget of {subject} exhausted: epsilon would be {cost:.4g} at delta {budget.delta:g}"
                f"{turns}, and {budget.epsilon:g} is allowed; nothing was charged"
            )

    def _append_plan(
        self, plan: str, rows: list[Release], *, resumed: bool = False, delta: float | None = None
    ) -> None:
        stated = {} if delta is None else {"delta": float(delta)}
        row = {"kind": "plan", "plan": plan, "resumed": resumed, **stated}
        self._append({**row, "releases": planned_rows(rows)})

    def _append(self, content: dict[str, Any], *, at: str | None = None) -> None:
        # Participation in a round may be secret: charges of a plan carry the time of its beginning.
        at = datetime.now(UTC).isoformat(timespec="milliseconds") if at is None else at
        body = msgspec.json.encode({"at": at, **content})
        number, digest = (
            self._account.number + 1,
            chain_hash(self._account.head, self._account.number + 1, body),
        )
        self._connection.execute("INSERT INTO entries VALUES (?, ?, ?)", (number, body.decode(), digest))
        self._connection.execute(f"PRAGMA user_version = {number}")
        self._account.append(number, body, digest)

    def _catch_up(self) -> None:
        """Read rows that other processes have appended, checking every hash.

        Rows that are missing in the middle do not fit when they are read; a tail that was cut off is missed
        by its number. Neither takes a look at all rows, unless nothing was read before.
        """
        whole = self._account.number == 0
        query = "SELECT number, body, hash FROM entries WHERE number > ? ORDER BY number"
        for number, body, digest in self._connection.execute(query, (self._account.number,)):
            self._account.append(number, body, digest)
        (expected,) = self._connection.execute("PRAGMA user_version").fetchone()
        counting = "SELECT count(*) FROM entries" if whole else "SELECT coalesce(max(number), 0) FROM entries"
        (there,) = self._connection.execute(counting).fetchone()
        if not expected == there == self._account.number:
            raise LedgerTampered(f"{expected} rows were written, {there} exist, {self._account.number} fit")

    def _reading(self) -> AbstractContextManager[None]:
        return self._transaction("DEFERRED", "read")

    def _writing(self) -> AbstractContextManager[None]:
        return self._transaction("IMMEDIATE", "written")

    @contextmanager
    def _transaction(self, kind: Literal["DEFERRED", "IMMEDIATE"], verb: str) -> Generator[None]:
        with explain_errors(self.path, verb):
            kept = -1
            try:
                self._connection.execute(f"BEGIN {kind}")
                self._recognise(create=kind == "IMMEDIATE")
                self._catch_up()
                kept = self._account.number
                yield
                self._connection.execute("COMMIT")
            except BaseException:
                # The rolled-back rows may be in the account: read it all again next time.
                if self._account.number != kept:
                    self._account = LedgerState()
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    def _recognise(self, *, create: bool) -> None:
        (application,) = self._connection.execute("PRAGMA application_id").fetchone()
        tables = {row[0] for row in self._connection.execute("SELECT name FROM sqlite_master")}
        if application == APPLICATION and b"entries" not in tables:
            raise LedgerTampered("its rows are missing")
        if application == APPLICATION:
            return
        if tables or application or not create:
            raise LedgerUnusable("it is not a ledger of Tacit")
        for statement in SCHEMA:
            self._connection.execute(statement)
        # Two ledgers never share a hash, even with equal charges.
        self._append({"kind": "opened", "format": FORMAT, "id": secrets.token_hex(16)})


def verify(path: str | os.PathLike[str], delta: float | None = None) -> Verification:
    """Check a ledger that may have been damaged: its file, every hash, and the total price.

    Raises:
        LedgerUnusable: The path holds no ledger at all.
    """
    if delta is not None:
        accounting.require_delta(delta)
    try:
        with Ledger(path, mode="read") as ledger:
            return ledger.verify(delta)
    except LedgerTampered as error:
        return Verification(0, False, math.inf, delta, "", (str(error),))


# Marks the file as ours in the SQLite header: the letters TACT.
APPLICATION = 0x54414354
WAIT_SECONDS = 60

SCHEMA = (
    f"PRAGMA application_id = {APPLICATION}",
    "CREATE TABLE entries (number INTEGER PRIMARY KEY, body TEXT NOT NULL, hash BLOB NOT NULL)"
    " STRICT, WITHOUT ROWID",
    "CREATE TRIGGER stay BEFORE UPDATE ON entries BEGIN SELECT RAISE(ABORT, 'append-only'); END",
    "CREATE TRIGGER remain BEFORE DELETE ON entries BEGIN SELECT RAISE(ABORT, 'append-only'); END",
    "CREATE TRIGGER follow BEFORE INSERT ON entries"
    " WHEN NEW.number <= (SELECT coalesce(max(number), 0) FROM entries)"
    " BEGIN SELECT RAISE(ABORT, 'append-only'); END",
)


def connect(path: Path | None, mode: Literal["write", "read"]) -> sqlite3.Connection:
    """Open the file of a ledger, or one in memory, without reading it."""
    if path is None:
        return _as_written(sqlite3.connect(":memory:", isolation_level=None))
    # Of links that lead nowhere it makes a path, where `resolve` ends with an error of its own.
    path = Path(os.path.realpath(path))
    files.require_regular(path, "-journal", "-wal", "-shm")  # SQLite would wait for a named pipe.
    if mode == "read" and not path.is_file():
        raise LedgerUnusable("there is no such file")
    if mode == "write" and not path.parent.is_dir():
        raise LedgerUnusable(f"the folder {path.parent} does not exist")
    if mode == "read" and path.with_name(path.name + "-journal").exists():
        # A writer was killed: only a connection that may write can undo its unfinished charge.
        with suppress(sqlite3.Error), closing(sqlite3.connect(path, timeout=WAIT_SECONDS)) as connection:
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    address = f"{path.absolute().as_uri()}?mode={'ro' if mode == 'read' else 'rwc'}"
    connection = sqlite3.connect(address, uri=True, timeout=WAIT_SECONDS, isolation_level=None)
    try:
        # Durable before `charge` returns: the file, and the folder that holds its journal.
        connection.execute("PRAGMA synchronous = EXTRA")
    except BaseException:
        connection.close()
        raise
    return _as_written(connection)


def _as_written(connection: sqlite3.Connection) -> sqlite3.Connection:
    # Bytes as they lie in the file: a damaged row is judged by its hash, not by whether it decodes.
    connection.text_factory = bytes
    return connection


def damage(connection: sqlite3.Connection, path: Path | None) -> list[str]:
    """Return the damage of a file beyond its hashes: inconsistent pages, changed or missing triggers."""
    checked = [row[0].decode() for row in connection.execute("PRAGMA integrity_check")]
    found = {row[0].decode() for row in connection.execute("SELECT sql FROM sqlite_master")}
    guards = [] if found == set(SCHEMA[1:]) else ["the table and its guards were changed"]
    return [problem for problem in checked if problem != "ok"] + guards + _missing(connection, path)


def _missing(connection: sqlite3.Connection, path: Path | None) -> list[str]:
    """Return the bytes missing after the file's end: SQLite reads zeros there, which may fit."""
    if path is None:
        return []
    (pages,), (size,) = (
        connection.execute(f"PRAGMA {name}").fetchone() for name in ("page_count", "page_size")
    )
    short = pages * size - path.stat().st_size
    return [f"the file ends {short} bytes early"] if short > 0 else []


@contextmanager
def explain_errors(path: Path | None, verb: str) -> Generator[None]:
    """Translate SQLite errors: name the ledger, and whether it is damaged."""
    name = str(path) if path is not None else "in memory"
    try:
        yield
    except LedgerError as error:
        raise type(error)(f"ledger {name} cannot be {verb}: {error}") from error
    except (OSError, UnicodeError, ValueError) as error:
        if isinstance(error, TacitError):
            raise
        # Damage in the text of a schema gives a decoding error instead of SQLite's own.
        kind = LedgerTampered if isinstance(error, UnicodeError) else LedgerUnusable
        raise kind(f"ledger {name} cannot be {verb}: {error}") from error
    except sqlite3.Error as error:
        # An error that the module of Python raises itself has no code.
        damaged = getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_CORRUPT
        kind = LedgerTampered if damaged else LedgerUnusable
        raise kind(f"ledger {name} cannot be {verb}: {error}") from error
