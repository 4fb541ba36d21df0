"""The only round loop in the library.

It knows neither networks nor noise: a task trains, a mechanism guards, an aggregator combines, the ledger is
charged before anything leaves. There is no branch for privacy; an open run has a mechanism that does nothing.
"""

import hmac
import os
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from tacit.aggregation.averaging import Mean
from tacit.aggregation.server import Plain, ServerStep
from tacit.baselines import compare
from tacit.directory import LEDGER, Checkpoint, Directory, machine
from tacit.engines.base import Engine
from tacit.engines.local import Local
from tacit.errors import BudgetExhausted, InvalidValue, require_count
from tacit.keys import Key
from tacit.privacy.account import EVERYONE
from tacit.privacy.ledger import Ledger
from tacit.privacy.mechanism import Mechanism
from tacit.privacy.policy import Open, Privacy
from tacit.privacy.provenance import Provenance
from tacit.privacy.release import Release
from tacit.privacy.statement import state
from tacit.record import Record, Round, described
from tacit.run import Run, is_over, read, write
from tacit.sites.sampling import Poisson, Sampling
from tacit.sites.site import Federation
from tacit.sites.tables import Table
from tacit.stopping import Look, Stopping, Watch, best, enough, finite, pay_to_watch, watch_over
from tacit.task import Task

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
    if federation.records is not None:
        provenance.agreed([f"how many records all sites hold: {federation.records:,}"])
    task = task.settle(federation, provenance)
    stopping = stop or Stopping()
    mechanism = stopping.reserve(privacy).solve(
        task, list(federation), aggregation, rounds, sampling=sampling.kind, records=federation.records
    )
    sampling.check(list(federation))
    watch, test = watch_over(federation, stop, task.goal, provenance, Key(seed))
    _require_scores(task, federation, [test, *([watch.records] if isinstance(watch, Look) else [])])
    loop = Loop(task, federation, privacy, aggregation, server, sampling, engine, rounds, mechanism, watch)
    directory = Directory(out)
    choices = {"name": name, "seed": seed, "rounds": rounds, "baselines": baselines}
    with directory.claimed({**choices, **loop.described(stop)}, resume=resume):
        if is_over(directory):
            directory.forget_secret()
            return read(directory, task)
        with Ledger(directory.file(LEDGER)) as ledger:
            key = Key(seed, rehearsal=getattr(privacy, "rehearsal", True), entropy=directory.secret())
            data = _digest(key, "data", federation.fingerprint)
            if isinstance(privacy, Privacy) and stopping.epsilon is not None:
                training, paid = pay_to_watch(federation, stopping, privacy, rounds, key)
                loop = replace(loop, federation=training, watch=paid)
            point, record, owed = loop.run(directory, ledger, key, data, callbacks)
            if test is not None:
                record = replace(record, scores=finite(task.score(point.best, test)))
            if baselines and provenance.allowed:
                record = replace(record, baselines=compare(task, federation, rounds, test, provenance, key))
            releases = [*ledger.releases(), *owed]
            promise = state(privacy, releases, public=provenance.public, bare=provenance.bare)
        run = Run(task=task, record=record, privacy=promise, state=point.best, path=directory.path, name=name)
        write(run, directory)
    return run


