"""The partial likelihood of a unit is Breslow's, whoever is tied, late, weighed or not there."""

import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tacit.survival.data import simulate
from tacit.survival.models.cox_loss import PartialLikelihood, Ranks

LOSS = PartialLikelihood()


def breslow(log_risks, time, event, entry, weight, present) -> torch.Tensor:
    """One unit, term by term: who is at risk at the time of every event, over the number of members."""
    total = torch.zeros((), dtype=torch.float64)
    for case in range(len(time)):
        if not present[case] or event[case] <= 0:
            continue
        at_risk = [
            other
            for other in range(len(time))
            if present[other] and time[other] >= time[case] and (entry[other] < time[case] or other == case)
        ]
        among = torch.stack([torch.log(torch.tensor(weight[o])) + log_risks[o] for o in at_risk])
        total = total + weight[case] * (torch.logsumexp(among, 0) - log_risks[case])
    return total / max(int(present.sum()), 1)


def drawn(seed: int, shape=(2, 3, 7), *, late=True, weighed=True, ties=True, gaps=True):
    """Units of several sites: outputs, targets and who is there."""
    draw = np.random.default_rng(seed)
    time = draw.integers(1, 5, shape).astype(float) if ties else draw.uniform(0.1, 5, shape)
    targets = {"time": time, "event": draw.integers(0, 2, shape).astype(float)}
    if late:
        # Half of them come late, at moments at which others leave.
        targets["entry"] = np.where(draw.random(shape) < 0.5, np.floor(time * draw.random(shape) * 0.99), 0.0)
    if weighed:
        targets["weight"] = draw.uniform(0.2, 3, shape)
    present = draw.random(shape) < 0.75 if gaps else np.ones(shape, dtype=np.bool_)
    return draw.normal(size=(*shape, 1)) * 2, targets, present


def expected(outputs, targets, present) -> tuple[np.ndarray, np.ndarray]:
    """Values (sites, units) and slopes, by torch."""
    values, slopes = np.zeros(present.shape[:2]), np.zeros_like(outputs)
    nothing, one = np.zeros(present.shape), np.ones(present.shape)
    for place in np.ndindex(present.shape[:2]):
        risks = torch.tensor(outputs[place][:, 0], requires_grad=True)
        value = breslow(
            risks, targets["time"][place], targets["event"][place], targets.get("entry", nothing)[place],
            targets.get("weight", one)[place], present[place],
        )  # fmt: skip
        values[place] = float(value.detach())
        if value.requires_grad:
            value.backward()
            slopes[place][:, 0] = risks.grad.numpy()
    return values, slopes


@given(st.integers(0, 10_000), st.booleans(), st.booleans(), st.booleans(), st.booleans(), st.integers(1, 9))
def test_values_and_slopes_are_those_of_the_formula(seed, late, weighed, ties, gaps, members):
    shape = (2, 2, members)
    outputs, targets, present = drawn(seed, shape, late=late, weighed=weighed, ties=ties, gaps=gaps)
    values, slopes = expected(outputs, targets, present)
    np.testing.assert_allclose(LOSS.values(outputs, targets, present), values, rtol=0, atol=1e-11)
    np.testing.assert_allclose(LOSS.slopes(outputs, targets, present), slopes, rtol=0, atol=1e-11)


@pytest.mark.parametrize("late", [False, True])
def test_slopes_are_the_differences_of_values(late):
    outputs, targets, present = drawn(4, (1, 2, 12), late=late)
    slopes, step = LOSS.slopes(outputs, targets, present), 1e-6
    for place in np.ndindex(present.shape):
        shift = np.zeros_like(outputs)
        shift[(*place, 0)] = step
        up, down = (LOSS.values(outputs + sign * shift, targets, present) for sign in (1, -1))
        change = (up - down) / (2 * step)
        assert change[place[:2]] == pytest.approx(slopes[(*place, 0)], abs=1e-8)
        # Nobody else's loss depends on it.
        assert np.delete(change.ravel(), place[0] * 2 + place[1]) == pytest.approx(0)


def test_whoever_is_not_there_has_no_slope_and_no_influence():
    outputs, targets, present = drawn(1)
    slopes = LOSS.slopes(outputs, targets, present)
    assert (slopes[~present] == 0).all()
    other = {name: np.where(present, values, 1.0) for name, values in targets.items()}
    other["time"] = np.where(present, targets["time"], 99.0)
    other["event"] = np.where(present, targets["event"], 1.0)
    moved = np.where(present[..., None], outputs, 300.0)
    np.testing.assert_allclose(LOSS.slopes(moved, other, present), slopes, rtol=0, atol=1e-12)


def test_room_for_members_who_do_not_come_changes_nothing():
    outputs, targets, present = drawn(2, gaps=False)
    room = ((0, 0), (0, 1), (0, 4))
    wide = {name: np.pad(values, room, mode="edge") for name, values in targets.items()}
    found = LOSS.slopes(np.pad(outputs, (*room, (0, 0))), wide, np.pad(present, room))
    np.testing.assert_allclose(found[:, :3, :7], LOSS.slopes(outputs, targets, present), rtol=0, atol=1e-13)
    assert (found[:, 3:] == 0).all()
    assert (found[:, :, 7:] == 0).all()


