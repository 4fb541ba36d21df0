"""Figures of worlds and regimes show the numbers they are given, say what they are, and stay legible."""

import inspect
import itertools
import sys

import matplotlib
import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex
from scipy.stats import t as student
from sklearn.metrics import adjusted_rand_score

from looking import require_legible, texts
from tacit.control import figures
from tacit.control.figures.maps import short_steps
from tacit.errors import InvalidValue
from tacit.reports.plots import style
from tacit.reports.plots.privacy_utility import privacy_utility

WORLDS = ["moon", "unseen", "earth", "mars"]
ORDER = ["moon", "earth", "mars", "unseen"]
REGIMES = {"alone": 60.0, "federated": 180.0, "clustered": 190.0, "private, epsilon 5": 170.0}
STEPS = np.arange(0, 300_001, 20_000)


def returns(regimes=REGIMES, worlds=WORLDS, seeds=3):
    draws = np.random.default_rng(5)
    rows = []
    for (regime, end), world, seed in itertools.product(regimes.items(), worlds, range(seeds)):
        last = end + 10 * worlds.index(world) + draws.normal(0, 10)
        heights = last - (last + 300) * np.exp(-STEPS / 7e4)
        rows += [
            {"regime": regime, "world": world, "seed": seed, "steps": steps, "return": height}
            for steps, height in zip(STEPS, heights, strict=True)
        ]
    return pd.DataFrame(rows)


def scored(worlds=WORLDS, regimes=REGIMES):
    rows = [
        {"regime": regime, "world": world, "mean": end + 10 * place, "low": end + 10 * place - 30}
        for (regime, end), (place, world) in itertools.product(regimes.items(), enumerate(worlds))
    ]
    return pd.DataFrame(rows).assign(high=lambda rows: rows["mean"] + 25)


def assigned(rounds=20, phases=True):
    draws = np.random.default_rng(6)
    rows = []
    for site, number in itertools.product(range(15), range(1, rounds + 1)):
        world = ORDER[site % 3]
        cluster = 0 if number <= 6 else site % 3 if number > 12 else int(draws.integers(3))
        phase = "together" if number <= 6 else "searching" if number <= 12 else "apart"
        rows.append({"site": f"{world}-{site}", "world": world, "round": number, "cluster": cluster})
        rows[-1] |= {"phase": phase} if phases else {}
    return pd.DataFrame(rows)


def norms():
    rounds = np.arange(1, 31)
    actor = {"round": rounds, "update": 0.08 * 0.97**rounds, "noise": np.full(30, 0.1), "regime": "actor"}
    critic = {"round": rounds, "update": np.full(30, 0.2), "noise": np.full(30, 0.5), "regime": "critic"}
    return pd.concat([pd.DataFrame(actor), pd.DataFrame(critic)])


PRICES = pd.DataFrame({
    "epsilon": [1.0, 2.5, 5.0, 10.0, 3750.0, 594_000.0, 2.94e6],
    "return": [-230.0, 119.0, 176.0, 185.0, -460.0, -606.0, 197.0],
    "regime": ["Gaussian"] * 4 + ["reference, L1"] + ["reference, L2"] * 2,
    "claimed": [np.nan, np.nan, 5.0, np.nan, 30.0, 100.0, 500.0],
}).assign(low=lambda rows: rows["return"] - 25, high=lambda rows: rows["return"] + 25)  # fmt: skip
LEVELS = {"open": 187.0, "alone": 102.0, "untrained": -220.0}

