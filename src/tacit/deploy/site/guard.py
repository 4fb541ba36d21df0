"""The guard of a site: it has the records, the keys and the ledger, and answers permitted requests.

It accepts requests signed by the coordinator; the site's own file decides if they are answered, and the
mechanism that the guard derives by itself decides what leaves. It has no network: requests come in and
answers go out through a socket, carried by any process that may use it.
"""

import fcntl
import hmac
import os
import re
import sys
import traceback
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from tacit.deploy.site.agreement import (
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
from tacit.deploy.site.answer_log import AnswerLog
from tacit.deploy.site.config import ANSWERS, EXPERIMENTS, LEDGER, UNUSABLE, SiteFile, entropy, identity
from tacit.deploy.site.worker import ParsedRequest, SiteWorker, WorkResult
from tacit.engines.messages import (
    COORDINATOR,
    SignedMessage,
    Unreadable,
    digest,
    encode_arrays,
    open_message,
    sign_message,
)
from tacit.errors import (
    BudgetExhausted,
    InvalidFile,
    LedgerTampered,
    Refused,
    SecureAggregationFailed,
    TacitError,
    shorten,
)
from tacit.runtime import files
from tacit.runtime.silence import suppress_warnings

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
        """Refuse to begin where something was agreed to and what is remembered of it is gone."""
        begun = any((self.folder / EXPERIMENTS).glob("*.toml"))
        for book in (LEDGER, ANSWERS):
            if begun and not (self.folder / book).is_file():
                raise LedgerTampered(
                    f"{self.folder / book} is missing, and the site has taken part in experiments: it "
                    "records what was released. Restore it, or start again with new keys in a new folder"
                )

    @suppress_warnings()
    def answer(self, content: bytes) -> bytes:
        """The answer to whatever has come, signed; a refusal says why, as far as that may be told."""
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
        """Answer no further experiment until the administrator has looked: each refusal tells a little."""
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

    def _start_worker(self, found: SiteAgreement) -> SiteWorker:
        # Draws of one experiment tell nothing about those of another.
        own = hmac.digest(self._entropy, b"draws\0" + found.mark.encode(), "sha256")
        return SiteWorker(found, self.file.name, own)

    def _keep(self, name: str, text: str) -> None:
        files.replace(self.folder / EXPERIMENTS / name, text)

    def _find_worker(self, letter: SignedMessage) -> SiteWorker:
        """The experiment that a question belongs to: agreed to before, if need be before a restart."""
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

    def _perform(self, working: SiteWorker, asked: ParsedRequest, letter: SignedMessage) -> WorkResult:
        """The work; where it fails under a promise, that was the answer, and nothing else is tried."""
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
    """The only guard of a folder, from before it reads what was answered until its process ends."""
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
        raise Unreadable("schema", f"{name} is missing, or is no text")
    return found


def _run(letter: SignedMessage) -> str:
    """Return the identifier of a run, safe as a file name."""
    found = _text(letter, "run")
    if re.fullmatch("[0-9a-f]{1,64}", found) is None:
        raise Unreadable("schema", "the name of the run is not made of hexadecimal digits")
    return found
