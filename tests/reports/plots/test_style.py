"""Words of anybody can be drawn: in letters that the font has, as they are, on one line where they label."""

from io import BytesIO, StringIO

import matplotlib
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from looking import HOSTILE, require_legible, words
from tacit import Federation
from tacit.control.figures import drift
from tacit.reports.plots.privacy_utility import privacy_utility
from tacit.reports.plots.style import (
    Label,
    label_lines,
    picture,
    round_axis,
    shorten_label,
    tidy,
    to_drawable,
    width,
)
from tacit.reports.plots.training import training
from tacit.sites.table import from_arrays
from tacit.survival.figures import estimates, kaplan_meier_by_site
from tacit.survival.statistics import kaplan_meier

LACKING = "\N{REPLACEMENT CHARACTER}"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("plain <b>words</b> & $100$", "plain <b>words</b> & $100$"),
        ("\u00c5rhus \u0416 \u03a9 \u05d0 \u0628 \u1e9e", "\u00c5rhus \u0416 \u03a9 \u05d0 \u0628 \u1e9e"),
        ("\u6771\u4eac \u75c5\u9662", f"{LACKING * 2} {LACKING * 2}"),
        ("\ud55c\uad6d \u0e44\u0e17\u0e22 \u0939", f"{LACKING * 2} {LACKING * 3} {LACKING}"),
        ("\N{HOSPITAL} ward", f"{LACKING} ward"),
        ("\U0001f469\u200d\u2695\ufe0f", f"{LACKING}\u2695"),
        ("e\u0301", "\u00e9"),
        ("\u202egnp.exe\u202c", "gnp.exe"),
        ("a\x00b\x07", f"a{LACKING}b{LACKING}"),
        ("\ud800", LACKING),
        ("two\nlines", "two\nlines"),
        ("", ""),
    ],
)
def test_a_sign_stands_for_letters_that_the_font_lacks(given, expected):
    assert to_drawable(given) == expected


@settings(max_examples=25, deadline=None)
@given(st.text(alphabet=st.characters(), max_size=12))
def test_any_words_can_be_drawn_and_kept(given):
    figure = picture(2.0, f"t {given}", f"n {given}")
    axes = figure.add_subplot()
    tidy(axes, given, "up")
    axes.set_yticks([0.5], [shorten_label(given)], parse_math=False)
    axes.set_title(given, parse_math=False)
    label_lines({axes: [Label(0.5, given)]})
    for kind in ("png", "svg"):
        figure.savefig(BytesIO(), format=kind, dpi=30)


def test_words_that_come_in_past_all_doors_are_made_safe_before_they_are_drawn():
    figure = picture(1.0, "title", "note")
    axes = figure.add_subplot()
    axes.text(0.5, 0.5, "\N{HOSPITAL} $x", parse_math=False)
    figure.text(0.5, 0.1, "\u6771", parse_math=False)
    figure.savefig(BytesIO(), format="svg")
    assert [axes.texts[0].get_text(), figure.texts[-1].get_text()] == [f"{LACKING} $x", LACKING]


def test_letters_of_more_fonts_are_drawn_where_matplotlib_is_told_of_them():
    only_in_bold_and_serif = "\u2c6d"
    with matplotlib.rc_context({"font.family": ["DejaVu Sans", "DejaVu Serif", "no such font"]}):
        assert to_drawable(only_in_bold_and_serif) == only_in_bold_and_serif
    with matplotlib.rc_context({"font.family": ["no such font"]}):
        assert to_drawable("\u00e9\N{HOSPITAL}") == f"\u00e9{LACKING}"


def test_a_label_is_one_line_and_cut_off_where_it_is_too_long():
    assert shorten_label("a\n b\t c") == "a b c"
    assert shorten_label("x" * 10_000) == "x" * 27 + "\N{HORIZONTAL ELLIPSIS}"
    assert len(shorten_label("\N{HOSPITAL}" * 99)) == 28
    assert width(picture(1, "", ""), "\N{HOSPITAL}", 8.0) > 0


@pytest.mark.parametrize(("first", "last"), [(1, 1), (1, 2), (1, 5), (3, 97), (1, 100_000)])
def test_rounds_are_counted_in_whole_numbers(first, last):
    figure = picture(1.0, "title", "note")
    axes = figure.add_subplot()
    round_axis(axes, first, last)
    low, high = axes.get_xlim()
    ticks = [tick for tick in axes.get_xticks() if low <= tick <= high]
    assert ticks
    assert all(tick == round(tick) for tick in ticks)


def hospitals():
    draws = np.random.default_rng(1)
    names = [name for name in HOSTILE if name]
    return Federation(
        {
            name: from_arrays(
                draws.normal(size=(30, 1)), time=draws.exponential(3, 30), event=draws.integers(0, 2, 30)
            )
            for name in names
        },
        public=True,
    )


FIGURES = {
    "training": lambda: training(
        pd.DataFrame(
            {HOSTILE[5]: [0.1, 0.2], "$x$": [0.1, 0.3], HOSTILE[2]: [0.3, 0.2]}, index=pd.Index([1, 2])
        ),
        baselines={name: {"$x$": 0.1 + place / 20} for place, name in enumerate(HOSTILE[:6])},
        provenance=HOSTILE[2],
    ),
    "privacy and utility": lambda: privacy_utility(
        pd.DataFrame(
            {"epsilon": [1.0, 3.0] * 6, "score": np.linspace(0, 1, 12), "method": np.repeat(HOSTILE[:6], 2)}
        ),
        score=HOSTILE[2],
    ),
    "survival by site": lambda: kaplan_meier_by_site(hospitals()),
    "estimates": lambda: estimates({name: kaplan_meier(hospitals()) for name in HOSTILE[:4]}),
    "drift": lambda: drift(
        pd.DataFrame({"round": [1, 2] * 2, "update": 1.0, "noise": 2.0, "regime": np.repeat(HOSTILE[1:3], 2)})
    ),
}


@pytest.mark.parametrize("name", FIGURES)
def test_figures_of_the_library_take_any_name(name):
    figure = FIGURES[name]()
    require_legible(figure)
    assert LACKING in words(figure) or name == "estimates"
    figure.savefig(StringIO(), format="svg")
