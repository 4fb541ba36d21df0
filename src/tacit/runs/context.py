"""Everything that a run is made of, and what it asks of the sites once, before or after all rounds.

Whatever is asked is paid first; after a crash the same question is asked again with the same noise, at no new
price.
"""

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from tacit.aggregation.attacks.base import Attack
from tacit.aggregation.base import Aggregator, CustomAggregator, user_choice
from tacit.aggregation.defence.clustering import Clusters
from tacit.aggregation.defence.quarantine import Quarantine, noise_warning
from tacit.aggregation.join import Join
from tacit.aggregation.mean import Mean
from tacit.aggregation.robust.reweighted import query_aggregator
from tacit.aggregation.screening import LONGEST, Screen
from tacit.aggregation.server import ServerStep
from tacit.aggregation.warnings import aggregation_warnings
from tacit.engines.base import Engine
from tacit.engines.record_count import RecordCountQuery
from tacit.errors import InvalidValue, Refused
from tacit.learning.record import describe
from tacit.learning.task import FinalQuery, Query, Task, Updates
from tacit.privacy.accounting.release import Release
from tacit.privacy.contracts import name_of
from tacit.privacy.ledger.chain import planned_bytes
from tacit.privacy.ledger.planning import begin_plan
from tacit.privacy.ledger.run_ledger import RunLedger
from tacit.privacy.ledger.store import Ledger
from tacit.privacy.mechanisms.adaptive_clipping import AdaptiveClipping
from tacit.privacy.mechanisms.base import Mechanism
from tacit.privacy.mechanisms.secure_gram import SecureGram
from tacit.privacy.policy import Open, Privacy
from tacit.privacy.provenance import Provenance
from tacit.runs.clusters import TRAILS, ClusterRound, trails_of
from tacit.runs.directory import OPENED, Checkpoint, Directory, machine
from tacit.runs.queries import Augmenter, final_query_of, initial_query_of, queries_of, with_answers
from tacit.runs.round import RoundResult
from tacit.runs.stopping import Stopping, Watch
from tacit.runs.tickets import choices_of, digest, ticket_of
from tacit.runtime.arrays import Array
from tacit.runtime.canonical import canonical
from tacit.runtime.keys import Key
from tacit.runtime.threads import one_thread
from tacit.sites.federation import Federation
from tacit.sites.sampling import Sampling

# What is kept of bounds that follow the updates.
BOUNDS = "bounds"


