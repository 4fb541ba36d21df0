"""The figure of a run's results; no global style is touched, and no other figure is closed."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLUMNS = {
    "test_Cindex": "c_index",
    "train_Cindex": "train_c_index",
    "test_IBS": "ibs",
    "train_IBS": "train_ibs",
}


def plot_rounds(
    results: Mapping[str, Sequence[float]], output_path: str | Path | None, *, show: bool
) -> "Figure":
    """C-index and IBS over the rounds, for training and test records.

    Args:
        results: What the runner returned.
        output_path: A file to keep the figure in; folders that are not there are made.
        show: Whether to open a window, where there is a screen.
    """
    import pandas as pd

    from tacit.survival.figures import training

    columns = {COLUMNS[name]: list(values) for name, values in results.items() if name in COLUMNS}
    history = pd.DataFrame(columns)
    history.index = pd.RangeIndex(1, len(history) + 1, name="round")
    if output_path is not None:
        Path(output_path).parent.mkdir(parents=True, exist_ok=True)
    figure = training(history, provenance="Bare: scores of training and test records", path=output_path)
    if show:
        _open_window(figure)
    return figure


def _open_window(figure: "Figure") -> None:
    import matplotlib
    from matplotlib.backends.registry import BackendFilter, backend_registry

    if matplotlib.get_backend().lower() not in backend_registry.list_builtin(BackendFilter.INTERACTIVE):
        return
    from matplotlib import pyplot

    # Before 3.11 pyplot takes its own figures alone; the figure is returned all the same.
    with suppress(ValueError):
        pyplot.figure(figure)
        pyplot.show()
