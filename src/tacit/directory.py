"""The files of a run.

Every file is replaced as a whole and synced, so a run killed at any instant is found either before or after a
round, never between. Nothing is pickled. Nothing but the secret is private, and that is deleted when the run
is over.
"""

import json
import os
import platform
import secrets
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import version
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import msgspec
import tomli_w

from tacit.errors import RunUnusable
from tacit.privacy.ledger import Ledger
from tacit.record import Round

if TYPE_CHECKING:
    from torch import Tensor

EXPERIMENT, ROUNDS, LEDGER, STATE = "experiment.toml", "rounds.jsonl", "ledger.db", "state.safetensors"
STATEMENT, ENVIRONMENT, SUMMARY, SECRET = "statement.json", "environment.json", "summary.json", "secret.key"
PACKAGES = ("tacit", "torch", "numpy", "scipy", "dp-accounting")


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """Where a run stands after a round.

    Args:
        finished: How many rounds are done.
        state: The state after them.
        memory: What the server's step remembers.
        best: The state to keep, so far.
        best_round: The round it is from.
        ledger_head: The last row of the ledger when this was written.
        data: What tells the data of this run from any other; keyed by the run's secret.
    """

    finished: int
    state: "Tensor"
    memory: "Tensor"
    best: "Tensor"
    best_round: int
    ledger_head: str
    data: str


