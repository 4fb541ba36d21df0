"""One judgement of a run's ledger and statement, for every verb that shows a run or builds on it.

A run directory holds the same facts several times: the ledger has every release, the statement has the price,
the checkpoint has the head of the ledger and the digest of the statement. A change of one of them and not of
the others is found here. A forger who may write all files can change all of them: keep the head of the ledger
elsewhere.
"""

import hashlib
import json
import math
import os
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from tacit.errors import LedgerError, LedgerTampered, RunUnusable, TacitError
from tacit.privacy.ledger.chain import LedgerState
from tacit.privacy.ledger.store import Ledger
from tacit.privacy.ledger.view import problems
from tacit.privacy.policy import Open, Privacy
from tacit.privacy.statement import state
from tacit.runs.directory import EXPERIMENT, LEDGER, STATE, STATEMENT, SUMMARY, Checkpoint, Directory
from tacit.runtime.tables import construct

# Prices that differ by less, as a share, are the same.
CLOSE = 1e-6
# What the ledger and the promise decide of a statement, beside the price.
DECIDED = ("unit", "relation", "delta", "rehearsal")


@dataclass(frozen=True)
class Judgement:
    """Problems of a run that were found by comparing its files.

    Args:
        ledger: Those of the ledger: it does not verify, or lacks rows that the run knew.
        statement: Those of the statement: it does not follow from the ledger.
    """

    ledger: tuple[str, ...] = ()
    statement: tuple[str, ...] = ()

    @property
    def problems(self) -> tuple[str, ...]:
        """All of them; none if the run is sound."""
        return (*self.ledger, *self.statement)


def verify_run(path: str | os.PathLike[str]) -> Judgement:
    """Compare ledger, checkpoint and statement of a run directory, or of all candidates of a tuning.

    A run that is under way has no statement yet; what remembers no run at all has no problems.
    """
    place = Path(path)
    directory = Directory(place)
    found = _judge_run(directory)
    books = place / LEDGER
    for candidate in sorted(place.iterdir()) if place.is_dir() and books.is_file() else ():
        if (candidate / LEDGER).is_symlink() and os.path.realpath(candidate / LEDGER) == os.path.realpath(
            books
        ):
            other = _judge_run(Directory(candidate))
            named = tuple(f"{candidate.name}: {problem}" for problem in other.statement)
            # The ledger is theirs together: what is wrong with it is said once.
            found = Judgement(found.ledger or other.ledger, (*found.statement, *named))
    return found


def require_sound(path: str | os.PathLike[str]) -> None:
    """Refuse a run whose files contradict each other.

    Raises:
        LedgerTampered: They do; the message says in which way.
    """
    found = verify_run(path).problems
    if found:
        raise LedgerTampered(f"{path} does not verify: {'; '.join(found)}")


def digest_statement(statement: Mapping[str, Any]) -> str:
    """Digest a statement as plain data, whatever the order and the layout of its JSON."""
    return hashlib.sha256(json.dumps(statement, sort_keys=True).encode()).hexdigest()


def run_of(ledger: Path) -> Path | None:
    """Find the run directory that a ledger belongs to, given the directory or the file; None without one."""
    folder = ledger if ledger.is_dir() else ledger.parent
    named = ledger.is_dir() or ledger.name == LEDGER
    return folder if named and (folder / EXPERIMENT).is_file() else None


def _judge_run(directory: Directory) -> Judgement:
    over, books = directory.read(SUMMARY) is not None, directory.file(LEDGER)
    try:
        point = directory.checkpoint()
    except RunUnusable as error:
        return Judgement(ledger=(str(error),))
    if books is None or (point is None and not over):
        return Judgement()
    if point is None:
        return Judgement(ledger=(f"{STATE} is gone, and with it what the run knew of its ledger",))
    wrong = problems(books, point.ledger_head)
    if wrong or not over:
        return Judgement(ledger=tuple(wrong))
    return Judgement(statement=tuple(_judge_statement(directory, books, point)))


def _judge_statement(directory: Directory, books: Path, point: Checkpoint) -> list[str]:
    """Compare the statement with the ledger as it was when the run was over, and with its digest."""
    said = directory.read_json(STATEMENT)
    if said is None:
        return [f"{STATEMENT} is gone"]
    try:
        promise = _read_promise(directory)
        with Ledger(books, mode="read") as ledger:
            rows = ledger.entries()
        last = next(row["number"] for row in rows if row["hash"] == point.ledger_head)
        expected = _state_charges(promise, [row for row in rows if row["number"] <= last])
        # A run of an older version did not write down the very last head.
        if _same(said, expected) or _same(said, _state_charges(promise, rows)):
            # A run of an older version kept no digest.
            changed = point.statement and digest_statement(said) != point.statement
            return [f"{STATEMENT} was changed after the run was over"] if changed else []
    except LedgerError as error:
        return [str(error)]
    except TacitError as error:
        return [f"{EXPERIMENT} does not say what was promised: {error}"]
    return [
        f"{STATEMENT} was changed: it says {_in_words(said)}, and by its ledger it is {_in_words(expected)}"
    ]


def _read_promise(directory: Directory) -> Privacy | Open:
    """Read what was promised from the experiment that the run keeps."""
    text = (directory.read(EXPERIMENT) or b"").decode(errors="replace")
    try:
        document = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError, ValueError) as error:
        raise RunUnusable(f"it is not TOML ({error})") from error
    table: object = document.get("privacy", {"kind": Open.kind})
    given = cast("dict[str, Any]", table).copy() if isinstance(table, dict) else {}
    if given.pop("kind", Privacy.kind) == Open.kind:
        return Open()
    return construct(Privacy, "privacy", given)


def _state_charges(promise: Privacy | Open, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """State the price of these rows of a ledger as plain data."""
    account = LedgerState()
    for row in rows:
        account.append_entry(row)
    prices = None if isinstance(promise, Open) else account.prices(promise.delta)
    return state(promise, account.releases(), prices=prices).as_dict()


def _same(said: Mapping[str, Any], expected: Mapping[str, Any]) -> bool:
    given: object = said.get("subjects")
    prices = cast("dict[str, object]", given) if isinstance(given, dict) else {}
    wanted: dict[str, float | None] = expected["subjects"]
    return (
        all(said.get(name) == expected[name] for name in DECIDED)
        and _close(said.get("epsilon"), expected["epsilon"])
        and prices.keys() == wanted.keys()
        and all(_close(prices[name], wanted[name]) for name in wanted)
    )


def _close(said: object, expected: float | None) -> bool:
    if said is None or expected is None or isinstance(said, bool) or not isinstance(said, int | float):
        return said is None and expected is None
    return math.isclose(said, expected, rel_tol=CLOSE, abs_tol=CLOSE)


def _in_words(statement: Mapping[str, Any]) -> str:
    """The price and the promise of a statement, as far as they can be read from it."""
    if statement.get("unit") is None:
        return "no promise"
    parts: Sequence[object] = [statement.get(name) for name in ("epsilon", "delta", "unit")]
    shown = [f"{part:.4g}" if isinstance(part, float) else str(part)[:40] for part in parts]
    rehearsal = ", a rehearsal" if statement.get("rehearsal") else ""
    return f"epsilon {shown[0]} at delta {shown[1]} for any one {shown[2]}{rehearsal}"
