"""Curves and log-rank tests across sites are those of all records in one place, and with noise near them."""

import contextlib
import warnings
from functools import lru_cache

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit import Federation, Key, Ledger
from tacit.errors import InvalidValue
from tacit.sites.encoding import Encoding
from tacit.sites.splits import Dirichlet, Iid, NonIid, TimeNonIid
from tacit.sites.table import from_arrays, from_frame
from tacit.survival import metrics
from tacit.survival.data import simulate
from tacit.survival.statistics import (
    aalen_johansen,
    breslow,
    censoring,
    kaplan_meier,
    life_table,
    logrank,
    nelson_aalen,
    restricted_mean,
)

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from lifelines import AalenJohansenFitter, KaplanMeierFitter, NelsonAalenFitter
    from lifelines.datasets import load_gbsg2, load_lung, load_rossi, load_waltons
    from lifelines.statistics import logrank_test, multivariate_logrank_test
    from lifelines.utils import restricted_mean_survival_time

TARGETS = ("time", "event")
SPLITS = {
    "iid": Iid(count=3),
    "non-iid": NonIid(count=5),
    "time-non-iid": TimeNonIid(count=3),
    "dirichlet": Dirichlet(count=4, alpha=0.3),
}
NAMES = ["simulated", "tied", "rossi", "lung", "gbsg2", "waltons"]


@contextlib.contextmanager
def lifelines_at_work():
    """It warns, and switches numpy's own warnings off for good, unless somebody puts them back."""
    with warnings.catch_warnings(), np.errstate():
        warnings.simplefilter("ignore")
        yield


@lru_cache
def frame(name):
    """Times, events and a column `arm` of 0 and 1."""
    if name in ("simulated", "tied"):
        drawn = simulate("SDGM2", records=300, features=3, seed=4)
        drawn = drawn.assign(time=np.ceil(drawn["time"] * 6) / 6) if name == "tied" else drawn
        return drawn.assign(arm=(drawn["x1"] > 0.5).astype(float))[["time", "event", "arm"]]
    columns = {"rossi": ("week", "arrest", "fin"), "lung": ("time", "status", "sex"),
               "gbsg2": ("time", "cens", "horTh"), "waltons": ("T", "E", "group")}  # fmt: skip
    loaders = {"rossi": load_rossi, "lung": load_lung, "gbsg2": load_gbsg2, "waltons": load_waltons}
    with lifelines_at_work():
        found = loaders[name]()[list(columns[name])].set_axis(["time", "event", "arm"], axis=1)
    return found.assign(arm=(found["arm"] == found["arm"].iloc[0]).astype(float))


def dealt(data, split, seed=2):
    table = from_frame(data, targets=TARGETS)
    rows = split(table, Key(seed))
    return Federation({name: table.take(own, f"site {name}") for name, own in rows.items()})


def in_one_place(federation):
    sites = [name for name, site in federation.items() for _ in range(len(site.table))]
    store = federation.store
    return pd.DataFrame(store.features, columns=store.columns).assign(**store.targets, site=sites)


def of_lifelines(fitter, data, **options):
    with lifelines_at_work():
        return fitter().fit(data["time"], data["event"], **options)


# Parity with lifelines


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("name", NAMES)
def test_kaplan_meier_is_that_of_lifelines_with_its_band_and_its_numbers_at_risk(name, split):
    federation = dealt(frame(name), SPLITS[split])
    ours, theirs = kaplan_meier(federation), of_lifelines(KaplanMeierFitter, frame(name))
    assert ours.table.index.tolist() == theirs.survival_function_.index.tolist()
    assert ours.table["survival"].to_numpy() == pytest.approx(theirs.survival_function_.iloc[:, 0], abs=1e-12)
    assert ours.table[["lower", "upper"]].to_numpy() == pytest.approx(
        theirs.confidence_interval_.to_numpy(), abs=1e-11
    )
    assert ours.table["at_risk"].tolist() == theirs.event_table["at_risk"].tolist()
    assert ours.table["events"].tolist() == theirs.event_table["observed"].tolist()
    assert ours.table["censored"].tolist() == theirs.event_table["censored"].tolist()
    assert ours.median == theirs.median_survival_time_


