"""Cox regression across sites is that of all records in one place, or of one stratum per site, and says no to
data that have no answer."""

import contextlib
import warnings
from functools import lru_cache

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.stats import rankdata
from sksurv.linear_model import CoxPHSurvivalAnalysis
from sksurv.util import Surv

from tacit import Federation, Key, Ledger
from tacit.errors import InvalidValue, NotSeparable
from tacit.sites.splits import Dirichlet, Iid, NonIid, TimeNonIid
from tacit.sites.table import from_arrays, from_frame
from tacit.survival.data import simulate
from tacit.survival.metrics import harrell
from tacit.survival.statistics import breslow, cox, cox_newton, life_table, proportional_hazards

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from lifelines import CoxPHFitter
    from lifelines.datasets import load_gbsg2, load_lung, load_rossi, load_waltons
    from lifelines.statistics import proportional_hazard_test

TARGETS = ("time", "event")
TIGHT = {"precision": 1e-13, "r_precision": 1e-15}
SPLITS = {
    "iid": Iid(count=3),
    "non-iid": NonIid(count=4),
    "time-non-iid": TimeNonIid(count=3),
    "dirichlet": Dirichlet(count=4, alpha=0.4),
}


@contextlib.contextmanager
def lifelines_at_work():
    """It warns, and switches numpy's own warnings off for good, unless somebody puts them back."""
    with warnings.catch_warnings(), np.errstate():
        warnings.simplefilter("ignore")
        yield


@lru_cache
def frame(name):
    """Real data with many ties, and simulated ones with and without."""
    if name in ("simulated", "tied"):
        drawn = simulate("SDGM1", records=300, features=4, seed=11)
        return drawn.assign(time=np.ceil(drawn["time"] * 6) / 6) if name == "tied" else drawn
    with lifelines_at_work():
        if name == "rossi":
            return load_rossi().rename(columns={"week": "time", "arrest": "event"})
        if name == "lung":
            return load_lung()[["time", "status", "age", "sex"]].rename(columns={"status": "event"})
        if name == "waltons":
            treated = load_waltons().rename(columns={"T": "time", "E": "event"})
            return treated.assign(group=(treated["group"] == "control").astype(float))
        found = load_gbsg2().rename(columns={"cens": "event"})
    levels = {
        "horTh": {"no": 0, "yes": 1},
        "menostat": {"Pre": 0, "Post": 1},
        "tgrade": {"I": 1, "II": 2, "III": 3},
    }
    return found.assign(
        **{column: found[column].map(level).astype(float) for column, level in levels.items()}
    )


def dealt(data, split, seed=5):
    table = from_frame(data, targets=TARGETS)
    return Federation(
        {name: table.take(rows, f"site {name}") for name, rows in split(table, Key(seed)).items()}
    )


def in_one_place(federation):
    """All records in the order of the store, with the site of each."""
    sites = [name for name, site in federation.items() for _ in range(len(site.table))]
    store = federation.store
    return pd.DataFrame(store.features, columns=store.columns).assign(**store.targets, site=sites)


def reference(data, strata, alpha=0.05, **options):
    columns = data if strata else data.drop(columns="site")
    with lifelines_at_work():
        model = CoxPHFitter(alpha=alpha)
        return model.fit(columns, "time", "event", strata=strata, fit_options=TIGHT, **options)


def differences(ours, theirs):
    return {
        "coefficients": abs(ours.coefficients - theirs.params_.to_numpy()).max(),
        "standard errors": abs(ours.standard_errors - theirs.standard_errors_.to_numpy()).max(),
        "log-likelihood": abs(ours.log_likelihood - theirs.log_likelihood_),
    }


# Parity


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("name", ["simulated", "tied", "rossi", "lung", "gbsg2", "waltons"])
def test_one_baseline_per_site_is_the_stratified_fit_of_lifelines(name, split):
    federation = dealt(frame(name), SPLITS[split])
    ours = cox(federation)
    theirs = reference(in_one_place(federation), "site")
    assert max(differences(ours, theirs).values()) < 1e-6
    # Two risks that are equal but for rounding are a tie for one of us, and in order for the other.
    assert ours.concordance == pytest.approx(theirs.concordance_index_, abs=2e-4)
    with lifelines_at_work():
        ratio = theirs.log_likelihood_ratio_test()
    assert ours.tests().loc["likelihood ratio", "statistic"] == pytest.approx(ratio.test_statistic, abs=1e-6)
    assert ours.tests().loc["likelihood ratio", "p"] == pytest.approx(ratio.p_value, abs=1e-9)
    assert ours.iterations <= 9


