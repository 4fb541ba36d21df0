"""Relative risks: Cox regression by steps is Cox regression, and every model of survival is one model."""

import warnings

import numpy as np
import pandas as pd
import pytest

from tacit import Federation, Key, Open, fit
from tacit.aggregation import Mean
from tacit.errors import InvalidValue, Refused
from tacit.privacy.policy import Provenance
from tacit.sites.encoding import Encoding
from tacit.sites.table import Table, from_arrays, from_frame
from tacit.survival import (
    CoxCC,
    CoxPH,
    CoxTime,
    DeepHit,
    DeepSurv,
    LogisticHazard,
    PCHazard,
    PoissonPH,
)
from tacit.survival.data import simulate
from tacit.survival.models.prediction import RelativeModel, score

RELATIVE = (CoxPH, DeepSurv, CoxCC, CoxTime)
EVERY = (LogisticHazard, PCHazard, PoissonPH, DeepHit, *RELATIVE)
ENDS = (0.25, 0.5, 1.0, 2.5, 4.0)
FULL = {"steps": 40, "sample": 1.0, "lr": 0.5, "optimizer": "momentum"}


def simulated(records: int = 300, seed: int = 3, *, ties: bool = False) -> pd.DataFrame:
    frame = simulate("SDGM1", records=records, features=3, seed=seed)
    return frame.assign(time=np.ceil(frame["time"] * 6) / 6) if ties else frame


def table(frame: pd.DataFrame) -> Table:
    return from_frame(frame, targets=["time", "event"])


def survival_data(size: int, seed: int) -> Table:
    draw = np.random.default_rng(seed)
    features = draw.normal(size=(size, 2))
    time = draw.exponential(size=size) * np.exp(-features[:, 0]) + 0.01
    return from_arrays(features, time=time, event=(draw.random(size) < 0.8).astype(float))


def federation(**options) -> Federation:
    return Federation({"oslo": survival_data(60, 1), "bergen": survival_data(40, 2)}, **options)


# Cox regression


def test_trained_to_the_end_coefficients_are_those_of_lifelines():
    with warnings.catch_warnings(), np.errstate():
        warnings.simplefilter("ignore")
        from lifelines import CoxPHFitter

        frame = simulated()
        fitted = CoxPHFitter().fit(frame, "time", "event")
    run = fit(CoxPH(cuts=10, **FULL), Federation({"all": table(frame)}), rounds=8)
    found = run.state[:3]
    assert found == pytest.approx(fitted.params_.to_numpy(), abs=1e-3)
    assert np.abs(found).max() > 0.2


def test_with_ties_they_are_those_of_breslow():
    from sksurv.linear_model import CoxPHSurvivalAnalysis

    frame = simulated(ties=True)
    outcome = np.array(
        list(zip(frame["event"] == 1, frame["time"], strict=True)), dtype=[("e", bool), ("t", float)]
    )
    features = frame.filter(regex=r"^x\d").to_numpy()
    theirs = CoxPHSurvivalAnalysis(ties="breslow").fit(features, outcome).coef_
    run = fit(CoxPH(cuts=10, **FULL), Federation({"all": table(frame)}), rounds=8)
    assert run.state[:3] == pytest.approx(theirs, abs=1e-3)


def test_late_and_weighed_records_count_as_in_lifelines():
    with warnings.catch_warnings(), np.errstate():
        warnings.simplefilter("ignore")
        from lifelines import CoxPHFitter

        draw, frame = np.random.default_rng(0), simulated()
        frame["entry"] = np.where(draw.random(300) < 0.5, frame["time"] * draw.random(300), 0.0)
        frame["weight"] = draw.integers(1, 4, 300).astype(float)
        fitted = CoxPHFitter().fit(frame, "time", "event", entry_col="entry", weights_col="weight")
    data = Federation({"all": from_frame(frame, targets=["time", "event", "entry", "weight"])})
    run = fit(CoxPH(cuts=10, **FULL | {"lr": 0.2}), data, rounds=12)
    assert run.state[:3] == pytest.approx(fitted.params_.to_numpy(), abs=1e-3)