class Directory:
    """The files of a run; without a path nothing is kept.

    Raises:
        RunUnusable: A file cannot be read or written; what was there before is still there.
    """

    def __init__(self, path: str | os.PathLike[str] | None) -> None:
        self.path = Path(path) if path is not None else None

    def file(self, name: str) -> Path | None:
        """Where a file is; None if nothing is kept."""
        return self.path / name if self.path is not None else None

    def read(self, name: str) -> bytes | None:
        """A file, if it is there."""
        place = self.file(name)
        if place is None or not place.exists():
            return None
        with self._explained("read", name):
            return place.read_bytes()

    def write(self, name: str, content: bytes | str, *, mode: int = 0o644) -> None:
        """Replace a file as a whole: afterwards it is on disk, or the old one still is."""
        place = self.file(name)
        if place is not None:
            with self._explained("written", name):
                _replace(place, content.encode() if isinstance(content, str) else content, mode)

    def read_json(self, name: str) -> dict[str, Any] | None:
        """A file of JSON, if it is there."""
        content = self.read(name)
        try:
            return None if content is None else msgspec.json.decode(content, type=dict[str, Any])
        except msgspec.MsgspecError as error:
            raise RunUnusable(f"run {self.path} cannot be read: {name} is damaged ({error})") from error

    def write_json(self, name: str, content: Mapping[str, Any]) -> None:
        """Replace a file by JSON."""
        self.write(name, json.dumps(content, indent=2, allow_nan=False) + "\n")

    def claim(self, experiment: Mapping[str, Any], *, resume: bool) -> None:
        """Make this the directory of an experiment, or go on with it.

        Raises:
            RunUnusable: It holds a run already, or that of another experiment.
        """
        text = tomli_w.dumps(experiment)
        held = self.read(EXPERIMENT)
        if held is not None and not resume:
            raise RunUnusable(
                f"run {self.path} is there already: resume it (--resume), or choose another place"
            )
        if held is not None and held.decode() != text:
            raise RunUnusable(
                f"run {self.path} cannot be resumed: it was begun with another experiment, which "
                f"{EXPERIMENT} there keeps{_first_difference(held.decode(), text)}"
            )
        if held is None and self.path is not None:
            with self._explained("made", "."):
                self.path.mkdir(parents=True, exist_ok=True)
            self.write_json(ENVIRONMENT, environment())
            self.write(EXPERIMENT, text)

    def secret(self) -> bytes:
        """The run's secret: kept for resumption, readable by its owner alone."""
        kept = self.read(SECRET)
        if kept is not None and len(kept) == 32:
            return kept
        fresh = secrets.token_bytes(32)
        self.write(SECRET, fresh, mode=0o600)
        return fresh

    def forget_secret(self) -> None:
        """Delete the secret once nothing is left to resume."""
        place = self.file(SECRET)
        if place is not None:
            with self._explained("written", SECRET):
                place.unlink(missing_ok=True)

    def write_checkpoint(self, point: Checkpoint) -> None:
        """Keep where the run stands."""
        if self.path is None:
            return
        from safetensors.torch import save

        tensors = {"state": point.state, "memory": point.memory, "best": point.best}
        notes = {
            "finished": str(point.finished),
            "best_round": str(point.best_round),
            "ledger_head": point.ledger_head,
            "data": point.data,
        }
        # Tensors that share memory are refused by the format.
        apart = {name: values.clone().contiguous() for name, values in tensors.items()}
        self.write(STATE, save(apart, metadata=notes))

    def checkpoint(self) -> Checkpoint | None:
        """Where the run stood when it was last kept."""
        place = self.file(STATE)
        if place is None or not place.exists():
            return None
        from safetensors import SafetensorError, safe_open

        try:
            with cast(Any, safe_open(str(place), framework="pt")) as file:
                notes = cast("dict[str, str]", file.metadata() or {})
                state, memory, best = (
                    cast("Tensor", file.get_tensor(name)) for name in ("state", "memory", "best")
                )
            finished, best_round = int(notes["finished"]), int(notes["best_round"])
            return Checkpoint(finished, state, memory, best, best_round, notes["ledger_head"], notes["data"])
        except (SafetensorError, KeyError, ValueError, OSError) as error:
            raise RunUnusable(f"run {self.path} cannot be read: {STATE} is damaged ({error})") from error

    def resumable(self, ledger: Ledger, data: str) -> Checkpoint | None:
        """Where to go on, if the run was begun.

        Raises:
            RunUnusable: The ledger is older than the checkpoint, or the data are other data.
        """
        point = self.checkpoint()
        if point is None:
            return None
        known = {Ledger().head, *(entry["hash"] for entry in ledger.entries())}
        if point.ledger_head not in known:
            raise RunUnusable(
                f"run {self.path} cannot be resumed: {LEDGER} lacks what was charged before round "
                f"{point.finished + 1}; put the newer ledger back"
            )
        if point.data != data:
            raise RunUnusable(f"run {self.path} cannot be resumed: the data have changed since it was begun")
        return point

    def rounds(self) -> list[Round]:
        """Every round that was written down; a line that was cut off by a crash does not count."""
        found: list[Round] = []
        for line in (self.read(ROUNDS) or b"").splitlines():
            try:
                found.append(msgspec.json.decode(line, type=Round))
            except msgspec.MsgspecError:
                break
        return found

    def write_rounds(self, rounds: list[Round]) -> None:
        """Replace the list of rounds."""
        self.write(ROUNDS, b"".join(msgspec.json.encode(entry) + b"\n" for entry in rounds))

    def write_round(self, entry: Round) -> None:
        """Add a round to the list, on disk."""
        place = self.file(ROUNDS)
        if place is not None:
            with self._explained("written", ROUNDS), place.open("ab") as stream:
                stream.write(msgspec.json.encode(entry) + b"\n")
                stream.flush()
                os.fsync(stream.fileno())

    @contextmanager
    def _explained(self, verb: str, name: str) -> Generator[None]:
        try:
            yield
        except OSError as error:
            raise RunUnusable(
                f"run {self.path} cannot be {verb}: {name}: {error.strerror or error}; what was written "
                "before is intact"
            ) from error


def environment() -> dict[str, Any]:
    """What the run ran on, for whoever wants to repeat it."""
    here = {"python": platform.python_version(), "platform": platform.platform(terse=True)}
    return here | {name: version(name) for name in PACKAGES}


def _replace(target: Path, content: bytes, mode: int) -> None:
    part = target.with_name(f".{target.name}.part")
    try:
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, target)
    except BaseException:
        with suppress(OSError):
            part.unlink()
        raise
    folder = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _first_difference(held: str, given: str) -> str:
    for old, new in zip_longest(held.splitlines(), given.splitlines(), fillvalue="nothing"):
        if old != new:
            return f" ({old} there, {new} now)"
    return ""
