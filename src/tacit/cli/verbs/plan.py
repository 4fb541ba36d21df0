"""The verb `plan`: what an experiment promises and costs, before it touches data."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit.cli import output

if TYPE_CHECKING:
    from tacit.experiments.experiment import Experiment
    from tacit.privacy.plan import Plan

ONE_MORE = "add or remove one"


def plan(path: Path, changes: Sequence[str] = ()) -> tuple[str, dict[str, Any], list[str]]:
    """The name, the plan as plain data, and the sentences of its statement."""
    from tacit.experiments import attacks, experiment, studies

    if studies.has_study_table(path, changes):
        study = studies.read(path, changes)
        read, also = study.example, {"study": {"runs": len(study.cells), "of": study.size}}
    elif attacks.has_attack_table(path, changes):
        asked = attacks.read(path, changes)
        runs = len(asked.promises) * len(asked.attacks) * len(asked.rules)
        read, also = asked.experiment, {"trials": runs}
    else:
        read, also = experiment.read(path, changes), {}
    made = read.plan()
    also |= _price_before(read, made)
    return read.name, {"experiment": read.name, **made.as_dict(), **also}, made.statement.sentences()


def _price_before(read: "Experiment", made: "Plan") -> dict[str, Any]:
    """Price earlier runs on the same data, as their book is found by path; no data are read.

    Raises:
        BudgetExhausted: The lifetime budget of these people does not bear this plan.
    """
    from tacit.privacy.policy import Privacy
    from tacit.runs.data_books import book_by_path

    files: tuple[str, ...] = getattr(read.data, "paths", ())
    if not isinstance(read.privacy, Privacy) or read.privacy.rehearsal or not files:
        return {}
    book = book_by_path(files)
    book.check(made.releases)
    total = book.total(read.privacy.delta, read.privacy.unit)
    return {"all_runs": total.as_dict()} if total.runs or total.lifetime else {}


def show_plan(made: dict[str, Any], sentences: list[str]) -> None:
    """The plan for people."""
    told = _promise(made)
    if "trials" in made:
        told.append(("trials", f"{made['trials']} runs: every attack, and none, against every rule"))
    if "study" in made:
        told.append(("study", f"{made['study']['runs']} runs: {made['study']['of']}; this is one of them"))
    if "all_runs" in made:
        from tacit.privacy.ledger.total import so_far

        told.append(("all runs", so_far(made["all_runs"])))
    output.print_rows(told + [("warning", warning) for warning in made["warnings"]])
    output.say("")
    output.print_sentences(sentences)


def _promise(made: dict[str, Any]) -> list[tuple[str, str]]:
    promise, rounds = made["promise"], made["rounds"]
    if promise["unit"] is None:
        return [("promise", "none: this run is open")]
    change = ONE_MORE if promise["relation"] == "add-remove" else "replace one"
    # Where every party holds columns of the same records, one is exchanged at all of them.
    where = "" if promise["unit"] != "record" else " at any site" if change == ONE_MORE else " at all parties"
    spends = made["spends"]
    refused = " and be refused" if made["budget"] is not None and spends[rounds + 1] > made["budget"] else ""
    rdp = made["comparisons"]["rdp"]
    beside = f" (RDP would claim {output.format_price(rdp)})" if rdp is not None else ""
    cost, one_more = output.format_price(promise["epsilon"]), output.format_price(spends[rounds + 1])
    return [
        (
            "promise",
            f"any one {promise['unit']}{where} · epsilon {cost} · delta {promise['delta']:g} · {change}",
        ),
        ("noise", f"multiplier {made['noise_multiplier']:.4f} of the clip bound{beside}"),
        *_snr_rows(made.get("signal")),
        *_prices(rounds, output.format_price(spends[1]), cost, f"would bring {one_more}{refused}"),
    ]


def _snr_rows(signal: dict[str, Any] | None) -> list[tuple[str, str]]:
    """How long updates are against their noise, where that is known."""
    if signal is None:
        return []
    lengths = (
        f"by the bound, a mean update is at most {signal['update']:.3g} long, its noise {signal['noise']:.3g}"
    )
    return [("signal", f"{lengths}; over all rounds {signal['whole']:.3g} to 1 at best")]


def _prices(rounds: int, first: str, cost: str, more: str) -> list[tuple[str, str]]:
    """What the first round costs, and what all of them do."""
    if rounds == 1:
        return [("price", f"{cost} for the one round; another {more}")]
    spends = f"{cost} after {rounds} rounds; one more {more}"
    return [("price", f"{first} for the first round"), ("spends", spends)]
