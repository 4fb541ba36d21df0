"""Run: result, its verdict beside the simplest baseline, promise, model, and verification of its files.

A run directory holds the same facts several times: the ledger has every release, the statement has the price,
the checkpoint has the head of the ledger and the digest of the statement. A change of one of them and not of
the others is found here (`verify_run`), by every verb that shows a run or builds on it. A forger who may
write all files can change all of them: keep the head of the ledger elsewhere.
"""

import hashlib
import json
import math
import os
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import msgspec
import numpy as np

from tacit.errors import InvalidValue, LedgerError, LedgerTampered, RunUnusable, TacitError, require_word
from tacit.learning.record import ALSO, Record, Simplest
from tacit.learning.task import TaskBase
from tacit.privacy.accounting.release import Release
from tacit.privacy.ledger.chain import LedgerState
from tacit.privacy.ledger.store import Ledger
from tacit.privacy.ledger.view import ledger_summary, problems
from tacit.privacy.policy import Open, Privacy, Provenance
from tacit.privacy.statement import Statement, from_dict, state
from tacit.reports import audit
from tacit.reports.text import NAMES, number
from tacit.runs.directory import (
    AUDIT,
    ENVIRONMENT,
    EXPERIMENT,
    LEDGER,
    REPORT,
    ROUNDS,
    STATE,
    STATEMENT,
    SUMMARY,
    Checkpoint,
    Directory,
    environment,
)
from tacit.runtime.arrays import Array
from tacit.runtime.tables import construct
from tacit.sites.federation import Federation, RowFederation
from tacit.sites.table import Records, Table

if TYPE_CHECKING:
    import pandas as pd

    from tacit.reports.data import ReportData
    from tacit.reports.page.blocks import Figure, Page