GALLERY = {
    "curves": lambda: figures.learning_curves(returns(), provenance="public: simulated"),
    "three worlds": lambda: figures.learning_curves(
        returns({"a": 60.0, "b": 180.0}, ORDER[:3], 1), target=None
    ),
    "one world": lambda: figures.learning_curves(returns(worlds=["moon"]), band="interval"),
    "cut off": lambda: figures.learning_curves(
        returns(REGIMES | {"Laplace": -900.0}, ORDER[:2]), lowest=-400
    ),
    "side by side": lambda: figures.side_by_side(returns()),
    "overlay": lambda: figures.overlay(returns()),
    "scenarios": lambda: figures.scenarios(scored(), provenance="public: simulated"),
    "seven scenarios": lambda: figures.scenarios(scored([f"world {number}" for number in range(7)])),
    "far away": lambda: figures.scenarios(scored(ORDER[:2], REGIMES | {"Laplace": -900.0}), lowest=-300),
    "privacy": lambda: figures.privacy_return(PRICES, LEVELS, provenance="public: simulated"),
    "privacy of one": lambda: figures.privacy_return(PRICES[["epsilon", "return"]][:4]),
    "memberships": lambda: figures.memberships(assigned(), provenance="public: simulated"),
    "without phases": lambda: figures.memberships(assigned(4, phases=False)),
    "drift": lambda: figures.drift(norms(), provenance="public: simulated"),
    "one drift": lambda: figures.drift(norms()[:30].drop(columns="regime")),
}


def words(figure):
    return " ".join(text.get_text().replace("\n", " ") for text in texts(figure))


def title(figure):
    return figure._suptitle.get_text().replace("\n", " ")


def note(figure):
    return figure._supxlabel.get_text().replace("\n", " ")


def shown(figure):
    return [axes for axes in figure.axes if axes.get_visible()]


def headings(figure):
    return [axes.get_title(loc="left") for axes in shown(figure)]


def curves(axes):
    """The lines of an axes that are no levels, by color."""
    drawn = [line for line in axes.lines if np.ptp(np.asarray(line.get_xdata())) > 1]
    return {to_hex(line.get_color()).upper(): np.asarray(line.get_xydata()) for line in drawn}


def mean_curve(rows):
    return rows.groupby("steps")["return"].mean().to_numpy()


@pytest.mark.parametrize("name", GALLERY)
def test_words_stay_inside_and_apart_and_say_what_is_seen(name):
    before = dict(matplotlib.rcParams)
    figure = GALLERY[name]()
    require_legible(figure)
    assert title(figure)
    assert figure.get_size_inches()[0] == 6.5
    assert dict(matplotlib.rcParams) == before


def test_no_figure_is_left_open():
    from matplotlib import pyplot  # as a user's own code has it

    figures.overlay(returns(seeds=1))
    assert pyplot.get_fignums() == []
    for module in ("", ".learning", ".maps"):
        assert "pyplot" not in inspect.getsource(sys.modules[f"tacit.control.figures{module}"])


def test_each_world_has_a_panel_and_each_regime_a_line_of_its_mean():
    table = returns()
    figure = figures.learning_curves(table)
    assert headings(figure) == ORDER
    for axes, world in zip(shown(figure), ORDER, strict=True):
        found = curves(axes)
        assert list(found) == list(style.PALETTE[:4])
        for line, regime in zip(found.values(), REGIMES, strict=True):
            own = table[(table["world"] == world) & (table["regime"] == regime)]
            np.testing.assert_array_equal(line[:, 0], STEPS)
            np.testing.assert_allclose(line[:, 1], mean_curve(own))
            assert f"{regime} {own.loc[own['steps'] == 300_000, 'return'].mean():.0f}" in words(figure)
        levels = [line for line in axes.lines if np.ptp(np.asarray(line.get_xdata())) == 1]
        assert [line.get_ydata()[0] for line in levels] == [200]
    assert [axes.get_ylim() for axes in shown(figure)] == [shown(figure)[0].get_ylim()] * 4
    assert shown(figure)[-1].get_xlabel() == "Environment steps per site"
    assert shown(figure)[0].get_ylabel() == "Return"
    assert words(figure).count("solved: 200") == 1


def test_bands_reach_from_the_lowest_to_the_highest_seed():
    table = returns({"shared": 180.0}, ["moon"])
    figure = figures.learning_curves(table)
    ends = table.groupby("steps")["return"].agg(["min", "max"])
    heights = figure.axes[0].collections[0].get_paths()[0].vertices[:, 1]
    assert heights.min() == pytest.approx(ends["min"].min())
    assert heights.max() == pytest.approx(ends["max"].max())
    assert "Bands: the lowest to the highest of 3 seeds." in note(figure)


