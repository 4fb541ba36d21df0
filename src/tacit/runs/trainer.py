"""The only round loop in the library.

It knows neither networks nor noise: a task trains, a mechanism guards, an aggregator combines, the ledger is
charged before anything leaves. There is no branch for privacy; an open run has a mechanism that does nothing.
"""

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from tacit.aggregation.attacks.base import Attack
from tacit.aggregation.base import Aggregator
from tacit.aggregation.defence.clustering import Clusters
from tacit.aggregation.defence.quarantine import Quarantine
from tacit.aggregation.mean import Mean
from tacit.aggregation.screening import LONGEST, Screen, anonymize
from tacit.aggregation.server import Plain, ServerStep
from tacit.engines.adaptive_clipping import ClippedWork
from tacit.engines.base import Engine
from tacit.engines.local import Local
from tacit.errors import (
    BudgetExhausted,
    InvalidValue,
    Refused,
    SecureAggregationFailed,
    TooFewSites,
    require_name,
)
from tacit.learning.progress import Callback, notify
from tacit.learning.record import OVERSPENT, Fault, Record, Round
from tacit.learning.task import Task, Updates, at_round, stop_reason
from tacit.privacy.contracts import Norm, exempt
from tacit.privacy.ledger.run_ledger import RunLedger
from tacit.privacy.ledger.store import Ledger
from tacit.privacy.mechanisms.base import Mechanism
from tacit.privacy.policy import Open, Privacy
from tacit.privacy.statement import state, subject_prices
from tacit.runs.clusters import idle_models, score_clusters, train_clusters, watch_scores
from tacit.runs.context import BOUNDS, RunContext
from tacit.runs.data_books import book_of
from tacit.runs.directory import EXPERIMENT, LEDGER, PROVENANCE, Checkpoint, Directory
from tacit.runs.intervals import compare
from tacit.runs.queries import (
    Augmenter,
    final_query_of,
    findings,
    initial_query_of,
    shortcomings,
    skip_if_unaffordable,
    with_saved_answers,
)
from tacit.runs.round import RoundAggregator, RoundResult, single_model
from tacit.runs.run import Run, is_over, read, write
from tacit.runs.setup import PreparedRun, prepare
from tacit.runs.stopping import HeldOutWatch, Stopping, best, early_stop_reason, pay_to_watch, plan_watch
from tacit.runs.tickets import digest
from tacit.runs.verification import require_sound
from tacit.runtime.arrays import Array
from tacit.runtime.keys import Key
from tacit.runtime.refusals import withholding
from tacit.runtime.silence import suppress_warnings
from tacit.runtime.threads import one_thread
from tacit.sites.federation import Federation
from tacit.sites.sampling import Poisson, Sampling

# What is written down of how the updates of a round were combined.
TOLD = ("skipped", "faults", "shares", "standings", "decisions", "clusters", "diary")


# Sums keep one order, scores included; and on small arrays a second thread costs more than it saves.
@one_thread()
@suppress_warnings()
@withholding(lambda given: not getattr(given.get("privacy"), "rehearsal", True))
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
    """Train a task across the sites of a federation, and keep account of what that cost.

    Args:
        task: What is learnt.
        federation: Who holds which records.
        privacy: What may leave a site.
        aggregation: How updates are combined.
        server: What the server does with the combined update.
        sampling: How the sites of a round are drawn.
        stop: When to end before the last round, and which round to keep.
        augment: How sites add synthetic records to their own.
        quarantine: Who keeps watch over the sites, if anybody does.
        attack: How some sites lie, in a rehearsal.
        clusters: How sites are told apart that learn several models, if there are several.
        engine: Where the work is done.
        rounds: How many.
        seed: What repeats.
        baselines: Whether to train each site alone and on pooled records too, for comparison; left out where
            that would let out what the promise protects.
        name: What to call the run.
        out: The directory that remembers the run; nothing is kept without one.
        resume: Whether to go on with the run in `out`, if there is one.
        callbacks: Called after every round; those with a method `stage` are told what is done between, too.

    Raises:
        TacitError: Anything the user can mend: bad data, a promise that cannot be kept, a budget that does
            not suffice, a directory that cannot be written. A refused round is not charged.
    """
    require_name("name", name)
    if isinstance(privacy, Privacy):
        notify(callbacks, "solving the noise")
    ready = prepare(
        task, federation, privacy=privacy, aggregation=aggregation, server=server, sampling=sampling,
        stop=stop, augment=augment, quarantine=quarantine, attack=attack, clusters=clusters, engine=engine,
        rounds=rounds, seed=seed,
    )  # fmt: skip
    loop = Trainer(**vars(ready.setting))
    directory, book = Directory(out), book_of(federation, privacy)
    if book is not None and directory.read(EXPERIMENT) is None and not book.accept(federation.receipt):
        # What the lifetime budget of these people cannot bear is refused before anything is written.
        watch = plan_watch(loop.watch, federation, stop, privacy, rounds)
        book.check(replace(loop, watch=watch).whole_price())
    choices = {"name": name, "seed": seed, "rounds": rounds, "baselines": baselines}
    # An experiment that is read from its directory has looked at nothing: what it knows was found before.
    sources = {PROVENANCE: {"public": loop.provenance.public, "bare": loop.provenance.bare}}
    with directory.claim({**choices, **loop.describe(stop)}, resume=resume, beside=sources):
        if out is not None and is_over(directory):
            run = read(directory, with_saved_answers(loop.task, directory))
            require_sound(out)
            directory.forget_secret()
            return run
        with RunLedger(directory.file(LEDGER), book=book, receipt=federation.receipt, name=name) as ledger:
            key = Key(seed, rehearsal=getattr(privacy, "rehearsal", True), entropy=directory.secret())
            run = _run(loop, ready, directory, ledger, key, callbacks, baselines=baselines, name=name)
        write(run, directory)
    return run


