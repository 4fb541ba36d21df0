"""One run from its options to its result: prepare, charge, train, score, state, write down.

Nothing is kept of a run without a directory; with one, a run that was cut off goes on and does not pay twice.
"""

import os
from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from functools import partial
from pathlib import Path

from tacit.aggregation.attacks.base import Attack
from tacit.aggregation.base import Aggregator
from tacit.aggregation.defence.clustering import Clusters
from tacit.aggregation.defence.quarantine import Quarantine
from tacit.aggregation.mean import Mean
from tacit.aggregation.server import Plain, ServerStep
from tacit.engines.base import Engine
from tacit.engines.local import Local
from tacit.errors import require_name
from tacit.learning.progress import Callback, notify
from tacit.learning.task import Task
from tacit.privacy.contracts import exempt
from tacit.privacy.ledger.data_book import DataBook
from tacit.privacy.ledger.run_ledger import RunLedger
from tacit.privacy.policy import Open, Privacy
from tacit.privacy.statement import state, subject_prices
from tacit.runs.clusters import score_clusters
from tacit.runs.context import RunContext, digest
from tacit.runs.directory import EXPERIMENT, LEDGER, PROVENANCE, Directory
from tacit.runs.evaluation import compare
from tacit.runs.queries import findings, initial_query_of, shortcomings, with_saved_answers
from tacit.runs.run import Run, is_over, read, require_sound, write
from tacit.runs.setup import PreparedRun, prepare
from tacit.runs.spec import Augmenter, RunSpec
from tacit.runs.stopping import Stopping, reserve_records
from tacit.runs.trainer import Trainer
from tacit.runtime.fingerprints import People, sketch_frame
from tacit.runtime.keys import Key
from tacit.runtime.refusals import withholding
from tacit.runtime.silence import suppress_warnings
from tacit.runtime.threads import one_thread
from tacit.sites.federation import Federation
from tacit.sites.sampling import Poisson, Sampling
from tacit.sites.table import read as read_table


def fit(
    task: Task,
    federation: Federation,
    *,
    privacy: Privacy | Open = Open(),
    aggregation: Aggregator = Mean(),
    server: ServerStep = Plain(),
    sampling: Sampling = Poisson(),
    stop: Stopping | None = None,
    augment: Augmenter | None = None,
    quarantine: Quarantine | None = None,
    attack: Attack | None = None,
    clusters: Clusters | None = None,
    engine: Engine = Local(),
    rounds: int = 1,
    seed: int = 0,
    baselines: bool = False,
    name: str = "run",
    out: str | os.PathLike[str] | None = None,
    resume: bool = False,
    callbacks: Sequence[Callback] = (),
) -> Run:
    """Train a task across the sites of a federation, and account for its privacy cost.

    Args:
        task: The task, which says what is learned.
        federation: The sites and their data.
        privacy: The privacy policy: what may leave a site.
        aggregation: The aggregation rule.
        server: The server step, applied to the combined update.
        sampling: The sampling of the sites of a round.
        stop: Early stopping, which also chooses the round to keep.
        augment: Synthetic records that sites add to their own.
        quarantine: The rule that watches the sites and excludes suspects.
        attack: The attack of malicious sites, in a rehearsal.
        clusters: The clustering of sites, for several models.
        engine: The engine that runs the local work.
        rounds: The number of rounds.
        seed: The seed of everything repeatable.
        baselines: Train each site alone and on pooled records too, for comparison; left out where that would
            release what the policy protects.
        name: The name of the run.
        out: The run's directory; nothing is written without one.
        resume: Continue the run in `out`, if there is one.
        callbacks: Called after every round; those with a method `stage` also receive progress in between.

    Raises:
        TacitError: Anything the user can mend: bad data, a promise that cannot be kept, a budget that does
            not suffice, a directory that cannot be written. A refused round is not charged.
    """
    given = locals()
    # Every option has a keyword of its name here, except for one that only files know yet.
    spec = RunSpec(**{entry.name: given[entry.name] for entry in fields(RunSpec) if entry.name in given})
    return run_spec(
        spec, federation, baselines=baselines, name=name, out=out, resume=resume, callbacks=callbacks
    )