@pytest.mark.parametrize("level", [0.5, 0.9, 0.99])
def test_bands_have_the_level_that_was_asked_for(level):
    federation = dealt(frame("tied"), SPLITS["iid"])
    for ours, fitter in ((kaplan_meier, KaplanMeierFitter), (nelson_aalen, NelsonAalenFitter)):
        theirs = of_lifelines(fitter, frame("tied"), alpha=1 - level).confidence_interval_
        found = ours(federation, level=level)
        assert found.table[["lower", "upper"]].to_numpy() == pytest.approx(theirs.to_numpy(), abs=1e-11)
        assert found.level == level


@pytest.mark.parametrize("name", NAMES)
def test_nelson_aalen_is_that_of_lifelines_with_its_band(name):
    federation = dealt(frame(name), SPLITS["dirichlet"])
    ours, theirs = nelson_aalen(federation), of_lifelines(NelsonAalenFitter, frame(name))
    assert ours.table["hazard"].to_numpy() == pytest.approx(theirs.cumulative_hazard_.iloc[:, 0], abs=1e-11)
    assert ours.table[["lower", "upper"]].to_numpy() == pytest.approx(
        theirs.confidence_interval_.to_numpy(), abs=1e-10
    )


def test_incidences_are_those_of_lifelines_where_causes_do_not_tie():
    draw = np.random.default_rng(1)
    data = frame("simulated")
    data = data.assign(event=data["event"] * draw.integers(1, 4, len(data)))
    ours = aalen_johansen(dealt(data, SPLITS["non-iid"]))
    assert ours.curves == ("incidence_1", "incidence_2", "incidence_3")
    for cause in (1, 2, 3):
        with lifelines_at_work():
            theirs = AalenJohansenFitter(calculate_variance=False).fit(
                data["time"], data["event"], event_of_interest=cause
            )
        wanted = theirs.cumulative_density_.iloc[:, 0]
        assert ours.table[f"incidence_{cause}"].to_numpy() == pytest.approx(wanted.to_numpy(), abs=1e-12)
        assert ours.at(wanted.index)[:, cause - 1] == pytest.approx(wanted.to_numpy(), abs=1e-12)


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("name", NAMES)
def test_logrank_is_that_of_lifelines_between_sites_and_between_arms(name, split):
    federation = dealt(frame(name), SPLITS[split])
    data = in_one_place(federation)
    for by in ("site", "arm"):
        with lifelines_at_work():
            theirs = multivariate_logrank_test(data["time"], data[by], data["event"])
        ours = logrank(federation, by=by)
        assert ours.statistic == pytest.approx(theirs.test_statistic, abs=1e-9, rel=1e-9)
        assert ours.p == pytest.approx(theirs.p_value, abs=1e-12, rel=1e-8)
        assert ours.table["observed"].sum() == pytest.approx(ours.table["expected"].sum())
        assert ours.table["records"].tolist() == data.groupby(by).size().tolist()
    with lifelines_at_work():
        halves = [data[data["arm"] == arm] for arm in (0, 1)]
        times, events = ([half[column] for half in halves] for column in ("time", "event"))
        two = logrank_test(*times, *events)
    assert logrank(federation, by="arm").statistic == pytest.approx(two.test_statistic, abs=1e-9)


