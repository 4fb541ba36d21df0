"""Open regressions across sites: those of statsmodels with all records in one place."""

import warnings

import numpy as np
import pytest

from tacit import Federation
from tacit.errors import InvalidValue
from tacit.regression import linear, logistic, poisson
from tacit.sites.table import from_arrays

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import statsmodels.api as sm

SITES = 8
OUTCOMES = {"linear": "amount", "logistic": "died", "poisson": "visits"}
FUNCTIONS = {"linear": linear, "logistic": logistic, "poisson": poisson}


def records(site: int):
    draw = np.random.default_rng(site)
    size = 50 + 10 * site
    features = draw.normal(size=(size, 3))
    features[:, 1] = features[:, 1] > 0
    features[:, 2] = 2000 + 5 * features[:, 2]
    predictor = -0.4 + 0.1 * site + features @ [0.6, -0.4, 0.1] - 200
    return from_arrays(
        np.column_stack([features, draw.uniform(0.5, 3, size)]),
        columns=("age", "sex", "year", "years"),
        amount=1e4 + predictor + draw.normal(size=size) * (1 + features[:, 1]),
        died=(draw.random(size) < 1 / (1 + np.exp(-predictor))).astype(float),
        visits=draw.poisson(np.exp(predictor)).astype(float),
    )


@pytest.fixture(scope="module")
def data() -> Federation:
    return Federation({f"site-{n}": records(n) for n in range(SITES)})


def peer(data, kind, columns, *, strata=None, robust=False, **more):
    """The same regression by statsmodels."""
    store = data.store
    sites = np.repeat(np.arange(SITES), [len(data.records_of(name)) for name in data])
    intercepts = np.eye(SITES)[sites] if strata else np.ones((len(store), 1))
    places = [store.columns.index(name) for name in columns]
    design, outcome = np.column_stack([intercepts, store.features[:, places]]), store.targets[OUTCOMES[kind]]
    asked = {True: {"cov_type": "HC0"}, "site": {"cov_type": "cluster", "cov_kwds": {"groups": sites}}}
    options = asked.get(robust, {})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if kind == "linear":
            return sm.OLS(outcome, design).fit(**options)
        family = sm.families.Binomial() if kind == "logistic" else sm.families.Poisson()
        return sm.GLM(outcome, design, family=family, **more).fit(tol=1e-14, maxiter=100, **options)


