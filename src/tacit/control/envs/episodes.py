"""Episodes in Gymnasium itself, from given seeds, and films of them as GIFs small enough for a page.

Several are played at once, so that an agent is asked once for all. Nothing is learned here, and nothing is
kept but what each episode returned.
"""

import io
import math
import os
import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from tacit.control.envs.spaces import (
    env_failure,
    flattener,
    open_env,
    refuse_undrawable,
    require_spaces,
)
from tacit.control.envs.vector import FAILURES, Player
from tacit.errors import InvalidFile, InvalidValue, require, require_count
from tacit.runtime.arrays import Array

if TYPE_CHECKING:
    import gymnasium

    from tacit.control.networks import NetworkShape
    from tacit.sites.environments import World

    Env = gymnasium.Env[Any, Any]
    from PIL.Image import Image

    from tacit.control.agents.policy import Policy

# Action upon each observation (rows, inputs).
Choice = Callable[[NDArray[np.float32]], NDArray[np.int64]]

# Number of episodes played side by side: asking the agent then costs little, and so do the worlds.
LANES = 8
# An episode that is longer than this has no end.
LONGEST = 200_000
# Of a film.
WIDTH, COLOURS, MOST_BYTES = 300, 48, 400_000
# Number of frames that the colors are chosen from.
SAMPLED = 8
DRIVER = "SDL_VIDEODRIVER"


def play_episodes(choose: Choice, world: "World", shape: "NetworkShape", seeds: Sequence[int]) -> Array:
    """Return the returns of episodes from these seeds.

    Args:
        choose: The agent.
        world: The environment.
        shape: Inputs and actions of the agent.
        seeds: Seed of each episode; the same seed is the same episode, whatever is played beside it.

    Raises:
        InvalidValue: The world does not fit the agent, or its episodes have no end.
    """
    returns, waiting = np.zeros(len(seeds)), iter(range(len(seeds)))
    with ExitStack() as open_ones:
        lanes = [open_ones.enter_context(_Lane(world, shape)) for _ in range(min(LANES, len(seeds)))]
        seen = np.zeros((len(lanes), shape.inputs), dtype=np.float32)
        busy = [place for place, lane in enumerate(lanes) if lane.start_next(waiting, seeds, seen[place])]
        while busy:
            # Always as many rows, so that sums are taken in the same order to the end.
            actions = choose(seen).tolist()
            for place in busy.copy():
                lane = lanes[place]
                if lane.step(actions[place], seen[place]):
                    returns[lane.episode] = lane.player.total
                    if not lane.start_next(waiting, seeds, seen[place]):
                        busy.remove(place)
    return returns


class _Lane:
    """A world in which one episode is played after another."""

    def __init__(self, world: "World", shape: "NetworkShape") -> None:
        self.world, self.episode = world, -1
        self.player = Player(world, open_env(world))
        try:
            match_spaces(self.player.whole, world, shape)
            self.player.ready()
        except Exception:
            self.player.whole.close()
            raise

    def __enter__(self) -> "_Lane":
        return self

    def __exit__(self, *_: object) -> None:
        self.player.whole.close()

    def start_next(self, waiting: Iterator[int], seeds: Sequence[int], seen: NDArray[np.float32]) -> bool:
        """Begin the next episode and write its first observation; return False if there is none."""
        self.episode = next(waiting, -1)
        if self.episode < 0:
            return False
        try:
            seen[:] = self.player.reset(int(seeds[self.episode]))
        except FAILURES as error:
            raise env_failure(self.world, error) from error
        return True

    def step(self, action: int, seen: NDArray[np.float32]) -> bool:
        """Take an action and write the next observation; return True if the episode is over."""
        try:
            seen[:], _, over, cut = self.player.step(action)
        except FAILURES as error:
            raise env_failure(self.world, error) from error
        steps = self.player.length
        # One sum for both: it is finite if all of them are.
        if not math.isfinite(self.player.total + float(seen.sum())):
            raise InvalidValue(
                f"{self.world.name} returned an observation or a reward that is not finite at step {steps} "
                "of an episode: both must be finite numbers"
            )
        if steps > LONGEST:
            raise InvalidValue(
                f"an episode of {self.world.name} went on for {LONGEST} steps: it must end; give it a time "
                "limit"
            )
        return bool(over or cut)


