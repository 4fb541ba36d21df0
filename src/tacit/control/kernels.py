"""Compiled arithmetic of agents: networks forwards and backwards, acting, GAE, one epoch of PPO.

Everything is in single precision and in arrays that the caller holds. Networks are as `networks.NetworkShape`
lays them out: `sizes` are the actor's widths, from inputs to actions; the critic has the same but ends in
one. In functions about one network, `weights` are its own, layer by layer. Results are the same, bit for bit,
wherever the same machine is given the same numbers.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tacit.runtime.jit import compiled, compiled_fast

Floats = NDArray[np.float32]
Whole = NDArray[np.int64]

ONE = np.float32(1.0)
# Adam's usual constants, except the last, which is that of Stable-Baselines3's agents.
MEMORY, SQUARED, TINY = 0.9, 0.999, np.float32(1e-5)
KEEP, ADD = np.float32(MEMORY), np.float32(1 - MEMORY)
KEEP_SQUARED, ADD_SQUARED = np.float32(SQUARED), np.float32(1 - SQUARED)
# Number of rows up to which a plain loop is faster than a library that first rearranges the matrix.
FEW = 8
# tanh(x) as x p(x^2) / q(x^2), fitted to |x| <= 8 for the least relative error: 2e-8 before rounding.
FAR = np.float32(8.0)
P0, P1, P2 = np.float32(0.99999998107708), np.float32(0.12979221758233), np.float32(2.9858601712755e-3)
P3, P4, P5 = np.float32(9.8786440079578e-6), np.float32(-1.4704171417175e-8), np.float32(2.350847837853e-11)
Q1, Q2, Q3 = np.float32(0.46312537797121), np.float32(0.024027917353538), np.float32(2.3720299127504e-4)


class RolloutBuffer(NamedTuple):
    """Buffer of a rollout, one row for each step.

    Args:
        observations: The observations, normalized (rows, inputs).
        actions: The actions taken.
        log_probs: Log probabilities of the actions then.
        values: The critic's values then.
        advantages: The advantages.
        returns: Targets of the values.
    """

    observations: Floats
    actions: Whole
    log_probs: Floats
    values: Floats
    advantages: Floats
    returns: Floats


class LossCoefficients(NamedTuple):
    """Coefficients of the loss and of the optimizer; infinity means no limit.

    Args:
        lr: Learning rate.
        clip_range: From where on a more or less likely action counts for no more.
        value_clip: Clip range of the value function.
        entropy: Weight of the entropy bonus.
        value_weight: Weight of the value loss.
        grad_norm: Largest norm of a gradient.
        divergence: KL divergence from the policy that acted at which learning stops.
    """

    lr: float
    clip_range: float
    value_clip: float
    entropy: float
    value_weight: float
    grad_norm: float
    divergence: float


class Workspace(NamedTuple):
    """Working memory of a gradient, for up to a fixed number of rows."""

    observations: Floats
    advantages: Floats
    work: Floats
    deltas: Floats
    gradient: Floats


@compiled
def act(
    weights: Floats,
    sizes: Whole,
    observations: Floats,
    draws: Floats,
    work: Floats,
    actions: Whole,
    log_probs: Floats,
    values: Floats,
) -> None:
    """Sample an action for each observation, and compute its value.

    Args:
        weights: Both networks.
        sizes: Widths of the actor's layers.
        observations: Normalized, contiguous (rows, inputs).
        draws: One number for each, uniform from 0 to below 1; the same numbers choose the same actions.
        work: From `activation_buffer`, for at least as many rows.
        actions: Output for the actions, from 0 (rows,).
        log_probs: Output for their log probabilities (rows,).
        values: Output for the values (rows,).
    """
    logits = forward(weights, sizes, observations, work)
    many = logits.shape[1]
    for row in range(len(observations)):
        largest, total = _largest(logits, row), np.float32(0)
        for action in range(many):
            total += math.exp(logits[row, action] - largest)
        target, reached, chosen = draws[row] * total, np.float32(0), many - 1
        for action in range(many):
            reached += math.exp(logits[row, action] - largest)
            if target < reached:
                chosen = action
                break
        actions[row] = chosen
        log_probs[row] = logits[row, chosen] - largest - math.log(total)
    predict_values(weights, sizes, observations, work, values)


@compiled
def predict_values(weights: Floats, sizes: Whole, observations: Floats, work: Floats, values: Floats) -> None:
    """Compute the value of each observation; arguments as those of `act`."""
    judged = forward(weights[weight_offset(sizes, len(sizes)) :], critic_sizes(sizes), observations, work)
    for row in range(len(observations)):
        values[row] = judged[row, 0]


@compiled
def normalise(
    raw: NDArray[np.float64], center: NDArray[np.float64], scale: NDArray[np.float64], out: Floats
) -> int:
    """Write (raw - center) / scale; the first row in which something is not finite, or -1."""
    bad = -1
    for row in range(raw.shape[0] - 1, -1, -1):
        for column in range(raw.shape[1]):
            if not math.isfinite(raw[row, column]):
                bad = row
            out[row, column] = (raw[row, column] - center[column]) / scale[column]
    return bad


@compiled
def advantages(
    rewards: Floats, values: Floats, ended: NDArray[np.bool_], last_values: Floats, gamma: float, decay: float
) -> Floats:
    """Compute the advantage of each step (T, E) by generalized advantage estimation."""
    steps, envs = rewards.shape
    better = np.empty((steps, envs), np.float32)
    ahead, later = last_values.copy(), np.zeros(envs, np.float32)
    far, fading = np.float32(gamma), np.float32(gamma * decay)
    for step in range(steps - 1, -1, -1):
        for env in range(envs):
            going = np.float32(0) if ended[step, env] else ONE
            surprise = rewards[step, env] + far * ahead[env] * going - values[step, env]
            later[env] = surprise + fading * going * later[env]
            ahead[env] = values[step, env]
            better[step, env] = later[env]
    return better


@compiled
def train_epoch(
    weights: Floats,
    sizes: Whole,
    memory: RolloutBuffer,
    order: Whole,
    batch: int,
    terms: LossCoefficients,
    adam: Floats,
    taken: int,
) -> tuple[int, bool]:
    """Run one epoch over the whole buffer in minibatches, and change the weights in place.

    Args:
        weights: Both networks; changed.
        sizes: Widths of the actor's layers.
        memory: The rollout buffer.
        order: Its rows, in the order in which they are taken.
        batch: Number of rows in a minibatch; the last may have fewer.
        terms: Coefficients of the loss.
        adam: Adam's moments (2, size), zero at first; changed.
        taken: Number of steps taken with them.

    Returns:
        The number of steps taken now, and whether to go on: not where the policy has gone too far from the
        one that acted.
    """
    room = make_workspace(sizes, min(batch, len(order)))
    for start in range(0, len(order), batch):
        if gradient(weights, sizes, memory, order[start : start + batch], terms, room) > terms.divergence:
            return taken, False
        taken += 1
        shrink = min(1.0, terms.grad_norm / (_norm(room.gradient) + 1e-6))
        rate = terms.lr / (1 - MEMORY**taken)
        spread = 1 / math.sqrt(1 - SQUARED**taken)
        _step(weights, room.gradient, adam, np.float32(shrink), np.float32(rate), np.float32(spread))
    return taken, True


@compiled
def make_workspace(sizes: Whole, rows: int) -> Workspace:
    """Allocate working memory for the gradient of `rows` rows."""
    parameters = weight_offset(sizes, len(sizes)) + weight_offset(critic_sizes(sizes), len(sizes))
    return Workspace(
        np.empty((rows, sizes[0]), np.float32),
        np.empty(rows, np.float32),
        activation_buffer(sizes, rows),
        activation_buffer(sizes, rows),
        np.empty(parameters, np.float32),
    )


@compiled
def gradient(
    weights: Floats,
    sizes: Whole,
    memory: RolloutBuffer,
    chosen: Whole,
    terms: LossCoefficients,
    room: Workspace,
) -> float:
    """Write the gradient of the loss over the chosen rows to `room.gradient`; return the KL divergence.

    The loss is the clipped surrogate's, less what entropy is worth, plus what wrong expectations cost.
    """
    rows, split, critic = len(chosen), weight_offset(sizes, len(sizes)), critic_sizes(sizes)
    seen, better = room.observations[:rows], room.advantages[:rows]
    for row in range(rows):
        better[row] = memory.advantages[chosen[row]]
        for column in range(sizes[0]):
            seen[row, column] = memory.observations[chosen[row], column]
    _standardise(better)
    logits = forward(weights[:split], sizes, seen, room.work)
    deltas = block(room.deltas, sizes, len(sizes) - 1, rows)
    far = _policy_gradient(logits, memory, chosen, better, terms, deltas)
    backward(weights[:split], sizes, seen, room.work, room.deltas, room.gradient[:split])
    values = forward(weights[split:], critic, seen, room.work)
    deltas = block(room.deltas, critic, len(sizes) - 1, rows)
    for row in range(rows):
        moved = values[row, 0] - memory.values[chosen[row]]
        wrong = values[row, 0] - memory.returns[chosen[row]]
        # A clipped value has no gradient.
        free = abs(moved) <= terms.value_clip
        deltas[row, 0] = terms.value_weight * 2 * wrong / rows if free else 0.0
    backward(weights[split:], critic, seen, room.work, room.deltas, room.gradient[split:])
    return far


@compiled
def _policy_gradient(
    logits: Floats,
    memory: RolloutBuffer,
    chosen: Whole,
    better: Floats,
    terms: LossCoefficients,
    deltas: Floats,
) -> float:
    rows, many = logits.shape
    far = 0.0
    for row in range(rows):
        largest, total, indecision = _largest(logits, row), 0.0, 0.0
        for action in range(many):
            total += math.exp(logits[row, action] - largest)
        level = largest + math.log(total)
        for action in range(many):
            indecision -= math.exp(logits[row, action] - level) * (logits[row, action] - level)
        done = memory.actions[chosen[row]]
        change = logits[row, done] - level - memory.log_probs[chosen[row]]
        ratio = math.exp(change)
        far += ratio - 1 - change
        # Beyond the clip range the gradient is zero.
        over = ratio > 1 + terms.clip_range if better[row] > 0 else ratio < 1 - terms.clip_range
        push = 0.0 if over else -better[row] * ratio / rows
        for action in range(many):
            log_prob = logits[row, action] - level
            prob = math.exp(log_prob)
            hit = 1.0 if action == done else 0.0
            hedge = terms.entropy * prob * (log_prob + indecision) / rows
            deltas[row, action] = push * (hit - prob) + hedge
    return far / rows


@compiled
def _standardise(better: Floats) -> None:
    rows = len(better)
    if rows > 1:
        mean, square = 0.0, 0.0
        for row in range(rows):
            mean += better[row] / rows
        for row in range(rows):
            square += (better[row] - mean) ** 2
        spread = math.sqrt(square / (rows - 1)) + 1e-8
        for row in range(rows):
            better[row] = (better[row] - mean) / spread


@compiled
def _largest(logits: Floats, row: int) -> np.float32:
    largest = logits[row, 0]
    for action in range(1, logits.shape[1]):
        largest = max(largest, logits[row, action])
    return largest


@compiled_fast
def _norm(values: Floats) -> float:
    square = 0.0
    for place in range(len(values)):
        square += values[place] * values[place]
    return math.sqrt(square)


@compiled_fast
def _step(
    weights: Floats, slopes: Floats, adam: Floats, shrink: np.float32, rate: np.float32, spread: np.float32
) -> None:
    first, second = adam[0], adam[1]
    for place in range(len(weights)):
        slope = slopes[place] * shrink
        first[place] = KEEP * first[place] + ADD * slope
        second[place] = KEEP_SQUARED * second[place] + ADD_SQUARED * slope * slope
        weights[place] -= rate * first[place] / (np.sqrt(second[place]) * spread + TINY)


@compiled
def activation_buffer(sizes: Whole, rows: int) -> Floats:
    """Allocate activations for `act` and `predict_values`, for up to `rows` rows."""
    return np.empty(rows * _width(sizes, len(sizes)), np.float32)


@compiled
def forward(weights: Floats, sizes: Whole, inputs: Floats, work: Floats) -> Floats:
    """Compute the outputs of one network; the activations of every layer stay in `work`."""
    before, last = inputs, len(sizes) - 1
    for layer in range(1, last + 1):
        after = block(work, sizes, layer, len(inputs))
        matrix, intercepts = layer_of(weights, sizes, layer)
        if len(inputs) > FEW:
            np.dot(before, matrix.T, after)
        else:
            _product(before, matrix, after)
        if layer < last:
            _squash(after, intercepts)
        else:
            _shift(after, intercepts)
        before = after
    return before


@compiled
def backward(
    weights: Floats, sizes: Whole, inputs: Floats, work: Floats, deltas: Floats, slopes: Floats
) -> None:
    """Backpropagate from the slopes of the outputs, in the last block of `deltas`, to the gradient."""
    rows = len(inputs)
    for layer in range(len(sizes) - 1, 0, -1):
        here = block(deltas, sizes, layer, rows)
        below = block(work, sizes, layer - 1, rows) if layer > 1 else inputs
        matrix, intercepts = layer_of(slopes, sizes, layer)
        np.dot(here.T, below, matrix)
        _column_sums(here, intercepts)
        if layer > 1:
            under = block(deltas, sizes, layer - 1, rows)
            np.dot(here, layer_of(weights, sizes, layer)[0], under)
            _unsquash(under, below)


@compiled
def critic_sizes(sizes: Whole) -> Whole:
    """Return the layer widths of the critic."""
    widths = sizes.copy()
    widths[-1] = 1
    return widths


@compiled
def weight_offset(sizes: Whole, layers: int) -> int:
    """Return the number of weights before a layer."""
    count = 0
    for layer in range(1, layers):
        count += (sizes[layer - 1] + 1) * sizes[layer]
    return count


@compiled
def _width(sizes: Whole, layers: int) -> int:
    width = 0
    for layer in range(1, layers):
        width += sizes[layer]
    return width


@compiled
def layer_of(weights: Floats, sizes: Whole, layer: int) -> tuple[Floats, Floats]:
    """The matrix and the intercepts of a layer of one network."""
    at, inputs, outputs = weight_offset(sizes, layer), sizes[layer - 1], sizes[layer]
    middle = at + inputs * outputs
    return weights[at:middle].reshape(outputs, inputs), weights[middle : middle + outputs]


@compiled
def block(work: Floats, sizes: Whole, layer: int, rows: int) -> Floats:
    """Return the view of a layer's activations for `rows` rows."""
    start = rows * _width(sizes, layer)
    return work[start : start + rows * sizes[layer]].reshape(rows, sizes[layer])


