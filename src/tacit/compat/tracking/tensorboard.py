"""A run in TensorBoard: scores, epsilon and sites round by round, and at its end the promise in words."""

import os
import time
from types import TracebackType
from typing import TYPE_CHECKING, Self

from tacit.compat.tracking.metrics import numbers, promise, results
from tacit.errors import InvalidValue
from tacit.learning.record import Round

if TYPE_CHECKING:
    from tacit.runs.run import Run


class TensorBoard:
    """A callback for `tacit.fit(callbacks=[...])` that writes event files.

    Use it as a context, or call `finish` once the run is over.

    Args:
        folder: Where to; `tensorboard --logdir FOLDER` shows it.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ModuleNotFoundError as error:
            raise InvalidValue(
                f"TensorBoard needs {error.name}, which is not installed: pip install 'tacit[tensorboard]'"
            ) from error
        self._writer, self._began = SummaryWriter(os.fspath(folder)), time.time()

    def __call__(self, entry: Round) -> None:
        """Write down a round."""
        # Where it is secret who was drawn, the time that a round took would tell how many.
        now = self._began if entry.seconds is None else time.time()
        for name, value in numbers(entry).items():
            self._writer.add_scalar(name, value, entry.number, walltime=now)
        if entry.skipped is not None:
            self._writer.add_text("round/why skipped", _plain(entry.skipped), entry.number, walltime=now)
        # Whoever watches wants to see it now.
        self._writer.flush()

    def finish(self, run: "Run") -> None:
        """Write down what came of it, and close."""
        for name, value in results(run).items():
            self._writer.add_scalar(name, value, run.record.chosen)
        self._writer.add_text("promise", _plain("\n".join(run.privacy.sentences())))
        told = "\n".join(f"{name}: {value}" for name, value in promise(run).items())
        self._writer.add_text("promise in short", _plain(told))
        self._writer.add_text("summary", _plain(run.summary()))
        self.close()

    def close(self) -> None:
        """Write what is left; afterwards nothing more is written."""
        self._writer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _plain(words: str) -> str:
    """Words as a block of code: TensorBoard takes text for Markdown."""
    return "\n".join(f"    {line}" for line in words.splitlines())
