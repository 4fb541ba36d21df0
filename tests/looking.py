"""Checks of figures: visible text, and its legibility."""

import itertools

from matplotlib.text import Text

from tacit.reports.plots import style

HOSTILE = [
    "<script>alert('x')</script>",
    "$\\frac{1}{2}$ & $x",
    "\N{HOSPITAL} \u75c5\u9662",
    "\u0416\u0438\u0437\u043d\u044c",
    "\u05d0\u05d1 \u0628\u064a\u062a",
    "x" * 10_000,
    "a\nb\tc\x00\x07",
    "",
    "\u202egnp.exe",
    "\ud800",
    "W" * 40,
]


def texts(figure):
    """Every text that is seen."""
    seen = [figure._suptitle, figure._supxlabel, figure._supylabel, *figure.texts]
    for axes in figure.axes:
        if axes.get_visible():
            seen += [*axes.texts, axes.title, axes._left_title, axes._right_title]
            seen += [axes.xaxis.label, axes.yaxis.label]
            for axis in (axes.xaxis, axes.yaxis):
                low, high = sorted(axis.get_view_interval())
                slack = 1e-9 * (high - low)
                ticks = [
                    tick for tick in axis.get_major_ticks() if low - slack <= tick.get_loc() <= high + slack
                ]
                seen += [label for tick in ticks for label in (tick.label1, tick.label2)]
    kept = [text for text in dict.fromkeys(seen) if text is not None and text.get_visible()]
    return [text for text in kept if text.get_text().strip()]


def words(figure):
    return " ".join(text.get_text().replace("\n", " ") for text in texts(figure))


def title(figure):
    return figure.get_suptitle().replace("\n", " ")


def note(figure):
    return figure._supxlabel.get_text().replace("\n", " ")


def require_legible(figure):
    """All words are inside the figure, large enough, and not on one another."""
    figure.draw_without_rendering()
    found = {text: Text.get_window_extent(text) for text in texts(figure)}
    width, height = figure.get_size_inches() * figure.dpi
    for text, box in found.items():
        inside = box.x0 >= -0.5 and box.y0 >= -0.5 and box.x1 <= width + 0.5 and box.y1 <= height + 0.5
        assert inside, f"{text.get_text()!r} leaves the figure: {box}"
        assert text.get_fontsize() >= style.SMALL
        assert not text.get_parse_math() or "$" not in text.get_text()
    for (one, first), (other, second) in itertools.combinations(found.items(), 2):
        across = min(first.x1, second.x1) - max(first.x0, second.x0)
        up = min(first.y1, second.y1) - max(first.y0, second.y0)
        assert across < 1 or up < 2.5, f"{one.get_text()!r} is on {other.get_text()!r}"