@compiled_fast
def _product(before: Floats, matrix: Floats, after: Floats) -> None:
    for row in range(before.shape[0]):
        for output in range(matrix.shape[0]):
            total = np.float32(0)
            for column in range(matrix.shape[1]):
                total += before[row, column] * matrix[output, column]
            after[row, output] = total


@compiled_fast
def _squash(values: Floats, intercepts: Floats) -> None:
    rows, columns = values.shape
    for row in range(rows):
        for column in range(columns):
            x = min(max(values[row, column] + intercepts[column], -FAR), FAR)
            u = x * x
            above = ((((P5 * u + P4) * u + P3) * u + P2) * u + P1) * u + P0
            values[row, column] = x * above / (((Q3 * u + Q2) * u + Q1) * u + ONE)


@compiled_fast
def _unsquash(deltas: Floats, values: Floats) -> None:
    rows, columns = deltas.shape
    for row in range(rows):
        for column in range(columns):
            deltas[row, column] *= ONE - values[row, column] * values[row, column]


@compiled_fast
def _shift(values: Floats, intercepts: Floats) -> None:
    rows, columns = values.shape
    for row in range(rows):
        for column in range(columns):
            values[row, column] += intercepts[column]


@compiled_fast
def _column_sums(values: Floats, sums: Floats) -> None:
    sums[:] = 0
    for row in range(values.shape[0]):
        for column in range(values.shape[1]):
            sums[column] += values[row, column]
