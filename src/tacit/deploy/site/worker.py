"""Work of a site in an experiment that it has agreed to.

The coordinator names the work; its content, protection and noise seed are derived at the site.
"""

import secrets
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from tacit.aggregation.defence.clustering import ClusterChoice
from tacit.deploy.site.agreement import SiteAgreement
from tacit.deploy.site.answer_log import AnswerLog
from tacit.engines.base import ClippedWork, RecordCountQuery, run_at_site
from tacit.engines.messages import SignedMessage, Unreadable
from tacit.engines.remote import width_of
from tacit.engines.secure.messages import products_of, sums_of
from tacit.engines.secure.round import ClientIdentity, SecureClient
from tacit.errors import Refused, is_between
from tacit.learning.task import Work, WorkKind
from tacit.privacy.mechanisms.base import Mechanism
from tacit.privacy.mechanisms.secure_gram import SecureGram
from tacit.privacy.mechanisms.secure_sum import SecureSum
from tacit.privacy.policy import Privacy
from tacit.runs.queries import final_query_of, initial_query_of
from tacit.runs.setup import PreparedRun
from tacit.runtime.arrays import Array
from tacit.runtime.keys import Key, Part
from tacit.runtime.threads import one_thread

if TYPE_CHECKING:
    from tacit.aggregation.secure.products import Matrix
    from tacit.aggregation.secure.sealing import Identity, Roster, Vector

# The parts of a key's name that a coordinator may choose.
MOST_PARTS = 6


class WorkRequest(msgspec.Struct, frozen=True):
    """Coordinator's request for a piece of work."""

    run: str
    asking: WorkKind
    path: list[str | int]
    found: dict[str, Any]
    typical: float | None


class SecureStageRequest(msgspec.Struct, frozen=True):
    """Coordinator's message in one stage of secure aggregation."""

    run: str
    stage: str
    session: str
    said: bytes
    work: dict[str, Any]


@dataclass(frozen=True, eq=False)
class ParsedRequest:
    """A parsed work request.

    Args:
        about: The name of the work, independent of the request's nonce.
        task: The task or query.
        mechanism: Its mechanism.
        state: The initial state.
        key: The key of its draws.
        typical: The mean number of records of a site, as far as it is known.
    """

    about: str
    task: Work
    mechanism: Mechanism
    state: Array
    key: Key
    typical: float | None


@dataclass(frozen=True, eq=False)
class WorkResult:
    """Protected result of a piece of work."""

    row: Array
    diary: dict[str, list[float]]


