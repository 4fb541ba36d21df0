"""Several runs are drawn as their records have them, and can be told apart."""

import math

import numpy as np
import pytest

from looking import HOSTILE, note, require_legible, texts, title, words
from tacit.learning.record import Record, Round
from tacit.reports.plots import style
from tacit.reports.plots.privacy_utility import frontier
from tacit.reports.plots.training import overlay


def run(scores, chosen=None):
    rounds = tuple(
        Round(number=number, rounds=9, sites=2, scores=found, epsilon=None, budget=None, seconds=None)
        for number, found in enumerate(scores, start=1)
    )
    return Record(rounds=rounds, chosen=len(rounds) if chosen is None else chosen)


def climbing(top, rounds=4, **others):
    return run([{"c_index": top - 0.1 / number, "ibs": 0.2, **others} for number in range(1, rounds + 1)])


def lines(axes):
    return [np.asarray(line.get_xydata()) for line in axes.lines]


def row(name, epsilon, score, **ends):
    return {"name": name, "epsilon": epsilon, "score": score, **ends}


def test_every_run_is_a_line_in_the_panel_of_each_score_that_all_have():
    runs = {"one": climbing(0.7, extra=1.0), "other": climbing(0.8, 3)}
    figure = overlay(runs, provenance="public: simulated.")
    assert [axes.get_ylabel() for axes in figure.axes] == ["C-index", "IBS"]
    for axes, score in zip(figure.axes, ("c_index", "ibs"), strict=True):
        for line, record in zip(lines(axes), runs.values(), strict=True):
            expected = [(entry.number, entry.scores[score]) for entry in record.rounds]
            np.testing.assert_array_equal(line, expected)
    assert {text.get_text() for text in figure.axes[0].texts} == {"one 0.675", "other 0.767"}
    assert title(figure) == "C-index at the end: one 0.675, other 0.767"
    assert note(figure) == "public: simulated."
    assert figure.axes[-1].get_xlabel() == "Round"
    require_legible(figure)


def test_the_model_that_was_kept_is_a_dot():
    scores = [{"r2": value} for value in (0.1, 0.3, 0.2)]
    figure = overlay({"kept": run(scores, chosen=2), "last": run(scores)})
    dots = [line for line in figure.axes[0].lines if line.get_marker() == "o"]
    assert [line.get_xydata().tolist() for line in dots] == [[[2, 0.3]]]
    assert "Dots: the models kept." in note(figure)


def test_parts_of_scores_and_rounds_without_a_number_are_left_out():
    scores = [
        {"return": 1.0, "return_low": 0.0, "return_high": 2.0, "return@a": 3.0},
        {"return": math.nan},
        {},
    ]
    figure = overlay({"a": run(scores), "b": run([{"return": 5.0}, {"return": 6.0}])})
    assert len(figure.axes) == 1
    assert [line.tolist() for line in lines(figure.axes[0])] == [[[1, 1.0]], [[1, 5.0], [2, 6.0]]]


@pytest.mark.parametrize("runs", [{}, {"a": Record()}, {"a": run([{"r2": 0.1}]), "b": run([{"ibs": 0.1}])}])
def test_without_a_score_in_common_there_is_nothing_to_see(runs):
    assert overlay(runs) is None


@pytest.mark.parametrize("count", [2, 7, 12])
def test_up_to_a_dozen_runs_are_told_apart_and_named_beside_their_lines(count):
    names = [f"runs/metabric-epsilon-{place // 3}-seed-{place}" for place in range(count)]
    figure = overlay({name: climbing(0.6 + 0.001 * place) for place, name in enumerate(names)})
    require_legible(figure)
    for axes in figure.axes:
        looks = {(line.get_color(), line.get_linestyle()) for line in axes.lines}
        assert len(looks) == count
        assert len({text.get_text() for text in axes.texts}) == count
    dashed = [line.get_linestyle() for line in figure.axes[0].lines]
    assert dashed == ["-"] * min(count, 7) + ["--"] * (count - 7)
    if count > 3:
        assert title(figure).startswith(f"C-index of {count} runs at the end: from 0.575 (")


