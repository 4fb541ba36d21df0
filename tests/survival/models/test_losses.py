"""The slopes of the discrete-time likelihood are those that torch finds for one written out term by term."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tacit.survival.models.losses import HazardLoss

ENDS = (0.5, 1.0, 2.5, 4.0)
# Before the first end, at an end, just beside it, between two, at the last one, beyond it.
TIMES = (0.1, 0.5, 0.5 - 1e-12, 0.5 + 1e-12, 0.7, 1.0, 2.5, 3.9, 4.0, 4.0 + 1e-12, 70.0)
OUTPUTS = st.floats(-6, 6, allow_subnormal=False)


def bernoulli(outputs: torch.Tensor, time: float, event: int, ends: tuple[float, ...]) -> torch.Tensor:
    """Minus the log-likelihood of one record: one coin for every interval that it was seen in."""
    total, begin = torch.zeros((), dtype=torch.float64), 0.0
    for number, end in enumerate(ends):
        hazard = torch.sigmoid(outputs[number])
        if event == 1 and begin < time <= end:
            total = total - torch.log(hazard)
        elif time >= end:
            total = total - torch.log(1 - hazard)
        begin = end
    return total


def expected(
    outputs: np.ndarray, time: float, event: int, ends: tuple[float, ...]
) -> tuple[float, np.ndarray]:
    free = torch.tensor(outputs, dtype=torch.float64, requires_grad=True)
    value = bernoulli(free, time, event, ends)
    if value.requires_grad:
        value.backward()
    return float(value.detach()), np.zeros(len(ends)) if free.grad is None else free.grad.numpy()


def found(outputs: np.ndarray, time: float, event: int, ends: tuple[float, ...]) -> tuple[float, np.ndarray]:
    """The same, by the library, for a batch of one site, one unit, one member."""
    loss = HazardLoss(ends)
    shaped = outputs.reshape(1, 1, 1, -1)
    targets = {"time": np.full((1, 1, 1), time), "event": np.full((1, 1, 1), float(event))}
    slopes = loss.slopes(shaped, targets, np.ones((1, 1, 1), dtype=np.bool_))
    assert slopes.shape == shaped.shape
    return float(loss.values(shaped, targets)[0, 0, 0]), slopes[0, 0, 0]


@pytest.mark.parametrize("event", [0, 1], ids=["censored", "event"])
@pytest.mark.parametrize("time", TIMES)
@given(outputs=st.lists(OUTPUTS, min_size=4, max_size=4))
def test_value_and_slopes_are_those_of_the_likelihood(time: float, event: int, outputs: list[float]):
    value, slopes = found(np.array(outputs), time, event, ENDS)
    wanted_value, wanted_slopes = expected(np.array(outputs), time, event, ENDS)
    assert value == pytest.approx(wanted_value, rel=1e-10, abs=1e-10)
    np.testing.assert_allclose(slopes, wanted_slopes, rtol=0, atol=1e-10)


@given(st.data())
def test_value_and_slopes_are_right_on_any_grid(data: st.DataObject):
    steps = data.draw(st.lists(st.floats(0.01, 10), min_size=1, max_size=12))
    ends = tuple(np.cumsum(steps).tolist())
    time = data.draw(st.sampled_from(ends) | st.floats(0.001, 2 * ends[-1]))
    event = data.draw(st.integers(0, 1))
    outputs = np.array(data.draw(st.lists(OUTPUTS, min_size=len(ends), max_size=len(ends))))
    value, slopes = found(outputs, time, event, ends)
    wanted_value, wanted_slopes = expected(outputs, time, event, ends)
    assert value == pytest.approx(wanted_value, rel=1e-10, abs=1e-10)
    np.testing.assert_allclose(slopes, wanted_slopes, rtol=0, atol=1e-10)


@pytest.mark.parametrize(
    ("time", "event", "seen"),
    [
        (0.1, 1, [-0.5, 0, 0, 0]),
        (0.5, 1, [-0.5, 0, 0, 0]),
        (0.6, 1, [0.5, -0.5, 0, 0]),
        (4.0, 1, [0.5, 0.5, 0.5, -0.5]),
        (4.1, 1, [0.5, 0.5, 0.5, 0.5]),
        (0.1, 0, [0, 0, 0, 0]),
        (0.5, 0, [0.5, 0, 0, 0]),
        (0.6, 0, [0.5, 0, 0, 0]),
        (3.9, 0, [0.5, 0.5, 0.5, 0]),
        (4.0, 0, [0.5, 0.5, 0.5, 0.5]),
    ],
)
def test_slopes_at_even_odds_can_be_read_off(time: float, event: int, seen: list[float]):
    value, slopes = found(np.zeros(4), time, event, ENDS)
    assert slopes.tolist() == seen
    assert value == pytest.approx(np.count_nonzero(seen) * np.log(2))


def test_an_event_beyond_the_last_end_is_a_record_that_survived_it():
    outputs = np.array([0.3, -1.0, 2.0, 0.1])
    assert found(outputs, 9.0, 1, ENDS)[0] == found(outputs, 9.0, 0, ENDS)[0]
    assert found(outputs, 9.0, 1, ENDS)[0] > found(outputs, 3.0, 0, ENDS)[0]


def test_many_records_at_many_sites_are_each_their_own():
    generator = np.random.default_rng(0)
    shape = (3, 5, 2)
    outputs = generator.normal(size=(*shape, 4))
    targets = {"time": generator.choice(TIMES, size=shape), "event": generator.integers(0, 2, shape) * 1.0}
    loss = HazardLoss(ENDS)
    slopes = loss.slopes(outputs, targets, np.ones(shape, dtype=np.bool_))
    values = loss.values(outputs, targets)
    assert values.shape == shape
    for place in np.ndindex(shape):
        value, slope = expected(outputs[place], targets["time"][place], int(targets["event"][place]), ENDS)
        assert values[place] == pytest.approx(value, abs=1e-10)
        np.testing.assert_allclose(slopes[place], slope, rtol=0, atol=1e-10)


@pytest.mark.parametrize("size", [800.0, -800.0, 1e300, -1e300])
@pytest.mark.parametrize("event", [0, 1])
def test_extreme_outputs_have_bounded_slopes_and_no_broken_values(size: float, event: int):
    value, slopes = found(np.full(4, size), 3.0, event, ENDS)
    assert np.isfinite(value)
    assert np.abs(slopes).max() <= 1
    assert value >= 0
