"""Figures of curves show the numbers they are given, say what they are, and stay legible."""

import inspect
import sys

import matplotlib
import numpy as np
import pandas as pd
import pytest

from looking import require_legible, texts
from tacit.errors import InvalidValue
from tacit.functional import figures

S, T = np.linspace(0, 100, 21), np.linspace(0, 50, 26)
EPSILONS = [1.0, 4.0, 10.0, 40.0, 100.0]
PARTIES = [2, 4, 6, 8, 10]
PATH = ["x4", "x5", "x3", "x1", "x2", "x4", "x5", "x3", "x1", "x7", "x4"]
ACTIVE = ["x1", "x2", "x3", "x4", "x5"]
CURVE = 0.1 + 0.9 * 0.85 ** np.arange(41) + 0.001 * np.arange(41)
METHODS = ["local"] * 5 + ["moments"] * 5
PRICES = {
    "epsilon": EPSILONS * 2,
    "score": [0.99, 0.78, 0.42, 0.13, 0.10, 0.18, 0.114, 0.102, 0.099, 0.098],
    "error": [0.01, 0.03, 0.02, 0.005, 0.003] * 2,
    "method": METHODS,
}
DIVIDED = {
    "parties": PARTIES * 2,
    "score": [0.105, 0.106, 0.104, 0.105, 0.107, 0.31, 0.30, 0.32, 0.31, 0.305],
    "error": [0.003] * 5 + [0.02] * 5,
    "method": METHODS,
}
FOUND = {
    "parties": PARTIES * 2,
    "epsilon": EPSILONS * 2,
    "sensitivity": [1.0] * 5 + [0.8, 0.8, 0.84, 0.8, 0.78],
    "specificity": [1, 0.99, 1, 1, 1, 0.95, 0.93, 0.96, 0.95, 0.95],
    "sensitivity_error": [0.0] * 5 + [0.04] * 5,
    "specificity_error": [0.01] * 10,
    "method": METHODS,
}


def beta(size=1.0):
    return size * np.sin(np.pi * S / 100)[:, None] * np.cos(np.pi * T / 50)


def subjects(count=40):
    draws = np.random.default_rng(0)
    parts = draws.normal(size=(count, 4))
    waves = np.cos(np.pi * np.arange(4)[:, None] * T / 50)
    return parts @ waves, (0.9 * parts + 0.2 * draws.normal(size=(count, 4))) @ waves


def named(count):
    return {f"x{number}": beta(number) for number in range(1, count + 1)}


GALLERY = {
    "surface": lambda: figures.surface(beta(), S, T, name="x4", unit="minutes"),
    "surface and truth": lambda: figures.surface(beta(), S, T, truth=beta(1.1)),
    "one of several": lambda: figures.surfaces(named(1), S, T),
    "two surfaces": lambda: figures.surfaces(named(2), S, T),
    "five surfaces": lambda: figures.surfaces(named(5), S, T, unit="minutes"),
    "surfaces and truth": lambda: figures.surfaces(named(5), S, T, truth=named(5)),
    "path": lambda: figures.selection_path(PATH, kept=9, active=ACTIVE),
    "path of one": lambda: figures.selection_path(["temperature at the airport"] * 120),
    "stopping": lambda: figures.stopping(CURVE, references={"noise": 0.0909}),
    "stopping at the end": lambda: figures.stopping(CURVE[:9]),
    "stopping at once": lambda: figures.stopping(CURVE, 0, criterion="AICc"),
    "predictions": lambda: figures.predictions(*subjects(), T, unit="hours", response="Demand (MW)"),
    "four predictions": lambda: figures.predictions(*subjects(), T, rows=[0, 3, 1, 2]),
    "one prediction": lambda: figures.predictions(*subjects(), T, count=1),
    "privacy": lambda: figures.privacy_utility(
        PRICES, references={"open": 0.095, "noise": 0.0909}, provenance="public: simulated"
    ),
    "parties": lambda: figures.by_parties(DIVIDED, references={"noise": 0.0909}),
    "parties of one": lambda: figures.by_parties({"parties": PARTIES, "score": DIVIDED["score"][:5]}),
    "one number of parties": lambda: figures.by_parties({"parties": [3], "score": [0.1]}),
    "selection": lambda: figures.selection(FOUND),
    "selection by epsilon": lambda: figures.selection(FOUND, by="epsilon", provenance="public: simulated"),
}


def words(figure):
    return " ".join(text.get_text().replace("\n", " ") for text in texts(figure))


def title(figure):
    return figure._suptitle.get_text()


def lines(axes):
    return [np.asarray(line.get_xydata()) for line in axes.lines]


@pytest.mark.parametrize("name", GALLERY)
def test_words_stay_inside_and_apart_and_name_what_is_seen(name):
    before = dict(matplotlib.rcParams)
    figure = GALLERY[name]()
    require_legible(figure)
    assert title(figure)
    assert figure.get_size_inches()[0] == 6.5
    assert dict(matplotlib.rcParams) == before


