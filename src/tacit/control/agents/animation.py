"""Films of an agent at work: one episode as a GIF, small enough for a page."""

import io
import os
import sys
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tacit.control.envs.episodes import match_spaces
from tacit.errors import InvalidFile, InvalidValue, require, require_count

if TYPE_CHECKING:
    from PIL.Image import Image

    from tacit.control.agents.policy import Policy
    from tacit.sites.environments import World

WIDTH, COLOURS, MOST_BYTES = 300, 48, 400_000
# How many frames the colours are chosen from.
SAMPLED = 8
DRIVER = "SDL_VIDEODRIVER"


def film(policy: "Policy", path: Path, world: "World", *, seed: int, fps: int, most: int) -> Path:
    """Write one episode of greedy actions as a GIF: every second step, or fewer where it grows too large.

    Args:
        policy: Who acts.
        path: Where to, `*.gif`.
        world: Where it acts.
        seed: What the episode begins with.
        fps: How many steps make a second.
        most: How many steps are shown at most.
    """
    require(path.suffix == ".gif", "path", str(path), 'a film, "*.gif"')
    require_count("fps", fps)
    require_count("most", most)
    with _headless():
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
    """The picture at every second step of an episode, and the last one."""
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
    """The frames in few colours, the same ones in all, so that what does not move costs nothing."""
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
    # A hundredth of a second is the least that a GIF can tell, and two the least that viewers heed.
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
    """Pictures without a screen, where there is none; afterwards the process is as it was."""
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
