"""Figures show the numbers they are given, say what they are and where they come from, and leave no trace."""

import inspect
import itertools
import sys
import warnings
from dataclasses import replace
from functools import lru_cache

import matplotlib
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.colors import same_color, to_rgb
from matplotlib.text import Text

from tacit import Federation, Key, Ledger, Open, Privacy
from tacit.errors import InvalidValue
from tacit.learning.record import Record, Round
from tacit.privacy.statement import state
from tacit.reports.plots import style
from tacit.sites.splits import Dirichlet, Iid
from tacit.sites.table import from_arrays, from_frame
from tacit.survival import figures
from tacit.survival.statistics import (
    aalen_johansen,
    breslow,
    censoring,
    cox,
    kaplan_meier,
    life_table,
    logrank,
    nelson_aalen,
)

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from lifelines.datasets import load_gbsg2

GRID = np.linspace(0, 2600, 27)[1:]
EPSILONS = [0.3, 1.0, 3.0, 10.0]


@lru_cache
def breast_cancer():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        data = load_gbsg2().rename(columns={"cens": "event"})
    data = data.assign(horTh=(data["horTh"] == "yes") * 1.0, nodes=np.log1p(data["pnodes"]))
    return data[["time", "event", "horTh", "nodes", "age"]].astype(float)


@lru_cache
def hospitals(count=4):
    table = from_frame(breast_cancer(), targets=("time", "event"))
    split = Dirichlet(count=count, alpha=0.5) if count < 6 else Iid(count=count)
    rows = split(table, Key(2))
    return Federation({name: table.take(own, f"site {name}") for name, own in rows.items()})


@lru_cache
def competing():
    draws = np.random.default_rng(1)
    first, second, end = draws.exponential(5, 300), draws.exponential(9, 300), draws.uniform(0, 12, 300)
    time = np.minimum(np.minimum(first, second), end)
    event = np.where(time == end, 0, np.where(time == first, 1, 2))
    return Federation({"a": from_arrays(draws.normal(size=(300, 1)), time=time, event=event)}, public=True)


@lru_cache
def fits():
    alone = {name: cox(Federation({name: site.table})) for name, site in hospitals().items()}
    return {**alone, "pooled": cox(hospitals())}


class Exponential:
    """A model whose hazard is its first feature."""

    def survival(self, features, times):
        return np.exp(-np.asarray(features, dtype=float)[:, :1] * np.asarray(times))


class Run:
    """Stand-in for a run, with the data of its figures."""

    def __init__(self, privacy=None, epsilon=None, chosen=6, baselines=None):
        scores = [{"c_index": 0.6 + 0.02 * n, "ibs": 0.25 - 0.01 * n} for n in range(1, 7)]
        self.record = Record(
            rounds=tuple(
                Round(number=n, rounds=6, sites=3, scores=found, seconds=1.0, budget=epsilon,
                      epsilon=None if epsilon is None else epsilon * n / 6)
                for n, found in enumerate(scores, start=1)
            ),
            chosen=chosen,
            scores=scores[chosen - 1],
            baselines=baselines or {},
        )  # fmt: skip
        rows = [{"round": r.number, "sites": 3, **r.scores, "epsilon": r.epsilon} for r in self.record.rounds]
        self.history = pd.DataFrame(rows).set_index("round")
        self.privacy = state(privacy or Open(), [])


BASELINES = {"alone": {"c_index": 0.62, "ibs": 0.24}, "pooled": {"c_index": 0.74, "ibs": 0.18}}
PRICES = pd.DataFrame(
    {
        "epsilon": EPSILONS * 2,
        "score": [0.68, 0.72, 0.74, 0.75, 0.60, 0.66, 0.69, 0.70],
        "low": [0.66, 0.71, 0.735, 0.747, 0.58, 0.65, 0.68, 0.69],
        "high": [0.70, 0.73, 0.745, 0.753, 0.62, 0.67, 0.70, 0.71],
        "method": ["poisson-ph"] * 4 + ["deep-surv"] * 4,
    }
)


def survival_by(at):
    fit = cox(hospitals())
    base = breslow(hospitals(), fit.log_risk, life_table(hospitals()))
    risk = np.exp(fit.log_risk(breast_cancer()[list(fit.columns)]))
    hazard = base.at(at) if np.ndim(at) else base.at([at])[0]
    return np.exp(-hazard * risk)


