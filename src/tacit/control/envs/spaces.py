"""Gymnasium environments with checks: invalid ones are refused before training."""

import inspect
import warnings
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from tacit.control.lander.options import require_physics
from tacit.control.networks import NetworkShape
from tacit.errors import InvalidValue, TacitError, choices, hint, quote, require, require_extra
from tacit.runtime.arrays import Array
from tacit.runtime.keys import Key
from tacit.sites.environments import World

if TYPE_CHECKING:
    import gymnasium
    from gymnasium.spaces import Box, Discrete

    Env = gymnasium.Env[Any, Any]
    Space = gymnasium.Space[Any]

LANDER = "LunarLander"
# Arguments of `gymnasium.make` itself.
MAKING = ("max_episode_steps",)
# Numbers in an observation of the lander, and its actions; its options are checked without opening it.
LANDER_SPACES = (8, 4)


def open_env(world: World, place: str = "") -> "Env":
    """Open the environment, or refuse with the reason; the caller closes it."""
    require_extra("gymnasium", "control", f"env = {quote(world.name)}")
    import gymnasium

    where = f"{place}: " if place else ""
    _require_options(world, where)
    try:
        return world.make()
    except gymnasium.error.UnregisteredEnv as error:
        near = hint(world.env, gymnasium.registry)
        raise InvalidValue(f"{where}env = {world.name!r} is not known to Gymnasium{near}: {error}") from error
    except (gymnasium.error.Error, ImportError) as error:
        raise InvalidValue(f"{where}env = {world.name!r} cannot be opened: {error}") from error
    except Exception as error:
        # Whatever it is, it is not ours: an environment refuses its options by any exception.
        said = f"{type(error).__name__}: {error}"
        named = [name for name in world.options if name in str(error)] or list(world.options)
        given = ", ".join(f"{name} = {world.options[name]!r}" for name in named)
        what = (
            f"{given} is not allowed in {world.name}" if given else f"env = {world.name!r} cannot be opened"
        )
        raise InvalidValue(f"{where}{what}: {said}") from error


def env_failure(world: World, error: BaseException, place: str = "") -> InvalidValue:
    """Return the error for a world that fails while it is played: owner and reason, in one sentence."""
    where = f"{place}: " if place else ""
    why = f": {error}" if str(error) else ""
    return InvalidValue(f"{where}{world.name} failed while it was played, with {type(error).__name__}{why}")


@contextmanager
def refuse_undrawable(world: World) -> Generator[None]:
    """Refuse to draw a world without the packages for pictures, which agents do not need."""
    from gymnasium.error import Error

    try:
        yield
    except Error as error:
        raise TacitError(f"{world.name} cannot be drawn: {error}") from error


def reward_threshold(env: object) -> float | None:
    """The return at which an environment counts as solved, where it states one."""
    import gymnasium

    spec = gymnasium.registry.get(env) if isinstance(env, str) else None
    return None if spec is None else spec.reward_threshold


def require_spaces(world: World, env: "Env", place: str = "") -> tuple[int, int]:
    """Return the number of inputs and actions; refuse spaces that our agents do not support."""
    from gymnasium.spaces import Discrete, flatdim

    where = f"{place}: " if place else ""
    allowed = (
        "a Discrete space: one choice among a number of actions. Continuous (Box) and composite action "
        "spaces are not supported"
    )
    space = env.action_space
    require(isinstance(space, Discrete), f"{where}action space of {world.name}", space, allowed)
    try:
        inputs = int(flatdim(env.observation_space))
    except (NotImplementedError, ValueError) as error:
        raise InvalidValue(
            f"{where}observation space of {world.name} = {env.observation_space} is not allowed: it must be "
            "one that gymnasium.spaces.flatten makes a vector of fixed length of"
        ) from error
    return inputs, int(cast("Discrete", space).n)


def flattener(space: "Space") -> Callable[[Any], Array] | None:
    """Return the function that flattens observations; None where they are vectors already."""
    from gymnasium.spaces import Box

    if isinstance(space, Box) and len(space.shape) == 1:
        return None
    return partial(flat_inputs, space)


def flat_inputs(space: "Space", observation: Any) -> Array:  # noqa: ANN401
    """An observation as a vector."""
    from gymnasium.spaces import flatten

    return np.asarray(flatten(space, observation), dtype=np.float64)


