"""Regressions through the one loop: the fit of `tacit.regression`, from files, engines and machines."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import tacit
from tacit import Federation, Privacy, fit
from tacit.aggregation.server import Momentum
from tacit.errors import InvalidFile, InvalidValue, Refused
from tacit.experiments import experiment
from tacit.regression import linear, logistic, poisson
from tacit.regression.tasks import TASKS, LinearRegression, LogisticRegression, PoissonRegression

FUNCTIONS = {"linear": linear, "logistic": logistic, "poisson": poisson}
OPTIONS = [{}, {"strata": "site"}, {"robust": True}, {"robust": "site"}, {"ridge": 3.0, "level": 0.9}]


def frame(size: int = 400, sites: int = 5) -> pd.DataFrame:
    draw = np.random.default_rng(4)
    age, sex = draw.normal(60, 10, size), (draw.random(size) < 0.4).astype(int)
    predictor = 0.05 * (age - 60) - 0.6 * sex
    return pd.DataFrame({
        "age": age,
        "sex": sex,
        "years": draw.uniform(0.5, 2, size),
        "hospital": [f"h{number % sites}" for number in range(size)],
        "linear": predictor + draw.normal(size=size),
        "logistic": (draw.random(size) < 1 / (1 + np.exp(-predictor))).astype(int),
        "poisson": draw.poisson(np.exp(predictor)),
    })  # fmt: skip


def federation(kind: str) -> Federation:
    kept = frame()[["age", "sex", "years", "hospital", kind]]
    return Federation.from_frame(kept, site="hospital", targets=[kind])


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("kind", FUNCTIONS)
def test_the_fit_is_that_of_the_statistic(kind, options):
    data, columns = federation(kind), ("age", "sex")
    wanted = FUNCTIONS[kind](data, kind, columns=columns, **options)
    run = fit(TASKS[kind](outcome=kind, columns=columns, **options), data, rounds=20)
    np.testing.assert_allclose(run.model.summary(), wanted.summary(), rtol=1e-7, atol=1e-9)
    assert run.model.columns == wanted.columns
    assert run.model.log_likelihood == pytest.approx(wanted.log_likelihood, rel=1e-10)
    assert run.record.stopped == f"the estimate has converged, after {wanted.iterations} rounds"
    assert run.model.provenance == wanted.provenance


def test_exposures_and_feature_outcomes_come_by_name():
    data = federation("poisson")
    task = PoissonRegression(outcome="poisson", exposure="years")
    wanted = poisson(data, "poisson", exposure="years")
    np.testing.assert_allclose(fit(task, data, rounds=20).model.coefficients, wanted.coefficients)
    treated = fit(LogisticRegression(outcome="sex", columns=("age",)), data, rounds=20).model
    np.testing.assert_allclose(
        treated.coefficients, logistic(data, "sex", columns=("age",)).coefficients, atol=1e-10
    )


def test_too_few_rounds_are_said():
    run = fit(LogisticRegression(outcome="logistic"), federation("logistic"), rounds=3)
    assert run.task.shortcomings(run.state)[0].startswith("NOT CONVERGED after 3 rounds")
    with pytest.raises(InvalidValue, match="no fit yet"):
        _ = fit(LogisticRegression(outcome="logistic"), federation("logistic"), rounds=1).model


def test_a_sum_needs_a_plain_mean():
    with pytest.raises(Refused, match="it sums the answers of the sites"):
        fit(LinearRegression(outcome="linear"), federation("linear"), server=Momentum(), rounds=3)


def test_an_offset_is_for_counts():
    with pytest.raises(InvalidValue, match="exposure"):
        LogisticRegression(exposure="years")


def test_a_promise_about_sites_is_refused_with_a_way_out():
    privacy = Privacy(unit="site", epsilon=1.0, delta=1e-3, clip=1.0, noise="server")
    with pytest.raises(Refused, match='use unit = "record"'):
        fit(LogisticRegression(outcome="logistic"), federation("logistic"), privacy=privacy)


FILE = """
[data]
kind = "csv"
path = "data.csv"
outcome = "{kind}"
leave = ["years", {others}]

[sites]
kind = "by-column"
column = "hospital"

[task]
kind = "{kind}"
{more}
"""
ENDS = {"linear": ", outcome = [-6, 6]", "logistic": "", "poisson": ", outcome = [0, 20]"}
PROMISE = """
[privacy]
unit = "record"
epsilon = 3.0
delta = 1e-4
"""


def written(folder, kind, more="", privacy="", size=400):
    others = ", ".join(f'"{name}"' for name in FUNCTIONS if name != kind)
    frame(size).to_csv(folder / "data.csv", index=False)
    path = folder / "experiment.toml"
    path.write_text(FILE.format(kind=kind, others=others, more=more) + privacy)
    return path


@pytest.mark.parametrize("kind", FUNCTIONS)
def test_a_file_names_the_outcome_in_its_data(tmp_path, kind):
    known = experiment.read(written(tmp_path, kind))
    assert known.rounds == 30
    run = known.run(tmp_path / "run")
    assert run.task.outcome == "outcome"
    assert set(run.scores) <= {"r2", "rmse", "auc", "log_loss", "deviance"}
    again = tacit.load(tmp_path / "run")
    np.testing.assert_allclose(again.model.summary(), run.model.summary())
    assert again.model.columns == ("intercept", "age", "sex")
    run.report(tmp_path / "report.html")


def test_words_of_an_outcome_have_levels(tmp_path):
    path = written(tmp_path, "logistic", more="\n[data.levels]\nlogistic = ['no', 'yes']\n")
    table = frame().assign(logistic=lambda rows: np.where(rows["logistic"] > 0, "yes", "no"))
    table.to_csv(tmp_path / "data.csv", index=False)
    whole = experiment.read(path).open_federation()
    assert set(np.unique(whole.store.targets["outcome"])) == {0.0, 1.0}
    assert whole.store.columns == ("age", "sex")


def test_an_outcome_is_no_survival_time(tmp_path):
    path = written(tmp_path, "logistic")
    with pytest.raises(InvalidFile, match="left out beside an outcome"):
        experiment.read(path, ["data.weight=years"])


@pytest.mark.parametrize("kind", FUNCTIONS)
def test_the_same_file_keeps_a_promise_with_ranges(tmp_path, kind):
    ranges = f"ranges = {{ age = [20, 100], sex = [0, 1]{ENDS[kind]} }}"
    path = written(tmp_path, kind, ranges, PROMISE)
    known = experiment.read(path, ["privacy.rehearsal=true"])
    assert known.rounds == 10
    run = known.run(tmp_path / "run")
    assert run.privacy.epsilon <= 3.0
    assert run.privacy.epsilon == pytest.approx(3.0, rel=1e-3)
    table = run.model.summary()
    assert list(table.index) == ["intercept", "age", "sex"]
    assert np.isfinite(table["std err"]).all()
    again = tacit.load(tmp_path / "run")
    assert (again.state == run.state).all()
    assert again.model.text() == run.model.text()
    secure = replace(known, privacy=replace(known.privacy, noise="secure")).run(tmp_path / "secure")
    assert {one.law for one in secure.charged} == {"discrete"}
    assert secure.model.noise_errors[1] < run.model.noise_errors[1]