def drawn_calibration(**options):
    data = breast_cancer()
    given = {"bins": 8, "survival_at_time": survival_by(data["time"].to_numpy()), "unit": "days"} | options
    return figures.calibration(data["time"], data["event"], survival_by(1000.0), 1000.0, **given)


GALLERY = {
    "training": lambda: figures.training(Run()),
    "training with all": lambda: figures.training(
        Run(Privacy(unit="record", epsilon=3.0, delta=1e-4, clip=1.0), 3.0, chosen=4, baselines=BASELINES)
    ),
    "estimates": lambda: figures.estimates(kaplan_meier(hospitals()), unit="days"),
    "estimates by name": lambda: figures.estimates(
        {
            "bare": kaplan_meier(hospitals(), grid=GRID),
            "private": kaplan_meier(hospitals(), grid=GRID, epsilon=1.0, ledger=Ledger(), key=Key(3)),
        }
    ),
    "hazard": lambda: figures.estimates(nelson_aalen(hospitals()), unit="days"),
    "censoring": lambda: figures.estimates(censoring(hospitals())),
    "by site": lambda: figures.kaplan_meier_by_site(hospitals(), unit="days"),
    "by many sites": lambda: figures.kaplan_meier_by_site(hospitals(9), unit="days"),
    "few records": lambda: figures.survival_curves(
        Exponential(), [[1.0], [1.01], [1.02], [0.2]], np.linspace(0, 2, 30)
    ),
    "many records": lambda: figures.survival_curves(
        Exponential(), np.linspace(0.1, 2, 40)[:, None], np.linspace(0, 2, 30), unit="years"
    ),
    "incidence": lambda: figures.cumulative_incidence(aalen_johansen(competing(), causes=2), unit="years"),
    "layers": lambda: figures.cumulative_incidence(
        aalen_johansen(competing(), causes=2), ["relapse", "death in remission"], kind="stacked"
    ),
    "calibration": drawn_calibration,
    "calibration alone": lambda: drawn_calibration(survival_at_time=None),
    "forest": lambda: figures.forest(fits()),
    "forest of one": lambda: figures.forest({"all": cox(hospitals())}),
    "privacy": lambda: figures.privacy_utility(PRICES, references={"open": 0.756, "alone": 0.69}),
    "privacy of one": lambda: figures.privacy_utility(PRICES.iloc[:4][["epsilon", "score"]]),
}


def texts(figure):
    """Every text that is seen."""
    seen = [figure._suptitle, figure._supxlabel, figure._supylabel, *figure.texts]
    for axes in figure.axes:
        if axes.get_visible():
            seen += [*axes.texts, axes.title, axes._left_title, axes.xaxis.label, axes.yaxis.label]
            for axis in (axes.xaxis, axes.yaxis):
                low, high = sorted(axis.get_view_interval())
                slack = 1e-9 * (high - low)
                within = (low - slack, high + slack)
                ticks = [tick for tick in axis.get_major_ticks() if within[0] <= tick.get_loc() <= within[1]]
                seen += [tick.label1 for tick in ticks]
    words = [text for text in dict.fromkeys(seen) if text is not None and text.get_visible()]
    return [text for text in words if text.get_text().strip()]


def boxes(figure):
    """Every text that is seen, and the box that it fills: the words, not the leader of an annotation."""
    figure.draw_without_rendering()
    return {text: Text.get_window_extent(text) for text in texts(figure)}


def require_legible(figure):
    found = boxes(figure)
    width, height = figure.get_size_inches() * figure.dpi
    for text, box in found.items():
        inside = box.x0 >= -0.5 and box.y0 >= -0.5 and box.x1 <= width + 0.5 and box.y1 <= height + 0.5
        assert inside, f"{text.get_text()!r} leaves the figure: {box}"
        assert text.get_fontsize() >= style.SMALL
    for (one, first), (other, second) in itertools.combinations(found.items(), 2):
        across = min(first.x1, second.x1) - max(first.x0, second.x0)
        up = min(first.y1, second.y1) - max(first.y0, second.y0)
        # Boxes hold room for letters that go lower; lines one below the other may share a part of it.
        assert across < 1 or up < 2.5, f"{one.get_text()!r} is on {other.get_text()!r}"


def lines(axes):
    return [np.asarray(line.get_xydata()) for line in axes.lines]


