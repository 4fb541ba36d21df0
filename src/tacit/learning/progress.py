"""Whoever watches a run: called after every round and, if it wants to be, told what is done between them.

Watching changes nothing about a run. Plain functions are told about rounds alone.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from tacit.learning.record import Round

Callback = Callable[[Round], None]
# Told what is being done, and how much of it is done where that is known.
Tell = Callable[[str, float | None], None]


@runtime_checkable
class StageCallback(Protocol):
    """Somebody who wants to know what is done before, between and after rounds."""

    def stage(self, words: str, share: float | None = None) -> None:
        """Something is being done.

        Args:
            words: What, such as `opening the data`.
            share: How much of it is done, where that is known; then it is told again and again.
        """
        ...


@dataclass(frozen=True)
class MappedCallback:
    """Tells others about rounds, each changed on its way, and about stages as they are.

    Args:
        callbacks: Who is told.
        change: What becomes of a round.
    """

    callbacks: Sequence[Callback]
    change: Callable[[Round], Round]

    def __call__(self, entry: Round) -> None:
        """A round is over."""
        changed = self.change(entry)
        for callback in self.callbacks:
            callback(changed)

    def stage(self, words: str, share: float | None = None) -> None:
        """Something else is being done."""
        notify(self.callbacks, words, share)


def notify(callbacks: Iterable[Callback], words: str, share: float | None = None) -> None:
    """Tell whoever wants to know what is being done now."""
    for callback in callbacks:
        if isinstance(callback, StageCallback):
            callback.stage(words, share)


def silent(words: str, share: float | None) -> None:
    """Nobody is told."""