def test_decay_pulls_coefficients_towards_zero_as_a_penalty_does():
    frame, half = simulated(), 0.1
    data = Federation({"all": table(frame)})
    plain, pulled = (
        fit(CoxPH(cuts=10, decay=decay, **FULL), data, rounds=8).state[:3] for decay in (0.0, half)
    )
    with warnings.catch_warnings(), np.errstate():
        warnings.simplefilter("ignore")
        from lifelines import CoxPHFitter

        # Theirs is a mean over records with the penalty times one half of the squares, on scaled features.
        columns = frame.filter(regex=r"^x\d")
        scaled = frame.assign(**columns / columns.std(ddof=1))
        penalised = CoxPHFitter(penalizer=half).fit(scaled, "time", "event")
    assert float(np.linalg.norm(pulled)) < float(np.linalg.norm(plain))
    theirs = fit(CoxPH(cuts=10, decay=half, **FULL), Federation({"all": table(scaled)}), rounds=8).state[:3]
    assert theirs == pytest.approx(penalised.params_.to_numpy(), abs=2e-3)


@pytest.mark.parametrize("kind", [CoxCC, CoxTime], ids=lambda kind: kind.kind)
def test_pairs_of_records_tell_about_the_same_risks(kind):
    frame = simulated(600)
    data = Federation({"all": table(frame)})
    cox = fit(CoxPH(cuts=10, **FULL), data, rounds=8).model.risk(data.store.features)
    task = kind(cuts=10, hidden=(), steps=100, sample=1.0, lr=0.03, optimizer="momentum")
    run = fit(task, data, rounds=10)
    assert np.corrcoef(run.model.risk(data.store.features), cox)[0, 1] > 0.97


@pytest.mark.parametrize("kind", RELATIVE, ids=lambda kind: kind.kind)
def test_relative_models_learn_over_several_sites(kind):
    task = kind(cuts=6, epochs=2, batch=20, lr=0.05, optimizer="adam", hidden=(8,))
    run = fit(task, federation(held_out=survival_data(200, 9)), rounds=6)
    assert run.scores["c_index"] > 0.65
    assert run.scores["ibs"] < 0.25
    assert set(run.history.columns) >= {"c_index", "ibs"}


# Models


def settled(kind, data: Federation, **options):
    """A task and a state for it that is not the start."""
    choices = {"cuts": ENDS, "hidden": (4,), **options}
    task = kind(**choices).bind(data, Provenance(Open(), public=False))
    state = task.start(data, Key(1))
    state = state + np.random.default_rng(2).normal(size=len(state)) * 0.5
    if task.final_query is not None:
        answer = task.final_query.train(
            state, data.cohort(["oslo"]), Open().solve(task, ["oslo"], Mean(), 1), Key(1)
        )
        state = task.final_query.apply(state, answer.matrix[0])
    return task, state


def model_of(kind, **options):
    return (lambda task, state: task.model(state))(*settled(kind, federation(), **options))


FEATURES = np.random.default_rng(5).normal(size=(12, 2))


@pytest.mark.parametrize("kind", EVERY, ids=lambda kind: kind.kind)
def test_curves_hazards_and_quantiles_of_every_model_agree(kind):
    model = model_of(kind)
    times = np.sort(np.concatenate([np.linspace(0, ENDS[-1], 61), ENDS]))
    curves = model.survival(FEATURES, times)
    np.testing.assert_allclose(curves, np.exp(-model.cumulative_hazard(FEATURES, times)), rtol=1e-12)
    assert (curves[:, 0] == 1).all()
    assert (np.diff(curves, axis=1) <= 1e-12).all()
    # The hazard is the slope of the cumulative hazard, to the right of each moment.
    step = 1e-7
    inside = np.array([0.1, 0.25, 0.3, 0.9, 1.0, 2.0, 3.7])
    rise = (
        model.cumulative_hazard(FEATURES, inside + step) - model.cumulative_hazard(FEATURES, inside)
    ) / step
    np.testing.assert_allclose(model.hazard(FEATURES, inside), rise, rtol=1e-5, atol=1e-7)
    assert (model.hazard(FEATURES, [0.0, 4.0]) >= 0).all()
    # Nothing was learnt beyond the horizon.
    for ask in (model.survival, model.cumulative_hazard, model.hazard):
        with pytest.warns(UserWarning, match="predictions beyond the horizon, 4, are NaN"):
            late = ask(FEATURES, [2.0, 4.1, 50.0])
        assert np.array_equal(np.isnan(late), np.tile([False, True, True], (12, 1)))


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("kind", EVERY, ids=lambda kind: kind.kind)
def test_quantiles_invert_survival(kind, share):
    model = model_of(kind)
    found = model.quantile(FEATURES, share)
    assert found.shape == (12,)
    last = model.survival(FEATURES, ENDS[-1])[:, 0]
    assert np.array_equal(np.isinf(found), last > 1 - share)
    for record in np.flatnonzero(np.isfinite(found)):
        assert model.survival(FEATURES[record], found[record])[0, 0] == pytest.approx(1 - share, abs=1e-9)
        assert 0 < found[record] <= ENDS[-1]
    if share == 0.5:
        assert np.array_equal(model.median(FEATURES), found)