@pytest.mark.parametrize("name", ["simulated", "tied", "rossi", "lung", "gbsg2", "waltons"])
def test_one_baseline_for_all_is_the_pooled_fit_of_lifelines_however_records_are_dealt(name):
    theirs = None
    for split in SPLITS.values():
        federation = dealt(frame(name), split)
        theirs = theirs or reference(in_one_place(federation), None)
        assert max(differences(cox(federation, strata=None), theirs).values()) < 1e-6


@pytest.mark.parametrize("level", [0.95, 0.9])
def test_the_summary_is_the_table_of_lifelines(level):
    federation = dealt(frame("rossi"), SPLITS["dirichlet"])
    ours = cox(federation, level=level).summary()
    theirs = reference(in_one_place(federation), "site", alpha=1 - level).summary
    assert list(ours.columns) == list(theirs.columns)
    assert (list(ours.index), ours.index.name) == (list(theirs.index), theirs.index.name)
    assert abs(ours - theirs).to_numpy().max() < 1e-6


def test_the_lung_fit_is_that_of_r():
    # coxph(Surv(time, status) ~ age + sex, lung), R survival 3.
    fit = cox(dealt(frame("lung"), SPLITS["dirichlet"]), strata=None)
    assert fit.coefficients == pytest.approx([0.017045, -0.513219], abs=5e-7)
    assert fit.standard_errors == pytest.approx([0.009223, 0.167458], abs=5e-7)
    assert fit.tests()["statistic"].tolist() == pytest.approx([14.12, 13.47, 13.72], abs=5e-3)
    alone = cox(Federation({"all": from_frame(frame("lung"), targets=TARGETS)}))
    assert alone.concordance == pytest.approx(0.603, abs=5e-4)
    assert alone.concordance_error == pytest.approx(0.025, abs=5e-4)
    assert f"{alone.concordance:.4f} (se {alone.concordance_error:.4f})" in str(alone)


def by_column(name):
    """Natural sites: the institutions of a trial, its tumour grades, or its arms."""
    if name == "lung":
        with lifelines_at_work():
            data = load_lung()[["time", "status", "age", "sex", "inst"]].rename(columns={"status": "event"})
        data = data.dropna()
        return data[data.groupby("inst")["inst"].transform("size") > 1], "inst"
    return frame(name), {"gbsg2": "tgrade", "waltons": "group", "rossi": "race"}[name]


@pytest.mark.parametrize("name", ["lung", "gbsg2", "rossi"])
@pytest.mark.parametrize("strata", ["site", None])
def test_sites_by_a_column_give_the_fit_of_lifelines(name, strata):
    data, column = by_column(name)
    federation = Federation.from_frame(data, site=column, targets=TARGETS)
    ours, theirs = cox(federation, strata=strata), reference(in_one_place(federation), strata)
    assert max(differences(ours, theirs).values()) < 1e-6


@pytest.mark.parametrize("ties", ["efron", "breslow"])
@pytest.mark.parametrize("ridge", [0.1, 5.0])
def test_a_ridge_is_that_of_scikit_survival(ties, ridge):
    data = frame("tied")
    fit = cox(dealt(data, SPLITS["non-iid"]), strata=None, ties=ties, ridge=ridge)
    model = CoxPHSurvivalAnalysis(alpha=ridge, ties=ties, tol=1e-13)
    model.fit(data[list(fit.columns)].to_numpy(), Surv.from_arrays(data["event"] == 1, data["time"]))
    assert fit.coefficients == pytest.approx(model.coef_, abs=1e-9)


