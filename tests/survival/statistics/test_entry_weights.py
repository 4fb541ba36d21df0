"""Records that come late, or count more than once: statistics across sites are those of lifelines, and with
noise a late record moves two cells and no more."""

import contextlib
import math
import warnings
from functools import lru_cache

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tacit import Federation, Key, Ledger
from tacit.errors import InvalidValue, Refused
from tacit.sites.splits import Dirichlet, Iid, NonIid, TimeNonIid
from tacit.sites.table import from_arrays, from_frame
from tacit.survival.data import simulate
from tacit.survival.life_table import Groups, exit_cells
from tacit.survival.statistics import cox_newton
from tacit.survival.statistics.cox_regression import cox, proportional_hazards
from tacit.survival.statistics.federated import (
    _risk_sums,
    aalen_johansen,
    breslow,
    censoring,
    kaplan_meier,
    life_table,
    logrank,
    nelson_aalen,
)

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from lifelines import AalenJohansenFitter, CoxPHFitter, KaplanMeierFitter, NelsonAalenFitter
    from lifelines.statistics import multivariate_logrank_test

SPLITS = {
    "iid": Iid(count=3),
    "non-iid": NonIid(count=4),
    "time-non-iid": TimeNonIid(count=3),
    "dirichlet": Dirichlet(count=4, alpha=0.4),
}
TIGHT = {"precision": 1e-13, "r_precision": 1e-15}


@contextlib.contextmanager
def lifelines_at_work():
    """It warns, and switches numpy's own warnings off for good, unless somebody puts them back."""
    with warnings.catch_warnings(), np.errstate():
        warnings.simplefilter("ignore")
        yield


@lru_cache
def frame(*kinds):
    """Simulated patients, with ties if `tied`; half of them come `late`; `whole` or `fractional` weights."""
    draw, data = np.random.default_rng(8), simulate("SDGM1", records=300, features=3, seed=11)
    if "tied" in kinds:
        data = data.assign(time=np.ceil(data["time"] * 8) / 8)
    if "late" in kinds:
        late = np.where(draw.random(300) < 0.5, data["time"] * draw.random(300), 0.0)
        data = data.assign(entry=np.floor(late * 8) / 8 if "tied" in kinds else late)
    if "whole" in kinds:
        data = data.assign(weight=draw.integers(1, 4, 300).astype(float))
    if "fractional" in kinds:
        data = data.assign(weight=draw.uniform(0.3, 3, 300))
    return data.assign(arm=(draw.random(300) < 0.5).astype(float))


def dealt(data, split, seed=5):
    targets = [name for name in ("time", "event", "entry", "weight") if name in data]
    table = from_frame(data, targets=targets)
    return Federation(
        {name: table.take(rows, f"site {name}") for name, rows in split(table, Key(seed)).items()}
    )


def in_one_place(federation):
    sites = [name for name, site in federation.items() for _ in range(len(site.table))]
    store = federation.store
    return pd.DataFrame(store.features, columns=store.columns).assign(**store.targets, site=sites)


def curve_of(fitter, data, **options):
    given = {"entry": data.get("entry"), "weights": data.get("weight"), **options}
    with lifelines_at_work():
        return fitter.fit(data["time"], data["event"], **given)


def regression_of(data, strata, **options):
    columns = data if strata else data.drop(columns="site")
    given = {f"{name}{'s' * (name == 'weight')}_col": name for name in ("entry", "weight") if name in data}
    with lifelines_at_work():
        return CoxPHFitter().fit(
            columns, "time", "event", strata=strata, fit_options=TIGHT, **given, **options
        )


def worst(ours, theirs):
    return max(
        abs(ours.coefficients - theirs.params_.to_numpy()).max(),
        abs(ours.standard_errors - theirs.standard_errors_.to_numpy()).max(),
        abs(ours.log_likelihood - theirs.log_likelihood_),
    )


# Curves and tests


