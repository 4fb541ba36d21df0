import math
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pandas.testing import assert_frame_equal

from tacit.errors import InvalidValue
from tacit.survival import data
from tacit.survival.data import DESIGNS, hazards, incidence, simulate
from tacit.survival.metrics import harrell

OWN = {"weibull": "c_mean", "lognormal": "c_mean", "SDGM1": "c_mean", "SDGM2": "u_max", "SDGM3": "u_max",
       "SDGM4": "c_step", "competing": "c_mean"}  # fmt: skip
designs = pytest.mark.parametrize("design", DESIGNS)


def truth(design, table):
    """Return the log risk of a design, written down independently."""
    x = table.filter(regex=r"^x\d").to_numpy()
    p = x.shape[1]
    first, last = x[:, : p // 5].sum(axis=1), x[:, -p // 5 :].sum(axis=1)
    low, high = np.floor(np.quantile(np.arange(p), [0.4, 0.6])).astype(int)
    return {
        "weibull": x[:, p // 2 :].sum(axis=1),
        "lognormal": first + last,
        "SDGM1": x[:, p // 2 :].sum(axis=1),
        "SDGM2": np.sin(math.pi * x[:, 0]) + 2 * abs(x[:, 1] - 0.5) + x[:, 2] ** 3,
        "SDGM3": abs(x[:, low:high].sum(axis=1)),
        "SDGM4": abs(first) + abs(last),
    }[design]


@pytest.mark.parametrize(
    ("design", "features", "options", "censored", "concordance"),
    [
        ("weibull", 10, {}, 0.379, 0.619),
        ("weibull", 20, {}, 0.391, 0.685),
        ("lognormal", 10, {}, 0.379, 0.591),
        ("lognormal", 20, {}, 0.386, 0.646),
        ("SDGM1", 10, {}, 0.298, 0.603),
        ("SDGM1", 20, {}, 0.290, 0.648),
        ("SDGM2", 10, {}, 0.318, 0.616),
        ("SDGM2", 10, {"u_max": 7}, 0.198, 0.612),
        ("SDGM2", 20, {}, 0.323, 0.615),
        ("SDGM2", 20, {"u_max": 7}, 0.196, 0.614),
        ("SDGM3", 10, {}, 0.234, 0.617),
        ("SDGM3", 10, {"u_max": 4}, 0.368, 0.626),
        ("SDGM3", 20, {}, 0.310, 0.681),
        ("SDGM3", 20, {"u_max": 4}, 0.478, 0.693),
        ("SDGM4", 10, {}, 0.386, 0.557),
        ("SDGM4", 20, {}, 0.383, 0.606),
    ],
)
def test_censoring_and_the_best_concordance_are_those_of_the_reference(
    design, features, options, censored, concordance
):
    table = simulate(design, records=6000, features=features, **options)
    assert 1 - table["event"].mean() == pytest.approx(censored, abs=0.015)
    assert harrell(table["time"], table["event"], -truth(design, table)) == pytest.approx(
        concordance, abs=0.015
    )


def moments(design, options, records=100_000):
    """A table with next to no censoring, and its event times."""
    # Twelve features: a fifth of them rounds down to two and up to three.
    table = simulate(design, records=records, features=12, seed=3, **options)
    assert table["event"].mean() > 0.999
    return table["time"].to_numpy(), truth(design, table)


@pytest.mark.parametrize("design", ["weibull", "lognormal", "SDGM4"])
def test_log_normal_designs_have_normal_errors_around_their_truth(design):
    options = {"c_step": 20.0} if design == "SDGM4" else {"c_mean": 1e-6}
    time, score = moments(design, options)
    error = np.log(time) - 0.1 * score
    assert error.mean() == pytest.approx(0, abs=0.02)
    assert error.std() == pytest.approx(1, abs=0.02)
    assert np.corrcoef(error, score)[0, 1] == pytest.approx(0, abs=0.02)
    assert (error**3).mean() == pytest.approx(0, abs=0.06)


@pytest.mark.parametrize("design", ["SDGM1", "SDGM2"])
def test_exponential_designs_have_unit_exponential_times_once_divided_by_their_mean(design):
    time, score = moments(design, {"c_mean": 1e-6} if design == "SDGM1" else {"u_max": 1e6})
    unit = time / (np.exp(0.1 * score) if design == "SDGM1" else score)
    assert unit.mean() == pytest.approx(1, abs=0.02)
    assert unit.std() == pytest.approx(1, abs=0.02)
    assert np.median(unit) == pytest.approx(math.log(2), abs=0.02)


def test_gamma_times_have_the_mean_and_the_spread_of_their_shape():
    time, score = moments("SDGM3", {"u_max": 1e6})
    shape = 0.5 + 0.25 * score
    assert (time / (2 * shape)).mean() == pytest.approx(1, abs=0.02)
    assert ((time - 2 * shape) ** 2 / (4 * shape)).mean() == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize(
    ("design", "rho"),
    [("weibull", 0.6), ("lognormal", 0.6), ("SDGM1", 0.6), ("SDGM3", 0.75), ("SDGM4", 0.75)],
)
def test_features_are_standard_normal_and_forget_their_neighbours_step_by_step(design, rho):
    x = simulate(design, records=20_000, features=6).filter(regex="^x").to_numpy()
    distance = abs(np.subtract.outer(np.arange(6), np.arange(6)))
    assert np.abs(np.cov(x.T) - rho**distance).max() < 0.04
    assert np.abs(x.mean(axis=0)).max() < 0.04


def test_features_of_sdgm2_are_independent_and_uniform():
    x = simulate("SDGM2", records=20_000, features=4).filter(regex="^x").to_numpy()
    assert x.min() >= 0
    assert x.max() < 1
    assert np.abs(np.cov(x.T) - np.eye(4) / 12).max() < 0.003
    assert np.abs(x.mean(axis=0) - 0.5).max() < 0.01


def test_c_mean_is_a_rate_and_u_max_the_latest_censoring():
    early = simulate(records=5000, c_mean=100.0)
    assert early["time"][early["event"] == 0].mean() == pytest.approx(0.01, rel=0.1)
    for design in ("SDGM2", "SDGM3"):
        assert simulate(design, u_max=0.5)["time"].max() < 0.5


def test_more_room_before_censoring_leaves_more_events_and_moves_no_feature():
    near, far = simulate("SDGM4", c_step=-1.0), simulate("SDGM4", c_step=2.0)
    assert near["event"].mean() < 0.3 < 0.9 < far["event"].mean()
    assert near.filter(regex="^x").equals(far.filter(regex="^x"))
    assert (near["time"] <= far["time"]).all()


# A share of censored records


@designs
@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_a_wanted_share_of_records_is_censored(design, share):
    table = simulate(design, records=20_000, censoring=share)
    assert (table["event"] == 0).mean() == pytest.approx(share, abs=0.01)


@pytest.mark.parametrize(("design", "features"), [("SDGM1", 1), ("SDGM1", 60), ("SDGM2", 3), ("SDGM3", 25)])
def test_a_share_is_met_whatever_the_number_of_features(design, features):
    table = simulate(design, records=20_000, features=features, censoring=0.3, seed=8)
    assert (table["event"] == 0).mean() == pytest.approx(0.3, abs=0.01)


@designs
def test_a_share_changes_censoring_alone_and_a_longer_table_still_begins_with_the_shorter(design):
    shorter, longer = (simulate(design, records=size, censoring=0.25) for size in (40, 500))
    assert_frame_equal(longer.head(40), shorter, rtol=1e-14)
    assert longer.filter(regex="^x").equals(simulate(design, records=500).filter(regex="^x"))


def test_a_share_excludes_the_option_that_it_stands_for():
    with pytest.raises(
        InvalidValue, match=r"c_mean = 0.4 is not allowed: it must be left out where `censoring`"
    ):
        simulate(c_mean=0.4, censoring=0.3)


@pytest.mark.parametrize("share", [0, 1, -0.1, 1.5, math.nan, True, "0.3"])
def test_a_share_that_is_none_is_refused(share):
    with pytest.raises(InvalidValue, match=r"^censoring = .* must be above 0 and below 1"):
        simulate(censoring=share)


# Several causes


def test_causes_follow_their_hazards_and_times_the_sum_of_them():
    table = simulate("competing", records=50_000, features=7, causes=3, c_mean=1e-9, seed=2)
    x = table.filter(regex="^x").to_numpy()
    known = hazards(x, 3)
    total = known.sum(axis=1)
    unit = table["time"].to_numpy() * total
    assert unit.mean() == pytest.approx(1, abs=0.02)
    assert np.median(unit) == pytest.approx(math.log(2), abs=0.02)
    for cause in (1, 2, 3):
        seen = (table["event"] == cause).to_numpy()
        assert seen.mean() == pytest.approx((known[:, cause - 1] / total).mean(), abs=0.01)
        assert unit[seen].mean() == pytest.approx(1, abs=0.03)


def test_true_incidences_are_the_shares_of_patients_seen_with_that_cause():
    table = simulate("competing", records=50_000, features=6, c_mean=1e-9, seed=5)
    x, times = table.filter(regex="^x").to_numpy(), np.array([0.1, 0.5, 2.0])
    for cause in (1, 2):
        seen = [((table["event"] == cause) & (table["time"] <= time)).mean() for time in times]
        assert incidence(x, times, cause).mean(axis=0) == pytest.approx(seen, abs=0.01)
    everything = incidence(x, [1e9], 1) + incidence(x, [1e9], 2)
    assert everything == pytest.approx(1)


def test_each_cause_has_features_of_its_own_and_all_share_the_last():
    x = np.zeros((1, 9))
    base = hazards(x)
    assert base == pytest.approx(np.array([[1, 0.5]]))
    for start, moved in ((0, [True, False]), (3, [False, True]), (6, [True, True])):
        other = x.copy()
        other[:, start : start + 3] = 1
        assert (hazards(other) != base).tolist() == [moved]
        other[:, 6:] *= -1
        assert (hazards(other) != base).tolist() == [moved]


def test_two_causes_are_the_default_and_one_is_allowed():
    assert simulate("competing").equals(simulate("competing", causes=2))
    assert set(simulate("competing")["event"]) == {0, 1, 2}
    assert set(simulate("competing", causes=1)["event"]) == {0, 1}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"design": "SDGM1", "causes": 2}, "causes = 2 is not allowed: it must be left out: SDGM1 has one"),
        ({"design": "competing", "causes": 0}, "causes = 0 is not allowed"),
        ({"design": "competing", "causes": 1.5}, "causes = 1.5 is not allowed"),
        ({"design": "competing", "causes": 4, "features": 4}, "features = 4 is not allowed.* at least 5"),
    ],
)
def test_causes_that_make_no_design_are_refused(options, said):
    with pytest.raises(InvalidValue, match=said):
        simulate(**options)


