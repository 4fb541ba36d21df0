"""Boosting of curves behaves in scikit-learn as models do there."""

import pickle
import subprocess
import sys
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone, is_regressor
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.utils.estimator_checks import check_estimator

import tacit
from tacit import Privacy
from tacit.compat.functional_regressor import FunctionalRegressor
from tacit.errors import InvalidValue, Refused, TacitError
from tacit.functional.data import simulate
from tacit.functional.metrics import r2
from tacit.runs.directory import LEDGER

MADE = simulate("smooth", records=400, predictors=3, points=31, seed=2)
TRAIN, TEST = MADE.take(np.arange(300)), MADE.take(np.arange(300, 400))
TIMES = TRAIN.response.times
X = {name: found.values for name, found in TRAIN.predictors.items()}
X_NEW = {name: found.values for name, found in TEST.predictors.items()}
Y, Y_NEW = TRAIN.response.values, TEST.response.values

# Checks that are not meant for this model, each with the reason.
EXCLUDED = {
    "check_dtype_object": "what is not a number is refused by name as a ValueError, as everywhere in Tacit; "
    "scikit-learn wants a TypeError; objects that are numbers are read",
}


def regressor(**options: object) -> FunctionalRegressor:
    return FunctionalRegressor(**{"size": 8, **options})


def promise(**options: object) -> Privacy:
    return Privacy(
        **{"unit": "record", "epsilon": 20.0, "delta": 1e-5, "clip": 2.0, "rehearsal": True, **options}
    )


@pytest.fixture(scope="module")
def fitted() -> FunctionalRegressor:
    return regressor().fit(X, Y)


def test_it_passes_the_checks_of_scikit_learn_that_make_sense():
    with warnings.catch_warnings():
        # It is no subclass of theirs, so that the library does without scikit-learn.
        warnings.filterwarnings("ignore", message=".*does not inherit from.*")
        warnings.filterwarnings("ignore", message=".*SCIPY_ARRAY_API.*")
        found = check_estimator(
            FunctionalRegressor(size=10, folds=2), expected_failed_checks=EXCLUDED, on_skip=None, on_fail=None
        )
    failed = {check["check_name"]: check["exception"] for check in found if check["status"] == "failed"}
    assert not failed
    assert sum(check["status"] == "passed" for check in found) >= 45
    assert {check["check_name"] for check in found if check["status"] == "xfail"} == set(EXCLUDED)


