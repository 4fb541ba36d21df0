"""One run from its options to its result: prepare, charge, train, score, state, write down.

Nothing is kept of a run without a directory; with one, a run that was cut off goes on and does not pay twice.

Baselines (each site alone, all records pooled) stand beside the result, with confidence intervals. They are
trained by the same local work; they look at records without protection, and are for simulations, open runs
and rehearsals. Intervals cover the sampling of held-out records alone: nothing is trained again, so the
variation from training records and random draws is not in them.
"""

import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tacit.aggregation.attacks import Attack
from tacit.aggregation.base import Aggregator
from tacit.aggregation.defence.clustering import Clusters
from tacit.aggregation.defence.quarantine import Quarantine
from tacit.aggregation.mean import Mean
from tacit.aggregation.server import Plain, ServerStep
from tacit.engines.base import Engine, Local
from tacit.errors import TacitError, require_name
from tacit.learning.record import OVERSPENT, Callback, Record, Tell, notify, silent
from tacit.learning.task import Task, TaskBase, as_task
from tacit.privacy.ledger.data_book import DataBook
from tacit.privacy.ledger.run_ledger import RunLedger
from tacit.privacy.ledger.store import Ledger
from tacit.privacy.mechanisms.base import NoPrivacy
from tacit.privacy.policy import Open, Privacy, Provenance
from tacit.privacy.statement import Statement, state, subject_prices
from tacit.reports.dpia_form import TABLE, Answers
from tacit.runs.clusters import own_records, score_clusters, weighted_mean
from tacit.runs.context import RunContext, digest
from tacit.runs.directory import EXPERIMENT, LEDGER, PROVENANCE, Checkpoint, Directory
from tacit.runs.divergence import SLOWER, find_diverged, find_lost, mean_loss, slower
from tacit.runs.evaluation import Evaluation
from tacit.runs.queries import final_query_of, initial_query_of, skip_if_unaffordable, with_saved_answers
from tacit.runs.run import Run, count_sizes, is_over, judge, read, require_sound, write
from tacit.runs.setup import prepare
from tacit.runs.spec import Augmenter, PreparedRun, RunSpec
from tacit.runs.stopping import Stopping, reserve_records
from tacit.runs.trainer import Trainer
from tacit.runtime.arrays import Array
from tacit.runtime.fingerprints import People, sketch_frame
from tacit.runtime.keys import Key
from tacit.runtime.refusals import withholding
from tacit.runtime.silence import suppress_warnings
from tacit.runtime.threads import one_thread
from tacit.sites.federation import Cohort, Federation
from tacit.sites.sampling import Poisson, Sampling
from tacit.sites.table import Records
from tacit.sites.table_files import read as read_table


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
    evaluate: Evaluation | None = None,
    rounds: int | None = None,
    seed: int = 0,
    spend_anyway: bool = False,
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
        evaluate: Scores that are bought on private records, held out of training by a secret draw.
        rounds: The number of rounds; by default what the task needs, which is 1 for most.
        seed: The seed of everything repeatable.
        spend_anyway: Run although the forecast says that nothing can be learned.
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
    if rounds is None:
        given["rounds"] = as_task(task).resolve(privacy).usual.get("rounds", 1)
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
    answers: Answers | None = None,
) -> Run:
    """Run a spec on a federation; see `fit`. The run keeps the answers for its data-protection page."""
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
    form = {TABLE: given} if answers is not None and (given := answers.as_dict()) else {}
    document = {**choices, **prepared.describe(prepared.federation), **form}
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
    """Run everything from the first charge on: queries, rounds, scores, statement."""
    federation, watch, test = prepared.federation, prepared.watch, prepared.test
    spec, provenance = prepared.spec, prepared.provenance
    assert federation is not None, "fit gives one"
    assert watch is not None, "there is one where data are"
    data = digest(key, "data", federation.fingerprint)
    held_out = federation
    if spec.evaluate is not None:
        federation, held_out = spec.evaluate.split(federation, key)
    if spec.stop is not None and prepared.watched is not None:
        federation, watch = reserve_records(federation, spec.stop, prepared.watched, key)
    if spec.augment is not None or initial_query_of(prepared.task) is not None:
        notify(callbacks, "querying the sites before the first round")
    provenance.recall(directory.read_json(PROVENANCE) or {})
    directory.write_json(PROVENANCE, {"public": provenance.public, "bare": provenance.bare})
    begun = RunContext(prepared=prepared, federation=federation)
    context, point = begun.begin(directory, ledger, key, data)
    trainer = Trainer(context, watch)
    point, record = trainer.run(point, directory, ledger, key, callbacks)
    chosen = record.rounds[record.chosen - 1].clusters if record.chosen else {}
    facts = (*trainer.facts(), *context.task.findings(point.best))
    notes = (*record.notes, *context.task.shortcomings(point.best))
    notify(callbacks, "scoring the model")
    scores = score_clusters(context.task, point.best, chosen, test)
    record = replace(record, scores=scores, findings=facts, notes=notes, sites=prepared.names)
    if test is not None and scores:
        start = context.task.start(context.federation, key / "start")
        record = replace(record, simplest=context.task.simplest(start, test))
    trained = baselines and provenance.allowed and not federation.distant
    if trained or not provenance.allowed:
        # Where no baseline may be trained, the score has its interval all the same.
        others = partial(notify, callbacks) if trained else None
        record = compare(context, record, point.best, chosen, test, key, others)
    record = evaluate_privately(context, record, point, held_out, directory, ledger, key)
    sizes = count_sizes(context.federation, test, provenance)
    record = replace(record, verdict=judge(record.simplest, record.scores), sizes=sizes)
    shown = _illustrate(context, point.best, test)
    promise = _state_promise(context, record, ledger)
    return Run(
        task=context.task, record=record, privacy=promise, state=point.best, path=directory.path, name=name,
        charged=tuple(ledger.releases()), shown=shown,
    )  # fmt: skip


