"""Figures of the server's records about sites: suspicion, participation, and faults.

All of it is in the record already. If participation is secret there is next to nothing to see, and nothing is
drawn.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from numpy.typing import NDArray

from tacit.learning.record import TROUBLED, Reason, Record, Round, Standing, Status
from tacit.reports.plots import band, cells, footnote, line, translate, write_asides
from tacit.reports.plots.style import (
    GREY,
    INCH,
    LINE,
    PALE,
    PALETTE,
    RULE,
    SMALL,
    Label,
    Picture,
    colour,
    dashes,
    ink,
    label_lines,
    picture,
    round_axis,
    shorten_label,
    tidy,
)
from tacit.runtime.arrays import Array

Flags = NDArray[np.bool_]
Tally = Counter[tuple[str, Reason]]

STANDINGS: dict[Status, tuple[str, str, str]] = {
    "watch": ("^", "Triangles", "watched"),
    "quarantined": ("o", "Dots", "suspected"),
    "probation": ("s", "Squares", "on trial"),
    "active": ("P", "Plusses", "cleared"),
}
FAULTS: dict[Reason, tuple[str, str]] = {
    "late": ("x", "crosses"),
    "absent": ("_", "dashes"),
    "failed": ("o", "dots"),
    "not-finite": ("^", "triangles"),
    "too-long": ("D", "diamonds"),
    "schema": ("s", "squares"),
    "refused": ("|", "strokes"),
    "replay": ("<", "left arrows"),
    "duplicate": (">", "right arrows"),
    "equivocation": ("v", "wedges"),
    "unknown": ("*", "stars"),
}
# Number of lines with names beside each other, of sites below each other, and of names in a title.
NAMED, SITES, LISTED = 12, 50, 3
# Beyond this number, lines that cannot be told apart are drawn as the area below the highest.
LINES = 20
# A site with faults in more than this share of rounds catches the eye.
OFTEN = 0.05
# Points between lines that coincide: each from the next, and all of them.
APART, PARTED = 1.4, 7.0
# Beyond the first number, marks are one image; beyond the second number of rounds, cells are too small for
# marks and show a color alone; beyond the third, several rounds share a cell.
MARKS, CROWDED, COLUMNS = 150, 100, 200
# Color of faults, and opacity of a share of 0, which is visible.
FAULT, FAINT = PALETTE[1], 0.12
UNNAMED, NOBODY = "unnamed", "unknown site"


def suspicions(record: Record) -> Picture | None:
    """Draw the suspicion against each site round by round, and mark changes of standing.

    Returns:
        None without a quarantine.
    """
    sites = list(dict.fromkeys(name for entry in record.rounds for name in entry.standings))
    if not sites:
        return None
    suspects = _suspects(record, sites)
    told = suspects[:NAMED]
    others = [name for name in sites if name not in told]
    figure = picture(2.6, _verdict(record), _suspicion_note(record, len(others), len(suspects) - len(told)))
    axes = figure.add_subplot()
    tidy(axes, "Round", "Suspicion")
    _others(axes, record, others)
    labels = [_suspect(axes, record, name, place, len(told)) for place, name in enumerate(told)]
    round_axis(axes, record.rounds[0].number, record.rounds[-1].number)
    highest = max(1.0, *(one.suspicion for entry in record.rounds for one in entry.standings.values()))
    axes.set_ylim(-0.06 * highest, 1.1 * highest)
    # Of lines that end at one height the first is the highest: so is its label.
    label_lines({axes: labels[::-1]})
    return figure


def participation(record: Record, names: Sequence[str]) -> Picture | None:
    """Draw participation by round: the share of each update, and updates that were left out, with reasons.

    Args:
        record: The record of the run.
        names: All sites, in the order in which they are drawn. If there are more than 50, only those are that
            something was wrong with.

    Returns:
        None where the record knows of no share and of no fault.
    """
    rounds = record.rounds
    if not any(entry.shares or entry.faults for entry in rounds):
        return None
    faults: Tally = Counter((fault.site, fault.reason) for entry in rounds for fault in entry.faults)
    sites, others = _select_sites(record, names, faults)
    # A few rows may be high; many are as high as their names.
    high = max(SMALL * LINE, 16.0 - 0.3 * len(sites)) / INCH
    figure = picture(
        0.6 + high * len(sites),
        _participation_title(record, faults),
        _participation_note(record, faults, others),
    )
    axes = figure.add_subplot()
    tidy(axes, "Round", "")
    _cells(axes, rounds, sites)
    if len(rounds) <= CROWDED:
        _mark(axes, rounds, sites)
    shown = [shorten_label(name, 20) or (UNNAMED if name else NOBODY) for name in sites]
    axes.set_yticks(range(len(sites)), shown, fontsize=SMALL, parse_math=False)
    round_axis(axes, rounds[0].number, rounds[-1].number, edge=0.5)
    _write_asides(axes, record, sites, faults)
    return figure


def _last(record: Record) -> dict[str, Standing]:
    """Return the standings of the last round."""
    return record.rounds[-1].standings


def _suspects(record: Record, sites: Sequence[str]) -> list[str]:
    """List the sites with any suspicion, the worst at the end of the run first."""
    last, order = _last(record), list(TROUBLED)

    def worst_first(name: str) -> tuple[int, float]:
        now = last.get(name, Standing())
        return (order.index(now.status) if now.status in TROUBLED else len(order)), -now.suspicion

    return sorted((name for name in sites if name in _ever_suspect(record)), key=worst_first)


def _ever_suspect(record: Record) -> set[str]:
    """List the sites that were ever suspected."""
    found = {decision.site for entry in record.rounds for decision in entry.decisions}
    return found | {
        name
        for entry in record.rounds
        for name, standing in entry.standings.items()
        if standing.status in TROUBLED
    }


def _verdict(record: Record) -> str:
    """Return a title with the sites under suspicion in the last round."""
    last, rounds = _last(record), _pluralise(len(record.rounds), "round")
    now = {word: [name for name in last if last[name].status == status] for status, word in TROUBLED.items()}
    words = [f"{word}: {_list_names(names)}" for word, names in now.items() if names]
    if words:
        return f"After {rounds}, {'; '.join(words)}"
    before = f"; before that {_list_names(sorted(_ever_suspect(record)))}" * bool(_ever_suspect(record))
    return f"No site is under suspicion after {rounds}{before}"


def _list_names(names: Sequence[str]) -> str:
    """List a few names, and the number of others."""
    words = [shorten_label(name, 20) or UNNAMED for name in names[:LISTED]]
    more = len(names) - len(words)
    return ", ".join(words) + f" and {_pluralise(more, 'other')}" * (more > 0)


def _pluralise(count: int, what: str) -> str:
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def _suspicion_note(record: Record, others: int, suspects: int) -> str:
    """Return a note that explains suspicion, marks and gray lines."""
    now = {decision.now for entry in record.rounds for decision in entry.decisions}
    marks = [f"{shape}: {word}" for status, (_, shape, word) in STANDINGS.items() if status in now]
    which = _pluralise(others, "other site" if now else "site")
    which += f", {suspects} of them suspected at some time" * (suspects > 0)
    grey = f"Gray: {'the most against any of ' * (others > LINES)}{which}" * (others > 0)
    return footnote("Suspicion grows while updates differ from the others, and decays", *marks, grey)


def _added_up(record: Record, name: str) -> tuple[Array, Array]:
    """Return the rounds in which a site was judged, and its suspicion."""
    found = [
        (entry.number, entry.standings[name].suspicion) for entry in record.rounds if name in entry.standings
    ]
    return np.array([number for number, _ in found], float), np.array([height for _, height in found], float)


def _others(axes: Axes, record: Record, names: Sequence[str]) -> None:
    """Draw sites that are not named: a line each or, of many, the highest of them in each round."""
    if len(names) <= LINES:
        for rounds, heights in (_added_up(record, name) for name in names):
            line(axes, rounds, heights, PALE, linewidth=0.7, zorder=1.5)
        return
    wanted = set(names)
    highest = [
        max((one.suspicion for name, one in entry.standings.items() if name in wanted), default=0.0)
        for entry in record.rounds
    ]
    rounds = [entry.number for entry in record.rounds]
    band(axes, rounds, 0.0, highest, RULE, alpha=None, linewidth=0.7, edgecolor=PALE)


def _suspect(axes: Axes, record: Record, name: str, place: int, of: int) -> Label:
    """Draw one site that something has spoken against, and mark the rounds in which its standing changed."""
    # Sites that are suspected in the same rounds have equal suspicion: one line would hide the other.
    beside = translate(axes, up=min(APART, PARTED / of) * ((of - 1) / 2 - place))
    shade, (rounds, heights) = colour(place), _added_up(record, name)
    axes.plot(rounds, heights, color=shade, linewidth=1.2, linestyle=dashes(place), transform=beside)
    known = dict(zip(rounds.tolist(), heights.tolist(), strict=True))
    for entry in record.rounds:
        for change in (one for one in entry.decisions if one.site == name and entry.number in known):
            axes.plot(
                [entry.number], [known[entry.number]], color=shade, marker=STANDINGS[change.now][0],
                markersize=5, markeredgecolor="white", markeredgewidth=0.5, transform=beside, zorder=3,
            )  # fmt: skip
    status = _last(record).get(name, Standing()).status
    words = f"{shorten_label(name, 16) or UNNAMED}: {STANDINGS[status][2]}"
    return Label(float(heights[-1]) if len(heights) else 0.0, words, shade)


def _select_sites(record: Record, names: Sequence[str], faults: Tally) -> tuple[list[str], int]:
    """Choose the sites to draw, and count the others; faults without a site come last."""
    seen = (name for entry in record.rounds for name in entry.shares)
    sites = [name for name in dict.fromkeys([*names, *seen, *(name for name, _ in faults)]) if name]
    kept, counts = sites, _by_site(faults)
    if len(sites) > SITES:
        troubled = [name for name in sites if name in counts or name in _ever_suspect(record)] or sites
        worst = set(sorted(troubled, key=lambda name: -counts[name])[:SITES])
        kept = [name for name in sites if name in worst]
    return [*kept, *([""] if "" in counts else [])], len(sites) - len(kept)


def _by_site(faults: Tally) -> Counter[str]:
    """Count the faults of each site."""
    found = Counter[str]()
    for (site, _), count in faults.items():
        found[site] += count
    return found


def _participation_title(record: Record, faults: Tally) -> str:
    """Return a title: the number of faults if there are any, or else shares."""
    rounds, counts = _pluralise(len(record.rounds), "round"), _by_site(faults)
    skipped = sum(entry.skipped is not None for entry in record.rounds)
    end = f"; {skipped} of the rounds skipped" * bool(skipped)
    if counts:
        worst, most = counts.most_common(1)[0]
        whose = f", {most:,} of them by {shorten_label(worst, 20) or UNNAMED}" if worst else ""
        return _pluralise(counts.total(), "fault") + f" in {rounds}{whose}{end}"
    means = _means(record, dict.fromkeys(name for entry in record.rounds for name in entry.shares))
    least, most = min(means, key=lambda name: means[name]), max(means, key=lambda name: means[name])
    ends = [f"{_percent(means[name])} ({shorten_label(name, 20) or UNNAMED})" for name in (least, most)]
    return f"No fault in {rounds}; shares in the aggregate from {' to '.join(ends)} on average{end}"


def _means(record: Record, sites: Iterable[str]) -> dict[str, float]:
    """Return the mean share of each site, over rounds with known shares; absent sites have none."""
    known = [entry.shares for entry in record.rounds if entry.shares]
    return {name: float(np.mean([shares.get(name, 0.0) for shares in known])) for name in sites if known}


def _percent(share: float) -> str:
    if 0 < share < 0.001:
        return "< 0.1 %"
    return f"{100 * share:.1f} %" if 0 < share < 0.0995 else f"{100 * share:.0f} %"


def _participation_note(record: Record, faults: Tally, others: int) -> str:
    """Return a note that explains colors and marks, and counts the sites that are not shown."""
    most = max((share for entry in record.rounds for share in entry.shares.values()), default=None)
    blue, blank = "", "no fault"
    if most is not None:
        blue = f"Blue: share in the aggregate, darkest {_percent(most)}, its mean to the right"
        blank = "not in it"
    kinds = {reason for _, reason in faults}
    shapes = ", ".join(f"{shape} {kind}" for kind, (_, shape) in FAULTS.items() if kind in kinds)
    return footnote(
        blue,
        f"Blank: {blank}",
        f"Orange: left out for a fault{f' ({shapes})' * (len(record.rounds) <= CROWDED)}" * bool(kinds),
        "Gray: skipped rounds" * any(entry.skipped is not None for entry in record.rounds),
        f"Not shown: {_pluralise(others, 'site')} with less trouble or none" * bool(others),
    )


def _cells(axes: Axes, rounds: Sequence[Round], sites: Sequence[str]) -> None:
    """Fill a cell for each site and round, as one image."""
    first, heights = rounds[0].number, {name: place for place, name in enumerate(sites)}
    shape = (len(sites), rounds[-1].number - first + 1)
    shares, faulty, skipped = np.full(shape, np.nan), np.zeros(shape, np.bool_), np.zeros(shape, np.bool_)
    for entry in rounds:
        column = entry.number - first
        skipped[:, column] = entry.skipped is not None
        for fault in (one for one in entry.faults if one.site in heights):
            faulty[heights[fault.site], column] = True
        for name in (one for one in entry.shares if one in heights):
            shares[heights[name], column] = entry.shares[name]
    wide = -(-shape[1] // COLUMNS)
    shares, faulty, skipped = _bin_means(shares, wide), _bin_any(faulty, wide), _bin_any(skipped, wide)
    top = max((share for entry in rounds for share in entry.shares.values()), default=0.0)
    # Opacity gives the depth of a color: empty cells show the paper, in any color.
    image = np.zeros((len(sites), shares.shape[1], 4))
    image[~np.isnan(shares)] = to_rgba(PALETTE[0])
    image[..., 3] *= FAINT + (1.0 - FAINT) * np.nan_to_num(np.clip(shares / (top or 1.0), 0.0, 1.0))
    image[skipped & np.isnan(shares)] = to_rgba(GREY, 0.22)
    image[faulty] = to_rgba(FAULT, 0.3 if len(rounds) <= CROWDED else 1.0)
    left, right, *_ = cells(axes, image, first, wide).get_extent()
    axes.hlines(np.arange(1, len(sites)) - 0.5, left, right, color="white", linewidth=0.6)


def _bin_any(cells: Flags, wide: int) -> Flags:
    """Combine `wide` columns at a time by a logical or, so that single faults stay visible."""
    return np.logical_or.reduceat(cells, range(0, cells.shape[1], wide), axis=1)


def _bin_means(cells: Array, wide: int) -> Array:
    """Average the known values of `wide` columns at a time; NaN where none is known."""
    starts = range(0, cells.shape[1], wide)
    known = np.add.reduceat(~np.isnan(cells), starts, axis=1, dtype=np.float64)
    sums = np.add.reduceat(np.nan_to_num(cells), starts, axis=1)
    return np.where(known > 0, sums / np.maximum(known, 1.0), np.nan)


def _mark(axes: Axes, rounds: Sequence[Round], sites: Sequence[str]) -> None:
    """Mark faults by their kinds."""
    heights = {name: place for place, name in enumerate(sites)}
    spots: dict[Reason, dict[tuple[int, int], None]] = {}
    for entry in rounds:
        for fault in (one for one in entry.faults if one.site in heights):
            spots.setdefault(fault.reason, {})[entry.number, heights[fault.site]] = None
    many = sum(map(len, spots.values())) > MARKS
    for reason, places in spots.items():
        axes.plot(
            *np.array(list(places)).T, color=ink(FAULT), marker=FAULTS[reason][0], linestyle="none",
            markersize=min(4.0, max(2.2, 260 / len(rounds))), markeredgewidth=0.8, rasterized=many,
        )  # fmt: skip


def _write_asides(axes: Axes, record: Record, sites: Sequence[str], faults: Tally) -> None:
    """Write to the right of each site its mean share, its faults, and its last standing."""
    means, last = _means(record, sites), _last(record)
    words, shades = list[str](), list[str]()
    for name in sites:
        status = last.get(name, Standing()).status
        kinds = Counter({reason: count for (site, reason), count in faults.items() if site == name})
        trouble = [f"{count:,} {reason}" for reason, count in kinds.most_common()]
        trouble += [TROUBLED[status]] if status in TROUBLED else []
        striking = status in TROUBLED or kinds.total() > OFTEN * len(record.rounds)
        share = [_percent(means[name])] if name in means and name else []
        words.append(shorten_label(", ".join(share + trouble), 36))
        shades.append(ink(FAULT) if striking else GREY)
    write_asides(axes, words, shades, gap=4, size=SMALL)