def test_or_bands_are_intervals_of_the_mean():
    table = returns({"shared": 180.0}, ["moon"])
    figure = figures.learning_curves(table, band="interval")
    last = table.loc[table["steps"] == 300_000, "return"]
    half = student.ppf(0.975, 2) * last.std(ddof=1) / np.sqrt(3)
    corners = figure.axes[0].collections[0].get_paths()[0].vertices
    heights = corners[corners[:, 0] == 300_000][:, 1]
    assert heights.min() == pytest.approx(last.mean() - half)
    assert heights.max() == pytest.approx(last.mean() + half)
    assert "95 % intervals of means over 3 seeds." in note(figure)


def test_one_seed_has_no_band_and_says_so():
    figure = figures.overlay(returns(seeds=1))
    assert not figure.axes[0].collections
    assert "One seed." in note(figure)


def test_sites_are_averaged_within_their_seed_at_steps_that_all_have_reached():
    rows = [
        ("a", 0, 0.0),
        ("a", 100, 100.0),
        ("b", 50, 10.0),
        ("b", 150, 20.0),
        ("c", 25, 0.0),
        ("c", 120, 0.0),
    ]
    table = pd.DataFrame(rows, columns=["site", "steps", "return"]).assign(
        regime="shared", world="moon", seed=0
    )
    (line,) = curves(figures.learning_curves(table).axes[0]).values()
    np.testing.assert_array_equal(line, [(50, (50 + 10 + 0) / 3), (100, (100 + 15 + 0) / 3)])


def test_curves_that_share_no_steps_are_refused():
    table = returns({"shared": 180.0}, ["moon"], seeds=2)
    table.loc[table["seed"] == 1, "steps"] += 1_000_000
    with pytest.raises(InvalidValue, match="steps of shared"):
        figures.learning_curves(table)


def test_single_episodes_are_smoothed_over_a_window_and_thinned():
    table = pd.DataFrame({"regime": "shared", "world": "moon", "seed": 0, "steps": np.arange(5000)})
    table["return"] = np.where(np.arange(5000) % 2, 100.0, 0.0)
    figure = figures.learning_curves(table, window=100)
    (line,) = curves(figure.axes[0]).values()
    assert len(line) == 400
    np.testing.assert_allclose(line[10:, 1], 50, atol=0.6)
    assert "Points: means of 100 returns." in note(figure)


def test_what_is_cut_off_keeps_its_label():
    figure = figures.learning_curves(returns(REGIMES | {"Laplace": -900.0}, ["moon"]), lowest=-400)
    assert figure.axes[0].get_ylim()[0] == -400
    assert "Laplace -8" in words(figure) or "Laplace -9" in words(figure)
    assert "Returns below -400 are cut off." in note(figure)


def test_a_title_names_the_best_regime_of_each_world():
    ends = {"alone": {"moon": 10.0, "mars": 150.0}, "shared": {"moon": 90.0, "mars": 140.0}}
    rows = [
        {"regime": regime, "world": world, "seed": 0, "steps": steps, "return": end * steps}
        for (regime, found), steps in itertools.product(ends.items(), (0, 1)) for world, end in found.items()
    ]  # fmt: skip
    assert (
        title(figures.learning_curves(rows)) == "Highest at the end: shared in moon (90); alone in mars (150)"
    )
    assert title(figures.side_by_side(rows)) == "Highest in its worst world: shared (90 in moon)"
    assert title(figures.overlay(rows)) == "After 1 steps per site: shared (115), alone (80)"
    assert title(figures.overlay(rows, title="mine")) == "mine"


def test_side_by_side_has_a_panel_for_each_regime_and_a_line_for_each_world():
    table = returns({"alone": 60.0, "federated": 180.0}, seeds=2)
    figure = figures.side_by_side(table)
    assert headings(figure) == ["alone", "federated"]
    for axes, regime in zip(shown(figure), headings(figure), strict=True):
        for line, world in zip(curves(axes).values(), ORDER, strict=True):
            own = table[(table["world"] == world) & (table["regime"] == regime)]
            np.testing.assert_allclose(line[:, 1], mean_curve(own))


