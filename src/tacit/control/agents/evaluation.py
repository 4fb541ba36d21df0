"""Evaluation of agents: greedy episodes in environments, and their summary.

Episodes begin with seeds of their own, named by the scene: never with seeds of training, and the same ones
for every agent, so that agents are compared on equal terms.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from tacit.control.agents.statistics import interquartile_mean, mean, stratified_bootstrap
from tacit.control.envs.spaces import reward_threshold
from tacit.errors import require, require_word
from tacit.runtime.arrays import Array
from tacit.runtime.keys import Key
from tacit.sites.environments import Scenes, World

if TYPE_CHECKING:
    from tacit.control.agents.policy import Policy

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