def test_a_public_grid_gives_what_lifelines_gives_for_times_rounded_up_to_it():
    federation, grid = dealt(frame("simulated"), SPLITS["iid"]), np.linspace(0, 2, 13)[1:]
    data = in_one_place(federation)
    places = np.searchsorted(grid, data["time"])
    late = places == len(grid)
    data = data.assign(time=np.append(grid, 99.0)[places], event=data["event"] * ~late)
    survival = of_lifelines(KaplanMeierFitter, data).survival_function_.iloc[:, 0]
    ours = kaplan_meier(federation, grid=grid)
    assert ours.at(grid) == pytest.approx(survival.reindex(grid, method="ffill").to_numpy(), abs=1e-12)
    hazard = of_lifelines(NelsonAalenFitter, data).cumulative_hazard_.iloc[:, 0]
    found = nelson_aalen(federation, grid=grid).at(grid)
    assert found == pytest.approx(hazard.reindex(grid, method="ffill").to_numpy(), abs=1e-12)
    with lifelines_at_work():
        theirs = multivariate_logrank_test(data["time"], data["site"], data["event"])
    assert logrank(federation, grid=grid).statistic == pytest.approx(theirs.test_statistic, abs=1e-9)
    # Nobody knows what is beyond a grid that some outlive.
    assert late.any()
    assert np.isnan(ours.at([2.01, 50.0])).all()
    assert np.isnan(ours.at_risk([2.01])).all()


@pytest.mark.parametrize("name", NAMES)
def test_restricted_means_are_those_of_lifelines(name):
    federation = dealt(frame(name), SPLITS["dirichlet"])
    data = in_one_place(federation)
    for until in (np.quantile(data["time"], 0.3), float(data["time"].median()), data["time"].max() * 1.5):
        with lifelines_at_work():
            theirs = restricted_mean_survival_time(of_lifelines(KaplanMeierFitter, data), t=until)
        found = restricted_mean(federation, until=until)
        assert found.table.loc["everybody", "mean"] == pytest.approx(theirs, rel=1e-11)
        arms = restricted_mean(federation, until=until, by="arm").table
        for arm in (0, 1):
            own = data[data["arm"] == arm]
            with lifelines_at_work():
                theirs = restricted_mean_survival_time(of_lifelines(KaplanMeierFitter, own), t=until)
            assert arms.loc[str(arm), "mean"] == pytest.approx(theirs, rel=1e-11)
        assert arms.loc["difference", "mean"] == pytest.approx(arms["mean"].iloc[1] - arms["mean"].iloc[0])


def test_the_error_of_a_restricted_mean_is_greenwoods():
    # The third is censored: the curve is 3/4, 1/2, 1/2, 0, and the areas behind events are 5/4 and 1/2.
    table = from_arrays(np.zeros(4), time=[1.0, 2, 3, 4], event=[1, 1, 0, 1])
    found = restricted_mean(Federation({"only": table}), until=3.0)
    assert found.table.loc["everybody", "mean"] == pytest.approx(1 + 0.75 + 0.5)
    wanted = np.sqrt(1.25**2 * 1 / (4 * 3) + 0.5**2 * 1 / (3 * 2))
    assert found.table.loc["everybody", "se(mean)"] == pytest.approx(wanted)
    assert "mean time without an event up to 3" in str(found)


@pytest.mark.parametrize("name", NAMES)
def test_the_censoring_curve_is_that_of_brier_scores(name):
    data = frame(name)
    wanted = metrics.censoring(data["time"], data["event"])
    ours = censoring(dealt(data, SPLITS["dirichlet"]))
    times = np.unique(data["time"])
    assert ours.at(times) == pytest.approx(wanted(times), abs=1e-12)
    assert ours.curve(times) == pytest.approx(wanted(times), abs=1e-12)
    assert ours.curve.before(times) == pytest.approx(wanted.before(times), abs=1e-12)


# Straight from the definitions

rows = st.lists(st.tuples(st.integers(1, 6), st.integers(0, 2), st.integers(0, 2)), min_size=3, max_size=30)