KINDS = [("late",), ("tied", "late"), ("whole",), ("tied", "whole"), ("tied", "late", "whole")]


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("kinds", KINDS)
def test_survival_and_hazard_are_those_of_lifelines_with_their_bands(kinds, split):
    federation = dealt(frame(*kinds), SPLITS[split])
    data = in_one_place(federation)
    times = np.unique(data["time"])
    theirs, ours = curve_of(KaplanMeierFitter(), data), kaplan_meier(federation)
    assert ours.at(times) == pytest.approx(theirs.survival_function_.loc[times].iloc[:, 0], abs=1e-11)
    found = ours.table.loc[times, ["lower", "upper"]].to_numpy()
    wanted = theirs.confidence_interval_.loc[times].to_numpy()
    # Theirs ends at NaN where nobody is left.
    assert found[~np.isnan(wanted)] == pytest.approx(wanted[~np.isnan(wanted)], abs=1e-10)
    hazards = curve_of(NelsonAalenFitter(), data) if "late" not in kinds else None
    if hazards is not None:
        assert nelson_aalen(federation).at(times) == pytest.approx(
            hazards.cumulative_hazard_.loc[times].iloc[:, 0], abs=1e-10
        )


@pytest.mark.parametrize("kinds", [("late",), ("tied", "late"), ("fractional",), ("late", "fractional")])
def test_curves_of_any_weights_are_those_of_lifelines(kinds):
    federation = dealt(frame(*kinds), SPLITS["dirichlet"])
    data = in_one_place(federation)
    # Theirs has a rounding error left when the last one dies.
    times = np.unique(data["time"])[:-1]
    theirs = curve_of(KaplanMeierFitter(), data).survival_function_.loc[times].iloc[:, 0]
    assert kaplan_meier(federation).at(times) == pytest.approx(theirs, abs=1e-11)
    together = NelsonAalenFitter(nelson_aalen_smoothing="tied" in kinds or "fractional" not in kinds)
    hazards = curve_of(together, data)
    ours = nelson_aalen(federation)
    assert ours.at(times) == pytest.approx(hazards.cumulative_hazard_.loc[times].iloc[:, 0], abs=1e-10)
    assert ours.table.loc[times, ["lower", "upper"]].to_numpy() == pytest.approx(
        hazards.confidence_interval_.loc[times].to_numpy(), abs=1e-9
    )


@pytest.mark.parametrize("kinds", [("late",), ("whole",), ("fractional",), ("late", "fractional")])
def test_incidences_are_those_of_lifelines(kinds):
    data = frame(*kinds)
    data = data.assign(event=data["event"] * np.random.default_rng(1).integers(1, 3, len(data)))
    ours = aalen_johansen(dealt(data, SPLITS["non-iid"]))
    times = np.unique(data["time"])
    for cause in (1, 2):
        theirs = curve_of(AalenJohansenFitter(calculate_variance=False), data, event_of_interest=cause)
        wanted = theirs.cumulative_density_.loc[times].iloc[:, 0]
        found = ours.at(times)[:, cause - 1]
        if "late" in kinds:
            # Theirs counts whoever comes at a time as at risk at it; nobody does here but at time 0.
            assert not np.isin(data["entry"][data["entry"] > 0], times).any()
        assert found == pytest.approx(wanted, abs=1e-9)


@pytest.mark.parametrize("kinds", [("whole",), ("tied", "whole"), ("tied", "fractional")])
def test_logrank_of_weighted_records_is_that_of_lifelines(kinds):
    federation = dealt(frame(*kinds), SPLITS["dirichlet"])
    data = in_one_place(federation)
    for by in ("site", "arm"):
        with lifelines_at_work():
            theirs = multivariate_logrank_test(data["time"], data[by], data["event"], weights=data["weight"])
        ours = logrank(federation, by=by)
        assert ours.statistic == pytest.approx(theirs.test_statistic, abs=1e-8)
        assert ours.p == pytest.approx(theirs.p_value, abs=1e-9)


