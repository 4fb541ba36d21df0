"""An append-only account of everything that left the sites.

The ledger is charged before a round is sent, so a crash can waste budget but never exceed it. Every row
carries the hash of all rows before it, so a changed ledger is found. It knows releases, not data; it can be
published. A ledger outlives runs: what several experiments cost the same people is composed here.
"""

import hashlib
import math
import os
import secrets
import sqlite3
from collections import Counter
from collections.abc import Generator, Iterable, Mapping
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, TextIO

import msgspec

from tacit.errors import (
    BudgetExhausted,
    InvalidValue,
    LedgerError,
    LedgerTampered,
    LedgerUnusable,
    Refused,
    TacitError,
)
from tacit.privacy import accounting
from tacit.privacy.release import Release, by_subject, from_dict, require_positive

# Marks the file as ours in the SQLite header: the letters TACT.
APPLICATION = 0x54414354
WAIT_SECONDS = 60
GENESIS = hashlib.sha256(b"tacit ledger 1").digest()
EVERYONE = "*"

SCHEMA = (
    f"PRAGMA application_id = {APPLICATION}",
    "CREATE TABLE entries (number INTEGER PRIMARY KEY, body TEXT NOT NULL, hash BLOB NOT NULL) STRICT",
    "CREATE TRIGGER stay BEFORE UPDATE ON entries BEGIN SELECT RAISE(ABORT, 'append-only'); END",
    "CREATE TRIGGER remain BEFORE DELETE ON entries BEGIN SELECT RAISE(ABORT, 'append-only'); END",
)


@dataclass(frozen=True)
class Budget:
    """The most that one subject may be charged, over the whole life of the ledger."""

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        require_positive("budget epsilon", self.epsilon)
        accounting.require_delta(self.delta)


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
        self.path = Path(path) if path is not None else None
        self._account = _Account()
        self._known: list[tuple[Budget, dict[accounting.Kind, int]]] = []
        with _explained(self.path, "opened"):
            self._connection = _connect(self.path, mode)
        with self._transaction("DEFERRED" if mode == "read" else "IMMEDIATE", "opened"):
            pass

    def allow(self, *, epsilon: float, delta: float, subject: str = EVERYONE) -> None:
        """Set the budget of a subject, or of every subject that has none of its own; written like a charge.

        A budget may be set again; the ledger keeps both, and the later one counts.
        """
        budget = Budget(epsilon, delta)
        with self._writing():
            if self._account.budgets.get(subject) != budget:
                self._append({"kind": "budget", "subject": subject, "epsilon": epsilon, "delta": delta})

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
        rows = list(releases)
        with self._writing():
            if ticket is not None and ticket in self._account.tickets:
                if self._account.tickets[ticket] != rows:
                    raise Refused(
                        f"ticket {ticket!r} has paid for other releases; charge these under a new one"
                    )
                return False
            self._check(rows)
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
        """Epsilon so far, of the costliest subject or of one; at the delta of its budget by default."""
        with self._reading():
            groups = by_subject(self._account.releases())
            chosen = groups if subject is None else {subject: groups.get(subject, [])}
            epsilons = (accounting.epsilon(rows, self._delta(name, delta)) for name, rows in chosen.items())
            return max(epsilons, default=0.0)

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
            return [
                {"number": number, **msgspec.json.decode(body), "hash": digest.hex()}
                for number, body, digest in self._connection.execute(
                    "SELECT number, body, hash FROM entries ORDER BY number"
                )
            ]

    def export(self, stream: TextIO) -> None:
        """Write every row as one line of JSON."""
        for entry in self.entries():
            stream.write(msgspec.json.encode(entry).decode() + "\n")

    def damage(self) -> tuple[str, ...]:
        """What SQLite itself finds wrong with the file, beyond the hashes that every access checks."""
        with self._reading():
            found = [row[0].decode() for row in self._connection.execute("PRAGMA integrity_check")]
        return tuple(problem for problem in found if problem != "ok")

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()

    def __enter__(self) -> "Ledger":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _check(self, rows: list[Release]) -> None:
        groups = by_subject(self._account.releases() + rows)
        for subject, group in groups.items():
            budget = self._account.budget(subject)
            if budget is not None and not self._affords(group, budget):
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

    def _delta(self, subject: str, delta: float | None) -> float:
        budget = self._account.budget(subject)
        if delta is None and budget is None:
            raise InvalidValue(
                "delta = None is not allowed: it must be given, the ledger has no budget to take it from"
            )
        return budget.delta if delta is None and budget is not None else float(delta or 0.0)

    def _append(self, content: dict[str, Any]) -> None:
        body = msgspec.json.encode({"at": datetime.now(UTC).isoformat(timespec="milliseconds"), **content})
        number, digest = self._account.number + 1, _hash(self._account.head, self._account.number + 1, body)
        self._connection.execute("INSERT INTO entries VALUES (?, ?, ?)", (number, body.decode(), digest))
        self._connection.execute(f"PRAGMA user_version = {number}")
        self._account.fold(number, body, digest)

    def _catch_up(self) -> None:
        """Fold in what other processes have written since, checking every hash."""
        query = "SELECT number, body, hash FROM entries WHERE number > ? ORDER BY number"
        for number, body, digest in self._connection.execute(query, (self._account.number,)):
            self._account.fold(number, body, digest)
        (expected,) = self._connection.execute("PRAGMA user_version").fetchone()
        if expected != self._account.number:
            raise LedgerTampered(f"{expected} rows were written, and {self._account.number} are there")

    def _reading(self) -> AbstractContextManager[None]:
        return self._transaction("DEFERRED", "read")

    def _writing(self) -> AbstractContextManager[None]:
        return self._transaction("IMMEDIATE", "written")

    @contextmanager
    def _transaction(self, kind: Literal["DEFERRED", "IMMEDIATE"], verb: str) -> Generator[None]:
        with _explained(self.path, verb):
            self._connection.execute(f"BEGIN {kind}")
            try:
                self._recognise(create=kind == "IMMEDIATE")
                self._catch_up()
                yield
                self._connection.execute("COMMIT")
            except BaseException:
                # What was folded in may be undone: read it all again next time.
                self._account = _Account()
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    def _recognise(self, *, create: bool) -> None:
        (application,) = self._connection.execute("PRAGMA application_id").fetchone()
        (tables,) = self._connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if application == APPLICATION:
            return
        if tables or not create:
            raise LedgerUnusable("it is not a ledger of ours")
        for statement in SCHEMA:
            self._connection.execute(statement)
        # Two ledgers never share a hash, however alike their charges.
        self._append({"kind": "opened", "format": 1, "id": secrets.token_hex(16)})


