"""The hazard that all records share: Breslow's, from sums on a public grid that may have any scale."""

import warnings

import numpy as np
import pytest

from tacit import Federation, Key, Open, Privacy, fit
from tacit.engines.base import run_at_site
from tacit.privacy.mechanisms.base import NoPrivacy
from tacit.privacy.policy import Provenance
from tacit.runtime.arrays import Array
from tacit.sites.table import Table, from_arrays, from_frame
from tacit.survival import CoxCC, CoxPH, CoxTime, DeepSurv
from tacit.survival.data import simulate
from tacit.survival.models.cox import LARGEST_RISK, BreslowQuery

ENDS = (0.25, 0.5, 1.0, 2.5, 4.0)
RELATIVE = (CoxPH, DeepSurv, CoxCC, CoxTime)


def records(size: int, seed: int, *, late: bool = False, weighed: bool = False) -> Table:
    draw = np.random.default_rng(seed)
    features = draw.normal(size=(size, 2))
    time = draw.exponential(size=size) * np.exp(-features[:, 0]) + 0.01
    targets = {"time": time, "event": (draw.random(size) < 0.8).astype(float)}
    if late:
        targets["entry"] = np.where(draw.random(size) < 0.5, time * draw.random(size), 0.0)
    if weighed:
        targets["weight"] = draw.uniform(0.2, 3, size)
    return from_arrays(features, **targets)


def federation(**options) -> Federation:
    return Federation({"oslo": records(60, 1, **options), "bergen": records(25, 2, **options)})


def settled(kind, data: Federation, **options):
    task = kind(**{"cuts": ENDS, "hidden": (3,), **options}).bind(data, Provenance(Open(), public=False))
    start = task.start(data, Key(1))
    return task, start + np.random.default_rng(2).normal(size=len(start)) * 0.4


def sums(question, state, data: Federation, names=None) -> Array:
    return question.train(state, data.cohort(list(names or data)), NoPrivacy(), Key(0)).matrix


def by_hand(task, state, table: Table) -> np.ndarray:
    """Events over risk times time at risk, interval by interval, record by record."""
    risks = task.log_risks(state, table.features)
    entry = table.targets.get("entry", np.zeros(len(table)))
    weight = table.targets.get("weight", np.ones(len(table)))
    found, begin = [], 0.0
    for number, end in enumerate(task.cuts):
        events = at_risk = 0.0
        for record in range(len(table)):
            time = table.targets["time"][record]
            log_risk = risks[record, number if risks.shape[1] > 1 else 0]
            lived = max(min(time, end) - max(entry[record], begin), 0.0) / (end - begin)
            events += weight[record] * float(table.targets["event"][record] > 0 and begin < time <= end)
            at_risk += weight[record] * lived * np.exp(log_risk)
        found.append(events / at_risk if at_risk else 0.0)
        begin = end
    return np.array(found)


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("weighed", [False, True])
@pytest.mark.parametrize("kind", RELATIVE, ids=lambda kind: kind.kind)
def test_the_hazard_is_events_over_the_risk_that_was_there(kind, weighed, late):
    data = federation(late=late, weighed=weighed)
    task, state = settled(kind, data)
    closed = task.final_query.apply(state, sums(task.final_query, state, data).mean(axis=0))
    assert np.array_equal(closed[: len(state)], state)
    np.testing.assert_allclose(closed[len(state) :], by_hand(task, state, data.store), rtol=1e-10)
    assert task.model(closed).baseline.tolist() == closed[len(state) :].tolist()


def test_a_whole_run_ends_with_that_hazard():
    data = federation()
    run = fit(CoxPH(cuts=ENDS, steps=2, sample=0.5), data, rounds=2)
    np.testing.assert_allclose(run.model.baseline, by_hand(run.task, run.state, data.store), rtol=1e-10)
    assert run.state.shape == (2 + len(ENDS),)


def test_on_a_fine_grid_it_is_that_of_lifelines():
    with warnings.catch_warnings(), np.errstate():
        warnings.simplefilter("ignore")
        from lifelines import CoxPHFitter

        frame = simulate("SDGM1", records=2000, features=2, seed=5)
        fitted = CoxPHFitter().fit(frame, "time", "event")
        theirs = fitted.baseline_cumulative_hazard_.iloc[:, 0]
    coefficients = fitted.params_.to_numpy()
    # Theirs is that of a record of average features.
    shift = np.exp(-coefficients @ frame[["x1", "x2"]].mean().to_numpy())
    times = np.quantile(frame["time"][frame["event"] == 1], [0.1, 0.3, 0.5, 0.7, 0.9])
    expected = shift * np.array([theirs[theirs.index <= time].iloc[-1] for time in times])
    data = Federation({"all": from_frame(frame, targets=["time", "event"])})
    cuts = np.linspace(0, frame["time"].max(), 1001)[1:]
    task = CoxPH(cuts=cuts).bind(data, Provenance(Open(), public=False))
    state = coefficients.copy()
    model = task.model(task.final_query.apply(state, sums(task.final_query, state, data)[0]))
    found = model.cumulative_hazard(np.zeros((1, 2)), times)[0]
    assert found == pytest.approx(expected, rel=0.01)
    survival = fitted.predict_survival_function(frame.head(5), times).to_numpy().T
    assert model.survival(frame.head(5), times) == pytest.approx(survival, abs=0.01)