def test_logrank_of_late_records_is_the_score_test_of_the_cox_regression_of_lifelines():
    federation = dealt(frame("late"), SPLITS["iid"])
    fit = cox(federation, columns=["arm"], strata=None)
    theirs = regression_of(in_one_place(federation)[["time", "event", "entry", "arm", "site"]], None)
    assert worst(fit, theirs) < 1e-6
    assert logrank(federation, by="arm").statistic == pytest.approx(fit.tests().loc["score", "statistic"])
    inside = cox(federation, columns=["arm"]).tests().loc["score", "statistic"]
    assert logrank(federation, by="arm", strata="site").statistic == pytest.approx(inside)


rows = st.lists(
    st.tuples(st.integers(1, 6), st.integers(0, 1), st.integers(0, 5), st.integers(0, 2)),
    min_size=3,
    max_size=25,
)


def few(records, copies=None):
    tables = {}
    for name in range(3):
        own = [(t, e, min(s, t - 1)) for t, e, s, where in records if where == name] + [(1, 0, 0)] * 2
        time, event, entry = np.array(own, dtype=float).T
        tables[str(name)] = from_arrays(np.zeros(len(own)), time=time, event=event, entry=entry)
    return Federation(tables)


@settings(max_examples=50)
@given(rows, st.sampled_from([None, (1, 2, 3, 4, 5, 6), (2, 4.5)]))
def test_curves_of_late_records_are_their_definitions_with_any_ties(records, grid):
    federation = few(records)
    time, event, entry = (federation.store.targets[name] for name in ("time", "event", "entry"))
    if grid is not None:
        # Times are rounded up to the ends of intervals, entries down.
        ends = np.array(grid, dtype=float)
        event = event * (time <= ends[-1])
        time = np.append(ends, 99)[np.searchsorted(ends, time)]
        entry = np.append(0, ends)[np.searchsorted(ends, entry, side="right")]
    found, gone = kaplan_meier(federation, grid=grid), censoring(federation, grid=grid)
    survival = free = 1.0
    for moment in np.unique(time[time < 99]):
        at_risk = ((time >= moment) & (entry < moment)).sum()
        events, lost = (((time == moment) & (event == kind)).sum() for kind in (1, 0))
        assert found.at_risk(moment) == at_risk
        survival *= 1 - events / at_risk
        free *= 1 - lost / (at_risk - events) if lost else 1
        assert found.at(moment) == pytest.approx(survival, abs=1e-12)
        assert gone.at(moment) == pytest.approx(free, abs=1e-12)


def test_whole_weights_are_repeated_records():
    once = dealt(frame("tied", "late", "whole"), SPLITS["iid"])
    tables = {}
    for name, site in once.items():
        table = site.table.take(
            np.repeat(np.arange(len(site.table)), site.table.targets["weight"].astype(int))
        )
        targets = {target: table.targets[target] for target in ("time", "event", "entry")}
        tables[name] = from_arrays(table.features, columns=table.columns, **targets)
    often = Federation(tables)
    for statistic in (kaplan_meier, nelson_aalen, censoring):
        assert statistic(once).table.to_numpy() == pytest.approx(statistic(often).table.to_numpy(), abs=1e-10)
    assert logrank(once, by="arm").statistic == pytest.approx(logrank(often, by="arm").statistic)
    for strata in ("site", None):
        one, other = (cox(data, ties="breslow", strata=strata) for data in (once, often))
        assert one.coefficients == pytest.approx(other.coefficients, abs=1e-9)
        assert one.standard_errors == pytest.approx(other.standard_errors, abs=1e-9)
        assert one.log_likelihood == pytest.approx(other.log_likelihood)
        if strata is None:
            tests = [proportional_hazards(data, fit).table for data, fit in ((once, one), (often, other))]
            assert tests[0].to_numpy() == pytest.approx(tests[1].to_numpy(), abs=1e-8)
    table = kaplan_meier(once).table
    assert table["entered"].sum() == once.store.targets["weight"].sum()
    assert "entered" in kaplan_meier(once).summary()