def words(figure):
    return " ".join(text.get_text().replace("\n", " ") for text in texts(figure))


@pytest.mark.parametrize("name", GALLERY)
def test_words_stay_inside_and_apart_and_name_what_is_seen(name):
    before = dict(matplotlib.rcParams)
    figure = GALLERY[name]()
    require_legible(figure)
    assert figure._suptitle.get_text()
    shown = [axes for axes in figure.axes if axes.get_visible() and axes.lines]
    assert all(axes.get_xlabel() or figure.axes[-1].get_xlabel() for axes in shown)
    upright = name.startswith("forest") or figure._supylabel is not None
    assert upright or all(axes.get_ylabel() for axes in shown)
    assert figure.get_size_inches()[0] == 6.5
    assert dict(matplotlib.rcParams) == before


def test_no_figure_is_left_open():
    from matplotlib import pyplot  # as a user's own code has it

    figures.privacy_utility(PRICES)
    assert pyplot.get_fignums() == []
    for module in ("tacit.survival.figures", "tacit.survival.figures.curves",
                   "tacit.survival.figures.importance",
                   "tacit.reports.plots.training", "tacit.reports.plots.style"):  # fmt: skip
        assert "pyplot" not in inspect.getsource(sys.modules[module])


def test_names_of_any_length_and_script_stay_legible():
    names = ["$a_b$ & 100 %", "a very long name of a hospital that nobody could ever shorten", "Århus", "x"]
    sites = dict(zip(names, hospitals().values(), strict=True))
    named = Federation({name: site.table for name, site in sites.items()})
    require_legible(figures.kaplan_meier_by_site(named, unit="days"))
    require_legible(figures.forest(dict(zip(names, fits().values(), strict=False))))
    figure = figures.estimates(kaplan_meier(named), title="word " * 60 + "x" * 200)
    require_legible(figure)


def test_an_estimate_is_drawn_as_it_is():
    found = kaplan_meier(hospitals())
    axes, risks = figures.estimates(found).axes
    np.testing.assert_array_equal(
        lines(axes)[0], np.column_stack([found.table.index, found.table["survival"]])
    )
    assert axes.lines[0].get_drawstyle() == "steps-post"
    assert len(axes.collections) == 1
    band = axes.collections[0].get_paths()[0].vertices
    assert set(found.table["lower"]) <= set(band[:, 1])
    assert set(found.table["upper"]) <= set(band[:, 1])
    shown = [text.get_text() for text in risks.texts]
    assert shown == [f"{count:,.0f}" for count in found.at_risk(axes.get_xticks())]
    assert axes.get_ylabel() == "Probability of no event"


def test_what_is_spread_is_drawn_in_straight_lines():
    found = kaplan_meier(hospitals(), grid=GRID, epsilon=2.0, ledger=Ledger())
    figure = figures.estimates(found)
    assert figure.axes[0].lines[0].get_drawstyle() == "default"
    assert "released: epsilon 2 at delta 0 for any one record" in words(figure)


def test_a_title_tells_the_median_or_the_last_value():
    found = kaplan_meier(hospitals())
    title = figures.estimates(found, unit="days")._suptitle.get_text()
    assert title == f"Median time to the event: {found.median:.4g} days"
    hazard = nelson_aalen(hospitals())
    title = figures.estimates(hazard)._suptitle.get_text()
    assert (
        title == f"Cumulative hazard by {hazard.table.index[-1]:.4g}: {hazard.table['hazard'].iloc[-1]:.2f}"
    )
    assert figures.estimates(found, title="mine")._suptitle.get_text() == "mine"


def test_each_site_has_its_own_curve_and_stops_at_its_last_exit():
    figure = figures.kaplan_meier_by_site(hospitals(), unit="days")
    axes = figure.axes[0]
    assert len(axes.lines) == len(hospitals()) == len({line.get_color() for line in axes.lines})
    for (name, site), line in zip(hospitals().items(), lines(axes), strict=True):
        own = kaplan_meier(Federation({name: site.table}))
        np.testing.assert_allclose(np.interp(own.table.index, *line.T), own.at(own.table.index), atol=1e-12)
        assert line[-1, 0] == site.table.targets["time"].max()
    assert {text.get_text() for text in axes.texts} == set(hospitals())
    assert words(figure).count("bare: counts of exits") == 1


