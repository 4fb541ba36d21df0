"""Results are drawn as they are: a dot for each model and score, with its interval."""

import pytest
from matplotlib.colors import same_color

from looking import HOSTILE, note, require_legible, texts, title, words
from tacit.reports.plots import style
from tacit.reports.plots.training import results


def model(name, label, scores, intervals=None):
    return {"name": name, "label": label, "scores": scores, "intervals": intervals or {}}


RESULT = {
    "goal": ["c_index", "max"],
    "how": "95 % of 1,000 draws of held-out records.",
    "models": [
        model("federated", "federated", {"ibs": 0.181, "c_index": 0.632}, {"c_index": [0.601, 0.66]}),
        model("alone", "each site alone", {"ibs": 0.203, "c_index": 0.598}, {"c_index": [0.561, 0.63]}),
        model("pooled", "pooled", {"ibs": 0.18, "c_index": 0.633}, {"c_index": [0.603, 0.661]}),
    ],
}
WORLDS = {
    "goal": ["return", "max"],
    "models": [
        model(
            "federated",
            "federated",
            {
                "return": 487.24, "return_low": 480.0, "return_high": 493.0, "iqm": 499.0, "solved": 0.83,
                "return_unseen": -1301.2, "return@windy": 3.0, "train_return": 1.0,
            },
        ),
        model("alone", "each site alone", {"return": 201.3, "iqm": 188.0, "solved": None}),
    ],
}  # fmt: skip


def dots(axes):
    """Heights and places of dots."""
    found = [line for line in axes.lines if line.get_marker() == "o"]
    return {int(line.get_ydata()[0]): float(line.get_xdata()[0]) for line in found}


def bars(axes):
    found = [line for line in axes.lines if line.get_marker() == "None" and len(line.get_xdata()) == 2]
    return {
        int(line.get_ydata()[0]): tuple(line.get_xdata()) for line in found if line.get_linestyle() == "-"
    }


def test_every_model_is_a_dot_with_its_interval_in_the_panel_of_its_score():
    figure = results(RESULT, provenance="released: epsilon 3")
    first, second = figure.axes
    assert [axes.get_xlabel() for axes in figure.axes] == [
        "C-index (higher is better)",
        "IBS (lower is better)",
    ]
    assert dots(first) == {0: 0.632, 1: 0.598, 2: 0.633}
    assert dots(second) == {0: 0.181, 1: 0.203, 2: 0.18}
    assert bars(first) == {0: (0.601, 0.66), 1: (0.561, 0.63), 2: (0.603, 0.661)}
    assert bars(second) == {}
    assert [text.get_text() for text in first.get_yticklabels()] == ["federated", "each site alone", "pooled"]
    assert first.yaxis_inverted()
    assert list(second.get_yticks()) == []
    assert [text.get_text() for text in first.texts] == ["0.632", "0.598", "0.633"]
    require_legible(figure)


def test_the_model_of_all_stands_out_and_is_marked_to_compare_with():
    axes = results(RESULT).axes[0]
    shades = [line.get_color() for line in axes.lines if line.get_marker() == "o"]
    assert [same_color(shade, style.PALETTE[0]) for shade in shades] == [True, False, False]
    marks = [line for line in axes.lines if line.get_linestyle() == ":"]
    assert [line.get_xdata()[0] for line in marks] == [0.632]


def test_the_title_says_what_the_score_that_counts_comes_to_and_the_note_where_it_is_from():
    figure = results(RESULT, provenance="released: epsilon 3.")
    assert title(figure) == "C-index: federated 0.632, each site alone 0.598, pooled 0.633"
    assert note(figure) == "released: epsilon 3. Bars: 95 % of 1,000 draws of held-out records."
    assert title(results(RESULT, title="Three of a kind")) == "Three of a kind"
    lower = results({**RESULT, "goal": ["ibs", "min"]})
    assert title(lower).startswith("IBS: federated 0.181")
    assert [axes.get_xlabel() for axes in lower.axes] == [
        "IBS (lower is better)",
        "C-index (higher is better)",
    ]
    assert title(results({"models": RESULT["models"]})).startswith("IBS")


def test_parts_of_a_score_are_left_out_and_a_ruined_model_is_called_broken():
    figure = results(WORLDS)
    shown = [axes.get_xlabel() for axes in figure.axes if axes.get_visible()]
    assert shown == ["return (higher is better)", "IQM", "share solved", "return, unseen"]
    assert sum(axes.get_visible() for axes in figure.axes) == 4
    assert dots(figure.axes[2]) == {0: 0.83}
    assert [text.get_text() for text in figure.axes[2].texts] == ["0.830", "broken"]
    assert dots(figure.axes[3]) == {0: -1301.2}
    assert "487.2" in words(figure)
    assert "-1,301" in words(figure)
    require_legible(figure)


@pytest.mark.parametrize(
    "models",
    [[], [model("federated", "federated", {})], [model("federated", "f", {"r2": float("nan"), "r2@a": 1.0})]],
)
def test_without_a_score_there_is_nothing_to_see(models):
    assert results({"models": models}) is None
    assert results({}) is None


def test_any_label_and_any_score_stay_legible():
    rows = [model("", label, {HOSTILE[5]: 0.5, "$x$": 1.0, HOSTILE[2]: 2.0}) for label in HOSTILE]
    figure = results({"models": rows})
    require_legible(figure)
    assert "unnamed" in words(figure)
    assert "<script>alert('x')" in words(figure)
    assert max(len(line) for text in texts(figure) for line in text.get_text().split("\n")) < 120
