"""Engine for remote sites: signed requests, and validation of their answers.

A coordinator never sends work, only its name and its starting point: a site knows the experiment, and
rebuilds task, mechanism and noise by itself. Every answer is validated before it is used.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, cast

import msgspec
import numpy as np

from tacit.engines.base import ClippedWork
from tacit.engines.flower.nodes import Flower
from tacit.engines.messages import (
    COORDINATOR,
    NoReply,
    SignedMessage,
    Transport,
    Unreadable,
    digest,
    encode_arrays,
    open_message,
    sign_message,
)
from tacit.errors import BudgetExhausted, Refused, SitesUnreachable
from tacit.learning.query import Updates, Work
from tacit.learning.record import Fault
from tacit.privacy.mechanisms.base import Mechanism
from tacit.runtime.arrays import Array
from tacit.runtime.keys import Key
from tacit.sites.federation import Federation

if TYPE_CHECKING:
    from tacit.aggregation.secure.sealing import Identity, Roster

# Kinds of work that sites can be asked for.
Metrics = dict[str, list[float]]


@dataclass(frozen=True)
class Refusal(NoReply):
    """The reason that a site gives for not answering, and whether it is one of budgets."""

    budget: bool = False


def log_line(message: str) -> None:
    """Write a line to the log."""
    print(message, file=sys.stderr, flush=True)


@dataclass(frozen=True, kw_only=True, eq=False)
class Remote(Flower):
    """The engine of a coordinator.

    Args:
        exchange: The transport to sites and back.
        identity: The coordinator's own.
        roster: The public key of every site.
        run: The identifier of this run: a site pays for it once.
        run_digest: The digest of experiment and run, equal at all parties: secure sums exclude any other.
        found: Returns the answers to the experiment's initial query so far.
        log: Receives lines of the log.
    """

    remembers: ClassVar[bool] = True

    exchange: Transport
    identity: "Identity" = field(repr=False)
    roster: "Roster" = field(repr=False)
    run: bytes = b""
    run_digest: str = ""
    found: Callable[[], dict[str, Any]] = field(default=dict[str, Any], repr=False)
    log: Callable[[str], None] = field(default=log_line, repr=False)

    @property
    def chosen(self) -> Flower:
        """Engine as an experiment file describes it."""
        return Flower(deadline=self.deadline, wait=self.wait)

    def agree(self, experiment: str, names: Sequence[str], *, fewest: int | None = None) -> None:
        """Ask every site to take part in an experiment; it pays for all of it, or refuses with a reason.

        All sites are asked before any pays.

        Args:
            experiment: The experiment's file.
            names: The sites to ask.
            fewest: The smallest number of connected sites; all, unless a run is resumed.

        Raises:
            TacitError: The reason of the first site that refuses, or the missing sites.
        """
        least = len(names) if fewest is None else fewest
        there = self._request_agreement("consider", experiment, names, least)
        for name, found in self._request_agreement("agree", experiment, list(there), least).items():
            self.log(f"{name} agrees: {found.content.get('told', '')}")

    def _request_agreement(
        self, about: str, experiment: str, names: Sequence[str], least: int
    ) -> dict[str, SignedMessage]:
        """Return the answers of the sites that would take part, or do."""
        sent = {name: self._letter(name, about, {"experiment": experiment}) for name in names}
        answers = self.exchange(sent, self.wait)
        there, absent = dict[str, SignedMessage](), list[str]()
        for name, content in sent.items():
            found = self._open_reply(name, content, answers.get(name))
            if isinstance(found, SignedMessage):
                there[name] = found
            elif isinstance(found, Refusal):
                raise (BudgetExhausted if found.budget else Refused)(f"{name} refuses: {found.detail}")
            else:
                absent.append(f"{name} ({found.detail})")
        if len(there) < least:
            raise SitesUnreachable(
                f"some sites are missing after {self.wait:g} seconds: {'; '.join(absent)}. Start their "
                "guards and nodes, or leave them out of [sites]"
            )
        return there

    def train(
        self,
        task: Work,
        federation: Federation,
        state: Array,
        names: Sequence[str],
        mechanism: Mechanism,
        key: Key,
    ) -> Updates:
        """The guarded updates of those sites that answered in time, in this order."""
        width = width_of(task, state)
        if not names:
            # Noise of the usual width, so that it does not reveal that no site took part.
            return Updates((), np.zeros((0, width)))
        asked = {
            name: self._site_request(task, federation, state, place, key) for place, name in enumerate(names)
        }
        if mechanism.groups(names) is not None:
            from tacit.engines.secure.round import secure_round

            return secure_round(self, asked, names, width, mechanism)
        answers = self.ask({name: ("work", *parts) for name, parts in asked.items()})
        return self._updates(answers, names, width)

    def ask(
        self, questions: "Mapping[str, tuple[str, dict[str, Any], bytes]]", *, needed: bool = True
    ) -> dict[str, SignedMessage | NoReply]:
        """Send each site its request and return the answers.

        Args:
            questions: For each site the kind of request, plain data and arrays.
            needed: True if the run cannot continue without any answer.

        Raises:
            SitesUnreachable: No site has answered.
        """
        sent = {
            name: self._letter(name, about, content, numbers)
            for name, (about, content, numbers) in questions.items()
        }
        answers = self.exchange(sent, self.deadline)
        found = {name: self._open_reply(name, content, answers.get(name)) for name, content in sent.items()}
        for name, answer in found.items():
            if isinstance(answer, NoReply):
                self.log(f"{name}: {answer.detail} ({answer.reason})")
        if needed and all(isinstance(answer, NoReply) for answer in found.values()):
            told = "; ".join(f"{name}: {cast(NoReply, why).detail}" for name, why in found.items())
            raise SitesUnreachable(
                f"no site answered ({told}). Nothing is lost: resume with --resume when they are back"
            )
        return found

    def _site_request(
        self, task: Work, federation: Federation, state: Array, place: int, key: Key
    ) -> tuple[dict[str, Any], bytes]:
        """Return the plain data and arrays that one site needs for its part."""
        work = task.task if isinstance(task, ClippedWork) else task
        what = work.work_kind
        # With several models, each site gets its own; to choose a cluster it gets all of them.
        own = state if state.ndim == 1 or what == "choosing" else state[place : place + 1]
        numbers = {"state": own} | ({"bounds": task.bounds} if isinstance(task, ClippedWork) else {})
        content = {
            "asking": what,
            "path": list(key.path),
            "found": self.found(),
            "typical": federation.mean_site_size,
        }
        return content, encode_arrays(numbers)

    def _letter(self, reader: str, about: str, content: dict[str, Any], numbers: bytes = b"") -> bytes:
        told = {"run": self.run.hex(), **content}
        letter = SignedMessage(writer=COORDINATOR, reader=reader, about=about, content=told, numbers=numbers)
        return sign_message(letter, self.identity)

    def _open_reply(self, name: str, sent: bytes, answer: bytes | NoReply | None) -> SignedMessage | NoReply:
        """Verify a site's answer to a message; return it, its refusal, or the reason that there is none."""
        if answer is None or isinstance(answer, NoReply):
            return answer or NoReply("absent", "nothing has come from it")
        try:
            letter = open_message(answer, self.roster, reader=COORDINATOR, answers=digest(sent))
            if letter.writer != name:
                raise Unreadable("unknown", f"it is signed by {letter.writer!r}")
        except Unreadable as error:
            return NoReply(error.reason, f"its answer is excluded: {error}")
        if letter.about == "refused":
            why = letter.content.get("why")
            told = why if isinstance(why, str) else "it gives no reason"
            return Refusal("refused", told, budget=letter.content.get("budget") is True)
        return letter

    def _updates(
        self, answers: Mapping[str, SignedMessage | NoReply], names: Sequence[str], width: int
    ) -> Updates:
        """Split answers into usable rows and faults."""
        rows, diary, faults = dict[str, Array](), dict[str, Metrics](), list[Fault]()
        for name in names:
            answer = answers[name]
            if isinstance(answer, SignedMessage):
                try:
                    # Both or neither: an answer that is a fault is not counted with.
                    rows[name], diary[name] = row_of(answer, width), metrics_of(answer)
                    continue
                except Unreadable as error:
                    answer = NoReply(error.reason, str(error))
                    self.log(f"{name}: {error} ({error.reason})")
            faults.append(Fault(site=name, reason=answer.reason, detail=answer.detail))
        if not rows:
            # All answers are invalid: the round loop reports it.
            return Updates((), np.zeros((0, width)), faults=tuple(faults))
        matrix = np.stack(list(rows.values()))
        return Updates(
            tuple(rows), matrix, metrics={n: d for n, d in diary.items() if d}, faults=tuple(faults)
        )


def width_of(work: Work, state: Array) -> int:
    """Return the count of numbers that a site sends."""
    if work.work_kind == "choosing":
        # The number of the model comes first.
        return state.shape[-1] + 1
    return state.shape[-1] if work.sent is None else work.sent


def row_of(answer: SignedMessage, width: int) -> Array:
    """The update in an answer; whether its numbers are finite is for the loop to see.

    Raises:
        Unreadable: It is none, or not as long as it has to be.
    """
    row = answer.arrays.get("row")
    if row is None or row.dtype != np.float64 or row.shape != (width,):
        came = "nothing" if row is None else f"{row.dtype} of shape {tuple(row.shape)}"
        raise Unreadable("schema", f"{came} came, doubles of shape ({width},) were expected")
    return row


def metrics_of(answer: SignedMessage) -> Metrics:
    """Return the metrics that a site reports of its work."""
    try:
        return msgspec.convert(answer.content.get("diary", {}), type=Metrics)
    except msgspec.ValidationError as error:
        raise Unreadable("schema", f"its metrics cannot be read ({error})") from error