# Prices that differ by less, as a share, are the same.
CLOSE = 1e-6
# Fields of a statement that the ledger and the policy fix, beside the price.
DECIDED = ("unit", "relation", "delta", "rehearsal")


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Run:
    """A finished run: model, record, privacy statement.

    Args:
        task: The bound task.
        record: The record of rounds and scores.
        privacy: The privacy statement: the promise and its price.
        state: The state of the model.
        path: The directory that remembers it; None if nothing was kept.
        name: The name of the experiment.
        charged: The releases charged to its ledger; a run with a directory keeps the ledger itself there.
        shown: Files with predictions of held-out records that may be shown, by their names.
    """

    task: TaskBase
    record: Record
    privacy: Statement
    state: Array
    path: Path | None
    name: str
    charged: tuple[Release, ...] = ()
    shown: Mapping[str, bytes] = field(default_factory=dict[str, bytes])

    def __repr__(self) -> str:
        scores = ", ".join(f"{name} {value:.4f}" for name, value in self.scores.items()) or "no score"
        spent = "open" if self.privacy.epsilon is None else f"epsilon {self.privacy.epsilon:.4g}"
        return f"<Run {self.name}: {self.task.kind}, {len(self.record.rounds)} rounds, {scores}, {spent}>"

    @property
    def scores(self) -> dict[str, float]:
        """Scores of the model on held-out records."""
        return dict(self.record.scores)

    @property
    def baselines(self) -> dict[str, dict[str, float]]:
        """Scores of models trained at each site alone and on pooled records, if the policy allows them."""
        return dict(self.record.baselines)

    @cached_property
    def history(self) -> "pd.DataFrame":
        """One row per round: who took part, scores, epsilon, seconds."""
        import pandas as pd

        rows = [
            {
                "round": entry.number,
                "sites": entry.sites,
                **entry.scores,
                "epsilon": entry.epsilon,
                "seconds": entry.seconds,
            }
            for entry in self.record.rounds
        ]
        return pd.DataFrame(rows, columns=None if rows else ["round"]).set_index("round")

    @property
    def clusters(self) -> dict[str, int]:
        """The model that each site belongs to; empty with one model for all sites."""
        chosen = self.record.chosen
        return dict(self.record.rounds[chosen - 1].clusters) if chosen else {}

    @cached_property
    def models(self) -> tuple[Any, ...]:
        """The fitted models: one for all sites, or one per cluster."""
        return tuple(self.task.model(state) for state in self.state.reshape(-1, self.state.shape[-1]))

    @property
    def model(self) -> Any:  # noqa: ANN401
        """The fitted model; refused if there are several."""
        first, *others = self.models
        if others:
            raise InvalidValue(
                f"run {self.name} has {len(self.models)} models, one for each cluster of sites: use "
                "run.model_of(site), or run.models"
            )
        return first

    def model_of(self, site: str) -> Any:  # noqa: ANN401
        """Return the fitted model of a site's cluster."""
        if not self.clusters:
            return self.model
        require_word("site", site, self.clusters)
        return self.models[self.clusters[site]]

    def as_dict(self) -> dict[str, Any]:
        """The run as one document, as `tacit run --json` prints it."""
        promise = self.privacy.as_dict()
        told = {name: promise[name] for name in ("epsilon", "delta", "unit", "relation", "rehearsal")}
        told |= {"all_runs": promise["all_runs"]} if promise["all_runs"] is not None else {}
        return {
            "run": str(self.path) if self.path is not None else None,
            "name": self.name,
            "task": self.task.kind,
            **({} if self.task.layout == "rows" else {"layout": self.task.layout}),
            **self.record.as_dict(),
            **({"clusters": self.clusters} if self.clusters else {}),
            **({"trouble": trouble} if (trouble := self.record.warnings()) else {}),
            "privacy": told | ({"but": promise["but"]} if promise["but"] else {}),
        }

    def summary(self) -> str:
        """Summarize the run in text: promise, scores with both baselines, unprotected data."""
        from tacit.reports.text import summary

        return summary({**self.as_dict(), "statement": self.privacy.sentences()})

    def document(self) -> dict[str, Any]:
        """Everything that a report shows, as plain data."""
        from tacit.reports.data import document

        return document(self.report_data())

    def page(self) -> "Page":
        """The report of the run, to be rendered."""
        from tacit.reports.run import page

        return page(self.report_data(), self._pictures())

    def report(self, path: str | os.PathLike[str] | None = None) -> Path:
        """Write the report as one file, of a kind given by its ending: `.html`, `.md` or `.json`.

        Args:
            path: The file; by default `report.html` in the directory of the run.
        """
        from tacit.reports.page import write as write_page

        if path is None and self.path is None:
            raise InvalidValue("path is missing: this run has no directory; give the file of its report")
        return write_page(self.page(), Path(path) if path is not None else cast(Path, self.path) / REPORT)

    def report_data(self) -> "ReportData":
        """Everything that is known of the run, for reports."""
        from tacit.reports.data import ReportData

        directory = Directory(self.path)
        text, point = directory.text(EXPERIMENT), directory.checkpoint()
        head = None if point is None else point.ledger_head
        books = ledger_summary(directory.file(LEDGER), self.charged, self.privacy.delta, head)
        if self.path is not None:
            books["disputed"] = list(verify_run(self.path).statement)
        return ReportData(
            name=self.name,
            task=self.task.kind,
            layout=self.task.layout,
            goal=self.task.goal,
            record=self.record,
            statement=self.privacy,
            ledger=books,
            text=text,
            environment=directory.read_json(ENVIRONMENT) or environment(),
            path=None if self.path is None else str(self.path),
            audit=audit.read(directory.read_json(AUDIT), self.path),
            sent=self.task.bytes_sent,
        )

    def _pictures(self) -> "list[Figure]":
        """Return the task's own figures of the model."""

        def read_file(name: str) -> bytes | None:
            return self.shown[name] if name in self.shown else Directory(self.path).read(name)

        return list(self.task.pictures(self.state, self.record.rounds, read_file))


def write(run: Run, directory: Directory) -> None:
    """Write the results of a finished run, and delete its secret."""
    archived = run.task.archive(run.record.rounds, directory.weights())
    for name, content in {**archived, **run.shown}.items():
        directory.write(name, content)
    statement = run.privacy.as_dict()
    _remember_end(directory, statement)
    directory.write_json(STATEMENT, statement)
    directory.write_json(SUMMARY, run.as_dict())
    directory.forget_secret()


def _remember_end(directory: Directory, statement: Mapping[str, Any]) -> None:
    """Keep the head of the ledger and the digest of the statement in the checkpoint.

    A ledger whose tail was cut off, and a statement that was changed, are found by them.
    """
    point, books = directory.checkpoint(), directory.file(LEDGER)
    if point is None or books is None:
        return
    with Ledger(books, mode="read") as ledger:
        end = replace(point, ledger_head=ledger.head, statement=digest_statement(statement))
    if (end.ledger_head, end.statement) != (point.ledger_head, point.statement):
        directory.write_checkpoint(end)


def is_over(directory: Directory) -> bool:
    """Return True if the directory holds a finished run (it has a summary)."""
    return directory.read(SUMMARY) is not None


