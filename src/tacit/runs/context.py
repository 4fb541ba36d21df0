"""Prepared run on its sites: its queries, and the tickets of its charges.

Whatever is asked is paid first; after a crash the same question is asked again with the same noise, at no new
price. A ticket is the name of a single charge, by which what was cut off is recognized: a keyed digest of
everything that a release depends on, in its canonical form. It is the same whether the experiment came from
Python, from its file or from the directory of its run.
"""

import hmac
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from tacit.aggregation.base import CustomAggregator
from tacit.aggregation.mean import Join, Mean
from tacit.aggregation.robust.reweighted import query_aggregator
from tacit.aggregation.screening import LONGEST, Screen
from tacit.engines.base import RecordCountQuery
from tacit.errors import InvalidValue
from tacit.learning.query import FinalQueryBase, QueryBase, Updates
from tacit.learning.record import Evaluated
from tacit.learning.task import TaskBase
from tacit.privacy.ledger.chain import planned_bytes
from tacit.privacy.ledger.run_ledger import RunLedger, begin_plan
from tacit.privacy.ledger.store import Ledger
from tacit.privacy.mechanisms.base import Mechanism
from tacit.privacy.mechanisms.secure_gram import SecureGram
from tacit.privacy.policy import Open, Privacy
from tacit.runs.directory import EVALUATED, OPENED, Checkpoint, Directory, machine
from tacit.runs.queries import final_query_of, initial_query_of
from tacit.runs.spec import PreparedRun, RunSpec
from tacit.runtime.arrays import Array
from tacit.runtime.keys import Key
from tacit.runtime.tables import Unwritable, canonical
from tacit.runtime.threads import one_thread
from tacit.sites.federation import Federation

# Name of the adaptive clipping bounds among a checkpoint's tensors.
BOUNDS = "bounds"


