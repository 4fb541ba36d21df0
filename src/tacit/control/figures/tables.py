"""What figures of worlds and regimes have in common: columns of tables, their order, panels and words."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes

from tacit.errors import InvalidValue, require
from tacit.reports.plots.style import BODY, GREY, INK, PALETTE, SMALL, Picture, tidy

if TYPE_CHECKING:
    import pandas as pd

# From which return on a lander has solved its world (Gymnasium).
TARGET = 200.0
# What a world that nobody trains in is called, if it has no name of its own.
UNSEEN = ("unseen",)
# Of more worlds a title only says how many.
NAMED = 4


@dataclass(frozen=True, eq=False)
class Panel:
    """One of several axes, and whether none is below it or to its left."""

    axes: Axes
    bottom: bool
    left: bool

    def frame(self, words: str, along: str, up: str) -> None:
        """Name it above, and its axes where no other panel does."""
        tidy(self.axes, along if self.bottom else "", up if self.left else "")
        self.axes.tick_params(labelleft=self.left, labelbottom=self.bottom)
        self.axes.set_title(words, loc="left", fontsize=BODY, color=INK, pad=4, parse_math=False)


def panels(figure: Picture, count: int, across: int) -> list[Panel]:
    """So many panels with shared axes, so many of them side by side."""
    down = -(-count // across)
    grid = figure.subplots(down, across, sharex=True, sharey=True, squeeze=False)
    found: list[Panel] = []
    for place, axes in enumerate(grid.flat):
        axes.set_visible(place < count)
        last = place // across == down - 1
        found.append(Panel(axes, bottom=place + across >= count, left=place % across == 0))
        # Above an empty place, words hang into it: rows need not move apart for them.
        axes.xaxis.set_in_layout(last or not found[-1].bottom)
    return found[:count]


def read(
    table: "pd.DataFrame | Mapping[str, object]", needed: Sequence[str], numbers: Sequence[str]
) -> "pd.DataFrame":
    """The table as a data frame, once it is found to have what is needed.

    Args:
        table: Of any kind that pandas reads.
        needed: The columns that it must have.
        numbers: Those of them that must be finite.
    """
    import pandas as pd

    rows = pd.DataFrame(table)
    missing = [name for name in needed if name not in rows]
    if missing:
        raise InvalidValue(f"table has no column {', '.join(missing)}: it must have {', '.join(needed)}")
    require(len(rows) > 0, "table", "no row", "at least one row")
    for name in numbers:
        values = rows[name].to_numpy(dtype=np.float64)
        wrong = values[~np.isfinite(values)]
        require(len(wrong) == 0, name, wrong[:3].tolist(), "finite in every row")
    return rows


def in_order(names: Iterable[object], last: Collection[str] = ()) -> list[str]:
    """Every name once, the first first, except for those that come last."""
    found = list(dict.fromkeys(str(name) for name in names))
    return [name for name in found if name not in last] + [name for name in found if name in last]


def require_few(field: str, names: list[str]) -> list[str]:
    """The names, unless they are more than there are colours."""
    most = len(PALETTE)
    require(len(names) <= most, field, f"{len(names)} of them", f"at most {most}, to be told apart")
    return names


def world_title(world: str, unseen: Collection[str]) -> str:
    """The name of a world, and whether nobody has trained in it."""
    return f"{world} (unseen)" if world in unseen and world not in UNSEEN else world


def footnote(*sentences: str) -> str:
    """Sentences in one line, those without words left out."""
    return " ".join(f"{words.rstrip('.')}." for words in sentences if words)


def short_steps(steps: float, place: int | None = None) -> str:
    """A number of steps as a tick shows it: 400, 250k, 1.5M."""
    for size, unit in ((1e6, "M"), (1e3, "k")):
        if abs(steps) >= size:
            return f"{steps / size:.3g}{unit}"
    return f"{steps:.3g}"


def format_return(value: float) -> str:
    """A return without digits that nobody can tell from chance."""
    # Adding 0 takes the sign from what would be read as minus nothing.
    return f"{round(value) + 0:d}" if abs(value) >= 10 else f"{round(value, 1) + 0:g}"


def leaders(best: Mapping[str, tuple[str, float]]) -> str:
    """Which regime is the best in which worlds, or in how many, in words.

    Args:
        best: The best regime and its return, by world.
    """
    if len(best) > NAMED:
        (first, most), *others = Counter(regime for regime, _ in best.values()).most_common()
        told = [f"{first} in {most} of {len(best)} worlds", *(f"{name} in {count}" for name, count in others)]
        return "; ".join(told)
    told = {
        regime: ", ".join(
            f"{world} ({format_return(value)})" for world, (name, value) in best.items() if name == regime
        )
        for regime in dict.fromkeys(name for name, _ in best.values())
    }
    return "; ".join(f"{regime} in {worlds}" for regime, worlds in told.items())


def draw_target(axes: Axes, target: float, *, told: bool) -> None:
    """Draw a thin line where a world counts as solved, and say so if asked to."""
    axes.axhline(target, color=GREY, linewidth=0.6, zorder=1)
    if told:
        axes.annotate(
            f"solved: {format_return(target)}", (0, target), xycoords=axes.get_yaxis_transform(),
            xytext=(3, -2),
            textcoords="offset points", fontsize=SMALL, color=GREY, va="top",
        )  # fmt: skip