def test_long_names_keep_what_tells_them_apart():
    names = ["a-very-long-name-of-a-study-one", "a-very-long-name-of-a-study-two", "short"]
    figure = overlay({name: climbing(0.7 + place / 10) for place, name in enumerate(names)})
    shown = " ".join(text.get_text() for text in figure.axes[0].texts)
    assert shown == "\u2026one 0.675 \u2026two 0.775 short 0.875"


def test_runs_of_any_name_stay_legible():
    require_legible(overlay({name: climbing(0.6 + place / 50) for place, name in enumerate(HOSTILE)}))
    figure = frontier([row(name, 1 + place, 0.5 + place / 40) for place, name in enumerate(HOSTILE)], "$r$")
    require_legible(figure)
    assert "unnamed" in words(figure)


def test_a_run_is_a_labelled_dot_at_its_price_and_one_without_is_a_level():
    rows = [
        row("dear", 8.0, 0.63, low=0.6, high=0.66), row("cheap", 0.5, 0.58, low=None, high=None),
        row("open", None, 0.65), row("endless", math.inf, 0.64), row("ruined", 1.0, math.nan),
        row("silent", 1.0, None),
    ]  # fmt: skip
    figure = frontier(rows, "C-index")
    axes = figure.axes[0]
    assert axes.get_xscale() == "log"
    dots = [line.get_xydata()[0].tolist() for line in axes.lines if line.get_marker() == "o"]
    assert dots == [[0.5, 0.58], [8.0, 0.63]]
    assert [line.get_ydata()[0] for line in axes.lines if line.get_marker() != "o"] == [0.65, 0.64]
    bars = [path.vertices.tolist() for part in axes.collections for path in part.get_paths()]
    assert bars == [[[8.0, 0.6], [8.0, 0.66]]]
    shown = {text.get_text() for text in axes.texts}
    assert shown == {"cheap 0.580", "dear 0.630", "open 0.650", "endless 0.640"}
    assert [round(tick, 6) for tick in axes.get_xticks()] == [0.5, 8.0]
    assert title(figure) == "C-index: 0.580 at epsilon 0.5, 0.630 at epsilon 8"
    assert note(figure) == "Bars: intervals of the scores. Lines across: runs without an epsilon."
    require_legible(figure)


def test_dots_beside_each_other_keep_their_names_apart():
    rows = [row(f"seed-{place}", epsilon, 0.6) for epsilon in (1.0, 1.1, 8.0) for place in range(4)]
    figure = frontier(rows, "C-index")
    require_legible(figure)
    assert len(texts(figure)) >= 12
    # Names at the right end stand to the left of their dots, inside the axes.
    inside = figure.axes[0].get_window_extent()
    assert all(inside.x0 <= text.get_window_extent().x0 for text in figure.axes[0].texts)
    assert all(text.get_window_extent().x1 <= inside.x1 for text in figure.axes[0].texts)


def test_runs_of_one_price_are_told_by_their_range():
    figure = frontier([row("a", 3.0, 0.6), row("b", 3.0, 0.7)], "C-index")
    assert title(figure) == "C-index from 0.600 to 0.700 at epsilon 3"


@pytest.mark.parametrize("rows", [[], [row("a", 1.0, 0.5)], [row("a", 1.0, 0.5), row("b", None, 0.6)]])
def test_a_frontier_needs_two_prices(rows):
    assert frontier(rows, "C-index") is None


def test_no_dot_is_hidden_by_a_name():
    rows = [row(f"a-long-name-of-a-run-{place}", 1.0 + place / 10, 0.6 + place / 1000) for place in range(6)]
    axes = frontier(rows, "C-index").axes[0]
    dots = [line for line in axes.lines if line.get_marker() == "o"]
    assert len(dots) == 6
    assert min(dot.get_zorder() for dot in dots) > max(text.get_zorder() for text in axes.texts)
    assert axes.texts[0].get_fontsize() == style.BODY
