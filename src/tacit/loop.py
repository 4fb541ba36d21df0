"""The only round loop in the library.

It knows neither networks nor noise: a task trains, a mechanism guards, an aggregator combines, the ledger is
charged before anything leaves. There is no branch for privacy; an open run has a mechanism that does nothing.
"""

import os
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tacit.aggregation.averaging import Mean
from tacit.aggregation.server import Plain, ServerStep
from tacit.baselines import compare
from tacit.directory import LEDGER, Checkpoint, Directory
from tacit.engines.base import Engine
from tacit.engines.local import Local
from tacit.errors import BudgetExhausted, InvalidValue, require_count
from tacit.keys import Key
from tacit.privacy.ledger import Ledger
from tacit.privacy.policy import Open, Privacy
from tacit.privacy.provenance import Provenance
from tacit.privacy.statement import state
from tacit.questions import Augmentation, closing_of, opened, opening_of, questions, told
from tacit.record import Record, Round
from tacit.run import Run, is_over, read, write
from tacit.setting import Setting, digest
from tacit.sites.sampling import Poisson, Sampling
from tacit.sites.site import Federation
from tacit.sites.tables import Table
from tacit.stopping import Look, Stopping, best, enough, finite, pay_to_watch, watch_over
from tacit.task import Task

if TYPE_CHECKING:
    from torch import Tensor

Callback = Callable[[Round], None]


