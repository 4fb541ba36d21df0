"""What the rows of a ledger add up to, and the chain of hashes that holds them together."""

import hashlib
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from tacit.errors import InvalidValue, LedgerTampered, require_positive
from tacit.privacy import accounting
from tacit.privacy.release import Release, from_dict, in_any_round

FORMAT = 1
GENESIS = hashlib.sha256(b"tacit ledger 1").digest()
EVERYONE = "*"
# What a ledger is priced at when neither its reader nor its budgets say.
USUAL_DELTA = 1e-5


@dataclass(frozen=True)
class Budget:
    """The most that one subject may be charged, over the whole life of the ledger."""

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        require_positive("budget epsilon", self.epsilon)
        accounting.require_delta(self.delta)


@dataclass
class Account:
    """What the rows add up to.

    Args:
        number: How many rows.
        head: The hash of the last one.
        budgets: What each subject may cost.
        totals: How often each kind of release was made.
        tickets: What was charged under each ticket.
    """

    number: int = 0
    head: bytes = GENESIS
    budgets: dict[str, Budget] = field(default_factory=dict[str, Budget])
    totals: Counter[Release] = field(default_factory=Counter[Release])
    tickets: dict[str, list[Release]] = field(default_factory=dict[str, list[Release]])

    def fold(self, number: object, body: object, digest: object) -> None:
        """Take in the next row; a row that does not fit, or cannot be understood, is refused."""
        expected = self.number + 1
        computed = chained(self.head, expected, body) if isinstance(body, bytes) else None
        if number != expected or not isinstance(body, bytes) or computed is None or computed != digest:
            raise LedgerTampered(
                f"row {expected} does not fit the rows before it: it was changed or is missing"
            )
        try:
            self._add(msgspec.json.decode(body, type=dict[str, Any]))
        except (msgspec.MsgspecError, InvalidValue, KeyError, TypeError, ValueError, RecursionError) as error:
            raise LedgerTampered(f"row {expected} cannot be read: {error}") from error
        self.number, self.head = expected, computed

    def _add(self, entry: dict[str, Any]) -> None:
        kind, _ = entry.pop("kind"), entry.pop("at")
        if kind == "opened" and entry["format"] == FORMAT:
            return
        if kind == "budget":
            self.budgets[entry["subject"]] = Budget(entry["epsilon"], entry["delta"])
        elif kind == "release":
            ticket, release = entry.pop("ticket"), from_dict(entry)
            # Who does not change the price, nor which round: rounds alike are counted together.
            aim = in_any_round(release.purpose)
            self.totals[replace(release, count=1, party="", purpose=aim)] += release.count
            if ticket is not None:
                self.tickets.setdefault(ticket, []).append(release)
        else:
            # What an older version does not know may cost something: it must not be skipped.
            raise InvalidValue(f"kind = {kind!r} is not known to this version")

    def releases(self) -> list[Release]:
        """Everything released, equal releases counted together."""
        return [replace(release, count=times) for release, times in self.totals.items()]

    def budget(self, subject: str) -> Budget | None:
        """What limits a subject: its own budget, or everyone's."""
        return self.budgets.get(subject, self.budgets.get(EVERYONE))

    def usual_delta(self, subject: str | None = None) -> float:
        """At which delta to price a subject, or everything, when nobody says."""
        budget = self.budget(subject) if subject else None
        smallest = min((budget.delta for budget in self.budgets.values()), default=USUAL_DELTA)
        return budget.delta if budget else smallest


def chained(previous: bytes, number: int, body: bytes) -> bytes:
    """The hash of a row: it binds the row to its place and to everything before it."""
    return hashlib.sha256(previous + number.to_bytes(8, "big") + body).digest()
