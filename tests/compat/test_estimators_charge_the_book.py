"""Estimators in a search: every fit on the same people is charged to their book."""

from dataclasses import replace

import numpy as np
import pytest

from patients_and_books import patients
from tacit import Open, Privacy
from tacit.compat.functional_regressor import FunctionalRegressor
from tacit.compat.scikit_survival import Estimator, as_structured
from tacit.compat.scores import UnprotectedScore
from tacit.survival import PoissonPH

selection = pytest.importorskip("sklearn.model_selection")
pipeline = pytest.importorskip("sklearn.pipeline")
preprocessing = pytest.importorskip("sklearn.preprocessing")

PROMISE = Privacy(unit="record", epsilon=0.5, delta=1e-5, clip=1.0)


def test_a_search_of_n_fits_charges_n_times():
    frame = patients(90)
    features, outcome = frame[["age", "dose"]], as_structured(frame["time"], frame["event"])
    made = Estimator(PoissonPH(horizon=4.0, steps=1), privacy=PROMISE, rounds=1)
    with pytest.warns(UnprotectedScore):
        search = selection.GridSearchCV(made, {"task__lr": [0.01, 0.02]}, cv=3).fit(features, outcome)
    told = search.best_estimator_.run_.privacy
    # Two candidates on three folds, and the best one again on everybody.
    assert told.all_runs.runs == 2 * 3 + 1
    assert told.all_runs.epsilon > 1.5 * told.epsilon


def test_a_search_over_a_pipeline_is_about_the_same_people():
    """A scaler changes every feature of every fold, and not who they are."""
    frame = patients(90)
    features, outcome = frame[["age", "dose"]], as_structured(frame["time"], frame["event"])
    made = pipeline.make_pipeline(
        preprocessing.StandardScaler(), Estimator(PoissonPH(horizon=4.0, steps=1), privacy=PROMISE, rounds=1)
    )
    search = selection.GridSearchCV(made, {"estimator__task__lr": [0.01, 0.02]}, cv=4)
    with pytest.warns(UnprotectedScore):
        search.fit(features, outcome)
    assert search.best_estimator_[-1].run_.privacy.all_runs.runs == 2 * 4 + 1


def test_a_score_of_private_records_is_warned_about_once_and_that_of_a_rehearsal_is_not(recwarn):
    frame = patients()
    features, outcome = frame[["age", "dose"]], as_structured(frame["time"], frame["event"])
    made = Estimator(PoissonPH(horizon=4.0, steps=1), privacy=PROMISE, rounds=1).fit(features, outcome)
    with pytest.warns(UnprotectedScore, match="without protection: no epsilon covers it"):
        first = made.score(features, outcome)
    assert made.score(features, outcome) == first
    free = (Open(), replace(PROMISE, rehearsal=True))
    for promise in free:
        made.set_params(privacy=promise).fit(features, outcome).score(features, outcome)
        Estimator(made.task, privacy=promise, rounds=1).fit(features, outcome).score(features, outcome)
    assert not list(recwarn)


def test_a_score_of_private_curves_is_warned_about():
    draws = np.random.default_rng(0)
    curves, response = {"x1": draws.normal(size=(40, 12))}, draws.normal(size=(40, 12))
    promise = Privacy(unit="record", epsilon=5.0, delta=1e-5, clip=5.0)
    made = FunctionalRegressor(size=5, privacy=promise, domain=(0.0, 1.0)).fit(curves, response)
    with pytest.warns(UnprotectedScore):
        made.score(curves, response)


def test_a_regressor_of_curves_charges_the_book_of_its_subjects():
    draws = np.random.default_rng(0)
    curves, response = {"x1": draws.normal(size=(40, 12))}, draws.normal(size=(40, 12))
    promise = Privacy(unit="record", epsilon=5.0, delta=1e-5, clip=5.0)
    made = FunctionalRegressor(size=5, privacy=promise, domain=(0.0, 1.0))
    totals = [made.fit(curves, response).privacy_.all_runs.runs for _ in range(2)]
    assert totals == [1, 2]
