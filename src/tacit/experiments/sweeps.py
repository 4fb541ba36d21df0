"""Sweeps read from a file and a command line: the values of each key, and every combination as a cell.

The lists of a command line are `table.key=value,value,...`. A value is written as in TOML, and a word need
not be quoted; what stands between quotes or brackets is one value, whatever commas are in it. Reading touches
no data.
"""

import copy
import math
import os
import time
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Self, cast

import tomli_w

from tacit.errors import InvalidFile, InvalidValue, Refused, TacitError, require, require_count
from tacit.experiments.batch import (
    CELLS,
    Announce,
    Cell,
    CellBatch,
    Row,
    count_words,
    finite,
    finite_scores,
    row_of,
    silent,
)
from tacit.experiments.experiment import Experiment, construct_experiment
from tacit.learning.record import plain_table
from tacit.privacy.policy import Open, Privacy, is_all_public
from tacit.reports.text import NAMES
from tacit.runs.directory import EXPERIMENT, Directory
from tacit.runtime.tables import Table, construct, override_value, portable, read_as
from tacit.runtime.threads import cores

if TYPE_CHECKING:
    from tacit.experiments.sweep_results import SweepResult

Value = str | float
# Some values: of each key that is swept, as it was written.
Changes = tuple[tuple[str, str], ...]
# The last part of keys that are labeled by their table.
KIND = ".kind"
SEEDS = 3
MOST = 1000
WORKERS = 2
EPSILON = "privacy.epsilon"
# Keys that have another option, or change no result.
FIXED = {
    "seed": "give the number of seeds (--seeds)",
    "name": "it changes no result",
    "baselines": "it changes no result",
}
# Tables that models trained alone and on pooled records know nothing of.
APART = ("privacy", "aggregation", "server", "sampling", "quarantine")


@dataclass(frozen=True, kw_only=True)
class SweepSpec:
    """The table [sweep], as the directory of a sweep keeps it.

    Args:
        set: The keys that are swept with their values, as on the command line: `privacy.epsilon=1,3,inf`.
        seeds: The number of seeds of every combination: that of the file, and the next ones.
    """

    set: tuple[str, ...]
    seeds: int = SEEDS

    def __post_init__(self) -> None:
        require_count("seeds", self.seeds)


@dataclass(frozen=True, kw_only=True)
class SweepCell(Cell):
    """One run of a sweep.

    Args:
        changes: Its value of each swept key.
        seed: The seed.
    """

    changes: Changes
    seed: int

    def __str__(self) -> str:
        return f"{in_words(self.changes)}, seed {self.seed}"

    @property
    def row(self) -> Row:
        """Plain data for JSON."""
        return {"changes": dict(self.changes), "seed": self.seed}

    @property
    def group(self) -> Changes:
        """Its values."""
        return self.changes

    @classmethod
    def from_row(cls, row: Row) -> Self:
        """The cell that a row is about."""
        return cls(changes=tuple(row["changes"].items()), seed=row["seed"])