def test_an_incidence_of_a_cause_that_is_not_there_is_refused():
    with pytest.raises(InvalidValue, match="cause = 3 is not allowed: it must be at most 2"):
        incidence(np.zeros((1, 4)), [1.0], cause=3)
    with pytest.raises(InvalidValue, match="more columns than causes"):
        hazards(np.zeros((1, 2)))


# Tables


@settings(max_examples=60)
@given(st.sampled_from(sorted(DESIGNS)), st.integers(1, 40), st.integers(3, 25), st.integers())
def test_any_table_has_its_columns_positive_times_and_events_of_zero_and_one(design, records, features, seed):
    table = simulate(design, records=records, features=features, seed=seed)
    assert list(table.columns) == [f"x{number}" for number in range(1, features + 1)] + ["time", "event"]
    assert len(table) == records
    assert np.isfinite(table.to_numpy()).all()
    assert (table["time"] > 0).all()
    assert table["event"].isin([0, 1, 2] if design == "competing" else [0, 1]).all()
    assert table["event"].dtype == np.int64
    assert (table.dtypes.drop("event") == np.float64).all()


@designs
def test_one_feature_is_enough_for_most(design):
    fewest = 3 if design in ("SDGM2", "competing") else 1
    assert simulate(design, features=fewest, records=5).shape[0] == 5


