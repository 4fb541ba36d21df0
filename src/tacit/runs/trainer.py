"""The only round loop in the library.

It knows neither networks nor noise: a task trains, a mechanism guards, an aggregator combines, the ledger is
charged before anything leaves. There is no branch for privacy; an open run has a mechanism that does nothing.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tacit.aggregation.base import Aggregator
from tacit.aggregation.defence.clustering import Clusters
from tacit.aggregation.defence.quarantine import noise_warning
from tacit.aggregation.screening import LONGEST, Screen, anonymize
from tacit.engines.base import ClippedWork
from tacit.errors import BudgetExhausted, Refused, SecureAggregationFailed, TooFewSites
from tacit.learning.query import Updates
from tacit.learning.record import OVERSPENT, Callback, Fault, Record, Round, notify
from tacit.learning.supervised import LocalTraining
from tacit.learning.task import TaskBase
from tacit.privacy.contracts import Norm
from tacit.privacy.ledger.store import Ledger
from tacit.privacy.mechanisms.base import Mechanism
from tacit.privacy.policy import Open, Privacy
from tacit.runs.clusters import TRAILS, ClusterRound, idle_models, trails_of, train_clusters, watch_scores
from tacit.runs.context import BOUNDS, RunContext, digest
from tacit.runs.directory import Checkpoint, Directory
from tacit.runs.divergence import DIVERGED, LossProbe, find_divergence
from tacit.runs.queries import final_query_of, skip_if_unaffordable
from tacit.runs.round import RoundAggregator, RoundResult, TrainingDiverged, single_model
from tacit.runs.setup import sites_warnings
from tacit.runs.spec import PreparedRun, RunSpec
from tacit.runs.stopping import HeldOutWatch, Watch, best, early_stop_reason
from tacit.runtime.arrays import Array
from tacit.runtime.keys import Key
from tacit.runtime.threads import one_thread
from tacit.sites.federation import Federation


@dataclass(frozen=True, eq=False)
class Trainer:
    """The rounds of a run.

    Args:
        context: The run on its sites, with everything known that is asked before the first round.
        watch: The scores computed after every round.
    """

    context: RunContext
    watch: Watch

    @property
    def prepared(self) -> PreparedRun:
        """The prepared run."""
        return self.context.prepared

    @property
    def spec(self) -> RunSpec:
        """The options of the run."""
        return self.context.spec

    @property
    def privacy(self) -> Privacy | Open:
        """The privacy policy of the run."""
        return self.spec.privacy

    @property
    def names(self) -> tuple[str, ...]:
        """The sites."""
        return self.prepared.names

    @property
    def federation(self) -> Federation:
        """The sites and their data."""
        return self.context.federation

    @property
    def task(self) -> TaskBase:
        """The bound task."""
        return self.prepared.task

    @property
    def mechanism(self) -> Mechanism:
        """The privacy mechanism."""
        return self.prepared.mechanism

    @property
    def aggregation(self) -> Aggregator:
        """The resolved aggregation rule."""
        return self.prepared.aggregation

    @property
    def clusters(self) -> Clusters | None:
        """The resolved clustering rule; None with one model."""
        return self.prepared.clusters

    def run(
        self,
        point: Checkpoint,
        directory: Directory,
        ledger: Ledger,
        key: Key,
        callbacks: Sequence[Callback],
    ) -> tuple[Checkpoint, Record]:
        """Train from a checkpoint to the last round, or until early stopping.

        Args:
            point: The checkpoint.
            directory: The run's directory.
            ledger: The ledger to charge.
            key: The run's key.
            callbacks: Called after every round.

        Returns:
            Where the run stands, and what happened.
        """
        resumed = point.finished > 0
        point = point if resumed else self._start(point, key)
        past = directory.finished_rounds(point)
        reason, probe = self._stop_reason(past, point), self._loss_probe(key)
        left: list[str] = []
        notify(callbacks, "training")
        while point.finished < self.spec.rounds and reason is None:
            try:
                number = point.finished + 1
                point, entry = self._round(point, past, ledger, key / number, number, probe)
            except BudgetExhausted:
                if not resumed:
                    raise
                # A round that was cut off and could not be repeated was paid twice.
                reason = "the budget covers no further round"
                left.append(f"training from round {point.finished + 1} to round {self.spec.rounds}")
                break
            past.append(entry)
            if best(past, self.watch.goal, self.watch.patience) == entry.number:
                point = replace(point, best=point.state, best_round=entry.number)
            directory.write_round(entry)
            directory.write_checkpoint(point)
            for callback in callbacks:
                callback(entry)
            reason = self._stop_reason(past, point)
        early = reason if point.finished < self.spec.rounds else None
        if early is not None:
            self._pay_the_rest(ledger, point, key)
        question = final_query_of(self.task)
        notify(callbacks if question else (), "querying the sites after the last round")
        chosen = past[point.best_round - 1].clusters if point.best_round else {}
        models = chosen or dict.fromkeys(self.names, 0)
        with skip_if_unaffordable(question, left, resumed=resumed):
            point = self.context.ask_final(point, models, directory, ledger, key)
        return point, replace(self._record(point, past, left), stopped=early)

    def _start(self, point: Checkpoint, key: Key) -> Checkpoint:
        """Return the checkpoint before the first round, with initial models and server memory."""
        start = self.task.start(self.federation, key / "start")
        start = start if self.clusters is None else self.clusters.initial_models(start)
        return replace(point, state=start, memory=self.spec.server.remember(start), best=start)

    def _stop_reason(self, past: Sequence[Round], point: Checkpoint) -> str | None:
        """Return the reason to stop now, early stopping or the task's own; None to continue."""
        if past and (past[-1].skipped or "").startswith(DIVERGED):
            return past[-1].skipped
        waited = early_stop_reason(past, self.watch.goal, self.watch.patience)
        # Several models, and a state before the first round, have not converged.
        settled = point.state.ndim == 1 and len(point.state) > 0
        return waited or (self.task.stop_reason(point.state) if settled else None)

    def _record(self, point: Checkpoint, past: Sequence[Round], left: Sequence[str]) -> Record:
        """Return the record of the run: rounds, chosen round, notes, and the queries left out."""
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
        rest = self.prepared.planned_releases(point.finished + 1)
        ledger.owe(rest, ticket=digest(key, "rest", point.data.encode()), plan=self.context.plan)

    def _round(
        self,
        point: Checkpoint,
        past: Sequence[Round],
        ledger: Ledger,
        key: Key,
        number: int,
        probe: LossProbe | None = None,
    ) -> tuple[Checkpoint, Round]:
        """Draw the sites, pay, train, combine, advance."""
        began = time.perf_counter()
        ticket = self.context.ticket(point, key)
        key = key if key.rehearsal else key / ticket
        names = self.spec.sampling(self.names, self.privacy.participation, key / "who")
        # With secret participation, the number of sites is a secret; so is the duration of the round.
        expected = self.mechanism.denominator(len(self.names))
        before = self._last_result(past)
        found = self._skip_if_few(names, expected, before)
        paid = found is None
        if found is None:
            price = self.prepared.releases_of_round(number, names)
            ledger.charge(price, ticket=ticket, plan=self.context.plan)
            try:
                found, point = self._train_round(point, names, before, key, ticket, number)
            except SecureAggregationFailed as error:
                if self.context.joins:
                    raise
                # Nothing was unmasked, and what was paid for is paid.
                found = replace(before, skipped=str(error))
            except TrainingDiverged as error:
                if number == 1:
                    raise
                found = replace(before, skipped=str(error))
        found = self.assign_clusters(found, point, number, key)
        after, found = self._advance(point, found, number, key, probe)
        after = replace(after, finished=number, ledger_head=ledger.head)
        told = Round(
            number=number,
            rounds=self.spec.rounds,
            sites=len(names) if expected is None else None,
            # A round that was not charged is not scored.
            scores=self._scores(after.state, found.clusters, key) if paid else {},
            epsilon=None if isinstance(self.privacy, Open) else ledger.spent(self.privacy.delta),
            budget=None if isinstance(self.privacy, Open) else self.privacy.epsilon,
            seconds=time.perf_counter() - began if expected is None else None,
            skipped=found.skipped,
            faults=found.faults,
            shares=found.shares,
            standings=found.standings,
            decisions=found.decisions,
            clusters=found.clusters,
            diary=found.diary,
        )
        return after, told

    def _skip_if_few(
        self, names: Sequence[str], expected: float | None, before: RoundResult
    ) -> RoundResult | None:
        """Return a skipped round if too few sites take part, which is not charged; None otherwise."""
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
        """Train one round: send work to the sites, combine their updates, and update the checkpoint."""
        mechanism, faults, parted = self.mechanism.at_round(number), tuple[Fault, ...](), single_model
        task, packing = self.task.at_round(number, self.spec.rounds), self.prepared.packing
        if self.clusters is None:
            work = task if packing is None else ClippedWork(task, packing, point.kept[BOUNDS])
            updates = self.spec.engine.train(work, self.federation, point.state, names, mechanism, key)
        else:
            prepared = replace(self.prepared, task=task, mechanism=mechanism)
            updates, faults, parted = train_clusters(
                prepared, self.clusters, self.federation, point, names, before.clusters, key
            )
        updates = self.context.tamper(replace(updates, round=number), key)
        self.require_everybody(updates, names, mechanism)
        self.snapshot(number, point.state, updates, before.clusters, mechanism)
        screen = self._screen(updates, number, ticket, mechanism)
        groups = mechanism.groups(names)
        if groups is not None and len(groups) != len(updates.names):
            raise Refused("the engine shows single updates, and only sums may be seen: use another engine")
        # Sums keep one order, so that what is computed again is the same to the last bit.
        with one_thread():
            found = RoundAggregator(
                self.aggregation, self.spec.quarantine, groups is not None, len(self.names)
            )(
                updates,
                screen,
                before.standings,
                expected=mechanism.denominator(len(self.names)),
                parted=parted,
            )
        # With secret participation, metrics of sites and missing replies are secrets too.
        known = mechanism.denominator(len(self.names)) is None
        shown = known and self.prepared.provenance.allowed
        told = {name: dict(entry) for name, entry in updates.metrics.items() if shown}
        absent = updates.faults if known else anonymize(updates.faults)
        faults = (*faults, *absent, *found.faults)
        return replace(found, faults=faults, diary=told), self.remember(point, parted)

    def _screen(self, updates: Updates, number: int, ticket: str, mechanism: Mechanism) -> Screen:
        """Return the screen that the updates of a round must pass."""
        anything: tuple[float, Norm] = (LONGEST, "l2")
        return Screen(
            names=updates.names,
            width=int(updates.matrix.shape[1]),
            round=number,
            ticket=ticket,
            limit=anything if self.context.joins else mechanism.update_bound(),
        )

    def _advance(
        self, point: Checkpoint, found: RoundResult, number: int, key: Key, probe: LossProbe | None
    ) -> tuple[Checkpoint, RoundResult]:
        """Apply the server step; a skipped or diverged round changes nothing."""
        if found.step is None:
            return point, found
        combined, kept = self.mechanism.at_server(found.step, key / "server"), dict(point.kept)
        if self.prepared.packing is not None:
            combined, kept[BOUNDS] = self.prepared.packing.decode(combined, point.kept[BOUNDS])
        step, memory = self.spec.server(combined, point.memory)
        advanced = self.task.advance(point.state, step)
        why = self._divergence(point.state, advanced, probe)
        if why is not None:
            mend = "; lower the lr" if self._has_weights else ""
            told = f"{DIVERGED} in round {number}: {why}{mend}"
            if number == 1 and not bool(np.isfinite(advanced).all()):
                raise TrainingDiverged(told)
            return point, replace(found, step=None, skipped=told)
        return replace(point, state=advanced, memory=memory, kept=kept), found

    def _loss_probe(self, key: Key) -> LossProbe | None:
        """Return the training loss to watch: in open runs of one model, where no site lies on purpose."""
        if not isinstance(self.privacy, Open) or self.clusters is not None or self.spec.attack is not None:
            return None
        return LossProbe.of(self.task, self.federation, self.task.start(self.federation, key / "start"))

    def _divergence(self, before: Array, after: Array, probe: LossProbe | None) -> str | None:
        """Return why a step diverged; None if it did not."""
        # A step of clipped updates is as long as their bound and noise make it: nor does that.
        bounded = isinstance(self.privacy, Privacy) and self.privacy.unit == "site"
        if self.spec.attack is not None or bounded or not self._has_weights:
            return None if bool(np.isfinite(after).all()) else "the state is not finite"
        return find_divergence(before, after, probe)

    @property
    def _has_weights(self) -> bool:
        """True if a state is weights, learned by gradients; the length of sums and tallies says nothing."""
        return isinstance(self.task, LocalTraining) or self.task.layout == "environments"

    def _scores(self, state: Array, clusters: Mapping[str, int], key: Key) -> dict[str, float]:
        """Score the state after a round."""
        return watch_scores(self.watch, self.task, self._scored_state(state, clusters, key), clusters, key)

    def _scored_state(self, state: Array, clusters: Mapping[str, int], key: Key) -> Array:
        """Return the state to score after a round: with the final query answered, if that is free."""
        question = final_query_of(self.task)
        blind = isinstance(self.watch, HeldOutWatch) and self.watch.records is None
        if question is None or blind or self.prepared.price_of(question):
            return state
        # Before clusters are assigned, all models are equal.
        own = clusters or dict.fromkeys(self.names, 0)
        return self.context.apply_final(question, state, own, key / "closing")

    def _last_result(self, past: Sequence[Round]) -> RoundResult:
        """Return the standings and clusters before a round."""
        if past:
            return RoundResult(standings=past[-1].standings, clusters=past[-1].clusters)
        clusters = self.clusters
        return RoundResult(clusters={} if clusters is None else clusters.initial_assignment(self.names))

    def remember(self, point: Checkpoint, parted: object) -> Checkpoint:
        """Return the checkpoint with the update history of a clustered warm-up round."""
        trails = parted.trails if isinstance(parted, ClusterRound) else None
        if trails is None:
            return point
        return replace(point, kept={**point.kept, TRAILS: trails.rows})

    def assign_clusters(self, found: RoundResult, point: Checkpoint, number: int, key: Key) -> RoundResult:
        """Return the round's result; after the last warm-up round, with the sites assigned to clusters.

        Sites absent from that round are assigned by their earlier updates.
        """
        if self.clusters is None or number != self.clusters.warm:
            return found
        trails = trails_of(self.clusters, point, self.federation)
        assert trails is not None
        f = self.aggregation.tolerates(len(self.names) // self.clusters.models)
        return replace(found, clusters=trails.groups(self.clusters.models, key / "clusters", f))

    def snapshot(
        self,
        number: int,
        state: Array,
        updates: Updates,
        clusters: Mapping[str, int],
        mechanism: Mechanism,
    ) -> None:
        """Write the weights before a round and, where updates are visible, each site's weights after it."""
        every = self.task.snapshots
        if self.context.keep is None or not every or number % every:
            return
        models = state.reshape(-1, state.shape[-1])
        names = ["global"] if state.ndim == 1 else [f"model-{place}" for place in range(len(models))]
        known = dict(zip(names, models, strict=True))
        seen = mechanism.denominator(len(self.names)) is None and mechanism.groups(updates.names) is None
        if seen and self.prepared.packing is None:
            handed = (
                state if self.clusters is None else self.clusters.models_for(state, clusters, updates.names)
            )
            known |= dict(zip(updates.names, handed + updates.matrix, strict=True))
        self.context.keep(number, known)

    def require_everybody(self, updates: Updates, names: Sequence[str], mechanism: Mechanism) -> None:
        """Refuse to continue without the columns of a party; paid requests may be repeated."""
        missing = [name for name in names if name not in updates.names]
        if self.context.joins and missing and mechanism.groups(names) is None:
            raise Refused(
                f"no answer from {', '.join(missing)}: the columns of all parties are needed. Resume with "
                "--resume when it is back"
            )

    def notes(self, width: int) -> tuple[str, ...]:
        """Return warnings for the record of a run with `width` parameters."""
        found = sites_warnings(self.spec, self.aggregation, self.names)
        if (
            self.spec.quarantine is not None
            and isinstance(self.privacy, Privacy)
            and self.privacy.unit == "site"
        ):
            told = noise_warning(self.mechanism.deviation(1), self.privacy.bound, width)
            found += [] if told is None else [told]
        if self.spec.attack is not None:
            more = f", and {self.aggregation.name} was to tolerate {self._tolerated_liars}"
            lie = self.spec.attack.name
            found.append(
                f"{self.spec.attack.liars} of {len(self.names)} sites are dishonest: {lie}"
                + more * (self.spec.attack.liars > self._tolerated_liars)
            )
        return tuple(found)

    def facts(self) -> tuple[str, ...]:
        """Return a sentence on how many malicious sites the aggregation rule tolerates."""
        if self.context.joins or not self._tolerated_liars:
            return ()
        rule, sites = self.aggregation.name, len(self.names)
        return (
            f"the server combines updates by {rule}, which tolerates {self._tolerated_liars} of {sites} "
            "sites being dishonest",
        )

    @property
    def _tolerated_liars(self) -> int:
        """Number of malicious sites that the rule tolerates among sites that share a model."""
        models = 1 if self.clusters is None else self.clusters.models
        return self.aggregation.tolerates(len(self.names) // models)