def test_it_is_loaded_by_name_and_without_scikit_learn():
    assert tacit.functional.FunctionalRegressor is FunctionalRegressor
    # None stands for a library that cannot be imported.
    code = (
        "import sys; sys.modules['sklearn'] = None\n"
        "from tacit.functional import FunctionalRegressor\n"
        "print(hasattr(FunctionalRegressor(), 'selected_'), FunctionalRegressor().get_params()['size'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "20"]


def test_curves_are_predicted_on_the_times_of_the_response(fitted: FunctionalRegressor):
    told = fitted.predict(X_NEW)
    assert told.shape == Y_NEW.shape
    np.testing.assert_array_equal(fitted.times_, TIMES)
    assert fitted.score(X_NEW, Y_NEW) == pytest.approx(r2(Y_NEW, told, TIMES), abs=1e-12)
    assert fitted.score(X_NEW, Y_NEW) > 0.85
    assert fitted.selected_ == MADE.active


def test_what_was_learnt_is_told(fitted: FunctionalRegressor):
    assert len(fitted.path_) == fitted.n_steps_ == fitted.model_.steps
    assert set(fitted.path_) == set(fitted.selected_)
    assert fitted.cv_curve_[fitted.n_steps_] <= 1.001 * fitted.cv_curve_.min()
    assert sum(fitted.importance_.values()) == pytest.approx(1)
    assert 0 < fitted.df_ < 300 * 8
    assert fitted.comm_bytes_ >= 300 * 3 * 8 * 8
    assert len(fitted.smooth_) == 3
    assert fitted.coef_surface_("x1", s=TIMES, t=[0.2, 0.4]).shape == (31, 2)
    assert fitted.run_.task.kind == "functional-boosting"
    assert (fitted.n_features_in_, list(fitted.feature_names_in_)) == (3, ["x1", "x2", "x3"])
    assert is_regressor(fitted)


def test_parties_add_up_their_parts_and_no_new_curve_leaves_them(fitted: FunctionalRegressor):
    model = fitted.model_
    parts = {name: model.contribution(name, X_NEW[name]) for name in fitted.selected_}
    whole = model.mean_y + sum(parts.values())
    np.testing.assert_allclose(whole, model.coordinates(X_NEW), atol=1e-12)
    shown = whole @ model.frames["y"].design(fitted.times_).T
    np.testing.assert_allclose(shown, fitted.predict(X_NEW), atol=1e-12)
    # A predictor that does not count adds nothing, so its party need not be asked.
    np.testing.assert_array_equal(model.contribution("x3", X_NEW["x3"]), 0)
    some = {name: X_NEW[name] for name in fitted.selected_}
    np.testing.assert_array_equal(fitted.predict(some), fitted.predict(X_NEW))


def test_every_form_of_curves_gives_the_same_fit(fitted: FunctionalRegressor):
    wanted = fitted.predict(X_NEW)
    deep, deep_new = np.stack(list(X.values()), axis=1), np.stack(list(X_NEW.values()), axis=1)
    np.testing.assert_array_equal(regressor().fit(deep, Y).predict(deep_new), wanted)
    np.testing.assert_array_equal(regressor().fit(TRAIN.predictors, TRAIN.response).predict(X_NEW), wanted)
    pairs = {name: (TIMES, values) for name, values in X.items()}
    np.testing.assert_array_equal(regressor().fit(pairs, (TIMES, Y)).predict(X_NEW), wanted)
    tables = {name: pd.DataFrame(values, columns=TIMES) for name, values in X.items()}
    by_table = regressor().fit(tables, pd.DataFrame(Y, columns=TIMES))
    np.testing.assert_array_equal(by_table.predict(X_NEW), wanted)
    lists = {name: [(TIMES, row) for row in values] for name, values in X.items()}
    np.testing.assert_allclose(regressor().fit(lists, Y).predict(X_NEW), wanted, atol=1e-6)


class Grid:
    """Stand-in for a `FDataGrid` of scikit-fda."""

    def __init__(self, values: np.ndarray) -> None:
        self.data_matrix, self.grid_points, self.domain_range = values[:, :, None], (TIMES,), ((0.0, 1.0),)


def test_one_predictor_needs_no_name():
    single = regressor().fit({"x1": X["x1"]}, Y)
    wanted = single.predict({"x1": X_NEW["x1"]})
    plain = regressor().fit(X["x1"], Y)
    np.testing.assert_array_equal(plain.predict(X_NEW["x1"]), wanted)
    assert (single.n_features_in_, plain.n_features_in_) == (1, 31)
    assert not hasattr(plain, "feature_names_in_")
    np.testing.assert_array_equal(regressor().fit(Grid(X["x1"]), Grid(Y)).predict(Grid(X_NEW["x1"])), wanted)
    named = pd.DataFrame(X["x1"], columns=[f"t{place}" for place in range(31)])
    assert list(plain.fit(named, Y).feature_names_in_) == list(named.columns)
    with_subjects = pd.DataFrame(X["x1"], columns=TIMES).assign(subject=range(300))
    assert not hasattr(plain.fit(with_subjects, Y), "feature_names_in_")
    np.testing.assert_array_equal(plain.predict(X_NEW["x1"]), wanted)


def test_a_response_without_a_common_grid_is_predicted_evenly_over_its_domain():
    rows = [(TIMES[place % 2 :: 2], row[place % 2 :: 2]) for place, row in enumerate(Y)]
    found = regressor(domain=(0, 1)).fit(X, rows)
    assert found.times_.shape == (101,)
    assert found.predict(X_NEW).shape == (100, 101)
    new = [(TIMES[1:], row[1:]) for row in Y_NEW]
    assert found.score(X_NEW, new) > 0.85


def test_times_and_domains_are_for_all_curves_or_by_name():
    late = 100 * TIMES**2
    found = regressor(times={"x1": late}, domain={"x1": (0, 100)}).fit(X, Y)
    same = regressor().fit({**X, "x1": (late, X["x1"])}, Y)
    np.testing.assert_array_equal(found.predict(X_NEW), same.predict({**X_NEW, "x1": (late, X_NEW["x1"])}))
    # An array is observed when that of the fit was.
    np.testing.assert_array_equal(same.predict(X_NEW), found.predict(X_NEW))
    everywhere = regressor(times=late, domain=(0, 100)).fit(X, Y)
    np.testing.assert_array_equal(everywhere.times_, late)


def test_numbers_instead_of_curves_are_predicted_as_numbers():
    area, area_new = Y.mean(axis=1), Y_NEW.mean(axis=1)
    found = regressor().fit(X, area)
    assert found.times_ is None
    assert found.predict(X_NEW).shape == (100,)
    assert found.model_.frames["y"].size == 1
    frames = found.model_.frames
    rows, rows_new = (
        np.hstack([curve.coordinates(frames[name]) for name, curve in one.predictors.items()])
        for one in (TRAIN, TEST)
    )
    least_squares = LinearRegression().fit(rows, area).score(rows_new, area_new)
    assert found.score(X_NEW, area_new) > least_squares - 0.01
    column = regressor().fit(X, area[:, None])
    np.testing.assert_array_equal(column.predict(X_NEW), found.predict(X_NEW)[:, None])
    with pytest.raises(InvalidValue, match="a number for each subject, as in fit"):
        found.score(X_NEW, Y_NEW)


def test_numbers_are_protected_as_curves_are():
    area, area_new = Y.mean(axis=1), Y_NEW.mean(axis=1)
    for noise, least in (("server", 0.5), ("secure", 0.2)):
        found = regressor(privacy=promise(noise=noise)).fit(X, area)
        assert found.score(X_NEW, area_new) > least
        assert found.privacy_spent()["epsilon"] <= 20


def test_a_promise_is_kept_and_told():
    found = regressor(privacy=promise(noise="server")).fit(X, Y)
    spent = found.privacy_spent()
    assert list(spent) == ["epsilon", "delta", "relation", "unit", "but", "mechanisms"]
    assert 0 < spent["epsilon"] <= 20
    assert (spent["delta"], spent["relation"], spent["unit"]) == (1e-5, "replace", "record")
    assert "products of all columns" in spent["mechanisms"][0]
    assert found.privacy_.rehearsal
    assert found.run_.task.release == "moments"
    bought = regressor(privacy=promise(noise="server"), radius="private").fit(X, Y)
    assert len(bought.privacy_spent()["mechanisms"]) == 2
    local = regressor(privacy=promise(), release="local", radius={"x1": 1.0, "x2": 2.0, "x3": 1.0}).fit(X, Y)
    assert local.privacy_spent()["epsilon"] <= 20
    assert regressor().fit(X, Y).privacy_spent()["epsilon"] is None


def test_noise_that_protects_does_not_repeat_and_a_rehearsal_does():
    real = regressor(privacy=promise(noise="server", rehearsal=False))
    assert (real.fit(X, Y).predict(X_NEW) != real.fit(X, Y).predict(X_NEW)).any()
    again = regressor(privacy=promise(noise="server"), random_state=3)
    np.testing.assert_array_equal(again.fit(X, Y).predict(X_NEW), again.fit(X, Y).predict(X_NEW))
    other = regressor(privacy=promise(noise="server"), random_state=4).fit(X, Y)
    assert (other.predict(X_NEW) != again.predict(X_NEW)).any()
    drawn = regressor(random_state=None)
    np.testing.assert_array_equal(drawn.fit(X, Y).predict(X_NEW), drawn.fit(X, Y).predict(X_NEW))


def test_parties_are_named_counted_or_one_for_each_curve():
    assert list(regressor().fit(X, Y).run_.task.parties) == ["y", "x1", "x2", "x3"]
    counted = regressor(parties=2).fit(X, Y)
    assert counted.run_.task.parties == {"party-1": ("x1", "x3", "y"), "party-2": ("x2",)}
    named = regressor(parties={"clinic": ["x1"], "lab": ["x2", "x3"]}, active="lab").fit(X, Y)
    assert named.run_.task.parties == {"clinic": ("x1",), "lab": ("x2", "x3", "y")}
    # Who holds what does not matter to the model.
    np.testing.assert_array_equal(named.predict(X_NEW), counted.predict(X_NEW))
    with pytest.raises(InvalidValue, match="no party holds x3"):
        regressor(parties={"clinic": ["x1"], "lab": ["x2"]}).fit(X, Y)
    with pytest.raises(InvalidValue, match="active"):
        regressor(active="lab").fit(X, Y)


def test_it_is_cloned_searched_cross_validated_and_pickled(fitted: FunctionalRegressor):
    deep = np.stack(list(X.values()), axis=1)
    search = GridSearchCV(regressor(), {"n_steps": np.array([1, 20]), "step": [0.3]}, cv=2).fit(deep, Y)
    assert search.best_params_["n_steps"] == 20
    assert search.best_estimator_.n_steps_ == 20
    assert cross_val_score(regressor(), deep, Y, cv=2).min() > 0.8
    copy = clone(regressor().set_params(step=0.7, knots=[0.3, 0.5], size=6))
    assert (copy.step, copy.knots) == (0.7, [0.3, 0.5])
    assert copy.fit(X, Y).model_.frames["x1"].size == 6
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.predict(X_NEW), fitted.predict(X_NEW))
    assert repr(regressor(step=0.5)) == "FunctionalRegressor(size=8, step=0.5)"
    with pytest.raises(InvalidValue, match="speed"):
        regressor().set_params(speed=1)