@dataclass(frozen=True, kw_only=True)
class Sweep(CellBatch[SweepCell, "SweepResult"]):
    """One experiment at every combination of some values, with several seeds.

    Args:
        experiment: That of the first combination.
        swept: The values of each key, as they were written.
        seeds: The seeds of the runs.
        document: As for any batch; so are `folder` and `workers`.
    """

    swept: Mapping[str, tuple[str, ...]]
    seeds: tuple[int, ...]

    @classmethod
    def construct(cls, document: Table, folder: Path) -> Self:
        """Construct the sweep of a document with a table [sweep]."""
        asked = construct(SweepSpec, "sweep", document["sweep"])
        swept = values_by_key(asked.set)
        for key in swept:
            if key in FIXED:
                raise InvalidFile(f"--set {key} cannot be swept: {FIXED[key]}")
        runs = asked.seeds * math.prod(map(len, swept.values()))
        allowed = f"at most {MOST:,}: give fewer values, or fewer seeds"
        require(runs <= MOST, "the number of runs", runs, allowed)
        first: Changes = tuple((key, values[0]) for key, values in swept.items())
        with _name_values(first):
            experiment, _ = _experiment_at(document, first, folder)
        return cls(
            experiment=experiment,
            swept=swept,
            seeds=tuple(experiment.seed + number for number in range(asked.seeds)),
            document=portable(document, folder),
            folder=folder,
            workers=min(WORKERS, cores()),
        )

    @property
    def promise(self) -> str:
        """The promise that all private runs share, in words."""
        promise = self.example.privacy
        if isinstance(promise, Open):
            return "none: every run is open"
        again = ", REHEARSAL" * promise.rehearsal
        return f"to any one {promise.unit}, delta {promise.delta:g}{again}"

    @property
    def provenance(self) -> str:
        """Provenance of the figures: experiment, task, seeds, rehearsal."""
        promise, seeds = self.example.privacy, len(self.seeds)
        told = (
            f"{self.experiment.name}: {self.experiment.task.kind}, mean of {seeds} seed{'s' * (seeds != 1)}"
        )
        if isinstance(promise, Privacy) and promise.rehearsal:
            told += "; REHEARSAL: the noise repeats with the seed and gives no protection"
        return told

    def is_numeric(self, key: str) -> bool:
        """Return True if all values of a key are numbers."""
        return all(isinstance(sort_value(text), float) for text in self.swept[key])

    @property
    def combinations(self) -> tuple[Changes, ...]:
        """Every combination of values; those of the last key change first."""
        every = product(*self.swept.values())
        return tuple(tuple(zip(self.swept, values, strict=True)) for values in every)

    @property
    def cells(self) -> tuple[SweepCell, ...]:
        """Every combination with every seed; the whole curve of one seed comes before the next."""
        return tuple(
            SweepCell(changes=changes, seed=seed) for seed in self.seeds for changes in self.combinations
        )

    @property
    def example(self) -> Experiment:
        """One of the runs, with a promise if any has one."""
        for changes in self.combinations:
            if not isinstance((found := self.at(changes)).privacy, Open):
                return found
        return self.experiment

    @property
    def size(self) -> str:
        """Number of values of each swept key and of seeds, in words."""
        parts = [f"{len(values)} of {key}" for key, values in self.swept.items()]
        return " x ".join([*parts, count_words(len(self.seeds), "seed")])

    def at(self, changes: Changes) -> Experiment:
        """The experiment with these values."""
        return _experiment_at(self.document, changes, self.folder)[0]

    def check(self) -> None:
        """Refuse options that a run could not have, before data are drawn; the refusal names the values."""
        for changes in self.combinations:
            with _name_values(changes):
                experiment, promise = _experiment_at(self.document, changes, self.folder)
                _require_public(experiment, promise)
                _ = experiment.plan()

    def run_cell(self, cell: SweepCell, place: Path | None) -> Row:
        """Run a cell and return its row; nothing else is stored."""
        return row_of(cell, lambda: run_experiment(self._chosen(cell)))

    def _chosen(self, cell: SweepCell) -> Experiment:
        """Return the experiment of a cell; baselines without privacy are trained once."""
        experiment = self.at(cell.changes)
        first = next(
            one for one in self.combinations if baseline_changes(one) == baseline_changes(cell.changes)
        )
        return replace(experiment, seed=cell.seed, baselines=experiment.baselines and cell.changes == first)

    def outcome(self, row: Row) -> str:
        """Return the deciding score of a run and its epsilon, in words."""
        name = self.experiment.task.goal[0]
        found = row["scores"].get(name)
        score = "no score" if found is None else f"{NAMES.get(name, name)} {found:.4g}"
        if row["unit"] is None:
            return f"{score}, open"
        spent = "unbounded" if row["spent"] is None else f"{row['spent']:.4g}"
        return f"{score} at epsilon {spent}"

    def result(self, rows: Mapping[SweepCell, Row], path: Path | None) -> "SweepResult":
        """Return the results of the sweep."""
        from tacit.experiments.sweep_results import SweepResult

        return SweepResult(batch=self, rows=rows, path=path)

    def finished_rows(self, out: str | os.PathLike[str] | None) -> dict[SweepCell, Row]:
        """The runs of this sweep that a directory knows, without those that failed."""
        directory = Directory(out)
        if directory.read(EXPERIMENT) != tomli_w.dumps(self.document).encode():
            return {}
        return self.done_rows(directory)

    def run(
        self,
        out: str | os.PathLike[str] | None = None,
        *,
        resume: bool = True,
        announce: Announce = silent,
    ) -> "SweepResult":
        """Run every cell that is not finished yet; finished ones are announced again.

        Args:
            out: The directory that remembers it; nothing is kept without one.
            resume: Continue the same sweep in `out`, if there is one.
            announce: Receives a line per finished cell.

        Raises:
            TacitError: No run of it is possible, `out` is the place of another sweep, or a process died.
        """
        known = self.finished_rows(out) if resume else {}
        if len(known) == len(self.cells):
            return self.result(known, Directory(out).path)
        return super().run(out, resume=resume, announce=announce)


