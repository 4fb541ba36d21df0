"""Figures of attacks beside the claims: empirical epsilon, named members, a reconstructed record.

Plots draw what `tacit.audits` found, as plain data. Figures of single records are as private as the records:
draw public ones, or show them to authorized readers only.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.path import Path as Outline
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator
from matplotlib.transforms import Affine2D

from tacit.errors import require
from tacit.reports.plots import band, dots, footnote, line, name_rows, write
from tacit.reports.plots.style import (
    BODY,
    GREY,
    INK,
    PALE,
    ROW,
    RULE,
    SMALL,
    Picture,
    colour,
    ink,
    picture,
    save_figure,
    shorten_label,
    tidy,
)
from tacit.runtime.arrays import Array

# The lower bounds of a run, and the assumptions of each.
BOUNDS = {
    "fitted": "family fit: the distribution of the noise, and independent canaries",
    "one_run": "one run: the distribution of the noise",
    "steinke": "Steinke: nothing",
}
# The lowest share of false alarms that is drawn.
LOWEST = 1e-3
# Number of people in a row, and in all.
ABREAST, HUNDRED = 20, 100
ATTACKS = {"lira": ("with shadow models", "-"), "loss": ("by the loss alone", (0, (3, 2)))}
# Red for open runs, blue for private ones.
COLOURS = {"open": 1, "private": 0}
# Words in the region that no attack can reach need room: it must begin below this.
ROOM = 0.2
# More columns of a record than these are no longer read.
COLUMNS = 20
# Smallest range of their axis from its middle, in standard deviations; and the margin beyond the record.
LEAST, BEYOND = 3.0, 1.3


# Bounds on epsilon


def run_bounds(found: Mapping[str, Any], *, path: str | Path | None = None) -> Picture:
    """Draw the epsilon that a run claims, and its empirical lower bounds.

    Args:
        found: The audit of a run: `Bounds.as_dict`.
        path: A file to keep the figure in, `.png`, `.svg` or `.pdf`.
    """
    values = [float(found[name]) for name in BOUNDS]
    largest, claim = max(values), found["claim"]
    title = f"Claimed: epsilon {claim:.3g}; proven: at least {largest:.3g}"
    if largest > claim:
        title = f"The claim is false: epsilon is at least {largest:.3g}, not {claim:.3g}"
    note = footnote(
        f"{found['canaries']:,} canaries in one training",
        f"All bounds together hold with {_percent(found['confidence'])} confidence",
        f"Epsilon at delta {found['delta']:g}",
    )
    figure = picture(0.75 + 1.6 * ROW * len(BOUNDS), title, note)
    axes = figure.add_subplot()
    tidy(axes, "Epsilon", "")
    axes.set_xlim(0.0, 1.12 * max(claim, largest))
    _bound_rows(axes, list(BOUNDS.values()), claim, f"claimed: {claim:.3g}")
    for row, value in enumerate(values):
        shade = colour(1 if value > claim else 0)
        axes.barh(row, value, height=0.45, color=shade)
        write(axes, f"{value:.2f}", (value, row), (5, 0), ha="left", color=ink(shade))
    return save_figure(figure, path)


def mechanism_bounds(found: Sequence[Mapping[str, Any]], *, path: str | Path | None = None) -> Picture:
    """Draw the empirical lower bound of every mechanism, relative to its claim.

    Args:
        found: The audit of each: its `name`, and `Bounds.as_dict`.
        path: A file to keep the figure in, `.png`, `.svg` or `.pdf`.
    """
    require(bool(found), "mechanisms", "none", "one or more")
    broken = sum(not each["kept"] for each in found)
    # All bounds hold at once.
    confidence = 1 - sum(1 - each["confidence"] for each in found)
    note = footnote(
        f"The best bound on each, all of them together with {_percent(confidence)} confidence",
        "Beyond the line a claim is false",
        "Numbers: proven epsilon, of claimed epsilon",
    )
    title = f"{len(found)} mechanisms attacked, {broken or 'none'} broken"
    figure = picture(0.75 + 1.3 * ROW * len(found), title, note)
    axes = figure.add_subplot()
    tidy(axes, "Proven epsilon / claimed epsilon", "")
    shares = [max(each[name] for name in BOUNDS) / each["claim"] for each in found]
    axes.set_xlim(0.0, max(1.35, 1.3 * max(shares)))
    _bound_rows(axes, [shorten_label(str(each["name"]), 40) for each in found], 1.0, "claimed")
    for row, (each, share) in enumerate(zip(found, shares, strict=True)):
        shade = colour(0 if each["kept"] else 1)
        line(axes, [0.0, share], [row, row], shade, linewidth=1.0, alpha=0.5)
        line(axes, [share], [row], shade)
        words = f"{share * each['claim']:.2f} of {each['claim']:.2f}"
        write(axes, words, (max(share, 1.0), row), (5, 0), ha="left", color=ink(GREY), fontsize=SMALL)
    return save_figure(figure, path)


def _bound_rows(axes: Axes, names: Sequence[str], claim: float, words: str) -> None:
    """Give each bound a row, and draw a line at the claim."""
    name_rows(axes, names, above=0.9)
    axes.grid(visible=False, axis="y")
    axes.axvline(claim, color=GREY, linewidth=1.0, linestyle="--")
    write(axes, words, (claim, -0.9), (-3, 2), ha="right", va="bottom", fontsize=SMALL, color=ink(GREY))


def _percent(share: float, place: int | None = None) -> str:
    return f"{100 * share:.4g} %"


# Membership


def membership(found: Mapping[str, Any], *, path: str | Path | None = None) -> Picture:
    """Draw the share of members that attacks name in each setting, and ROC curves on logarithmic axes.

    Args:
        found: Result of `Membership.as_dict`, from Python or from JSON.
        path: A file to keep the figure in, `.png`, `.svg` or `.pdf`.
    """
    require(found.get("kind") == "membership", "kind", found.get("kind"), '"membership"')
    settings: Sequence[Mapping[str, Any]] = found["settings"]
    (name, many), *others = [(each["name"], _most(each)["named"]) for each in settings]
    rest = "".join(f", {number} from the {other} one" for other, number in others)
    title = f"Identified of {HUNDRED} members: {many} from the {name} model{rest}"
    figure = picture(3.1, title, _membership_note(found))
    blocks, curves = figure.subplots(1, 2, width_ratios=(4, 5))
    _people(blocks, settings)
    tidy(curves, "Non-members who are taken for members", "Members who are identified")
    curves.set(xscale="log", yscale="log", xlim=(LOWEST, 1), ylim=(LOWEST, 1))
    for axis in (curves.xaxis, curves.yaxis):
        axis.set_major_formatter(FuncFormatter(_percent))
        axis.set_minor_locator(NullLocator())
    for place, each in enumerate(settings):
        _ceiling(curves, each)
        shade, most = _shade(each, place), _most(each)
        for attack, (words, dash) in ATTACKS.items():
            if (attacked := each["attacks"].get(attack)) is not None:
                across, up = _roc(attacked["roc"])
                look: dict[str, Any] = {
                    "linestyle": dash,
                    "drawstyle": "steps-post",
                    "label": f"{each['name']}, {words}",
                }
                curves.plot(across, up, color=shade, linewidth=1.3, **look)
        line(curves, [most["alarms"]], [most["found"]], shade, markersize=4.5)
    curves.plot([LOWEST, 1], [LOWEST, 1], color=PALE, linewidth=0.8, linestyle=":", label="guessing")
    _ = curves.legend(
        loc="lower right", frameon=False, fontsize=SMALL, labelcolor=INK, handlelength=2.2, borderaxespad=0.2
    )
    return save_figure(figure, path)


def _most(each: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the attack that identifies the most members."""
    return max(each["attacks"].values(), key=lambda attack: attack["named"])


