"""History of an agent's training, as plain arrays in an `.npz`: episodes, and weights along the way.

The reference's figures are made from the same arrays. An archive is read without running any code in it, and
only after its size was checked.
"""

import os
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tacit.errors import InvalidFile, require, require_count, require_word
from tacit.learning.record import Round
from tacit.runtime import files
from tacit.runtime.arrays import Array
from tacit.runtime.contracts import fields_of

if TYPE_CHECKING:
    import pandas as pd

Whole = NDArray[np.int64]
Words = NDArray[np.str_]

# No history of ours needs more; looked at before anything is read.
MOST_BYTES = 2 * 2**30
KINDS = {
    "ep_rewards": np.float64,
    "ep_lengths": np.int64,
    "ep_labels": np.str_,
    "ep_steps": np.int64,
    "ep_rounds": np.int64,
    "weights": np.float32,
    "weight_labels": np.str_,
    "weight_steps": np.int64,
    "weight_rounds": np.int64,
}
HISTORY = "history.npz"


@dataclass(frozen=True, eq=False)
class History:
    """Episodes in the order in which they ended, and weights at some times.

    Args:
        ep_rewards: Return of each episode.
        ep_lengths: Number of its steps.
        ep_labels: Agent that played it.
        ep_steps: Number of steps of that agent at its end, over all its environments.
        ep_rounds: In which round it was.
        weights: Weights (times, parameters); none if they were not kept.
        weight_labels: Agent of each row of weights.
        weight_steps: After how many steps of theirs.
        weight_rounds: In which round.
    """

    ep_rewards: Array
    ep_lengths: Whole
    ep_labels: Words
    ep_steps: Whole
    ep_rounds: Whole
    weights: NDArray[np.float32]
    weight_labels: Words
    weight_steps: Whole
    weight_rounds: Whole

    def __post_init__(self) -> None:
        for name, held in fields_of(self, KINDS).items():
            given, kind = np.asarray(held), KINDS[name]
            # Any number can be cast to text, which is never intended.
            fits = given.dtype.kind == "U" if kind is np.str_ else np.can_cast(given.dtype, kind, "same_kind")
            fits = fits or given.size == 0
            require(fits, name, f"of {given.dtype}", "text" if kind is np.str_ else f"of {kind.__name__}")
            object.__setattr__(self, name, given.astype(kind))
        if self.weights.ndim == 1 and self.weights.size == 0:
            object.__setattr__(self, "weights", self.weights.reshape(0, 0))
        for name, held in fields_of(self, KINDS).items():
            count = len(self.ep_rewards if name[0] == "e" else self.weights)
            fits = held.ndim == (2 if name == "weights" else 1) and len(held) == count
            wanted = "(times, parameters)" if name == "weights" else f"({count},)"
            require(fits, name, f"shape {held.shape}", wanted)

    def __repr__(self) -> str:
        return f"<History of {len(self.ep_rewards)} episodes by {len(self.labels)} agents>"

    @property
    def labels(self) -> tuple[str, ...]:
        """Agents, in the order in which they began."""
        return tuple(dict.fromkeys(self.ep_labels.tolist()))

    @property
    def frame(self) -> "pd.DataFrame":
        """Tabulate the episodes, one per row: reward, length, label, step, round."""
        import pandas as pd

        columns = fields_of(self, [name for name in KINDS if name.startswith("ep_")])
        return pd.DataFrame(
            {name.removeprefix("ep_").removesuffix("s"): column for name, column in columns.items()}
        )

    def curve(self, label: str, window: int = 100) -> tuple[Whole, Array]:
        """Return the steps at which an agent's episodes ended, with moving averages of their returns.

        Args:
            label: The agent.
            window: Over how many episodes; fewer at first.
        """
        require_count("window", window)
        require_word("label", label, self.labels)
        own = np.flatnonzero(self.ep_labels == label)
        own = own[np.lexsort((self.ep_steps[own], self.ep_rounds[own]))]
        total = np.concatenate([[0.0], self.ep_rewards[own].cumsum()])
        ends = np.arange(1, len(own) + 1)
        starts = np.maximum(ends - window, 0)
        return self.ep_steps[own], (total[ends] - total[starts]) / (ends - starts)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write it as an `.npz` of plain arrays.

        Args:
            path: The file, `*.npz`.
        """
        place = _npz(path)
        try:
            np.savez_compressed(place, **fields_of(self))
        except OSError as error:
            raise InvalidFile(f"{place} cannot be written: {error.strerror}") from error
        return place

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "History":
        """Load a history.

        Raises:
            InvalidFile: It cannot be read, is damaged or too large, or is not a history.
        """
        place = _npz(path)
        return _read_npz(place, str(place))

    @classmethod
    def read(cls, content: bytes) -> "History":
        """Read a history from the content of its file; raises as `load` does."""
        return _read_npz(BytesIO(content), "history")


def _read_npz(source: Path | BytesIO, name: str) -> History:
    """Read the history in a file, after checking its size."""
    try:
        if isinstance(source, Path):
            files.require_regular(source)
        with zipfile.ZipFile(source) as archive:
            size = sum(entry.file_size for entry in archive.infolist())
        if size > MOST_BYTES:
            raise InvalidFile(f"{name} is too large: {size} bytes, and it must be at most {MOST_BYTES}")
        with np.load(source) as arrays:
            return History(**{kind: arrays[kind] for kind in KINDS})
    except OSError as error:
        raise InvalidFile(f"{name} cannot be read: {error.strerror or error}") from error
    except KeyError as error:
        raise InvalidFile(f"{name} is not a history: {error.args[0]}") from error
    except (ValueError, EOFError, zipfile.BadZipFile, NotImplementedError, RuntimeError) as error:
        raise InvalidFile(f"{name} is not a history, or is damaged: {error}") from error


def _npz(path: str | os.PathLike[str]) -> Path:
    require(Path(path).suffix == ".npz", "path", str(path), 'a history, "*.npz"')
    return Path(path)


def history_file(
    rounds: Sequence[Round], weights: "Mapping[int, Mapping[str, Array]]", steps: int
) -> dict[str, bytes]:
    """Return the history file by name; empty without metrics and weights.

    Args:
        rounds: Every round, with the sites' metrics.
        weights: Weights by round, and by whose they are.
        steps: Number of steps of a site in a round that it takes part in.
    """
    found = history(rounds, weights, steps)
    if len(found.ep_rewards) == 0 and len(found.weights) == 0:
        return {}
    stream = BytesIO()
    np.savez_compressed(stream, **fields_of(found))
    return {HISTORY: stream.getvalue()}


def history(rounds: Sequence[Round], weights: "Mapping[int, Mapping[str, Array]]", steps: int) -> History:
    """Build the history in the order of the rounds; steps count from each site's first one on."""
    taken: dict[str, int] = {}
    episodes: list[tuple[float, float, str, float, int]] = []
    kept: list[tuple[str, int, int]] = []
    rows: list[NDArray[np.float32]] = []
    for entry in rounds:
        for name, told in entry.diary.items():
            before = taken.get(name, 0)
            columns = zip(told["returns"], told["lengths"], told["steps"], strict=True)
            episodes += [(reward, length, name, before + at, entry.number) for reward, length, at in columns]
            taken[name] = before + steps
        for name, values in sorted(weights.get(entry.number, {}).items()):
            # The shared model was there before the round.
            kept.append((name, taken.get(name, (entry.number - 1) * steps), entry.number))
            rows.append(values.astype(np.float32, copy=False))
    rewards, lengths, labels, at, numbers = zip(*episodes, strict=True) if episodes else ((),) * 5
    whose, after, when = zip(*kept, strict=True) if kept else ((),) * 3
    return History(
        ep_rewards=np.array(rewards, dtype=np.float64),
        ep_lengths=np.array(lengths, dtype=np.int64),
        ep_labels=np.array(labels, dtype=np.str_),
        ep_steps=np.array(at, dtype=np.int64),
        ep_rounds=np.array(numbers, dtype=np.int64),
        weights=np.stack(rows) if rows else np.zeros((0, 0), dtype=np.float32),
        weight_labels=np.array(whose, dtype=np.str_),
        weight_steps=np.array(after, dtype=np.int64),
        weight_rounds=np.array(when, dtype=np.int64),
    )
