"""Who of 100 people is named as a member, and the ROC curves of the attacks beside what is proven.

It draws what `tacit.audits` found, as plain data. That is as private as the records: for public ones, and for
whoever may see them.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.path import Path as Outline
from matplotlib.ticker import FuncFormatter, NullLocator
from matplotlib.transforms import Affine2D

from tacit.errors import require
from tacit.reports.plots.style import (
    BODY,
    GREY,
    INK,
    PALE,
    RULE,
    SMALL,
    Picture,
    colour,
    ink,
    picture,
    save_figure,
    tidy,
)

# The lowest share of false alarms that is drawn.
LOWEST = 1e-3
# People stand in rows of so many.
ABREAST = 20
HUNDRED = 100
ATTACKS = {"lira": ("with models to compare", "-"), "loss": ("by the loss alone", (0, (3, 2)))}
# Red for what is in the open, blue for what is kept.
COLOURS = {"open": 1, "private": 0}
# Words in the region that no attack can reach need room: it must begin below this.
ROOM = 0.2


def membership(found: Mapping[str, Any], *, path: str | Path | None = None) -> Picture:
    """Draw how many of 100 members attacks name in each setting, and their ROC curves on logarithmic axes.

    Args:
        found: What `Membership.as_dict` gives, from Python or from JSON.
        path: A file to keep the figure in, `.png`, `.svg` or `.pdf`.
    """
    require(found.get("kind") == "membership", "kind", found.get("kind"), '"membership"')
    settings: Sequence[Mapping[str, Any]] = found["settings"]
    figure = picture(3.1, _title(settings), _note(found))
    blocks, curves = figure.subplots(1, 2, width_ratios=(4, 5))
    _people(blocks, settings)
    _axes(curves)
    for place, each in enumerate(settings):
        _ceiling(curves, each)
        for name, (words, dash) in ATTACKS.items():
            told = each["attacks"].get(name)
            if told is not None:
                _curve(curves, told["roc"], f"{each['name']}, {words}", _shade(each, place), dash)
        most = _most(each)
        curves.plot(most["alarms"], most["found"], color=_shade(each, place), marker="o", markersize=4.5)
    curves.plot([LOWEST, 1], [LOWEST, 1], color=PALE, linewidth=0.8, linestyle=":", label="guessing")
    _ = curves.legend(
        loc="lower right", frameon=False, fontsize=SMALL, labelcolor=INK, handlelength=2.2, borderaxespad=0.2
    )
    return save_figure(figure, path)


def _most(each: Mapping[str, Any]) -> Mapping[str, Any]:
    """The attack that names most."""
    return max(each["attacks"].values(), key=lambda attack: attack["named"])


def _shade(each: Mapping[str, Any], place: int) -> str:
    return colour(COLOURS.get(each["name"], 2 + place))


def _title(settings: Sequence[Mapping[str, Any]]) -> str:
    (name, many), *others = [(each["name"], _most(each)["named"]) for each in settings]
    rest = "".join(f", {number} from the {other} one" for other, number in others)
    return f"Named of {HUNDRED} members: {many} from the {name} model{rest}"


def _note(found: Mapping[str, Any]) -> str:
    """How it was found, and what is behind the colours."""
    settings: Sequence[Mapping[str, Any]] = found["settings"]
    ends = [f"{each['name']} from {_most(each)['low']} to {_most(each)['high']}" for each in settings]
    said = [
        f"{found['models']} models, each trained on a random half of {found['records']} {found['unit']}s.",
        f"Named, and dots: at one false alarm in 100 others; 95 % intervals: {', '.join(ends)}.",
    ]
    for each in settings:
        if each["ceiling"] is not None:
            price = f"epsilon {each['epsilon']:.3g}, delta {each['delta']:.3g}"
            said.append(f"Grey: beyond what is proven for the {each['name']} model ({price}).")
            said += ["Its noise is a rehearsal and protects nobody."] * bool(each["ceiling"]["rehearsal"])
    return " ".join(said)


def _people(axes: Axes, settings: Sequence[Mapping[str, Any]]) -> None:
    """A block of 100 people for each setting, those who are named in its colour."""
    axes.set_axis_off()
    deep = HUNDRED // ABREAST
    for place, each in enumerate(settings):
        top, shade, most = place * (deep + 2.5), _shade(each, place), _most(each)
        across, down = np.arange(HUNDRED) % ABREAST, top + np.arange(HUNDRED) // ABREAST
        for who, tone in ((slice(most["named"], None), PALE), (slice(0, most["named"]), shade)):
            axes.scatter(across[who], down[who], s=70, marker=_person(), color=tone, linewidth=0)
        proven = "" if each["ceiling"] is None else f"; proven: at most {each['ceiling']['named']}"
        words = f"{each['name']}: {most['named']} named{proven}"
        axes.text(
            -0.5, top - 0.9, words, color=ink(shade), fontsize=BODY, fontweight="bold", ha="left",
            va="bottom", parse_math=False,
        )  # fmt: skip
    axes.set_xlim(-0.7, ABREAST - 0.3)
    # One setting has as small people as two.
    axes.set_ylim(max(len(settings), 2) * (deep + 2.5) - 2.0, -2.3)


def _person() -> Outline:
    """A head on a pair of shoulders."""
    body = Affine2D().scale(0.5, 0.75).translate(0.0, -0.6).transform_path(Outline.wedge(0, 180))
    return Outline.make_compound_path(Outline.circle((0.0, 0.5), 0.3), body)


def _axes(axes: Axes) -> None:
    """Both axes logarithmic, from few false alarms on."""
    tidy(axes, "Others who are taken for members", "Members who are named")
    axes.set(xscale="log", yscale="log", xlim=(LOWEST, 1), ylim=(LOWEST, 1))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(_percent))
        axis.set_minor_locator(NullLocator())


def _percent(share: float, place: int | None = None) -> str:
    return f"{100 * share:g} %"


def _ceiling(axes: Axes, each: Mapping[str, Any]) -> None:
    """What no attack can reach, in grey."""
    if each["ceiling"] is None:
        return
    false, true = (np.asarray(each["ceiling"][name], dtype=np.float64) for name in ("false", "true"))
    axes.fill_between(false, true, 1.0, color=RULE, linewidth=0, zorder=0.5)
    if float(true[0]) > ROOM:
        # The note says what grey is.
        return
    axes.text(
        0.03, 0.97, f"impossible for the {each['name']} model", transform=axes.transAxes, color=GREY,
        fontsize=SMALL, ha="left", va="top", parse_math=False,
    )  # fmt: skip


def _curve(axes: Axes, roc: Mapping[str, Sequence[float]], words: str, shade: str, dash: Any) -> None:  # noqa: ANN401
    """An ROC curve in steps: between two thresholds there is none."""
    false, true = (np.asarray(roc[name], dtype=np.float64) for name in ("false", "true"))
    alike = false.shape == true.shape and false.ndim == 1
    require(alike, "roc", f"shapes {false.shape} and {true.shape}", "two lists of one length")
    # Logarithmic axes know no zero: a curve begins at the left edge, or where it first names somebody.
    edge = max(int(np.searchsorted(false, LOWEST, side="right")) - 1, 0)
    across, up = np.maximum(false[edge:], LOWEST), true[edge:]
    axes.plot(
        across[up > 0], up[up > 0], color=shade, linewidth=1.3, linestyle=dash, drawstyle="steps-post",
        label=words,
    )  # fmt: skip
