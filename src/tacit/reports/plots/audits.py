"""What was claimed, and what attacks have proven: epsilon from above and from below.

It draws what `tacit.audits` found, as plain data.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes

from tacit.errors import require
from tacit.reports.plots.style import (
    BODY,
    GREY,
    ROW,
    SMALL,
    Picture,
    colour,
    ink,
    picture,
    save_figure,
    shorten_label,
    tidy,
)

# The bounds of a run, and what each takes for granted.
BOUNDS = {
    "fitted": "family fit: the law of the noise, canaries apart",
    "one_run": "one run: the law of the noise",
    "steinke": "Steinke: nothing",
}


def run_bounds(found: Mapping[str, Any], *, path: str | Path | None = None) -> Picture:
    """Draw the epsilon that a run claims, and what was proven of it at the least.

    Args:
        found: The audit of a run: `Bounds.as_dict`.
        path: A file to keep the figure in, `.png`, `.svg` or `.pdf`.
    """
    values = [float(found[name]) for name in BOUNDS]
    sure = f"All bounds together hold with {_percent(found['confidence'])} confidence."
    note = f"{found['canaries']:,} canaries in one training. {sure} Epsilon at delta {found['delta']:g}."
    figure = picture(0.75 + 1.6 * ROW * len(BOUNDS), _title(found), note)
    axes = figure.add_subplot()
    reach = 1.12 * max(found["claim"], *values)
    tidy(axes, "Epsilon", "")
    axes.set_xlim(0.0, reach)
    _rows(axes, list(BOUNDS.values()))
    for row, value in enumerate(values):
        tint = colour(1 if value > found["claim"] else 0)
        axes.barh(row, value, height=0.45, color=tint)
        _beside(axes, value, row, f"{value:.2f}", ink(tint))
    _draw_claim(axes, found["claim"], f"claimed: {found['claim']:.3g}")
    return save_figure(figure, path)


def mechanism_bounds(found: Sequence[Mapping[str, Any]], *, path: str | Path | None = None) -> Picture:
    """Draw what was proven of every mechanism, in parts of what it claims.

    Args:
        found: The audit of each: its `name`, and `Bounds.as_dict`.
        path: A file to keep the figure in, `.png`, `.svg` or `.pdf`.
    """
    require(bool(found), "mechanisms", "none", "one or more")
    broken = [each["name"] for each in found if not each["kept"]]
    title = f"{len(found)} mechanisms attacked, {len(broken) or 'none'} broken"
    note = (
        f"The best bound on each, all of them together with "
        f"{_percent(_joint_confidence(found))} confidence. Beyond the line a claim is false. "
        "Numbers: epsilon as proven, of what is claimed."
    )
    figure = picture(0.75 + 1.3 * ROW * len(found), title, note)
    axes = figure.add_subplot()
    tidy(axes, "Epsilon that was proven, in parts of the claimed one", "")
    shares = [max(each["fitted"], each["one_run"], each["steinke"]) / each["claim"] for each in found]
    axes.set_xlim(0.0, max(1.35, 1.3 * max(shares)))
    _rows(axes, [shorten_label(str(each["name"]), 40) for each in found])
    for row, (each, share) in enumerate(zip(found, shares, strict=True)):
        tint = colour(0 if each["kept"] else 1)
        axes.plot([0.0, share], [row, row], color=tint, linewidth=1.0, alpha=0.5)
        axes.plot(share, row, color=tint, marker="o", markersize=4)
        _beside(axes, max(share, 1.0), row, f"{share * each['claim']:.2f} of {each['claim']:.2f}", ink(GREY))
    _draw_claim(axes, 1.0, "claimed")
    return save_figure(figure, path)


def _joint_confidence(found: Sequence[Mapping[str, Any]]) -> float:
    """The confidence with which all bounds hold at once."""
    return 1 - sum(1 - each["confidence"] for each in found)


def _percent(share: float) -> str:
    return f"{100 * share:.4g} %"


def _title(found: Mapping[str, Any]) -> str:
    largest = max(found[name] for name in BOUNDS)
    if largest <= found["claim"]:
        return f"Claimed: epsilon {found['claim']:.3g}; proven: at least {largest:.3g}"
    return f"The claim is false: epsilon is at least {largest:.3g}, not {found['claim']:.3g}"


def _rows(axes: Axes, names: Sequence[str]) -> None:
    axes.set_ylim(len(names) - 0.4, -0.9)
    axes.grid(visible=False, axis="y")
    axes.set_yticks(range(len(names)), names, parse_math=False)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)


def _draw_claim(axes: Axes, value: float, words: str) -> None:
    axes.axvline(value, color=GREY, linewidth=1.0, linestyle="--")
    axes.annotate(
        words, (value, -0.9), textcoords="offset points", xytext=(-3, 2), ha="right", va="bottom",
        fontsize=SMALL, color=ink(GREY), annotation_clip=False,
    )  # fmt: skip


def _beside(axes: Axes, value: float, row: int, words: str, tint: str) -> None:
    axes.annotate(
        words, (value, row), textcoords="offset points", xytext=(5, 0), ha="left", va="center",
        fontsize=BODY if len(words) < 8 else SMALL, color=tint, annotation_clip=False,
    )  # fmt: skip