def test_an_overlay_counts_each_world_once_and_leaves_out_unseen_ones():
    table = returns()
    crowded = pd.concat([table.assign(site=0), table[table["world"] == "moon"].assign(site=1)])
    figure = figures.overlay(crowded)
    seen = table[table["world"] != "unseen"]
    for line, regime in zip(curves(figure.axes[0]).values(), REGIMES, strict=True):
        np.testing.assert_allclose(line[:, 1], mean_curve(seen[seen["regime"] == regime]))
    assert note(figure).endswith("Lines: means over moon, earth, mars.")


def test_an_overlay_compares_the_same_worlds():
    table = returns()
    with pytest.raises(InvalidValue, match="the worlds of alone"):
        figures.overlay(table[(table["regime"] != "alone") | (table["world"] != "mars")])


def test_unseen_worlds_come_last_and_are_marked():
    figure = figures.learning_curves(returns(worlds=["pluto", "moon"]), unseen=["pluto"])
    assert headings(figure) == ["moon", "pluto (unseen)"]


def test_scenarios_are_dots_with_intervals_and_numbers():
    table = scored()
    figure = figures.scenarios(table)
    assert headings(figure) == ORDER
    for axes, world in zip(shown(figure), ORDER, strict=True):
        own = table[table["world"] == world]
        dots = [line.get_xydata()[0] for line in axes.lines if line.get_marker() == "o"]
        np.testing.assert_array_equal(dots, np.column_stack([own["mean"], range(4)]))
        bars = [bar.get_segments()[0][:, 0] for bar in axes.collections]
        np.testing.assert_array_equal(bars, own[["low", "high"]])
        assert [text.get_text() for text in axes.texts] == [f"{mean:.0f}" for mean in own["mean"]]
        assert [text.get_fontweight() for text in axes.texts] == ["normal", "normal", "bold", "normal"]
        assert [line.get_xdata()[0] for line in axes.lines if len(line.get_xdata()) == 2][-1] == 200
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == list(REGIMES)
    assert figure.axes[0].get_xlabel() == "Return"
    assert title(figure).startswith("Highest return: clustered in moon (190), earth (210)")


def test_many_scenarios_are_counted_in_the_title():
    figure = figures.scenarios(scored([f"world {number}" for number in range(7)]))
    assert title(figure) == "Highest return: clustered in 7 of 7 worlds; intervals overlap in 7 of 7"


def test_dots_that_are_too_low_become_arrows_with_their_number():
    figure = figures.scenarios(scored(["moon"], REGIMES | {"Laplace": -900.0}), lowest=-300)
    (arrow,) = [line for line in figure.axes[0].lines if line.get_marker() == "<"]
    assert arrow.get_xydata().tolist() == [[-300, 4]]
    assert "-900" in words(figure)


def test_a_return_is_set_beside_its_true_epsilon():
    figure = figures.privacy_return(PRICES, LEVELS)
    axes = figure.axes[0]
    assert axes.get_xscale() == "log"
    assert axes.get_ylabel() == "Return"
    levels = [line.get_ydata()[0] for line in axes.lines[:3]]
    assert levels == list(LEVELS.values())
    drawn = [line for line in axes.lines if line.get_linestyle() == "-"]
    for line, (_, rows) in zip(drawn, PRICES.groupby("regime", sort=False), strict=True):
        np.testing.assert_array_equal(line.get_xydata(), rows[["epsilon", "return"]])
    for told in ("open 187", "alone 102", "untrained -220", "Gaussian 185", "reference, L2 197"):
        assert told in words(figure)


def test_points_that_have_learnt_nothing_are_hollow():
    axes = figures.privacy_return(PRICES, LEVELS).axes[0]
    hollow = [line.get_xydata() for line in axes.lines if to_hex(line.get_markerfacecolor()) == "#ffffff"]
    np.testing.assert_array_equal(np.concatenate(hollow), [(1, -230), (3750, -460), (594_000, -606)])
    near = PRICES.assign(**{"return": -200.0, "low": -230.0, "high": -170.0})
    axes = figures.privacy_return(near, LEVELS).axes[0]
    hollow = [line.get_xydata() for line in axes.lines if to_hex(line.get_markerfacecolor()) == "#ffffff"]
    assert len(np.concatenate(hollow)) == len(PRICES)
    assert "Hollow: nothing learned, not above -220." in note(figures.privacy_return(PRICES, LEVELS))