@designs
def test_the_same_seed_gives_the_same_table_and_another_one_another(design):
    assert_frame_equal(simulate(design, seed=4), simulate(design, seed=np.int64(4)), check_exact=True)
    table, other = simulate(design, seed=4), simulate(design, seed=5)
    assert not np.isclose(table["x1"], other["x1"]).any()
    assert not np.isclose(table["time"], other["time"], rtol=1e-9).any()


@designs
@pytest.mark.parametrize("records", [1, 7, 64])
def test_a_longer_table_begins_with_the_shorter_one(design, records):
    longer = simulate(design, records=1000)
    assert_frame_equal(longer.head(records), simulate(design, records=records), rtol=1e-14)


def test_designs_do_not_share_their_draws():
    assert not np.isclose(simulate("weibull")["x1"], simulate("SDGM1")["x1"]).any()


def test_a_draw_neither_reads_nor_moves_the_global_random_state():
    state = np.random.get_state()
    try:
        first = simulate()
        assert np.array_equal(state[1], np.random.get_state()[1])
        np.random.seed(1)
        assert first.equals(simulate())
    finally:
        np.random.set_state(state)


def test_the_default_is_two_thousand_records_of_ten_features_by_sdgm1():
    table = simulate()
    assert table.shape == (2000, 12)
    assert table.equals(simulate("SDGM1", records=2000, features=10, seed=0, c_mean=0.4))