@pytest.mark.parametrize("scale", [1e-9, 1e-3, 1.0, 1e6])
def test_the_scale_of_the_answers_does_not_matter(scale):
    data = federation()
    task, state = settled(CoxPH, data)
    whole = sums(task.final_query, state, data).sum(axis=0)
    one, other = (task.final_query.apply(state, answer) for answer in (whole, scale * whole))
    np.testing.assert_allclose(other, one, rtol=1e-9)


def test_a_hazard_that_is_known_already_is_replaced():
    data = federation()
    task, state = settled(DeepSurv, data)
    answer = sums(task.final_query, state, data).sum(axis=0)
    once = task.final_query.apply(state, answer)
    assert np.array_equal(task.final_query.apply(once, sums(task.final_query, once, data).sum(axis=0)), once)


def test_every_site_may_have_a_state_of_its_own():
    data = federation()
    task, state = settled(CoxPH, data)
    both = np.stack([state, -state])
    found = sums(task.final_query, both, data)
    for place, name in enumerate(data):
        assert np.array_equal(found[place], sums(task.final_query, both[place], data, [name])[0])


def test_sites_together_answer_what_each_answers_alone():
    data = federation()
    task, state = settled(CoxTime, data)
    together = run_at_site(
        task.final_query, state, data.cohort(["oslo", "bergen"]), NoPrivacy(), Key(0)
    ).matrix
    for place, name in enumerate(data):
        alone = Federation({name: data[name].table})
        assert np.array_equal(sums(task.final_query, state, alone)[0], together[place])


# Where little is known


def test_from_where_nobody_is_left_the_last_hazard_goes_on():
    data = Federation({"oslo": records(200, 1)})
    edges = np.array([0.0, 0.5, 1.0, 300.0, 400.0, 450.0])
    task, state = settled(CoxPH, data, cuts=edges[1:])
    assert data.store.targets["time"].max() < 300
    rates = task.final_query.apply(state, sums(task.final_query, state, data)[0])[len(state) :] / np.diff(
        edges
    )
    known = by_hand(task, state, data.store.take(data.store.targets["time"] < 300))[:2] / np.diff(edges)[:2]
    assert rates[:2] == pytest.approx(known)
    assert (rates > 0).all()
    assert rates[3] == pytest.approx(rates[2])
    assert rates[4] == pytest.approx(rates[2])


@pytest.mark.parametrize("seed", range(5))
def test_noise_alone_gives_a_hazard_that_is_none_but_no_error(seed):
    data = federation()
    task, state = settled(CoxPH, data)
    noise = np.random.default_rng(seed).normal(size=2 * len(ENDS)) * 10
    for answer in (noise, -np.abs(noise), np.zeros(2 * len(ENDS))):
        closed = task.final_query.apply(state, answer)
        assert bool(np.isfinite(closed).all())
        assert bool((closed[len(state) :] >= 0).all())
        curves = task.model(closed).survival(data.store.features, [0.1, ENDS[-1]])
        assert ((curves >= 0) & (curves <= 1)).all()


def test_with_little_noise_a_private_run_finds_nearly_the_open_hazard():
    data = Federation({name: records(1500, seed) for seed, name in enumerate("ab")})
    task = CoxPH(cuts=ENDS, steps=1, sample=0.5, groups_per_site=300, lr=0.01)
    promise = Privacy(unit="record", epsilon=50.0, delta=1e-5, clip=1.0)
    run = fit(task, data, privacy=promise, rounds=1)
    bare = by_hand(run.task, run.state, data.store)
    assert run.model.baseline == pytest.approx(bare, rel=0.15)


# What one record contributes


@pytest.mark.parametrize("kind", RELATIVE, ids=lambda kind: kind.kind)
def test_a_record_of_usual_risk_is_not_clipped(kind):
    data = federation()
    task, state = settled(kind, data)
    found = task.final_query.contributions(0 * state, data.store)
    assert (np.linalg.norm(found, axis=1) <= task.final_query.record_bound("l2")).all()
    assert (np.abs(found).sum(axis=1) <= task.final_query.record_bound("l1")).all()
    # And the bound is not idle.
    assert np.linalg.norm(found, axis=1).max() > 0.5 * task.final_query.record_bound("l2")


@pytest.mark.parametrize("kind", RELATIVE, ids=lambda kind: kind.kind)
def test_sums_are_those_of_what_is_written_out(kind):
    data = federation(late=True, weighed=True)
    task, state = settled(kind, data)
    rows = [task.final_query.contributions(state, data.records_of(name), LARGEST_RISK) for name in data]
    assert sums(task.final_query, state, data) == pytest.approx(
        np.stack([own.sum(axis=0) for own in rows]), rel=1e-12
    )


def test_the_bound_is_known_before_the_grid_is():
    for norm in ("l2", "l1"):
        ahead, after = (BreslowQuery(CoxPH(cuts=cuts)).record_bound(norm) for cuts in (5, ENDS))
        assert ahead == after
