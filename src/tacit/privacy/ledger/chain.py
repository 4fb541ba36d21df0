"""State of a ledger, computed from its rows, and the chain of hashes that holds them together."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from tacit.errors import InvalidValue, LedgerTampered, require, require_positive
from tacit.privacy import accounting
from tacit.privacy.accounting.release import Release, from_dict, in_any_round
from tacit.privacy.ledger.plans import FORMER_RUN, Basis, Plans, Pricing, max_epsilon, require_plan

# Rows of format 1 have no plans; they are read as `former_plan` says.
FORMAT = 2
GENESIS = hashlib.sha256(b"tacit ledger 1").digest()
EVERYONE = "*"
# Subject of every record at every party: releases about whole sites concern them.
RECORDS = "records"
# Records that a run holds out of training, and scores the model on: the kind of a subject of their own.
HELD_OUT = "held-out records"
# Keys that a reader of rows has beside their content.
BESIDE = ("number", "hash", "running_epsilon")
# Delta of a price when neither the reader, nor a budget, nor a plan sets one.
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
class LedgerState:
    """State of a ledger after its rows.

    Args:
        number: Number of rows.
        head: Hash of the last row.
        budgets: Budget of each subject.
        totals: Number of releases of each kind.
        tickets: Releases charged under each ticket.
        plans: Releases charged under each plan.
        times: Time at which each registered plan began.
        deltas: Delta at which a plan states its price, where it was written down.
    """

    number: int = 0
    head: bytes = GENESIS
    budgets: dict[str, Budget] = field(default_factory=dict[str, Budget])
    totals: Counter[Release] = field(default_factory=Counter[Release])
    tickets: dict[str, list[Release]] = field(default_factory=dict[str, list[Release]])
    plans: Plans = field(default_factory=Plans)
    times: dict[str, str] = field(default_factory=dict[str, str])
    deltas: dict[str, float] = field(default_factory=dict[str, float])

    def append(self, number: object, body: object, digest: object) -> None:
        """Take in the next row; a row that does not fit, or cannot be understood, is refused."""
        expected = self.number + 1
        computed = chain_hash(self.head, expected, body) if isinstance(body, bytes) else None
        if number != expected or not isinstance(body, bytes) or computed is None or computed != digest:
            raise LedgerTampered(
                f"row {expected} does not match the rows before it: it was changed, or a row is missing"
            )
        try:
            self._add(msgspec.json.decode(body, type=dict[str, Any]))
        except (msgspec.MsgspecError, InvalidValue, KeyError, TypeError, ValueError, RecursionError) as error:
            raise LedgerTampered(f"row {expected} cannot be read: {error}") from error
        self.number, self.head = expected, computed

    def _add(self, entry: dict[str, Any]) -> None:
        kind, at = entry.pop("kind"), entry.pop("at")
        if kind == "opened" and entry["format"] in range(1, FORMAT + 1):
            return
        if kind == "budget":
            self.budgets[entry["subject"]] = Budget(entry["epsilon"], entry["delta"])
        elif kind == "plan":
            name, releases = entry["plan"], planned_releases(entry["releases"])
            require_plan(name)
            require(name not in self.plans.known, "plan", name, "one that was not written down before")
            self.plans.register(name, releases, former=entry["resumed"])
            self.times[name] = msgspec.convert(at, type=str)
            if "delta" in entry:
                accounting.require_delta(entry["delta"])
                self.deltas[name] = float(entry["delta"])
        elif kind == "release":
            self._charge(entry)
        else:
            # An entry of a newer version may cost something: it must not be skipped.
            raise InvalidValue(f"kind = {kind!r} is not known to this version")

    def _charge(self, entry: dict[str, Any]) -> None:
        ticket, plan, owed = entry.pop("ticket"), entry.pop("plan", None), entry.pop("owed", False)
        release = from_dict(entry)
        # Party and round do not change the price: equal rounds are counted together.
        aim = in_any_round(release.purpose)
        self.totals[replace(release, count=1, party="", purpose=aim)] += release.count
        if ticket is not None:
            self.tickets.setdefault(ticket, []).append(release)
        name = former_plan(ticket, release, self.number + 1) if plan is None else str(plan)
        self.plans.add(release, name, owed=bool(owed))

    def releases(self) -> list[Release]:
        """Everything released, equal releases counted together."""
        return [replace(release, count=times) for release, times in self.totals.items()]

    def append_entry(self, entry: Mapping[str, Any]) -> None:
        """Append the next row in the form of `Ledger.entries`, whose hash was checked before."""
        self._add({name: value for name, value in entry.items() if name not in BESIDE})
        self.number += 1

    def pricing(self, subject: str, basis: Basis = "valid") -> Pricing:
        """Return the pricing of a subject, with its budget."""
        budget = self.budget(subject)
        limit = None if budget is None else (budget.epsilon, budget.delta)
        return replace(self.plans.pricing(subject, basis), budget=limit)

    def pricings(self, subject: str | None = None, basis: Basis = "valid") -> list[Pricing]:
        """Return the pricings of a subject, or of all subjects; equal ones once."""
        about = self.plans.charged if subject is None else [subject]
        return list(dict.fromkeys(self.pricing(name, basis) for name in about))

    def prices(self, delta: float) -> dict[str, float]:
        """Epsilon of each subject, by its name."""
        return {name: self.pricing(name).epsilon(delta) for name in self.plans.charged}

    def spent(self, delta: float, subject: str | None = None, *, basis: Basis = "valid") -> float:
        """Epsilon of the costliest subject, or of one."""
        return max_epsilon(self.pricings(subject, basis), delta)

    def budget(self, subject: str) -> Budget | None:
        """Return the budget of a subject: its own, or everyone's."""
        return self.budgets.get(subject, self.budgets.get(EVERYONE))

    def usual_delta(self, subject: str | None = None) -> float:
        """Return the default delta for pricing a subject, or everything."""
        budget = self.budget(subject) if subject else None
        if budget is not None:
            return budget.delta
        if self.budgets:
            return min(budget.delta for budget in self.budgets.values())
        stated = self.stated_deltas()
        # At delta 0 nothing but pure releases has a price.
        return min((delta for delta in stated if delta), default=0.0 if stated else USUAL_DELTA)

    def stated_deltas(self) -> list[float]:
        """Return the deltas at which the plans that have begun state their price, smallest first."""
        return sorted({self.deltas.get(plan, USUAL_DELTA) for plan in self.plans.names()})