def test_a_claim_that_differs_is_tied_to_the_truth():
    figure = figures.privacy_return(PRICES, LEVELS)
    axes = figure.axes[0]
    crosses = [line.get_xydata() for line in axes.lines if line.get_marker() == "x"]
    np.testing.assert_array_equal(np.concatenate(crosses), [(30, -460), (100, -606), (500, 197)])
    ties = [part.get_segments() for part in axes.collections if part.get_linewidth()[0] == 0.6]
    ends = np.array([segment[:, 0] for part in ties for segment in part])
    np.testing.assert_array_equal(ends, [(30, 3750), (100, 594_000), (500, 2.94e6)])
    assert [text.get_text() for text in axes.texts[:3]] == ["claimed 30", "claimed 100", "500"]
    assert "Crosses: claimed epsilon" in note(figure)
    assert axes.get_xlim()[0] < 1
    assert "Crosses" not in note(figures.privacy_return(PRICES.drop(columns="claimed"), LEVELS))


def test_the_title_names_the_smallest_epsilon_that_learns():
    told = "Return 119 at epsilon 2.5 (the smallest that learns), 187 without privacy"
    assert title(figures.privacy_return(PRICES, LEVELS)) == told
    vain = PRICES.assign(**{"return": -300.0, "low": -320.0, "high": -280.0})
    assert title(figures.privacy_return(vain[:4], LEVELS)) == "Nothing is learned at any epsilon up to 10"
    assert title(figures.privacy_return(PRICES[:4])) == "Return: -230 at epsilon 1, 185 at epsilon 10"


def test_other_scores_are_drawn_as_they_were():
    figure = privacy_utility(
        pd.DataFrame({"epsilon": [1.0, 10.0], "score": [0.6, 0.7]}), references={"open": 0.75}
    )
    assert title(figure) == "C-index: 0.600 at epsilon 1, 0.700 at epsilon 10"
    assert "open 0.750" in words(figure)
    assert not note(figure)


def test_memberships_are_cells_in_the_colour_of_their_cluster():
    table = assigned()
    figure = figures.memberships(table)
    strip, axes = figure.axes
    cells = np.asarray(axes.images[0].get_array())
    names = [label.get_text() for label in axes.get_yticklabels()]
    assert names == [f"{world}-{site}" for world in ("moon", "earth", "mars") for site in range(15)
                     if ORDER[site % 3] == world]  # fmt: skip
    assert axes.yaxis_inverted()
    expected = table.pivot(index="site", columns="round", values="cluster").loc[names]
    np.testing.assert_array_equal(cells, expected)
    assert axes.images[0].get_extent() == [0.5, 20.5, 14.5, -0.5]
    for word in ("moon", "earth", "mars", "cluster 0", "cluster 1", "cluster 2"):
        assert word in [text.get_text() for text in axes.texts]
    assert axes.get_xlabel() == "Round"
    assert strip.get_ylabel() == "Agreement"


def test_agreement_is_the_adjusted_rand_index_round_by_round_and_by_phase():
    table = assigned()
    figure = figures.memberships(table)
    by_round = [adjusted_rand_score(own["world"], own["cluster"]) for _, own in table.groupby("round")]
    np.testing.assert_allclose(figure.axes[0].lines[0].get_ydata(), by_round, atol=1e-12)
    means = [np.mean(by_round[:6]), np.mean(by_round[6:12]), np.mean(by_round[12:])]
    told = [
        f"{name} {mean:.2f}" for name, mean in zip(("together", "searching", "apart"), means, strict=True)
    ]
    assert [text.get_text() for text in figure.axes[0].texts] == told
    assert title(figure) == f"Agreement of clusters with worlds: {', '.join(told)}"