def test_a_baseline_of_late_and_weighted_records_is_its_definition():
    federation = dealt(frame("tied", "late", "fractional"), SPLITS["dirichlet"])
    data = in_one_place(federation)
    risk = np.exp(0.4 * data["x1"]) * data["weight"]
    found = breslow(federation, lambda x: 0.4 * x[:, 0], life_table(federation))
    hazard = 0.0
    for moment in np.unique(data["time"]):
        there = (data["time"] >= moment) & (data["entry"] < moment)
        happened = (data["time"] == moment) & (data["event"] == 1)
        hazard += data["weight"][happened].sum() / risk[there].sum()
        assert found.at(moment) == pytest.approx(hazard, abs=1e-10)


# Cox regression


ALL = [("late",), ("tied", "late"), ("tied", "whole"), ("fractional",), ("tied", "late", "fractional")]


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("kinds", ALL)
@pytest.mark.parametrize("strata", ["site", None])
def test_a_fit_is_that_of_lifelines(kinds, split, strata):
    federation = dealt(frame(*kinds), SPLITS[split])
    assert worst(cox(federation, strata=strata), regression_of(in_one_place(federation), strata)) < 1e-6


@pytest.mark.parametrize("strata", ["site", None])
@pytest.mark.parametrize("robust", [True, "site"])
def test_robust_errors_of_weighted_records_are_those_of_lifelines(strata, robust):
    federation = dealt(frame("fractional"), Dirichlet(count=6))
    data = in_one_place(federation)
    cluster = {"cluster_col": "cluster"} if robust == "site" else {}
    data = data.assign(cluster=data["site"]) if cluster else data
    theirs = regression_of(data, strata, robust=True, **cluster)
    assert worst(cox(federation, strata=strata, robust=robust), theirs) < 1e-6


def test_times_and_entries_rounded_to_a_grid_are_the_ties_they_become():
    federation, grid = dealt(frame("late", "fractional"), SPLITS["iid"]), np.linspace(0, 2, 9)[1:]
    data = in_one_place(federation)
    places = np.searchsorted(grid, data["time"])
    late = places == len(grid)
    starts = np.append(0.0, grid)[np.searchsorted(grid, data["entry"], side="right")]
    data = data.assign(time=np.append(grid, 99.0)[places], event=data["event"] * ~late, entry=starts)
    for strata in ("site", None):
        assert worst(cox(federation, strata=strata, grid=grid), regression_of(data, strata)) < 1e-6


counted = st.tuples(
    st.integers(1, 6), st.integers(0, 1), st.integers(-2, 2), st.integers(-2, 2), st.integers(0, 5)
)


def definition(records, beta, weights, ties):
    """The log-likelihood straight from its definition."""
    time, event = np.array([r[0] for r in records]), np.array([r[1] for r in records]) == 1
    x, entry = (
        np.array([r[2:4] for r in records], dtype=float),
        np.array([min(r[4], r[0] - 1) for r in records]),
    )
    risk, total = weights * np.exp(x @ beta), 0.0
    for moment in np.unique(time[event]):
        dying = event & (time == moment)
        total += weights[dying] @ (x[dying] @ beta)
        for k in range(dying.sum()):
            gone = k / dying.sum() if ties == "efron" else 0.0
            left = risk[(time >= moment) & (entry < moment)].sum() - gone * risk[dying].sum()
            total -= weights[dying].mean() * np.log(left)
    return total