def test_what_is_given_stays_as_it_is():
    given, response = {name: values.copy() for name, values in X.items()}, Y.copy()
    for values in (*given.values(), response):
        values.flags.writeable = False
    regressor(scale={"x1": 2.0}, center={"y": 1.0}).fit(given, response).predict(given)
    for name, values in given.items():
        np.testing.assert_array_equal(values, X[name])
    assert list(given) == list(X)


def test_units_are_public_numbers_that_change_nothing_in_an_open_fit(fitted: FunctionalRegressor):
    scaled = regressor(scale={"x1": 10.0, "y": 0.1}, center={"x1": 3.0, "y": -2.0}).fit(X, Y)
    np.testing.assert_allclose(scaled.predict(X_NEW), fitted.predict(X_NEW), atol=0.1)
    assert scaled.score(X_NEW, Y_NEW) == pytest.approx(fitted.score(X_NEW, Y_NEW), abs=0.01)


def broken(**changes: object) -> tuple[dict[str, object], object]:
    return {**X, **{name: value for name, value in changes.items() if name != "y"}}, changes.get("y", Y)


@pytest.mark.parametrize(
    ("given", "options", "said"),
    [
        (broken(x2=X["x2"][:-1]), {}, "x2 has 299 subjects and x1 has 300"),
        (broken(y=Y[:-1]), {}, "y has 299 subjects and x1 has 300"),
        (broken(x2=np.ones((300, 31))), {}, "x2 is not allowed: all 300 subjects have the same curve"),
        (broken(y=np.ones(300)), {}, "y is not allowed: all 300 subjects have the same curve"),
        (broken(), {"size": 350}, "x1 has 300 subjects, fewer than its 350"),
        (broken(x1=(TIMES[::-1], X["x1"])), {}, "times of x1 are not allowed"),
        (broken(), {"radius": 0}, "radius = 0 is not allowed"),
        (broken(), {"step": 7}, "step = 7 is not allowed"),
        (broken(), {"max_steps": 0}, "max_steps = 0 is not allowed"),
        (broken(), {"n_steps": "cvv"}, 'n_steps = \'cvv\' is not allowed.*did you mean "cv"'),
        (broken(), {"n_steps": 0}, "n_steps = 0 is not allowed"),
        (broken(), {"basis": "waves"}, "basis = 'waves' is not allowed"),
        (broken(), {"response": "x2"}, "response = 'x2' is not allowed"),
        (broken(), {"random_state": "a"}, "random_state = 'a' is not allowed"),
        (broken(), {"scale": {"x9": 2.0}}, "scale = 'x9' is not allowed"),
        (broken(y=None), {}, "requires y to be passed"),
        (broken(y=np.full(300, np.nan)), {}, "NaN or infinity"),
        (({}, Y), {}, "at least one"),
        (({1: X["x1"]}, Y), {}, "a name in X = 1 is not allowed"),
    ],
)  # fmt: skip
def test_bad_input_gets_one_clear_sentence_and_nothing_is_charged(given, options, said, tmp_path):
    out = tmp_path / "run"
    model = regressor(**{"privacy": promise(noise="server"), **options}, out=out)
    with pytest.raises(ValueError, match=said) as caught:
        model.fit(*given)
    assert isinstance(caught.value, TacitError)
    assert "\n" not in str(caught.value)
    assert not out.exists()
    assert not hasattr(model, "run_")


