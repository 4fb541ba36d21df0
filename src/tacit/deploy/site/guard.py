"""The guard of a site: it has the records, the keys and the ledger, and answers permitted requests.

It accepts requests signed by the coordinator; the site's own file decides if they are answered, and the
mechanism that the guard derives by itself decides what leaves. It has no network: requests come in and
answers go out through a socket, carried by any process that may use it.

The coordinator names the work; its content, protection and noise seed are derived at the site.
"""

import fcntl
import hmac
import os
import re
import secrets
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from tacit.aggregation.defence.clustering import ClusterChoice
from tacit.deploy.site.agreement import (
    AnswerLog,
    OverLimit,
    SiteAgreement,
    Unusable,
    agree,
    agreement_id,
    details_of,
    digest_of,
    pay,
    require_room,
)
from tacit.deploy.site.config import ANSWERS, EXPERIMENTS, LEDGER, UNUSABLE, SiteFile, entropy, identity
from tacit.engines.base import ClippedWork, RecordCountQuery, run_at_site
from tacit.engines.messages import (
    COORDINATOR,
    SignedMessage,
    Unreadable,
    digest,
    encode_arrays,
    open_message,
    sign_message,
)
from tacit.engines.remote import width_of
from tacit.engines.secure.messages import products_of, sums_of
from tacit.engines.secure.round import ClientIdentity, SecureClient
from tacit.errors import (
    BudgetExhausted,
    InvalidFile,
    LedgerTampered,
    Refused,
    SecureAggregationFailed,
    TacitError,
    is_between,
    shorten,
)
from tacit.learning.query import Work, WorkKind
from tacit.privacy.mechanisms.base import Mechanism
from tacit.privacy.mechanisms.secure_gram import SecureGram
from tacit.privacy.mechanisms.secure_sum import SecureSum
from tacit.privacy.policy import Privacy
from tacit.runs.queries import final_query_of, initial_query_of
from tacit.runs.spec import PreparedRun
from tacit.runtime import files
from tacit.runtime.arrays import Array
from tacit.runtime.keys import Key, Part
from tacit.runtime.silence import suppress_warnings
from tacit.runtime.threads import one_thread

if TYPE_CHECKING:
    from tacit.aggregation.secure.products import Matrix
    from tacit.aggregation.secure.sealing import Identity, Roster, Vector
    from tacit.sites.federation import Federation

# A site's answer: plain data, and arrays as bytes.
Answer = tuple[dict[str, Any], bytes]
# Errors that the coordinator may see: these are about limits and requests, never about records.
TELLING = (BudgetExhausted, InvalidFile, OverLimit, Refused, SecureAggregationFailed, Unreadable)


def log(message: str) -> None:
    """A line of the site's log, with the time."""
    print(
        f"{datetime.now(UTC).isoformat(timespec='seconds')} {shorten(message)}", file=sys.stderr, flush=True
    )