@designs
def test_a_design_is_described_in_one_line_that_names_its_option(design):
    assert "\n" not in DESIGNS[design]
    assert OWN[design] in DESIGNS[design]


def test_importing_the_module_does_not_load_pandas():
    code = "import sys, tacit.survival.data; print({'pandas', 'torch'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


# Refusals


@designs
def test_an_option_of_another_design_is_refused_with_its_name_and_the_design(design):
    for option in {"c_mean", "u_max", "c_step"} - {OWN[design]}:
        with pytest.raises(
            InvalidValue, match=f"{option} = 0.0 is not allowed: {design} takes {OWN[design]} alone"
        ):
            simulate(design, **{option: 0.0})


def test_all_foreign_options_are_named_at_once():
    with pytest.raises(InvalidValue, match=r"u_max = 4, c_step = 0\.4 is not allowed: SDGM1 takes c_mean"):
        simulate("SDGM1", u_max=4, c_step=0.4)


@pytest.mark.parametrize(
    ("design", "field", "given"),
    [
        *[("SDGM1", "c_mean", value) for value in (0, -1.0, math.nan, math.inf, True, "0.4")],
        *[("SDGM3", "u_max", value) for value in (0, -1.0, math.nan, math.inf)],
        *[("SDGM4", "c_step", value) for value in (math.nan, -math.inf, False)],
        *[("SDGM1", "records", value) for value in (0, -3, 10.0, True, None, "10")],
        *[("SDGM1", "features", value) for value in (0, 2.5)],
        *[("SDGM2", "features", value) for value in (1, 2)],
        *[("SDGM1", "seed", value) for value in (1.5, None, "zero", True)],
    ],
)
def test_a_value_that_makes_no_table_is_refused_by_name(design, field, given):
    with pytest.raises(InvalidValue, match=rf"^{field} = .* must be a (whole|finite) number"):
        simulate(design, **{field: given})


@pytest.mark.parametrize(
    ("design", "hint"), [("SDMG1", 'did you mean "SDGM1"'), ("cox", "weibull"), (None, "SDGM4")]
)
def test_an_unknown_design_is_refused_with_those_there_are(design, hint):
    with pytest.raises(InvalidValue, match=hint):
        simulate(design)


@pytest.mark.parametrize("value", [1, np.float32(0.5), np.int64(2)])
def test_numbers_of_any_kind_are_taken(value):
    assert len(simulate(records=np.int64(3), c_mean=value)) == 3


def test_every_design_has_a_recipe():
    assert list(data._RECIPES) == list(DESIGNS)