def _run(
    loop: "Trainer",
    ready: PreparedRun,
    directory: Directory,
    ledger: RunLedger,
    key: Key,
    callbacks: Sequence[Callback],
    *,
    baselines: bool,
    name: str,
) -> Run:
    """Everything from the first charge on: what is bought, the rounds, the scores, the statement."""
    federation, privacy, provenance = loop.federation, loop.privacy, loop.provenance
    stop, test = ready.stop, ready.test
    data = digest(key, "data", federation.fingerprint)
    if isinstance(privacy, Privacy) and stop is not None and stop.epsilon is not None:
        training, paid = pay_to_watch(federation, stop, privacy, loop.rounds, key)
        loop = replace(loop, federation=training, watch=paid)
    if loop.augment is not None or initial_query_of(loop.task) is not None:
        notify(callbacks, "asking the sites before the first round")
    provenance.recall(directory.read_json(PROVENANCE) or {})
    directory.write_json(PROVENANCE, {"public": provenance.public, "bare": provenance.bare})
    loop, point = loop.begin(directory, ledger, key, data)
    point, record = loop.run(point, directory, ledger, key, callbacks)
    chosen = record.rounds[record.chosen - 1].clusters if record.chosen else {}
    facts = (*loop.facts(), *findings(loop.task, point.best))
    notes = (*record.notes, *shortcomings(loop.task, point.best))
    notify(callbacks, "scoring the model")
    scores = score_clusters(loop.task, point.best, chosen, test)
    record = replace(record, scores=scores, findings=facts, notes=notes, sites=tuple(federation))
    if baselines and provenance.allowed and not federation.distant:
        record = compare(loop, record, point.best, chosen, test, key, partial(notify, callbacks))
    promise = state(
        privacy, ledger.releases(), public=provenance.public, bare=provenance.bare, but=exempt(loop.task),
        left_out=record.left_out, prices=subject_prices(ledger, privacy),
    )  # fmt: skip
    if isinstance(privacy, Privacy):
        promise = replace(promise, all_runs=ledger.total(privacy.delta, privacy.unit))
    return Run(
        task=loop.task, record=record, privacy=promise, state=point.best, path=directory.path, name=name,
        charged=tuple(ledger.releases()),
    )  # fmt: skip