def federation_of(records, causes=2):
    """Records of one place each, and two that change nothing so that no site is empty."""
    table = {}
    for name in range(3):
        own = [record[:2] for record in records if record[2] == name] + [(1, 0), (1, 0)]
        time, event = np.array(own, dtype=float).T
        table[str(name)] = from_arrays(np.zeros(len(own)), time=time, event=np.minimum(event, causes))
    return Federation(table)


@settings(max_examples=100)
@given(rows)
def test_curves_are_their_definitions_with_any_ties(records):
    federation = federation_of(records)
    time, event = (federation.store.targets[name] for name in TARGETS)
    curves = aalen_johansen(federation, causes=2)
    survival, incidence = 1.0, np.zeros(2)
    for moment in np.unique(time):
        at_risk = (time >= moment).sum()
        counts = np.array([((time == moment) & (event == cause)).sum() for cause in (1, 2)])
        incidence = incidence + survival * counts / at_risk
        survival *= 1 - counts.sum() / at_risk
        assert curves.at(moment) == pytest.approx(incidence, abs=1e-12)
    # Whoever had no event of either cause is in neither curve.
    merged = kaplan_meier(life_table(federation, causes=2))
    assert merged.at([6.0])[0] == pytest.approx(1 - incidence.sum(), abs=1e-12)


@settings(max_examples=60)
@given(rows, st.permutations(["0", "1", "2"]))
def test_nobody_comes_first_in_a_logrank_test(records, order):
    federation = federation_of(records, causes=1)
    turned = Federation({name: federation.records_of(name) for name in order})
    assert logrank(turned).statistic == pytest.approx(logrank(federation).statistic, abs=1e-8)


@settings(max_examples=60)
@given(rows)
def test_a_stratified_test_adds_up_what_each_site_finds(records):
    draw = np.random.default_rng(len(records))
    tables, leads, variances = {}, 0.0, 0.0
    for name, table in ((n, federation_of(records, causes=1).records_of(n)) for n in ("0", "1", "2")):
        arm = draw.integers(0, 2, len(table)).astype(float)
        time, event = (table.targets[target] for target in TARGETS)
        tables[name] = from_arrays(arm, columns=["arm"], time=time, event=event)
        for moment in np.unique(time[event == 1]):
            n, d = (time >= moment).sum(), ((time == moment) & (event == 1)).sum()
            treated = ((time >= moment) & (arm == 0)).sum()
            leads += ((time == moment) & (event == 1) & (arm == 0)).sum() - d * treated / n
            if n > 1:
                variances += d * (n - d) / (n - 1) * treated / n * (1 - treated / n)
    found = logrank(Federation(tables), by="arm", strata="site")
    assert found.statistic == pytest.approx(leads**2 / variances if variances else 0.0, abs=1e-8)
    assert "within sites" in found.by


def test_a_site_without_events_takes_part():
    tables = {name: site.table for name, site in dealt(frame("tied"), SPLITS["iid"]).items()}
    quiet = from_arrays(np.zeros(5), columns=["arm"], time=np.full(5, 2.0), event=np.zeros(5))
    curve = kaplan_meier(Federation({**tables, "quiet": quiet}))
    assert curve.table["at_risk"].iloc[0] == len(frame("tied")) + 5


# Results


def test_a_curve_answers_at_any_time():
    table = from_arrays(np.zeros(4), time=[1.0, 2.0, 2.0, 3.0], event=[1, 1, 0, 0])
    curve = kaplan_meier(Federation({"only": table}))
    assert curve.at([-1, 0, 0.5, 1, 1.5, 2, 9]).tolist() == [1, 1, 1, 0.75, 0.75, 0.5, 0.5]
    assert curve.at_risk([0, 1, 1.5, 2, 3, 4]).tolist() == [4, 4, 3, 3, 1, 0]
    assert curve.median == 2.0
    assert float(curve.at(1.0)) == 0.75