def verify(path: str | os.PathLike[str], delta: float | None = None) -> Verification:
    """Check a ledger that may have been damaged: its file, every hash, and what everything costs.

    Raises:
        LedgerUnusable: The path holds no ledger at all.
    """
    try:
        with Ledger(path, mode="read") as ledger:
            problems = ledger.damage()
            events = sum(1 for entry in ledger.entries() if entry["kind"] == "release")
            budget = ledger.budgets().get(EVERYONE)
            chosen = delta if delta is not None else budget.delta if budget else None
            epsilon = ledger.spent(delta) if events else 0.0
            return Verification(events, not problems, epsilon, chosen, ledger.head, problems)
    except LedgerTampered as error:
        return Verification(0, False, math.inf, delta, "", (str(error),))


@dataclass
class _Account:
    """What the rows add up to."""

    number: int = 0
    head: bytes = GENESIS
    budgets: dict[str, Budget] = field(default_factory=dict[str, Budget])
    totals: Counter[Release] = field(default_factory=Counter[Release])
    tickets: dict[str, list[Release]] = field(default_factory=dict[str, list[Release]])

    def fold(self, number: object, body: object, digest: object) -> None:
        expected = self.number + 1
        computed = _hash(self.head, expected, body) if isinstance(body, bytes) else None
        if number != expected or not isinstance(body, bytes) or computed is None or computed != digest:
            raise LedgerTampered(
                f"row {expected} does not fit the rows before it: it was changed or is missing"
            )
        try:
            self._add(msgspec.json.decode(body, type=dict[str, Any]))
        except (msgspec.MsgspecError, TacitError, KeyError, TypeError) as error:
            raise LedgerTampered(f"row {expected} cannot be read: {error}") from error
        self.number, self.head = expected, computed

    def _add(self, entry: dict[str, Any]) -> None:
        kind, _ = entry.pop("kind"), entry.pop("at")
        if kind == "budget":
            self.budgets[entry["subject"]] = Budget(entry["epsilon"], entry["delta"])
        elif kind == "release":
            ticket, release = entry.pop("ticket"), from_dict(entry)
            # Who and what for do not change the price: rounds alike are counted together.
            self.totals[replace(release, count=1, party="", purpose="")] += release.count
            if ticket is not None:
                self.tickets.setdefault(ticket, []).append(release)

    def releases(self) -> list[Release]:
        return [replace(release, count=times) for release, times in self.totals.items()]

    def budget(self, subject: str) -> Budget | None:
        return self.budgets.get(subject, self.budgets.get(EVERYONE))


def _hash(previous: bytes, number: int, body: bytes) -> bytes:
    return hashlib.sha256(previous + number.to_bytes(8, "big") + body).digest()


def _connect(path: Path | None, mode: Literal["write", "read"]) -> sqlite3.Connection:
    if path is None:
        return _as_written(sqlite3.connect(":memory:", isolation_level=None))
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
    # Durable before `charge` returns: the file, and the folder that holds its journal.
    connection.execute("PRAGMA synchronous = EXTRA")
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
    except sqlite3.Error as error:
        damaged = getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_CORRUPT
        kind = LedgerTampered if damaged else LedgerUnusable
        raise kind(f"ledger {name} cannot be {verb}: {error}") from error