def match_spaces(env: "Env", world: "World", shape: "NetworkShape") -> tuple[Callable[[Any], Any], int]:
    """Return the flattening of observations and the first action, if the environment fits an agent.

    Raises:
        InvalidValue: It does not.
    """
    inputs, actions = require_spaces(world, env)
    if (inputs, actions) != (shape.inputs, shape.actions):
        raise InvalidValue(
            f"{world.name} does not fit this agent: it shows {inputs} numbers and has {actions} actions, and "
            f"the agent was made for {shape.inputs} and {shape.actions}"
        )
    first = int(cast("gymnasium.spaces.Discrete", env.action_space).start)
    return flattener(env.observation_space) or np.asarray, first


def film(policy: "Policy", path: Path, world: "World", *, seed: int, fps: int, most: int) -> Path:
    """Write one episode of greedy actions as a GIF: every second step, or fewer where it grows too large.

    Args:
        policy: The agent.
        path: The file, `*.gif`.
        world: The environment.
        seed: Seed of the episode.
        fps: Steps per second.
        most: Largest number of steps in the film.
    """
    require(path.suffix == ".gif", "path", str(path), 'a film, "*.gif"')
    require_count("fps", fps)
    require_count("most", most)
    with refuse_undrawable(world), _headless():
        frames = [_shrink(frame) for frame in _frames(policy, world, seed, most)]
    frames, each = _quantise(frames), 2
    while len(content := _gif(frames, 1000 * each / fps)) > MOST_BYTES and len(frames) > 2:
        frames, each = frames[::2], 2 * each
    try:
        path.write_bytes(content)
    except OSError as error:
        raise InvalidFile(f"{path} cannot be written: {error.strerror}") from error
    return path


def _frames(policy: "Policy", world: "World", seed: int, most: int) -> Iterator[NDArray[np.uint8]]:
    """Yield the picture at every second step of an episode, and the last one."""
    with closing(world.make(render_mode="rgb_array")) as env:
        flat, first = match_spaces(env, world, policy.shape)
        observation, over = env.reset(seed=seed)[0], False
        for step in range(most + 1):
            if step % 2 == 0 or over or step == most:
                frame = env.render()
                if not isinstance(frame, np.ndarray) or frame.ndim != 3:
                    raise InvalidValue(f"{world.name} cannot be filmed: it must render as rgb_array")
                yield frame
            if over:
                return
            action = policy.greedy(np.asarray(flat(observation), dtype=np.float32)[None])
            observation, _, terminated, truncated, _ = env.step(first + int(action[0]))
            over = bool(terminated or truncated)


def _shrink(frame: NDArray[np.uint8]) -> "Image":
    from PIL import Image

    height, width, _ = frame.shape
    return Image.fromarray(frame).resize((WIDTH, round(height * WIDTH / width)), Image.Resampling.BILINEAR)


def _quantise(frames: "list[Image]") -> "list[Image]":
    """Reduce the frames to one palette of few colors, so that still parts cost nothing."""
    from PIL import Image

    width, height = frames[0].size
    chosen = frames[:: max(1, len(frames) // SAMPLED)]
    sheet = Image.new("RGB", (width, height * len(chosen)))
    for place, frame in enumerate(chosen):
        sheet.paste(frame, (0, height * place))
    palette = sheet.quantize(COLOURS)
    return [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]


def _gif(frames: "list[Image]", milliseconds: float) -> bytes:
    buffer = io.BytesIO()
    # A GIF counts in hundredths of a second, and viewers heed two at least.
    frames[0].save(
        buffer,
        format="GIF",
        save_all=True,
        append_images=frames[1:],
        duration=max(20, round(milliseconds / 10) * 10),
        loop=0,
        optimize=True,
    )
    return buffer.getvalue()


@contextmanager
def _headless() -> Generator[None]:
    """Render without a screen, where there is none; restore the environment afterwards."""
    shown = sys.platform != "linux" or any(
        name in os.environ for name in ("DISPLAY", "WAYLAND_DISPLAY", DRIVER)
    )
    if not shown:
        os.environ[DRIVER] = "dummy"
    try:
        yield
    finally:
        if not shown:
            del os.environ[DRIVER]
