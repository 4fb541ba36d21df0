"""What the verbs do. Heavy imports happen here, after a verb was chosen."""

import hashlib
import shlex
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit.cli import output
from tacit.errors import InvalidFile, InvalidValue, require_count, require_rate
from tacit.privacy.release import Relation

if TYPE_CHECKING:
    from tacit.run import Run
    from tacit.studies import Studied
    from tacit.trials import Tried
    from tacit.tuning import Candidate, Tuned

# Running prices are recomputed for so many rows of a ledger, spread evenly.
RUNNING_PRICES = 50
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
        given = f"--epsilon {epsilon} and --noise-multiplier {noise_multiplier}"
        raise InvalidValue(f"{given} is not allowed: give exactly one of them, the other is the answer")
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
    output.lines([
        ("noise", f"{answer['noise_multiplier']:.4f} times the clip bound ({answer['mechanism']})"),
        ("epsilon", f"{output.number(answer['epsilon'])} at delta {answer['delta']:g}"),
        ("for", f"{answer['steps']:,} releases{per_step}; neighbours: {answer['relation']}"),
    ])  # fmt: skip
    print()
    rows = [("what we claim", output.number(answer["epsilon"]))]
    rows += [(NAMES[name], output.number(value)) for name, value in answer["comparisons"].items()]
    output.table(("by theorem", "epsilon"), rows)


def verify(path: Path, delta: float | None) -> dict[str, Any]:
    """Check a ledger: its file, its chain, its price."""
    from tacit.privacy import ledger

    found = ledger.verify(path, delta)
    return {"path": str(path), **vars(found)}


def show_verification(found: dict[str, Any]) -> None:
    """What the check found, for people."""
    if not found["valid"]:
        output.lines([("damaged", problem) for problem in found["problems"]])
        return
    output.lines([
        ("valid", f"{found['events']} releases, every hash fits"),
        ("epsilon", f"{output.number(found['epsilon'])} at delta {found['delta']:g}"),
        ("head", found["head"]),
    ])  # fmt: skip


def account(path: Path, delta: float | None) -> dict[str, Any]:
    """A ledger row by row, with what everything cost up to there."""
    from tacit.privacy.accounting import epsilon
    from tacit.privacy.ledger import Ledger
    from tacit.privacy.release import Release, by_subject, from_dict

    with Ledger(path, mode="read") as ledger:
        entries, head = ledger.entries(), ledger.head
        budgets = {name: vars(budget) for name, budget in ledger.budgets().items()}
        chosen = ledger.usual_delta() if delta is None else delta
    rows = [entry for entry in entries if entry["kind"] == "release"]
    fields = Release.__dataclass_fields__
    releases = [from_dict({key: row[key] for key in fields}) for row in rows]
    every = max(len(rows) // RUNNING_PRICES, 1)
    for index, row in enumerate(rows):
        shown = index % every == 0 or index == len(rows) - 1
        row["running_epsilon"] = epsilon(releases[: index + 1], chosen) if shown else None
    return {
        "path": str(path),
        "events": len(rows),
        "valid": True,
        "epsilon": epsilon(releases, chosen),
        "delta": chosen,
        "subjects": {name: epsilon(group, chosen) for name, group in by_subject(releases).items()},
        "budgets": budgets,
        "head": head,
        "releases": rows,
    }


def show_account(found: dict[str, Any]) -> None:
    """The ledger for people."""
    output.table(
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
                output.number(row["running_epsilon"]),
            )
            for row in found["releases"]
        ],
    )
    print()
    budgets = [
        (f"budget {name}", f"{b['epsilon']:g} at delta {b['delta']:g}")
        for name, b in found["budgets"].items()
    ]
    output.lines([("epsilon", f"{output.number(found['epsilon'])} at delta {found['delta']:g}"), *budgets])


def new(workload: str) -> Path:
    """Write a commented experiment file that runs as it is; never over another."""
    from importlib.resources import files

    target = Path(f"{workload}.toml")
    text = files("tacit.templates").joinpath(target.name).read_text(encoding="utf-8")
    try:
        with target.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise InvalidValue(f"{target} is there already: move it, or work with it") from None
    except OSError as error:
        raise InvalidFile(f"{target} cannot be written: {error.strerror}") from error
    return target


