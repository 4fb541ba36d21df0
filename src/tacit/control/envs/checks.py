"""A first look at worlds: do they open, are they of one kind, do they show numbers?"""

from collections.abc import Mapping, Sequence

import numpy as np

from tacit.control.envs.spaces import flattener, open_env, require_spaces
from tacit.control.networks import NetworkShape
from tacit.errors import InvalidValue
from tacit.runtime.arrays import Array
from tacit.runtime.keys import Key
from tacit.sites.environments import World

# What an observation of the lander holds, and what it can do; its options are looked at without opening it.
LANDER_SPACES = (8, 4)


def common_spaces(held: Mapping[str, Sequence[World]]) -> tuple[int, int]:
    """How many numbers an observation has in all of these worlds, and how many actions there are.

    Args:
        held: Worlds by the place that they are in, for messages.

    Raises:
        InvalidValue: One cannot be opened, is of another kind than others, or shows what is no number.
    """
    known: dict[bytes, tuple[int, int]] = {}
    first: tuple[str, tuple[int, int]] | None = None
    for place, worlds in held.items():
        for world in worlds:
            print_ = world.digest()
            found = known[print_] if print_ in known else known.setdefault(print_, _spaces(world, place))
            first = first or (place, found)
            if found != first[1]:
                raise InvalidValue(
                    f"{place} has {found[0]} numbers in an observation and {found[1]} actions, {first[0]} "
                    f"has {first[1][0]} and {first[1][1]}: they must be the same everywhere"
                )
    assert first is not None, "a federation has worlds"
    return first[1]


def _spaces(world: World, place: str) -> tuple[int, int]:
    if world.physics == "fast-lander":
        from tacit.control.lander.options import require_options

        require_options(world.options, place)
        return LANDER_SPACES
    env = open_env(world, place)
    try:
        found = require_spaces(world, env, place)
        observation, _ = env.reset(seed=0)
        flat = flattener(env.observation_space)
        shown = np.asarray(observation if flat is None else flat(observation), dtype=np.float64)
    finally:
        env.close()
    if not np.isfinite(shown).all():
        raise InvalidValue(
            f"{place}: {world.name} begins with an observation that holds NaN or infinity: it must hold "
            "finite numbers"
        )
    return found


def random_observations(worlds: Sequence[World], steps: int, copies: int, place: str, key: Key) -> Array:
    """What is seen in so many steps of acting at random (steps, inputs)."""
    from tacit.control.envs.vector import make_vector_env

    inputs, actions = common_spaces({place: worlds})
    blank = NetworkShape(inputs, (), actions)
    with make_vector_env(
        worlds, copies * len(worlds), generator=key.generator(),
        center=np.zeros(inputs), scale=np.ones(inputs), place=place,
    ) as stage:  # fmt: skip
        # An agent without weights finds every action as good as any other.
        played = stage.play(np.zeros(blank.size, dtype=np.float32), blank, steps // copies, 1.0, 1.0)
    return played.observations.reshape(-1, inputs).astype(np.float64)