def test_no_figure_is_left_open():
    from matplotlib import pyplot  # as a user's own code has it

    figures.surface(beta(), S, T)
    figures.by_parties(DIVIDED)
    assert pyplot.get_fignums() == []
    assert "pyplot" not in inspect.getsource(sys.modules["tacit.functional.figures"])


def test_names_of_any_length_and_script_stay_legible():
    names = ["$a_b$ & 100 %", "a very long name of a curve that nobody could ever shorten", "Århus", "x"]
    require_legible(figures.surfaces(dict.fromkeys(names, beta()), S, T, truth=dict.fromkeys(names, beta())))
    require_legible(figures.selection_path(names * 3, active=names[:2]))
    require_legible(figures.predictions(*subjects(), T, response=names[1], title="word " * 60))


def test_a_surface_is_drawn_as_it_is_with_white_at_zero():
    figure = figures.surface(beta(0.02), S, T, name="x4", unit="minutes")
    axes, bar = figure.axes
    mesh = axes.collections[0]
    np.testing.assert_array_equal(np.asarray(mesh.get_array()), beta(0.02).T)
    low, high = mesh.get_clim()
    assert low == -high == -0.02
    np.testing.assert_allclose(mesh.get_cmap()(0.5), (1, 1, 1, 1), atol=0.02)
    assert title(figure) == "Effect of x4: farthest from 0 at s = 50 minutes, t = 0 minutes (0.02)"
    assert bar.get_ylabel() == "beta(s, t)"
    assert "see the statement of its run" in words(figure)
    assert "none" in title(figures.surface(0 * beta(), S, T, name="x4"))


def test_surfaces_share_a_scale_and_stand_above_the_truth():
    figure = figures.surfaces(named(3), S, T, truth=named(3))
    panels = [axes for axes in figure.axes[:-1] if axes.get_visible()]
    assert {axes.collections[0].get_clim() for axes in panels} == {(-3.0, 3.0)}
    above, below = panels[:3], panels[3:]
    for number, (one, other) in enumerate(zip(above, below, strict=True), start=1):
        assert one.get_title(loc="left") == f"x{number}, estimated"
        assert other.get_title(loc="left") == f"x{number}, true"
    assert title(figure) == "Effects of 3 predictors: x3 is the farthest from 0 (3)"


def test_a_path_has_a_dot_for_each_step_and_hollow_ones_for_those_not_kept():
    figure = figures.selection_path(PATH, kept=9, active=ACTIVE)
    axes = figure.axes[0]
    dots = [line for line in axes.lines if line.get_marker() == "o"]
    full, hollow = (
        sorted(
            (int(x), int(y))
            for line in dots
            for x, y in line.get_xydata()
            if (line.get_mfc() == "white") is empty
        )
        for empty in (False, True)
    )
    rows = list(dict.fromkeys(PATH))
    assert full == [(step, rows.index(name)) for step, name in enumerate(PATH[:9], start=1)]
    assert [step for step, _ in hollow] == [10, 11]
    assert title(figure) == "9 steps found 5 of 5 active predictors and 0 others"
    assert "2 of 9" in words(figure)
    assert title(figures.selection_path(PATH)) == "11 steps of boosting chose 6 predictors, x4 first"
    assert title(figures.selection_path(PATH, kept=0)) == "No step was kept: the model is the mean curve"


def test_a_criterion_is_drawn_with_the_chosen_step():
    figure = figures.stopping(CURVE)
    best = int(CURVE.argmin())
    drawn = lines(figure.axes[0])
    assert any(np.array_equal(line, np.column_stack([np.arange(41), CURVE])) for line in drawn)
    assert [best, CURVE[best]] in [line[0].tolist() for line in drawn if len(line) == 1]
    assert title(figure) == f"Cross-validated error: {CURVE[best]:.3g} after {best} steps"
    assert title(figures.stopping(CURVE, 7, criterion="AIC")) == f"AIC: {CURVE[7]:.3g} after 7 steps"


def test_predictions_have_a_band_of_residuals_and_go_from_the_best_to_the_worst():
    true, predicted = subjects()
    figure = figures.predictions(true, predicted, T, count=3, level=0.8)
    shown = [int(axes.get_title(loc="left").split()[1].rstrip(",")) for axes in figure.axes]
    weights = np.full(len(T), 1.0)
    weights[[0, -1]] = 0.5
    relative = (weights * (true - predicted) ** 2).sum(axis=1) / (weights * true**2).sum(axis=1)
    order = relative.argsort()
    assert shown == [order[0], order[round((len(order) - 1) / 2)], order[-1]]
    low, high = np.quantile(true - predicted, [0.1, 0.9], axis=0)
    for row, axes in zip(shown, figure.axes, strict=True):
        np.testing.assert_allclose(lines(axes)[0][:, 1], predicted[row])
        np.testing.assert_allclose(lines(axes)[1][:, 1], true[row])
        band = axes.collections[0].get_paths()[0].vertices[:, 1]
        for edge in (predicted[row] + low, predicted[row] + high):
            assert np.isclose(band[:, None], edge).any(axis=0).all()
    assert "unprotected: curves and predictions of these subjects" in words(figure)
    assert "the middle 80 % of residuals of 40 subjects" in words(figure)