@settings(max_examples=30)
@given(
    st.lists(st.tuples(counted, st.floats(0.2, 4)), min_size=4, max_size=20),
    st.tuples(st.floats(-1, 1), st.floats(-1, 1)),
    st.sampled_from(["efron", "breslow"]),
)
def test_the_likelihood_its_slopes_and_its_residuals_are_their_definitions(pairs, point, ties):
    records, weights = [pair[0] for pair in pairs], np.array([pair[1] for pair in pairs])
    assume(any(record[1] for record in records))
    beta, h = np.array(point), 1e-4
    own = np.array(records, dtype=float)
    tables = {
        str(site): from_arrays(
            own[site::2, 2:4],
            time=own[site::2, 0],
            event=own[site::2, 1],
            entry=np.minimum(own[site::2, 4], own[site::2, 0] - 1),
            weight=weights[site::2],
        )
        for site in range(2)
    }
    (stratum,) = cox_newton.strata_of(tables, False, ties, None)
    found = stratum.slope(beta)

    def score(counts):
        ends = [[definition(records, beta + s, counts, ties) for s in (d, -d)] for d in h * np.eye(2)]
        return np.array([up - down for up, down in ends]) / (2 * h)

    assert found.log_likelihood == pytest.approx(definition(records, beta, weights, ties), abs=1e-8)
    assert found.gradient == pytest.approx(score(weights), abs=1e-4)
    for axis, step in enumerate(h * np.eye(2)):
        curve = (stratum.slope(beta - step).gradient - stratum.slope(beta + step).gradient) / (2 * h)
        assert found.information[axis] == pytest.approx(curve, abs=1e-4)
    moved = [(score(weights + d) - score(weights - d)) / (2 * h) for d in h * np.eye(len(records))]
    rows = np.array(moved) * weights[:, None]
    assert stratum.squared_scores(beta, False) == pytest.approx(rows.T @ rows, abs=1e-2, rel=1e-3)


def test_concordance_compares_those_who_are_at_risk_together():
    federation = dealt(frame("tied", "late"), SPLITS["iid"])
    fit = cox(federation)
    right = pairs = 0.0
    for site in federation.values():
        time, event, entry = (site.table.targets[name] for name in ("time", "event", "entry"))
        risk = fit.log_risk(site.table.features)
        for i in np.flatnonzero(event):
            others = ((time > time[i]) | ((time == time[i]) & (event == 0))) & (entry < time[i])
            pairs += others.sum()
            right += (risk[others] < risk[i]).sum() + (risk[others] == risk[i]).sum() / 2
    assert fit.concordance == pytest.approx(right / pairs, abs=1e-12)


# With noise


GRID = np.array([0.5, 1.0, 2.0, 4.0])
edges = [float(side) for end in GRID for side in (end, np.nextafter(end, 0), np.nextafter(end, 9))]
times = st.one_of(st.sampled_from(edges), st.floats(5e-324, 1.7e308))


def spans(found):
    own = np.array(found, dtype=float).reshape(-1, 4)
    time, entry = np.maximum(own[:, 0], own[:, 1]), np.minimum(own[:, 0], own[:, 1])
    entry = np.where(entry < time, entry, 0.0)
    return from_arrays(own[:, 3:], columns=["arm"], time=time, event=own[:, 2], entry=entry)


span = st.tuples(times, st.one_of(st.just(0.0), times), st.integers(0, 1), st.integers(0, 1))


@settings(max_examples=120)
@given(st.lists(span, min_size=2, max_size=8), span, st.sampled_from([None, "arm"]), st.floats(0.1, 3))
def test_a_record_that_may_come_late_moves_two_cells_at_most(some, one, by, bound):
    groups = by and Groups(by, ("0", "1"), (0.0, 1.0))
    moved = exit_cells(spans([*some, one]), GRID, 2, groups) - exit_cells(spans(some), GRID, 2, groups)
    assert set(np.abs(moved)) <= {0.0, 1.0}
    assert 1 <= np.abs(moved).sum() <= 2
    before, after = (
        _risk_sums(spans(found), lambda x: 9 * x[:, 0] - 4, bound, GRID) for found in (some, [*some, one])
    )
    assert np.sum(np.abs(after - before) > 0) <= 2
    assert np.abs(after - before).max() <= math.exp(bound) * (1 + 1e-9)


