"""Progress callbacks: called after every round and, if they have `stage`, between rounds.

Watching changes nothing about a run. Plain functions hear of rounds alone.
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
    """Callback that hears of stages before, between and after rounds."""

    def stage(self, words: str, share: float | None = None) -> None:
        """Report the current stage.

        Args:
            words: The stage, such as `opening the data`.
            share: Finished share, where that is known; then the stage is reported repeatedly.
        """
        ...


@dataclass(frozen=True)
class MappedCallback:
    """Callback that passes changed rounds on to others, and stages unchanged.

    Args:
        callbacks: Callbacks that receive the changed rounds.
        change: Function that changes a round.
    """

    callbacks: Sequence[Callback]
    change: Callable[[Round], Round]

    def __call__(self, entry: Round) -> None:
        """Pass the changed round on to all callbacks."""
        changed = self.change(entry)
        for callback in self.callbacks:
            callback(changed)

    def stage(self, words: str, share: float | None = None) -> None:
        """Something else is being done."""
        notify(self.callbacks, words, share)


def notify(callbacks: Iterable[Callback], words: str, share: float | None = None) -> None:
    """Report a stage to all callbacks that take stages."""
    for callback in callbacks:
        if isinstance(callback, StageCallback):
            callback.stage(words, share)


def silent(words: str, share: float | None) -> None:
    """Report nothing."""
