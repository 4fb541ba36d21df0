"""Report data: a run as one document of plain data, as `tacit report -o FILE.json` writes it.

Everything in it has left the sites already, or is public. It reads no records and needs no model.
"""

import hashlib
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tacit.learning.record import Record, plain_table
from tacit.privacy.policy import is_all_public
from tacit.privacy.statement import Statement
from tacit.reports.audit import verdict
from tacit.reports.text import NAMES
from tacit.runtime.contracts import fields_of
from tacit.runtime.tables import parse

SCHEMA = 1
# Epsilon above which one unit's data can nearly be read off; few would call that private.
LARGE = 10.0
# Two prices are equal up to the grids that they were computed on.
CLOSE = 1e-3
LABELS = {"federated": "federated", "alone": "each site alone", "pooled": "pooled"}
PARTIES = {**LABELS, "alone": "active party alone"}
LOW, HIGH = "_low", "_high"
OF_ROUND = ("number", "sites", "scores", "epsilon", "seconds", "skipped")
AGAIN = (
    "The noise was secret: another run gives other numbers, and its epsilon adds to the price of this one."
)
# Directories on the machine of a run are left out of its report.
ELSEWHERE = re.compile(r'"(?:[A-Za-z]:[\\/]+|/)(?:[^"\n/\\]*[\\/]+)*([^"\n/\\]+)(?=")')
JACKKNIFE = (
    "Intervals: 95 %, by a jackknife over twenty groups of the held-out records. Models are not trained "
    "again: "
    "the intervals do not contain the variation from training records and noise."
)
BOUGHT = (
    "Scores and intervals come from one noisy table of counts of private held-out records. Intervals: 95 %, "
    "by a bootstrap of the table; they cover the draw of these records and the noise, but no other training."
)
EPISODES = "Intervals: 95 %, by a bootstrap over episodes. Agents are not trained again."


@dataclass(frozen=True, eq=False, kw_only=True)
class ReportData:
    """Data of a run, as a report needs them.

    Args:
        name: Its name.
        task: The kind of task.
        layout: Whether sites hold records, columns or worlds.
        goal: The score that counts, and its good direction.
        record: The record of its rounds.
        statement: The promise and its price.
        ledger: Its ledger, as `privacy.ledger.view` describes it.
        text: The experiment file that reproduces it.
        environment: The machine and the versions that it ran on.
        path: Its directory.
        under_way: Whether it goes on; then its statement is that of its plan.
        audit: The results of attacks on it, if there were any.
        sent: Bytes that each site sent in all, if known.
    """

    name: str
    task: str
    layout: str
    goal: tuple[str, str]
    record: Record
    statement: Statement
    ledger: Mapping[str, Any]
    text: str = ""
    environment: Mapping[str, Any] = field(default_factory=dict[str, Any])
    path: str | None = None
    under_way: bool = False
    audit: Mapping[str, Any] | None = None
    sent: Mapping[str, int] = field(default_factory=dict[str, int])

    @property
    def experiment(self) -> dict[str, Any]:
        """The tables of the file."""
        return parse(self.text, "experiment.toml")


def document(run: ReportData) -> dict[str, Any]:
    """The document of a run."""
    statement = replace(run.statement, epsilon=proven_epsilon(run))
    promise = {**statement.as_dict(), "sentences": statement.sentences()}
    left = {name: list(promise.pop(name)) for name in ("released", "public", "bare")}
    budget = run.record.rounds[-1].budget if run.record.rounds else None
    planned = run.statement.as_dict()["epsilon"]
    return {
        "schema": SCHEMA,
        "kind": "run",
        "name": run.name,
        "task": run.task,
        "layout": run.layout,
        "run": run.path,
        "under_way": run.under_way,
        "alerts": alerts(run),
        "promise": {**promise, "budget": budget, "planned": planned, "intuition": statement.price()},
        "left": left,
        "result": _result(run),
        "rounds": [
            {**fields_of(entry, OF_ROUND), "faults": len(entry.faults)} for entry in run.record.rounds
        ],
        "sites": _sites(run),
        "robustness": _robustness(run),
        "audit": audit(run),
        "auditable": _auditable(run),
        "ledger": dict(run.ledger),
        "reproduce": _reproduce(run),
    }