def _state_promise(context: RunContext, record: Record, ledger: RunLedger) -> Statement:
    """Return the statement of a finished run, with the total over all runs on the same people."""
    spec, privacy, provenance = context.spec, context.spec.privacy, context.prepared.provenance
    promise = state(
        privacy, ledger.releases(), public=provenance.public, bare=provenance.bare, but=context.task.exempt,
        left_out=record.left_out, prices=subject_prices(ledger, privacy),
    )  # fmt: skip
    if isinstance(privacy, Open):
        return promise
    total = ledger.total(privacy.delta, privacy.unit)
    if total is not None and spec.evaluate is not None:
        total = replace(total, notes=(*total.notes, spec.evaluate.lifetime_note(total.epsilon)))
    return replace(promise, all_runs=total)


def evaluate_privately(
    context: RunContext,
    record: Record,
    point: Checkpoint,
    held_out: Federation,
    directory: Directory,
    ledger: Ledger,
    key: Key,
) -> Record:
    """Return the record with scores that are bought on private held-out records, if the run asks for them."""
    question, left = context.prepared.evaluation, list[str]()
    found, final = None, final_query_of(context.task)
    if question is not None and final is not None and f"the query for the {final.kind}" in record.left_out:
        # The model lacks what that query would have found, and predicts nothing.
        left.append(f"the query for the {question.kind}")
    with skip_if_unaffordable(question, left, resumed=True):
        if not left:
            found = replace(context, federation=held_out).ask_evaluation(point, directory, ledger, key)
    if left:
        notes = tuple(f"{what} was left out: {OVERSPENT}" for what in left)
        record = replace(record, left_out=(*record.left_out, *left), notes=(*record.notes, *notes))
    return record if found is None else record.with_evaluation(found)


def _illustrate(context: RunContext, best: Array, test: Records | None) -> dict[str, bytes]:
    """Return files with predictions of held-out records, if these are public or the run is open."""
    federation, prepared = context.federation, context.prepared
    public, opened = federation.public or federation.held_out_public, isinstance(prepared.spec.privacy, Open)
    if test is None or best.ndim > 1 or not (public or opened):
        return {}
    found = context.task.illustrate(best, test)
    if found and not public:
        prepared.provenance.look(
            "held-out records with their predictions, in the report", instead="hold out public records"
        )
    return found


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


Ends = tuple[float, float]
# Enough for a deviation, and few enough to score a model so often.
GROUPS = 20
LEVEL = 0.95
CERTAIN = "computing confidence intervals"
# Groups of fewer records tell more about themselves than about a score.
FEWEST = 3
EACH, TOGETHER = "training each site alone, to compare", "training on pooled records, to compare"
# Scores of a model, or of anything else, on fixed records.
Scoring = Callable[[Any], dict[str, float]]
# Name of the gain over the simplest baseline among scorings.
GAIN = "gain"


class Scorings(dict[str, Scoring]):
    """Scoring functions of baselines, by name, and notes on their training."""

    def __init__(self, found: Mapping[str, Scoring] = {}, notes: tuple[str, ...] = ()) -> None:
        super().__init__(found)
        self.notes = notes