@pytest.mark.parametrize("strata", ["site", None])
@pytest.mark.parametrize("robust", [True, "site"])
def test_robust_errors_are_those_of_lifelines(strata, robust):
    federation = dealt(frame("simulated"), Dirichlet(count=6))
    data = in_one_place(federation)
    cluster = {"cluster_col": "cluster"} if robust == "site" else {}
    data = data.assign(cluster=data["site"]) if cluster else data
    theirs = reference(data, strata, robust=True, **cluster)
    assert max(differences(cox(federation, strata=strata, robust=robust), theirs).values()) < 1e-6


def test_times_rounded_up_to_a_public_grid_are_the_ties_they_become():
    federation, grid = dealt(frame("simulated"), SPLITS["iid"]), np.linspace(0, 2, 21)[1:]
    data = in_one_place(federation)
    places = np.searchsorted(grid, data["time"])
    late = places == len(grid)
    data = data.assign(time=np.append(grid, 9.0)[places], event=data["event"] * ~late)
    for strata in ("site", None):
        theirs = reference(data, strata)
        assert max(differences(cox(federation, strata=strata, grid=grid), theirs).values()) < 1e-6


@pytest.mark.parametrize("transform", ["km", "identity", "log", "rank"])
def test_the_test_of_proportional_hazards_is_that_of_lifelines_in_one_place(transform):
    # Ranks of lifelines depend on the order of tied records.
    federation = dealt(frame("simulated" if transform == "rank" else "tied"), SPLITS["dirichlet"])
    fit, data = cox(federation, strata=None), in_one_place(federation)
    theirs = reference(data, None)
    with lifelines_at_work():
        test = proportional_hazard_test(theirs, data.drop(columns="site"), time_transform=transform)
    ours = proportional_hazards(federation, fit, transform=transform)
    assert ours.table["statistic"].tolist() == pytest.approx(np.ravel(test.test_statistic).tolist(), abs=1e-6)
    assert ours.table["p"].tolist() == pytest.approx(np.ravel(test.p_value).tolist(), abs=1e-6)


@pytest.mark.parametrize("transform", ["identity", "rank"])
def test_the_test_of_proportional_hazards_stays_within_sites(transform):
    federation = dealt(frame("tied"), SPLITS["dirichlet"])
    fit, data = cox(federation), in_one_place(federation).sort_values(["site", "time", "event"])
    theirs = reference(data, "site")

    def ranks(durations, events, weights):
        shares = np.zeros(len(data))
        for site in data["site"].unique():
            own = (data["site"] == site).to_numpy() & (data["event"] == 1).to_numpy()
            found = rankdata(data["time"][own]) / own.sum()
            shares[own] = found - found.mean()
        return pd.Series(shares, index=events.index)

    with lifelines_at_work():
        test = proportional_hazard_test(
            theirs, data, time_transform=ranks if transform == "rank" else transform
        )
    ours = proportional_hazards(federation, fit, transform=transform)
    assert ours.table["statistic"].tolist() == pytest.approx(np.ravel(test.test_statistic).tolist(), abs=1e-6)


def test_an_effect_that_wears_off_is_found_and_one_that_stays_is_not():
    draw = np.random.default_rng(3)
    x, z = draw.integers(0, 2, 2000).astype(float), draw.normal(size=2000)
    # The hazard of x is e^1.5 up to time 0.3 and 1 afterwards; that of z is constant.
    early = draw.exponential(size=2000) / np.exp(1.5 * x + 0.5 * z)
    time = np.where(early < 0.3, early, 0.3 + draw.exponential(size=2000) / np.exp(0.5 * z))
    table = from_arrays(np.column_stack([x, z]), columns=["x", "z"], time=time, event=np.ones(2000))
    federation = Federation({name: table.take(np.arange(start, 2000, 2)) for start, name in enumerate("ab")})
    for transform in ("rank", "km"):
        p = proportional_hazards(federation, cox(federation), transform=transform).table["p"]
        assert p["x"] < 1e-6
        assert p["z"] > 0.01


# The likelihood itself

few_records = st.lists(
    st.tuples(
        st.integers(1, 6), st.integers(0, 1), st.integers(-2, 2), st.integers(-2, 2), st.integers(0, 2)
    ),
    min_size=4,
    max_size=25,
)


