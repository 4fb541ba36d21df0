"""Runs that nobody ran, for reports."""

from dataclasses import replace

from tacit.learning.record import Decision, Fault, Record, Round, Standing
from tacit.privacy.accounting.release import Release
from tacit.privacy.ledger.view import ledger_summary
from tacit.privacy.policy import Open, Privacy
from tacit.privacy.statement import state
from tacit.reports.data import ReportData

DELTA = 1e-5
FILE = """name = "made-up"
rounds = 3

[aggregation]
kind = "trimmed-mean"
f = 1

[quarantine]
kind = "watch"
"""


def releases(names, rounds: int, *, scale: float = 4.0) -> list[Release]:
    return [
        Release(
            scale=scale, sensitivity=1.0, rate=0.5, subject=f"records@{name}", party=name,
            purpose=f"round {number}", rehearsal=True,
        )
        for number in range(1, rounds + 1)
        for name in names
    ]  # fmt: skip


def record(names=("oslo", "bergen"), rounds: int = 3) -> Record:
    entries = tuple(
        Round(
            number=number, rounds=rounds, sites=len(names), scores={"c_index": 0.5 + 0.01 * number},
            epsilon=0.5 * number, budget=3.0, seconds=0.1, shares=dict.fromkeys(names, 1 / len(names)),
        )
        for number in range(1, rounds + 1)
    )  # fmt: skip
    return Record(
        rounds=entries,
        chosen=rounds,
        scores={"c_index": 0.63, "ibs": 0.2},
        baselines={"alone": {"c_index": 0.6, "ibs": 0.22}, "pooled": {"c_index": 0.64, "ibs": 0.19}},
        intervals={"federated": {"c_index": (0.61, 0.65)}},
        sites=tuple(names),
    )


def troubled(names=("oslo", "bergen"), rounds: int = 3) -> Record:
    """A run in which the first site lied, and was found out."""
    plain, (liar, *_) = record(names, rounds), names
    last = replace(
        plain.rounds[-1],
        faults=(Fault(site=liar, reason="not-finite", detail="NaN"),),
        standings={name: Standing(status="quarantined" if name == liar else "active") for name in names},
        decisions=(Decision(site=liar, was="watch", now="quarantined", reason="too far from the others"),),
    )
    return replace(plain, rounds=(*plain.rounds[:-1], last))


def private(made: Record | None = None, **changes) -> ReportData:
    """Report data of a rehearsal that protects records."""
    known = made or record()
    promise = Privacy(unit="record", epsilon=3, delta=DELTA, clip=1.0, rehearsal=True)
    charged = releases(known.sites, len(known.rounds))
    given = ReportData(
        name="made-up", task="logistic-hazard", layout="rows", goal=("c_index", "max"), record=known,
        statement=state(promise, charged), ledger=ledger_summary(None, charged, DELTA), text=FILE,
        environment={"python": "3.11", "tacit": "0.1.0"},
    )  # fmt: skip
    return replace(given, **changes)


def bare(**changes) -> ReportData:
    """Report data of an open run."""
    return private(statement=state(Open(), ()), ledger=ledger_summary(None, (), None), **changes)
