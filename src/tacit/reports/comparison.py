"""The report of several runs: their scores, promises and rounds side by side."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tacit.reports.data import SCHEMA, ReportData, document, score_name
from tacit.reports.page.blocks import Block, Figure, Grid, Page, Section, Text
from tacit.reports.plots.privacy_utility import frontier
from tacit.reports.plots.training import overlay
from tacit.reports.run import price, with_ends

ADDED = (
    "Each run has a price of its own, as if there were no other. Runs on the same people add up, and so does "
    "choosing the best of them: to choose within one promise, use tacit tune."
)


def comparison(runs: Mapping[str, ReportData]) -> Page:
    """The report of several runs.

    Args:
        runs: What is known of each, by a name that tells it from the others.
    """
    told = {name: document(run) for name, run in runs.items()}
    alerts = tuple(
        Text(f"{name}: {alert['words']}", alert["tone"])
        for name, each in told.items()
        for alert in each["alerts"]
        if alert["tone"] == "stop" or each["promise"]["unit"] is not None
    )
    sections = (
        Section("Result", tuple(_result(told))),
        Section("Rounds", tuple(_rounds(runs))),
        Section("The promises", tuple(_promises(told))),
    )
    return Page(
        title=f"{len(runs)} runs",
        lead=_lead(told),
        alerts=alerts,
        sections=sections,
        document={"schema": SCHEMA, "kind": "comparison", "runs": list(told.values())},
    )


def _lead(told: Mapping[str, Mapping[str, Any]]) -> str:
    """Who did best by the score that all of them have, if there is one."""
    goals = {tuple(each["result"]["goal"]) for each in told.values()}
    if len(goals) > 1:
        return f"{len(told)} runs that learnt different things, side by side."
    score, direction = goals.pop()
    known = {
        name: each["result"]["models"][0]["scores"][score]
        for name, each in told.items()
        if score in each["result"]["models"][0]["scores"]
    }
    if not known:
        return f"{len(told)} runs side by side; none of them has a score."
    pick = max if direction == "max" else min
    best = pick(known, key=lambda name: known[name])
    model = told[best]["result"]["models"][0]
    found = f"{score_name(score)} {with_ends(model, score)}"
    return f"Of {len(told)} runs, {best} did best: {found}, {price(told[best]['promise'])}."


def _result(told: Mapping[str, Mapping[str, Any]]) -> Iterator[Block]:
    models = {name: each["result"]["models"][0] for name, each in told.items()}
    scores = list(dict.fromkeys(score for model in models.values() for score in model["scores"]))
    shown = [score for score in scores if "@" not in score]
    for score in shown[:1]:
        rows = [
            {"name": name, "epsilon": told[name]["promise"]["epsilon"], "score": model["scores"][score]}
            for name, model in models.items()
            if score in model["scores"]
        ]
        drawn = frontier(rows, score_name(score))
        if drawn is not None:
            points = "; ".join(
                f"{row['name']} {row['score']:.4g}"
                + (" open" if row["epsilon"] is None else f" at epsilon {row['epsilon']:.3g}")
                for row in rows
            )
            yield Figure("frontier", drawn, f"{score_name(score)} against epsilon: {points}.")
    header = ("run", "task", "rounds", "epsilon", "delta", "unit", *(score_name(name) for name in shown))
    if any(each["promise"]["rehearsal"] for each in told.values()):
        yield Text("* A rehearsal: the noise repeats with the seed, so it protects nobody.")
    yield Grid(
        "Runs side by side", header, tuple(_row(name, told[name], shown) for name in told), sortable=True
    )


def _row(name: str, told: Mapping[str, Any], scores: Sequence[str]) -> tuple[str, ...]:
    promise, model = told["promise"], told["result"]["models"][0]
    epsilon = "open" if promise["unit"] is None else "not bounded"
    return (
        name,
        told["task"],
        str(len(told["rounds"])),
        epsilon if promise["epsilon"] is None else f"{promise['epsilon']:.4g}{'*' * promise['rehearsal']}",
        "-" if promise["delta"] is None else f"{promise['delta']:g}",
        promise["unit"] or "-",
        *(with_ends(model, score) for score in scores),
    )


def _rounds(runs: Mapping[str, ReportData]) -> Iterator[Block]:
    drawn = overlay({name: run.record for name, run in runs.items()})
    if drawn is None:
        yield Text("They have no score in common that was followed from round to round.")
        return
    lengths = ", ".join(f"{name} {len(run.record.rounds)}" for name, run in runs.items())
    yield Figure("overlay", drawn, f"Scores of the runs, round by round; how many rounds: {lengths}.")


def _promises(told: Mapping[str, Mapping[str, Any]]) -> Iterator[Block]:
    if sum(each["promise"]["unit"] is not None for each in told.values()) > 1:
        yield Text(ADDED)
    header = ("run", "trusted", "bare", "ledger")
    yield Grid(
        "Whom each promise trusts, and what it leaves out",
        header,
        tuple(
            (
                name,
                "; ".join(each["promise"]["trusted"]) or "-",
                "; ".join(each["left"]["bare"]) or "nothing",
                _state(each["ledger"]),
            )
            for name, each in told.items()
        ),
    )


def _state(ledger: Mapping[str, Any]) -> str:
    if not ledger.get("events"):
        return "nothing was charged"
    return {True: "verified", False: "does not verify", None: "in memory"}[ledger["valid"]]