def _shade(each: Mapping[str, Any], place: int) -> str:
    return colour(COLOURS.get(each["name"], 2 + place))


def _membership_note(found: Mapping[str, Any]) -> str:
    """Return a note on the attacks and the colors."""
    settings: Sequence[Mapping[str, Any]] = found["settings"]
    ends = [f"{each['name']} from {_most(each)['low']} to {_most(each)['high']}" for each in settings]
    said = [
        f"{found['models']} models, each trained on a random half of {found['records']:,} {found['unit']}s",
        f"Identified, and dots: at one false alarm in 100 non-members; 95 % intervals: {', '.join(ends)}",
    ]
    for each in settings:
        if each["ceiling"] is not None:
            price = f"epsilon {each['epsilon']:.3g}, delta {each['delta']:.3g}"
            said.append(f"Gray: beyond what is proven for the {each['name']} model ({price})")
            said.append(
                "Its noise is that of a rehearsal, which gives no protection"
                * bool(each["ceiling"]["rehearsal"])
            )
    return footnote(*said)


def _people(axes: Axes, settings: Sequence[Mapping[str, Any]]) -> None:
    """Draw a block of 100 people for each setting, with named members in its color."""
    axes.set_axis_off()
    deep = HUNDRED // ABREAST
    for place, each in enumerate(settings):
        top, shade, named = place * (deep + 2.5), _shade(each, place), _most(each)["named"]
        across, down = np.arange(HUNDRED) % ABREAST, top + np.arange(HUNDRED) // ABREAST
        for who, tone in ((slice(named, None), PALE), (slice(0, named), shade)):
            axes.scatter(across[who], down[who], s=70, marker=_person(), color=tone, linewidth=0)
        proven = "" if each["ceiling"] is None else f"; proven: at most {each['ceiling']['named']}"
        look: dict[str, Any] = {"color": ink(shade), "fontweight": "bold", "ha": "left", "va": "bottom"}
        write(axes, f"{each['name']}: {named} of {HUNDRED}{proven}", (-0.5, top - 0.9), **look)
    axes.set_xlim(-0.7, ABREAST - 0.3)
    # One setting has as small people as two.
    axes.set_ylim(max(len(settings), 2) * (deep + 2.5) - 2.0, -2.3)


