"""The table [tune] of an experiment file: which keys vary, and the candidates that this makes.

Every candidate is read as an experiment of its own before anything is trained, so that a value that some
constructor refuses costs nothing. Reading touches no data.
"""

import copy
import math
import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import product
from pathlib import Path
from typing import Any, cast

import tomli_w

from tacit.errors import InvalidFile, TacitError, hint, require
from tacit.experiments.experiment import Experiment, construct_experiment
from tacit.experiments.tuning.selection import Tuning
from tacit.learning.record import identity_of
from tacit.privacy.policy import Privacy
from tacit.runtime.tables import construct, portable, read_as
from tacit.survival.models.learner import SurvivalLearner
from tacit.survival.models.newton_ph import NewtonPH

Table = dict[str, Any]

# Tables that may vary, beside the number of rounds; and the reasons that other keys may not.
TABLES = ("task", "server", "aggregation")
FIXED = {
    "privacy": "the promise is made once, for all candidates together",
    "data": "candidates are compared on the same records",
    "sites": "candidates are compared on the same records",
    "seed": "a chosen seed is luck",
}
# Tables that a candidate cannot have, with the reasons.
APART = {
    "clusters": "candidates are compared by one model for all sites; choose first, then cluster",
    "attack": "a choice under attack is not reliable; try attacks with tacit run",
    "evaluate": "candidates are compared by what [tune] pays for; choose first, then score the choice",
}
# The options of survival models that protect single records without a clip bound.
WITHOUT_CLIP = (
    'Without clip, vary rounds, or the effects of newton-ph: [task] kind = "newton-ph" and [tune] '
    '"task.effects" = ["linear", "hinge"]'
)
# Every candidate is paid for: with more, none would be left with noise that it can bear.
MOST = 64


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """Candidate: the varied options, and their experiment."""

    number: int
    changes: Table
    experiment: Experiment

    @property
    def name(self) -> str:
        """Name of the candidate, and of its run's directory."""
        return f"candidate-{self.number}"


@dataclass(frozen=True, kw_only=True)
class TuningGrid:
    """Tuning of an experiment file with a table [tune].

    Args:
        tuning: The options of the choice.
        candidates: The candidates.
        document: The file as it was read, with absolute paths.
    """

    tuning: Tuning
    candidates: tuple[Candidate, ...]
    document: Table

    @property
    def common(self) -> Experiment:
        """Experiment that all candidates share: data, sites, seed and privacy policy."""
        return self.candidates[0].experiment


def read(path: str | Path, changes: Sequence[str] = ()) -> TuningGrid:
    """Read an experiment file with a table [tune].

    Args:
        path: The file, or the directory of a tuning, which keeps its own.
        changes: Changes to it: `tune.epsilon=0.2`, values written as in TOML.

    Raises:
        InvalidFile: The file, the candidate, the table and the key at fault, and what is allowed instead.
    """
    return read_as(_grid, path, changes)


def _grid(document: Table, folder: Path) -> TuningGrid:
    table = document.get("tune", {})
    require(isinstance(table, dict), "tune", table, "a table, [tune]")
    for other, why in APART.items():
        if other in document:
            raise InvalidFile(f"[{other}] does not go with [tune]: {why}")
    options = {entry.name for entry in fields(Tuning)}
    tuning = construct(Tuning, "tune", {key: table[key] for key in table if key in options})
    varied = dict(_flat({key: table[key] for key in table if key not in options}))
    if not varied:
        raise InvalidFile('[tune] varies nothing: give it lists of values, such as "task.lr" = [0.1, 1.0]')
    for key, values in varied.items():
        _require_list(key, values, options)
    count = math.prod(len(values) for values in varied.values())
    require(
        2 <= count <= MOST, "[tune] candidates", count, f"from 2 to {MOST}, and few: the budget covers each"
    )
    plain = {key: value for key, value in document.items() if key != "tune"}
    candidates = tuple(
        _candidate(number, _settings(varied, values), plain, folder)
        for number, values in enumerate(product(*varied.values()), start=1)
    )
    _require_different_models(candidates)
    kept = {**document, "tune": _in_order(table, options, varied)}
    return TuningGrid(tuning=tuning, candidates=candidates, document=portable(kept, folder))