# Sums keep one order, scores included; and on small arrays a second thread costs more than it saves.
@one_thread()
@suppress_warnings()
@withholding(lambda given: given["spec"].privacy.protects)
def run_spec(
    spec: RunSpec,
    federation: Federation,
    *,
    baselines: bool = False,
    name: str = "run",
    out: str | os.PathLike[str] | None = None,
    resume: bool = False,
    callbacks: Sequence[Callback] = (),
) -> Run:
    """Run what was asked for on the sites of a federation; see `fit`."""
    require_name("name", name)
    if isinstance(spec.privacy, Privacy):
        notify(callbacks, "solving the noise")
    prepared = prepare(spec, federation)
    assert prepared.federation is not None, "it was given"
    directory, book, provenance = Directory(out), book_of(federation, spec.privacy), prepared.provenance
    if book is not None and directory.read(EXPERIMENT) is None and not book.accept(federation.receipt):
        # Refuse what exceeds these people's lifetime budget before anything is written.
        book.check(prepared.price())
    choices = {"name": name, "seed": spec.seed, "rounds": spec.rounds, "baselines": baselines}
    # An experiment that is read from its directory has looked at nothing: what it knows was found before.
    sources = {PROVENANCE: {"public": provenance.public, "bare": provenance.bare}}
    document = {**choices, **prepared.describe(prepared.federation)}
    with directory.claim(document, resume=resume, beside=sources):
        if out is not None and is_over(directory):
            run = read(directory, with_saved_answers(prepared.task, directory))
            require_sound(out)
            directory.forget_secret()
            return run
        with RunLedger(directory.file(LEDGER), book=book, receipt=federation.receipt, name=name) as ledger:
            key = Key(spec.seed, rehearsal=not spec.privacy.protects, entropy=directory.secret())
            run = _run(prepared, directory, ledger, key, callbacks, baselines=baselines, name=name)
        write(run, directory)
    return run


def _run(
    prepared: PreparedRun,
    directory: Directory,
    ledger: RunLedger,
    key: Key,
    callbacks: Sequence[Callback],
    *,
    baselines: bool,
    name: str,
) -> Run:
    """Everything from the first charge on: what is bought, the rounds, the scores, the statement."""
    federation, watch, test = prepared.federation, prepared.watch, prepared.test
    spec, privacy, provenance = prepared.spec, prepared.spec.privacy, prepared.provenance
    assert federation is not None, "fit gives one"
    assert watch is not None, "there is one where data are"
    data = digest(key, "data", federation.fingerprint)
    if spec.stop is not None and prepared.watched is not None:
        federation, watch = reserve_records(federation, spec.stop, prepared.watched, key)
    if spec.augment is not None or initial_query_of(prepared.task) is not None:
        notify(callbacks, "asking the sites before the first round")
    provenance.recall(directory.read_json(PROVENANCE) or {})
    directory.write_json(PROVENANCE, {"public": provenance.public, "bare": provenance.bare})
    begun = RunContext(prepared=prepared, federation=federation)
    context, point = begun.begin(directory, ledger, key, data)
    trainer = Trainer(context, watch)
    point, record = trainer.run(point, directory, ledger, key, callbacks)
    chosen = record.rounds[record.chosen - 1].clusters if record.chosen else {}
    facts = (*trainer.facts(), *findings(context.task, point.best))
    notes = (*record.notes, *shortcomings(context.task, point.best))
    notify(callbacks, "scoring the model")
    scores = score_clusters(context.task, point.best, chosen, test)
    record = replace(record, scores=scores, findings=facts, notes=notes, sites=prepared.names)
    if baselines and provenance.allowed and not federation.distant:
        record = compare(context, record, point.best, chosen, test, key, partial(notify, callbacks))
    promise = state(
        privacy, ledger.releases(), public=provenance.public, bare=provenance.bare, but=exempt(context.task),
        left_out=record.left_out, prices=subject_prices(ledger, privacy),
    )  # fmt: skip
    if isinstance(privacy, Privacy):
        promise = replace(promise, all_runs=ledger.total(privacy.delta, privacy.unit))
    return Run(
        task=context.task, record=record, privacy=promise, state=point.best, path=directory.path, name=name,
        charged=tuple(ledger.releases()),
    )  # fmt: skip


class _Withheld:
    """Mark of a federation in an audit, whose results are not released."""


def withhold_results(federation: Federation) -> Federation:
    """Mark a federation for an audit: no release leaves the process, so no book is charged."""
    return federation.carry(_Withheld())


def book_of(federation: Federation, privacy: Privacy | Open) -> DataBook | None:
    """Find the book that a run on these sites charges.

    None for open runs, rehearsals, public records and remote sites, which keep ledgers of their own.
    """
    if isinstance(privacy, Open) or privacy.rehearsal or federation.public or federation.distant:
        return None
    if isinstance(federation.receipt, _Withheld):
        return None
    return DataBook(federation.people())


def book_by_path(files: Iterable[str | Path]) -> DataBook:
    """Find the book of these files by their paths alone; no record is read."""
    return DataBook(People(tuple(map(Path, files)), (), b""))


def book_of_file(file: Path) -> DataBook:
    """Find the book of a file by its path and by sketches of its records, which are read.

    Raises:
        InvalidFile: It is not there, or is neither CSV nor Parquet.
    """
    return DataBook(People((file,), sketch_frame(read_table(file)), b""))