def test_results_print_themselves():
    federation = dealt(frame("rossi"), SPLITS["iid"])
    text = kaplan_meier(federation).summary()
    for part in ("Kaplan-Meier survival", "432", "114", "at_risk", "lower", "bare: counts of exits", "95 %"):
        assert part in text
    assert "incidence_1" in aalen_johansen(federation).summary()
    assert "cumulative hazard" in nelson_aalen(federation).summary()
    text = logrank(federation, by="arm").summary()
    for part in ("log-rank, by arm", "1 degrees of freedom", "expected", "bare: "):
        assert part in text


def test_one_group_is_no_comparison():
    alone = Federation({"only": from_arrays(np.zeros(4), time=[1.0, 2, 3, 4], event=[1, 1, 0, 1])})
    with pytest.raises(InvalidValue, match="as there is one site alone"):
        logrank(alone)


@pytest.mark.parametrize("options", [{"strata": "site"}, {"strata": "arm", "by": "arm"}])
def test_strata_are_sites_and_groups_are_not(options):
    with pytest.raises(InvalidValue, match="strata"):
        logrank(dealt(frame("tied"), SPLITS["iid"]), **options)


def test_causes_that_nobody_counts_are_refused():
    data = frame("tied").assign(event=2.0)
    with pytest.raises(InvalidValue, match="event in site site-1"):
        kaplan_meier(dealt(data, Iid(count=2)))
    with pytest.raises(InvalidValue, match="causes"):
        aalen_johansen(dealt(data, Iid(count=2)), causes=0)


# With noise: simulated patients, epsilon 1 in all


def private(sites, bins, seed, *, records=3000, epsilon=1.0, design="SDGM1", **options):
    """Patients in equal parts, a grid up to the time that nine in ten of another draw have left by."""
    federation = dealt(simulate(design, records=records, features=3, seed=100), Iid(count=sites))
    horizon = np.quantile(simulate(design, records=records, features=3, seed=200)["time"], 0.9)
    grid, key = np.linspace(0, horizon, bins + 1)[1:], Key(seed, rehearsal=True)
    paid = {"epsilon": epsilon, "ledger": Ledger(), "key": key}
    return federation, life_table(federation, grid=grid, **paid, **options), paid


def worst(curve, exact, table):
    return np.nanmax(abs(curve(table).at(table.grid) - exact.at(table.grid)))


@pytest.mark.parametrize(("sites", "bins"), [(1, 30), (1, 50), (1, 100), (3, 30), (3, 50)])
@pytest.mark.parametrize("design", ["SDGM1", "SDGM2"])
def test_a_private_survival_curve_is_within_a_hundredth(design, sites, bins):
    errors = []
    for seed in range(15):
        federation, table, _ = private(sites, bins, seed, design=design)
        exact = kaplan_meier(federation)
        errors.append(worst(kaplan_meier, exact, table))
        assert kaplan_meier(table).until == table.grid[-1]
    assert np.median(errors) <= 0.01
    assert max(errors) <= 0.02


def test_between_the_ends_of_intervals_a_private_curve_is_as_good():
    federation, table, _ = private(1, 30, 3)
    times = np.linspace(0, table.grid[-1], 500)
    errors = abs(kaplan_meier(table).at(times) - kaplan_meier(federation).at(times))
    assert errors.max() <= 0.01


def test_more_noise_is_further_off_and_less_is_nearer():
    def typical(epsilon):
        found = [private(3, 30, seed, epsilon=epsilon) for seed in range(9)]
        return np.median([worst(kaplan_meier, kaplan_meier(data), table) for data, table, _ in found])

    assert typical(0.1) > 2 * typical(1.0)
    assert typical(10.0) < typical(1.0)


def test_other_private_curves_are_near_too():
    for seed in range(5):
        federation, table, _ = private(1, 50, seed)
        # A hazard of up to 2 where survival is 1/8: errors grow with it.
        assert worst(nelson_aalen, nelson_aalen(federation), table) <= 0.08
        assert worst(censoring, censoring(federation), table) <= 0.03


