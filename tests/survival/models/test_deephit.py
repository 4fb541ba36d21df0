"""DeepHit's loss: chances that add up, values and slopes as torch finds them for the published formulas."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.survival.models.deephit import IncidenceLoss

ENDS = (0.5, 1.0, 2.5, 4.0)
# Inside intervals, at their ends, beside them, and beyond the last.
MOMENTS = (0.1, 0.5, 0.5 + 1e-12, 0.7, 1.0, 2.4, 2.5, 3.9, 4.0, 4.1, 9.0)


def drawn(seed: int, shape=(2, 2, 6), *, causes=2, late=True, weighed=True, gaps=True):
    draw = np.random.default_rng(seed)
    targets = {
        "time": draw.choice(MOMENTS, shape),
        "event": draw.integers(0, causes + 1, shape).astype(float),
    }
    if late:
        targets["entry"] = np.where(
            draw.random(shape) < 0.6, targets["time"] * draw.choice([0.3, 0.6, 0.99], shape), 0.0
        )
    if weighed:
        targets["weight"] = draw.uniform(0.2, 3, shape)
    present = draw.random(shape) < 0.75 if gaps else np.ones(shape, dtype=np.bool_)
    return draw.normal(size=(*shape, causes * len(ENDS))) * 2, targets, present


def likelihood(scores: torch.Tensor, time: float, event: int, entry: float, causes: int) -> torch.Tensor:
    """Minus the log-likelihood of one record, from the chances of all its outcomes."""
    chances = torch.softmax(torch.cat([scores, scores.new_zeros(1)]), 0)
    cells = chances[:-1].view(causes, len(ENDS))
    beyond = chances[-1]
    starts = (0.0, *ENDS[:-1])
    seen = beyond + sum(cells[:, place].sum() for place, end in enumerate(ENDS) if entry < end)
    own = [place for place, end in enumerate(ENDS) if starts[place] < time <= end]
    if event > 0 and own:
        return torch.log(seen) - torch.log(cells[event - 1, own[0]])
    later = beyond + sum(cells[:, place].sum() for place, end in enumerate(ENDS) if time < end)
    return torch.log(seen) - torch.log(later)


def ranking(scores: torch.Tensor, time, event, weight, present, causes: int, spread: float) -> torch.Tensor:
    """Lee and others 2018, equation 5 with the exponential: every event against everybody who left later."""
    chances = torch.softmax(torch.cat([scores, scores.new_zeros(len(scores), 1)], 1), 1)[:, :-1]
    incidence = chances.view(len(scores), causes, len(ENDS)).cumsum(2)
    total = torch.zeros((), dtype=torch.float64)
    for early in range(len(time)):
        own = int(np.searchsorted(ENDS, time[early]))
        if not present[early] or event[early] == 0 or own == len(ENDS):
            continue
        cause = int(event[early]) - 1
        for late in range(len(time)):
            if present[late] and time[late] > time[early]:
                lead = incidence[late, cause, own] - incidence[early, cause, own]
                total = total + weight[early] * torch.exp(lead / spread)
    return total


def expected(outputs, targets, present, causes: int, share: float, spread: float):
    """The loss of each unit and its slopes, by torch."""
    values, slopes = np.zeros(present.shape[:2]), np.zeros_like(outputs)
    entry = targets.get("entry", np.zeros(present.shape))
    weight = targets.get("weight", np.ones(present.shape))
    for place in np.ndindex(present.shape[:2]):
        scores = torch.tensor(outputs[place], requires_grad=True)
        time, event = targets["time"][place], targets["event"][place]
        total = sum(
            (
                weight[place][i] * likelihood(scores[i], time[i], int(event[i]), entry[place][i], causes)
                for i in np.flatnonzero(present[place])
            ),
            torch.zeros((), dtype=torch.float64),
        )
        members = max(int(present[place].sum()), 1)
        if share:
            ranked = ranking(scores, time, event, weight[place], present[place], causes, spread)
            total = (1 - share) * total / members + share * ranked / members**2
        values[place] = float(total.detach())
        if total.requires_grad:
            total.backward()
            slopes[place] = scores.grad.numpy()
    return values, slopes


@given(st.integers(0, 10_000), st.integers(1, 3), st.booleans(), st.booleans())
def test_the_likelihood_and_its_slopes_are_those_of_the_formula(seed, causes, late, weighed):
    outputs, targets, present = drawn(seed, causes=causes, late=late, weighed=weighed)
    loss = IncidenceLoss(ENDS, causes)
    values, slopes = expected(outputs, targets, present, causes, 0.0, 1.0)
    found = np.where(present[..., None], loss.slopes(outputs, targets, present), 0.0)
    np.testing.assert_allclose(found, slopes, rtol=0, atol=1e-11)
    each = np.where(present, loss.values(outputs, targets), 0.0)
    np.testing.assert_allclose(each.sum(axis=2), values, rtol=0, atol=1e-10)


@settings(max_examples=40)
@given(st.integers(0, 10_000), st.integers(1, 2), st.booleans(), st.sampled_from([0.1, 0.5, 2.0]))
def test_with_ranking_the_slopes_are_those_of_both_terms(seed, causes, late, spread):
    outputs, targets, present = drawn(seed, causes=causes, late=late)
    _, slopes = expected(outputs, targets, present, causes, 0.3, spread)
    loss = IncidenceLoss(ENDS, causes, ranking=0.3, spread=spread)
    found = loss.slopes(outputs, targets, present)
    np.testing.assert_allclose(found, slopes, rtol=1e-9, atol=1e-9)
    assert (found[~present] == 0).all()


def test_the_ranking_term_is_a_sum_over_pairs():
    outputs, targets, present = drawn(3, causes=2)
    found = IncidenceLoss(ENDS, 2, ranking=0.3, spread=0.4).ranks(outputs, targets, present)
    for place in np.ndindex(2, 2):
        scores = torch.tensor(outputs[place])
        given = [targets[name][place] for name in ("time", "event", "weight")]
        assert found[place] == pytest.approx(float(ranking(scores, *given, present[place], 2, 0.4)))


def test_slopes_are_the_differences_of_values():
    outputs, targets, present = drawn(4, (1, 1, 8), causes=2, gaps=False)
    loss, step = IncidenceLoss(ENDS, 2, ranking=0.4, spread=0.3), 1e-6

    def value(scores):
        means = 0.6 * loss.values(scores, targets).sum(axis=2) / 8
        return (means + 0.4 * loss.ranks(scores, targets, present) / 64)[0, 0]

    slopes = loss.slopes(outputs, targets, present)
    for place in np.ndindex(outputs.shape):
        shift = np.zeros_like(outputs)
        shift[place] = step
        change = (value(outputs + shift) - value(outputs - shift)) / (2 * step)
        assert change == pytest.approx(slopes[place], abs=1e-7)


def test_without_ranking_nobody_has_a_part_in_anothers_loss():
    outputs, targets, present = drawn(5)
    loss = IncidenceLoss(ENDS, 2)
    found = loss.slopes(outputs, targets, present)
    for place in np.ndindex(present.shape):
        alone = loss.slopes(
            outputs[place][None, None, None],
            {name: values[place].reshape(1, 1, 1) for name, values in targets.items()},
            np.ones((1, 1, 1), dtype=np.bool_),
        )
        np.testing.assert_allclose(alone[0, 0, 0], found[place], rtol=0, atol=1e-13)


def test_room_for_members_who_do_not_come_changes_nothing():
    outputs, targets, present = drawn(6, gaps=False)
    room, loss = ((0, 0), (0, 1), (0, 3)), IncidenceLoss(ENDS, 2, ranking=0.3)
    wide = {name: np.pad(values, room, mode="edge") for name, values in targets.items()}
    found = loss.slopes(np.pad(outputs, (*room, (0, 0)), mode="edge"), wide, np.pad(present, room))
    np.testing.assert_allclose(found[:, :2, :6], loss.slopes(outputs, targets, present), rtol=0, atol=1e-13)
    assert (found[:, 2:] == 0).all()
    assert (found[:, :, 6:] == 0).all()


@given(st.integers(0, 10_000), st.integers(1, 3), st.sampled_from([0.1, 1.0, 30.0, 300.0]))
def test_chances_and_survival_add_up_to_one(seed, causes, size):
    outputs = np.random.default_rng(seed).normal(size=(5, causes * len(ENDS))) * size
    loss = IncidenceLoss(ENDS, causes)
    chances, added = loss.chances(outputs), loss.increments(outputs)
    assert chances.shape == (5, causes, len(ENDS))
    assert (added >= 0).all()
    survival = np.exp(-np.cumsum(added, axis=1))
    np.testing.assert_allclose(
        chances.sum(axis=1).cumsum(axis=1) + survival, np.ones((5, len(ENDS))), atol=1e-12
    )


@pytest.mark.parametrize("size", [800.0, -800.0, 1e300, -1e300])
@pytest.mark.parametrize("share", [0.0, 0.3])
def test_extreme_scores_have_bounded_slopes_and_no_broken_values(size, share):
    outputs, targets, present = drawn(7, gaps=False, weighed=False)
    outputs = size * np.sign(outputs)
    loss = IncidenceLoss(ENDS, 2, ranking=share, spread=0.1)
    slopes = loss.slopes(outputs, targets, present)
    assert np.isfinite(slopes).all()
    assert np.isfinite(loss.values(outputs, targets)).all()
    assert np.isfinite(loss.increments(outputs)).all()
    if not share:
        assert np.abs(slopes).max() <= 1


def test_an_event_beyond_the_last_end_is_a_record_that_survived_it():
    outputs, loss = np.random.default_rng(1).normal(size=(1, 8)), IncidenceLoss(ENDS, 2)
    found = [
        loss.values(outputs, {"time": np.array([9.0]), "event": np.array([event])})
        for event in (0.0, 1.0, 2.0)
    ]
    assert found[0] == found[1] == found[2]
    assert found[0] == pytest.approx(-np.log(1 - loss.chances(outputs).sum()))
