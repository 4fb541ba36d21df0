"""An append-only account of everything that left the sites.

The ledger is charged before a round is sent, so a crash can waste budget but never exceed it. Every row
carries the hash of all rows before it, so a changed ledger is found. It knows releases, not data; it can be
published. A ledger outlives runs: what several experiments cost the same people is composed here.
"""

import math
import os
import secrets
import sqlite3
from collections.abc import Callable, Generator, Iterable, Mapping
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
    require_word,
)
from tacit.markup import facts
from tacit.privacy import accounting
from tacit.privacy.account import EVERYONE, FORMAT, Account, Budget, chained
from tacit.privacy.release import Release, by_subject, require_subject

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


@dataclass(frozen=True)
class Verification:
    """What a look at the whole ledger found; epsilon is infinite where it cannot be trusted."""

    events: int
    valid: bool
    epsilon: float
    delta: float | None
    head: str
    problems: tuple[str, ...]


class Ledger:
    """Everything that was released, what it costs, and what it may cost.

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
        self._account = Account()
        self._known: list[tuple[Budget, dict[accounting.Kind, int]]] = []
        with _explained(self.path, "opened"):
            self._connection = _connect(self.path, mode)
        try:
            with self._transaction("DEFERRED" if mode == "read" else "IMMEDIATE", "opened"):
                pass
        except BaseException:
            self._connection.close()
            raise

    def allow(self, *, epsilon: float, delta: float, subject: str = EVERYONE) -> None:
        """Set the budget of a subject, or of every subject that has none of its own; written like a charge.

        A budget may be set again; the ledger keeps both, and the later one counts.
        """
        budget = Budget(epsilon, delta)
        if subject != EVERYONE:
            # A budget that is spelt otherwise than the releases would bind nobody.
            require_subject(subject, "site" if subject.partition("@")[0] == "sites" else "record")
        with self._writing():
            if self._account.budgets.get(subject) != budget:
                limits = {"epsilon": float(epsilon), "delta": float(delta)}
                self._append({"kind": "budget", "subject": subject, **limits})

    def charge(self, releases: Iterable[Release], *, ticket: str | None = None) -> bool:
        """Pay for releases before they happen.

        Args:
            releases: What is about to leave; all of them are charged, or none.
            ticket: A name for this very charge. Charged again under the same ticket, as a resumed run does
                for a round with the same inputs and therefore the same noise, it costs nothing more.

        Returns:
            Whether anything was charged: False if the ticket had paid for the same releases before.

        Raises:
            BudgetExhausted: A subject's budget would be exceeded; nothing was charged.
        """
        return self._pay(list(releases), ticket, self._check)

    def owe(self, releases: Iterable[Release], *, ticket: str) -> bool:
        """Write down what must be stated whatever the budget says, such as the rest of a plan that was left.

        Nothing may be released under it. A budget that is exceeded by it bears no further charge.
        """
        return self._pay(list(releases), ticket, lambda rows: None)

    def _pay(self, rows: list[Release], ticket: str | None, check: Callable[[list[Release]], None]) -> bool:
        with self._writing():
            if ticket is not None and ticket in self._account.tickets:
                if self._account.tickets[ticket] != rows:
                    raise Refused(
                        f"ticket {ticket!r} has paid for other releases; charge these under a new one"
                    )
                return False
            check(rows)
            for release in rows:
                self._append({"kind": "release", "ticket": ticket, **release.as_dict()})
        return bool(rows)

    def check(self, releases: Iterable[Release]) -> None:
        """Raise `BudgetExhausted` if these releases could not be charged now; charge nothing.

        A plan that has been checked as a whole makes each of its charges cheap.
        """
        with self._reading():
            self._check(list(releases))

    def spent(self, delta: float | None = None, *, subject: str | None = None) -> float:
        """Epsilon so far, of the costliest subject or of one; at `usual_delta` unless another is given."""
        if delta is not None:
            accounting.require_delta(delta)
        with self._reading():
            return self._spent(self._account.usual_delta(subject) if delta is None else delta, subject)

    def usual_delta(self, subject: str | None = None) -> float:
        """The delta of a subject's budget; for all, the smallest of any budget, which holds for each."""
        with self._reading():
            return self._account.usual_delta(subject)

    def releases(self) -> list[Release]:
        """Everything that was charged, equal releases counted together."""
        with self._reading():
            return self._account.releases()

    def budgets(self) -> Mapping[str, Budget]:
        """The budget of each subject; `*` stands for all others."""
        with self._reading():
            return dict(self._account.budgets)

    @property
    def head(self) -> str:
        """The hash of the last row: who keeps it can tell a restored old ledger from this one."""
        with self._reading():
            return self._account.head.hex()

    def entries(self) -> list[dict[str, Any]]:
        """Every row as it was written: its number, its time, its content, its hash."""
        with self._reading():
            return self._entries()

    def _repr_html_(self) -> str | None:
        from tacit.privacy.statement import released_in_words

        try:
            delta, budgets = self.usual_delta(), self.budgets()
            spent = f"epsilon {self.spent(delta):.4g} at delta {delta:g}"
            releases = released_in_words(self.releases())
        except LedgerError:
            # A ledger that is closed, or damaged, has nothing to show.
            return None
        allowed = [
            (f"Budget of {name}", f"epsilon {b.epsilon:g} at delta {b.delta:g}")
            for name, b in budgets.items()
        ]
        told = [("Released", words) for words in releases] or [("Released", "nothing")]
        return facts(
            f"Ledger {self.path or 'in memory'}", [("Spent", spent), *allowed, *told, ("Head", self.head)]
        )

    def export(self, stream: TextIO) -> None:
        """Write every row as one line of JSON."""
        for entry in self.entries():
            stream.write(msgspec.json.encode(entry).decode() + "\n")

    def verify(self, delta: float | None = None) -> Verification:
        """Check the file, every hash and what everything costs, all at one instant."""
        with self._reading():
            events = sum(entry["kind"] == "release" for entry in self._entries())
            problems = tuple(self._damage())
            chosen = self._account.usual_delta() if delta is None else delta
            releases, head = self._account.releases(), self._account.head.hex()
        # Nobody who charges waits for this.
        epsilon = math.inf if problems else _priced(releases, chosen)
        return Verification(events, not problems, epsilon, chosen, head, problems)

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()

    def __enter__(self) -> "Ledger":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _spent(self, delta: float, subject: str | None = None) -> float:
        return _priced(self._account.releases(), delta, subject)

    def _entries(self) -> list[dict[str, Any]]:
        fresh, entries = Account(), list[dict[str, Any]]()
        query = "SELECT number, body, hash FROM entries ORDER BY number"
        for number, body, digest in self._connection.execute(query):
            fresh.fold(number, body, digest)
            entries.append({"number": number, **msgspec.json.decode(body), "hash": digest.hex()})
        return entries

    def _damage(self) -> list[str]:
        """What is wrong with the file beyond the hashes: pages that do not fit, guards that are gone."""
        checked = [row[0].decode() for row in self._connection.execute("PRAGMA integrity_check")]
        found = {row[0].decode() for row in self._connection.execute("SELECT sql FROM sqlite_master")}
        guards = [] if found == set(SCHEMA[1:]) else ["the table and its guards were changed"]
        return [problem for problem in checked if problem != "ok"] + guards + self._missing()

    def _missing(self) -> list[str]:
        """Whether the file ends before its last page does: SQLite reads zeros there, which may fit."""
        if self.path is None:
            return []
        (pages,), (size,) = (
            self._connection.execute(f"PRAGMA {name}").fetchone() for name in ("page_count", "page_size")
        )
        short = pages * size - self.path.stat().st_size
        return [f"the file ends {short} bytes early"] if short > 0 else []

    def _check(self, rows: list[Release]) -> None:
        named = [subject for subject in self._account.budgets if subject != EVERYONE]
        for subject, group in by_subject(self._account.releases() + rows, also=named).items():
            budget = self._account.budget(subject)
            if budget is not None and group and not self._affords(group, budget):
                cost = accounting.epsilon(group, budget.delta)
                raise BudgetExhausted(
                    f"budget of {subject} exhausted: epsilon would be {cost:.4g} at delta {budget.delta:g}, "
                    f"and {budget.epsilon:g} is allowed; nothing was charged"
                )

    def _affords(self, group: list[Release], budget: Budget) -> bool:
        # What costs no more than something known to be affordable is affordable: no need to compose again.
        counts = dict(accounting.counted(group))
        for other, known in self._known:
            if other == budget and all(times <= known.get(kind, 0) for kind, times in counts.items()):
                return True
        fits = accounting.affordable(group, budget.epsilon, budget.delta)
        if fits:
            self._known = [(budget, counts), *self._known[:15]]
        return fits

    def _append(self, content: dict[str, Any]) -> None:
        body = msgspec.json.encode({"at": datetime.now(UTC).isoformat(timespec="milliseconds"), **content})
        number, digest = self._account.number + 1, chained(self._account.head, self._account.number + 1, body)
        self._connection.execute("INSERT INTO entries VALUES (?, ?, ?)", (number, body.decode(), digest))
        self._connection.execute(f"PRAGMA user_version = {number}")
        self._account.fold(number, body, digest)

    def _catch_up(self) -> None:
        """Fold in what other processes have written since, checking every hash."""
        query = "SELECT number, body, hash FROM entries WHERE number > ? ORDER BY number"
        for number, body, digest in self._connection.execute(query, (self._account.number,)):
            self._account.fold(number, body, digest)
        (expected,) = self._connection.execute("PRAGMA user_version").fetchone()
        (there,) = self._connection.execute("SELECT count(*) FROM entries").fetchone()
        if not expected == there == self._account.number:
            raise LedgerTampered(
                f"{expected} rows were written, {there} are there, {self._account.number} fit"
            )

    def _reading(self) -> AbstractContextManager[None]:
        return self._transaction("DEFERRED", "read")

    def _writing(self) -> AbstractContextManager[None]:
        return self._transaction("IMMEDIATE", "written")

    @contextmanager
    def _transaction(self, kind: Literal["DEFERRED", "IMMEDIATE"], verb: str) -> Generator[None]:
        with _explained(self.path, verb):
            try:
                self._connection.execute(f"BEGIN {kind}")
                self._recognise(create=kind == "IMMEDIATE")
                self._catch_up()
                yield
                self._connection.execute("COMMIT")
            except BaseException:
                # What was folded in may be undone: read it all again next time.
                self._account = Account()
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    def _recognise(self, *, create: bool) -> None:
        (application,) = self._connection.execute("PRAGMA application_id").fetchone()
        tables = {row[0] for row in self._connection.execute("SELECT name FROM sqlite_master")}
        if application == APPLICATION and b"entries" not in tables:
            raise LedgerTampered("its rows are gone")
        if application == APPLICATION:
            return
        if tables or application or not create:
            raise LedgerUnusable("it is not a ledger of ours")
        for statement in SCHEMA:
            self._connection.execute(statement)
        # Two ledgers never share a hash, however alike their charges.
        self._append({"kind": "opened", "format": FORMAT, "id": secrets.token_hex(16)})