def test_private_incidences_are_within_a_hundredth():
    draw = np.random.default_rng(6)
    data = simulate("SDGM1", records=3000, features=3, seed=100)
    data = data.assign(event=data["event"] * draw.integers(1, 3, len(data)))
    federation, grid = dealt(data, Iid(count=1)), np.linspace(0, 2.2, 31)[1:]
    exact = aalen_johansen(federation)
    for seed in range(5):
        found = aalen_johansen(
            federation, causes=2, grid=grid, epsilon=1.0, ledger=Ledger(), key=Key(seed, rehearsal=True)
        )
        assert abs(found.at(grid) - exact.at(grid)).max() <= 0.01


@pytest.mark.parametrize(("sites", "bins"), [(1, 20), (1, 50), (3, 20)])
@pytest.mark.parametrize("design", ["SDGM1", "SDGM2"])
def test_one_histogram_gives_every_curve_within_a_hundredth(design, sites, bins):
    """As long as one in five is left; with more sites there is more noise, which counts alike at each."""
    federation = dealt(simulate(design, records=3000, features=3, seed=100), Iid(count=sites))
    horizon = np.quantile(simulate(design, records=3000, features=3, seed=200)["time"], 0.8)
    grid, exact = np.linspace(0, horizon, bins + 1)[1:], life_table(federation)
    errors = []
    for seed in range(15):
        paid = {"epsilon": 1.0, "ledger": Ledger(), "key": Key(seed, rehearsal=True)}
        table = life_table(federation, grid=grid, **paid)
        baselines = [
            breslow(federation, lambda x: 0.1 * x[:, 2], exact),
            breslow(federation, lambda x: 0.1 * x[:, 2], table, bound=0.5, **paid),
        ]
        errors.append(
            [
                *(worst(curve, curve(exact), table) for curve in (kaplan_meier, nelson_aalen, censoring)),
                np.nanmax(abs(np.diff([np.exp(-curve.at(grid)) for curve in baselines], axis=0))),
            ]
        )
    assert (np.median(errors, axis=0) <= 0.01).all()


def test_a_private_logrank_test_is_near_the_open_one():
    grid, off = np.linspace(0, 3, 21)[1:], []
    for seed in range(15):
        federation = two_arms(seed, 0.15, records=3000)
        table = life_table(
            federation, by="arm", grid=grid, epsilon=1.0, ledger=Ledger(), key=Key(seed, rehearsal=True)
        )
        lead = [
            found.table.eval("observed - expected").iloc[1] / len(federation.store)
            for found in (logrank(table, by="arm"), logrank(federation, by="arm"))
        ]
        off.append(abs(lead[0] - lead[1]))
    assert np.median(off) <= 0.01


def test_private_restricted_means_are_near_and_their_intervals_hold_the_truth():
    grid, inside, off, truth = np.linspace(0, 2, 21)[1:], [], [], 1 - np.exp(-1.6)
    for seed in range(80):
        federation = two_arms(seed, 0.0)
        key = Key(seed, rehearsal=True)
        found = restricted_mean(
            federation, until=1.6, by="arm", grid=grid, epsilon=0.5, ledger=Ledger(), key=key
        ).table
        inside.append((found["lower"] <= [truth, truth, 0]) & (found["upper"] >= [truth, truth, 0]))
        off.append(abs(found["mean"].iloc[:2] - truth).max())
    assert 0.9 <= np.mean(inside) <= 0.995
    assert np.median(off) <= 0.05


def test_a_mean_beyond_what_is_known_is_refused():
    federation, table, _ = private(1, 30, 3)
    with pytest.raises(InvalidValue, match="the curve ends there"):
        restricted_mean(table, until=table.grid[-1] * 1.01)
    with pytest.raises(InvalidValue, match="until"):
        restricted_mean(federation, until=0.0)