def proven_epsilon(run: ReportData) -> float | None:
    """Return the proven epsilon: by the statement, or by the ledger if that was charged for more.

    A ledger that does not verify proves nothing.
    """
    if run.statement.unit is None or run.statement.epsilon is None:
        return None
    if run.ledger.get("valid") is False:
        return math.inf
    # While a run goes on its statement is that of its plan, which the ledger reaches in the end.
    return max(run.statement.epsilon, run.ledger.get("epsilon") or 0.0)


def alerts(run: ReportData) -> list[dict[str, str]]:
    """Return the alerts, which come before everything else."""
    found = [
        *_about_the_promise(replace(run.statement, epsilon=proven_epsilon(run))),
        *_about_the_ledger(run),
    ]
    found += _about_the_audit(run)
    done = len(run.record.rounds)
    rounds = f"{done} round{'s' * (done != 1)}"
    for words in run.record.verdict:
        # A gain that may be chance is something to mind; a loss is not to be relied on.
        found.append(("stop" if words.startswith("not better") else "mind", f"This model is {words}."))
    if run.record.stopped:
        found.append(("mind", f"Ended early, after {rounds}: {run.record.stopped}."))
    if run.under_way:
        found.append(("mind", f"Not over: this page shows the state after {rounds}."))
    found += [("mind", f"Trouble: {line}.") for line in run.record.warnings()]
    found += [("mind", f"{note[:1].upper()}{note[1:].rstrip('.')}.") for note in run.record.notes]
    return [{"tone": tone, "words": words} for tone, words in found]


def _about_the_ledger(run: ReportData) -> Iterator[tuple[str, str]]:
    stated, found = run.statement.epsilon, run.ledger.get("epsilon")
    if run.ledger.get("valid") is False:
        yield "stop", f"The ledger does not verify: {'; '.join(run.ledger['problems'])}."
    elif run.ledger.get("disputed"):
        yield "stop", f"The statement does not verify: {'; '.join(run.ledger['disputed'])}."
    elif run.statement.unit is not None and stated is not None and found is not None:
        if found > stated * (1 + CLOSE):
            yield (
                "mind",
                f"The ledger was charged for more than this run states: epsilon {found:.4g} in all, where "
                f"the run ended at {stated:.4g}.",
            )
        elif not run.under_way and found < stated * (1 - CLOSE):
            yield (
                "stop",
                f"The ledger was charged for less than this run states: epsilon {found:.4g}, where the run "
                f"ended at {stated:.4g}. It is not the ledger of this run.",
            )


def audit(run: ReportData) -> dict[str, Any] | None:
    """Return the audit of this very run; None if there is none."""
    found = run.audit
    return None if found is None or found.get("experiment") != fingerprint(run.text) else dict(found)


def _auditable(run: ReportData) -> bool:
    """Return True if the file of a run suffices to run it again here, with canaries in it."""
    known = run.experiment
    here = "data" in known and known.get("engine", {}).get("kind", "local") == "local"
    return here and run.task != "supervised" and not run.under_way


def fingerprint(text: str) -> str:
    """Return the digest of an experiment file."""
    return hashlib.sha256(text.encode()).hexdigest()


def _about_the_audit(run: ReportData) -> Iterator[tuple[str, str]]:
    found = audit(run)
    if found is not None and verdict(found)[0] == "stop":
        yield "stop", f"An audit found the promise broken. {verdict(found)[1]}"
    elif found is None and run.audit is not None:
        yield "mind", "The audit in this directory is of another experiment, and is not shown."


def _about_the_promise(statement: Statement) -> Iterator[tuple[str, str]]:
    if statement.rehearsal:
        yield (
            "stop",
            "Rehearsal: the noise repeats with the seed, so it gives no protection. Use it for simulated and "
            "published records only.",
        )
    if statement.unit is None:
        # Public data need no promise.
        known = is_all_public(statement.public)
        told = "Open run: the data that left the sites are not protected; there is no promise."
        yield (
            ("mind", "Open run on simulated or published data: there is no promise.")
            if known
            else ("stop", told)
        )
    elif statement.epsilon is None or not math.isfinite(statement.epsilon):
        yield "stop", "Nothing can be proven about the privacy of this run."
    elif statement.epsilon > LARGE:
        yield (
            "mind",
            f"Epsilon {statement.epsilon:.3g} is large: the data of one {statement.unit} are hardly hidden.",
        )
    if statement.unit is not None and statement.bare:
        yield "mind", f"Unprotected: {'; '.join(statement.bare)}."


