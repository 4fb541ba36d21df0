"""Answers of the command in this process, and content that they must never have."""

import os
import re
import resource
import signal
import traceback
import unicodedata
from collections.abc import Generator
from contextlib import chdir, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from typer.testing import CliRunner

from tacit.cli.app import app

# Answers take a second or two: what takes this long waits for something that never comes.
LONG = 300.0
MEMORY = 3 * 2**30
# They turn what follows around, on screens that know of it.
TURNING = set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
LONGEST = 4000


class Hanging(BaseException):
    """It does not end."""


@dataclass(frozen=True)
class Answer:
    """Results of a case.

    Args:
        words: What was asked.
        code: The exit code; None if it did not end.
        said: On both streams.
        refusal: On the standard error.
    """

    words: tuple[str, ...]
    code: int | None
    said: str
    refusal: str = ""

    def faults(self) -> list[str]:
        """Whatever is not as promised."""
        found = []
        if self.code is None:
            found.append("it does not end")
        elif self.code not in (0, 2, 3, 4):
            found.append(f"exit {self.code}: {self.said[-300:]!r}")
        if "Traceback" in self.said:
            found.append("a traceback")
        control = {sign for sign in self.said if unicodedata.category(sign) == "Cc"} - {"\n"}
        if control | (TURNING & set(self.said)):
            found.append(f"control characters {sorted(control | (TURNING & set(self.said)))!r}")
        if self.code and len(self.refusal) > LONGEST:
            found.append(f"a refusal of {len(self.refusal)} characters: {self.refusal[:200]!r}")
        return found


@contextmanager
def bounded() -> Generator[None]:
    """End what takes too long, and refuse it more memory than a machine can spare."""

    def ring(number: int, frame: FrameType | None) -> None:
        raise Hanging

    used = int(re.findall(r"VmData:\s+(\d+)", Path("/proc/self/status").read_text())[0]) * 1024
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    before = signal.signal(signal.SIGALRM, ring)
    resource.setrlimit(resource.RLIMIT_DATA, (used + MEMORY, hard))
    signal.setitimer(signal.ITIMER_REAL, LONG)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def tacit(folder: Path, *words: str | os.PathLike[str]) -> Answer:
    """Run the command in a folder."""
    asked = tuple(os.fspath(word) for word in words)
    try:
        with chdir(folder), bounded():
            done = CliRunner().invoke(app, list(asked))
    except Hanging:
        return Answer(asked, None, "")
    said = done.stdout + done.stderr
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        said += "".join(traceback.format_exception(done.exception))
    return Answer(asked, done.exit_code, said, done.stderr)