@dataclass(frozen=True, eq=False)
class RunContext:
    """Everything that stays the same from round to round, and what is asked once, before or after them."""

    task: Task
    federation: Federation
    privacy: Privacy | Open
    aggregation: Aggregator
    server: ServerStep
    sampling: Sampling
    engine: Engine
    rounds: int
    mechanism: Mechanism
    watch: Watch
    training: Privacy | Open
    augment: Augmenter | None
    provenance: Provenance
    quarantine: Quarantine | None = None
    attack: Attack | None = None
    clusters: Clusters | None = None
    packing: AdaptiveClipping | None = None
    keep: Callable[[int, "Mapping[str, Array]"], None] | None = field(default=None, repr=False)
    plan: str | None = None
    nonce: str = field(default_factory=lambda: secrets.token_hex(16))

    def begin(self, directory: Directory, ledger: Ledger, key: Key, data: str) -> tuple[Self, Checkpoint]:
        """This with everything known that is bought before the first round, and where the run stands.

        The budget is set, and made sure to bear the whole run, before the first of it is paid.
        """
        point = directory.resumable(ledger, data)
        plan = self._plan(directory, ledger, key, data, resumed=point is not None)
        if point is None:
            nothing = np.zeros(0, dtype=np.float64)
            kept = {} if self.packing is None else {BOUNDS: self.packing.initial()}
            point = Checkpoint(0, nothing, nothing, nothing, 0, ledger.head, data, kept=kept)
            # From now on, what was paid for is known to be of this run.
            directory.write_checkpoint(point)
        if isinstance(ledger, RunLedger):
            work = digest(key, "work", canonical(self._work).encode())
            ledger.cover(self.whole_price(), run=digest(key, "book", data.encode()), work=work)
        kept = replace(self, keep=directory.write_weights, plan=plan)
        ready = kept._augment(point, ledger, key)._ask_initial(point, directory, ledger, key)
        return ready._count_records(point, ledger, key), point

    def _augment(self, point: Checkpoint, ledger: Ledger, key: Key) -> Self:
        """This with synthetic records at the sites, if they are wanted."""
        if self.augment is None:
            return self
        ticket = self.ticket(_blank(point), key / "augment")
        ledger.charge(
            self.augment.release(self.privacy, list(self.federation)), ticket=ticket, plan=self.plan
        )
        own = key / "augment" if key.rehearsal else key / "augment" / ticket
        with one_thread():
            added = self.augment.augment(self.federation, self.privacy, self.provenance, own)
        # Who was left out is told by the records themselves, or by a count that was paid for.
        paid = isinstance(self.privacy, Privacy) and self.privacy.unit == "record"
        notes = self.provenance.public if paid else self.provenance.bare
        notes.extend(getattr(added, "notes", ()))
        return replace(self, federation=added)

    def _ask_initial(self, point: Checkpoint, directory: Directory, ledger: Ledger, key: Key) -> Self:
        """This, its task knowing what it had to ask before the first round."""
        question = initial_query_of(self.task)
        if question is None:
            return self
        known = directory.read_json(OPENED)
        if known is not None:
            # What rounds were trained on stays, whatever has changed since.
            return self.with_answers(known)
        blank = _blank(point)
        ticket = self.ticket(blank, key / question.kind)
        ledger.charge(self.price(question), ticket=ticket, plan=self.plan)
        own = key / question.kind if key.rehearsal else key / question.kind / ticket
        found = question.decode(self.ask(question, blank.state, own), self.noise(question))
        directory.write_json(OPENED, found)
        return self.with_answers(found)

    def with_answers(self, found: dict[str, Any]) -> Self:
        """This, its task and its mechanism knowing what was found out."""
        task = with_answers(self.task, found)
        return replace(self, task=task, mechanism=self.mechanism.with_task(task))

    def _count_records(self, point: Checkpoint, ledger: Ledger, key: Key) -> Self:
        """This with the number of records known, if it has to be bought."""
        price = self.mechanism.count_releases(list(self.federation))
        if not price:
            return self
        blank, names = _blank(point), list(self.federation)
        ledger.charge(price, ticket=self.ticket(blank, key / "count"), plan=self.plan)
        told = self.engine.train(
            RecordCountQuery(), self.federation, blank.state, names, self.mechanism, key / "count"
        )
        if len(told.names) < len(names):
            silent = ", ".join(sorted(set(names) - set(told.names)))
            raise InvalidValue(f"how many records there are is not known: nothing has come from {silent}")
        # Each holds one record at least.
        known = max(round(float(told.matrix.sum())), len(names))
        return replace(self, federation=self.federation.with_record_count(known))

    def ask_final(
        self, point: Checkpoint, clusters: Mapping[str, int], directory: Directory, ledger: Ledger, key: Key
    ) -> Checkpoint:
        """Where the run stands once its last question has been asked; `clusters` says of which model."""
        question = final_query_of(self.task)
        if question is None or point.closed:
            return point
        ticket = self.ticket(replace(point, state=point.best), key / "closing")
        own = key / "closing" if key.rehearsal else key / "closing" / ticket
        ledger.charge(self.price(question), ticket=ticket, plan=self.plan)
        best = self.apply_final(question, point.best, clusters, own)
        closed = replace(point, best=best, closed=True, ledger_head=ledger.head)
        directory.write_checkpoint(closed)
        return closed

    def apply_final(self, question: FinalQuery, state: Array, clusters: Mapping[str, int], key: Key) -> Array:
        """The state with the answers to its last question in it; each site is asked about its own model."""
        if state.ndim == 1:
            return question.apply(state, self.ask(question, state, key), self.noise(question))
        members = [[name for name in self.federation if clusters.get(name) == at] for at in range(len(state))]
        asked = [
            self.ask(question, model, key / at, names) if names else None
            for at, (model, names) in enumerate(zip(state, members, strict=True))
        ]
        # A model that nobody belongs to is closed by what everybody else said.
        usual = np.stack([answer for answer in asked if answer is not None]).mean(axis=0)
        return np.stack([
            question.apply(model, usual if answer is None else answer, self.noise(question, len(names)))
            for model, answer, names in zip(state, asked, members, strict=True)
        ])  # fmt: skip

    def price(self, question: Query) -> list[Release]:
        """What a question costs."""
        mechanism = self.training.solve_query(question, self.mechanism)
        names = list(self.federation)
        return [replace(release, purpose=question.kind) for release in mechanism.release(0, names)]

    def ask(self, question: Query, state: Array, key: Key, among: Sequence[str] | None = None) -> Array:
        """What the sites answer, combined; everybody is asked, unless the price counts on a draw."""
        mechanism = self.training.solve_query(question, self.mechanism).with_one_group()
        names = list(self.federation if among is None else among)
        expected = mechanism.denominator(len(names))
        if expected is not None:
            names = self.sampling(names, self.privacy.participation, key / "who")
        if not names:
            # Noise alone answers, so that nobody learns that nobody came.
            nobody = Updates((), np.zeros((0, question.width), dtype=np.float64))
            return mechanism.at_server(Mean()(nobody, sites=expected), key / "server")
        answers = self.engine.train(question, self.federation, state, names, mechanism, key)
        answers = self.tamper(answers, key)
        limit = (LONGEST, "l2") if self.joins else mechanism.update_bound()
        screen = Screen(names=answers.names, width=question.width, round=0, ticket="", limit=limit)
        kept, _ = screen.rows(answers)
        if not kept.names and expected is None:
            raise InvalidValue(f"no site answered the question for the {question.kind} in finite numbers")
        blind = mechanism.groups(names) is not None
        rule = (
            Mean()
            if blind
            else query_aggregator(self.aggregation, len(kept.names), trusted=expected is not None)
        )
        with one_thread():
            combined = rule(kept, sites=expected)
        return mechanism.at_server(combined, key / "server")

    @property
    def initial_result(self) -> RoundResult:
        """What is known before the first round."""
        names = list(self.federation)
        return RoundResult(clusters={} if self.clusters is None else self.clusters.initial_assignment(names))

    def remember(self, point: Checkpoint, parted: object) -> Checkpoint:
        """Where the run stands, with what is remembered of how the sites of a round were parted."""
        trails = parted.trails if isinstance(parted, ClusterRound) else None
        if trails is None:
            return point
        return replace(point, kept={**point.kept, TRAILS: trails.rows})

    def assign_clusters(self, found: RoundResult, point: Checkpoint, number: int, key: Key) -> RoundResult:
        """What came of a round; after the last one with one model for all, sites are told apart for good.

        Who did not come to that very round is told apart by what it sent before.
        """
        if self.clusters is None or number != self.clusters.warm:
            return found
        trails = trails_of(self.clusters, point, self.federation)
        assert trails is not None
        f = self.aggregation.tolerates(len(self.federation) // self.clusters.models)
        return replace(found, clusters=trails.groups(self.clusters.models, key / "clusters", f))

    def snapshot(
        self,
        number: int,
        state: Array,
        updates: Updates,
        clusters: Mapping[str, int],
        mechanism: Mechanism,
    ) -> None:
        """Keep the weights before a round and, where everybody may see them, what each site made of them."""
        every: int | None = getattr(self.task, "snapshots", None)
        if self.keep is None or not every or number % every:
            return
        models = state.reshape(-1, state.shape[-1])
        names = ["global"] if state.ndim == 1 else [f"model-{place}" for place in range(len(models))]
        known = dict(zip(names, models, strict=True))
        seen = mechanism.denominator(len(self.federation)) is None and mechanism.groups(updates.names) is None
        if seen and self.packing is None:
            handed = (
                state if self.clusters is None else self.clusters.models_for(state, clusters, updates.names)
            )
            known |= dict(zip(updates.names, handed + updates.matrix, strict=True))
        self.keep(number, known)

    @property
    def joins(self) -> bool:
        """Whether what parties send is put side by side, so that none can be compared with another."""
        return isinstance(self.aggregation, Join)

    def require_everybody(self, updates: Updates, names: Sequence[str], mechanism: Mechanism) -> None:
        """Refuse to go on without a party whose columns are missing; what was paid for may be asked again."""
        missing = [name for name in names if name not in updates.names]
        if self.joins and missing and mechanism.groups(names) is None:
            raise Refused(
                f"nothing has come from {', '.join(missing)}: columns are put side by side, and every party "
                "has to be there. Go on with --resume when it is"
            )

    def tamper(self, updates: Updates, key: Key) -> Updates:
        """What the sites send, liars among them if the run has some."""
        if self.attack is None:
            return updates
        liars = self.attack.draw_liars(list(self.federation), Key(key.seed))
        return self.attack.poison_updates(updates, liars, self.aggregation, key / "attack")

    def noise(self, question: Query, sites: int | None = None) -> float:
        """The deviation of the noise in each number of the combined answers of so many sites, or all."""
        mechanism = self.training.solve_query(question, self.mechanism).with_one_group()
        return mechanism.deviation(max(len(self.federation) if sites is None else sites, 1))

    def notes(self, width: int) -> tuple[str, ...]:
        """What to mind when reading the record of a run that trains so many numbers."""
        if self.joins:
            return ()
        found = aggregation_warnings(self.aggregation, len(self.federation), self.privacy, self.quarantine)
        if self.quarantine is not None and isinstance(self.privacy, Privacy) and self.privacy.unit == "site":
            told = noise_warning(self.mechanism.deviation(1), self.privacy.clip, width)
            found += [] if told is None else [told]
        if self.attack is not None:
            more = f", and {name_of(self.aggregation)} was to stand {self._tolerated_liars}"
            lie = getattr(self.attack, "kind", type(self.attack).__name__)
            found.append(
                f"{self.attack.liars} of {len(self.federation)} sites lie: {lie}"
                + more * (self.attack.liars > self._tolerated_liars)
            )
        return tuple(found)

    def facts(self) -> tuple[str, ...]:
        """What is good to know of how a run combines updates."""
        if self.joins or not self._tolerated_liars:
            return ()
        rule, sites = name_of(self.aggregation), len(self.federation)
        return (
            f"updates are combined by {rule}, which stands {self._tolerated_liars} of {sites} sites that lie",
        )

    @property
    def _tolerated_liars(self) -> int:
        """How many sites may lie, of those that share a model."""
        models = 1 if self.clusters is None else self.clusters.models
        return self.aggregation.tolerates(len(self.federation) // models)

    def describe(self, stop: Stopping | None) -> dict[str, object]:
        """The choices of this run as the tables of an experiment file."""
        tables = {
            "task": self.task, "privacy": self.privacy, "aggregation": user_choice(self.aggregation),
            "server": self.server, "sampling": self.sampling, "stop": stop, "augment": self.augment,
            "quarantine": self.quarantine, "attack": self.attack, "clusters": self.clusters,
            "engine": getattr(self.engine, "chosen", self.engine),
        }  # fmt: skip
        return {**self.federation.origin, **{name: describe(part) for name, part in tables.items() if part}}

    def _plan(
        self, directory: Directory, ledger: Ledger, key: Key, data: str, *, resumed: bool
    ) -> str | None:
        """Write the plan of the run down, all of which the budget must bear; a tuning has a larger one."""
        if isinstance(self.privacy, Open):
            return None
        whole, larger = self.whole_price(), directory.plan()
        own = digest(key, "plan", planned_bytes(whole) + data.encode())
        return begin_plan(ledger, self.privacy, whole, own=own, larger=larger, resumed=resumed)

    def whole_price(self) -> list[Release]:
        """What everything together releases, if everybody joins each round."""
        names = list(self.federation)
        added = () if self.augment is None else self.augment.release(self.privacy, names)
        asked = [release for part in queries_of(self.task) for release in self.price(part)]
        return [*added, *asked, *self.mechanism.count_releases(names), *self.planned_releases(1)]

    def planned_releases(self, first: int) -> list[Release]:
        """What the rounds from `first` on release, if everybody joins each."""
        names = list(self.federation)
        return [
            release
            for number in range(first, self.rounds + 1)
            for release in (*self.mechanism.release(number, names), *self.watch.release(number))
        ]

    @cached_property
    def _work(self) -> list[str]:
        """What is done at the sites, to which records, and where, in words."""
        known = [getattr(self.task, "identity", None), choices_of(self.describe(None), self.augment)]
        names = list(self.federation)
        trusted = self.mechanism.denominator(len(names)) is not None
        # Products in secret need everybody, so the same inputs give the same sum.
        loses = self.mechanism.groups(names) is not None and not isinstance(self.mechanism, SecureGram)
        # Sites that remember what they have joined are in one sum at most, however often a round is begun.
        loses = loses and not getattr(self.engine, "remembers", False)
        if loses or (trusted and isinstance(self.aggregation, CustomAggregator)):
            # A sum in secret may lose other sites the next time, and a user's own rule may be another: with
            # the same noise, two answers would differ by what it hides.
            known.append(None)
        records = f"{self.federation.records} {self.federation.fingerprint.hex()}"
        return [part or self.nonce for part in (*known, records, machine())]

    def ticket(self, point: Checkpoint, key: Key) -> str:
        """A name for this very round: after a crash the same inputs give the same noise, at no new price.

        Inputs are everything that the sums of the round depend on: data, state, work, and the machine, which
        may round otherwise. Work that cannot be written down is never the same after a crash. All of it is
        in its canonical form, so that a run resumed by its file, its directory or Python has one ticket.
        """
        tensors = (point.state, *(point.kept[name] for name in sorted(point.kept)))
        return ticket_of(key, point.data, self._work, tensors)


def _blank(point: Checkpoint) -> Checkpoint:
    """A run before its first state."""
    return replace(point, state=point.state[:0], kept={})