def strata_of(records, by_site, ties):
    tables = {}
    for name in range(3):
        own = np.array([record for record in records if record[4] == name], dtype=float).reshape(-1, 5)
        if len(own):
            tables[str(name)] = from_arrays(own[:, 2:4], time=own[:, 0], event=own[:, 1])
    return cox_newton.strata_of(tables, by_site, ties, None)


def weighted(records, beta, weights, ties):
    """The log-likelihood straight from the definition, everybody in one stratum, records counting as often as
    their weights say."""
    time, event = np.array([r[0] for r in records]), np.array([r[1] for r in records]) == 1
    x = np.array([r[2:4] for r in records], dtype=float)
    risk, total = weights * np.exp(x @ beta), 0.0
    for moment in np.unique(time[event]):
        dying = event & (time == moment)
        total += weights[dying] @ (x[dying] @ beta)
        for k in range(dying.sum()):
            gone = k / dying.sum() if ties == "efron" else 0.0
            left = risk[time >= moment].sum() - gone * risk[dying].sum()
            total -= weights[dying].mean() * np.log(left)
    return total


@settings(max_examples=60)
@given(few_records, st.tuples(st.floats(-1, 1), st.floats(-1, 1)), st.sampled_from(["efron", "breslow"]))
def test_the_likelihood_is_its_definition_and_its_slopes_are_its_derivatives(records, point, ties):
    assume(any(record[1] for record in records))
    beta, ones, h = np.array(point), np.ones(len(records)), 1e-5
    (stratum,) = strata_of(records, False, ties)
    found = stratum.slope(beta)
    assert found.log_likelihood == pytest.approx(weighted(records, beta, ones, ties), abs=1e-9)
    for step, axis in zip(h * np.eye(2), range(2), strict=True):
        up, down = stratum.slope(beta + step), stratum.slope(beta - step)
        slope = (up.log_likelihood - down.log_likelihood) / (2 * h)
        assert found.gradient[axis] == pytest.approx(slope, abs=1e-5)
        curve = (down.gradient - up.gradient) / (2 * h)
        assert found.information[axis] == pytest.approx(curve, abs=1e-4)


@settings(max_examples=25)
@given(few_records, st.tuples(st.floats(-1, 1), st.floats(-1, 1)), st.sampled_from(["efron", "breslow"]))
def test_a_score_residual_is_what_counting_a_record_a_little_more_does_to_the_score(records, point, ties):
    assume(any(record[1] for record in records))
    beta, h = np.array(point), 1e-4
    (stratum,) = strata_of(records, False, ties)

    def score(weights):
        ends = [[weighted(records, beta + s, weights, ties) for s in (step, -step)] for step in h * np.eye(2)]
        return np.array([up - down for up, down in ends]) / (2 * h)

    moved = np.array([(score(1 + step) - score(1 - step)) / (2 * h) for step in h * np.eye(len(records))])
    assert stratum.squared_scores(beta, False) == pytest.approx(moved.T @ moved, abs=1e-3)


@settings(max_examples=40)
@given(few_records, st.sampled_from(["efron", "breslow"]))
def test_a_pooled_fit_does_not_know_who_holds_what(records, ties):
    assume(any(record[1] for record in records))
    apart = strata_of(records, False, ties)
    together = strata_of([(*record[:4], 0) for record in records], False, ties)
    for beta in (np.zeros(2), np.array([0.5, -0.7])):
        one, other = apart[0].slope(beta), together[0].slope(beta)
        assert one.log_likelihood == pytest.approx(other.log_likelihood, abs=1e-9)
        assert one.information == pytest.approx(other.information, abs=1e-9)


def test_with_a_baseline_of_its_own_only_the_order_of_a_sites_times_matters():
    federation = dealt(frame("tied"), SPLITS["dirichlet"])
    tables = {}
    for number, (name, site) in enumerate(federation.items(), start=1):
        time = np.log1p(site.table.targets["time"] * number) ** number
        tables[name] = from_arrays(
            site.table.features, columns=site.table.columns, time=time, event=site.table.targets["event"]
        )
    assert cox(Federation(tables)).coefficients.tolist() == cox(federation).coefficients.tolist()