def read(
    path: str | Path, changes: Sequence[str] = (), *, seeds: int | None = None, workers: int | None = None
) -> Sweep:
    """Read an experiment file as a sweep over several values.

    Args:
        path: The file, or the directory of an earlier sweep, which keeps its own.
        changes: Changes to it, values written as in TOML; of a key with several values,
            `privacy.epsilon=1,3,inf`, each is tried, and an epsilon of inf is an open run of the same kind.
        seeds: The number of seeds; by default that of the file, or 3.
        workers: The number of processes; by default two, if there are as many cores.

    Raises:
        InvalidFile: The file or a change is invalid; the message names the allowed values.
    """
    plain, lists = split_lists(changes)
    keys = [parse_list(change)[0] for change in lists]
    for change in plain:
        if parse_list(change)[0] in keys:
            raise InvalidFile(
                f"--set {parse_list(change)[0]} is given twice: put all of its values in one list"
            )
    if workers is not None:
        require_count("workers", workers)
    sweep = read_as(partial(_build_sweep, lists, seeds), path, plain)
    return sweep if workers is None else replace(sweep, workers=workers)


def load(path: str | Path) -> "SweepResult | None":
    """Load the sweep of a directory with its finished runs; None if it holds none."""
    if not (Path(path) / CELLS).is_file():
        return None
    if not read_as(lambda document, folder: "sweep" in document, path, ()):
        return None
    directory, sweep = Directory(path), read(path)
    return sweep.result(sweep.read_rows(directory), directory.path)


def run_experiment(experiment: Experiment) -> Row:
    """Run an experiment without a directory, and return its row: price and scores."""
    began = time.perf_counter()
    run = experiment.run(None)
    took = time.perf_counter() - began
    promise = run.privacy
    # With secret sampling, the duration would reveal the sample size.
    secret = not isinstance(experiment.privacy, Open) and not experiment.privacy.rehearsal
    return {
        "unit": promise.unit,
        "delta": promise.delta,
        "spent": finite(promise.epsilon),
        "bare": [] if is_all_public(promise.public) else list(promise.bare),
        "rounds": len(run.record.rounds),
        "seconds": None if secret else took,
        "scores": finite_scores(run.scores),
        "baselines": {name: finite_scores(found) for name, found in run.baselines.items()},
        "simplest": plain_table(run.record.simplest) if run.record.simplest else None,
    }


def baseline_changes(changes: Changes) -> Changes:
    """Select the values that runs without privacy depend on as well."""
    return tuple((key, text) for key, text in changes if key.partition(".")[0] not in APART)


def _build_sweep(lists: list[str], seeds: int | None, document: Table, folder: Path) -> Sweep:
    """Construct the sweep of a file and a command line."""
    if "sweep" in document and lists:
        raise InvalidFile("its table [sweep] lists the values: remove either that or the lists")
    given = document.get("sweep", {"set": lists})
    if isinstance(given, dict) and seeds is not None:
        given = {**cast(Table, given), "seeds": seeds}
    return Sweep.construct({**document, "sweep": given}, folder)


@contextmanager
def _name_values(changes: Changes) -> Generator[None]:
    """Say with which values something was refused."""
    try:
        yield
    except TacitError as error:
        raise type(error)(f"with {in_words(changes)}: {error}") from error


def _experiment_at(document: Table, changes: Changes, folder: Path) -> tuple[Experiment, Privacy | Open]:
    """Return the experiment with some values, and what its file promises, open runs included."""
    own = copy.deepcopy({name: part for name, part in document.items() if name != "sweep"})
    for key, text in changes:
        override_value(own, f"{key}={text}")
    promise = own.get("privacy")
    if not isinstance(promise, dict) or cast(Table, promise).get("epsilon") != math.inf:
        experiment = _spend_anyway(construct_experiment(own, folder))
        return experiment, experiment.privacy
    # The rest of the promise has to be one all the same: any price will do to see that.
    own["privacy"] = {**cast(Table, promise), "epsilon": 1.0}
    experiment = _spend_anyway(construct_experiment(own, folder))
    return _without_noise(experiment), experiment.privacy


def _spend_anyway(experiment: Experiment) -> Experiment:
    """Return the experiment with the forecast's refusal off: a sweep shows where noise hides everything."""
    return replace(experiment, spend_anyway=True)