@dataclass(frozen=True, eq=False)
class Trainer(RunContext):
    """The rounds."""

    def run(
        self,
        point: Checkpoint,
        directory: Directory,
        ledger: Ledger,
        key: Key,
        callbacks: Sequence[Callback],
    ) -> tuple[Checkpoint, Record]:
        """Go on from a checkpoint to the last round, or until the watch says so.

        Args:
            point: Where the run stands.
            directory: Where it is kept.
            ledger: What is charged.
            key: The run's key.
            callbacks: Called after every round.

        Returns:
            Where the run stands, and what happened.
        """
        resumed = point.finished > 0
        if not resumed:
            start = self.task.start(self.federation, key / "start")
            start = start if self.clusters is None else self.clusters.initial_models(start)
            point = replace(point, state=start, memory=self.server.remember(start), best=start)
        past = directory.finished_rounds(point)
        goal, patience = self.watch.goal, self.watch.patience
        reason = early_stop_reason(past, goal, patience) or stop_reason(self.task, point.state)
        left: list[str] = []
        notify(callbacks, "training")
        while point.finished < self.rounds and reason is None:
            try:
                number = point.finished + 1
                point, entry = self._round(point, past, ledger, key / number, number)
            except BudgetExhausted:
                if not resumed:
                    raise
                # A round that was cut off and could not be repeated was paid twice.
                reason = "the budget bears no further round"
                left.append(f"training from round {point.finished + 1} to round {self.rounds}")
                break
            past.append(entry)
            if best(past, goal, patience) == entry.number:
                point = replace(point, best=point.state, best_round=entry.number)
            directory.write_round(entry)
            directory.write_checkpoint(point)
            for callback in callbacks:
                callback(entry)
            reason = early_stop_reason(past, goal, patience) or stop_reason(self.task, point.state)
        early = reason if point.finished < self.rounds else None
        if early is not None:
            self._pay_the_rest(ledger, point, key)
        notify(callbacks if final_query_of(self.task) else (), "asking the sites after the last round")
        chosen = past[point.best_round - 1].clusters if point.best_round else {}
        with skip_if_unaffordable(final_query_of(self.task), left, resumed=resumed):
            point = self.ask_final(point, chosen or dict.fromkeys(self.federation, 0), directory, ledger, key)
        return point, replace(self._record(point, past, left), stopped=early)

    def _record(self, point: Checkpoint, past: Sequence[Round], left: Sequence[str]) -> Record:
        """What happened, and what of the plan was left out."""
        last = past[-1].clusters if past else {}
        notes = (
            *self.notes(point.state.shape[-1]),
            *idle_models(self.aggregation, self.clusters, last, len(past)),
        )
        notes += tuple(f"{what} was left out: {OVERSPENT}" for what in left)
        return Record(rounds=tuple(past), chosen=point.best_round, notes=notes, left_out=tuple(left))

    def _pay_the_rest(self, ledger: Ledger, point: Checkpoint, key: Key) -> None:
        """Charge for the rounds that were not taken: when to stop was decided by looking at the results.

        What is proven is the price of the plan. A price that followed the results would be a claim too small.
        What the budget cannot bear, because a round was paid twice, is on the books all the same.
        """
        rest, ticket = self.planned_releases(point.finished + 1), digest(key, "rest", point.data.encode())
        ledger.owe(rest, ticket=ticket, plan=self.plan)

    def _round(
        self, point: Checkpoint, past: Sequence[Round], ledger: Ledger, key: Key, number: int
    ) -> tuple[Checkpoint, Round]:
        """Draw the sites, pay, train, combine, advance."""
        began = time.perf_counter()
        ticket = self.ticket(point, key)
        key = key if key.rehearsal else key / ticket
        names = self.sampling(list(self.federation), self.privacy.participation, key / "who")
        # Where the price counts on a secret draw, how many came is a secret; so is the time it took.
        expected = self.mechanism.denominator(len(self.federation))
        before = (
            RoundResult(standings=past[-1].standings, clusters=past[-1].clusters)
            if past
            else self.initial_result
        )
        found = self._skip_if_few(names, expected, before)
        paid = found is None
        if found is None:
            price = (*self.mechanism.release(number, names), *self.watch.release(number))
            ledger.charge(price, ticket=ticket, plan=self.plan)
            try:
                found, point = self._train_round(point, names, before, key, ticket, number)
            except SecureAggregationFailed as error:
                if self.joins:
                    raise
                # Nothing was unmasked, and what was paid for is paid.
                found = replace(before, skipped=str(error))
        found = self.assign_clusters(found, point, number, key)
        after = replace(self._advance(point, found, number, key), finished=number, ledger_head=ledger.head)
        told = Round(
            number=number,
            rounds=self.rounds,
            sites=len(names) if expected is None else None,
            # What was not paid for is not looked at.
            scores=self._scores(after.state, found.clusters, key) if paid else {},
            epsilon=None if isinstance(self.privacy, Open) else ledger.spent(self.privacy.delta),
            budget=None if isinstance(self.privacy, Open) else self.privacy.epsilon,
            seconds=time.perf_counter() - began if expected is None else None,
            **{name: getattr(found, name) for name in TOLD},
        )
        return after, told

    def _skip_if_few(
        self, names: Sequence[str], expected: float | None, before: RoundResult
    ) -> RoundResult | None:
        """Why this round is over before it begins, if too few are there; then nothing is paid."""
        if expected is not None:
            return None
        try:
            if not names:
                raise TooFewSites("no site took part")
            self.aggregation.tolerates(len(names))
        except TooFewSites as error:
            return replace(before, skipped=str(error))
        return None

    def _train_round(
        self,
        point: Checkpoint,
        names: Sequence[str],
        before: RoundResult,
        key: Key,
        ticket: str,
        number: int,
    ) -> tuple[RoundResult, Checkpoint]:
        """Send the sites to work, and combine what comes back; what is remembered of it is in the point."""
        mechanism, faults, parted = self.mechanism.at_round(number), tuple[Fault, ...](), single_model
        task = at_round(self.task, number, self.rounds)
        if self.clusters is None:
            work = task if self.packing is None else ClippedWork(task, self.packing, point.kept[BOUNDS])
            updates = self.engine.train(work, self.federation, point.state, names, mechanism, key)
        else:
            updates, faults, parted = train_clusters(
                self.clusters, self.engine, task, self.federation, point, names, mechanism,
                before.clusters, self.aggregation.tolerates(len(names)), key,
            )  # fmt: skip
        updates = self.tamper(replace(updates, round=number), key)
        self.require_everybody(updates, names, mechanism)
        self.snapshot(number, point.state, updates, before.clusters, mechanism)
        screen = self._screen(updates, number, ticket, mechanism)
        groups = mechanism.groups(names)
        if groups is not None and len(groups) != len(updates.names):
            raise Refused("the engine shows single updates where sums alone may be seen: use another engine")
        # Sums keep one order, so that what is computed again is the same to the last bit.
        with one_thread():
            found = RoundAggregator(
                self.aggregation, self.quarantine, groups is not None, len(self.federation)
            )(
                updates,
                screen,
                before.standings,
                expected=mechanism.denominator(len(self.federation)),
                parted=parted,
            )
        # Who took part may be a secret; then so is what they tell, and who did not answer.
        known = mechanism.denominator(len(self.federation)) is None
        shown = known and self.provenance.allowed
        told = {name: dict(entry) for name, entry in updates.metrics.items() if shown}
        absent = updates.faults if known else anonymize(updates.faults)
        faults = (*faults, *absent, *found.faults)
        return replace(found, faults=faults, diary=told), self.remember(point, parted)

    def _screen(self, updates: Updates, number: int, ticket: str, mechanism: Mechanism) -> Screen:
        """What may be aggregated in a round."""
        anything: tuple[float, Norm] = (LONGEST, "l2")
        return Screen(
            names=updates.names,
            width=int(updates.matrix.shape[1]),
            round=number,
            ticket=ticket,
            limit=anything if self.joins else mechanism.update_bound(),
        )

    def _advance(self, point: Checkpoint, found: RoundResult, number: int, key: Key) -> Checkpoint:
        """Where the run stands after the server's step; a round without one changes nothing."""
        if found.step is None:
            return point
        combined, kept = self.mechanism.at_server(found.step, key / "server"), dict(point.kept)
        if self.packing is not None:
            combined, kept[BOUNDS] = self.packing.decode(combined, point.kept[BOUNDS])
        step, memory = self.server(combined, point.memory)
        advanced = self.task.advance(point.state, step)
        if not bool(np.isfinite(advanced).all()):
            raise InvalidValue(f"training diverged in round {number}: the state is not finite; lower the lr")
        return replace(point, state=advanced, memory=memory, kept=kept)

    def _scores(self, state: Array, clusters: Mapping[str, int], key: Key) -> dict[str, float]:
        """How good the state is after a round."""
        return watch_scores(self.watch, self.task, self._scored_state(state, clusters, key), clusters, key)

    def _scored_state(self, state: Array, clusters: Mapping[str, int], key: Key) -> Array:
        """The state that is scored after a round: closed, where that costs nothing."""
        question = final_query_of(self.task)
        blind = isinstance(self.watch, HeldOutWatch) and self.watch.records is None
        if question is None or blind or self.price(question):
            return state
        # Before anybody is told apart, all models are one.
        own = clusters or dict.fromkeys(self.federation, 0)
        return self.apply_final(question, state, own, key / "closing")