def test_sites_are_compared_by_the_log_rank_test():
    p = logrank(hospitals()).p
    title = figures.kaplan_meier_by_site(hospitals())._suptitle.get_text()
    assert title == f"Survival does not clearly differ between sites (log-rank p {p:.2g})"
    early = breast_cancer()["time"] < 1000
    parts = {"early": breast_cancer()[early], "late": breast_cancer()[~early]}
    apart = Federation({name: from_frame(part, targets=("time", "event")) for name, part in parts.items()})
    title = figures.kaplan_meier_by_site(apart)._suptitle.get_text()
    assert title == "Survival differs between sites (log-rank p below 0.0001)"


def test_counts_that_were_paid_for_are_drawn_without_paying_again():
    ledger = Ledger()
    table = life_table(hospitals(), grid=GRID, epsilon=1.0, ledger=ledger)
    spent = ledger.spent(0.0)
    figure = figures.kaplan_meier_by_site(table)
    assert ledger.spent(0.0) == spent
    assert "released: epsilon 1" in words(figure)
    assert "bare" not in words(figure)


def test_many_sites_have_a_panel_each_before_the_curve_of_all():
    figure = figures.kaplan_meier_by_site(hospitals(9))
    shown = [axes for axes in figure.axes if axes.get_visible()]
    assert len(shown) == 9
    everybody = kaplan_meier(hospitals(9)).table["survival"]
    for axes, (name, site) in zip(shown, hospitals(9).items(), strict=True):
        np.testing.assert_array_equal(lines(axes)[0][:, 1], everybody)
        assert axes.get_title(loc="left") == f"{name} ({len(site.table)})"


def test_curves_by_name_can_be_drawn_by_site():
    curves = figures.by_site(life_table(hospitals(7)))
    assert len([axes for axes in figures.kaplan_meier_by_site(curves).axes if axes.get_visible()]) == 7


def test_the_curve_of_a_site_is_that_of_its_records_alone():
    table = life_table(hospitals(), grid=GRID)
    for name, found in figures.by_site(table).items():
        alone = kaplan_meier(Federation({name: hospitals()[name].table}), grid=GRID)
        pd.testing.assert_frame_equal(found.table, alone.table)
        assert found.provenance == table.provenance


def test_predictions_are_drawn_as_they_are():
    times = np.linspace(0, 3, 20)
    figure = figures.survival_curves(Exponential(), [[1.0], [0.5]], times, labels=["Anna", "Bert"])
    for rate, line in zip((1.0, 0.5), lines(figure.axes[0]), strict=True):
        np.testing.assert_allclose(line, np.column_stack([times, np.exp(-rate * times)]))
    assert [text.get_text() for text in figure.axes[0].texts] == ["Anna", "Bert"]
    assert "predicted by a model" in words(figure)


def test_many_predictions_are_drawn_as_their_mean_and_spread():
    features, times = np.linspace(0.1, 2, 40)[:, None], np.linspace(0, 3, 20)
    axes = figures.survival_curves(Exponential(), features, times).axes[0]
    np.testing.assert_allclose(lines(axes)[0][:, 1], Exponential().survival(features, times).mean(axis=0))
    assert len(axes.collections) == 2


def test_incidence_has_a_line_for_each_cause_or_layers_that_add_up():
    found = aalen_johansen(competing(), causes=2)
    axes = figures.cumulative_incidence(found).axes[0]
    for cause, line in enumerate(lines(axes), start=1):
        np.testing.assert_array_equal(line[:, 1], found.table[f"incidence_{cause}"])
    stacked = figures.cumulative_incidence(found, ["relapse", "death"], kind="stacked").axes[0]
    assert len(stacked.collections) == 2
    top = stacked.collections[1].get_paths()[0].vertices[:, 1].max()
    assert top == pytest.approx(found.table[["incidence_1", "incidence_2"]].iloc[-1].sum())
    assert [text.get_text() for text in stacked.texts] == ["relapse", "death"]


def test_calibration_sets_predictions_beside_kaplan_meier_in_each_bin():
    data, given = breast_cancer(), survival_by(1000.0)
    groups = pd.qcut(1 - given, 7, labels=False)
    axes = drawn_calibration(bins=7).axes[0]
    points = lines(axes)[1]
    assert len(points) == 7
    for group, (predicted, observed) in enumerate(points):
        part = groups == group
        own = data[part]
        alone = kaplan_meier(Federation({"a": from_frame(own, targets=("time", "event"))}))
        assert predicted == pytest.approx(1 - given[part].mean())
        assert observed == pytest.approx(1 - alone.at([1000.0])[0])
    assert lines(axes)[0].tolist() == [[0, 0], [axes.get_xlim()[1]] * 2]