def compare(
    context: RunContext,
    record: Record,
    state: Array,
    chosen: Mapping[str, int],
    test: Records | None,
    key: Key,
    tell: Tell | None = silent,
) -> Record:
    """Return the record with baselines and confidence intervals added.

    Args:
        context: The run's context.
        record: The record of the run.
        state: The model, or several.
        chosen: The model of each site, with several models.
        test: The records that models are scored on.
        key: The run's key.
        tell: Receives progress; None to train no baseline.
    """

    def ours(records: Records) -> dict[str, float]:
        return score_clusters(context.task, state, chosen, records)

    def split(records: Records) -> list[tuple[tuple[str, ...], Records]]:
        return own_records(context.task, state, chosen, records)

    rounds, provenance = context.spec.rounds, context.prepared.provenance
    others = Scorings()
    if tell is not None:
        others = train_baselines(context.task, context.federation, rounds, test, provenance, key, split, tell)
    found = {name: score(test) for name, score in others.items()}
    record = replace(record, baselines=found, notes=(*record.notes, *others.notes))
    # Worlds are judged by many episodes, whose intervals are among the scores.
    if test is None or context.task.layout == "environments":
        return record
    plain = record.simplest
    known: dict[str, Scoring] = {"federated": ours, **others}
    if plain is not None:
        known[GAIN] = partial(
            _gains, context.task, ours, context.task.start(context.federation, key / "start")
        )
    ends = intervals(known, test, key / "intervals", tell or silent)
    if plain is not None:
        record = replace(record, simplest=replace(plain, gain=ends.pop(GAIN, {})))
    return replace(record, intervals=ends)


def _gains(task: TaskBase, ours: Scoring, start: Array, records: Records) -> dict[str, float]:
    """Return how much better the model's scores are than those of the simplest baseline."""
    plain = task.simplest(start, records)
    return {} if plain is None else plain.gains(ours(records))


def train_baselines(
    task: TaskBase,
    federation: Federation,
    rounds: int,
    test: Records | None,
    provenance: Provenance,
    key: Key,
    split: Callable[[Any], Sequence[tuple[Sequence[str], Any]]] = lambda records: (),
    tell: Tell = silent,
) -> Scorings:
    """Train and score the baselines: each site `alone` (their mean) and all records `pooled`.

    Args:
        task: The task.
        federation: The sites.
        rounds: The number of rounds.
        test: The records that models will be scored on; without any, nothing is trained.
        provenance: Decides if the records may be looked at.
        key: The run's key.
        split: Records by the sites that they are scored for, with several models.
        tell: Receives progress.
    """
    if test is None:
        return Scorings()
    provenance.look("the scores of models trained alone and on pooled records", instead="do without them")
    if task.layout == "columns":
        # Columns have no rounds: the task knows what its parties can do alone.
        tell("training one party alone and on all columns, to compare", None)
        return Scorings(task.rivals(federation))
    everybody, pooled = federation.cohort(list(federation)), federation.pool()
    task = task.at_one_site(pooled)
    start = task.start(federation, key / "start")
    alone, first = train_safely(task, start, everybody, rounds, key / "alone", partial(tell, EACH))
    whole = pooled.cohort(["pooled"])
    together, second = train_safely(task, start, whole, rounds, key / "pooled", partial(tell, TOGETHER))
    places = {name: place for place, name in enumerate(federation)}
    if task.scores_clusters:
        # Agents that trained alone are judged where they trained.
        return Scorings({
            "alone": lambda records: task.score_each(alone, places, records),
            "pooled": lambda records: task.score(together[0], records),
        })  # fmt: skip

    return _score_by_split(task, list(federation), alone, together, split, test, (*first, *second))


def _score_by_split(
    task: TaskBase,
    names: Sequence[str],
    alone: Array,
    together: Array,
    split: Callable[[Any], Sequence[tuple[Sequence[str], Any]]],
    test: Records,
    notes: tuple[str, ...],
) -> Scorings:
    """Return how baselines are scored, on the records of their sites; those that diverged are left out."""
    places = {name: place for place, name in enumerate(names)}

    def scoring(states: Callable[[Sequence[str]], Array]) -> Scoring:
        def score(records: Any) -> dict[str, float]:  # noqa: ANN401
            parts = [(own, _scores(task, states(chosen), own)) for chosen, own in split(records)]
            if not parts:
                return _scores(task, states(names), records)
            return weighted_mean([(len(own), scores) for own, scores in parts])

        return score

    def usable(chosen: Sequence[str]) -> Array:
        own = alone[[places[name] for name in chosen]]
        return own[np.isfinite(own).all(axis=1)]

    found = Scorings(notes=notes)
    groups = [chosen for chosen, _ in split(test)] or [names]
    if all(len(usable(chosen)) for chosen in groups):
        found["alone"] = scoring(usable)
    if np.isfinite(together).all():
        found["pooled"] = scoring(lambda chosen: together)
    return found


