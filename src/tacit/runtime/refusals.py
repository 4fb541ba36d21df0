"""Refusals about private records: the column and the rule for all readers, details for the owner alone.

A person who runs a command on private records may not be allowed to see them, and others read batch logs,
terminals and tickets. Details of a refusal (how many records, which, their values) are written to a file
beside the data that only its owner can read, and the message names that file.
"""

import errno
import hashlib
import inspect
import os
import traceback
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, Protocol, TypeVar, runtime_checkable

from tacit.errors import InvalidValue, TacitError
from tacit.runtime import files

P = ParamSpec("P")
Result = TypeVar("Result")

# The ending of the details' file, after the name of the data; and that name for data without a file.
ENDING, NAMELESS = ".refused.txt", "records"
# That of advice about records that can be used.
ADVICE = ".advice.txt"
# The largest number of listed rows.
LISTED = 1000
# The attribute that marks exceptions raised during work on private records.
MARK = "_tacit_private"


@dataclass(frozen=True)
class Withheld:
    """Destination of details about private records.

    Args:
        data: The file or folder of the records; None if they came as arrays.
        otherwise: The folder to write to if the data's is not writable; by default the user's state
            directory.
        ending: The ending of the file, after the name of the data.
    """

    data: Path | None = None
    otherwise: Path | None = None
    ending: str = ENDING

    def write(self, details: str) -> Path:
        """Write details where only the owner can read them, over those of an earlier refusal.

        Returns:
            The file: beside the data, or in the other folder where that is not possible.

        Raises:
            OSError: Neither place can be written to.
        """
        name = (NAMELESS if self.data is None else self.data.name or "data") + self.ending
        if self.data is not None:
            folder = self.data if self.data.is_dir() else self.data.parent
            with suppress(OSError):
                return _write_privately(folder.absolute() / name, details)
            # Files of one name in several folders are told apart by where they are.
            name = f"{hashlib.sha256(os.fsencode(self.data.absolute())).hexdigest()[:12]}-{name}"
        folder = self.otherwise or state_directory()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return _write_privately(folder / name, details)

    def say(self, details: str) -> str:
        """Write details, and say in words where they are; where they cannot be written, they are lost."""
        try:
            place = self.write(details)
        except OSError as error:
            return f"the message withholds private details, and they could not be written: {error.strerror}"
        return f"details are in {place}, which only its owner can read"


@contextmanager
def withhold_details(
    private: bool, place: Withheld | str | os.PathLike[str] | None = None, *, opening: bool = False
) -> Generator[None]:
    """Reduce refusals raised in this block to the column and the rule, if records are private.

    An exception that is no `TacitError` passes unchanged, for Python's debugger; it is marked, so that the
    command line does not print its message (`keep_traceback`).

    Args:
        private: True if the records have a privacy policy and are not public.
        place: The file or folder of the records, if there is one, or the destination of details.
        opening: True if records are only read here. A refusal without a rule is then assumed to reveal them.

    Guarantee:
        If `private`, a `TacitError` that leaves has a message without counts, values or rows, as far as its
        `rule` has none.
    """
    if not isinstance(place, Withheld):
        place = Withheld(None if place is None else Path(place))
    try:
        yield
    except TacitError as error:
        rule = error.rule
        if rule is None and opening and isinstance(error, InvalidValue):
            rule = "the records cannot be used"
        if not private or rule is None or (rule == str(error) and not error.rows):
            raise
        named = "" if place.data is None or place.data.name in rule else f"{place.data.name}: "
        told = f"{named}{rule}; {place.say(_details(error))}"
        # No cause: whatever it says would be in the traceback.
        raise type(error)(told, rule=told) from None
    except Exception as error:
        if private:
            error.__dict__.setdefault(MARK, place)
        raise


@runtime_checkable
class Owned(Protocol):
    """A federation, as far as refusals need it: where its data come from, and whether they are public."""

    origin: Mapping[str, Any] | None
    public: bool


def withholding(
    is_private: Callable[[Mapping[str, Any]], bool],
) -> Callable[[Callable[P, Result]], Callable[P, Result]]:
    """Decorate a function of a `federation` by `withhold_details`.

    Args:
        is_private: Returns True if a call with these arguments, by their names, has a privacy policy; the
            records of a federation that is `public` are never withheld.
    """

    def decorate(function: Callable[P, Result]) -> Callable[P, Result]:
        signature = inspect.signature(function)

        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> Result:
            given = signature.bind(*args, **kwargs).arguments
            federation = given["federation"]
            known = isinstance(federation, Owned)
            tables: Mapping[str, Any] = (federation.origin if known else None) or {}
            origin: Mapping[str, Any] = tables.get("data", {})
            private = is_private(given) and not (known and federation.public)
            with withhold_details(private, origin.get("path")):
                return function(*args, **kwargs)

        return call

    return decorate


def keep_traceback(error: Exception) -> str | None:
    """Write the traceback of a bug on private records to a file that only their owner can read.

    Returns:
        Where it is, in words; None if the bug had nothing to do with private records.
    """
    place = error.__dict__.get(MARK)
    if not isinstance(place, Withheld):
        return None
    return place.say("".join(traceback.format_exception(error)))


def state_directory() -> Path:
    """Return the folder of what Tacit keeps about this user's data (XDG base directory specification)."""
    given = os.environ.get("XDG_STATE_HOME", "")
    base = given if os.path.isabs(given) else os.path.expanduser("~/.local/state")
    if not os.path.isabs(base):
        raise FileNotFoundError(errno.ENOENT, "this user has no home directory")
    return Path(base) / "tacit"


def _details(error: TacitError) -> str:
    rows = ", ".join(str(row) for row in error.rows[:LISTED])
    more = f" and {len(error.rows) - LISTED:,} more" if len(error.rows) > LISTED else ""
    # Rows are counted as they are in the file, or at the site that is named.
    listed = f"\nRecords, the first being 1: {rows}{more}" if rows else ""
    return f"{error}{listed}\n"


def _write_privately(target: Path, content: str) -> Path:
    """Replace a file by one that its owner alone may read; no link is followed."""
    files.replace(target, content.encode("utf-8", errors="backslashreplace"), 0o600)
    return target