def run(
    file: Path, *, changes: Sequence[str], out: Path | None, resume: bool, quiet: bool
) -> "Run | Tried | Studied[Any]":
    """Run an experiment file, or go on with what was cut off; with [attack] or [study], all they ask for."""
    from tacit import experiment, studies, trials
    from tacit.cli import deploying
    from tacit.reports.text import progress

    federation = deploying.coordinators(file)
    if federation is not None:
        if changes not in ([], ["engine.kind=flower"]):
            raise InvalidValue(
                "--set is not allowed where sites have agreed: change the file, and deploy anew"
            )
        return deploying.run(federation, out=out, resume=resume, quiet=quiet)
    if studies.asked_for(file, changes):
        study = studies.read(file, changes)
        place = out or _place(file, f"{study.experiment.name}-study", repr(study), resume=resume)
        with _resumable("run", place):
            done = study.run(place, resume=resume, announce=lambda line: output.talk(line, quiet=quiet))
        for drawn in done.draw(place, announce=lambda line: output.talk(line, quiet=quiet)).values():
            output.talk(f"drawn {drawn}", quiet=quiet)
        return done
    if trials.asked_for(file, changes):
        asked = trials.read(file, changes)
        place = out or _place(file, f"{asked.experiment.name}-attacks", repr(asked), resume=resume)
        with _resumable("run", place):
            return trials.attempt(
                asked, place, resume=resume, announce=lambda line: output.talk(line, quiet=quiet)
            )
    read = experiment.read(file, changes)
    if getattr(read.data, "distant", False):
        raise InvalidValue(
            f"[data] kind = {read.data.kind!r} is at the sites: make their folders (tacit deploy {file}), "
            "and run the coordinator's (tacit run FOLDER)"
        )
    for caution in read.cautions():
        output.talk(f"warning: {caution}", quiet=quiet)
    place = out or _place(file, read.name, repr(read), resume=resume)
    with _resumable("run", place), progress(quiet=quiet) as watcher:
        return read.run(place, resume=resume, callbacks=[watcher])


def tune(file: Path, *, changes: Sequence[str], out: Path | None, resume: bool, quiet: bool) -> "Tuned":
    """Choose among the candidates of an experiment file, or go on with a tuning that was cut off."""
    from tacit import tuning
    from tacit.reports.text import progress

    grid = tuning.read(file, changes)
    name, many = f"{grid.common.name}-tuning", len(grid.candidates)
    place = out or _place(file, name, repr(grid), resume=resume)

    def announce(candidate: "Candidate") -> None:
        output.talk(f"{candidate.name} of {many}: {_in_words(candidate.changes)}", quiet=quiet)

    with _resumable("tune", place), progress(quiet=quiet) as watcher:
        return tuning.tune(grid, place, resume=resume, announce=announce, callbacks=[watcher])


@contextmanager
def _resumable(verb: str, place: Path) -> Generator[None]:
    """Say how to go on with what is interrupted."""
    try:
        yield
    except KeyboardInterrupt:
        words = f"tacit {verb} {shlex.quote(str(place))} --resume"
        output.talk(f"tacit: interrupted; go on with: {words}", quiet=False)
        raise


def show_tuning(done: "Tuned") -> None:
    """The candidates, the choice and its price, for people."""
    from tacit.reports.text import NAMES as SCORES

    score = SCORES.get(done.by[0], done.by[0])
    varied = list(dict.fromkeys(key for trial in done.trials for key in trial.changes))
    by = f"the best {score} on one half of the held-out records; what follows is scored on the other"
    told = {trial.candidate: trial.score for trial in done.trials if trial.score is not None}
    if done.noise is not None:
        # Only differences mean something.
        score, least = "loss above", told[done.chosen]
        told = {name: value - least for name, value in told.items()}
        by = f"the least loss of records kept apart; its noise has standard deviation {done.noise:.4g}"
    output.table(
        ("candidate", *varied, score),
        [
            (
                trial.candidate,
                *(str(trial.changes.get(key, "-")) for key in varied),
                f"{told[trial.candidate]:.4f}" if trial.candidate in told else "-",
            )
            for trial in done.trials
        ],
    )
    print()
    failures = [("failed", f"{trial.candidate}: {trial.failed}") for trial in done.trials if trial.failed]
    chosen = next(trial for trial in done.trials if trial.candidate == done.chosen)
    what = f"{done.chosen}: {_in_words(chosen.changes)}"
    output.lines([*failures, ("chosen", what), ("by", by), ("lies in", str(done.run.path))])
    print()
    print(done.run.summary())


def _in_words(changes: dict[str, Any]) -> str:
    return ", ".join(f"{key} = {value}" for key, value in changes.items())


def _place(file: Path, name: str, read: str, *, resume: bool) -> Path:
    """Where a run lies: under `runs` here, by its name and a fingerprint of its choices.

    The same experiment twice gives two directories; to resume is to go on with the last one.
    """
    from tacit.directory import place_for

    if file.is_dir():
        return file
    choices = hashlib.sha256(read.encode()).hexdigest()[:6]
    return place_for(Path("runs") / f"{name}-{choices}", resume=resume)


def show(paths: Sequence[Path]) -> tuple[list[dict[str, Any]], str]:
    """Runs as plain data, and for people: the summary of one, a comparison of several.

    What every attack did to every rule, or a study, has a table of its own, and is shown as that.
    """
    from tacit import experiment, studies, trials
    from tacit.reports.text import side_by_side

    done = [studies.load(path) or trials.load(path) or experiment.load(path) for path in paths]
    found = [each.as_dict() for each in done]
    if len(done) > 1 and not any(isinstance(each, trials.Tried | studies.Studied) for each in done):
        return found, side_by_side(found)
    return found, "\n\n".join(each.summary() for each in done)


def listing(what: str) -> dict[str, str]:
    """What there is to choose from, each with one line."""
    from tacit.experiment import KINDS

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
    from tacit.survival.bundled import CARDS, INSTALL
    from tacit.survival.data import DESIGNS

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
    output.lines(list(found.items()))