@dataclass(frozen=True, eq=False)
class Loop:
    """Everything that stays the same from round to round."""

    task: Task
    federation: Federation
    privacy: Privacy | Open
    aggregation: Mean
    server: ServerStep
    sampling: Sampling
    engine: Engine
    rounds: int
    mechanism: Mechanism
    watch: Watch
    nonce: str = field(default_factory=lambda: secrets.token_hex(16))

    def run(
        self, directory: Directory, ledger: Ledger, key: Key, data: str, callbacks: Sequence[Callback]
    ) -> tuple[Checkpoint, Record, list[Release]]:
        """Go on from the last checkpoint to the last round, or until the watch says so.

        Args:
            directory: Where the run is kept.
            ledger: What is charged.
            key: The run's key.
            data: What tells the data of this run from any other.
            callbacks: Called after every round.

        Returns:
            Where the run stands, what happened, and what it owes beyond what its ledger could bear.
        """
        kept = directory.resumable(ledger, data)
        if kept is None:
            self._budget(ledger)
        point = kept or self._begin(directory, ledger, key, data)
        told = directory.finished_rounds(point)
        loop = self._counted(ledger, key, data)
        goal, patience = self.watch.goal, self.watch.patience
        reason = enough(told, goal, patience)
        while point.finished < self.rounds and reason is None:
            try:
                point, entry = loop._round(point, ledger, key / (point.finished + 1), point.finished + 1)
            except BudgetExhausted:
                if kept is None or not told:
                    raise
                # A round that was cut off and could not be repeated was paid twice.
                reason = "the budget bears no further round"
                break
            told.append(entry)
            if best(told, goal, patience) == entry.number:
                point = replace(point, best=point.state, best_round=entry.number)
            directory.write_round(entry)
            directory.write_checkpoint(point)
            for callback in callbacks:
                callback(entry)
            reason = enough(told, goal, patience)
        early = reason if point.finished < self.rounds else None
        owed = [] if early is None else self._pay_the_rest(ledger, point, data, key)
        return point, Record(rounds=tuple(told), chosen=point.best_round, stopped=early), owed

    def _pay_the_rest(self, ledger: Ledger, point: Checkpoint, data: str, key: Key) -> list[Release]:
        """Charge for the rounds that were not taken: when to stop was decided by looking at the results.

        What is proven is the price of the plan. A price that followed the results would be a claim too small.
        What the ledger cannot bear, because a round was paid twice, is returned, to be stated all the same.
        """
        rest = self._planned(point.finished + 1)
        try:
            ledger.charge(rest, ticket=_digest(key, "rest", data.encode()))
        except BudgetExhausted:
            return rest
        return []

    def _planned(self, first: int) -> list[Release]:
        """What the rounds from `first` on release, if everybody joins each."""
        names = list(self.federation)
        return [
            release
            for number in range(first, self.rounds + 1)
            for release in (*self.mechanism.release(number, names), *self.watch.release(number))
        ]

    def _counted(self, ledger: Ledger, key: Key, data: str) -> "Loop":
        """This loop with the number of records known, if it has to be bought."""
        price = self.mechanism.counting(list(self.federation))
        if not price:
            return self
        ledger.charge(price, ticket=_digest(key, "count", data.encode()))
        sizes = {name: len(self.federation.records_of(name)) for name in self.federation}
        return replace(self, federation=self.federation.knowing(self.mechanism.count(sizes, key / "count")))

    def described(self, stop: Stopping | None) -> dict[str, object]:
        """The choices of this run as the tables of an experiment file."""
        tables = {
            "task": self.task, "privacy": self.privacy, "aggregation": self.aggregation,
            "server": self.server, "sampling": self.sampling, "stop": stop, "engine": self.engine,
        }  # fmt: skip
        return {**self.federation.origin, **{name: described(part) for name, part in tables.items() if part}}

    def _begin(self, directory: Directory, ledger: Ledger, key: Key, data: str) -> Checkpoint:
        """Where a run stands before its first round; kept, so that what is paid from now on is known."""
        start = self.task.start(self.federation, key / "start")
        point = Checkpoint(0, start, self.server.remember(start), start, 0, ledger.head, data)
        directory.write_checkpoint(point)
        return point

    def _budget(self, ledger: Ledger) -> None:
        """Set the budget, and make sure that it bears the whole run, if everybody joins each round."""
        if isinstance(self.privacy, Open):
            return
        # A ledger that came with a budget keeps it: a run may not raise what others have set.
        if self.privacy.epsilon is not None and EVERYONE not in ledger.budgets():
            ledger.allow(epsilon=self.privacy.epsilon, delta=self.privacy.delta)
        ledger.check([*self.mechanism.counting(list(self.federation)), *self._planned(1)])

    def _round(self, point: Checkpoint, ledger: Ledger, key: Key, number: int) -> tuple[Checkpoint, Round]:
        """Draw the sites, pay, train, combine, advance."""
        began = time.perf_counter()
        ticket = self._ticket(point, key)
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
            scores=self.watch.scores(self.task, after.state, key),
            epsilon=None if isinstance(self.privacy, Open) else ledger.spent(self.privacy.delta),
            budget=None if isinstance(self.privacy, Open) else self.privacy.epsilon,
            seconds=time.perf_counter() - began if expected is None else None,
        )
        return after, told

    def _ticket(self, point: Checkpoint, key: Key) -> str:
        """A name for this very round: after a crash the same inputs give the same noise, at no new price.

        Inputs are everything that the sums of the round depend on: data, state, work, and the machine, which
        may round otherwise. Work that cannot be written down is never the same after a crash.
        """
        work = [
            getattr(self.task, "identity", None),
            repr(self.described(None)),
            repr(self.federation.records),
            machine(),
        ]
        inputs = repr((key.path, point.data, [part or self.nonce for part in work]))
        return _digest(key, inputs, point.state.numpy().tobytes())


def _require_scores(task: Task, federation: Federation, tables: Sequence[Table | None]) -> None:
    """Refuse held-out records that no score can be computed on, before anything is charged."""
    start = task.start(federation, Key(0))
    for table in tables:
        try:
            _ = task.score(start, table) if table is not None else {}
        except InvalidValue as error:
            few = f"the held-out records ({len(table or ())}) cannot be scored"
            raise InvalidValue(f"{few}: hold out more, or none ({error})") from error


def _digest(key: Key, purpose: str, content: bytes) -> str:
    """A fingerprint that tells nothing to those who do not know the run's secret."""
    return hmac.digest(key.entropy, repr(purpose).encode() + content, "sha256").hex()
