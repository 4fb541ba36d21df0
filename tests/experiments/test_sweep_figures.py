"""Figures of a sweep: a curve with bands against epsilon, a number or words."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.collections import FillBetweenPolyCollection, LineCollection

from tacit.errors import InvalidValue
from tacit.experiments import sweeps
from tacit.experiments.sweep_results import SweepResult
from tacit.reports.plots.privacy_utility import by_number, by_word, privacy_utility

FILE = Path(__file__).parents[2] / "examples" / "network.toml"
MEANS = {"score": [0.6, 0.65, 0.7], "low": [0.55, 0.6, 0.66], "high": [0.65, 0.7, 0.74]}


def swept(*changes: str, seeds: int = 3) -> SweepResult:
    """A sweep with scores that rise with the place of their values."""
    sweep = sweeps.read(FILE, changes, seeds=seeds)
    rows = {}
    for cell in sweep.cells:
        score = 0.5 + 0.02 * sweep.combinations.index(cell.changes) + 0.01 * (cell.seed - 7)
        own = sweep.at(cell.changes).privacy
        unit = getattr(own, "unit", None)
        first = sweep._chosen(cell).baselines
        rows[cell] = {
            **cell.row, "unit": unit, "delta": 1e-5, "spent": getattr(own, "epsilon", None), "rounds": 2,
            "seconds": 1.0, "scores": {"c_index": score, "ibs": 0.2}, "failed": None,
            "baselines": {"alone": {"c_index": 0.55}, "pooled": {"c_index": 0.75}} if first else {},
        }  # fmt: skip
    return sweep.result(rows, None)


def words(figure) -> list[str]:
    return [text.get_text() for axes in figure.axes for text in axes.texts]


def drawn(figure, kind) -> list:
    return [part for axes in figure.axes for part in axes.collections if isinstance(part, kind)]


def test_the_score_is_drawn_against_epsilon_with_a_band_and_what_to_compare_with():
    figure = swept("privacy.epsilon=0.5,1,3,8,inf").figure()
    line = figure.axes[0].lines[-1]
    assert line.get_xdata().tolist() == [0.5, 1, 3, 8]
    np.testing.assert_allclose(line.get_ydata(), [0.51, 0.53, 0.55, 0.57])
    assert len(drawn(figure, FillBetweenPolyCollection)) == 1
    labels = " ".join(words(figure))
    for label in ("federated 0.570", "open 0.590", "each site alone 0.550", "pooled 0.750"):
        assert label in labels
    assert "Student's t" in figure._supxlabel.get_text()


def test_a_band_lies_between_the_ends_of_intervals():
    table = pd.DataFrame({"epsilon": [1.0, 2.0, 4.0], **MEANS})
    band = drawn(privacy_utility(table, band="what they are"), FillBetweenPolyCollection)[0]
    corners = band.get_paths()[0].vertices
    for epsilon, low, high in zip(table["epsilon"], table["low"], table["high"], strict=True):
        heights = corners[corners[:, 0] == epsilon, 1]
        assert (heights.min(), heights.max()) == (low, high)


def test_bars_are_still_drawn_where_nobody_says_what_intervals_are():
    figure = privacy_utility(pd.DataFrame({"epsilon": [1.0, 2.0, 4.0], **MEANS}))
    assert drawn(figure, FillBetweenPolyCollection) == []
    assert len(drawn(figure, LineCollection)) == 1


def test_other_keys_have_a_line_for_each_combination():
    figure = swept("privacy.epsilon=1,3", "task.lr=0.5,2", "aggregation.kind=mean,median").figure()
    labels = " ".join(words(figure))
    for label in ("lr 0.5, mean", "lr 2, median"):
        assert label in labels
    assert len(drawn(figure, FillBetweenPolyCollection)) == 4


def test_a_single_epsilon_has_a_bar():
    figure = swept("privacy.epsilon=3,inf").figure()
    assert len(drawn(figure, LineCollection)) == 1


def test_a_number_other_than_epsilon_is_an_axis_of_its_own():
    near, far = swept("task.steps=1,2,5").figure(), swept("task.lr=0.01,0.1,1").figure()
    assert near.axes[0].get_xscale() == "linear"
    assert near.axes[0].get_xticks().tolist() == [1, 2, 5]
    assert far.axes[0].get_xscale() == "log"
    assert near.axes[0].get_xlabel() == "task.steps"
    # Models without any promise depend on it as well.
    grey = [line for line in near.axes[0].lines if len(line.get_xdata()) == 3 and line.get_linestyle() != "-"]
    assert len(grey) == 2


def test_words_stand_one_below_the_other():
    figure = swept("aggregation.kind=mean,median,geometric-median").figure()
    ticks = [tick.get_text() for tick in figure.axes[0].get_yticklabels()]
    assert ticks == ["mean", "median", "geometric-median"]
    assert figure.axes[0].yaxis_inverted()
    assert "0.510" in words(figure)


def test_more_lines_than_can_be_told_apart_are_not_drawn():
    lists = ["privacy.epsilon=1,3", "task.lr=1,2,3", "task.steps=1,2,3"]
    many = swept(*lists, seeds=1)
    told: list[str] = []
    assert many.figure() is None
    assert many.figures("nowhere", announce=told.append) == {}
    assert len(told) == 1
    assert "Result" in [section.title for section in many.page().sections]


def test_figures_are_kept_as_files(tmp_path):
    found = swept("privacy.epsilon=1,3", seeds=2).figures(tmp_path / "figures")
    assert {name: path.name for name, path in found.items()} == {"privacy-utility": "privacy-utility.png"}
    assert found["privacy-utility"].stat().st_size > 10_000


def test_hostile_words_are_drawn_as_they_are(tmp_path):
    broken = r"$\frac{$"
    table = pd.DataFrame({"value": [f"<b>{broken}", "a" * 400, "&"], "method": ["x", broken, "y"], **MEANS})
    options = {"across": broken, "score": broken, "title": broken}
    by_word(table, **options, path=tmp_path / "words.png")
    by_number(table.assign(value=[1.0, 2.0, 3.0]), **options, path=tmp_path / "numbers.png")
    assert (tmp_path / "words.png").is_file()
    assert (tmp_path / "numbers.png").is_file()


@pytest.mark.parametrize("draw", [by_number, by_word])
def test_what_cannot_be_drawn_is_refused(draw):
    options = {"across": "lr", "score": "C-index", "title": "a title"}
    whole = pd.DataFrame({"value": [1.0, 2.0, 3.0], "method": "", **MEANS})
    with pytest.raises(InvalidValue, match="no column method"):
        draw(whole.drop(columns="method"), **options)
    with pytest.raises(InvalidValue, match="no row"):
        draw(whole.head(0), **options)
    with pytest.raises(InvalidValue, match=r"score = .*finite in every row"):
        draw(whole.assign(score=np.nan), **options)