def read(directory: Directory, task: TaskBase) -> Run:
    """Read the run in a directory.

    Raises:
        RunUnusable: It is not over, or a file is damaged.
    """
    said, promise = directory.read_json(SUMMARY), directory.read_json(STATEMENT)
    point = directory.checkpoint()
    if said is None or promise is None or point is None:
        done = len(directory.rounds())
        raise RunUnusable(
            f"run {directory.path} is not over: {done} rounds are in {ROUNDS}; resume it with --resume"
        )
    rounds = directory.rounds()
    try:
        kept = {name: said[name] for name in ("chosen", "stopped", "scores", "baselines")}
        kept |= {name: said[name] for name in ALSO if name in said}
        record = msgspec.convert({**kept, "rounds": rounds}, type=Record)
        statement, name = from_dict(promise), str(said["name"])
        if len(rounds) != int(said["rounds"]):
            raise ValueError(f"{ROUNDS} has {len(rounds)} rounds")
    except (KeyError, ValueError, TypeError, AttributeError, msgspec.MsgspecError) as error:
        raise RunUnusable(f"run {directory.path} cannot be read: damaged or incomplete ({error})") from error
    return Run(task=task, record=record, privacy=statement, state=point.best, path=directory.path, name=name)


@dataclass(frozen=True)
class Judgement:
    """Problems of a run that were found by comparing its files.

    Args:
        ledger: Those of the ledger: it does not verify, or lacks rows that the run knew.
        statement: Those of the statement: it does not follow from the ledger.
    """

    ledger: tuple[str, ...] = ()
    statement: tuple[str, ...] = ()

    @property
    def problems(self) -> tuple[str, ...]:
        """All problems; none if the run is sound."""
        return (*self.ledger, *self.statement)


def verify_run(path: str | os.PathLike[str]) -> Judgement:
    """Compare ledger, checkpoint and statement of a run directory, or of all candidates of a tuning.

    A run that is under way has no statement yet; what remembers no run at all has no problems.
    """
    place = Path(path)
    directory = Directory(place)
    found = _judge_run(directory)
    books = place / LEDGER
    for candidate in sorted(place.iterdir()) if place.is_dir() and books.is_file() else ():
        if (candidate / LEDGER).is_symlink() and os.path.realpath(candidate / LEDGER) == os.path.realpath(
            books
        ):
            other = _judge_run(Directory(candidate))
            named = tuple(f"{candidate.name}: {problem}" for problem in other.statement)
            # The ledger is theirs together: what is wrong with it is said once.
            found = Judgement(found.ledger or other.ledger, (*found.statement, *named))
    return found


def require_sound(path: str | os.PathLike[str]) -> None:
    """Refuse a run whose files contradict each other.

    Raises:
        LedgerTampered: They do; the message says in which way.
    """
    found = verify_run(path).problems
    if found:
        raise LedgerTampered(f"{path} does not verify: {'; '.join(found)}")


def digest_statement(statement: Mapping[str, Any]) -> str:
    """Digest a statement as plain data, whatever the order and the layout of its JSON."""
    return hashlib.sha256(json.dumps(statement, sort_keys=True).encode()).hexdigest()


def run_of(ledger: Path) -> Path | None:
    """Find the run directory that a ledger belongs to, given the directory or the file; None without one."""
    folder = ledger if ledger.is_dir() else ledger.parent
    named = ledger.is_dir() or ledger.name == LEDGER
    return folder if named and (folder / EXPERIMENT).is_file() else None


def _judge_run(directory: Directory) -> Judgement:
    over, books = directory.read(SUMMARY) is not None, directory.file(LEDGER)
    try:
        point = directory.checkpoint()
    except RunUnusable as error:
        return Judgement(ledger=(str(error),))
    if books is None or (point is None and not over):
        return Judgement()
    if point is None:
        return Judgement(ledger=(f"{STATE} is missing, and with it the ledger head of the run",))
    wrong = problems(books, point.ledger_head)
    if wrong or not over:
        return Judgement(ledger=tuple(wrong))
    return Judgement(statement=tuple(_judge_statement(directory, books, point)))


def _judge_statement(directory: Directory, books: Path, point: Checkpoint) -> list[str]:
    """Compare the statement with the ledger as it was when the run was over, and with its digest."""
    said = directory.read_json(STATEMENT)
    if said is None:
        return [f"{STATEMENT} is missing"]
    try:
        promise = _read_promise(directory)
        with Ledger(books, mode="read") as ledger:
            rows = ledger.entries()
        last = next(row["number"] for row in rows if row["hash"] == point.ledger_head)
        expected = _state_charges(promise, [row for row in rows if row["number"] <= last])
        # A run of an older version did not write down the very last head.
        if _same(said, expected) or _same(said, _state_charges(promise, rows)):
            # A run of an older version kept no digest.
            changed = point.statement and digest_statement(said) != point.statement
            return [f"{STATEMENT} was changed after the run was over"] if changed else []
    except LedgerError as error:
        return [str(error)]
    except TacitError as error:
        return [f"{EXPERIMENT} does not state the promise: {error}"]
    return [
        f"{STATEMENT} was changed: it states {_in_words(said)}, and its ledger shows {_in_words(expected)}"
    ]


