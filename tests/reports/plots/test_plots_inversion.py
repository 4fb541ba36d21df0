"""One record, and what was read off its update, is drawn column by column."""

import json
import re

import numpy as np
import pytest

from looking import HOSTILE, note, require_legible, title, words
from tacit.errors import InvalidValue
from tacit.reports.page.html import inline
from tacit.reports.plots.audits import inversion


def found(columns=("age", "dose", "grade"), private=(0.1, -0.2, 0.3), **others):
    true = np.linspace(-1.5, 2.0, len(columns)).tolist()
    return {
        "kind": "inversion",
        "patients": 40,
        "columns": list(columns),
        "example": {"true": true, "open": true, "private": list(private), "epsilon": 8.0},
        "settings": [
            {"name": "open", "epsilon": None, "exact": 40, "correlation": 1.0},
            {"name": "private", "epsilon": 8.0, "exact": 0, "correlation": 0.02},
        ],
        **others,
    }


def test_the_record_and_both_readings_are_drawn_in_the_row_of_their_column():
    figure = inversion(json.loads(json.dumps(found())))
    drawn = {line.get_label(): line.get_xydata().tolist() for line in figure.axes[0].lines}
    assert drawn["the record"] == drawn["without noise"] == [[-1.5, 0], [0.25, 1], [2.0, 2]]
    assert drawn["under epsilon 8"] == [[0.1, 0], [-0.2, 1], [0.3, 2]]
    assert [tick.get_text() for tick in figure.axes[0].get_yticklabels()] == ["age", "dose", "grade"]
    assert [text.get_text() for text in figure.axes[0].get_legend().get_texts()] == list(drawn)[1:]
    assert title(figure) == "40 of 40 records reconstructed exactly without a promise, none under epsilon 8"
    assert "Public records" in note(figure)
    require_legible(figure)


@pytest.mark.parametrize("count", [1, 2, 9, 60])
def test_any_number_of_columns_can_be_read(count):
    figure = inversion(found([f"column-{number}" for number in range(count)], np.zeros(count)))
    require_legible(figure)
    assert ("20 of 60 columns" in note(figure)) == (count == 60)


def test_the_legend_stands_beside_the_rows_and_on_no_other_word():
    figure = inversion(found([f"a rather long column {number}" for number in range(9)], np.zeros(9)))
    figure.draw_without_rendering()
    box, panel = (part.get_window_extent() for part in (figure.axes[0].get_legend(), figure.axes[0]))
    assert box.x0 >= panel.x1
    assert box.y1 <= figure._suptitle.get_window_extent().y0
    assert box.x1 <= figure.get_size_inches()[0] * figure.dpi


def test_wild_readings_stay_at_the_edge_and_the_note_says_so():
    figure = inversion(found(private=(500.0, -900.0, 0.0)))
    low, high = figure.axes[0].get_xlim()
    kept = next(line for line in figure.axes[0].lines if line.get_label() == "under epsilon 8")
    assert kept.get_xdata().tolist() == [high, low, 0.0]
    assert high < 10
    assert "lie beyond the axis" in note(figure)
    assert "lie beyond the axis" not in note(inversion(found()))


def test_hostile_names_are_drawn_as_they_are():
    figure = inversion(found(HOSTILE, np.zeros(len(HOSTILE))))
    require_legible(figure)
    assert "frac" in words(figure)


def test_it_can_be_read_on_a_dark_page():
    # Every color is a variable of the page, which has another value at night.
    text = inline(inversion(found()), "inversion", "words")
    colours = re.findall(r'(?:fill|stroke)[=:]"?([^;"]+)', text)
    assert len(colours) > 10
    assert {one.partition("(")[0] for one in colours} == {"none", "var"}


def test_it_is_kept_as_a_file(tmp_path):
    inversion(found(), path=tmp_path / "inversion.svg")
    assert (tmp_path / "inversion.svg").stat().st_size > 1000


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (found(kind="membership"), "kind = 'membership'"),
        (found(private=(1.0, 2.0)), "example private"),
        (found(private=(1.0, 2.0, np.nan)), "example private"),
        (found((), ()), "example true"),
    ],
)
def test_what_cannot_be_drawn_is_refused(given, message):
    with pytest.raises(InvalidValue, match=message):
        inversion(given)