@pytest.mark.parametrize("share", [0.0, 1.0, -0.5, np.nan])
def test_a_share_that_is_none_is_refused(share):
    with pytest.raises(InvalidValue, match="share"):
        model_of(CoxPH).quantile(FEATURES, share)


@pytest.mark.parametrize("kind", EVERY, ids=lambda kind: kind.kind)
def test_nobody_ever_has_a_negative_chance_however_extreme_the_features(kind):
    # Not an error, and not a warning: tests turn those into errors.
    model = model_of(kind)
    extreme = np.array([[1e6, -1e6], [-1e8, 1e8], [40.0, 700.0]])
    curves = model.survival(extreme, [0.1, 1.0, 3.0, 4.0])
    assert np.isfinite(curves).all()
    assert ((curves >= 0) & (curves <= 1)).all()
    assert np.isfinite(model.risk(extreme)).all()
    assert not np.isnan(model.median(extreme)).any()


@pytest.mark.parametrize("kind", RELATIVE, ids=lambda kind: kind.kind)
def test_curves_are_refused_before_the_shared_hazard_is_known_and_risks_are_not(kind):
    data = federation()
    task = kind(cuts=ENDS).bind(data, Provenance(Open(), public=False))
    model = task.model(task.start(data, Key(1)))
    assert isinstance(model, RelativeModel)
    for ask in (model.survival, model.hazard, model.cumulative_hazard):
        with pytest.raises(Refused, match="baseline hazard"):
            ask(FEATURES, [1.0])
    with pytest.raises(Refused, match="baseline hazard"):
        model.median(FEATURES)
    assert model.risk(FEATURES).shape == (12,)
    assert set(score(model, data.store)) == {"c_index"}


@pytest.mark.parametrize("kind", [CoxPH, DeepSurv, CoxCC], ids=lambda kind: kind.kind)
def test_risk_is_the_log_hazard_ratio_to_a_record_of_zeros(kind):
    model = model_of(kind)
    assert model.risk(np.zeros((1, 2)))[0] == 0
    ratio = model.hazard(FEATURES, 0.7) / model.hazard(np.zeros((1, 2)), 0.7)
    assert np.log(ratio[:, 0]) == pytest.approx(model.risk(FEATURES))


def test_relative_risks_of_cox_time_change_over_time_and_are_those_of_the_middle_of_an_interval():
    model = model_of(CoxTime)
    told = model.log_risk(FEATURES)
    assert told.shape == (12, len(ENDS))
    assert np.abs(np.diff(told, axis=1)).max() > 1e-3
    middles = (np.array([0.0, *ENDS[:-1]]) + ENDS) / 2
    ratio = model.hazard(FEATURES, middles) / model.hazard(np.zeros((1, 2)), middles)
    known = model.baseline > 0
    assert np.log(ratio[:, known]) == pytest.approx(told[:, known])


# Competing risks


def causes_data(size: int, seed: int) -> Table:
    plain = survival_data(size, seed)
    cause = plain.targets["event"] * np.random.default_rng(seed).integers(1, 3, size)
    return Table(plain.features, {**plain.targets, "event": cause}, plain.columns)


