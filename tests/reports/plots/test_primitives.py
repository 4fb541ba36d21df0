"""Primitives draw what they are given, where it is to be seen; tables are refused by name."""

import numpy as np
import pytest

from looking import require_legible
from tacit.errors import InvalidValue
from tacit.reports import plots
from tacit.reports.plots.style import Label, picture, tidy

SCORES = {"epsilon": [1.0, 2.0], "score": [0.6, 0.7], "low": [0.5, 0.6], "high": [0.7, 0.8]}


@pytest.fixture
def axes():
    axes = picture(2.0, "title", "note").add_subplot()
    tidy(axes, "across", "up")
    return axes


def test_a_line_is_labelled_where_it_ends_and_a_single_place_is_a_dot(axes):
    assert plots.line(axes, [1, 2], [0.1, 0.3], "#0072B2", "words") == Label(0.3, "words", "#0072B2")
    plots.line(axes, [1], [0.2], "#0072B2")
    assert [line.get_marker() for line in axes.lines] == ["None", "o"]


def test_rows_are_named_from_the_top(axes):
    plots.name_rows(axes, ["first", "second", "third"])
    assert [text.get_text() for text in axes.get_yticklabels()] == ["first", "second", "third"]
    assert axes.yaxis_inverted()
    assert axes.get_ylim() == (2.6, -0.6)


@pytest.mark.parametrize(
    ("values", "log", "marked"),
    [
        ([1.0, 2.0, 5.0], False, [1, 2, 5]),
        ([3.0], False, [3]),
        ([0.5, 1.0, 8.0], True, [0.5, 1, 8]),
        ([1.0, 1.001, 1000.0], True, [1, 1000]),
    ],
)
def test_values_are_marked_that_have_room(axes, values, log, marked):
    plots.mark_values(axes, np.array(values), log=log)
    assert axes.get_xticks().tolist() == marked
    low, high = axes.get_xlim()
    assert low < min(values) <= max(values) < high


def test_values_that_crowd_a_linear_axis_are_marked_by_round_numbers(axes):
    plots.mark_values(axes, np.arange(1.0, 101.0), log=False)
    assert len(axes.get_xticks()) <= 10


def test_an_axis_reaches_beyond_everything_that_is_drawn():
    assert plots.reach([0.0, 1.0], [0.5], share=0.1) == (-0.1, 1.1)
    assert plots.reach([2.0], share=1.0, least=0.5) == (1.5, 2.5)


def test_cells_go_down_and_rounds_to_the_right(axes):
    image = plots.cells(axes, np.zeros((3, 5)), 4, wide=2)
    assert image.get_extent() == [3.5, 13.5, 2.5, -0.5]


def test_intervals_of_several_methods_stand_apart_and_vain_points_are_hollow(axes):
    # Other columns may be words.
    rows = plots.read_table({**SCORES, "method": ["a", "a"], "site": ["x", "y"]}, ("epsilon", "score"), ())
    (label,) = plots.score_lines(axes, rows, "epsilon", "{:.2f}", floor=0.55)
    assert (label.words, label.height) == ("a 0.70", 0.7)
    hollow = [line.get_xydata().tolist() for line in axes.lines if line.get_mfc() == "white"]
    assert hollow == [[[1.0, 0.6]]]
    assert [segment[:, 1].tolist() for segment in axes.collections[0].get_segments()] == [
        [0.5, 0.7],
        [0.6, 0.8],
    ]


def test_names_beside_dots_stay_apart_and_inside(axes):
    axes.set(xlim=(0, 10), ylim=(0, 1))
    spots = [Label(0.5 + 0.001 * place, f"name {place}") for place in range(5)]
    plots.write_apart(axes, spots, [1.0, 1.1, 1.2, 9.9, 9.8])
    figure = axes.get_figure()
    require_legible(figure)
    box = axes.get_window_extent()
    assert all(box.x0 <= text.get_window_extent().x0 for text in axes.texts)
    assert all(text.get_window_extent().x1 <= box.x1 for text in axes.texts)


def test_sentences_become_a_footnote():
    assert plots.footnote("one.", "", "two") == "one. two."
    assert plots.footnote("", "") == ""


@pytest.mark.parametrize(
    ("table", "match"),
    [
        ({"epsilon": [1.0]}, "no column score: it must have epsilon, score"),
        ({"epsilon": [], "score": []}, "no row"),
        ({**SCORES, "score": [0.1, np.inf]}, r"score = \[inf\] .*finite in every row"),
        ({**SCORES, "low": [np.nan, 0.1]}, "low = "),
    ],
)
def test_tables_that_cannot_be_drawn_are_refused(table, match):
    with pytest.raises(InvalidValue, match=match):
        plots.read_table(table, ("epsilon", "score"), ("epsilon", "score", "low"))


def test_more_names_than_colours_are_refused():
    assert plots.in_order(["b", "a", "b", "z"], last=["b"]) == ["a", "z", "b"]
    with pytest.raises(InvalidValue, match="regime = '8 of them'"):
        plots.require_few("regime", list("abcdefgh"))
