"""The files of a run.

Every file is replaced as a whole and synced, so a run killed at any instant is found either before or after a
round, never between. Nothing is pickled. Nothing but the secret is private, and that is deleted when the run
is over.
"""

import fcntl
import hashlib
import json
import os
import platform
import secrets
import tomllib
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from itertools import count, takewhile, zip_longest
from pathlib import Path
from typing import Any, cast

import msgspec
import numpy as np
import tomli_w

from tacit.errors import RunUnusable, TacitError
from tacit.learning.record import Round
from tacit.privacy.ledger.store import Ledger
from tacit.reports.dpia_form import TABLE as DPIA
from tacit.runtime import files
from tacit.runtime.arrays import Array

EXPERIMENT, ROUNDS, LEDGER, STATE = "experiment.toml", "rounds.jsonl", "ledger.db", "state.safetensors"
OPENED, WEIGHTS, REPORT = "opened.json", "weights", "report.html"
# Noisy counts of held-out records, from which the model is scored.
EVALUATED = "evaluation.json"
STATEMENT, ENVIRONMENT, SUMMARY, SECRET = "statement.json", "environment.json", "summary.json", "secret.key"
PROVENANCE, AUDIT, PLAN = "provenance.json", "audit.json", "plan.txt"
MATHEMATICS = ("OPENBLAS", "MKL", "OMP", "BLIS", "NPY", "ATEN", "NUMBA")
PACKAGES = ("tacit", "numpy", "scipy", "numba", "llvmlite", "dp-accounting")
# Extras that compute a user's own modules, environments and agents, where they are installed.
EXTRAS = ("torch", "gymnasium", "box2d")
Document = Mapping[str, Any]
Files = Mapping[str, Document]


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """State of a run after a round, as written to `state.safetensors`.

    Args:
        finished: The number of finished rounds.
        state: The state after them.
        memory: The memory of the server step (momentum, second moments).
        best: The best state so far.
        best_round: The round of the best state.
        ledger_head: The hash of the ledger's last row when this was written.
        data: Fingerprint of the data, keyed by the run's secret.
        closed: True once the answers to the final query are in `best`.
        kept: Other tensors that later rounds need, by name.
        statement: The digest of the statement of a finished run.
    """

    finished: int
    state: Array
    memory: Array
    best: Array
    best_round: int
    ledger_head: str
    data: str
    closed: bool = False
    kept: Mapping[str, Array] = field(default_factory=dict[str, Array])
    statement: str = ""