def agree(found, wanted, tolerance=1e-6) -> None:
    table, ends = found.summary(), np.asarray(wanted.conf_int())
    for column, values in zip(
        table.columns, (wanted.params, wanted.bse, wanted.tvalues, wanted.pvalues, *ends.T), strict=False
    ):
        np.testing.assert_allclose(table[column], values, rtol=tolerance, atol=tolerance, err_msg=column)
    assert found.log_likelihood == pytest.approx(wanted.llf, rel=1e-10)
    np.testing.assert_allclose(found.covariance, wanted.cov_params(), rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("strata", [None, "site"])
@pytest.mark.parametrize("robust", [False, True, "site"])
@pytest.mark.parametrize("kind", FUNCTIONS)
def test_the_regression_is_that_of_statsmodels(data, kind, robust, strata):
    columns = ("age", "sex", "year")
    if robust == "site" and strata == "site":
        with pytest.raises(InvalidValue, match="more sites than coefficients"):
            FUNCTIONS[kind](data, OUTCOMES[kind], columns=columns, strata=strata, robust=robust)
        return
    found = FUNCTIONS[kind](data, OUTCOMES[kind], columns=columns, strata=strata, robust=robust)
    agree(found, peer(data, kind, columns, strata=strata, robust=robust))
    assert found.columns[-3:] == columns
    assert found.statistic == ("t" if kind == "linear" and not robust else "z")


def test_ratios_are_exponentials_of_coefficients(data):
    columns = ("age", "sex")
    for found, ratio in (
        (logistic(data, "died", columns=columns), "odds ratio"),
        (poisson(data, "visits", columns=columns), "rate ratio"),
    ):
        table = found.summary()
        np.testing.assert_allclose(table[ratio], np.exp(table["coef"]))
        np.testing.assert_allclose(table[f"{ratio} [0.025"], np.exp(table["[0.025"]))
        assert ratio in found.text()
    assert "odds ratio" not in linear(data, "amount", columns=columns).text()


def test_rates_are_counts_over_exposure(data):
    store = data.store
    exposed = store.features[:, store.columns.index("years")]
    found = poisson(data, "visits", columns=("age", "sex"), exposure="years")
    agree(found, peer(data, "poisson", ("age", "sex"), exposure=exposed))
    known = poisson(data, "visits", columns=("age", "sex"), offset="years")
    agree(known, peer(data, "poisson", ("age", "sex"), offset=exposed))
    # Without names, regressors are the features that have no other part.
    assert poisson(data, "visits", exposure="years").columns == ("intercept", "age", "sex", "year")


def test_explained_shares_and_tests_are_those_of_statsmodels(data):
    columns = ("age", "sex", "year")
    found, wanted = linear(data, "amount", columns=columns), peer(data, "linear", columns)
    assert found.r_squared == pytest.approx(wanted.rsquared, abs=1e-9)
    assert found.dispersion == pytest.approx(wanted.mse_resid, rel=1e-8)
    found, wanted = logistic(data, "died", columns=columns), peer(data, "logistic", columns)
    assert found.null_log_likelihood == pytest.approx(wanted.llnull, rel=1e-10)
    tested = found.tests().loc["likelihood ratio"]
    assert tested["statistic"] == pytest.approx(2 * (wanted.llf - wanted.llnull), rel=1e-8)
    assert tested["degrees"] == 3


def test_ridge_is_that_of_scikit_learn(data):
    from sklearn.linear_model import LogisticRegression, Ridge

    store = data.store
    features = store.features[:, :2]
    found = linear(data, "amount", columns=("age", "sex"), ridge=20.0)
    wanted = Ridge(alpha=20.0).fit(features, store.targets["amount"])
    np.testing.assert_allclose(found.coefficients, [wanted.intercept_, *wanted.coef_], rtol=1e-8)
    found = logistic(data, "died", columns=("age", "sex"), ridge=20.0)
    wanted = LogisticRegression(C=1 / 20, tol=1e-10, max_iter=1000).fit(features, store.targets["died"])
    np.testing.assert_allclose(found.coefficients, [*wanted.intercept_, *wanted.coef_[0]], atol=1e-5)


def test_a_feature_can_be_the_outcome_as_propensity_models_need_it(data):
    found = logistic(data, "sex", columns=("age", "year"))
    outcome = data.store.features[:, 1]
    chances = found.predict(data.store.features[:, [0, 2]])
    # The scores at the estimate are 0: expected treatments are as many as there are.
    assert chances.sum() == pytest.approx(outcome.sum(), rel=1e-8)
    assert "sex" not in found.columns


def test_rates_far_from_one_converge():
    draw = np.random.default_rng(5)
    feature, days = draw.normal(size=500), draw.uniform(1e4, 1e6, 500)
    counts = draw.poisson(2e-5 * days * np.exp(0.5 * feature)).astype(float)
    table = from_arrays(np.column_stack([feature, days]), columns=("a", "days"), outcome=counts)
    halves = {"one": table.take(slice(0, 200)), "two": table.take(slice(200, 500))}
    found = poisson(Federation(halves), exposure="days")
    assert found.coefficients == pytest.approx([np.log(2e-5), 0.5], abs=0.1)
    assert found.iterations < 12


def separated(kind: str, others: int = 1):
    """A binary column whose carriers all have an outcome of 1, or counts of 0."""
    draw = np.random.default_rng(3)
    features = draw.normal(size=(300, 1 + others))
    features[:, 0] = draw.random(300) < 0.1
    if kind == "logistic":
        outcome = np.where(features[:, 0] > 0, 1.0, draw.random(300) < 0.4)
    else:
        outcome = np.where(features[:, 0] > 0, 0.0, draw.poisson(2.0, 300))
    columns = ("carrier", *(f"other-{n}" for n in range(others)))
    table = from_arrays(features, columns=columns, outcome=outcome)
    return Federation({"one": table.take(slice(0, 150)), "two": table.take(slice(150, 300))})


@pytest.mark.parametrize("kind", ["logistic", "poisson"])
def test_a_separating_column_is_named(kind):
    with pytest.raises(InvalidValue, match=r"^column carrier cannot be fitted: outcomes are separated"):
        FUNCTIONS[kind](separated(kind))
    assert np.isfinite(FUNCTIONS[kind](separated(kind), ridge=1.0).coefficients).all()


def test_what_cannot_be_estimated_is_refused_by_name(data):
    store = data.store
    whole = Federation({"one": from_arrays(np.ones((20, 1)), columns=("same",), outcome=np.arange(20.0))})
    with pytest.raises(InvalidValue, match="column same is not allowed: it is constant"):
        linear(whole)
    twice = np.column_stack([store.features[:, 0], 2 * store.features[:, 0] + 1])
    double = Federation({"one": from_arrays(twice, columns=("a", "b"), outcome=store.targets["died"])})
    with pytest.raises(InvalidValue, match="columns a, b are not allowed together"):
        logistic(double)
    alike = Federation({"one": from_arrays(twice[:, :1], columns=("a",), outcome=np.zeros(len(twice)))})
    with pytest.raises(InvalidValue, match="the same in all records"):
        logistic(alike)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"outcome": "lived"}, "outcome lived is not allowed"),
        ({"outcome": "amount"}, "logistic regression needs outcomes of 0 and 1"),
        ({"columns": ("weight",)}, r"columns \['weight'\] are not allowed"),
        ({"outcome": "sex", "columns": ("sex",)}, "different from outcome"),
        ({"ridge": -1.0}, "ridge"),
        ({"level": 1.0}, "level"),
        ({"strata": "region"}, "strata"),
        ({"robust": "HC3"}, "robust"),
    ],
)
def test_wrong_options_are_refused(data, options, said):
    with pytest.raises(InvalidValue, match=said):
        logistic(data, **{"outcome": "died", **options})


def test_an_exposure_has_to_be_above_zero(data):
    with pytest.raises(InvalidValue, match="exposure age in site site-0 is not allowed: it must be above 0"):
        poisson(data, "visits", columns=("sex",), exposure="age")


def test_what_left_the_sites_is_said(data):
    assert logistic(data, "died", columns=("age",)).provenance.startswith("bare: a log-likelihood, a score")
    public = Federation({name: data.records_of(name) for name in data}, public=True)
    assert logistic(public, "died", columns=("age",)).provenance.startswith("public")