def test_a_private_baseline_gives_nearly_the_same_survival():
    for seed in range(5):
        federation, table, paid = private(3, 30, seed)
        exact = breslow(federation, lambda x: 0.1 * x[:, 2], life_table(federation))
        found = breslow(federation, lambda x: 0.1 * x[:, 2], table, bound=0.5, **paid)
        times = table.grid[: len(found.table) - 1]
        assert len(times) >= 25
        assert abs(np.exp(-found.at(times)) - np.exp(-exact.at(times))).max() <= 0.03


def test_private_bands_hold_the_truth_as_often_as_they_say():
    inside = []
    for seed in range(120):
        draw = np.random.default_rng(seed)
        event, censored = draw.exponential(size=1000), draw.uniform(0.5, 4, 1000)
        table = from_arrays(np.zeros(1000), time=np.minimum(event, censored), event=event < censored)
        federation = Federation({"a": table.take(slice(0, 700)), "b": table.take(slice(700, 1000))})
        curve = kaplan_meier(
            federation,
            grid=np.linspace(0, 3, 21)[1:],
            epsilon=0.5,
            ledger=Ledger(),
            key=Key(seed, rehearsal=True),
        ).table.iloc[1:]
        truth = np.exp(-curve.index.to_numpy())
        inside.append(((curve["lower"] <= truth) & (truth <= curve["upper"])).mean())
    # A band without the noise in it would hold it about two times in three.
    assert 0.9 <= np.mean(inside) <= 0.99


def two_arms(seed, effect, records=1500):
    draw = np.random.default_rng(seed)
    arm = draw.integers(0, 2, records).astype(float)
    event, censored = draw.exponential(size=records) / np.exp(effect * arm), draw.uniform(0.5, 4, records)
    table = from_arrays(arm, columns=["arm"], time=np.minimum(event, censored), event=event < censored)
    return Federation({name: table.take(np.arange(start, records, 2)) for start, name in enumerate("ab")})


@pytest.mark.parametrize("by", ["arm", "site"])
def test_noise_alone_does_not_make_groups_differ(by):
    grid = np.linspace(0, 3, 16)[1:]
    p = [
        logrank(
            two_arms(seed, 0.0), by=by, grid=grid, epsilon=0.3, ledger=Ledger(), key=Key(seed, rehearsal=True)
        ).p
        for seed in range(200)
    ]
    assert np.mean(np.array(p) < 0.05) <= 0.08


def test_a_clear_effect_is_found_through_the_noise():
    grid, paid = np.linspace(0, 3, 16)[1:], {"epsilon": 1.0, "key": Key(1, rehearsal=True)}
    for strata in (None, "site"):
        found = logrank(two_arms(1, 0.5), by="arm", strata=strata, grid=grid, ledger=Ledger(), **paid)
        assert found.p < 1e-3
        assert found.provenance.startswith("released: epsilon 1 at delta 0")


# Several groups

GRID = np.linspace(0, 3, 13)[1:]


def graded(name="simulated", groups=3):
    """Records with a grade from 1 on, later events for a higher one."""
    data = frame(name)
    grade = np.random.default_rng(4).integers(1, groups + 1, len(data))
    return data.assign(grade=grade, time=data["time"] * (1 + 0.3 * grade))


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("groups", [3, 5])
@pytest.mark.parametrize("name", NAMES)
def test_logrank_of_several_groups_is_that_of_lifelines(name, groups, split):
    federation = dealt(graded(name, groups), SPLITS[split])
    data = in_one_place(federation)
    with lifelines_at_work():
        theirs = multivariate_logrank_test(data["time"], data["grade"], data["event"])
    for by in ("grade", {"grade": range(1, groups + 1)}):
        ours = logrank(federation, by=by)
        assert ours.statistic == pytest.approx(theirs.test_statistic, abs=1e-9, rel=1e-9)
        assert ours.p == pytest.approx(theirs.p_value, abs=1e-12, rel=1e-8)
        assert ours.degrees == groups - 1
        assert ours.table.index.tolist() == [str(grade) for grade in range(1, groups + 1)]
        assert ours.table["records"].tolist() == data.groupby("grade").size().tolist()