def _without_noise(experiment: Experiment) -> Experiment:
    """Return the experiment without privacy: the same model and clipping, without noise."""
    privacy = experiment.privacy
    if isinstance(privacy, Open):
        return experiment
    if experiment.task.layout == "columns":
        # Release, coordinates and folds follow from the promise; radii of the task outrank its bound.
        opened = replace(privacy.without_noise(), clip=privacy.clip or 1.0)
        return replace(experiment, privacy=opened, task=experiment.task.with_privacy(privacy))
    # The task is that of the promise already: `RunSpec` resolves it.
    clips = experiment.task.own_bound is None
    opened = privacy.without_noise() if clips else Open(participation=privacy.participation)
    return replace(experiment, privacy=opened)


def _require_public(experiment: Experiment, promise: Privacy | Open) -> None:
    """Refuse private records outside a rehearsal: a sweep sees every score, on one ledger per run."""
    if experiment.data.distant:
        raise Refused(
            f"a sweep does not go with [data] {experiment.data.kind}, whose data are at the sites: sweep "
            "simulated data of the same kind"
        )
    somebodys = not isinstance(promise, Open) and not promise.rehearsal
    if somebodys and not experiment.data.public:
        raise Refused(
            "a sweep does not go with a promise about private records: it compares the scores of all runs, "
            "and each run would charge its own ledger. Rehearse it ([privacy] rehearsal = true), sweep "
            "simulated data, or choose within one promise (tacit tune)"
        )


def split_lists(changes: Iterable[str]) -> tuple[list[str], list[str]]:
    """Split changes into those of a single value and those of a list, in order."""
    plain, lists = list[str](), list[str]()
    for change in changes:
        (lists if len(parse_list(change)[1]) > 1 else plain).append(change)
    return plain, lists


def parse_list(change: str) -> tuple[str, tuple[str, ...]]:
    """The key of a change and its values, as they were written.

    Raises:
        InvalidFile: It is not `table.key=value`, or a value is missing between commas.
    """
    name, _, text = change.partition("=")
    override_value({}, change)
    values = tuple(piece.strip() for piece in _pieces(text))
    if len(values) > 1 and not all(values):
        raise InvalidFile(
            f"--set {change} is not allowed: there must be a value on both sides of every comma"
        )
    return name.strip(), values


def _pieces(text: str) -> list[str]:
    """Split the text at commas outside quotes and brackets."""
    pieces, depth, quote, escaped = [""], 0, "", False
    for letter in text:
        if letter == "," and not depth and not quote:
            pieces.append("")
            continue
        if quote:
            quote = "" if letter == quote and not escaped else quote
            escaped = letter == "\\" and quote == '"' and not escaped
        elif letter in "\"'" and (depth or not pieces[-1].strip()):
            # Within a word it is an apostrophe.
            quote = letter
        else:
            depth += (letter in "[{") - (letter in "]}")
        pieces[-1] += letter
    return pieces


def values_by_key(lists: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """The values of each key, as they were written.

    Raises:
        InvalidFile: There is no list, or a key has two.
        InvalidValue: A list says a value twice.
    """
    found: dict[str, tuple[str, ...]] = {}
    for key, values in map(parse_list, lists):
        if key in found:
            raise InvalidFile(f"--set {key} is given twice: put all of its values in one list")
        found[key] = values
        meant = [repr(_number(text)) for text in values]
        if len(set(meant)) < len(meant):
            raise InvalidValue(f"--set {key}={','.join(values)} is not allowed: a value is in it twice")
    if all(len(values) < 2 for values in found.values()):
        raise InvalidFile(
            "there is nothing to sweep: give a key several values, such as --set privacy.epsilon=1,3,inf"
        )
    return found


def value_of(text: str) -> object:
    """Parse the text of a swept value as TOML."""
    document: Table = {}
    override_value(document, f"value={text}")
    return document["value"]


def sort_value(text: str) -> Value:
    """A value to sort and to draw by: a number where it is one, or else as it was written."""
    found = _number(text)
    return found if isinstance(found, float) and not math.isnan(found) else text.strip("\"'")


def _number(text: str) -> object:
    """Parse a swept value; integers become floats."""
    found = value_of(text)
    return float(found) if isinstance(found, int) and not isinstance(found, bool) else found


def labels(keys: Sequence[str]) -> dict[str, str]:
    """Return short labels of keys: the last part, or a kind's table, unless two would be equal."""
    last = {key: key.removesuffix(KIND).rpartition(".")[2] for key in keys}
    seen = list(last.values())
    return {key: name if seen.count(name) == 1 else key for key, name in last.items()}


def in_words(changes: Iterable[tuple[str, str]]) -> str:
    """Format values for people: `epsilon 0.5, lr 2`."""
    pairs = list(changes)
    names = labels([key for key, _ in pairs])
    return ", ".join(f"{names[key]} {text}" for key, text in pairs)
