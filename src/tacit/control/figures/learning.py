"""Returns from round to round: their courses, and how they are drawn in a report."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from tacit.control.figures.tables import format_return
from tacit.reports.plots.style import (
    PALETTE,
    Label,
    Picture,
    colour,
    label_lines,
    picture,
    shorten_label,
    tidy,
)

Array = NDArray[np.float64]

MOST = len(PALETTE)
HEIGHT, LETTERS = 2.6, 18
# More points than these cannot be seen in a line.
POINTS = 200


@dataclass(frozen=True, eq=False)
class ReturnCurve:
    """How something went from round to round.

    Args:
        rounds: Which rounds it is known of (rounds,).
        mean: Its mean in each.
        low: The lowest value in each.
        high: The highest.
    """

    rounds: Array
    mean: Array
    low: Array
    high: Array

    @property
    def last(self) -> float:
        """Where it has come to."""
        return float(self.mean[-1])

    def __str__(self) -> str:
        return f"from {format_return(float(self.mean[0]))} to {format_return(self.last)}"


def curve_by_round(rounds: Sequence[int], values: Array) -> ReturnCurve | None:
    """The course of some values (rounds, some), NaN where one is not known; None if none ever is.

    Of very many rounds, those next to one another are averaged.
    """
    some = ~np.isnan(values).all(axis=1)
    if not some.any():
        return None
    told = values[some]
    lines = [np.asarray(rounds, dtype=np.float64)[some]]
    lines += [np.asarray(part(told, axis=1), dtype=np.float64) for part in (np.nanmean, np.nanmin, np.nanmax)]
    if len(told) > POINTS:
        bins = np.array_split(np.arange(len(told)), POINTS)
        lines = [np.array([line[own].mean() for own in bins]) for line in lines]
    return ReturnCurve(*lines)


def extremes(courses: Mapping[str, ReturnCurve]) -> tuple[dict[str, ReturnCurve], str]:
    """Those that can be told apart in one figure, the lowest and the highest, and what to say of it."""
    if len(courses) <= MOST:
        return dict(courses), ""
    order = sorted(courses, key=lambda name: courses[name].last)
    half = MOST // 2
    kept = {name: courses[name] for name in (*order[:half], *order[-half:])}
    return kept, f"The {half} lowest and the {half} highest of {len(courses)}"


def draw_curves(courses: Mapping[str, ReturnCurve], title: str, note: str) -> Picture:
    """Draw returns, each line with its name and its last value beside it.

    Args:
        courses: What is drawn, by name; with a band where it is the mean of several.
        title: What is seen.
        note: Where it comes from.
    """
    figure = picture(HEIGHT, title, note)
    axes = figure.add_subplot()
    tidy(axes, "Round", "Return")
    labels: list[Label] = []
    for place, (name, one) in enumerate(courses.items()):
        shade, alone = colour(place), "o" if len(one.rounds) == 1 else ""
        if bool((one.high > one.low).any()):
            axes.fill_between(one.rounds, one.low, one.high, color=shade, alpha=0.15, linewidth=0)
        axes.plot(one.rounds, one.mean, color=shade, linewidth=1.4, marker=alone, markersize=4)
        labels.append(Label(one.last, f"{shorten_label(name, LETTERS)} {format_return(one.last)}", shade))
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True, steps=[1, 2, 5, 10]))
    axes.margins(x=0.01)
    label_lines({axes: labels})
    return figure