def test_d_calibration_is_drawn_if_it_can_be_had():
    data, own = breast_cancer(), survival_by(breast_cancer()["time"].to_numpy())
    shares = figures.calibration.__globals__["d_calibration"](data["time"], data["event"], own, 8).shares
    figure = drawn_calibration()
    np.testing.assert_allclose([bar.get_height() for bar in figure.axes[1].patches[1:]], shares)
    assert len(drawn_calibration(survival_at_time=None).axes) == 1


def test_equal_predictions_share_a_bin_and_unknown_bins_are_told():
    time, event = np.arange(1.0, 41.0), np.tile([1, 0], 20)
    axes = figures.calibration(time, event, np.full(40, 0.5), 10.0).axes[0]
    assert len(lines(axes)[1]) == 1
    short = np.repeat([0.9, 0.1], 20)
    figure = figures.calibration(time, np.where(time == 20, 0, event), short, 30.0, bins=2)
    assert "1 of 2 bins not drawn" in words(figure)


def test_a_forest_has_a_square_for_each_site_and_a_diamond_for_all():
    figure = figures.forest(fits())
    axes, columns, sites = figure.axes[0], fits()["pooled"].columns, len(fits()) - 1
    assert axes.get_xscale() == "log"
    squares = np.array([part.get_offsets()[0] for part in axes.collections if len(part.get_offsets()) == 1])
    squares = squares[squares[:, 0] > 0]
    assert len(axes.patches) == len(columns)
    pooled = fits()["pooled"].summary()
    for place, patch in enumerate(axes.patches):
        corners, row = patch.get_xy(), pooled.iloc[place]
        assert corners[:, 0].min() == pytest.approx(row["exp(coef) lower 95%"])
        assert corners[:, 0].max() == pytest.approx(row["exp(coef) upper 95%"])
    ratios = [np.exp(fits()[name].coefficients[k]) for k in range(len(columns)) for name in hospitals()]
    np.testing.assert_allclose(squares[:, 0], ratios)
    assert len(axes.get_yticklabels()) == len(columns) * (sites + 2)
    row = pooled.loc["nodes"]
    shown = [f"{row[f'exp(coef){end}']:.2f}" for end in ("", " lower 95%", " upper 95%")]
    assert f"{shown[0]} ({shown[1]} to {shown[2]})" in words(figure)


def test_a_forest_tells_how_sites_differ():
    errors = np.array([0.1, 0.1])
    spread = figures.forest.__globals__["_spread"]
    assert spread(np.array([0.2, 0.2]), errors) == "I² 0 %"
    # Q = 2 * 0.5^2 / 0.1^2 = 50 on one degree of freedom.
    assert spread(np.array([-0.5, 0.5]), errors) == "I² 98 %"
    assert spread(np.array([0.5]), errors[:1]) == ""


@given(st.floats(-90, -0.05), st.floats(0.05, 90))
@settings(max_examples=200)
def test_hazard_ratios_are_marked_from_end_to_end(low, high):
    marks = figures.forest.__globals__["ratio_marks"](low, high)
    assert 1.0 in marks
    assert 1 <= len(marks) <= 7
    assert low <= np.log(min(marks)) <= np.log(max(marks)) <= high


def test_a_forest_can_be_of_some_columns_and_of_fits_that_lack_one():
    less = {**fits(), "small": cox(hospitals(), columns=["age"])}
    figure = figures.forest(less, columns=["age", "horTh"])
    named = [text.get_text().strip() for text in figure.axes[0].get_yticklabels()]
    assert named.count("small") == 1
    assert named[0] == "age"
    assert named[-1] == "pooled"


def test_intervals_that_leave_the_axes_end_in_arrows():
    wide = replace(fits()["pooled"], covariance=400 * fits()["pooled"].covariance)
    axes = figures.forest({**fits(), "wide": wide}).axes[0]
    arrows = [line for line in axes.lines if line.get_marker() in ("<", ">")]
    low, high = axes.get_xlim()
    drawn = [fit.summary() for name, fit in fits().items() if name != "pooled"] + [wide.summary()]
    lower, upper = (pd.concat(drawn)[f"exp(coef) {end} 95%"] for end in ("lower", "upper"))
    assert len(arrows) == (lower < low).sum() + (upper > high).sum() > 0
    assert {line.get_xdata()[0] for line in arrows} <= {low, high}