class SiteWorker:
    """Worker of one experiment at one site.

    Args:
        agreement: The site's agreement to it.
        name: The site.
        entropy: The site's secret for this experiment.
    """

    def __init__(self, agreement: SiteAgreement, name: str, entropy: bytes) -> None:
        self.agreement, self.name = agreement, name
        self._entropy = entropy
        # The one session that is under way: who begins another has left the one before.
        self._joined: dict[str, SecureClient] = {}

    def parse(self, letter: SignedMessage) -> ParsedRequest:
        """Parse a work request and resolve its task and mechanism.

        Raises:
            Unreadable: It cannot be understood.
            Refused: It is no work of this experiment.
        """
        try:
            told = msgspec.convert(letter.content, type=WorkRequest)
        except msgspec.ValidationError as error:
            raise Unreadable("schema", f"the question cannot be read ({error})") from error
        setting, numbers = self._with_answers(told), letter.arrays
        number = self._round(told)
        task, mechanism, about = self._resolve_work(told, setting, number)
        if told.asking == "round" and setting.packing is not None:
            task = ClippedWork(task, setting.packing, _bounds(numbers, setting.packing.initial()))
        state = numbers.get("state")
        if state is None or state.dtype != np.float64 or state.ndim not in (1, 2):
            raise Unreadable("schema", "the state is missing, or is no array of doubles")
        self._require_size(told)
        return ParsedRequest(about, task, mechanism, state, self._key(told), told.typical)

    def perform(self, asked: ParsedRequest) -> WorkResult:
        """Do it: what comes out has gone through the mechanism."""
        cohort = replace(self.agreement.own.cohort([self.name]), mean_site_size=asked.typical)
        with one_thread():
            made = run_at_site(asked.task, asked.state, cohort, asked.mechanism, asked.key)
        diary = {what: list(values) for what, values in made.metrics.get(self.name, {}).items()}
        # Nothing is told beside an update unless nothing was promised.
        return WorkResult(made.matrix[0], {} if self._protected else diary)

    def secure_stage(
        self, letter: SignedMessage, identity: "Identity", roster: "Roster", memory: AnswerLog
    ) -> dict[str, Any]:
        """Answer one stage of secure aggregation.

        Args:
            letter: The coordinator's message.
            identity: The site's own.
            roster: The keys of all parties, from the site's own file.
            memory: The log in which joining a round is written before the masked vector leaves.
        """
        try:
            told = msgspec.convert(letter.content, type=SecureStageRequest)
        except msgspec.ValidationError as error:
            raise Unreadable("schema", f"the stage cannot be read ({error})") from error
        if told.stage == "offer":
            asked = self.parse(msgspec.structs.replace(letter, content={**told.work, "run": told.run}))
            mark, once = self.agreement.mark, secrets.token_hex(16)
            memory.require_new(mark, asked.about)

            def remember(occasion: str, terms: str) -> None:
                # Masks are forgotten with the process: no round is joined twice, whatever the terms.
                memory.keep(mark, occasion, f"{terms} {once}")

            seat = ClientIdentity(name=self.name, identity=identity, roster=roster, remember=remember)
            self._joined = {told.session: self._join(asked, told.session, seat)}
        joined = self._joined.get(told.session)
        if joined is None:
            raise Refused("this site is in no such session: it was restarted, or never joined")
        return {"said": joined.answer(told.stage, told.said)}

    def _join(self, asked: ParsedRequest, session: str, seat: ClientIdentity) -> SecureClient:
        """The site's part in the sum that it expects by its own reckoning."""
        names, guard = self.agreement.setting.names, asked.mechanism
        # Sites with another experiment add other noise: the digest keeps them out of the sum.
        run = f"{session} {self.agreement.run_digest}"
        if isinstance(guard, SecureGram):
            products = products_of(guard, names, run=run, number=0)

            def rows() -> "tuple[Matrix, Vector]":
                found, own = guard.secure_input(names.index(self.name), self.perform(asked).row)
                return found.astype("uint32"), own

            return SecureClient(products, seat, rows, occasion=asked.about)
        if not isinstance(guard, SecureSum):
            raise Refused("this experiment does not use secure aggregation")
        width = width_of(asked.task, asked.state)
        sums = sums_of(guard, names, run=run, number=guard.number, width=width)
        own = next((each for each in sums if self.name in each.names), None)
        if own is None:
            raise Refused(f"{self.name} is in none of the sums of {asked.about}")
        return SecureClient(own, seat, lambda: guard.on_ring(self.perform(asked).row), occasion=asked.about)

    @property
    def _protected(self) -> bool:
        return self.agreement.has_privacy and not self.agreement.setting.provenance.allowed

    def _with_answers(self, told: WorkRequest) -> PreparedRun:
        """The setting, with what the opening question has found; nothing else of it can be changed."""
        setting = self.agreement.setting
        opening = initial_query_of(setting.task)
        if not told.found:
            return setting
        allowed = set[str]() if opening is None else set(opening.placeholder)
        strange = sorted(set(told.found) - allowed)
        if strange:
            raise Refused(
                f"{', '.join(strange)} is not an answer that a request of this experiment may change"
            )
        return setting.with_answers(told.found)

    def _round(self, told: WorkRequest) -> int:
        """Return the number of the round, 0 for initial and final queries."""
        first, rounds = told.path[0] if told.path else 0, self.agreement.setting.spec.rounds
        number = first if isinstance(first, int) else 0
        planned = 0 <= number <= rounds and (told.asking in ("round", "choosing")) == (number > 0)
        # A closing question may be asked in a round too, where it is free.
        free = told.asking == "closing" and 0 <= number <= rounds and not self.agreement.has_privacy
        if not planned and not free:
            raise Refused(f"{told.asking} {number} is not part of an experiment of {rounds} rounds")
        if len(told.path) > MOST_PARTS:
            raise Unreadable("schema", "the name of its key is too long")
        return number

    def _resolve_work(
        self, told: WorkRequest, setting: PreparedRun, number: int
    ) -> tuple[Work, Mechanism, str]:
        """The work by its name, and what guards it."""
        if told.asking == "count":
            if not setting.mechanism.count_releases([self.name]):
                raise Refused("this experiment does not ask for the number of records")
            return RecordCountQuery(), setting.mechanism, "the number of records"
        if told.asking in ("opening", "closing"):
            task = setting.task
            initial = told.asking == "opening"
            question = initial_query_of(task) if initial else final_query_of(task)
            about = "initial query" if initial else "final query"
            if question is None:
                raise Refused(f"this experiment has no {about}")
            guard = setting.solve_query(question).with_one_group()
            return question, guard, f"the {about}"
        task = setting.task.at_round(number, setting.spec.rounds)
        if told.asking == "choosing":
            clusters = setting.clusters
            if clusters is None or clusters.by != "loss":
                raise Refused("no site chooses among models in this experiment")
            return ClusterChoice(task, clusters.models), setting.mechanism.at_round(number), f"round {number}"
        return task, setting.mechanism.at_round(number), f"round {number}"

    def _require_size(self, told: WorkRequest) -> None:
        """Refuse a size that is none; without one, sums would be divided by the site's own, a secret."""
        privacy, typical = self.agreement.experiment.privacy, told.typical
        by_record = isinstance(privacy, Privacy) and privacy.unit == "record"
        if typical is None and told.asking == "round" and by_record and self.agreement.own.layout == "rows":
            raise Refused(
                "the mean number of records of a site is missing: the number of this site is a secret"
            )
        if typical is not None and not is_between(typical, 0, 1e15):
            raise Unreadable("schema", "the mean number of records of a site must be above 0")

    def _key(self, told: WorkRequest) -> Key:
        privacy = self.agreement.experiment.privacy
        path: tuple[Part, ...] = tuple(told.path)
        return Key(self.agreement.experiment.seed, not privacy.protects, self._entropy, path)


def _bounds(numbers: "dict[str, Array]", like: Array) -> Array:
    """The bounds of a round; whatever they are, what is sent is no longer than 1."""
    found = numbers.get("bounds")
    fits = found is not None and found.shape == like.shape and found.dtype == like.dtype
    if found is None or not fits or not bool((np.isfinite(found) & (found > 0)).all()):
        raise Unreadable("schema", "the bounds of the round are missing, or are no numbers above 0")
    return found