def _person() -> Outline:
    """Return the outline of a person: a head on shoulders."""
    body = Affine2D().scale(0.5, 0.75).translate(0.0, -0.6).transform_path(Outline.wedge(0, 180))
    return Outline.make_compound_path(Outline.circle((0.0, 0.5), 0.3), body)


def _ceiling(axes: Axes, each: Mapping[str, Any]) -> None:
    """Shade the area that no attack can reach."""
    if each["ceiling"] is None:
        return
    false, true = (np.asarray(each["ceiling"][name], dtype=np.float64) for name in ("false", "true"))
    band(axes, false, true, 1.0, RULE, alpha=None, zorder=0.5)
    # If words do not fit, the note explains the gray area.
    if float(true[0]) <= ROOM:
        words = f"impossible for the {each['name']} model"
        write(axes, words, (0.03, 0.97), frame="axes", color=GREY, fontsize=SMALL, ha="left", va="top")


def _roc(roc: Mapping[str, Sequence[float]]) -> tuple[Array, Array]:
    """Return the ROC curve from its first named record on: logarithmic axes know no zero."""
    false, true = (np.asarray(roc[name], dtype=np.float64) for name in ("false", "true"))
    alike = false.shape == true.shape and false.ndim == 1
    require(alike, "roc", f"shapes {false.shape} and {true.shape}", "two lists of one length")
    edge = max(int(np.searchsorted(false, LOWEST, side="right")) - 1, 0)
    across, up = np.maximum(false[edge:], LOWEST), true[edge:]
    return across[up > 0], up[up > 0]


# Inversion


def inversion(found: Mapping[str, Any], *, path: str | Path | None = None) -> Picture:
    """Draw one record column by column, and its reconstructions from an open and a protected update.

    Args:
        found: The result of `Inversion.as_dict`, from Python or from JSON.
        path: A file to keep the figure in, `.png`, `.svg` or `.pdf`.
    """
    require(found.get("kind") == "inversion", "kind", found.get("kind"), '"inversion"')
    columns, example = [str(name) for name in found["columns"]], found["example"]
    record, bare, kept = (_numbers(name, example[name], columns) for name in ("true", "open", "private"))
    names = [shorten_label(name) for name in columns[:COLUMNS]]
    reach = max(LEAST, BEYOND * float(np.abs(record).max()))
    figure = picture(
        0.75 + 1.2 * ROW * max(len(names), 3), _inversion_title(found), _note(found, kept, reach)
    )
    axes = figure.add_subplot()
    tidy(axes, "Standard deviations from the mean of the column", "")
    axes.set_xlim(-reach, reach)
    axes.xaxis.set_major_locator(MaxNLocator(7, integer=True))
    axes.axvline(0.0, color=GREY, linewidth=0.6)
    name_rows(axes, names)
    rows, inside = np.arange(len(names)), np.clip(kept, -reach, reach)[:COLUMNS]
    axes.hlines(rows, record[:COLUMNS], inside, color=colour(0), linewidth=0.8, alpha=0.5)
    ring: dict[str, Any] = {
        "markersize": 8,
        "markerfacecolor": "none",
        "markeredgewidth": 1.0,
        "label": "the record",
    }
    dots(axes, record[:COLUMNS], rows, GREY, clip_on=False, **ring)
    dots(axes, bare[:COLUMNS], rows, colour(1), clip_on=False, markersize=4, label="without noise")
    under = f"under epsilon {example['epsilon']:g}"
    dots(axes, inside, rows, colour(0), clip_on=False, marker="D", markersize=3.5, label=under)
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


def _inversion_title(found: Mapping[str, Any]) -> str:
    """Return a title with the number of records that open and private updates disclose."""
    counts = {setting["epsilon"]: setting["exact"] for setting in found["settings"]}
    epsilon = found["example"]["epsilon"]
    of = f"{counts[None]} of {found['patients']} records reconstructed exactly"
    return f"{of} without a promise, {counts[epsilon] or 'none'} under epsilon {epsilon:g}"


def _note(found: Mapping[str, Any], kept: Array, reach: float) -> str:
    many = len(found["columns"])
    return footnote(
        "Public records. The figure shows one patient, who is the only one at a site, after one step",
        "Dots: the record as reconstructed from an update without noise. Diamonds: from one with noise",
        "Diamonds at the edge lie beyond the axis" * bool((np.abs(kept[:COLUMNS]) > reach).any()),
        f"{COLUMNS} of {many} columns, the first" * (many > COLUMNS),
    )