def test_training_is_drawn_round_by_round_beside_its_baselines():
    run = Run(baselines=BASELINES)
    figure = figures.training(run)
    assert [axes.get_ylabel() for axes in figure.axes] == ["C-index", "IBS"]
    for axes, score in zip(figure.axes, ("c_index", "ibs"), strict=True):
        held_out = lines(axes)[2]
        np.testing.assert_array_equal(held_out, np.column_stack([run.history.index, run.history[score]]))
        assert [line[0, 1] for line in lines(axes)[:2]] == [BASELINES[name][score] for name in BASELINES]
    assert "each site alone 0.620" in words(figure)
    assert figure._suptitle.get_text() == "After 6 rounds: C-index 0.720, IBS 0.190"


def test_training_shows_what_it_cost_and_which_model_was_kept():
    run = Run(Privacy(unit="record", epsilon=3.0, delta=1e-4, clip=1.0), 3.0, chosen=4)
    figure = figures.training(run)
    spent = lines(figure.axes[2])[0]
    np.testing.assert_array_equal(spent, np.column_stack([run.history.index, run.history["epsilon"]]))
    assert lines(figure.axes[0])[1].tolist() == [[4, run.history["c_index"][4]]]
    assert "at delta 0.0001 for any one record" in words(figure)
    assert "of round 4" in words(figure)
    assert "budget 3" in words(figure)


def test_training_takes_a_plain_history_with_scores_of_training_records():
    history = Run().history.assign(train_c_index=lambda rows: rows["c_index"] + 0.02, other=np.nan)
    figure = figures.training(history.drop(columns="epsilon"), baselines=BASELINES)
    assert len(lines(figure.axes[0])) == 4
    assert len(lines(figure.axes[1])) == 3
    assert "train 0.740" in words(figure)
    require_legible(figures.training(history.iloc[:1]))


def test_training_says_where_scores_come_from():
    assert "bare: each site's model update in every round" in words(figures.training(Run()))
    public = Run()
    public.privacy = state(Open(), [], public=["all records: they are simulated or published"])
    assert "public: the records are simulated" in words(figures.training(public))
    again = Privacy(unit="record", epsilon=3.0, delta=1e-4, clip=1.0, rehearsal=True)
    assert "REHEARSAL" in words(figures.training(Run(again, 3.0)))


def test_privacy_is_set_beside_utility_on_a_log_axis():
    figure = figures.privacy_utility(PRICES, references={"open": 0.756, "alone": 0.69})
    axes = figure.axes[0]
    assert axes.get_xscale() == "log"
    assert [line[0, 1] for line in lines(axes)[:2]] == [0.756, 0.69]
    for line, (_, rows) in zip(lines(axes)[2:], PRICES.groupby("method", sort=False), strict=True):
        np.testing.assert_array_equal(line, rows[["epsilon", "score"]])
    bars = [np.array([segment[:, 1] for segment in part.get_segments()]) for part in axes.collections]
    np.testing.assert_array_equal(np.concatenate(bars), PRICES[["low", "high"]])
    assert axes.get_xticks().tolist() == EPSILONS
    low, high = axes.get_ylim()
    assert low < 0.58
    assert high > 0.756
    assert figure._suptitle.get_text() == "C-index: 0.680 at epsilon 0.3, 0.750 at epsilon 10"


@pytest.mark.parametrize("ending", ["png", "svg", "pdf"])
def test_a_figure_is_kept_in_a_file(tmp_path, ending):
    path = tmp_path / f"figure.{ending}"
    figures.privacy_utility(PRICES, path=path)
    begins = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}
    assert path.read_bytes().startswith(begins[ending])