@settings(max_examples=20)
@given(st.floats(-5, 5), st.sampled_from([1e-6, 1e-3, 1e3, 1e6]), st.sampled_from(["site", None]))
def test_other_units_give_the_same_hazards(shift, unit, strata):
    data = frame("tied")
    plain = cox(dealt(data, SPLITS["iid"]), strata=strata)
    moved = cox(dealt(data.assign(x2=(data["x2"] + shift) * unit), SPLITS["iid"]), strata=strata)
    assert moved.log_likelihood == pytest.approx(plain.log_likelihood, abs=1e-7)
    wanted = plain.coefficients / np.array([1, unit, 1, 1])
    assert moved.coefficients == pytest.approx(wanted, rel=1e-6)


def test_steps_that_lead_down_are_halved(monkeypatch):
    draw = np.random.default_rng(5)
    x = draw.standard_t(1.2, size=60)
    time = draw.exponential(size=60) / np.exp(np.clip(1.5 * x, -8, 8))
    asked, slope = [], cox_newton.Stratum.slope

    def watched(stratum, beta):
        asked.append(slope(stratum, beta))
        return asked[-1]

    monkeypatch.setattr(cox_newton.Stratum, "slope", watched)
    fit = cox(Federation({"only": from_arrays(x, time=time, event=np.ones(60))}))
    likelihoods = [found.log_likelihood for found in asked]
    # The first full step leads down, from -188.6 to -204.4.
    assert likelihoods[1] < likelihoods[0] - 10
    assert fit.log_likelihood == pytest.approx(max(likelihoods), abs=1e-9)
    assert abs(asked[-1].gradient[0]) * fit.standard_errors[0] < 1e-6
    assert fit.iterations == len(asked)


# What comes with a fit


def test_concordance_counts_pairs_at_the_same_site():
    table = from_frame(frame("tied"), targets=TARGETS)
    alone = Federation({"only": table})
    fit = cox(alone)
    assert fit.concordance == pytest.approx(
        harrell(table.targets["time"], table.targets["event"], fit.log_risk(table.features))
    )


def test_the_error_of_the_concordance_is_that_of_the_jackknife():
    federation = dealt(frame("tied"), SPLITS["dirichlet"])
    fit = cox(federation)
    counts = []
    for site in federation.values():
        time, event = site.table.targets["time"], site.table.targets["event"]
        risk = fit.log_risk(site.table.features)
        first, later = event[:, None] == 1, (time > time[:, None]) | ((time == time[:, None]) & (event == 0))
        pairs = first & later
        right = pairs * ((risk < risk[:, None]) + (risk == risk[:, None]) / 2)
        counts.append(np.stack([part.sum(axis=0) + part.sum(axis=1) for part in (right, pairs)]))
    right, pairs = np.concatenate(counts, axis=1)
    moved = (right - fit.concordance * pairs) / (pairs.sum() / 2)
    assert fit.concordance == pytest.approx(right.sum() / pairs.sum(), abs=1e-12)
    assert fit.concordance_error == pytest.approx(np.sqrt((moved**2).sum()), abs=1e-12)


def test_the_baseline_of_breslow_is_that_of_lifelines():
    federation = dealt(frame("tied"), SPLITS["dirichlet"])
    data, fit = in_one_place(federation), cox(federation, strata=None)
    theirs = reference(data, None)
    baseline = theirs.baseline_cumulative_hazard_["baseline cumulative hazard"]
    ours = breslow(federation, fit.log_risk, life_table(federation))
    # Theirs is that of a record of mean features.
    shift = np.exp(data[list(fit.columns)].mean().to_numpy() @ fit.coefficients)
    assert ours.at(baseline.index) * shift == pytest.approx(baseline.to_numpy(), abs=1e-7)
    assert ours.provenance.count("bare:") == 2


def test_a_fit_prints_itself(capsys):
    fit = cox(dealt(frame("lung"), SPLITS["iid"]), robust=True, ridge=0.5)
    fit.print_summary()
    printed = capsys.readouterr().out
    assert printed == fit.text() + "\n"
    head = ["Cox regression, efron ties", "one at each site", "228", "165", "robust", "ridge"]
    foot = ["likelihood ratio test", "partial AIC", "concordance within sites", "bare: a log-likelihood"]
    for part in [*head, "age", *foot]:
        assert part in printed
    assert "covariate" in proportional_hazards(dealt(frame("lung"), SPLITS["iid"]), fit).summary()