def train_safely(
    task: TaskBase,
    start: Array,
    cohort: Cohort,
    rounds: int,
    key: Key,
    tell: Callable[[float | None], None] = lambda share: None,
) -> tuple[Array, tuple[str, ...]]:
    """Train without any exchange; repeat training that diverged with shorter steps.

    Returns:
        The states (sites, coordinates), of NaN where training diverged again; and notes on both.
    """
    states = _train(task, start, cohort, rounds, key, tell)
    work, mended = task.at_round(rounds, rounds), set[str]()
    for share in SLOWER:
        bad = find_diverged(work, states, start, replace(cohort, mean_site_size=None), key / "settled")
        again = slower(task, share)
        if not bad or again is None:
            break
        part = cohort.part(np.array(bad))
        repeated = _train(again, start, part, rounds, key / "slower" / str(share), tell)
        for row, place in enumerate(bad):
            own = cohort.records_of(place)
            if mean_loss(work, repeated[row], own) < mean_loss(work, states[place], own):
                states[place] = repeated[row]
                mended.add(cohort.names[place])
    lost = find_lost(work, states, cohort)
    states[lost] = np.nan
    failed = [cohort.names[place] for place in lost]
    notes = [
        f"training of the baseline {_name_baseline(names)} diverged and {what}"
        for names, what in (
            (sorted(mended.difference(failed)), "was repeated with a smaller learning rate"),
            (failed, "is not shown"),
        )
        if names
    ]
    return _close(task, states, cohort, key), tuple(notes)


def _name_baseline(names: Sequence[str]) -> str:
    return "pooled" if list(names) == ["pooled"] else f"alone ({', '.join(names)})"


def _train(
    task: TaskBase,
    start: Array,
    cohort: Cohort,
    rounds: int,
    key: Key,
    tell: Callable[[float | None], None] = lambda share: None,
) -> Array:
    """Train sites without any exchange; return their states (sites, coordinates)."""
    # Sums are divided by a site's own expected batch: nothing is averaged that would need a common scale.
    apart = replace(cohort, mean_site_size=None)
    states = np.array(np.broadcast_to(start, (len(cohort), start.size)))
    tell(None)
    for number in range(1, rounds + 1):
        work = task.at_round(number, rounds)
        sent = work.train(states, apart, NoPrivacy(), key / number).matrix
        states = np.stack([task.advance(own, step) for own, step in zip(states, sent, strict=True)])
        tell(number / rounds)
    return states


def _close(task: TaskBase, states: Array, cohort: Cohort, key: Key) -> Array:
    """Return the states with each site's own answer to the final query in it."""
    closing = final_query_of(task)
    if closing is None:
        return states
    apart = replace(cohort, mean_site_size=None)
    answers = closing.train(states, apart, NoPrivacy(), key / "closing").matrix
    return np.stack([closing.apply(*pair) for pair in zip(states, answers, strict=True)])


def _scores(task: TaskBase, states: Array, test: Records) -> dict[str, float]:
    scores = [task.score(state, test) for state in states]
    return {name: float(np.mean([entry[name] for entry in scores])) for name in scores[0]}


def intervals(
    scorings: Mapping[str, Scoring], test: Records, key: Key, tell: Tell = silent
) -> dict[str, dict[str, Ends]]:
    """Compute bootstrap intervals of every score of every model, from the same resamples for all.

    The delete-a-group jackknife: the deviation of a score is that of its values without a group each, times
    the root of (groups - 1).

    Args:
        scorings: The scoring functions, by the name of the model.
        test: The records.
        key: The key of the resamples.
        tell: Receives progress.
    """
    if len(test) < FEWEST * GROUPS:
        return {}
    order = key.generator().permutation(len(test))
    rests = [np.sort(np.delete(order, slice(first, None, GROUPS))) for first in range(GROUPS)]
    parts = [test.take(rest) for rest in rests]
    found: dict[str, dict[str, Ends]] = {}
    tell(CERTAIN, None)
    for number, (name, score) in enumerate(scorings.items()):
        try:
            without = list[dict[str, float]]()
            for part in parts:
                without.append(score(part))
                tell(CERTAIN, (number + len(without) / GROUPS) / len(scorings))
            whole = score(test)
        except TacitError:
            # Without these few a score cannot be computed: then it has no interval.
            continue
        found[name] = {
            entry: _ends(value, [scores[entry] for scores in without])
            for entry, value in whole.items()
            if all(math.isfinite(scores.get(entry, math.nan)) for scores in (whole, *without))
        }
    return found


def _ends(value: float, without: list[float]) -> Ends:
    from scipy.stats import t

    groups = len(without)
    deviation = float(np.std(without)) * math.sqrt(groups - 1)
    reach = float(t.ppf((1 + LEVEL) / 2, groups - 1)) * deviation
    return value - reach, value + reach
