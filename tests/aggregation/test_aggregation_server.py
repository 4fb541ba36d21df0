"""Server optimizers: by hand, and beside those of torch."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from tacit.aggregation.server import Adam, Momentum, Plain, ServerStep
from tacit.errors import InvalidValue
from tacit.runtime.arrays import Array

rounds_of_updates = arrays.arrays(
    np.float64, st.tuples(st.integers(1, 6), st.just(3)), elements=st.floats(-100, 100)
)
STEPS: list[ServerStep] = [Plain(lr=0.5), Momentum(lr=0.5), Adam()]
NAMES = ["plain", "momentum", "adam"]


def walked(server: ServerStep, updates: Array) -> Array:
    """The state after each round, from zero."""
    state = np.zeros(updates.shape[1])
    memory, seen = server.remember(state), []
    for combined in updates:
        step, memory = server(combined, memory)
        state = state + step
        seen.append(state)
    return np.stack(seen)


def by_torch(optimizer: type[torch.optim.Optimizer], updates: Array, **options) -> Array:
    """The same with an optimizer of torch, which walks along the updates instead of against a gradient."""
    state = torch.zeros(updates.shape[1], dtype=torch.float64, requires_grad=True)
    taken, seen = optimizer([state], maximize=True, **options), []
    for combined in updates:
        state.grad = torch.from_numpy(combined.copy())
        taken.step()
        seen.append(state.detach().numpy().copy())
    return np.stack(seen)


# By hand


def test_the_plain_step_is_the_update():
    combined = np.array([1.0, -2.0], dtype=np.float64)
    step, memory = Plain()(combined, Plain().remember(combined))
    assert step.tolist() == [1, -2]
    assert memory.shape == (0, 2)


def test_the_plain_step_is_scaled_by_its_rate():
    combined = np.array([1.0, -2.0], dtype=np.float64)
    assert Plain(lr=0.5)(combined, Plain().remember(combined))[0].tolist() == [0.5, -1]


def test_momentum_keeps_a_share_of_earlier_updates():
    updates = np.array([[1.0], [1.0], [0.0]], dtype=np.float64)
    # Velocities 1, 1.5, 0.75, each times 2.
    assert walked(Momentum(lr=2.0, momentum=0.5), updates)[:, 0].tolist() == [2, 5, 6.5]


def test_without_momentum_it_is_the_plain_step():
    updates = np.array([[1.0, 2.0], [-3.0, 0.5]], dtype=np.float64)
    assert np.array_equal(walked(Momentum(lr=0.3, momentum=0.0), updates), walked(Plain(lr=0.3), updates))


def test_the_first_step_of_adam_is_its_rate_in_every_direction():
    # Both moments are corrected for their start at zero, so that size does not count.
    server = Adam(lr=0.1, floor=1e-9)
    step, _ = server(np.array([5.0, -0.01], dtype=np.float64), server.remember(np.zeros(2)))
    np.testing.assert_allclose(step, [0.1, -0.1], rtol=1e-6)


def test_two_steps_of_adam_by_hand():
    server = Adam(lr=1.0, first=0.5, second=0.75, floor=1.0)
    found = walked(server, np.array([[2.0], [4.0]], dtype=np.float64))[:, 0]
    # Round 1: mean 1 / 0.5, square 1 / 0.25. Round 2: mean 2.5 / 0.75, square 4.75 / 0.4375.
    first = 2 / (2 + 1)
    second = (2.5 / 0.75) / ((4.75 / 0.4375) ** 0.5 + 1)
    np.testing.assert_allclose(found, [first, first + second], rtol=1e-12)


def test_the_floor_of_adam_keeps_quiet_coordinates_from_racing():
    server = Adam(lr=0.1, floor=1e-3)
    step, _ = server(np.array([1e-6, 1.0]), server.remember(np.zeros(2)))
    assert float(step[0]) == pytest.approx(1e-4, rel=1e-2)
    assert float(step[1]) == pytest.approx(0.1, rel=1e-2)


def test_what_is_not_said_of_adam_is_as_documented():
    """lr = 0.01, first = 0.9, second = 0.99, floor = 0.001 (Reddi and others 2021)."""
    updates = np.array([[2e-3], [-1e-3], [5e-3]])
    said = Adam(lr=0.01, first=0.9, second=0.99, floor=0.001)
    assert walked(Adam(), updates).tolist() == walked(said, updates).tolist()


# As torch does it


@given(rounds_of_updates, st.floats(0.01, 2))
def test_the_plain_step_is_that_of_torch(updates, lr):
    np.testing.assert_allclose(walked(Plain(lr=lr), updates), by_torch(torch.optim.SGD, updates, lr=lr))


@given(rounds_of_updates, st.floats(0.01, 2), st.floats(0, 0.99))
def test_momentum_is_that_of_torch(updates, lr, momentum):
    found = walked(Momentum(lr=lr, momentum=momentum), updates)
    expected = by_torch(torch.optim.SGD, updates, lr=lr, momentum=momentum)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


@given(rounds_of_updates, st.floats(0.01, 2), st.floats(0, 0.99), st.floats(0, 0.999), st.floats(1e-6, 1))
def test_adam_is_that_of_torch(updates, lr, first, second, floor):
    found = walked(Adam(lr=lr, first=first, second=second, floor=floor), updates)
    expected = by_torch(torch.optim.Adam, updates, lr=lr, betas=(first, second), eps=floor)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


# All of them


@pytest.mark.parametrize("server", STEPS, ids=NAMES)
def test_a_round_without_news_moves_a_fresh_server_nowhere(server):
    quiet = np.zeros(3)
    step, _ = server(quiet, server.remember(quiet))
    assert step.tolist() == [0, 0, 0]


@pytest.mark.parametrize("server", STEPS, ids=NAMES)
def test_what_is_remembered_is_one_tensor_and_the_old_one_stays(server):
    combined = np.array([1.0, 2.0, 3.0], dtype=np.float64)
    before = server.remember(combined)
    kept = before.copy()
    _, after = server(combined, before)
    assert np.array_equal(before, kept)
    assert after.shape == before.shape
    assert after.dtype == np.float64
    assert combined.tolist() == [1, 2, 3]


@pytest.mark.parametrize("server", STEPS, ids=NAMES)
def test_a_server_that_is_interrupted_goes_on_from_its_memory(server):
    updates = np.array([[1.0, -1.0], [0.5, 2.0], [-3.0, 0.1], [1.0, 1.0]], dtype=np.float64)
    whole = walked(server, updates)
    state, memory = np.zeros(2), server.remember(np.zeros(2))
    for combined in updates:
        # As a checkpoint keeps it: a copy, and nothing else.
        step, memory = server(combined, memory.copy())
        state = state + step
    assert np.array_equal(state, whole[-1])


@pytest.mark.parametrize("server", STEPS, ids=NAMES)
def test_a_state_of_several_rows_is_moved_row_by_row(server):
    updates = np.array([[1.0, -1.0], [0.5, 2.0]], dtype=np.float64)
    matrix = np.stack([updates[0], updates[1]])
    step, memory = server(matrix, server.remember(matrix))
    for row in (0, 1):
        alone, _ = server(updates[row], server.remember(updates[row]))
        assert np.array_equal(step[row], alone)
    assert memory.shape[1:] == (2, 2)


@pytest.mark.parametrize(
    ("made", "field"),
    [
        (lambda: Plain(lr=0.0), "lr"),
        (lambda: Plain(lr=float("nan")), "lr"),
        (lambda: Momentum(lr=-1.0), "lr"),
        (lambda: Momentum(momentum=1.0), "momentum"),
        (lambda: Momentum(momentum=-0.1), "momentum"),
        (lambda: Adam(lr=float("inf")), "lr"),
        (lambda: Adam(first=1.0), "first"),
        (lambda: Adam(second=1.5), "second"),
        (lambda: Adam(second=float("nan")), "second"),
        (lambda: Adam(floor=0.0), "floor"),
    ],
)
def test_a_step_that_cannot_work_is_refused_by_name(made, field):
    with pytest.raises(InvalidValue, match=field):
        made()
