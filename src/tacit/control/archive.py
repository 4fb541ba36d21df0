"""The history of a run as one file of plain arrays: training episodes, and weights along the way."""

import io
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING

import numpy as np

from tacit.control.history import History
from tacit.learning.record import Round

if TYPE_CHECKING:
    from torch import Tensor

HISTORY = "history.npz"


def history_file(
    rounds: Sequence[Round], weights: "Mapping[int, Mapping[str, Tensor]]", steps: int
) -> dict[str, bytes]:
    """The file, by its name; none where nothing was told and no weights were kept.

    Args:
        rounds: Every round, with what sites told of it.
        weights: Weights by round, and by whose they are.
        steps: How many steps a site takes in a round that it takes part in.
    """
    found = history(rounds, weights, steps)
    if len(found.ep_rewards) == 0 and len(found.weights) == 0:
        return {}
    stream = io.BytesIO()
    np.savez_compressed(stream, **{entry.name: getattr(found, entry.name) for entry in fields(found)})
    return {HISTORY: stream.getvalue()}


def history(rounds: Sequence[Round], weights: "Mapping[int, Mapping[str, Tensor]]", steps: int) -> History:
    """What happened, in the order of the rounds; steps are counted for each site from its first one on."""
    taken: dict[str, int] = {}
    episodes: list[tuple[float, float, str, float, int]] = []
    kept: list[tuple[str, int, int]] = []
    rows: list[np.ndarray[tuple[int], np.dtype[np.float32]]] = []
    for entry in rounds:
        for name, told in entry.diary.items():
            before = taken.get(name, 0)
            columns = zip(told["returns"], told["lengths"], told["steps"], strict=True)
            episodes += [(reward, length, name, before + at, entry.number) for reward, length, at in columns]
            taken[name] = before + steps
        for name, values in sorted(weights.get(entry.number, {}).items()):
            # What is nobody's own was there before the round.
            kept.append((name, taken.get(name, (entry.number - 1) * steps), entry.number))
            rows.append(values.numpy())
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
