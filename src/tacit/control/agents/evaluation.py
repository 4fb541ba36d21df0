"""Evaluation of agents: greedy episodes in environments, and their summary.

Episodes begin with seeds of their own, named by the scene: never with seeds of training, and the same ones
for every agent, so that agents are compared on equal terms.

Statistics of returns: few runs, many environments, and tails that dominate a mean.

    interquartile_mean            the mean of the middle half, over all worlds together
    mean                          the mean over worlds, each counting the same
    optimality_gap                the average shortfall from a target
    performance_profile           the share of scores above each threshold
    probability_of_improvement    the probability that one is better than the other
    stratified_bootstrap          an interval around any of them, by drawing anew within each world

Scores are (runs, tasks), or one array for each task where they are not equally many; a run may be an episode.
After Agarwal et al. 2021, *Deep Reinforcement Learning at the Edge of the Statistical Precipice*.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit.control.envs.spaces import reward_threshold
from tacit.errors import is_between, require, require_count, require_word
from tacit.runtime.arrays import Array
from tacit.runtime.keys import Key
from tacit.sites.environments import Scenes, World

if TYPE_CHECKING:
    from tacit.control.agents.policy import Actions, Policy
    from tacit.control.networks import NetworkShape

# Episodes with random actions in each scene.
FEW = 5
# Simulator: Gymnasium, or the one that agents train in.
Judge = Literal["gymnasium", "own"]


def evaluate(policies: "Sequence[Policy]", scenes: Scenes, *, physics: Judge = "gymnasium") -> list[Array]:
    """Return the episode returns of an agent in each scene.

    Args:
        policies: The agent of each scene.
        scenes: The worlds, and the number of episodes in each.
        physics: The simulator; `own` is as quick as training, and nearly the same.
    """
    given = f"{len(policies)} for {len(scenes)} scenes"
    require(len(policies) == len(scenes), "policies", given, "one for each scene")
    require_word("physics", physics, ("gymnasium", "own"))
    return [
        _returns(policy, world, _seeds(scenes, place), physics)
        for place, (policy, world) in enumerate(zip(policies, scenes.worlds, strict=True))
    ]


def play_randomly(shape: "NetworkShape", scenes: Scenes) -> list[Array]:
    """Return the returns of a few episodes with random actions in each scene."""
    from tacit.control.envs.episodes import play_episodes

    def choose(place: int) -> "Callable[[NDArray[np.float32]], Actions]":
        generator = (Key(scenes.seed) / "random" / place).generator()
        return lambda seen: generator.integers(shape.actions, size=len(seen))

    return [
        play_episodes(choose(place), world, shape, _seeds(scenes, place)[:FEW])
        for place, world in enumerate(scenes.worlds)
    ]


def _seeds(scenes: Scenes, place: int) -> list[int]:
    generator = (Key(scenes.seed) / "scene" / place).generator()
    return generator.integers(2**31, size=scenes.episodes).tolist()


def _returns(policy: "Policy", world: World, seeds: list[int], physics: Judge) -> Array:
    if physics == "own" and world.physics == "fast-lander":
        from tacit.control.envs.lander_vector import play_lander

        return play_lander(policy, world, seeds)
    from tacit.control.envs.episodes import play_episodes

    return play_episodes(policy.greedy, world, policy.shape, seeds)


def summarise(returns: Sequence[Array], scenes: Scenes, key: Key) -> dict[str, float]:
    """Summarize episode returns by name.

        return, return_low, return_high    the mean over the scenes of sites, with its 95 % interval
        iqm, iqm_low, iqm_high             the mean of the middle half of their episodes, likewise
        solved                             the share of their episodes that reach the environment's threshold
        return@LABEL                       the mean over the scenes with this label
        return_unseen                      the mean over the scenes of no site

    Args:
        returns: The episode returns of each scene.
        scenes: The scenes.
        key: Key of the intervals' draws.
    """
    given = f"returns of {len(returns)} for {len(scenes)} scenes"
    require(len(returns) == len(scenes) > 0, "returns", given, "those of each scene, at least one")
    owned = scenes.sites != ""
    # If no scene belongs to a site, all scenes count.
    told = [place for place in range(len(returns)) if owned[place] or not owned.any()]
    main = [returns[place] for place in told]
    found: dict[str, float] = {}
    for name, statistic in (("return", mean), ("iqm", interquartile_mean)):
        estimate, low, high = stratified_bootstrap(main, statistic, key=key / name)
        found |= {name: estimate, f"{name}_low": low, f"{name}_high": high}
    reached = [
        returns[place] >= limit
        for place in told
        if (limit := reward_threshold(scenes.worlds[place].env)) is not None
    ]
    if reached:
        found["solved"] = float(mean(reached))
    for label in dict.fromkeys(world.label for world in scenes.worlds if world.label):
        chosen = [own for own, world in zip(returns, scenes.worlds, strict=True) if world.label == label]
        found[f"return@{label}"] = float(mean(chosen))
    if owned.any() and not owned.all():
        found["return_unseen"] = float(
            mean([own for own, known in zip(returns, owned, strict=True) if not known])
        )
    return found


__all__ = [
    "interquartile_mean",
    "mean",
    "optimality_gap",
    "performance_profile",
    "probability_of_improvement",
    "stratified_bootstrap",
]

Scores = ArrayLike | Sequence[ArrayLike]
# Of the scores task by task, each (..., runs), one number or (...).
Statistic = Callable[[Sequence[Array]], "Array | np.float64 | float"]

# Number of scores drawn at once.
AT_ONCE = 4_000_000


def interquartile_mean(scores: Scores) -> Array:
    """The mean of the middle half of all scores: a quarter of them is dropped at each end."""
    ordered = np.sort(np.concatenate(_tasks(scores), axis=-1), axis=-1)
    count = ordered.shape[-1]
    return ordered[..., count // 4 : count - count // 4].mean(axis=-1)


def mean(scores: Scores) -> Array:
    """The mean over tasks of the mean over runs."""
    return np.mean([task.mean(axis=-1) for task in _tasks(scores)], axis=0)


def optimality_gap(scores: Scores, target: float) -> Array:
    """Return the mean shortfall of scores from a target, over tasks."""
    return mean([np.maximum(target - task, 0.0) for task in _tasks(scores)])


def performance_profile(scores: Scores, thresholds: ArrayLike) -> Array:
    """The share of runs that score above each threshold (thresholds,), on average over tasks."""
    limits = np.atleast_1d(np.asarray(thresholds, dtype=np.float64))
    shares = [
        (task.size - np.searchsorted(np.sort(task), limits, side="right")) / task.size
        for task in _tasks(scores)
    ]
    return np.mean(shares, axis=0)


def probability_of_improvement(better: Scores, worse: Scores) -> float:
    """Return the mean probability over tasks that the first scores above the second; ties are half.

    Args:
        better: The scores of one.
        worse: Those of the other, in the same tasks.
    """
    first, second = _tasks(better), _tasks(worse)
    given = f"{len(first)} and {len(second)} tasks"
    require(len(first) == len(second), "scores", given, "as many tasks of one as of the other")
    return float(np.mean([_above(a, b) for a, b in zip(first, second, strict=True)]))


def _above(a: Array, b: Array) -> float:
    """Return the Mann-Whitney statistic, as a share of all pairs."""
    ordered = np.sort(b)
    below = np.searchsorted(ordered, a, side="left") + np.searchsorted(ordered, a, side="right")
    return float(below.mean() / (2 * b.size))


def stratified_bootstrap(
    scores: Scores, statistic: Statistic, *, key: Key, draws: int = 2000, level: float = 0.95
) -> tuple[float, float, float]:
    """Return a statistic with its bootstrap interval of confidence `level`: estimate, low, high.

    Runs are drawn anew, with replacement, within each task: tasks are fixed, runs are not.

    Args:
        scores: The scores.
        statistic: Takes the scores task by task, each (..., runs), and answers (...).
        key: Key of the draws.
        draws: Number of draws.
        level: Confidence of the interval; of percentiles, so approximate with few runs.
    """
    require_count("draws", draws)
    require(is_between(level, 0, 1), "level", level, "between 0 and 1")
    tasks, generator = _tasks(scores), key.generator()
    at_once = max(1, AT_ONCE // sum(task.size for task in tasks))
    drawn: list[Array] = []
    for start in range(0, draws, at_once):
        count = min(at_once, draws - start)
        anew = [task[generator.integers(task.size, size=(count, task.size))] for task in tasks]
        drawn.append(np.asarray(statistic(anew), dtype=np.float64))
    low, high = np.quantile(np.concatenate(drawn), [(1 - level) / 2, (1 + level) / 2])
    return float(np.asarray(statistic(tasks))), float(low), float(high)


def _tasks(scores: Scores) -> list[Array]:
    """Return the scores of each task; a plain list of numbers is one task."""
    if isinstance(scores, list | tuple) and any(
        np.ndim(part) > 0 for part in cast("list[ArrayLike]", scores)
    ):
        found = [np.asarray(part, dtype=np.float64) for part in cast("list[ArrayLike]", scores)]
    else:
        table = np.asarray(scores, dtype=np.float64)
        require(table.ndim in (1, 2), "scores", f"shape {table.shape}", "(runs, tasks), or an array per task")
        found = [table] if table.ndim == 1 else list(table.T)
    filled = bool(found) and all(task.ndim > 0 and task.size for task in found)
    require(filled, "scores", [task.size for task in found], "at least one for each of at least one task")
    finite = all(bool(np.isfinite(task).all()) for task in found)
    require(finite, "scores", "NaN or infinite", "finite numbers")
    return found
