"""Report of a run, or of several side by side: its document, section by section, with figures.

The order is that of readers' questions: the promise, the data that left, the result, and its course.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from tacit.learning.record import Record, sizes_in_words
from tacit.privacy.ledger import total as all_runs
from tacit.privacy.statement import EXCHANGED, NEIGHBORS, terms_in_words
from tacit.reports import audit
from tacit.reports.data import SCHEMA, ReportData, document, score_name
from tacit.reports.evaluation import NO_SCORE, evaluation_blocks
from tacit.reports.page.blocks import (
    Block,
    Code,
    Facts,
    Figure,
    Folded,
    Grid,
    Items,
    Page,
    Section,
    Text,
    Tone,
)
from tacit.reports.plots.privacy_utility import frontier
from tacit.reports.plots.sites import participation, suspicions
from tacit.reports.plots.training import RunSnapshot, overlay, privacy_line, results, training
from tacit.reports.text import number

LEFT = {
    "released": (
        "Released under the promise",
        "Nothing: the run made no promise.",
    ),
    "public": ("Public", "Nothing beyond the names of the sites."),
    "bare": ("Unprotected", "Nothing."),
}
# The columns of a ledger, for readers who see one for the first time.
COLUMNS = (
    "Each line is a release: its rows in the ledger, the epsilon spent so far, the records or sites that it "
    "is about, its purpose, the number of such releases, the distribution and scale of its noise, the "
    "sensitivity of the released sum, and the sampling rate."
)
# Longer lists are folded.
LONG = 12


def page(run: ReportData, pictures: Sequence[Figure] = ()) -> Page:
    """The report of a run.

    Args:
        run: Data of the run.
        pictures: Figures of its model.
    """
    told = document(run)
    sections = [
        Section("The promise", tuple(_promise(told["promise"]))),
        Section(
            "Data that left the sites",
            tuple(_disclosures(told["left"], told["promise"], under_way=run.under_way)),
        ),
        Section("Result", tuple(_result(told["result"], run))),
        Section("Rounds", tuple(_rounds(told["rounds"], run))),
        Section("Sites", tuple(_sites(told["sites"], run.record))),
        Section("Robustness", tuple(_robustness(told["robustness"], run.record))),
        *([Section("The model", tuple(pictures))] if pictures else []),
        *_audit(told),
        Section("Ledger", tuple(_ledger(told["ledger"]))),
        Section("Reproduce", tuple(_reproduce(told["reproduce"]))),
    ]
    return Page(
        title=run.name,
        lead=lead(told),
        alerts=tuple(Text(alert["words"], alert["tone"]) for alert in told["alerts"]),
        sections=tuple(sections),
        document=told,
    )


def lead(told: Mapping[str, Any]) -> str:
    """Return the lead: task, sites, score and price in one sentence."""
    sites, rounds, result = len(told["sites"]), len(told["rounds"]), told["result"]
    who = "parties" if told["layout"] == "columns" else "sites"
    many = f"{sites} {who} " if sites else ""
    model, counted = f"a federated {told['task']} model", f"{rounds} round{'s' * (rounds != 1)}"
    trained = f"{many}trained {model} in {counted}" if many else f"Training of {model} in {counted}"
    if told["under_way"]:
        trained = f"{many}train {model}; {counted} {'is' if rounds == 1 else 'are'} over"
        trained = trained if many else f"Training of {model}; {counted} {'is' if rounds == 1 else 'are'} over"
    goal, found = result["goal"][0], result["models"][0]["scores"]
    score = f", with {score_name(goal)} {number(found[goal], goal)}" if goal in found else ""
    cost = _so_far(told) if told["under_way"] else price(told["promise"])
    verdict = "".join(f" The model is {words}." for words in result["verdict"])
    return f"{trained}{score}, {cost}.{verdict}"


def _so_far(told: Mapping[str, Any]) -> str:
    """Describe the epsilon of an unfinished run so far, of its total."""
    promise, spent = told["promise"], told["ledger"].get("epsilon")
    if promise["epsilon"] is None or spent is None:
        return price(promise)
    rehearsed = " in rehearsal" * promise["rehearsal"]
    return f"epsilon {spent:.3g} of {promise['planned']:.3g} spent{rehearsed}"


def price(promise: Mapping[str, Any]) -> str:
    """Describe the price in a few words."""
    if promise["unit"] is None:
        return "without any promise of privacy"
    if promise["epsilon"] is None:
        return "at a price that is not bounded"
    at = f"epsilon {promise['epsilon']:.3g} at delta {promise['delta']:g} for any one {promise['unit']}"
    return f"rehearsed with {at}" if promise["rehearsal"] else f"with {at}"


def _promise(promise: Mapping[str, Any]) -> Iterator[Block]:
    if promise["unit"] is None:
        yield Text("No promise: this run is open, and what leaves the sites is not protected.")
    else:
        but = "".join(f", except for {part}" for part in promise["but"])
        against = f"{', '.join(promise['against'])}, and anyone with whom they share what they see"
        if promise["rehearsal"]:
            yield Text("This run is a rehearsal. The same run with secret noise would promise:")
        yield Text(f"Price: {promise['intuition']}")
        yield Text(
            f"Protected: any one {promise['unit']}{but}. Observers see almost the same whether it "
            f"{EXCHANGED[promise['relation']]}."
        )
        if promise.get("all_runs") is not None:
            yield Text(all_runs.in_words(promise["all_runs"]), tone(promise["all_runs"]))
        budget = promise["budget"]
        yield Facts(
            (
                ("Epsilon", "not bounded" if promise["epsilon"] is None else f"{promise['epsilon']:.4g}"),
                *([] if budget is None else [("Budget", f"{budget:g}")]),
                ("Delta", f"{promise['delta']:g}"),
                ("Protected unit", f"any one {promise['unit']}"),
                ("Neighboring data sets", NEIGHBORS[promise["relation"]].format(unit=promise["unit"])),
                ("Holds against", "no observer: it is a rehearsal" if promise["rehearsal"] else against),
                ("Trusted", "; ".join(promise["trusted"]) or "no party"),
            )
        )
    yield Items("Not protected", tuple(promise["not_protected"]))
    if promise["left_out"]:
        yield Items("Left out, because the budget did not cover it", tuple(promise["left_out"]))


def tone(total: Mapping[str, Any]) -> Tone | None:
    """Choose a tone for the total over all runs: plain, where it is that of this run alone."""
    return "mind" if total["runs"] > 1 or total["notes"] else None


def _disclosures(
    left: Mapping[str, Sequence[str]], promise: Mapping[str, Any], *, under_way: bool
) -> Iterator[Block]:
    if promise["unit"] is not None:
        yield Text(f"Terms: {terms_in_words(promise['unit'], promise['relation'])}.")
    if under_way:
        yield Text("The list so far, as planned or known; it is complete when the run is over.", "mind")
    for name, (title, nothing) in LEFT.items():
        yield Items(title, tuple(left[name])) if left[name] else Text(f"{title}: {nothing}")


def _result(result: Mapping[str, Any], run: ReportData) -> Iterator[Block]:
    scores = list(dict.fromkeys(name for model in result["models"] for name in model["scores"]))
    if result["findings"]:
        yield Items("Findings", tuple(result["findings"]))
    if not scores:
        yield from _evaluation(result["evaluation"]) if "evaluation" in result else [Text(NO_SCORE)]
        return
    drawn = results(result, provenance=privacy_line(run.statement))
    if drawn is not None:
        yield Figure("result", drawn, _in_words(result))
    if result["sizes"]:
        yield Text(f"The model was {sizes_in_words(result['sizes'])}.")
    yield Grid(
        "Scores of the models",
        ("", *(model["label"] for model in result["models"])),
        tuple(
            (score_name(score), *(with_ends(model, score) for model in result["models"])) for score in scores
        ),
    )
    yield from _explain_scores(result)


def _explain_scores(result: Mapping[str, Any]) -> Iterator[Block]:
    """Yield the sentences below the scores, and scores that were bought."""
    if result["how"]:
        yield Text(result["how"])
    names = {model["name"]: model["label"] for model in result["models"]}
    if "simplest" in names:
        yield Text(f"{names['simplest']}: {result['simplest']}.")
    if not {"alone", "pooled"}.isdisjoint(names):
        yield Text("The comparison models had the same training without any protection.")
    if "evaluation" in result:
        shown = any(model["scores"] == result["evaluation"].get("scores") for model in result["models"])
        yield from _evaluation(result["evaluation"], shown=shown)


def _evaluation(found: Mapping[str, Any], *, shown: bool = False) -> Iterator[Block]:
    """Yield the scores that were bought on private held-out records, with their price.

    Args:
        found: The evaluation, as plain data.
        shown: True if a table above has these scores already.
    """
    own = {"scores": found.get("scores", {}), "intervals": found.get("intervals", {})}
    rows = tuple((score_name(score), with_ends(own, score)) for score in own["scores"])
    yield from evaluation_blocks(found, None if shown else rows)


def _in_words(result: Mapping[str, Any]) -> str:
    goal = result["goal"][0]
    known = [model for model in result["models"] if goal in model["scores"]]
    return f"{score_name(goal)}: " + "; ".join(
        f"{model['label']} {with_ends(model, goal)}" for model in known
    )


def with_ends(model: Mapping[str, Any], score: str) -> str:
    """A score of a model, with its interval where there is one."""
    if score not in model["scores"]:
        return "-"
    value, ends = number(model["scores"][score], score), model["intervals"].get(score)
    return value if ends is None else f"{value} [{number(ends[0], score)}, {number(ends[1], score)}]"


def _rounds(rounds: Sequence[Mapping[str, Any]], run: ReportData) -> Iterator[Block]:
    if not rounds:
        yield Text("No round is over yet.")
        return
    scores = list(dict.fromkeys(name for row in rounds for name in row["scores"] if "@" not in name))
    # A single round is a point: the result has it already.
    if scores and len(rounds) > 1:
        drawn = training(RunSnapshot(run.record, run.statement))
        first, last = rounds[0], rounds[-1]
        told = "; ".join(
            f"{score_name(name)} from {number(first['scores'].get(name), name)} to "
            f"{number(last['scores'].get(name), name)}"
            for name in scores
        )
        yield Figure("rounds", drawn, f"Round by round: {told}.")
    if scores and run.layout == "environments":
        yield Text(
            "The scores of rounds come from other and often fewer episodes than the result, and differ "
            "slightly."
        )
    header = ("round", "sites", *(score_name(name) for name in scores), "epsilon", "seconds", "left out", "")
    rows = tuple(
        (
            str(row["number"]),
            "secret" if row["sites"] is None else str(row["sites"]),
            *(number(row["scores"].get(name), name) for name in scores),
            "-" if row["epsilon"] is None else f"{row['epsilon']:.4g}",
            "-" if row["seconds"] is None else f"{row['seconds']:.2f}",
            str(row["faults"]),
            f"skipped: {row['skipped']}" if row["skipped"] else "",
        )
        for row in rounds
    )
    yield _foldable("Every round", Grid("Every round", header, rows, sortable=True))


def _sites(sites: Sequence[Mapping[str, Any]], record: Record) -> Iterator[Block]:
    if not sites:
        yield Text("The names of the sites follow when the run is over.")
        return
    columns: dict[str, Callable[[Mapping[str, Any]], str]] = {
        "model": lambda site: _plain(site["model"]),
        "standing": lambda site: _plain(site["standing"]),
        "suspicion": lambda site: "-" if site["suspicion"] is None else f"{site['suspicion']:.2f}",
        "rounds": lambda site: _plain(site["rounds"]),
        "share": lambda site: "-" if site["share"] is None else f"{site['share']:.3f}",
        "left_out": lambda site: str(site["left_out"]),
        "epsilon": lambda site: "-" if site["epsilon"] is None else f"{site['epsilon']:.4g}",
        "bytes": lambda site: f"{site['bytes'] / 2**20:.2f}" if "bytes" in site else "-",
    }
    names = {
        "rounds": "rounds aggregated",
        "share": "mean share of the aggregate",
        "left_out": "updates left out",
        "epsilon": "epsilon of its records",
        "bytes": "MB sent",
    }
    known = [name for name in columns if any(site.get(name) is not None for site in sites)]
    rows = tuple((site["name"], *(columns[name](site) for name in known)) for site in sites)
    header = ("site", *(names.get(name, name) for name in known))
    drawn = participation(record, [site["name"] for site in sites])
    if drawn is not None:
        yield Figure(
            "taking-part", drawn, f"Share of each of {len(sites)} sites in the aggregate of each round."
        )
    yield _foldable(f"All {len(sites)} sites", Grid("The sites", header, rows, sortable=True))


def _robustness(robustness: Mapping[str, Any], record: Record) -> Iterator[Block]:
    watch = (
        "The server watches the updates for signs of dishonest sites (quarantine)."
        if robustness["watch"]
        else "The server does not watch for dishonest sites (no quarantine)."
    )
    yield Text(f"The server combines updates by the rule {robustness['rule']}. {watch}")
    yield (
        Items("Trouble", tuple(robustness["trouble"]))
        if robustness["trouble"]
        else Text("Every requested update was well-formed, and was aggregated.", "good")
    )
    drawn = suspicions(record)
    if drawn is not None:
        yield Figure("suspicions", drawn, "Suspicion against each site, round by round.")
    for title, key in (("Changes of standing", "decisions"), ("Updates left out", "faults")):
        rows = robustness[key]
        if rows:
            cells = tuple(tuple(str(value) for value in row.values()) for row in rows)
            yield _foldable(title, Grid(title, tuple(rows[0]), cells, sortable=True))


def _audit(told: Mapping[str, Any]) -> Iterator[Section]:
    """Yield the section of an audit, or the command for one; none for open or unfinished runs."""
    if told["audit"] is not None:
        yield Section(audit.HEADING, tuple(audit.blocks(told["audit"])))
    elif told["promise"]["unit"] is not None and told["run"] is not None and told["auditable"]:
        words = "No audit yet. This command attacks the run with canaries, and adds its findings here:"
        yield Section(audit.HEADING, (Text(words), Code(f"tacit audit {told['run']}")))


def _ledger(ledger: Mapping[str, Any]) -> Iterator[Block]:
    if ledger.get("valid") is False:
        yield Text("The ledger does not verify: it does not show what was charged.", "stop")
        return
    if not ledger.get("events"):
        yield Text("Nothing was charged: the run made no release under a promise.")
        return
    state = "every hash matches" if ledger["valid"] else "in memory only"
    yield Facts(
        (
            ("Releases", f"{ledger['events']:,}; {state}"),
            *(
                []
                if ledger["epsilon"] is None
                else [("Epsilon", f"{ledger['epsilon']:.4g} at delta {ledger['delta']:g}")]
            ),
            *(
                (
                    "Budget" if name == "*" else f"Budget of {name}",
                    f"{b['epsilon']:g} at delta {b['delta']:g}",
                )
                for name, b in ledger["budgets"].items()
            ),
            *([] if ledger["head"] is None else [("Head", ledger["head"])]),
        )
    )
    yield Text(COLUMNS)
    yield releases("All releases; equal ones share a line", ledger, sortable=True)


def releases(caption: str, ledger: Mapping[str, Any], *, sortable: bool = False) -> Grid:
    """Return the charges of a ledger, line by line."""
    rows = tuple(
        (
            str(row["first"]) if row["first"] == row["last"] else f"{row['first']} to {row['last']}",
            "-" if row["running_epsilon"] is None else f"{row['running_epsilon']:.4g}",
            re.sub(r"^(\d+) subjects$", r"\1 sites", str(row["subject"])),
            str(row["purpose"]),
            str(row["count"]),
            str(row["law"]),
            f"{row['scale']:.4g}",
            f"{row['sensitivity']:.4g}",
            f"{row['rate']:g}",
        )
        for row in ledger["releases"]
    )
    # What matters comes first: on a narrow screen the last columns are out of sight.
    header = ("rows", "epsilon so far", "about", "for", "count", "noise", "scale", "sensitivity", "rate")
    return Grid(caption, header, rows, sortable=sortable)


def _reproduce(reproduce: Mapping[str, Any]) -> Iterator[Block]:
    if reproduce["command"]:
        yield Code(reproduce["command"])
    if reproduce["caution"]:
        yield Text(reproduce["caution"])
    environment = tuple((name, str(value)) for name, value in reproduce["environment"].items())
    if environment:
        yield Facts(environment)
    if reproduce["experiment"]:
        yield Folded("The experiment, with every default", (Code(reproduce["experiment"]),))


def _foldable(title: str, grid: Grid) -> Block:
    return grid if len(grid.rows) <= LONG else Folded(f"{title} ({len(grid.rows)})", (grid,))


def _plain(value: object) -> str:
    return "-" if value is None else str(value)


# Several runs side by side


ADDED = (
    "Each run states its own price. The prices of runs on the same people add up, and choosing the best run "
    "costs too: to choose within one promise, use tacit tune."
)


def comparison(runs: Mapping[str, ReportData]) -> Page:
    """The report of several runs.

    Args:
        runs: Data of each run, by a unique name.
    """
    told = {name: document(run) for name, run in runs.items()}
    alerts = tuple(
        Text(f"{name}: {alert['words']}", alert["tone"])
        for name, each in told.items()
        for alert in each["alerts"]
        if alert["tone"] == "stop" or each["promise"]["unit"] is not None
    )
    sections = (
        Section("Result", tuple(_result_table(told))),
        Section("Rounds", tuple(_overlay(runs))),
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
    """Return a sentence about the run with the best common score, if there is one."""
    goals = {tuple(each["result"]["goal"]) for each in told.values()}
    if len(goals) > 1:
        return f"{len(told)} runs with different scores, side by side."
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
    useless = [name for name, each in told.items() if each["result"]["verdict"]]
    if best in useless:
        return f"Of {len(told)} runs, {best} has the best {score_name(score)}, and it is " + (
            f"{told[best]['result']['verdict'][0]} ({price(told[best]['promise'])})."
        )
    return f"Of {len(told)} runs, {best} has the best score: {found}, {price(told[best]['promise'])}."


def _result_table(told: Mapping[str, Mapping[str, Any]]) -> Iterator[Block]:
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
        yield Text("* A rehearsal: the noise repeats with the seed, so it gives no protection.")
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


def _overlay(runs: Mapping[str, ReportData]) -> Iterator[Block]:
    drawn = overlay({name: run.record for name, run in runs.items()})
    if drawn is None:
        yield Text("The runs have no common score that was recorded in every round.")
        return
    lengths = ", ".join(f"{name} {len(run.record.rounds)}" for name, run in runs.items())
    yield Figure("overlay", drawn, f"Scores of the runs, round by round; number of rounds: {lengths}.")


def _promises(told: Mapping[str, Mapping[str, Any]]) -> Iterator[Block]:
    if sum(each["promise"]["unit"] is not None for each in told.values()) > 1:
        yield Text(ADDED)
    header = ("run", "trusted", "unprotected", "ledger")
    yield Grid(
        "Trusted parties and unprotected data of each run",
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