def strip_wrappers(env: "Env") -> "tuple[Env, int | None]":
    """Return the environment without wrappers that only count and check, and its time limit.

    Only the outermost are taken off: what another wrapper is around may be counting something else.
    """
    from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker, TimeLimit

    limit: int | None = None
    while True:
        kind = cast("type[object]", type(env))
        if kind is TimeLimit and env.spec is not None and env.spec.max_episode_steps is not None:
            found = env.spec.max_episode_steps
            limit = found if limit is None else min(limit, found)
        elif kind not in (OrderEnforcing, PassiveEnvChecker):
            return env, limit
        env = cast("gymnasium.Wrapper[Any, Any, Any, Any]", env).env


def _require_options(world: World, where: str) -> None:
    if "render_mode" in world.options:
        raise InvalidValue(
            f"{where}render_mode = {world.options['render_mode']!r} is not allowed: training shows no "
            "picture; film the agents afterwards"
        )
    known = _keywords(world)
    for name, value in world.options.items():
        if known is not None and name not in known:
            raise InvalidValue(
                f"{where}{name} = {value!r} is not allowed: {world.name} takes {choices(sorted(known))}"
                f"{hint(name, known)}"
            )
    if isinstance(world.env, str) and world.env.startswith(LANDER):
        require_physics(world.options, where)


def _keywords(world: World) -> set[str] | None:
    """Return the keyword arguments of the environment; None if its signature does not list them."""
    maker = _maker(world.env) if isinstance(world.env, str) else world.env
    if maker is None:
        return None
    parameters = inspect.signature(maker).parameters.values()
    if any(one.kind is one.VAR_KEYWORD for one in parameters):
        return None
    named = {one.name for one in parameters if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)}
    return named | set(MAKING if isinstance(world.env, str) else ())


def _maker(env: str) -> Callable[..., object] | None:
    """Load the constructor of an environment id; None if opening it will report the reason."""
    import gymnasium
    from gymnasium.envs.registration import load_env_creator

    spec = gymnasium.registry.get(env)
    entry = None if spec is None else spec.entry_point
    if not isinstance(entry, str):
        return entry
    try:
        with warnings.catch_warnings():
            # The first import of Box2D warns, and ends the process where warnings are errors.
            warnings.filterwarnings("ignore", "builtin type .* has no __module__", DeprecationWarning)
            return load_env_creator(entry)
    except (gymnasium.error.Error, ImportError):
        return None


def common_spaces(held: Mapping[str, Sequence[World]]) -> tuple[int, int]:
    """Return the number of inputs and actions that all of these worlds share.

    Args:
        held: Worlds by the place that they are in, for messages.

    Raises:
        InvalidValue: One cannot be opened, is of another kind than others, or its observations are not
            numbers.
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
    """Return the observations of `steps` random actions (steps, inputs)."""
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


def agent_spaces(shape: NetworkShape, world: World | None) -> "tuple[Box | Discrete, Discrete]":
    """The spaces of observations and actions of an agent in a world; without one, numbers without bounds.

    Raises:
        InvalidValue: They do not fit the agent, or have no place in one of Stable-Baselines3.
    """
    require_extra("gymnasium", "control", "an agent of Stable-Baselines3")
    from gymnasium.spaces import Box, Discrete, flatdim

    if world is None:
        return Box(-np.inf, np.inf, (shape.inputs,)), Discrete(shape.actions)
    with closing(open_env(world)) as env:
        seen, acted = env.observation_space, env.action_space
    image = isinstance(seen, Box) and seen.dtype == np.uint8 and len(seen.shape) == 3
    late = isinstance(seen, Discrete) and int(seen.start) != 0
    if not isinstance(seen, Box | Discrete) or image or late:
        raise InvalidValue(
            f"observations of {seen} have no place in an agent of Stable-Baselines3: they must be a Box "
            "that is not an image, or Discrete from 0"
        )
    if flatdim(seen) != shape.inputs:
        raise InvalidValue(f"observations of {seen} do not fit {shape.inputs} inputs")
    if not isinstance(acted, Discrete) or int(acted.n) != shape.actions or int(acted.start) != 0:
        raise InvalidValue(f"actions of {acted} do not fit an agent with Discrete({shape.actions})")
    if isinstance(seen, Discrete):
        return Discrete(int(seen.n)), Discrete(shape.actions)
    # Convert a subclass of Box to a Box.
    box = cast("Box", seen)
    return Box(box.low, box.high, box.shape, box.dtype), Discrete(shape.actions)