def test_a_shift_of_all_log_risks_changes_nothing():
    outputs, targets, present = drawn(3)
    for shift in (5.0, -700.0, 1e6):
        np.testing.assert_allclose(
            LOSS.slopes(outputs + shift, targets, present),
            LOSS.slopes(outputs, targets, present),
            rtol=0,
            atol=1e-9,
        )
    assert LOSS.slopes(outputs, targets, present).sum(axis=2) == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("size", [5.0, 50.0, 800.0, 1e5])
def test_slopes_of_log_risks_that_are_far_apart_are_finite_and_still_sum_to_zero(size):
    outputs, targets, present = drawn(5, (2, 3, 9), late=False, weighed=False)
    slopes = LOSS.slopes(size * outputs, targets, present)
    assert np.isfinite(slopes).all()
    # Shifting everybody changes nothing, so what one gains the others lose.
    assert slopes.sum(axis=2) == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("size", [5.0, 50.0, 800.0, 1e5])
def test_nothing_breaks_where_somebody_comes_late_and_log_risks_are_far_apart(size):
    outputs, targets, present = drawn(5, (2, 3, 9), weighed=False)
    assert np.isfinite(LOSS.values(size * outputs, targets, present)).all()
    # At most every event for everybody, over the members.
    assert np.abs(LOSS.slopes(size * outputs, targets, present)).max() <= 9


def test_units_without_events_or_members_have_no_loss():
    outputs, targets, present = drawn(6)
    assert (LOSS.slopes(outputs, targets | {"event": np.zeros(present.shape)}, present) == 0).all()
    nobody = np.zeros_like(present)
    assert (LOSS.slopes(outputs, targets, nobody) == 0).all()
    assert (LOSS.values(outputs, targets, nobody) == 0).all()


def test_any_cause_is_an_event():
    outputs, targets, present = drawn(7)
    causes = targets | {"event": targets["event"] * 3}
    assert np.array_equal(LOSS.slopes(outputs, causes, present), LOSS.slopes(outputs, targets, present))


def test_integer_weights_of_events_count_as_copies_of_their_records():
    """Breslow's ties are what makes a weight of two the same as two records; means are over records."""
    outputs, targets, _ = drawn(8, (1, 1, 6), weighed=False, gaps=False)
    times = np.array([2, 1, 3, 1, 1, 2])
    weighed = targets | {"weight": times[None, None].astype(float)}
    copied = {name: np.repeat(values, times, axis=2) for name, values in targets.items()}
    one, many = (np.ones((1, 1, size), dtype=np.bool_) for size in (6, 10))
    found = LOSS.values(outputs, weighed, one) * 6
    assert found == pytest.approx(LOSS.values(np.repeat(outputs, times, axis=2), copied, many) * 10)


# Elsewhere


def whole(frame: pd.DataFrame, coefficients: np.ndarray):
    """All records as one unit, with the log risks of these coefficients."""
    features = frame.filter(regex=r"^x\d").to_numpy()
    given_targets = {name: frame[name].to_numpy(float)[None, None] for name in ("time", "event")}
    outputs = (features @ coefficients)[None, None, :, None]
    return features, outputs, given_targets, np.ones((1, 1, len(frame)), dtype=np.bool_)


def test_the_value_at_the_estimate_of_lifelines_is_its_log_likelihood_without_ties():
    with warnings.catch_warnings(), np.errstate():
        warnings.simplefilter("ignore")
        from lifelines import CoxPHFitter

        frame = simulate("SDGM1", records=200, features=3, seed=3)
        fitted = CoxPHFitter().fit(frame, "time", "event")
    assert frame["time"].is_unique
    features, outputs, targets, present = whole(frame, fitted.params_.to_numpy())
    found = -200 * LOSS.values(outputs, targets, present)[0, 0]
    assert found == pytest.approx(fitted.log_likelihood_, rel=1e-9)
    gradient = LOSS.slopes(outputs, targets, present)[0, 0, :, 0] @ features
    assert gradient == pytest.approx(0, abs=1e-5)


def test_the_slope_vanishes_at_the_estimate_of_scikit_survival_by_breslow_with_ties():
    from sksurv.linear_model import CoxPHSurvivalAnalysis

    frame = simulate("SDGM1", records=200, features=3, seed=4)
    frame["time"] = np.ceil(frame["time"] * 5) / 5
    outcome = np.array(
        list(zip(frame["event"] == 1, frame["time"], strict=True)), dtype=[("e", bool), ("t", float)]
    )
    model = CoxPHSurvivalAnalysis(ties="breslow", tol=1e-12).fit(
        frame.filter(regex=r"^x\d").to_numpy(), outcome
    )
    features, outputs, targets, present = whole(frame, model.coef_)
    assert LOSS.slopes(outputs, targets, present)[0, 0, :, 0] @ features == pytest.approx(0, abs=1e-8)


# Sums over risk sets


@given(st.integers(0, 10_000), st.booleans())
def test_sums_over_risk_sets_are_sums_over_risk_sets(seed, late):
    _, targets, _ = drawn(seed, (2, 1, 8), late=late)
    time, entry = targets["time"], targets.get("entry", np.zeros((2, 1, 8)))
    amount = np.random.default_rng(seed).random(time.shape)
    there = (time[..., None, :] >= time[..., :, None]) & (entry[..., None, :] < time[..., :, None])
    ranks = Ranks(targets)
    np.testing.assert_allclose(ranks.at_risk(amount), (there * amount[..., None, :]).sum(axis=-1), atol=1e-12)
    np.testing.assert_allclose(ranks.during(amount), (there * amount[..., :, None]).sum(axis=-2), atol=1e-12)
