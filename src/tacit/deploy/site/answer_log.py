"""Log of a site's answers, written to disk before an answer leaves: no request is answered in two ways.

A second answer about the same round would have an unpaid cost, even to the same request: records may have
changed in between, or the libraries that add them up. So a retry gets the very same answer, if it is
the last one of its experiment; older answers are neither kept nor given.
"""

import os
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from tacit.errors import LedgerTampered, Refused
from tacit.runtime import files


class AnswerEntry(msgspec.Struct, frozen=True):
    """One line: when, in which experiment, what about, and the question's digest."""

    at: str
    experiment: str
    about: str
    asked: str


class LastAnswer(msgspec.Struct, frozen=True):
    """The last answer of an experiment."""

    about: str
    asked: str
    answer: bytes


class AnswerLog:
    """Append-only log of answers, and the last answer of each experiment.

    Args:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._answers = path.with_suffix("")
        self._answers.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.touch(mode=0o600)
        self._known: dict[tuple[str, str], str] = {}
        for line in self._lines():
            self._known[line.experiment, line.about] = line.asked

    def previous_answer(self, experiment: str, about: str, asked: str) -> bytes | None:
        """The answer that was given to this very question; None if there was none about it at all.

        Raises:
            Refused: Another question about it was answered, or the answer is no longer kept.
        """
        if (experiment, about) not in self._known:
            return None
        if self._known[experiment, about] != asked:
            self.require_new(experiment, about)
        kept = self._last_answer(experiment)
        if kept is None or (kept.about, kept.asked) != (about, asked):
            raise Refused(
                f"{about} of this experiment was answered before, and that answer is no longer kept"
            )
        return kept.answer

    def keep(self, experiment: str, about: str, asked: str, answer: bytes = b"") -> None:
        """Keep an answer before it leaves, for good that it was given, and itself until the next one.

        Raises:
            Refused: Something about it was answered before.
        """
        self.require_new(experiment, about)
        if answer:
            kept = msgspec.msgpack.encode(LastAnswer(about, asked, answer))
            files.replace(self._answers / experiment, kept, 0o600)
        self._write(AnswerEntry(datetime.now(UTC).isoformat(timespec="seconds"), experiment, about, asked))
        self._known[experiment, about] = asked

    def require_new(self, experiment: str, about: str) -> None:
        """Refuse any request that was answered before."""
        if (experiment, about) in self._known:
            raise Refused(
                f"{about} of this experiment was answered before, for another request: the budget does not "
                "cover a second answer"
            )

    def _last_answer(self, experiment: str) -> LastAnswer | None:
        try:
            return msgspec.msgpack.decode(files.read_bytes(self._answers / experiment), type=LastAnswer)
        except (FileNotFoundError, *files.DAMAGED):
            return None

    def _lines(self) -> list[AnswerEntry]:
        try:
            content = files.read_bytes(self._path)
        except FileNotFoundError:
            return []
        whole = content.rfind(b"\n") + 1
        if whole < len(content):
            # A line cut off by a crash was never answered.
            os.truncate(self._path, whole)
        found: list[AnswerEntry] = []
        for number, line in enumerate(content[:whole].splitlines(), start=1):
            try:
                found.append(msgspec.json.decode(line, type=AnswerEntry))
            except files.DAMAGED as error:
                raise LedgerTampered(f"{self._path} line {number} cannot be read: {error}") from error
        return found

    def _write(self, line: AnswerEntry) -> None:
        files.append(self._path, msgspec.json.encode(line) + b"\n")