def test_words_are_grouped_by_their_levels_however_they_are_encoded():
    data = graded().assign(site=lambda given: np.resize(["oslo", "bergen"], len(given)))
    wanted = logrank(Federation.from_frame(data, site="site", targets=["time", "event"]), by="grade")
    worded = data.assign(grade=data["grade"].map({1: "I", 2: "II", 3: "III"}))
    rules = Encoding(levels={"grade": ["I", "II", "III"]})
    scaled = Encoding(center={"grade": 2.0}, scale={"grade": 0.7})
    for records, encoding, labels in (
        (worded, rules, ["I", "II", "III"]),
        (data, scaled, ["1", "2", "3"]),
    ):
        federation = Federation.from_frame(records, site="site", targets=["time", "event"], encoding=encoding)
        ours = logrank(federation, by="grade")
        assert ours.statistic == pytest.approx(wanted.statistic, rel=1e-12)
        assert ours.table.index.tolist() == labels
        private = logrank(
            federation,
            by="grade" if encoding is rules else {"grade": [1, 2, 3]},
            grid=GRID,
            epsilon=1000.0,
            ledger=Ledger(),
        )
        assert private.table.index.tolist() == labels
        assert private.statistic == pytest.approx(
            logrank(federation, by="grade", grid=GRID).statistic, rel=0.2
        )


def test_a_private_test_of_three_groups_comes_from_the_table_that_was_charged():
    federation, ledger = dealt(graded(), SPLITS["iid"]), Ledger()
    table = life_table(
        federation, by={"grade": [1, 2, 3]}, grid=GRID, epsilon=1.0, ledger=ledger,
        key=Key(1, rehearsal=True),
    )  # fmt: skip
    spent, events = ledger.spent(0.0), len(ledger.releases())
    assert spent == pytest.approx(1.0)
    first, again = logrank(table, by="grade"), logrank(table, by={"grade": [1, 2, 3]})
    assert (first.statistic, first.degrees) == (again.statistic, 2)
    assert (ledger.spent(0.0), len(ledger.releases())) == (spent, events)
    means = restricted_mean(table, until=0.5, by="grade").table
    assert means.index.tolist() == ["1", "2", "3"]


def test_the_level_of_a_private_test_of_three_groups_holds_under_noise():
    # Equal hazards: over 300 tests at level .1, more than 46 rejections have a probability below 2e-3.
    rejected = 0
    for seed in range(300):
        draw = np.random.default_rng(seed)
        table = from_arrays(
            draw.integers(1, 4, 400), columns=["grade"],
            time=draw.exponential(1.0, 400) + 0.001, event=draw.integers(0, 2, 400),
        )  # fmt: skip
        found = logrank(
            Federation({"only": table}), by={"grade": [1, 2, 3]}, grid=GRID, epsilon=2.0, ledger=Ledger(),
            key=Key(seed, rehearsal=True),
        )  # fmt: skip
        rejected += found.p < 0.1
    assert rejected <= 46


def test_groups_that_nobody_named_are_refused_and_the_remedy_works():
    federation, ledger = dealt(graded(), SPLITS["iid"]), Ledger()
    with pytest.raises(
        InvalidValue, match="grade must hold 0 or 1; give all values that it may have"
    ) as told:
        logrank(federation, by="grade", grid=GRID, epsilon=1.0, ledger=ledger)
    assert ledger.releases() == []
    remedy = str(told.value).split("as in by=")[1].split("; details")[0]
    found = logrank(federation, by=eval(remedy), grid=GRID, epsilon=1.0, ledger=ledger)
    assert found.degrees == 2
    with pytest.raises(InvalidValue, match="a column of 2 to 50 values"):
        logrank(dealt(graded().assign(grade=np.arange(len(graded())) * 1.5), SPLITS["iid"]), by="grade")