class Directory:
    """The files of a run; without a path nothing is kept.

    Raises:
        RunUnusable: A file cannot be read or written; what was there before is still there.
    """

    def __init__(self, path: str | os.PathLike[str] | None) -> None:
        self.path = Path(path) if path is not None else None

    def file(self, name: str) -> Path | None:
        """Return the path of a file; None for a run without a directory."""
        return self.path / name if self.path is not None else None

    def read(self, name: str) -> bytes | None:
        """Return the content of a file, if it exists."""
        place = self.file(name)
        if place is None:
            return None
        with self._explain("read", name), suppress(FileNotFoundError):
            return files.read_bytes(place)
        return None

    def write(self, name: str, content: bytes | str, *, mode: int = 0o644) -> None:
        """Replace a file atomically: afterwards the new one is on disk, or the old one still is."""
        place = self.file(name)
        if place is not None:
            with self._explain("written", name):
                files.replace(place, content, mode)

    def text(self, name: str) -> str:
        """Return the text of a file; empty if it is not there."""
        try:
            return (self.read(name) or b"").decode()
        except UnicodeDecodeError as error:
            raise RunUnusable(f"run {self.path} cannot be read: {name} is damaged ({error})") from error

    def read_json(self, name: str) -> dict[str, Any] | None:
        """Read a file of JSON, if it exists."""
        content = self.read(name)
        try:
            return None if content is None else msgspec.json.decode(content, type=dict[str, Any])
        except files.DAMAGED as error:
            raise RunUnusable(f"run {self.path} cannot be read: {name} is damaged ({error})") from error

    def write_json(self, name: str, content: Mapping[str, Any]) -> None:
        """Replace a file by JSON."""
        self.write(name, json.dumps(content, indent=2, allow_nan=False) + "\n")

    @contextmanager
    def claim(self, experiment: Document, *, resume: bool, beside: Files | None = None) -> Generator[None]:
        """Lock the directory for one process, and write the experiment or resume it.

        Args:
            experiment: Its tables, everything decided.
            resume: True to continue the run that is here.
            beside: JSON files by name, written to a new directory before its experiment, so that they exist
                whenever the experiment does.

        Raises:
            RunUnusable: It holds a run already, or that of another experiment, or another process uses it.
        """
        if self.path is None:
            yield
            return
        with self._explain("made", "."):
            self.path.mkdir(parents=True, exist_ok=True)
            files.sync(self.path.parent)
            # A lock on the folder itself ends with its process.
            handle = os.open(self.path, os.O_RDONLY)
        try:
            self._lock(handle)
            self._claim(tomli_w.dumps(experiment), beside or {}, resume=resume)
            yield
        finally:
            os.close(handle)

    def _lock(self, handle: int) -> None:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RunUnusable(
                f"run {self.path} is running in another process: wait for it, or stop it"
            ) from None

    def _claim(self, text: str, beside: Files, *, resume: bool) -> None:
        held = self.read(EXPERIMENT)
        if held is None:
            for name in (STATE, SUMMARY, ROUNDS):
                if self.read(name) is not None:
                    raise RunUnusable(f"run {self.path} cannot be used: it has a {name}, but no {EXPERIMENT}")
            for name, content in {ENVIRONMENT: environment(), **beside}.items():
                self.write_json(name, content)
            self.write(EXPERIMENT, text)
            return
        if not resume:
            raise RunUnusable(
                f"run {self.path} exists already: resume it (--resume), or choose another directory"
            )
        begun = held.decode(errors="replace")
        if not _is_same_document(begun, text):
            raise RunUnusable(
                f"run {self.path} cannot be resumed: it belongs to another experiment, in its "
                f"{EXPERIMENT}{_first_difference(begun, text)}"
            )

    def secret(self) -> bytes:
        """The run's secret: kept for resumption, readable by its owner alone."""
        kept = self.read(SECRET)
        if kept is not None and len(kept) == 32:
            return kept
        if self.read(STATE) is not None:
            raise RunUnusable(
                f"run {self.path} cannot be resumed: its {SECRET} is lost, and its noise cannot be repeated"
            )
        fresh = secrets.token_bytes(32)
        self.write(SECRET, fresh, mode=0o600)
        return fresh

    def plan(self) -> str | None:
        """The plan that this run is a part of, where something larger was planned."""
        kept = self.read(PLAN)
        return None if kept is None else kept.decode(errors="replace").strip()

    def forget_secret(self) -> None:
        """Delete the secret once nothing is left to resume."""
        place = self.file(SECRET)
        if place is not None:
            with self._explain("written", SECRET):
                place.unlink(missing_ok=True)
                files.sync(place.parent)

    def write_checkpoint(self, point: Checkpoint) -> None:
        """Write a checkpoint."""
        if self.path is None:
            return
        from safetensors.numpy import save

        tensors = {"state": point.state, "memory": point.memory, "best": point.best}
        tensors |= {f"kept.{name}": values for name, values in point.kept.items()}
        notes = {
            "finished": str(point.finished),
            "best_round": str(point.best_round),
            "ledger_head": point.ledger_head,
            "data": point.data,
            "closed": str(point.closed),
            **({"statement": point.statement} if point.statement else {}),
        }
        own = {name: np.ascontiguousarray(values) for name, values in tensors.items()}
        self.write(STATE, save(own, metadata={**notes, "sha256": _fingerprint(own, notes)}))

    def checkpoint(self) -> Checkpoint | None:
        """Read the last checkpoint; None if there is none."""
        place = self.file(STATE)
        if place is None or self.read(STATE) is None:
            return None
        from safetensors import SafetensorError, safe_open

        try:
            # The package has no types.
            opened: Any = safe_open(str(place), framework="np")
            with opened as file:
                notes = cast("dict[str, str]", file.metadata() or {})
                tensors = {name: cast(Array, file.get_tensor(name)) for name in file.keys()}  # noqa: SIM118
            if any(values.dtype != np.float64 for values in tensors.values()):
                raise ValueError("its numbers are not doubles")
            if notes.pop("sha256") != _fingerprint(tensors, notes):
                raise ValueError("its fingerprint does not match")
            state, memory, best = (tensors.pop(name) for name in ("state", "memory", "best"))
            kept = {name.removeprefix("kept."): values for name, values in tensors.items()}
            finished, best_round = int(notes["finished"]), int(notes["best_round"])
            return Checkpoint(
                finished, state, memory, best, best_round, notes["ledger_head"], notes["data"],
                closed=notes["closed"] == "True", kept=kept, statement=notes.get("statement", ""),
            )  # fmt: skip
        except (SafetensorError, AttributeError, KeyError, TypeError, ValueError, OSError) as error:
            # numpy has no numbers of some types that the format knows.
            raise RunUnusable(f"run {self.path} cannot be read: {STATE} is damaged ({error})") from error

    def resumable(self, ledger: Ledger, data: str) -> Checkpoint | None:
        """Return the checkpoint to resume from; None for a new run.

        Raises:
            RunUnusable: The ledger is older than the checkpoint, or the data are other data.
        """
        point = self.checkpoint()
        if point is None:
            return None
        if point.ledger_head not in {entry["hash"] for entry in ledger.entries()}:
            raise RunUnusable(
                f"run {self.path} cannot be resumed: {LEDGER} lacks what was charged before round "
                f"{point.finished + 1}; restore the newer ledger"
            )
        if point.data != data:
            raise RunUnusable(f"run {self.path} cannot be resumed: the data have changed since it started")
        return point

    def rounds(self) -> list[Round]:
        """Read all written rounds; a line that was cut off by a crash does not count."""
        found: list[Round] = []
        for line in (self.read(ROUNDS) or b"").splitlines():
            try:
                found.append(msgspec.json.decode(line, type=Round))
            except files.DAMAGED:
                break
        return found

    def finished_rounds(self, point: Checkpoint) -> list[Round]:
        """Return the rounds up to a checkpoint; drop later ones from the file."""
        found = self.rounds()[: point.finished]
        if len(found) < point.finished and self.path is not None:
            raise RunUnusable(f"run {self.path} cannot be read: {ROUNDS} lacks round {len(found) + 1}")
        self.write_rounds(found)
        return found

    def write_rounds(self, rounds: list[Round]) -> None:
        """Replace the list of rounds."""
        self.write(ROUNDS, b"".join(msgspec.json.encode(entry) + b"\n" for entry in rounds))

    def write_round(self, entry: Round) -> None:
        """Add a round to the list, on disk."""
        place = self.file(ROUNDS)
        if place is not None:
            with self._explain("written", ROUNDS):
                files.append(place, msgspec.json.encode(entry) + b"\n")

    def write_weights(self, number: int, weights: "Mapping[str, Array]") -> None:
        """Store rounded weights of sites and server after a round, for figures and not for resuming."""
        if self.path is None:
            return
        from safetensors.numpy import save

        with self._explain("made", WEIGHTS):
            (self.path / WEIGHTS).mkdir(exist_ok=True)
        small = {name: np.ascontiguousarray(values, dtype=np.float32) for name, values in weights.items()}
        name = f"{WEIGHTS}/{number:06d}.safetensors"
        self.write(name, save(small))
        # The time between two rounds could reveal a secret participation: all files get the run's time.
        with self._explain("written", name), suppress(FileNotFoundError):
            began = (self.path / EXPERIMENT).stat().st_mtime_ns
            os.utime(self.path / name, ns=(began, began))

    def weights(self) -> "dict[int, dict[str, Array]]":
        """Read the weight snapshots, by round and by the name of their site or model."""
        if self.path is None:
            return {}
        from safetensors import SafetensorError
        from safetensors.numpy import load

        kept = sorted((self.path / WEIGHTS).glob("*.safetensors"))
        try:
            return {int(file.stem): load(files.read_bytes(file)) for file in kept}
        except (SafetensorError, KeyError, OSError, ValueError) as error:
            raise RunUnusable(f"run {self.path} cannot be read: {WEIGHTS} is damaged ({error})") from error

    @contextmanager
    def _explain(self, verb: str, name: str) -> Generator[None]:
        try:
            yield
        except (OSError, ValueError) as error:
            if isinstance(error, TacitError):
                raise
            why = (error.strerror if isinstance(error, OSError) else None) or error
            raise RunUnusable(
                f"run {self.path} cannot be {verb}: {name}: {why}; what was written before is intact"
            ) from error