def test_a_round_that_a_site_sits_out_is_blank():
    table = assigned()
    table = table[(table["site"] != "moon-0") | (table["round"] != 3)]
    figure = figures.memberships(table)
    missing = np.argwhere(np.isnan(np.ma.filled(figure.axes[1].images[0].get_array(), np.nan)))
    assert missing.tolist() == [[0, 2]]
    assert "White: not taken part." in note(figure)


def test_many_sites_are_drawn_without_names():
    table = pd.DataFrame({"site": np.arange(300), "round": 1, "cluster": np.arange(300) % 2})
    figure = figures.memberships(table.assign(world=np.where(table["cluster"] == 0, "moon", "mars")))
    require_legible(figure)
    assert figure.get_size_inches()[1] < 8
    assert title(figure) == "Clusters agree with worlds: 1.00 in the last round, 1.00 on average"


def test_drift_sets_noise_beside_the_update():
    figure = figures.drift(norms())
    assert headings(figure) == ["actor", "critic"]
    for axes, (_, own) in zip(figure.axes, norms().groupby("regime"), strict=True):
        assert axes.get_yscale() == "log"
        np.testing.assert_array_equal(axes.lines[0].get_ydata(), own["update"])
        np.testing.assert_array_equal(axes.lines[1].get_ydata(), own["noise"])
    assert title(figure).endswith("(median of rounds): actor 2, critic 2.5")
    alone = figures.drift(norms()[30:].drop(columns="regime"))
    assert title(alone) == "Noise is 2.5 times as long as the update (median of rounds)"


def test_steps_are_written_short():
    shown = [short_steps(steps) for steps in (0, 400, 12_500, 327_680, 1.5e6)]
    assert shown == ["0", "400", "12.5k", "328k", "1.5M"]


@pytest.mark.parametrize("ending", ["png", "svg", "pdf"])
def test_a_figure_is_kept_in_a_file(tmp_path, ending):
    path = tmp_path / f"figure.{ending}"
    figures.overlay(returns(seeds=1), path=path)
    begins = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}
    assert path.read_bytes().startswith(begins[ending])


@pytest.mark.parametrize(
    ("draw", "match"),
    [
        (lambda: figures.learning_curves(returns().drop(columns="seed")), "no column seed"),
        (lambda: figures.learning_curves(returns().iloc[:0]), "no row"),
        (lambda: figures.learning_curves(returns().assign(steps=np.nan)), "steps"),
        (lambda: figures.learning_curves(returns().assign(steps=-1)), "steps = -1.0"),
        (lambda: figures.learning_curves(returns(), by="seed"), "by = 'seed'"),
        (lambda: figures.learning_curves(returns(), band="sd"), "band = 'sd'"),
        (lambda: figures.learning_curves(returns(), window=0), "window = 0"),
        (lambda: figures.learning_curves(returns(), lowest=900), "lowest = 900"),
        (
            lambda: figures.learning_curves(returns({str(end): 1.0 for end in range(8)})),
            "regime = '8 of them'",
        ),
        (lambda: figures.overlay(returns(), unseen=WORLDS), "unseen"),
        (lambda: figures.scenarios(pd.concat([scored(), scored()])), "twice"),
        (lambda: figures.scenarios(scored().drop(columns="low")), "no column low"),
        (lambda: figures.scenarios(scored(), lowest=900), "lowest = 900"),
        (lambda: figures.privacy_return(PRICES.drop(columns="return")), "no column return"),
        (lambda: figures.privacy_return(PRICES.assign(claimed=-1.0)), "claimed"),
        (lambda: figures.memberships(pd.concat([assigned(), assigned()])), "twice"),
        (lambda: figures.memberships(assigned().assign(world=lambda rows: rows["round"])), "world"),
        (lambda: figures.memberships(assigned().assign(cluster=range(300))), "cluster = '300 of them'"),
        (lambda: figures.drift(norms().assign(noise=0.0)), "noise = 0.0"),
        (lambda: figures.overlay(returns(seeds=1), path="figure.bmp"), "figure.bmp"),
    ],
)
def test_what_cannot_be_drawn_is_refused_by_name(draw, match):
    with pytest.raises(InvalidValue, match=match):
        draw()