def _in_order(table: Table, options: Collection[str], varied: Table) -> Table:
    """Return the table [tune] in canonical order: read again, candidates have the numbers they had.

    Tables inside a table are written after everything else of it; keys with dots stay where they stand.
    """
    written = tomllib.loads(tomli_w.dumps(table))
    if list(dict(_flat({key: written[key] for key in written if key not in options}))) == list(varied):
        return table
    return {**{key: table[key] for key in table if key in options}, **varied}


def _flat(table: Mapping[str, Any], place: str = "") -> Iterator[tuple[str, Any]]:
    """Flatten tables to keys with dots."""
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flat(cast(Table, value), f"{place}{key}.")
        else:
            yield place + key, value


def _require_list(key: str, values: object, options: set[str]) -> None:
    """Refuse options that may not vary, and values that are no list of different ones."""
    place, dot, _ = key.partition(".")
    entries = cast("list[object]", values if isinstance(values, list) else [])
    tables = key in TABLES and all(isinstance(entry, dict) for entry in entries)
    if not (key == "rounds" or tables or (dot and place in TABLES)):
        known = [*TABLES, "rounds", *options]
        why = FIXED.get(place, "only [task], [server], [aggregation] and rounds may")
        raise InvalidFile(f"[tune] {key} may not vary: {why}{'' if place in FIXED else hint(place, known)}")
    different = len({repr(entry) for entry in entries}) == len(entries)
    require(
        bool(entries) and different,
        f"[tune] {key}",
        cast(object, values),
        "a list of one or more different values",
    )


def _settings(varied: Iterable[str], values: Iterable[Any]) -> Table:
    """Return the values of a candidate, key by key; a whole table is flattened into its keys."""
    found: Table = {}
    for key, value in zip(varied, values, strict=True):
        found |= dict(_flat({key: value})) if key in TABLES else {key: value}
    return found


def _candidate(number: int, changes: Table, document: Table, folder: Path) -> Candidate:
    changed = copy.deepcopy(document)
    for key, value in changes.items():
        *tables, last = key.split(".")
        place = changed
        for table in tables:
            place = place.setdefault(table, {})
            require(isinstance(place, dict), table, place, f"a table, as [tune] {key} changes it")
        place[last] = value
    try:
        experiment = construct_experiment(changed, folder)
        _require_bound(experiment, changes)
        experiment.check()
        return Candidate(number=number, changes=changes, experiment=experiment)
    except TacitError as error:
        varied = ", ".join(f"{key} = {value!r}" for key, value in changes.items())
        instead = f". {WITHOUT_CLIP}" * ("task.effects" in changes)
        raise InvalidFile(f"[tune] candidate {number} ({varied}): {error}{instead}") from error


def _require_bound(experiment: Experiment, changes: Table) -> None:
    """Refuse options of gradient descent without a clip bound; there is a model that needs neither."""
    privacy, task = experiment.privacy, experiment.task
    record = isinstance(privacy, Privacy) and privacy.unit == "record" and privacy.clip is None
    if record and isinstance(task, SurvivalLearner) and task.causes == 1:
        varied = [key for key in changes if key.startswith("task.") and key != "task.kind"]
        raise InvalidFile(
            f"{task.kind} would train by gradients, and clip is missing in [privacy]. {WITHOUT_CLIP}; or "
            f"give clip = 1.0 and a [task] that is a sum over records, such as poisson-ph, to vary "
            f"{', '.join(varied) or 'its options'}"
        )


def _require_different_models(candidates: Sequence[Candidate]) -> None:
    """Refuse candidates that are learned as the same model: each would be paid for."""
    seen: dict[str, Candidate] = {}
    for candidate in candidates:
        made = candidate.experiment
        if isinstance(made.task, NewtonPH):
            task = identity_of(replace(made.task, asked=""))
            alike = repr((task, made.rounds, made.server, made.aggregation))
            other = seen.setdefault(alike, candidate)
            if other is not candidate:
                raise InvalidFile(
                    f"[tune] candidates {other.number} and {candidate.number} are the same model, "
                    f"{made.task.kind}, and each would be paid for. {WITHOUT_CLIP}"
                )