def test_what_left_the_sites_is_said():
    federation = dealt(frame("lung"), SPLITS["iid"])
    assert cox(federation).provenance.startswith(
        "bare: a log-likelihood, a gradient and an information matrix"
    )
    assert "risk sets of 139 event times" in cox(federation, strata=None).provenance
    assert "squared residuals" in cox(federation, robust=True).provenance
    assert proportional_hazards(federation, cox(federation)).provenance.startswith("bare: sums of residuals")
    published = Federation({name: site.table for name, site in federation.items()}, public=True)
    assert cox(published).provenance.startswith("public:")


def test_some_of_the_columns_may_be_chosen():
    federation = dealt(frame("rossi"), SPLITS["iid"])
    chosen = cox(federation, columns=["age", "fin"])
    assert chosen.columns == ("age", "fin")
    other = dealt(frame("rossi")[["time", "event", "fin", "age"]], SPLITS["iid"])
    assert chosen.coefficients[::-1] == pytest.approx(cox(other).coefficients, abs=1e-9)


# What has no answer


def test_the_partial_likelihood_is_not_private_whatever_is_paid():
    with pytest.raises(NotSeparable, match="give the ends of public intervals"):
        cox(dealt(frame("tied"), SPLITS["iid"]), epsilon=1.0, delta=1e-5, ledger=Ledger())


@pytest.mark.parametrize("strata", ["site", None])
def test_a_constant_column_is_named(strata):
    data = frame("tied").assign(ward=0.1)
    with pytest.raises(InvalidValue, match=r"^column ward is not allowed: it is constant"):
        cox(dealt(data, SPLITS["iid"]), strata=strata)


def test_what_is_constant_at_each_site_has_no_answer_within_sites():
    federation = dealt(frame("tied"), SPLITS["iid"])
    data = in_one_place(federation)
    data["size"] = data["site"].map({"site-1": 0.1, "site-2": 0.2, "site-3": 0.7})
    again = Federation.from_frame(data, site="site", targets=TARGETS)
    with pytest.raises(InvalidValue, match=r"^column size is not allowed: it is constant"):
        cox(again)
    assert np.isfinite(cox(again, strata=None).coefficients).all()


def test_columns_that_say_the_same_are_named():
    data = frame("tied")
    data = data.assign(double=2 * data["x1"] - data["x3"])
    with pytest.raises(InvalidValue, match="columns x1, x3, double are not allowed together"):
        cox(dealt(data, SPLITS["iid"]))
    assert np.isfinite(cox(dealt(data, SPLITS["iid"]), ridge=0.1).coefficients).all()


def separating(kind, data):
    draw = np.random.default_rng(1)
    return {
        "the event itself": data["event"],
        "nobody who has it has an event": (data["event"] == 0) & (draw.random(len(data)) < 0.1),
        "the order of times": -1000 * data["time"],
    }[kind].astype(float)


@pytest.mark.parametrize("strata", ["site", None])
@pytest.mark.parametrize("kind", ["the event itself", "nobody who has it has an event", "the order of times"])
def test_a_column_that_separates_is_named(kind, strata):
    data = frame("simulated")
    data = data.assign(omen=separating(kind, data))
    with pytest.raises(InvalidValue, match=r"^column omen cannot be fitted: .* are separated"):
        cox(dealt(data, SPLITS["iid"]), strata=strata)
    bound = cox(dealt(data, SPLITS["iid"]), strata=strata, ridge=1e6)
    assert np.isfinite(bound.summary()["coef"]).all()


def test_columns_that_separate_together_are_named_together():
    draw = np.random.default_rng(0)
    x = draw.normal(size=(200, 3))
    table = from_arrays(x, columns=["a", "b", "c"], time=np.exp(x[:, 1] - x[:, 0]), event=np.ones(200))
    with pytest.raises(InvalidValue, match=r"^columns a, b cannot be fitted"):
        cox(Federation({"only": table}))