def fit(
    task: Task,
    federation: Federation,
    *,
    privacy: Privacy | Open = Open(),
    aggregation: Mean = Mean(),
    server: ServerStep = Plain(),
    sampling: Sampling = Poisson(),
    stop: Stopping | None = None,
    augment: Augmentation | None = None,
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
        engine: Where the work is done.
        rounds: How many.
        seed: What repeats.
        baselines: Whether to train each site alone and on pooled records too, for comparison; left out where
            that would let out what the promise protects.
        name: What to call the run.
        out: The directory that remembers the run; nothing is kept without one.
        resume: Whether to go on with the run in `out`, if there is one.
        callbacks: Called after every round.

    Raises:
        TacitError: Anything the user can mend: bad data, a promise that cannot be kept, a budget that does
            not suffice, a directory that cannot be written. A refused round is not charged.
    """
    require_count("rounds", rounds)
    provenance = Provenance(privacy, public=federation.public)
    if federation.held_out is not None and federation.held_out_public and not federation.public:
        provenance.agreed(["the records that models are scored on, as whoever gave them says"])
    for what in federation.taken:
        provenance.look(what, instead="use public numbers, and sites that are real")
    if federation.records is not None:
        provenance.agreed([f"how many records all sites hold: {federation.records:,}"])
    task = task.settle(federation, provenance)
    training = (stop or Stopping()).reserve(_left(augment, federation, privacy, provenance))
    mechanism = training.solve(
        task, list(federation), aggregation, rounds,
        sampling=sampling.kind, records=federation.records, questions=questions(task),
    )  # fmt: skip
    sampling.check(list(federation))
    watch, test = watch_over(federation, stop, task.goal, provenance, Key(seed))
    _require_scores(task, federation, [test, *([watch.records] if isinstance(watch, Look) else [])])
    loop = Loop(
        task, federation, privacy, aggregation, server, sampling, engine, rounds, mechanism, watch,
        training, augment, provenance,
    )  # fmt: skip
    directory = Directory(out)
    choices = {"name": name, "seed": seed, "rounds": rounds, "baselines": baselines}
    with directory.claimed({**choices, **loop.described(stop)}, resume=resume):
        if is_over(directory):
            directory.forget_secret()
            return read(directory, opened(task, directory))
        with Ledger(directory.file(LEDGER)) as ledger:
            key = Key(seed, rehearsal=getattr(privacy, "rehearsal", True), entropy=directory.secret())
            run = _ran(loop, stop, test, directory, ledger, key, callbacks, baselines=baselines, name=name)
        write(run, directory)
    return run


def _ran(
    loop: "Loop",
    stop: Stopping | None,
    test: Table | None,
    directory: Directory,
    ledger: Ledger,
    key: Key,
    callbacks: Sequence[Callback],
    *,
    baselines: bool,
    name: str,
) -> Run:
    """Everything from the first charge on: what is bought, the rounds, the scores, the statement."""
    federation, privacy, provenance = loop.federation, loop.privacy, loop.provenance
    data = digest(key, "data", federation.fingerprint)
    if isinstance(privacy, Privacy) and stop is not None and stop.epsilon is not None:
        training, paid = pay_to_watch(federation, stop, privacy, loop.rounds, key)
        loop = replace(loop, federation=training, watch=paid)
    loop, point = loop.prepared(directory, ledger, key, data)
    point, record = loop.run(point, directory, ledger, key, callbacks)
    if test is not None:
        record = replace(record, scores=finite(loop.task.score(point.best, test)))
    if baselines and provenance.allowed:
        found = compare(loop.task, federation, loop.rounds, test, provenance, key)
        record = replace(record, baselines=found)
    promise = state(privacy, ledger.releases(), public=provenance.public, bare=provenance.bare)
    return Run(
        task=loop.task, record=record, privacy=promise, state=point.best, path=directory.path, name=name
    )


def _left(
    augment: Augmentation | None, federation: Federation, privacy: Privacy | Open, provenance: Provenance
) -> Privacy | Open:
    """What is left of a promise once synthetic records have their part."""
    if augment is None:
        return privacy
    augment.check(federation, privacy, provenance)
    return augment.reserve(privacy)


@dataclass(frozen=True, eq=False)
class Loop(Setting):
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
            point = replace(point, state=start, memory=self.server.remember(start), best=start)
        past = directory.finished_rounds(point)
        goal, patience = self.watch.goal, self.watch.patience
        reason = enough(past, goal, patience)
        while point.finished < self.rounds and reason is None:
            try:
                point, entry = self._round(point, ledger, key / (point.finished + 1), point.finished + 1)
            except BudgetExhausted:
                if not resumed:
                    raise
                # A round that was cut off and could not be repeated was paid twice.
                reason = "the budget bears no further round"
                break
            past.append(entry)
            if best(past, goal, patience) == entry.number:
                point = replace(point, best=point.state, best_round=entry.number)
            directory.write_round(entry)
            directory.write_checkpoint(point)
            for callback in callbacks:
                callback(entry)
            reason = enough(past, goal, patience)
        early = reason if point.finished < self.rounds else None
        if early is not None:
            self._pay_the_rest(ledger, point, key)
        with suppress(BudgetExhausted) if resumed else nullcontext():
            # What was cut off and could not be repeated was paid twice: then there is no last answer.
            point = self.closed(point, directory, ledger, key)
        return point, Record(rounds=tuple(past), chosen=point.best_round, stopped=early)

    def _pay_the_rest(self, ledger: Ledger, point: Checkpoint, key: Key) -> None:
        """Charge for the rounds that were not taken: when to stop was decided by looking at the results.

        What is proven is the price of the plan. A price that followed the results would be a claim too small.
        What the budget cannot bear, because a round was paid twice, is on the books all the same.
        """
        rest, ticket = self.planned(point.finished + 1), digest(key, "rest", point.data.encode())
        try:
            ledger.charge(rest, ticket=ticket)
        except BudgetExhausted:
            ledger.owe(rest, ticket=ticket)

    def _round(self, point: Checkpoint, ledger: Ledger, key: Key, number: int) -> tuple[Checkpoint, Round]:
        """Draw the sites, pay, train, combine, advance."""
        began = time.perf_counter()
        ticket = self.ticket(point, key)
        # Draws and noise belong to one charge: whoever pays again draws again. A rehearsal repeats.
        key = key if key.rehearsal else key / ticket
        names = self.sampling(list(self.federation), self.privacy.participation, key / "who")
        price = (*self.mechanism.release(number, names), *self.watch.release(number))
        ledger.charge(price, ticket=ticket)
        updates = self.engine.train(self.task, self.federation, point.state, names, self.mechanism, key)
        expected = self.mechanism.denominator(len(self.federation))
        combined = self.mechanism.at_server(self.aggregation(updates, sites=expected), key / "server")
        step, memory = self.server(combined, point.memory)
        advanced = self.task.advance(point.state, step)
        if not bool(advanced.isfinite().all()):
            raise InvalidValue(f"training diverged in round {number}: the state is not finite; lower the lr")
        after = replace(point, finished=number, state=advanced, memory=memory, ledger_head=ledger.head)
        told = Round(
            number=number,
            rounds=self.rounds,
            # Where the price counts on a secret draw, how many came is a secret; so is the time it took.
            sites=len(names) if expected is None else None,
            scores=self.watch.scores(self.task, self._shown(after.state, key), key),
            epsilon=None if isinstance(self.privacy, Open) else ledger.spent(self.privacy.delta),
            budget=None if isinstance(self.privacy, Open) else self.privacy.epsilon,
            seconds=time.perf_counter() - began if expected is None else None,
        )
        return after, told

    def _shown(self, state: "Tensor", key: Key) -> "Tensor":
        """The state that is scored after a round: closed, where that costs nothing."""
        question = closing_of(self.task)
        blind = isinstance(self.watch, Look) and self.watch.records is None
        if question is None or blind or self.price(question):
            return state
        return question.close(state, self.ask(question, state, key / "closing"))


def _require_scores(task: Task, federation: Federation, tables: Sequence[Table | None]) -> None:
    """Refuse held-out records that no score can be computed on, before anything is charged."""
    opening = opening_of(task)
    task = task if opening is None else told(task, opening.stand_in)
    start = task.start(federation, Key(0))
    for table in tables:
        try:
            _ = task.score(start, table) if table is not None else {}
        except InvalidValue as error:
            few = f"the held-out records ({len(table or ())}) cannot be scored"
            raise InvalidValue(f"{few}: hold out more, or none ({error})") from error