def former_plan(ticket: str | None, release: Release, number: int) -> str:
    """Return the plan of a row from before rows had plans.

    A run, or a tuning, has charged its own ledger under one ticket for each round: all of that is one plan. A
    site has charged each experiment under a ticket of its own, and whatever has none was asked for by itself:
    each of those may have been chosen by the results of the last.
    """
    if ticket is None:
        return f"#{number}"
    return f"#{ticket}" if release.purpose.startswith("experiment ") else FORMER_RUN


def planned_rows(releases: Iterable[Release]) -> list[dict[str, Any]]:
    """Return all releases of a plan as plain data; equal ones are counted together, with their subjects."""
    counts = Counter[Release]()
    for release in releases:
        counts[replace(release, count=1, party="", purpose="")] += release.count
    about: dict[Release, list[str]] = {}
    for release, times in counts.items():
        whole = "sites" if release.unit == "site" else "records"
        about.setdefault(replace(release, count=times, subject=whole), []).append(release.subject)
    return [{**release.as_dict(), "subject": subjects} for release, subjects in about.items()]


def planned_bytes(releases: Iterable[Release]) -> bytes:
    """Encode the planned rows as bytes, which identify the plan."""
    return msgspec.json.encode(planned_rows(releases))


def planned_releases(rows: object) -> list[Release]:
    """The releases of a plan, from plain data."""
    found = msgspec.convert(rows, type=list[dict[str, Any]])
    return [
        from_dict({**row, "subject": subject})
        for row in found
        for subject in msgspec.convert(row["subject"], type=list[str])
    ]


def chain_hash(previous: bytes, number: int, body: bytes) -> bytes:
    """The hash of a row: it binds the row to its place and to everything before it."""
    return hashlib.sha256(previous + number.to_bytes(8, "big") + body).digest()
