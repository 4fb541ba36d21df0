"""What the verbs do. Heavy imports happen here, after a verb was chosen."""

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tacit.cli import output
from tacit.errors import InvalidFile, InvalidValue, require_count, require_rate
from tacit.privacy.accounting.release import Relation

NAMES = {
    "rdp": "Renyi (RDP)",
    "zcdp": "zero-concentrated (zCDP)",
    "advanced": "advanced composition",
    "basic": "basic composition",
}


def price(
    *,
    epsilon: float | None,
    noise_multiplier: float | None,
    delta: float,
    steps: int,
    rate: float,
    relation: Relation,
    mechanism: Any,  # noqa: ANN401
) -> dict[str, Any]:
    """Noise from epsilon or epsilon from noise, beside what other theorems would say."""
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
    return {
        "noise_multiplier": noise,
        "epsilon": accounting.epsilon(releases, delta),
        "target": epsilon,
        "delta": delta,
        "steps": steps,
        "rate": rate,
        "relation": relation,
        "mechanism": mechanism,
        "comparisons": accounting.compare(releases, delta),
    }


def show_price(answer: dict[str, Any]) -> None:
    """The answer for people."""
    per_step = "" if answer["rate"] == 1 else f", each joined with probability {answer['rate']:g}"
    output.print_rows([
        ("noise", f"{answer['noise_multiplier']:.4f} times the clip bound ({answer['mechanism']})"),
        ("epsilon", f"{output.format_price(answer['epsilon'])} at delta {answer['delta']:g}"),
        (
            "for",
            f"{output.pluralise(answer['steps'], 'release')}{per_step}; neighbours: {answer['relation']}",
        ),
    ])  # fmt: skip
    output.say("")
    rows = [("what we claim", output.format_price(answer["epsilon"]))]
    rows += [(NAMES[name], output.format_price(value)) for name, value in answer["comparisons"].items()]
    output.print_table(("by theorem", "epsilon"), rows)


def verify(path: Path, delta: float | None) -> dict[str, Any]:
    """Check a ledger: its file, its chain, its price and, in a run, what the run knows of it."""
    from tacit.privacy.ledger import store
    from tacit.runs.verification import run_of, verify_run

    found = vars(store.verify(path, delta))
    run = run_of(path)
    known = () if run is None else verify_run(run).problems
    if known and found["valid"]:
        found |= {"valid": False, "epsilon": math.inf, "problems": known}
    return {"path": str(path), **found}


def show_verification(found: dict[str, Any]) -> None:
    """What the check found, for people."""
    if not found["valid"]:
        output.print_rows([("damaged", problem) for problem in found["problems"]])
        return
    output.print_rows([
        ("valid", f"{output.pluralise(found['events'], 'release')}, every hash fits"),
        _spent(found),
        *_by_basis(found),
        ("head", found["head"]),
    ])  # fmt: skip


def show_account(found: dict[str, Any]) -> None:
    """The ledger for people."""
    output.print_table(
        ("row", "subject", "for", "law", "noise", "sensitivity", "rate", "count", "running epsilon"),
        [
            (
                str(row["number"]),
                row["subject"],
                row["purpose"],
                row["law"],
                f"{row['scale']:.4g}",
                f"{row['sensitivity']:.4g}",
                f"{row['rate']:g}",
                str(row["count"]),
                output.format_price(row["running_epsilon"]),
            )
            for row in found["releases"]
        ],
    )
    output.say("")
    budgets = [
        (f"budget of {'everybody' if name == '*' else name}", f"{b['epsilon']:g} at delta {b['delta']:g}")
        for name, b in found["budgets"].items()
    ]
    output.print_rows([_spent(found), *_by_basis(found), *budgets, *_unbound(found)])


def _spent(found: dict[str, Any]) -> tuple[str, str]:
    if not found["events"]:
        return "epsilon", "nothing was charged: what an open run lets out is not on its ledger"
    return "epsilon", f"{output.format_price(found['epsilon'])} at delta {found['delta']:g}"


def _unbound(found: dict[str, Any]) -> list[tuple[str, str]]:
    """Say what the total of several plans means where no budget was set for them."""
    if found["budgets"] or found["plans"] <= 1:
        return []
    from tacit.privacy.ledger.total import SET_ONE

    way_out = f" ({SET_ONE})" if "data" in found else ""
    return [
        (
            "note",
            "as much as a budget fixed in advance; none is set, so deciding by results to go on may raise "
            f"delta{way_out}",
        )
    ]


def _by_basis(found: dict[str, Any]) -> list[tuple[str, str]]:
    """What the same releases cost as one plan, and as plans of which each may follow from the last."""
    if not found["events"]:
        return []
    return [
        ("as a fixed plan", output.format_price(found["epsilon_as_planned"])),
        ("as a lifetime", output.format_price(found["epsilon_as_lifetime"])),
    ]