def _read_promise(directory: Directory) -> Privacy | Open:
    """Read the privacy policy from the experiment of the run."""
    text = (directory.read(EXPERIMENT) or b"").decode(errors="replace")
    try:
        document = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError, ValueError) as error:
        raise RunUnusable(f"it is not TOML ({error})") from error
    table: object = document.get("privacy", {"kind": Open.kind})
    given = cast("dict[str, Any]", table).copy() if isinstance(table, dict) else {}
    if given.pop("kind", Privacy.kind) == Open.kind:
        return Open()
    return construct(Privacy, "privacy", given)


def _state_charges(promise: Privacy | Open, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """State the price of these rows of a ledger as plain data."""
    account = LedgerState()
    for row in rows:
        account.append_entry(row)
    prices = None if isinstance(promise, Open) else account.prices(promise.delta)
    return state(promise, account.releases(), prices=prices).as_dict()


def _same(said: Mapping[str, Any], expected: Mapping[str, Any]) -> bool:
    given: object = said.get("subjects")
    prices = cast("dict[str, object]", given) if isinstance(given, dict) else {}
    wanted: dict[str, float | None] = expected["subjects"]
    return (
        all(said.get(name) == expected[name] for name in DECIDED)
        and _close(said.get("epsilon"), expected["epsilon"])
        and prices.keys() == wanted.keys()
        and all(_close(prices[name], wanted[name]) for name in wanted)
    )


def _close(said: object, expected: float | None) -> bool:
    if said is None or expected is None or isinstance(said, bool) or not isinstance(said, int | float):
        return said is None and expected is None
    return math.isclose(said, expected, rel_tol=CLOSE, abs_tol=CLOSE)


def _in_words(statement: Mapping[str, Any]) -> str:
    """Return the price and the promise of a statement, as far as it can be read."""
    if statement.get("unit") is None:
        return "no promise"
    parts: Sequence[object] = [statement.get(name) for name in ("epsilon", "delta", "unit")]
    shown = [f"{part:.4g}" if isinstance(part, float) else str(part)[:40] for part in parts]
    rehearsal = ", a rehearsal" if statement.get("rehearsal") else ""
    return f"epsilon {shown[0]} at delta {shown[1]} for any one {shown[2]}{rehearsal}"


# Name of a count, such as `records`, and the count.
Counts = dict[str, int]


def count_sizes(federation: Federation, test: Records | None, provenance: Provenance) -> dict[str, Counts]:
    """Count the records that a model is trained and scored on, and their events.

    Under a promise, the number of training records is shown if it is public or bought, and that of events is
    not. Scored records are public wherever they are scored.

    Args:
        federation: The sites.
        test: The records that the model is scored on.
        provenance: Decides if records may be looked at.
    """
    found: dict[str, Counts] = {}
    if isinstance(federation, RowFederation) and provenance.allowed and not federation.distant:
        found["trained"] = _count(federation.store)
    elif isinstance(federation, RowFederation) and federation.records is not None:
        found["trained"] = {"records": federation.records}
    if isinstance(test, Table):
        found["scored"] = _count(test)
    return found


def _count(table: Table) -> Counts:
    if "event" not in table.targets:
        return {"records": len(table)}
    return {"records": len(table), "events": int(np.count_nonzero(table.targets["event"] > 0))}


def judge(simplest: Simplest | None, scores: Mapping[str, float]) -> tuple[str, ...]:
    """Judge scores beside the simplest baseline: return sentences if some are not better, or may not be.

    Args:
        simplest: The baseline, with intervals of the gain where they are known.
        scores: Scores of the model.
    """
    if simplest is None:
        return ()
    gains = simplest.gains(scores)
    told = {
        name: f"{NAMES.get(name, name)} {number(scores[name], name)} against {number(value, name)}"
        for name, value in simplest.scores.items()
        if name in gains and "@" not in name
    }
    worse = [words for name, words in told.items() if not gains[name] > 0]
    unsure = [
        f"{words} (gain {number(low, name)} to {number(high, name)})"
        for name, words in told.items()
        if gains[name] > 0 and name in simplest.gain
        for low, high in [simplest.gain[name]]
        if low <= 0
    ]
    found = [f"not better than {simplest.name}, the simplest baseline: {'; '.join(worse)}"] if worse else []
    if unsure:
        found.append(f"not clearly better than {simplest.name} by its 95 % interval: {'; '.join(unsure)}")
    return tuple(found)
