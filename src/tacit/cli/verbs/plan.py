"""Verbs that read no data: the privacy calculator, plans, new files, lists of choices.

Heavy imports happen in the verbs, after one was chosen.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from tacit.cli import output
from tacit.cli.output import Changes, Console, verb
from tacit.errors import InvalidFile, InvalidValue, require_count, require_rate

if TYPE_CHECKING:
    from tacit.experiments.experiment import Experiment
    from tacit.privacy.plan import Plan

ONE_MORE = "add or remove one"
THEOREMS = {
    "rdp": "Renyi (RDP)",
    "zcdp": "zero-concentrated (zCDP)",
    "advanced": "advanced composition",
    "basic": "basic composition",
}
# The table of an experiment file that a topic of `tacit list` is about.
TABLES = {
    "tasks": "task", "data": "data", "splits": "sites", "aggregators": "aggregation", "attacks": "attack",
}  # fmt: skip


@verb()
def privacy(
    console: Console,
    epsilon: Annotated[float | None, typer.Option(help="Budget; the answer is the noise.")] = None,
    noise_multiplier: Annotated[
        float | None, typer.Option(help="Noise in units of the clip bound; the answer is epsilon.")
    ] = None,
    delta: Annotated[float, typer.Option(help="Probability with which the promise may fail.")] = 1e-5,
    steps: Annotated[int, typer.Option(help="Number of releases.")] = 1,
    rate: Annotated[
        float, typer.Option(help="Sampling rate: the probability with which a unit joins a step, in secret.")
    ] = 1.0,
    relation: Annotated[
        Literal["add-remove", "replace"],
        typer.Option(
            help="Difference between neighboring data sets: one unit added or removed, or replaced."
        ),
    ] = "add-remove",
    mechanism: Annotated[
        Literal["gaussian", "laplace", "discrete-laplace"], typer.Option(help="The noise.")
    ] = "gaussian",
) -> None:
    """Compute noise from epsilon, or epsilon from noise.

    Lists the results of other composition theorems for comparison.
    """
    from tacit.privacy import accounting

    if (epsilon is None) == (noise_multiplier is None):
        given = "neither was given" if epsilon is None else "both were given"
        raise InvalidValue(
            f"--epsilon and --noise-multiplier: {given}; give exactly one of them, the other is the answer"
        )
    accounting.require_delta(delta, mechanism)
    require_count("steps", steps)
    require_rate("rate", rate)
    noise = noise_multiplier
    if noise is None:
        assert epsilon is not None
        noise = accounting.calibrate(
            epsilon=epsilon, delta=delta, steps=steps, rate=rate, relation=relation, mechanism=mechanism
        )
    releases = [accounting.clipped_release(noise, count=steps, rate=rate, relation=relation, law=mechanism)]
    asked = {"target": epsilon, "delta": delta, "steps": steps, "rate": rate, "relation": relation}
    answer = {"noise_multiplier": noise, "epsilon": accounting.epsilon(releases, delta), **asked}
    answer |= {"mechanism": mechanism, "comparisons": accounting.compare(releases, delta)}
    console.answer(lambda: answer, lambda: _show_price(answer))


def _show_price(answer: Mapping[str, Any]) -> None:
    per_step = "" if answer["rate"] == 1 else f", sampling rate {answer['rate']:g}"
    releases = output.pluralise(answer["steps"], "release")
    output.print_rows([
        ("noise", f"{answer['noise_multiplier']:.4f} times the clip bound ({answer['mechanism']})"),
        ("epsilon", f"{output.format_price(answer['epsilon'])} at delta {answer['delta']:g}"),
        ("for", f"{releases}{per_step}; neighbors: {answer['relation']}"),
    ])  # fmt: skip
    output.say("")
    rows = [("claimed by Tacit", output.format_price(answer["epsilon"]))]
    rows += [(THEOREMS[name], output.format_price(value)) for name, value in answer["comparisons"].items()]
    output.print_table(("by theorem", "epsilon"), rows)


@verb(trust="if asked")
def plan(
    console: Console,
    file: Annotated[Path, typer.Argument(help="An experiment file.")],
    changes: Changes = None,
) -> None:
    """Show the promise of an experiment and its price.

    Reports why a run would be refused. Reads no data.
    """
    name, made, sentences = plan_file(file, changes or [])
    console.log(f"plan of {name}")
    console.answer(lambda: made, lambda: _show_plan(made, sentences))


def plan_file(path: Path, changes: Sequence[str] = ()) -> tuple[str, dict[str, Any], list[str]]:
    """Plan an experiment: its name, the plan as plain data, and the sentences of its statement."""
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
    """Price earlier runs on the same data, from the book found by path; no data are read.

    Raises:
        BudgetExhausted: The lifetime budget of these people does not bear this plan.
    """
    from tacit.privacy.policy import Privacy
    from tacit.runs.fit import book_by_path

    files = read.data.paths
    if not isinstance(read.privacy, Privacy) or read.privacy.rehearsal or not files:
        return {}
    book = book_by_path(files)
    book.check(made.releases)
    total = book.total(read.privacy.delta, read.privacy.unit)
    return {"all_runs": total.as_dict()} if total.runs or total.lifetime else {}


def _show_plan(made: Mapping[str, Any], sentences: list[str]) -> None:
    told = _promise(made)
    if "trials" in made:
        told.append(("trials", f"{made['trials']} runs: every attack, and none, against every rule"))
    if "study" in made:
        told.append(("study", f"{made['study']['runs']} runs: {made['study']['of']}; this is one of them"))
    if "all_runs" in made:
        from tacit.privacy.ledger.total import so_far

        told.append(("all runs", so_far(made["all_runs"])))
    told += [("choice", sentence) for sentence in made.get("choices", ())]
    if "forecast" in made:
        told.append(("forecast", made["forecast"]["sentence"]))
    output.print_rows(told + [("warning", warning) for warning in made["warnings"]])
    output.say("")
    output.print_sentences(sentences)


def _promise(made: Mapping[str, Any]) -> list[tuple[str, str]]:
    promise, rounds = made["promise"], made["rounds"]
    if promise["unit"] is None:
        return [("promise", "none: this run is open")]
    change = ONE_MORE if promise["relation"] == "add-remove" else "replace one"
    # In vertical data a record is replaced at all parties.
    where = "" if promise["unit"] != "record" else " at any site" if change == ONE_MORE else " at all parties"
    spends = made["spends"]
    refused = " and be refused" if made["budget"] is not None and spends[rounds + 1] > made["budget"] else ""
    rdp = made["comparisons"]["rdp"]
    beside = f" (epsilon would be {output.format_price(rdp)} by RDP)" if rdp is not None else ""
    # Choices are those of a task whose records are bounded without a clip bound.
    bound = "bound of a record, in all rounds together" if made.get("choices") else "clip bound"
    cost, one_more = output.format_price(promise["epsilon"]), output.format_price(spends[rounds + 1])
    kept = f"any one {promise['unit']}{where} · epsilon {cost} · delta {promise['delta']:g} · {change}"
    return [
        ("promise", kept),
        ("noise", f"{made['noise_multiplier']:.4f} times the {bound}{beside}"),
        *_snr_rows(made.get("signal")),
        *_prices(rounds, output.format_price(spends[1]), cost, f"would bring {one_more}{refused}"),
    ]


def _snr_rows(signal: Mapping[str, Any] | None) -> list[tuple[str, str]]:
    """Compare the length of updates to that of their noise, where it is known."""
    if signal is None:
        return []
    lengths = f"a mean update has norm at most {signal['update']:.3g}, its noise norm {signal['noise']:.3g}"
    return [("signal", f"{lengths}; ratio over all rounds at best {signal['whole']:.3g} to 1")]


def _prices(rounds: int, first: str, cost: str, more: str) -> list[tuple[str, str]]:
    if rounds == 1:
        return [("price", f"{cost} for the one round; another {more}")]
    spends = f"{cost} after {rounds} rounds; one more {more}"
    return [("price", f"{first} for the first round"), ("spends", spends)]


@verb()
def new(
    console: Console,
    workload: Annotated[
        Literal["survival", "functional", "control"], typer.Argument(help="Workload of the file.")
    ],
) -> None:
    """Write a commented experiment file, ready to run.

    Never overwrites a file.
    """
    from importlib import resources

    from tacit.runtime import files

    target = Path(f"{workload}.toml")
    text = resources.files("tacit.experiments").joinpath("templates", target.name).read_text(encoding="utf-8")
    try:
        files.create(target, text, 0o666)
    except FileExistsError:
        raise InvalidValue(f"{target} exists already: move it, or use it") from None
    except OSError as error:
        raise InvalidFile(f"{target} cannot be written: {error.strerror}") from error
    console.answer(lambda: {"file": str(target)}, lambda: output.say(str(target)))
    console.log(f"next: tacit plan {target}, then tacit run {target}")


@verb()
def list_choices(
    console: Console,
    what: Annotated[
        Literal["tasks", "data", "splits", "aggregators", "attacks"], typer.Argument(help="Kind of entries.")
    ],
) -> None:
    """List the tasks, data sets, splits, aggregators or attacks."""
    found = describe_choices(what)
    console.answer(lambda: found, lambda: output.print_rows(list(found.items())))


def describe_choices(what: str) -> dict[str, str]:
    """Describe each kind that a table of an experiment file may have in one line."""
    from tacit.experiments.experiment import KINDS

    known = KINDS[TABLES[what]]
    found = {
        name: " ".join((kind.__doc__ or "").partition("\n\n")[0].split()) for name, kind in known.items()
    }
    return _with_designs(found) if what == "data" else found


def _with_designs(found: dict[str, str]) -> dict[str, str]:
    """Add the designs of simulated data, and whether published sets are at hand."""
    from tacit.functional.data import DESIGNS as CURVES
    from tacit.survival.data import DESIGNS
    from tacit.survival.data.published import CARDS, INSTALL

    own = {name: line for name, line in found.items() if name not in CARDS}
    designs = {f"simulated, {name}": line for name, line in DESIGNS.items()}
    designs |= {f"simulated-curves, {name}": line for name, line in CURVES.items()}
    sets = {
        name: f"{card.line} ({'installed' if card.installed else f'missing: {INSTALL[card.package]}'})"
        for name, card in CARDS.items()
    }
    return own | designs | sets