def a_factor_with_an_eventless_reference(records=400):
    """Dummies of a factor whose reference is one censored patient: they grow together, without bound."""
    draw = np.random.default_rng(7)
    level = draw.integers(1, 5, records)
    level[0] = 0
    time, event = draw.exponential(1, records) + 0.01, (draw.random(records) < 0.3).astype(float)
    time[0], event[0] = 2.0, 0.0
    dummies = (level[:, None] == np.arange(1, 5)).astype(float)
    names = ["age", "race_asian", "race_black", "race_other", "race_white"]
    return np.column_stack([draw.normal(size=records), dummies]), names, time, event


@pytest.mark.parametrize("sites", [1, 3])
@pytest.mark.parametrize("strata", ["site", None])
def test_dummies_whose_reference_has_no_event_are_named_together(sites, strata):
    x, names, time, event = a_factor_with_an_eventless_reference()
    parts = [slice(at, None, sites) for at in range(sites)]
    tables = {
        f"s{at}": from_arrays(x[rows], columns=names, time=time[rows], event=event[rows])
        for at, rows in enumerate(parts)
    }
    said = r"^columns race_asian, race_black, race_other, race_white cannot be fitted: .*give a ridge"
    with pytest.raises(InvalidValue, match=said):
        cox(Federation(tables), strata=strata)
    # The ways out that the message names.
    assert np.isfinite(cox(Federation(tables), strata=strata, ridge=0.1).standard_errors).all()
    fewer = cox(Federation(tables), strata=strata, columns=["age", *names[2:]])
    assert fewer.standard_errors.max() < 1


def test_a_strong_effect_is_not_taken_for_separation():
    draw = np.random.default_rng(4)
    x = draw.integers(0, 2, 3000).astype(float)
    time = draw.exponential(size=3000) / np.exp(6 * x)
    fit = cox(Federation({"only": from_arrays(x, columns=["x"], time=time, event=np.ones(3000))}))
    assert fit.coefficients[0] == pytest.approx(6, abs=0.6)


def test_sites_without_events_change_nothing_within_sites():
    federation = dealt(frame("tied"), SPLITS["iid"])
    tables = {name: site.table for name, site in federation.items()}
    quiet = from_arrays(
        np.ones((5, 4)), columns=federation.store.columns, time=np.arange(1, 6), event=np.zeros(5)
    )
    fit = cox(Federation({**tables, "quiet": quiet}))
    assert fit.coefficients == pytest.approx(cox(federation).coefficients, abs=1e-12)
    assert (fit.records, fit.events) == (305, cox(federation).events)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"event": 0.0}, "no record has one"),
        ({"event": 2.0}, "event in site site-1"),
        ({"time": -1.0}, "time in site site-1"),
    ],
)
def test_outcomes_that_are_none_are_refused(change, message):
    with pytest.raises(InvalidValue, match=message):
        cox(dealt(frame("tied").assign(**change), Iid(count=2)))


def test_holes_in_the_data_are_refused():
    data = frame("tied").copy()
    data.loc[3, "x2"] = np.nan
    with pytest.raises(InvalidValue, match=r"^x2 in data is not allowed: 1 of 300 records"):
        dealt(data, SPLITS["iid"])


@pytest.mark.parametrize(
    "options",
    [
        {"strata": "ward"},
        {"ties": "exact"},
        {"ridge": -1},
        {"level": 1},
        {"level": 95},
        {"robust": "ward"},
        {"robust": "site"},
        {"columns": ["x9"]},
        {"columns": []},
        {"grid": []},
        {"grid": [2, 1]},
        {"grid": [[1.0]]},
        {"grid": ["a"]},
    ],
)
def test_options_that_mean_nothing_are_refused(options):
    with pytest.raises(InvalidValue, match=next(iter(options))):
        cox(dealt(frame("tied"), SPLITS["iid"]), **options)


def test_an_unknown_transform_is_refused():
    federation = dealt(frame("tied"), SPLITS["iid"])
    with pytest.raises(InvalidValue, match="transform"):
        proportional_hazards(federation, cox(federation), transform="square")