@pytest.mark.parametrize(("delta", "sensitivity"), [(0.0, 2.0), (1e-5, math.sqrt(2))])
def test_two_cells_are_paid_for(delta, sensitivity):
    ledger, data = Ledger(), dealt(frame("late"), SPLITS["iid"])
    table = life_table(data, grid=GRID, epsilon=1.0, delta=delta, ledger=ledger)
    assert [release.sensitivity for release in ledger.releases()] == pytest.approx([sensitivity] * 3)
    assert ledger.spent(delta) <= 1.0
    assert ledger.spent(delta) == pytest.approx(1.0, rel=1e-3)
    assert (table.causes, table.late) == (1, True)
    breslow(data, lambda x: x[:, 0], table, bound=1.0, epsilon=1.0, delta=delta, ledger=ledger)
    assert ledger.releases()[-1].sensitivity == pytest.approx(sensitivity * math.e)


def cohort(seed, records=3000, effect=0.0):
    """Two in ten come late."""
    draw = np.random.default_rng(seed)
    arm = draw.integers(0, 2, 4 * records).astype(float)
    event = draw.exponential(size=4 * records) / np.exp(effect * arm)
    censored = draw.uniform(0.5, 4, 4 * records)
    entry = np.where(draw.random(4 * records) < 0.2, draw.uniform(0, 1, 4 * records), 0)
    time = np.minimum(event, censored)
    seen = np.flatnonzero(entry < time)[:records]
    table = from_arrays(
        arm[seen], columns=["arm"], time=time[seen], event=(event < censored)[seen], entry=entry[seen]
    )
    return Federation({name: table.take(np.arange(start, records, 2)) for start, name in enumerate("ab")})


def test_a_private_curve_of_late_records_is_near_and_its_band_holds_the_truth():
    grid, errors, inside = np.linspace(0, 2, 21)[1:], [], []
    for seed in range(30):
        found = kaplan_meier(
            cohort(seed), grid=grid, epsilon=1.0, ledger=Ledger(), key=Key(seed, rehearsal=True)
        )
        truth = np.exp(-grid)
        errors.append(abs(found.at(grid) - truth).max())
        band = found.table.iloc[1:]
        inside.append(((band["lower"] <= truth) & (truth <= band["upper"])).mean())
    assert np.median(errors) <= 0.04
    assert 0.9 <= np.mean(inside) <= 0.995


def test_noise_alone_does_not_make_late_groups_differ():
    grid = np.linspace(0, 2, 16)[1:]
    paid = [{"epsilon": 0.5, "ledger": Ledger(), "key": Key(seed, rehearsal=True)} for seed in range(100)]
    p = [logrank(cohort(seed, records=1000), by="arm", grid=grid, **paid[seed]).p for seed in range(100)]
    assert np.mean(np.array(p) < 0.05) <= 0.1


@pytest.mark.parametrize("statistic", [kaplan_meier, nelson_aalen, censoring, logrank, life_table, cox])
def test_weights_are_not_private(statistic):
    ledger = Ledger()
    with pytest.raises(Refused, match=r"weight is not private: .* Remove the weight"):
        statistic(dealt(frame("whole"), SPLITS["iid"]), grid=GRID, epsilon=1.0, ledger=ledger)
    assert ledger.releases() == []


# What is refused


@pytest.mark.parametrize(
    ("target", "value", "message"),
    [
        ("entry", -0.5, "entry in site site-1 .* at least 0"),
        ("entry", 99.0, "entry in site site-1 .* before the time"),
        ("weight", 0.0, "weight in site site-1 .* above 0"),
        ("weight", -1.0, "weight in site site-1 .* above 0"),
    ],
)
@pytest.mark.parametrize("statistic", [kaplan_meier, cox])
def test_entries_and_weights_that_are_none_are_refused(statistic, target, value, message):
    data = frame("late", "whole").assign(**{target: value})
    with pytest.raises(InvalidValue, match=message):
        statistic(dealt(data, Iid(count=2)))