def test_curves_with_holes_are_drawn_as_points():
    true, predicted = subjects()
    true[:, ::3] = np.nan
    figure = figures.predictions(true, predicted, T, count=2)
    assert all(axes.lines[1].get_marker() == "." for axes in figure.axes)
    require_legible(figure)
    unknown = np.where(np.isnan(true), np.nan, predicted)
    assert title(figures.predictions(true, unknown, T)) == title(figure)
    assert title(figures.predictions(true[:1], predicted[:1], T)) == "Response: true and predicted"


def test_prices_are_told_by_the_best_score():
    figure = figures.privacy_utility(PRICES)
    assert title(figure) == "RIL2: 0.180 at epsilon 1, 0.098 at epsilon 100"
    assert "one standard error" in words(figure)
    higher = figures.privacy_utility(PRICES, score="R2", better="higher")
    assert title(higher) == "R2: 0.990 at epsilon 1, 0.100 at epsilon 100"


def test_scores_by_parties_are_drawn_from_zero_with_their_errors():
    figure = figures.by_parties(pd.DataFrame(DIVIDED), references={"noise": 0.0909})
    axes = figure.axes[0]
    drawn = [line for line in lines(axes) if len(line) == 5]
    for method, line in zip((slice(5), slice(5, None)), drawn, strict=True):
        np.testing.assert_allclose(line, np.column_stack([PARTIES, DIVIDED["score"][method]]))
    bars = axes.collections[1].get_segments()
    np.testing.assert_allclose(bars[0][:, 1], [0.29, 0.33])
    assert axes.get_ylim()[0] == 0
    assert [float(tick) for tick in axes.get_xticks()] == PARTIES
    assert title(figure) == "RIL2 with 2 to 10 parties: local 0.104 to 0.107, moments 0.300 to 0.320"


def test_selection_is_drawn_in_two_panels_from_nothing_to_all():
    left, right = figures.selection(FOUND, by="epsilon").axes
    np.testing.assert_allclose(lines(left)[1][:, 1], FOUND["sensitivity"][5:])
    np.testing.assert_allclose(lines(right)[0][:, 1], FOUND["specificity"][:5])
    assert left.get_xscale() == "log"
    assert left.get_ylim()[0] < 0
    assert left.get_ylim()[1] > 1
    told = title(figures.selection(FOUND))
    assert told == "Selection of predictors: sensitivity at least 0.78, specificity at least 0.93"


def test_a_figure_is_kept_where_it_is_told_and_repeats(tmp_path):
    for ending in (".png", ".svg", ".pdf"):
        figures.surface(beta(), S, T, path=tmp_path / f"figure{ending}")
        assert (tmp_path / f"figure{ending}").stat().st_size > 1000
    figures.by_parties(DIVIDED, path=tmp_path / "one.png")
    figures.by_parties(DIVIDED, path=tmp_path / "two.png")
    assert (tmp_path / "one.png").read_bytes() == (tmp_path / "two.png").read_bytes()


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: figures.surface(beta().T, S, T), "of shape (21, 26)"),
        (lambda: figures.surface(beta(), S[::-1], T), "at least two, ascending"),
        (lambda: figures.surface(np.full((21, 26), np.nan), S, T, name="x2"), "surface of x2"),
        (lambda: figures.surfaces({}, S, T), "at least one predictor"),
        (lambda: figures.surfaces(named(2), S, T, truth=named(1)), "truth has no surface of x2"),
        (lambda: figures.selection_path([]), "at least one step"),
        (lambda: figures.selection_path(PATH, kept=99), "kept = 99"),
        (lambda: figures.stopping([]), "curve = "),
        (lambda: figures.stopping(CURVE, 41), "a step from 0 to 40"),
        (lambda: figures.predictions(*subjects(), T, rows=[40]), "each from 0 to 39"),
        (lambda: figures.predictions(*subjects(), T, count=0), "count = 0"),
        (lambda: figures.predictions(*subjects(), T, level=1.0), "level = 1.0"),
        (lambda: figures.predictions(subjects()[0], subjects(30)[1], T), "predicted = "),
        (lambda: figures.privacy_utility({"epsilon": [1.0]}), "table has no column score"),
        (lambda: figures.privacy_utility(PRICES, better="best"), "better = 'best'"),
        (lambda: figures.by_parties({"parties": [], "score": []}), "at least one row"),
        (lambda: figures.by_parties({"parties": [0], "score": [1.0]}), "above 0"),
        (lambda: figures.by_parties({"parties": [1], "score": [np.nan]}), "finite"),
        (lambda: figures.selection(FOUND, by="steps"), "by = 'steps'"),
        (lambda: figures.by_parties(DIVIDED, path="figure.txt"), ".png"),
    ],
)  # fmt: skip
def test_what_cannot_be_drawn_is_told_in_one_sentence(call, told):
    with pytest.raises(InvalidValue) as refused:
        call()
    assert told in str(refused.value)
