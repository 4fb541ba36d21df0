"""Survival tasks behave in scikit-learn and scikit-survival as models do there."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sksurv.metrics import (
    as_integrated_brier_score_scorer,
    concordance_index_censored,
    integrated_brier_score,
)
from sksurv.util import Surv

from tacit import Open, Privacy
from tacit.compat.scikit_survival import ROUNDS, Estimator, as_structured, outcomes
from tacit.errors import InvalidValue
from tacit.survival import CoxPH, LogisticHazard
from tacit.survival.data import simulate

FRAME = simulate("weibull", records=240, features=4, seed=1)
# A strong effect, so that few steps learn it.
FRAME["time"] *= np.exp(-1.5 * FRAME["x1"])
X = FRAME[["x1", "x2", "x3", "x4"]]
Y = Surv.from_arrays(FRAME["event"] > 0, FRAME["time"])


def estimator(**options: object) -> Estimator:
    return Estimator(CoxPH(lr=0.2, steps=5, sample=0.5), rounds=4, **options)


def test_targets_are_read_in_every_form_that_the_field_knows():
    time, event = FRAME["time"].to_numpy(), FRAME["event"].to_numpy()
    named = np.rec.fromarrays([time, event > 0], names=["months", "died"])
    for given in (Y, (time, event), FRAME[["event", "time"]], as_structured(time, event), named):
        found = outcomes(given)
        np.testing.assert_array_equal(found[0], time)
        np.testing.assert_array_equal(found[1], event)
    assert (as_structured(time, event) == Y).all()


@pytest.mark.parametrize("given", [FRAME["time"], np.ones((3, 2)), pd.DataFrame({"time": [1.0]})])
def test_targets_that_say_too_little_are_refused(given: object):
    with pytest.raises(InvalidValue, match="y"):
        outcomes(given)


def test_its_score_is_that_of_scikit_survival():
    fitted = estimator().fit(X, Y)
    wanted = concordance_index_censored(Y["event"], Y["time"], fitted.predict(X))[0]
    assert fitted.score(X, Y) == pytest.approx(wanted, abs=1e-12)
    assert wanted > 0.5


def test_curves_are_functions_or_arrays_and_score_as_scikit_survival_does():
    fitted = estimator().fit(X, Y)
    array = fitted.predict_survival_function(X, return_array=True)
    functions = fitted.predict_survival_function(X)
    assert array.shape == (240, 100)
    np.testing.assert_array_equal(functions[3](fitted.unique_times_), array[3])
    np.testing.assert_allclose(
        fitted.predict_cumulative_hazard_function(X, return_array=True), -np.log(array), atol=1e-12
    )
    times = np.quantile(FRAME["time"], [0.2, 0.4, 0.6, 0.8])
    curves = np.stack([curve(times) for curve in functions])
    plain = integrated_brier_score(Y, Y, curves, times)
    scorer = as_integrated_brier_score_scorer(estimator(), times).fit(X, Y)
    assert -scorer.score(X, Y) == pytest.approx(plain, abs=1e-9)
    with pytest.raises(InvalidValue, match="times"):
        functions[0](1e9)


def test_it_is_cloned_searched_and_put_into_pipelines():
    search = GridSearchCV(
        make_pipeline(StandardScaler(), estimator()), {"estimator__task__lr": [1e-9, 0.2]}, cv=2
    )
    search.fit(X, Y)
    assert search.best_params_ == {"estimator__task__lr": 0.2}
    copy = clone(estimator().set_params(task__lr=0.7, rounds=2))
    assert (copy.task.lr, copy.rounds) == (0.7, 2)
    with pytest.raises(InvalidValue, match="speed"):
        estimator().set_params(speed=1)


def test_sites_are_parties_of_a_federation_and_privacy_is_stated():
    promise = Privacy(unit="record", epsilon=8.0, delta=1e-4, clip=1.0)
    fitted = Estimator(LogisticHazard(hidden=(), cuts=4, horizon=3.0), privacy=promise, rounds=2)
    fitted.fit(X, (FRAME["time"], FRAME["event"]), sites=np.arange(240) % 3)
    assert 0 < fitted.run_.privacy.epsilon <= 8
    assert fitted.run_.history["sites"].tolist() == [3, 3]
    with pytest.raises(InvalidValue, match="sites"):
        estimator().fit(X, Y, sites=[1, 2])


def test_predicting_before_fitting_says_so():
    with pytest.raises(InvalidValue, match="fit"):
        estimator().predict(X)


@pytest.mark.parametrize(
    ("privacy", "rounds", "taken"),
    [
        (Open(), None, ROUNDS),
        (Privacy(unit="record", epsilon=3.0, delta=1e-5, rehearsal=True), None, 6),
        (Privacy(unit="record", epsilon=3.0, delta=1e-5, rehearsal=True), 2, 2),
    ],
)
def test_rounds_are_those_that_the_task_needs_under_its_policy(privacy, rounds, taken):
    fitted = Estimator(CoxPH(), privacy=privacy, rounds=rounds).fit(X, Y)
    assert len(fitted.run_.record.rounds) == taken
    assert fitted.get_params()["rounds"] == rounds