class Guard:
    """The guard of one site.

    Args:
        folder: The site's own folder.
        told: Receives lines of its log.
    """

    def __init__(self, folder: str | Path, told: Callable[[str], None] = log) -> None:
        from tacit.aggregation.secure.sealing import Roster

        self.folder, self.file = Path(folder), SiteFile.read(folder)
        self.told = told
        self._identity, self._entropy = identity(folder), entropy(folder)
        self._coordinator = Roster({COORDINATOR: bytes.fromhex(self.file.coordinator)})
        if not (self.folder / "state").is_dir():
            raise LedgerTampered(
                f"{self.folder / 'state'} is missing: it records what was spent. Restore it, or start again "
                "with new keys in a new folder"
            )
        (self.folder / EXPERIMENTS).mkdir(mode=0o700, exist_ok=True)
        self._lock = lock(self.folder)
        try:
            self._require_books()
            self._memory = AnswerLog(self.folder / ANSWERS)
        except TacitError:
            self.close()
            raise
        self._working: dict[str, SiteWorker] = {}
        # The agreement that was considered last; agreeing to it next need not recompute it.
        self._considered: SiteAgreement | None = None
        self._doing: Mapping[str, Callable[[SignedMessage], Answer]] = {
            "hello": self._hello,
            "consider": self._consider,
            "agree": self._agree,
            "work": self._work,
            "secret": self._secure_stage,
        }

    def close(self) -> None:
        """Let another guard take over."""
        os.close(self._lock)

    def _require_books(self) -> None:
        """Refuse to begin if the site agreed to experiments and their log is missing."""
        begun = any((self.folder / EXPERIMENTS).glob("*.toml"))
        for book in (LEDGER, ANSWERS):
            if begun and not (self.folder / book).is_file():
                raise LedgerTampered(
                    f"{self.folder / book} is missing, and the site has taken part in experiments: it "
                    "records what was released. Restore it, or start again with new keys in a new folder"
                )

    @suppress_warnings()
    def answer(self, content: bytes) -> bytes:
        """Sign the answer to a message; a refusal has a reason, as far as it may be disclosed."""
        try:
            letter = open_message(content, self._coordinator, reader=self.file.name)
            if letter.about not in self._doing:
                raise Refused(f"{letter.about!r} is not a request that this site answers")
            told, numbers = self._doing[letter.about](letter)
            return self._letter(letter.about, told, numbers, digest(content))
        except Exception as error:
            # Whatever goes wrong with one question, the next one is heard.
            return self._letter("refused", self._refusal(error), b"", digest(content))

    def _letter(self, about: str, content: dict[str, Any], numbers: bytes, answers: bytes) -> bytes:
        name = self.file.name
        letter = SignedMessage(
            writer=name, reader=COORDINATOR, about=about, content=content, numbers=numbers, answers=answers
        )
        return sign_message(letter, self._identity)

    def _refusal(self, error: Exception) -> dict[str, Any]:
        """Log an error in full, and return the part of it that the coordinator may see."""
        kind = type(error).__name__
        self.told(
            f"refused: {error}"
            if isinstance(error, TacitError)
            else f"failed: {kind}: {self._describe_error(error)}"
        )
        if isinstance(error, Unusable):
            self._set_aside(str(error))
            return {"why": "its records cannot be used: the log of the site gives the reason"}
        if not isinstance(error, TELLING):
            return {"why": "an error occurred at the site: its own log has the details"}
        return {"why": str(error), "budget": isinstance(error, BudgetExhausted | OverLimit)}

    def _describe_error(self, error: Exception) -> str:
        """Describe an unexpected error; unless the site is open, without values of records."""
        if self.file.limits.open:
            return str(error)
        return details_of(self.file, self.folder).say("".join(traceback.format_exception(error)))

    def _set_aside(self, why: str) -> None:
        """Answer no further experiment until the administrator acts: each refusal discloses a little."""
        files.replace(self.folder / UNUSABLE, f"{why}\n")

    def _require_usable(self) -> None:
        if (self.folder / UNUSABLE).exists():
            raise Refused(
                "its records could not be used before: its administrator must solve that first (tacit site "
                "check, then tacit site accept)"
            )

    def _hello(self, letter: SignedMessage) -> Answer:
        return {"site": self.file.name}, b""

    def _consider(self, letter: SignedMessage) -> Answer:
        """Check an experiment against the site's limits; nothing is paid."""
        from tacit.privacy.ledger.store import Ledger

        found = self._propose(letter)
        with Ledger(self.folder / LEDGER) as ledger:
            require_room(found, ledger, self.file.limits)
        self.told(
            f"would take part in experiment {digest_of(_text(letter, 'experiment'))}: {found.summary()}"
        )
        return {"told": found.summary()}, b""

    def _propose(self, letter: SignedMessage) -> SiteAgreement:
        """Return the agreement that a message proposes, if the limits allow it."""
        text, run = _text(letter, "experiment"), _run(letter)
        self._require_usable()
        mark = agreement_id(text, run, self._entropy)
        if self._considered is None or self._considered.mark != mark:
            self._considered = agree(text, run, self.file, self.folder, self._entropy)
        return self._considered

    def _agree(self, letter: SignedMessage) -> Answer:
        """Take part in an experiment: it is held against the site's limits, and paid for as a whole."""
        from tacit.privacy.ledger.store import Ledger

        text, run, found = _text(letter, "experiment"), _run(letter), self._propose(letter)
        self._considered = None
        with Ledger(self.folder / LEDGER) as ledger:
            new = pay(found, ledger, self.file.limits)
        self._keep(f"{run}.toml", text)
        self._working[run] = self._start_worker(found)
        self.told(
            f"agreed to experiment {digest_of(text)}, run {run[:16]}: {found.summary()}"
            + ("" if new else "; it was paid for before" * bool(found.price))
        )
        return {"told": found.summary()}, b""

    def _start_worker(self, found: SiteAgreement) -> "SiteWorker":
        # Draws of one experiment tell nothing about those of another.
        own = hmac.digest(self._entropy, b"draws\0" + found.mark.encode(), "sha256")
        return SiteWorker(found, self.file.name, own)

    def _keep(self, name: str, text: str) -> None:
        files.replace(self.folder / EXPERIMENTS / name, text)

    def _find_worker(self, letter: SignedMessage) -> "SiteWorker":
        """Find the experiment of a request: agreed to before, if need be before a restart."""
        run = _run(letter)
        if run not in self._working:
            file = self.folder / EXPERIMENTS / f"{run}.toml"
            if not file.is_file():
                raise Refused("this site has not agreed to that experiment")
            text = files.read_bytes(file).decode()
            self._require_usable()
            found = agree(text, run, self.file, self.folder, self._entropy)
            self._require_paid(found)
            self._working[run] = self._start_worker(found)
        return self._working[run]

    def _require_paid(self, found: SiteAgreement) -> None:
        from tacit.privacy.ledger.store import Ledger

        with Ledger(self.folder / LEDGER) as ledger:
            if pay(found, ledger, self.file.limits):
                self.told("an accepted experiment was not on the ledger: it has been charged now")

    def _work(self, letter: SignedMessage) -> Answer:
        """Return the site's answer to a round or query, computed at most once."""
        working = self._find_worker(letter)
        asked = working.parse(letter)
        if asked.mechanism.groups(working.agreement.setting.names) is not None:
            raise Refused("this experiment uses secure aggregation: no single update leaves the site")
        mark, about = working.agreement.mark, asked.about
        before = (
            self._memory.previous_answer(mark, about, letter.request_digest)
            if working.agreement.has_privacy
            else None
        )
        if before is not None:
            self.told(f"gave the answer to {about} of run {_run(letter)[:16]} once more")
            return msgspec.msgpack.decode(before, type=tuple[dict[str, Any], bytes])
        found = self._perform(working, asked, letter)
        answer = {"diary": found.diary} if found.diary else {}, encode_arrays({"row": found.row})
        if working.agreement.has_privacy:
            self._memory.keep(mark, about, letter.request_digest, msgspec.msgpack.encode(answer))
        self.told(f"answered {about} of run {_run(letter)[:16]}")
        return answer

    def _perform(self, working: "SiteWorker", asked: "ParsedRequest", letter: SignedMessage) -> "WorkResult":
        """Do the work; under a privacy policy a failure is the answer, and nothing is tried again."""
        try:
            return working.perform(asked)
        except Exception:
            if working.agreement.has_privacy:
                self._memory.keep(working.agreement.mark, asked.about, letter.request_digest)
            raise

    def _secure_stage(self, letter: SignedMessage) -> Answer:
        """Answer one stage of secure aggregation."""
        return self._find_worker(letter).secure_stage(
            letter, self._identity, self.file.roster, self._memory
        ), b""