def test_a_notebook_shows_a_figure():
    assert figures.privacy_utility(PRICES)._repr_png_().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("draw", "match"),
    [
        (lambda: figures.estimates({}), "estimates = 'none'"),
        (lambda: figures.estimates({"a": 3}), "estimate a = 3"),
        (
            lambda: figures.estimates({"a": kaplan_meier(hospitals()), "b": nelson_aalen(hospitals())}),
            "of one kind",
        ),
        (lambda: figures.estimates(aalen_johansen(competing(), causes=2)), "cumulative_incidence"),
        (lambda: figures.estimates(figures.by_site(life_table(hospitals(8)))), "at most 7"),
        (lambda: figures.kaplan_meier_by_site(life_table(hospitals()), grid=GRID), "grid"),
        (lambda: figures.survival_curves(Exponential(), [[1.0]], [2.0, 1.0]), "times"),
        (lambda: figures.survival_curves(Exponential(), [[1.0]], [-1.0, 1.0]), "times"),
        (lambda: figures.survival_curves(Exponential(), [[1.0]], [0, 1.0], ["a", "b"]), "labels"),
        (lambda: figures.survival_curves(Exponential(), np.ones((8, 1)), [0, 1.0], ["a"] * 8), "at most"),
        (lambda: figures.survival_curves(Exponential(), np.ones((0, 1)), [0, 1.0]), "features"),
        (lambda: figures.cumulative_incidence(kaplan_meier(hospitals())), "Aalen and Johansen"),
        (lambda: figures.cumulative_incidence(aalen_johansen(competing(), causes=2), ["a"]), "labels"),
        (lambda: figures.cumulative_incidence(aalen_johansen(competing(), causes=2), kind="pie"), "kind"),
        (lambda: figures.calibration([1, 2], [1, 1], [0.5, 0.5], 3.0), "at = 3.0"),
        (lambda: figures.calibration([1, 2], [1, 1], [0.5, 0.5], 0.0), "at = 0.0"),
        (lambda: figures.calibration([1, 2], [1, 1], [0.5, 1.5], 1.0), "survival_at_t"),
        (lambda: figures.calibration([1, 2, 3], [1, 1, 1], [0.5, 0.4, 0.3], 1.0, bins=3), "bins = 3"),
        (lambda: figures.calibration([1, 2], [1, 1], [0.5, 0.5], 1.0, bins=0), "bins = 0"),
        (lambda: figures.forest({}), "fits = 'none'"),
        (lambda: figures.forest({"a": 1}), "fit a = 1"),
        (lambda: figures.forest(fits(), columns=["nonsense"]), "nonsense"),
        (lambda: figures.forest({"a": cox(hospitals()), "b": cox(hospitals(), level=0.9)}), "level"),
        (lambda: figures.training(3), "run = 3"),
        (lambda: figures.training(Run().history[["epsilon"]]), "score"),
        (lambda: figures.privacy_utility(PRICES.drop(columns="score")), "no column score"),
        (lambda: figures.privacy_utility(PRICES.drop(columns="low")), "both or neither"),
        (lambda: figures.privacy_utility(PRICES.iloc[:0]), "no row"),
        (lambda: figures.privacy_utility(PRICES.assign(epsilon=np.inf)), "epsilon"),
        (lambda: figures.privacy_utility(PRICES.assign(epsilon=0.0)), "epsilon"),
        (lambda: figures.privacy_utility(PRICES, path="figure.bmp"), "figure.bmp"),
        (lambda: figures.privacy_utility(PRICES, path="no/such/folder/figure.png"), "folder that exists"),
    ],
)  # fmt: skip
def test_what_cannot_be_drawn_is_refused_by_name(draw, match):
    with pytest.raises(InvalidValue, match=match):
        draw()


def test_text_stands_out_from_paper_and_colours_from_each_other():
    for place in range(len(style.PALETTE)):
        assert style.contrast(to_rgb(style.ink(style.colour(place)))) >= 4.49
    assert style.contrast((1.0, 1.0, 1.0)) == pytest.approx(1)
    assert style.contrast((0.0, 0.0, 0.0)) == pytest.approx(21)
    assert same_color(style.ink("#000000"), "black")
    assert len(set(style.PALETTE)) == len(style.PALETTE) == 7


@given(st.lists(st.floats(0, 100), min_size=1, max_size=10).map(sorted))
@settings(max_examples=60)
def test_labels_keep_their_order_their_distance_and_inside(heights):
    found = style.spread(np.array(heights), 10.0, 0.0, 100.0)
    assert (np.diff(found) >= 10 - 1e-9).all()
    assert found.min() >= -1e-9
    assert found.max() <= 100 + 1e-9
    if (np.diff(heights) >= 10).all():
        np.testing.assert_allclose(found, heights, atol=1e-9)
