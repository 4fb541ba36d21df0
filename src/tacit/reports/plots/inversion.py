"""One record, and what was read off the update that it went into: sent as it is, and under a promise.

It draws what `tacit.audits.inversion` found, as plain data; the record is a public one.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from tacit.errors import require
from tacit.reports.plots.style import (
    BODY,
    GREY,
    INK,
    ROW,
    Picture,
    colour,
    picture,
    save_figure,
    shorten_label,
    tidy,
)

Array = NDArray[np.float64]

# More columns than these are no longer read.
ROWS = 20
# The least that the axis reaches from its middle, in standard deviations; and how far beyond the record.
LEAST, BEYOND = 3.0, 1.3


def inversion(found: Mapping[str, Any], *, path: str | Path | None = None) -> Picture:
    """Draw one record column by column, and what was read off its update.

    Args:
        found: What `Inversion.as_dict` gives, from Python or from JSON.
        path: A file to keep the figure in, `.png`, `.svg` or `.pdf`.
    """
    require(found.get("kind") == "inversion", "kind", found.get("kind"), '"inversion"')
    columns, example = [str(name) for name in found["columns"]], found["example"]
    record, bare, kept = (_numbers(name, example[name], columns) for name in ("true", "open", "private"))
    names = [shorten_label(name) for name in columns[:ROWS]]
    reach = max(LEAST, BEYOND * float(np.abs(record).max()))
    figure = picture(0.75 + 1.2 * ROW * max(len(names), 3), _title(found), _note(found, kept, reach))
    axes = figure.add_subplot()
    _axis(axes, names, reach)
    rows, inside = np.arange(len(names)), np.clip(kept, -reach, reach)[:ROWS]
    axes.hlines(rows, record[:ROWS], inside, color=colour(0), linewidth=0.8, alpha=0.5)
    under = f"under epsilon {example['epsilon']:g}"
    ring, *_ = axes.plot(record[:ROWS], rows, color=GREY, marker="o", markersize=8, label="the record")
    ring.set(markerfacecolor="none", markeredgewidth=1.0)
    dots, *_ = axes.plot(bare[:ROWS], rows, color=colour(1), marker="o", markersize=4, label="sent as it is")
    diamonds, *_ = axes.plot(inside, rows, color=colour(0), marker="D", markersize=3.5, label=under)
    for marks in (ring, dots, diamonds):
        marks.set(linestyle="none", clip_on=False)
    _ = axes.legend(
        loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0.0, frameon=False, fontsize=BODY,
        handletextpad=0.3, labelcolor=INK,
    )  # fmt: skip
    return save_figure(figure, path)


def _numbers(name: str, given: object, columns: list[str]) -> Array:
    values = np.asarray(given, dtype=np.float64)
    fits = values.shape == (len(columns),) and bool(columns) and bool(np.isfinite(values).all())
    require(fits, f"example {name}", f"shape {values.shape}", f"{len(columns)} finite numbers, one or more")
    return values


def _title(found: Mapping[str, Any]) -> str:
    """What is seen: how many records an open update gives away, and a private one."""
    counts = {setting["epsilon"]: setting["exact"] for setting in found["settings"]}
    epsilon = found["example"]["epsilon"]
    of = f"{counts[None]} of {found['patients']} records read off exactly"
    return f"{of} without a promise, {counts[epsilon] or 'none'} under epsilon {epsilon:g}"


def _note(found: Mapping[str, Any], kept: Array, reach: float) -> str:
    many = len(found["columns"])
    sentences = {
        "Public records. One of the patients: the only one at its site, after one step of training.": True,
        "Dots: what its update tells if it is sent as it is. Diamonds: what it tells with noise.": True,
        "Diamonds at the edge are farther out.": bool((np.abs(kept[:ROWS]) > reach).any()),
        f"{ROWS} of {many} columns, the first.": many > ROWS,
    }
    return " ".join(words for words, wanted in sentences.items() if wanted)


def _axis(axes: Axes, names: list[str], reach: float) -> None:
    """A row for each column of the record, and an axis around its mean."""
    tidy(axes, "Standard deviations from the mean of the column", "")
    axes.set_xlim(-reach, reach)
    axes.xaxis.set_major_locator(MaxNLocator(7, integer=True))
    axes.axvline(0.0, color=GREY, linewidth=0.6)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.set_yticks(range(len(names)), names, parse_math=False)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