def lock(folder: Path) -> int:
    """Lock a folder for one guard, before it reads its log and until its process ends."""
    handle = os.open(folder / "state", os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise Refused(f"{folder} is guarded by another process: end that one first") from None
    return handle


def _text(letter: SignedMessage, name: str) -> str:
    found = letter.content.get(name)
    if not isinstance(found, str):
        raise Unreadable("schema", f"{name} is missing, or is not text")
    return found


def _run(letter: SignedMessage) -> str:
    """Return the identifier of a run, safe as a file name."""
    found = _text(letter, "run")
    if re.fullmatch("[0-9a-f]{1,64}", found) is None:
        raise Unreadable("schema", "the name of the run is not made of hexadecimal digits")
    return found


# Queries that are asked once, in words.
QUERIES: Mapping[WorkKind, str] = {
    "opening": "initial query", "closing": "final query", "evaluation": "evaluation of held-out records"
}  # fmt: skip
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
            raise Unreadable("schema", "the state is missing, or is not an array of doubles")
        self._require_size(told)
        return ParsedRequest(about, task, mechanism, state, self._key(told), told.typical)

    def perform(self, asked: ParsedRequest) -> WorkResult:
        """Do the work, and return results that have passed the mechanism."""
        own = self._own_part(held_out=asked.task.work_kind == "evaluation")
        cohort = replace(own.cohort([self.name]), mean_site_size=asked.typical)
        with one_thread():
            made = run_at_site(asked.task, asked.state, cohort, asked.mechanism, asked.key)
        diary = {what: list(values) for what, values in made.metrics.get(self.name, {}).items()}
        # Nothing is told beside an update unless nothing was promised.
        return WorkResult(made.matrix[0], {} if self._protected else diary)

    def _own_part(self, *, held_out: bool) -> "Federation":
        """The records to train on, or those held out by the site's own secret coins."""
        own, asked = self.agreement.own, self.agreement.experiment.evaluate
        if asked is None:
            return own
        return asked.at_site(own, self.name, self._base_key(()), held_out=held_out)

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
        """Join the secure sum that the site expects by its own plan."""
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
        """Add the answers of the initial query to the run; nothing else of it can be changed."""
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
        """Return the work of a name, with its mechanism."""
        if told.asking == "count":
            if not setting.mechanism.count_releases([self.name]):
                raise Refused("this experiment does not ask for the number of records")
            return RecordCountQuery(), setting.mechanism, "the number of records"
        if told.asking in QUERIES:
            return self._resolve_query(told.asking, setting)
        task = setting.task.at_round(number, setting.spec.rounds)
        if told.asking == "choosing":
            clusters = setting.clusters
            if clusters is None or clusters.by != "loss":
                raise Refused("no site chooses among models in this experiment")
            return ClusterChoice(task, clusters.models), setting.mechanism.at_round(number), f"round {number}"
        return task, setting.mechanism.at_round(number), f"round {number}"

    def _resolve_query(self, asking: WorkKind, setting: PreparedRun) -> tuple[Work, Mechanism, str]:
        """The query that is asked once, and what guards it."""
        task, about = setting.task, QUERIES[asking]
        if asking == "evaluation":
            if setting.evaluation is None:
                raise Refused(f"this experiment has no {about}")
            return setting.evaluation, setting.solve_evaluation(), f"the {about}"
        question = initial_query_of(task) if asking == "opening" else final_query_of(task)
        if question is None:
            raise Refused(f"this experiment has no {about}")
        return question, setting.solve_query(question).with_one_group(), f"the {about}"

    def _require_size(self, told: WorkRequest) -> None:
        """Refuse a size that is none; without one, sums would be divided by the site's own, a secret."""
        privacy, typical = self.agreement.experiment.privacy, told.typical
        by_record = isinstance(privacy, Privacy) and privacy.unit == "record"
        divided = told.asking == "round" and self.agreement.setting.task.batch is None
        if typical is None and divided and by_record and self.agreement.own.layout == "rows":
            raise Refused(
                "the mean number of records of a site is missing: the number of this site is a secret"
            )
        if typical is not None and not is_between(typical, 0, 1e15):
            raise Unreadable("schema", "the mean number of records of a site must be above 0")

    def _key(self, told: WorkRequest) -> Key:
        return self._base_key(tuple(told.path))

    def _base_key(self, path: tuple[Part, ...]) -> Key:
        privacy = self.agreement.experiment.privacy
        return Key(self.agreement.experiment.seed, not privacy.protects, self._entropy, path)


def _bounds(numbers: "dict[str, Array]", like: Array) -> Array:
    """Return the clip bounds of a round; for any bounds, an encoded update has norm at most 1."""
    found = numbers.get("bounds")
    fits = found is not None and found.shape == like.shape and found.dtype == like.dtype
    if found is None or not fits or not bool((np.isfinite(found) & (found > 0)).all()):
        raise Unreadable("schema", "the bounds of the round are missing, or are not numbers above 0")
    return found