def new(workload: str) -> Path:
    """Write a commented experiment file that runs as it is; never over another."""
    from importlib.resources import files

    target = Path(f"{workload}.toml")
    text = files("tacit.experiments").joinpath("templates", target.name).read_text(encoding="utf-8")
    try:
        with target.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise InvalidValue(f"{target} is there already: move it, or work with it") from None
    except OSError as error:
        raise InvalidFile(f"{target} cannot be written: {error.strerror}") from error
    return target


def show(paths: Sequence[Path]) -> tuple[list[dict[str, Any]], str]:
    """Runs as plain data, and for people: the summary of one, a comparison of several.

    What every attack did to every rule, or a study, has a table of its own, and is shown as that.
    """
    from tacit.experiments import attacks, experiment, studies, sweeps
    from tacit.reports.text import side_by_side
    from tacit.runs.directory import AUDIT

    done = [
        sweeps.load(path)
        or studies.load(path)
        or attacks.load(path)
        or (_audit(path) if (path / AUDIT).is_file() else None)
        or experiment.load(path)
        for path in paths
    ]
    done = [_void_unsound_price(each) for each in done]
    found = [each.as_dict() for each in done]
    runs = [each for each in done if hasattr(each, "report_data")]
    beside = [side_by_side([run.as_dict() for run in runs])] if len(runs) > 1 else []
    alone = [each.summary() for each in done if not beside or each not in runs]
    return found, "\n\n".join([*beside, *alone, *_broken(runs)])


def _void_unsound_price(shown: Any) -> Any:  # noqa: ANN401
    """A run as it is, or with nothing proven of its price where its files contradict each other."""
    from dataclasses import replace

    from tacit.runs.run import Run
    from tacit.runs.verification import verify_run

    if not isinstance(shown, Run) or shown.path is None or shown.privacy.unit is None:
        return shown
    if not verify_run(shown.path).problems:
        return shown
    prices = dict.fromkeys(shown.privacy.subjects, math.inf)
    return replace(shown, privacy=replace(shown.privacy, epsilon=math.inf, subjects=prices))


def _audit(path: Path) -> Any:  # noqa: ANN401
    """The audit that a directory remembers by itself, if it does."""
    from tacit.audits import load

    return load(path)


def _broken(runs: Iterable[Any]) -> list[str]:
    """What audits say of runs whose promise they found broken."""
    from tacit.reports.audit import verdict

    audits = [(run.name, run.report_data().audit) for run in runs]
    told = [(name, verdict(found)) for name, found in audits if found is not None]
    return [f"audit of {name}: {words}" for name, (tone, words) in told if tone == "stop"]


def require_sound(paths: Iterable[Path]) -> None:
    """Say which runs have a ledger or statement that does not verify, and end with the exit code of that."""
    from tacit.runs.verification import verify_run

    judged = [(path, verify_run(path)) for path in paths]
    for path, found in judged:
        for problem in found.ledger:
            output.log(f"tacit: the ledger of {path} does not verify: {problem}", quiet=False)
        for problem in found.statement:
            output.log(f"tacit: the statement of {path} does not verify: {problem}", quiet=False)
    if any(found.problems for _, found in judged):
        raise SystemExit(output.VERIFICATION_FAILED)


def require_sound_ledger(path: Path) -> None:
    """End with the exit code of that where a ledger is a run's and the run contradicts it."""
    from tacit.runs.verification import run_of

    run = run_of(path)
    require_sound([] if run is None else [run])


def listing(what: str) -> dict[str, str]:
    """What there is to choose from, each with one line."""
    from tacit.experiments.experiment import KINDS

    tables = {
        "tasks": "task", "data": "data", "splits": "sites", "aggregators": "aggregation",
        "attacks": "attack",
    }  # fmt: skip
    known = KINDS[tables[what]]
    found = {name: _first_words(kind) for name, kind in known.items()}
    return _data(found) if what == "data" else found


def _first_words(kind: type[Any]) -> str:
    """What a docstring begins with, on one line."""
    return " ".join((kind.__doc__ or "").partition("\n\n")[0].split())


def _data(found: dict[str, str]) -> dict[str, str]:
    """Kinds of data, with the designs of simulated ones, and whether published ones are at hand."""
    from tacit.functional.data import DESIGNS as CURVES
    from tacit.survival.data import DESIGNS
    from tacit.survival.data.cards import CARDS, INSTALL

    own = {name: line for name, line in found.items() if name not in CARDS}
    designs = {f"simulated, {name}": line for name, line in DESIGNS.items()}
    designs |= {f"simulated-curves, {name}": line for name, line in CURVES.items()}
    sets = {
        name: f"{card.line} ({'installed' if card.installed else f'missing: {INSTALL[card.package]}'})"
        for name, card in CARDS.items()
    }
    return own | designs | sets


def show_listing(found: dict[str, str]) -> None:
    """The choices for people."""
    output.print_rows(list(found.items()))