def test_incidences_of_all_causes_and_survival_add_up_to_one_at_any_time():
    data = Federation({"oslo": causes_data(60, 1)})
    task, state = settled(DeepHit, data, causes=2)
    model, times = task.model(state), np.concatenate([np.linspace(0, ENDS[-1], 50), ENDS])
    found = [model.incidence(FEATURES, times, cause) for cause in (1, 2)]
    assert (found[0][:, 0] == 0).all()
    assert all((np.diff(part[:, :50], axis=1) >= -1e-15).all() for part in found)
    together = sum(found) + model.survival(FEATURES, times)
    np.testing.assert_allclose(together, np.ones_like(together), atol=1e-12)


@pytest.mark.parametrize("cause", [0, 3, -1])
def test_a_cause_that_nobody_knows_is_refused(cause):
    task, state = settled(DeepHit, Federation({"oslo": causes_data(60, 1)}), causes=2)
    with pytest.raises(InvalidValue, match=r"^cause = .* from 1 to 2"):
        task.model(state).incidence(FEATURES, 1.0, cause)


def test_every_cause_has_a_concordance_of_its_own():
    data = Federation({"oslo": causes_data(80, 1), "bergen": causes_data(50, 2)}, held_out=causes_data(80, 3))
    run = fit(DeepHit(causes=2, cuts=6, hidden=(8,), epochs=2, lr=0.01, optimizer="adam"), data, rounds=3)
    assert set(run.scores) == {"c_index", "ibs", "c_index_1", "c_index_2"}


# Raw records


def raw(size: int, seed: int) -> pd.DataFrame:
    draw = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "stage": draw.choice(["I", "II", "III"], size),
            "age": np.where(draw.random(size) < 0.2, np.nan, draw.normal(60, 9, size)),
            "time": draw.exponential(size=size) + 0.01,
            "event": draw.integers(0, 2, size),
            "where": draw.choice(["oslo", "bergen"], size),
        }
    )


ENCODING = Encoding(
    levels={"stage": ["I", "II", "III"]}, fill={"age": 60.0}, center={"age": 60.0}, scale={"age": 10.0}
)


@pytest.mark.parametrize("kind", EVERY, ids=lambda kind: kind.kind)
def test_raw_records_are_encoded_as_those_were_that_a_model_is_of(kind):
    data = Federation.from_frame(raw(80, 1), site="where", targets=["time", "event"], encoding=ENCODING)
    run = fit(kind(cuts=4, hidden=(), steps=2, sample=0.5), data, rounds=2)
    others = raw(10, 2).drop(columns=["time", "event"])
    encoded = ENCODING.apply(others[["stage", "age"]]).to_numpy()
    assert tuple(run.model.columns) == ("stage=II", "stage=III", "age")
    for ask in ("survival", "hazard", "cumulative_hazard"):
        found = getattr(run.model, ask)(others[["age", "where", "stage"]], [0.3, 1.0])
        assert np.array_equal(found, getattr(run.model, ask)(encoded, [0.3, 1.0]))
    for ask in ("risk", "median"):
        assert np.array_equal(getattr(run.model, ask)(others), getattr(run.model, ask)(encoded))
    curves = run.model.curves(others.set_axis(list("abcdefghij")), [0.3, 1.0])
    assert curves.shape == (2, 10)
    assert list(curves.columns) == list("abcdefghij")
    with pytest.raises(InvalidValue, match="stage in features"):
        run.model.risk(others.assign(stage="IV"))


def test_risk_groups_are_for_coupled_losses_alone():
    with pytest.raises(InvalidValue, match="groups_per_site"):
        DeepHit(ranking=0.0, groups_per_site=4)
    for kind in RELATIVE:
        with pytest.raises(InvalidValue, match="groups_per_site"):
            kind(groups_per_site=0)
        assert not kind().separable
        assert (kind().groups, kind(groups_per_site=3).groups) == ("none", "groups")
    assert DeepHit(ranking=0.0).separable
    assert not DeepHit().separable
