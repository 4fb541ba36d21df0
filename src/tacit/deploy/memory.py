"""What a site has answered, on disk before the answer leaves: no question is answered in two ways.

A second answer about the same round, to another question, would cost what nobody has paid for. The same
question gets the same answer, at no new price.
"""

import os
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from tacit.errors import LedgerTampered, Refused


class Answered(msgspec.Struct, frozen=True):
    """One line: when, in which experiment, what about, and the question's digest."""

    at: str
    experiment: str
    about: str
    asked: str


class Memory:
    """A file of lines that are only ever added.

    Args:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: dict[tuple[str, str], str] = {}
        for line in self._lines():
            self._known[line.experiment, line.about] = line.asked

    def once(self, experiment: str, about: str, asked: str) -> None:
        """Remember the only question that is answered about something; the same may be asked again.

        Raises:
            Refused: Another question about it was answered before.
        """
        known = self._known.get((experiment, about))
        if known is None:
            self._write(Answered(datetime.now(UTC).isoformat(timespec="seconds"), experiment, about, asked))
            self._known[experiment, about] = asked
        elif known != asked:
            self.require_new(experiment, about)

    def require_new(self, experiment: str, about: str) -> None:
        """Refuse what was answered before, whatever is asked."""
        if (experiment, about) in self._known:
            raise Refused(
                f"{about} of this experiment was answered before, to another question: a second answer would "
                "cost what was not paid for"
            )

    def _lines(self) -> list[Answered]:
        try:
            content = self._path.read_bytes()
        except FileNotFoundError:
            return []
        whole = content.rfind(b"\n") + 1
        if whole < len(content):
            # What was cut off by a crash was never answered.
            os.truncate(self._path, whole)
        found: list[Answered] = []
        for number, line in enumerate(content[:whole].splitlines(), start=1):
            try:
                found.append(msgspec.json.decode(line, type=Answered))
            except msgspec.MsgspecError as error:
                raise LedgerTampered(f"{self._path} line {number} cannot be read: {error}") from error
        return found

    def _write(self, line: Answered) -> None:
        with self._path.open("ab") as stream:
            stream.write(msgspec.json.encode(line) + b"\n")
            stream.flush()
            os.fsync(stream.fileno())