def test_new_curves_that_do_not_fit_are_refused(fitted: FunctionalRegressor):
    with pytest.raises(InvalidValue, match="the curves of x2 are missing"):
        fitted.predict({"x1": X_NEW["x1"]})
    with pytest.raises(InvalidValue, match="unequal subjects"):
        fitted.predict({**X_NEW, "x2": X_NEW["x2"][:9]})
    with pytest.raises(InvalidValue, match="X has 2 features, but FunctionalRegressor is expecting 3"):
        fitted.predict(np.zeros((5, 2, 31)))
    with pytest.raises(InvalidValue, match="x1"):
        fitted.predict({**X_NEW, "x1": X_NEW["x1"][:, :9]})
    single = regressor().fit(X["x1"], Y)
    with pytest.raises(InvalidValue, match="X has 9 features, but FunctionalRegressor is expecting 31"):
        single.predict(X_NEW["x1"][:, :9])
    # Whoever says when may have observed at other times.
    assert single.predict((TIMES[::2], X_NEW["x1"][:, ::2])).shape == (100, 31)


def test_predicting_before_fitting_says_so():
    for use in (lambda: regressor().predict(X), lambda: regressor().privacy_spent()):
        with pytest.raises(NotFittedError, match="fit") as caught:
            use()
        assert isinstance(caught.value, InvalidValue)


def test_a_domain_that_nobody_said_is_not_taken_from_curves_that_are_protected():
    rows = {name: [(TIMES[:-1], row[:-1]) for row in values] for name, values in X.items()}
    private = promise(noise="server", rehearsal=False)
    with pytest.raises(Refused, match="the domain of x1"):
        regressor(privacy=private).fit(rows, Y)
    assert regressor(privacy=private, domain=(0, 1)).fit(rows, Y).privacy_spent()["epsilon"] <= 20
    taken = regressor().fit(rows, Y)
    assert any("the domain of x1" in what for what in taken.privacy_.bare)


def test_a_run_is_remembered_where_it_is_asked_for(tmp_path):
    found = regressor(privacy=promise(noise="server"), out=tmp_path / "run").fit(X, Y)
    assert {entry.name for entry in found.run_.path.iterdir()} >= {LEDGER, "statement.json"}
    assert found.run_.path == tmp_path / "run"