def _priced(releases: list[Release], delta: float, subject: str | None = None) -> float:
    """What releases cost a subject, or the subject that they cost most."""
    groups = by_subject(releases, also=[subject] if subject else [])
    chosen = groups.values() if subject is None else [groups[subject]]
    return max((accounting.epsilon(rows, delta) for rows in chosen), default=0.0)


def verify(path: str | os.PathLike[str], delta: float | None = None) -> Verification:
    """Check a ledger that may have been damaged: its file, every hash, and what everything costs.

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


def _connect(path: Path | None, mode: Literal["write", "read"]) -> sqlite3.Connection:
    if path is None:
        return _as_written(sqlite3.connect(":memory:", isolation_level=None))
    path = path.resolve()
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


@contextmanager
def _explained(path: Path | None, verb: str) -> Generator[None]:
    name = str(path) if path is not None else "in memory"
    try:
        yield
    except LedgerError as error:
        raise type(error)(f"ledger {name} cannot be {verb}: {error}") from error
    except (OSError, UnicodeError, ValueError) as error:
        if isinstance(error, TacitError):
            raise
        # SQLite cannot even say what is wrong with a damaged schema when the damage is in its text.
        kind = LedgerTampered if isinstance(error, UnicodeError) else LedgerUnusable
        raise kind(f"ledger {name} cannot be {verb}: {error}") from error
    except sqlite3.Error as error:
        damaged = getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_CORRUPT
        kind = LedgerTampered if damaged else LedgerUnusable
        raise kind(f"ledger {name} cannot be {verb}: {error}") from error