def place_for(stem: Path, *, resume: bool) -> Path:
    """Return the directory for a run name, numbered if the name is taken; to resume, the last that exists."""
    places = (stem if number == 1 else stem.with_name(f"{stem.name}-{number}") for number in count(1))
    taken = list(takewhile(lambda place: place.exists(), places))
    if resume:
        return taken[-1] if taken else stem
    return stem if not taken else stem.with_name(f"{stem.name}-{len(taken) + 1}")


def environment() -> dict[str, Any]:
    """Versions of Python, the platform and the packages that compute a run, to repeat it on the same ones."""
    here = {"python": platform.python_version(), "platform": platform.platform(terse=True)}
    found = {name: version(name) for name in PACKAGES}
    for name in EXTRAS:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return here | found


@cache
def machine() -> str:
    """Describe the numerical environment (libraries, processor), which decides the last bits of a sum."""
    told = {name: value for name, value in os.environ.items() if name.partition("_")[0] in MATHEMATICS}
    model = ""
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next((line for line in lines if line.startswith("model name")), "")
    # The scheduler of Linux alone tells.
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return repr((environment(), platform.machine(), model, os.cpu_count(), cores, sorted(told.items())))


def _fingerprint(tensors: "Mapping[str, Array]", notes: Mapping[str, str]) -> str:
    """Return the SHA-256 of a checkpoint's tensors and notes, which detects a damaged file."""
    found = hashlib.sha256(repr(sorted(notes.items())).encode())
    for name in sorted(tensors):
        found.update(repr((name, tuple(tensors[name].shape))).encode() + tensors[name].tobytes())
    return found.hexdigest()


def _is_same_document(held: str, given: str) -> bool:
    """Compare two TOML documents by their content.

    The order of tables, 1 against 1.0, and answers for the data-protection page make no difference.
    """
    if held == given:
        return True
    try:
        one, other = (
            {name: part for name, part in tomllib.loads(text).items() if name != DPIA}
            for text in (held, given)
        )
    except tomllib.TOMLDecodeError:
        return False
    return one == other


def _first_difference(held: str, given: str) -> str:
    lines = ([line for line in text.splitlines() if line.strip()] for text in (held, given))
    for old, new in zip_longest(*lines, fillvalue="nothing"):
        if old != new:
            return f" ({old} before, {new} now)"
    return ""