def _result(run: ReportData) -> dict[str, Any]:
    labels = PARTIES if run.layout == "columns" else LABELS
    last = run.record.rounds[-1].scores if run.record.rounds else {}
    known = {"federated": run.record.scores or last, **run.record.baselines}
    simplest = run.record.simplest
    if simplest is not None:
        known["simplest"], labels = simplest.scores, {**labels, "simplest": simplest.name}
    models = [
        {
            "name": name,
            "label": labels.get(name, name),
            **_scores_with_intervals(scores, run.record.intervals.get(name, {})),
        }
        for name, scores in known.items()
    ]
    bought = run.record.evaluation
    how = JACKKNIFE if run.record.intervals else ""
    if bought is not None and run.record.scores == bought.scores:
        how = BOUGHT
    if any(model["intervals"] for model in models) and not how:
        how = EPISODES
    record = run.record
    words = {"findings": list(record.findings), "notes": list(record.notes)}
    words |= {"verdict": list(record.verdict), "simplest": "" if simplest is None else simplest.how}
    told = {"sizes": dict(record.sizes), "chosen": record.chosen, "stopped": record.stopped, **words}
    bought = {} if record.evaluation is None else {"evaluation": plain_table(record.evaluation)}
    return {**told, "goal": list(run.goal), "models": models, "how": how, **bought}


def _scores_with_intervals(
    scores: Mapping[str, float], known: Mapping[str, Sequence[float]]
) -> dict[str, Any]:
    """Return scores with their intervals."""
    ends = {
        name: [scores[f"{name}{LOW}"], scores[f"{name}{HIGH}"]]
        for name in scores
        if f"{name}{LOW}" in scores and f"{name}{HIGH}" in scores
    }
    plain = {name: value for name, value in scores.items() if not name.endswith((LOW, HIGH))}
    return {"scores": plain, "intervals": ends | {name: list(pair) for name, pair in known.items()}}


def _sites(run: ReportData) -> list[dict[str, Any]]:
    """Return the facts about each site that its promise does not hide."""
    rounds, subjects = run.record.rounds, run.statement.as_dict()["subjects"]
    last = rounds[-1].standings if rounds else {}
    model = rounds[run.record.chosen - 1].clusters if rounds and run.record.chosen else {}
    left_out = Counter(fault.site for entry in rounds for fault in entry.faults)
    shares: dict[str, list[float]] = {}
    for entry in rounds:
        for name, share in entry.shares.items():
            shares.setdefault(name, []).append(share)
    return [
        {
            "name": name,
            "model": model.get(name),
            "standing": last[name].status if name in last else None,
            "suspicion": last[name].suspicion if name in last else None,
            "rounds": len(shares[name]) if name in shares else None,
            "left_out": left_out[name],
            "share": sum(shares[name]) / len(shares[name]) if name in shares else None,
            "epsilon": subjects.get(f"records@{name}"),
            **({"bytes": run.sent[name]} if name in run.sent else {}),
        }
        for name in run.record.sites
    ]


def _robustness(run: ReportData) -> dict[str, Any]:
    rounds = run.record.rounds
    rule = run.experiment.get("aggregation", {})
    words = ", ".join(f"{key} {value}" for key, value in rule.items() if key != "kind")
    return {
        "rule": str(rule.get("kind", "mean")) + (f" ({words})" if words else ""),
        "watch": bool(run.experiment.get("quarantine")),
        "trouble": run.record.warnings(),
        "decisions": [
            {
                "round": entry.number,
                **fields_of(change, ("site", "was", "now", "reason")),
            }
            for entry in rounds
            for change in entry.decisions
        ],
        "faults": [
            {"round": entry.number, **fields_of(fault, ("site", "reason", "detail"))}
            for entry in rounds
            for fault in entry.faults
        ],
    }


def _reproduce(run: ReportData) -> dict[str, Any]:
    place = "RUN" if run.path is None else run.path
    own = f"tacit run {place}/experiment.toml" if run.text else ""
    text = ELSEWHERE.sub(r'"\1', run.text)
    private = run.statement.unit is not None and not run.statement.rehearsal
    return {
        "command": own,
        "caution": AGAIN if private else "",
        "experiment": text,
        "environment": dict(run.environment),
    }


def score_name(name: str) -> str:
    """Return the display name of a score."""
    return NAMES.get(name, name.replace("_", " "))