@dataclass(frozen=True, eq=False, kw_only=True)
class RunContext:
    """Context of a run: the prepared run on its sites, after its initial queries.

    Args:
        prepared: The prepared run; answers to its initial query are added to it.
        federation: The sites; synthetic records are added to it, and watched ones taken out.
        keep: Keeps the weights of a round.
        plan: The plan on the ledger that charges belong to.
        nonce: Stands for work that cannot be written down, so that it is never the same after a crash.
    """

    prepared: PreparedRun
    federation: Federation
    keep: Callable[[int, Mapping[str, Array]], None] | None = field(default=None, repr=False)
    plan: str | None = None
    nonce: str = field(default_factory=lambda: secrets.token_hex(16))

    @property
    def spec(self) -> RunSpec:
        """The options of the run."""
        return self.prepared.spec

    @property
    def task(self) -> TaskBase:
        """The bound task of the prepared run."""
        return self.prepared.task

    @property
    def mechanism(self) -> Mechanism:
        """The privacy mechanism of the prepared run."""
        return self.prepared.mechanism

    def begin(self, directory: Directory, ledger: Ledger, key: Key, data: str) -> tuple[Self, Checkpoint]:
        """Buy everything that is needed before the first round; return the context and the checkpoint.

        The budget is set, and made sure to bear the whole run, before the first of it is paid.
        """
        point = directory.resumable(ledger, data)
        plan = self._plan(directory, ledger, key, data, resumed=point is not None)
        if point is None:
            nothing = np.zeros(0)
            kept = {} if self.prepared.packing is None else {BOUNDS: self.prepared.packing.initial()}
            point = Checkpoint(0, nothing, nothing, nothing, 0, ledger.head, data, kept=kept)
            # From now on, what was paid for is known to be of this run.
            directory.write_checkpoint(point)
        if isinstance(ledger, RunLedger):
            work = digest(key, "work", canonical(self._work).encode())
            run, privacy = digest(key, "book", data.encode()), self.spec.privacy
            delta = privacy.delta if isinstance(privacy, Privacy) else None
            ledger.cover(self.prepared.price(), run=run, work=work, delta=delta)
        kept = replace(self, keep=directory.write_weights, plan=plan)
        ready = kept._augment(point, ledger, key)._ask_initial(point, directory, ledger, key)
        return ready._count_records(point, ledger, key), point

    def _augment(self, point: Checkpoint, ledger: Ledger, key: Key) -> Self:
        """Add synthetic records at the sites, if requested."""
        if self.spec.augment is None:
            return self
        ticket = self.ticket(_blank(point), key / "augment")
        ledger.charge(
            self.spec.augment.release(self.spec.privacy, list(self.federation)), ticket=ticket, plan=self.plan
        )
        own = key / "augment" if key.rehearsal else key / "augment" / ticket
        with one_thread():
            added = self.spec.augment.augment(
                self.federation, self.spec.privacy, self.prepared.provenance, own
            )
        # Sites left out depend on the records, or on a count that was charged.
        paid = isinstance(self.spec.privacy, Privacy) and self.spec.privacy.unit == "record"
        notes = self.prepared.provenance.public if paid else self.prepared.provenance.bare
        notes.extend(added.notes)
        return replace(self, federation=added)

    def _ask_initial(self, point: Checkpoint, directory: Directory, ledger: Ledger, key: Key) -> Self:
        """Ask the initial query; return the context with its answers in the task."""
        question = initial_query_of(self.task)
        if question is None:
            return self
        known = directory.read_json(OPENED)
        if known is not None:
            # Rounds were trained on these answers; later changes must not replace them.
            return replace(self, prepared=self.prepared.with_answers(known))
        blank = _blank(point)
        ticket = self.ticket(blank, key / question.kind)
        ledger.charge(self.prepared.price_of(question), ticket=ticket, plan=self.plan)
        own = key / question.kind if key.rehearsal else key / question.kind / ticket
        found = question.decode(self.ask(question, blank.state, own), self.noise(question))
        directory.write_json(OPENED, found)
        return replace(self, prepared=self.prepared.with_answers(found))

    def _count_records(self, point: Checkpoint, ledger: Ledger, key: Key) -> Self:
        """Buy the number of records, if needed; return the context that knows it."""
        price = self.mechanism.count_releases(list(self.federation))
        if not price:
            return self
        blank, names = _blank(point), list(self.federation)
        ledger.charge(price, ticket=self.ticket(blank, key / "count"), plan=self.plan)
        told = self.spec.engine.train(
            RecordCountQuery(), self.federation, blank.state, names, self.mechanism, key / "count"
        )
        if len(told.names) < len(names):
            silent = ", ".join(sorted(set(names) - set(told.names)))
            raise InvalidValue(f"the number of records is not known: no answer from {silent}")
        # Each holds one record at least.
        known = max(round(float(told.matrix.sum())), len(names))
        return replace(self, federation=self.federation.with_record_count(known))

    def ask_final(
        self, point: Checkpoint, clusters: Mapping[str, int], directory: Directory, ledger: Ledger, key: Key
    ) -> Checkpoint:
        """Charge and ask the final query; return the closed checkpoint. `clusters` names sites' models."""
        question = final_query_of(self.task)
        if question is None or point.closed:
            return point
        ticket = self.ticket(replace(point, state=point.best), key / "closing")
        own = key / "closing" if key.rehearsal else key / "closing" / ticket
        ledger.charge(self.prepared.price_of(question), ticket=ticket, plan=self.plan)
        best = self.apply_final(question, point.best, clusters, own)
        closed = replace(point, best=best, closed=True, ledger_head=ledger.head)
        directory.write_checkpoint(closed)
        return closed

    def ask_evaluation(
        self, point: Checkpoint, directory: Directory, ledger: Ledger, key: Key
    ) -> Evaluated | None:
        """Charge and count the table of held-out records once; return the scores of the model.

        Args:
            point: The last checkpoint, with the model.
            directory: The run's directory, which keeps the counts.
            ledger: The ledger to charge.
            key: The run's key.
        """
        question, asked = self.prepared.evaluation, self.spec.evaluate
        if question is None or asked is None:
            return None
        known: dict[str, Any] | None = directory.read_json(EVALUATED)
        if known is None:
            ticket = self.ticket(replace(point, state=point.best), key / question.kind)
            ledger.charge(self.prepared.evaluation_price(), ticket=ticket, plan=self.plan)
            own = key / question.kind if key.rehearsal else key / question.kind / ticket
            mechanism = self.prepared.solve_evaluation()
            mean, sites = self._collect(question, mechanism, point.best, own, list(self.federation))
            # Free of the noise of means: counts of all sites are whole numbers or nearly so.
            known = {"counts": [float(count) for count in mean * sites], "sites": sites}
            directory.write_json(EVALUATED, known)
        noise = self.prepared.cell_noise(int(known["sites"]))
        counts = np.asarray(known["counts"], dtype=np.float64)
        return asked.score_counts(question, self.spec.privacy, point.best, counts, noise)

    def apply_final(
        self, question: FinalQueryBase, state: Array, clusters: Mapping[str, int], key: Key
    ) -> Array:
        """Add the answers to the final query to the state; each site is asked about its own model."""
        if state.ndim == 1:
            return question.apply(state, self.ask(question, state, key), self.noise(question))
        members = [[name for name in self.federation if clusters.get(name) == at] for at in range(len(state))]
        asked = [
            self.ask(question, model, key / at, names) if names else None
            for at, (model, names) in enumerate(zip(state, members, strict=True))
        ]
        # A model without sites is closed with the mean answer of the others.
        usual = np.stack([answer for answer in asked if answer is not None]).mean(axis=0)
        return np.stack([
            question.apply(model, usual if answer is None else answer, self.noise(question, len(names)))
            for model, answer, names in zip(state, asked, members, strict=True)
        ])  # fmt: skip

    def ask(self, question: QueryBase, state: Array, key: Key, among: Sequence[str] | None = None) -> Array:
        """Return the sites' combined answers to a query; with secret participation, those of a sample."""
        mechanism = self.prepared.solve_query(question).with_one_group()
        names = list(self.federation if among is None else among)
        expected = mechanism.denominator(len(names))
        if expected is not None:
            names = self.spec.sampling(names, self.spec.privacy.participation, key / "who")
        if not names:
            # The answer is noise alone, so that it does not reveal that no site took part.
            nobody = Updates((), np.zeros((0, question.width)))
            return mechanism.at_server(Mean()(nobody, sites=expected), key / "server")
        return self._collect(question, mechanism, state, key, names)[0]

    def _collect(
        self, question: QueryBase, mechanism: Mechanism, state: Array, key: Key, names: Sequence[str]
    ) -> tuple[Array, int]:
        """Return the combined answers of these sites, a mean, and the number of sites in it."""
        expected = mechanism.denominator(len(names))
        answers = self.spec.engine.train(question, self.federation, state, names, mechanism, key)
        answers = self.tamper(answers, key)
        limit = (LONGEST, "l2") if self.joins else mechanism.update_bound()
        screen = Screen(names=answers.names, width=question.width, round=0, ticket="", limit=limit)
        kept, _ = screen.rows(answers)
        if not kept.names and expected is None:
            raise InvalidValue(f"no site answered the query for the {question.kind} in finite numbers")
        blind = mechanism.groups(names) is not None
        rule = (
            Mean()
            if blind
            else query_aggregator(self.prepared.aggregation, len(kept.names), trusted=expected is not None)
        )
        with one_thread():
            combined = rule(kept, sites=expected)
        sites = len(names) - len(answers.faults) if blind else len(kept.names)
        return mechanism.at_server(combined, key / "server"), sites

    @property
    def joins(self) -> bool:
        """True if parties' outputs are concatenated (vertical data), so that updates cannot be compared."""
        return isinstance(self.prepared.aggregation, Join)

    def tamper(self, updates: Updates, key: Key) -> Updates:
        """Replace the updates of malicious sites if the run has an attack."""
        if self.spec.attack is None:
            return updates
        liars = self.spec.attack.draw_liars(list(self.federation), Key(key.seed))
        return self.spec.attack.poison_updates(updates, liars, self.prepared.aggregation, key / "attack")

    def noise(self, question: QueryBase, sites: int | None = None) -> float:
        """Return the noise's standard deviation per number of a query's answer (by default, of all sites)."""
        mechanism = self.prepared.solve_query(question).with_one_group()
        return mechanism.deviation(max(len(self.federation) if sites is None else sites, 1))

    def _plan(
        self, directory: Directory, ledger: Ledger, key: Key, data: str, *, resumed: bool
    ) -> str | None:
        """Register the plan of the run, which the budget must cover as a whole; a tuning has a larger one."""
        if isinstance(self.spec.privacy, Open):
            return None
        whole, larger = self.prepared.price(), directory.plan()
        own = digest(key, "plan", planned_bytes(whole) + data.encode())
        return begin_plan(ledger, self.spec.privacy, whole, own=own, larger=larger, resumed=resumed)

    @cached_property
    def _work(self) -> list[str]:
        """Fingerprint of everything that a round's sums depend on: task, options, data, machine.

        Unknown parts become the nonce of this process, so that they never match after a crash.
        """
        # The stopping rule does not change any sum.
        choices = self.prepared.describe(self.federation, stop=None)
        known = [self.task.identity, choices_of(choices, self.spec.augment)]
        names = list(self.federation)
        trusted = self.mechanism.denominator(len(names)) is not None
        # A secure Gram matrix needs all parties, so the same inputs give the same sum.
        loses = self.mechanism.groups(names) is not None and not isinstance(self.mechanism, SecureGram)
        # Sites that remember what they have joined are in one sum at most, however often a round is begun.
        loses = loses and not self.spec.engine.remembers
        if loses or (trusted and isinstance(self.prepared.aggregation, CustomAggregator)):
            # A secure sum may lose other sites the next time, and a custom aggregator may differ: with
            # the same noise, the difference of two answers would be unprotected.
            known.append(None)
        records = f"{self.federation.records} {self.federation.fingerprint.hex()}"
        return [part or self.nonce for part in (*known, records, machine())]

    def ticket(self, point: Checkpoint, key: Key) -> str:
        """Name the round by its inputs: after a crash, equal inputs give equal noise at no new price.

        Inputs are everything that the sums of the round depend on: data, state, work, and the machine, which
        may round otherwise. Work that cannot be written down is never the same after a crash. All of it is
        in its canonical form, so that a run resumed by its file, its directory or Python has one ticket.
        """
        tensors = (point.state, *(point.kept[name] for name in sorted(point.kept)))
        return ticket_of(key, point.data, self._work, tensors)


def _blank(point: Checkpoint) -> Checkpoint:
    """Return the checkpoint of a run before its first state."""
    return replace(point, state=point.state[:0], kept={})


def ticket_of(key: Key, data: str, work: Sequence[str], tensors: Iterable[Array]) -> str:
    """Name the charge of one release.

    Args:
        key: The key of the release; its path says which one of the run it is.
        data: Fingerprint of the data of the run.
        work: Description of the task, options and machine.
        tensors: The state that the work begins with, and whatever else is remembered.
    """
    inputs = canonical([key.path, data, work])
    return digest(key, inputs, b"".join(part.tobytes() for part in tensors))


def choices_of(tables: Mapping[str, Any], augment: object) -> str | None:
    """The canonical text of all choices of a run.

    None where it cannot be written, or where synthetic records are made by the user's own code, which may be
    other code after a crash.
    """
    if augment is not None and type(augment).__module__.partition(".")[0] != "tacit":
        return None
    try:
        return canonical(tables)
    except Unwritable:
        return None


def digest(key: Key, purpose: str, content: bytes) -> str:
    """Fingerprint that reveals nothing without the run's secret."""
    return hmac.digest(key.entropy, repr(purpose).encode() + content, "sha256").hex()
