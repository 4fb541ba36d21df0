"""Agents of Stable-Baselines3: files of its PPO, read and written without it.

An agent is a zip: `data`, JSON with a few pickled objects, and `policy.pth`, the weights as torch saves them.
Reading takes the weights with `weights_only=True`, which refuses whatever is not needed for tensors, from a
copy whose size was looked at; of the objects it takes what the JSON says of them in words, and loads none.
Writing spells the two spaces with public constructors alone, so that `PPO.load` makes the agent, with or
without an environment, and `PPO.set_parameters` takes its weights.

What is read must be our kind of network: `MlpPolicy`, tanh, as many nodes in the actor as in the critic,
discrete actions. Statistics of `VecNormalize` are no part of an agent's zip: an agent that was trained with
them wants observations that are normalized the same way.
"""

import base64
import io
import json
import pickle
import re
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np
from numpy.typing import NDArray

from tacit.control.networks import NetworkShape
from tacit.errors import InvalidFile, InvalidValue, require_extra
from tacit.runtime import files
from tacit.runtime.arrays import Array

if TYPE_CHECKING:
    from tacit.control.envs.spaces import Box, Discrete

Floats = NDArray[np.float32 | np.float64]

# Version of Stable-Baselines3 that the files follow.
VERSION = "2.9.2"
# Observations that are numbers, or become numbers as Gymnasium flattens them.
FLAT = ("Box", "Discrete", "MultiBinary", "MultiDiscrete")
# Before, reading with weights_only=True could be made to run code (CVE-2025-32434, CVE-2026-24747).
OLDEST = "2.10"
# No agent of ours needs more; looked at before anything is read.
MOST_BYTES = 64 * 2**20
# Zip entries hold a time; a fixed one makes the bytes reproducible.
NEVER = (1980, 1, 1, 0, 0, 0)
WHAT = "an agent of Stable-Baselines3"
# The name of its policy's class as pickled; the class itself need not be installed.
POLICY = b"\x80\x02cstable_baselines3.common.policies\nActorCriticPolicy\n."


def read(path: Path) -> tuple[NetworkShape, Array]:
    """The network of an agent, and its weights as one vector.

    Raises:
        InvalidFile: It cannot be read, is damaged or too large, or is another kind of agent.
    """
    place = str(path)
    require_extra("torch", "torch", WHAT)
    try:
        _refuse_large(path.stat().st_size, place)
        content = files.read_bytes(path)
    except OSError as error:
        raise InvalidFile(f"{place} cannot be read: {error.strerror}") from error
    with _open_zip(content, place) as archive:
        _refuse_others(_data(_member(archive, "data", place), place), place)
        tensors = _read_tensors(_member(archive, "policy.pth", place), f"policy.pth of {place}")
    actor, critic = _network(tensors, "policy_net", "action_net"), _network(tensors, "value_net", "value_net")
    known = [f"{name}.{part}" for name in (*actor, *critic) for part in ("weight", "bias")]
    if set(known) != set(tensors):
        raise InvalidFile(f"{place} {_other(set(known) ^ set(tensors))}: it must be an MlpPolicy")
    layers = [
        [(tensors[f"{name}.weight"], tensors[f"{name}.bias"]) for name in names] for names in (actor, critic)
    ]
    return _shape(layers, place), _vector(layers, place)


def _data(content: bytes, place: str) -> Mapping[str, object]:
    try:
        found = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise InvalidFile(f"{place} is damaged: its data is not JSON") from error
    if not isinstance(found, dict):
        raise InvalidFile(f"{place} is damaged: its data is not a table")
    return cast("Mapping[str, object]", found)


def _refuse_others(data: Mapping[str, object], place: str) -> None:
    """Refuse an agent whose options would change its actions."""
    choices, acting, seeing = (
        _table(data.get(name)) for name in ("policy_kwargs", "action_space", "observation_space")
    )
    for word, usual in (("activation_fn", "Tanh"), ("features_extractor_class", "FlattenExtractor")):
        if (found := _class(choices.get(word, usual))) != usual:
            raise InvalidFile(f"{place} has {word} {found}: it must be {usual}")
    kind = _class(acting.get(":type:"))
    if kind != "Discrete" or str(acting.get("start", 0)) != "0":
        raise InvalidFile(f"{place} has actions of {kind}: they must be Discrete, from 0")
    kind, shape = _class(seeing.get(":type:")), seeing.get("_shape")
    if seeing.get("dtype") == "uint8" and isinstance(shape, list) and len(cast("list[object]", shape)) == 3:
        # Stable-Baselines3 divides those by 255, and we would not.
        kind = "images"
    if kind not in FLAT:
        raise InvalidFile(f"{place} has observations of {kind}: they must be numbers, a Box or Discrete")


def _table(value: object) -> Mapping[str, object]:
    return cast("Mapping[str, object]", value) if isinstance(value, dict) else {}


def _class(told: object) -> str:
    """Return the name of a class from its description, `<class 'package.module.Name'>`."""
    found = re.search(r"(\w+)'>$", str(told))
    return str(told)[:80] if found is None else found[1]


def _network(tensors: Mapping[str, Floats], hidden: str, last: str) -> list[str]:
    """Return the names of a network's layers; every second one is a tanh, and has no weights."""
    names = [f"mlp_extractor.{hidden}.{2 * depth}" for depth in range(len(tensors))]
    there = [f"{name}.weight" in tensors for name in names]
    return [*names[: (*there, False).index(False)], last]


def _other(names: set[str]) -> str:
    first = min(names)
    if any("cnn" in name for name in names):
        return "looks at images by convolutions"
    if "log_std" in names:
        return "has continuous actions"
    return f"has other weights ({first})"


def _shape(layers: list[list[tuple[Floats, Floats]]], place: str) -> NetworkShape:
    """Return the network shape of the weights."""
    for weight, bias in (layer for network in layers for layer in network):
        if weight.ndim != 2 or bias.shape != weight.shape[:1]:
            raise InvalidFile(f"{place} is damaged: weights {weight.shape} with biases {bias.shape}")
    actor, critic = ([weight.shape[0] for weight, _ in network[:-1]] for network in layers)
    if actor != critic:
        raise InvalidFile(
            f"{place} has {actor} nodes in the actor and {critic} in the critic: they must be equal"
        )
    shape = NetworkShape(layers[0][0][0].shape[1], tuple(actor), layers[0][-1][0].shape[0])
    sizes = [shape.inputs, *shape.hidden]
    for network, last in zip(layers, (shape.actions, 1), strict=True):
        wanted = [(size, before) for before, size in zip(sizes, [*sizes[1:], last], strict=True)]
        if [weight.shape for weight, _ in network] != wanted:
            raise InvalidFile(f"{place} is damaged: its layers do not follow upon each other")
    return shape


def _vector(layers: list[list[tuple[Floats, Floats]]], place: str) -> Array:
    parts = [part.ravel() for network in layers for layer in network for part in layer]
    weights = np.concatenate(parts).astype(np.float64)
    if not np.isfinite(weights).all():
        raise InvalidFile(f"{place} is damaged: some of its weights are not finite")
    return weights


def _read_tensors(content: bytes, place: str) -> dict[str, Floats]:
    """Read the tensors of a torch file by name; refuse other content."""
    import torch

    if torch.__version__ < OLDEST:
        raise InvalidValue(
            f"{WHAT} needs torch {OLDEST}, and {torch.__version__} is installed, which can be made to run "
            "what a file of weights holds: pip install 'tacit[torch]'"
        )
    with _open_zip(content, place) as archive:
        held = {name: _member(archive, name, place) for name in archive.namelist()}
    try:
        # Zipped anew: no reader may find another file in it than the one whose size was checked.
        found: object = torch.load(io.BytesIO(_zip(held)), map_location="cpu", weights_only=True)
    except Exception as error:
        asked = re.search(r"GLOBAL (\S+)", str(error))
        why = f"it asks for {asked[1][:200]}" if asked else "its objects cannot be read"
        raise InvalidFile(f"{place} is not a file of tensors: {why}") from error
    if not isinstance(found, dict):
        raise InvalidFile(
            f"{place} is not a file of tensors: it holds an object of type {type(found).__name__}"
        )
    sizes, total = {len(block) for block in held.values()}, 0
    tensors: dict[str, Floats] = {}
    for name, value in cast("dict[object, torch.Tensor]", found).items():
        if not _is_plain(value):
            raise InvalidFile(f"{place} is not a file of tensors: {str(name)[:80]} is {type(value).__name__}")
        size, stored = value.numel() * value.element_size(), value.untyped_storage().nbytes()
        # A view of missing numbers, or of the same ones repeatedly, was never saved.
        if not 0 < size <= stored or stored not in sizes:
            raise InvalidFile(
                f"{place} is damaged: a tensor of {tuple(value.shape)} does not fit its numbers"
            )
        total += size
        _refuse_large(total, place)
        tensors[str(name)] = value.detach().resolve_neg().numpy()
    return tensors


def _is_plain(value: object) -> bool:
    """Return True for a dense tensor of floats in memory, as `MlpPolicy` has them."""
    import torch

    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided or not value.is_cpu:
        return False
    return value.dtype in (torch.float32, torch.float64)


def _open_zip(content: bytes, place: str) -> zipfile.ZipFile:
    """Open a zip in memory, if its content is not too large."""
    try:
        archive = zipfile.ZipFile(io.BytesIO(content))
    except (zipfile.BadZipFile, ValueError, NotImplementedError, EOFError) as error:
        raise InvalidFile(f"{place} is not a zip, or is damaged: {error}") from error
    _refuse_large(sum(entry.file_size for entry in archive.infolist()), place)
    return archive


def _refuse_large(size: int, place: str) -> None:
    """Refuse a file that is larger than any agent."""
    if size > MOST_BYTES:
        raise InvalidFile(
            f"{place} is too large: {size / 2**20:.0f} MB, and it must be at most {MOST_BYTES // 2**20}"
        )


def _member(archive: zipfile.ZipFile, name: str, place: str) -> bytes:
    """Read a file of a zip, at most of its declared size."""
    if name not in archive.NameToInfo:
        raise InvalidFile(f"{place} has no {name}: it is not what Stable-Baselines3 or PyTorch writes")
    try:
        return archive.read(name)
    # Each way of compression has errors of its own, and a lock on a file is a RuntimeError.
    except Exception as error:
        raise InvalidFile(f"{place} is damaged: {name} cannot be read ({error})") from error


def _zip(parts: Mapping[str, bytes]) -> bytes:
    """Write these files as a zip, uncompressed and deterministic."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in parts.items():
            archive.writestr(zipfile.ZipInfo(name, NEVER), content)
    return buffer.getvalue()


def write(
    path: Path, shape: NetworkShape, weights: Array, observed: "Box | Discrete", acted: "Discrete"
) -> None:
    """Write an agent that takes observations as they are.

    Args:
        path: The file.
        shape: The network.
        weights: Its weights, with any normalization of observations folded in.
        observed: The space of observations (`control.envs.spaces.agent_spaces`).
        acted: That of actions.

    Raises:
        InvalidFile: It cannot be written.
        InvalidValue: torch is not installed.
    """
    require_extra("torch", "torch", WHAT)
    import torch

    state = {name: torch.from_numpy(values) for name, values in _name_weights(shape, weights).items()}
    # Adam as Stable-Baselines3 starts it.
    adam = torch.optim.Adam([torch.nn.Parameter(values) for values in state.values()], lr=3e-4, eps=1e-5)
    layers = list(shape.hidden)
    data: dict[str, object] = {
        "policy_class": _object("abc.ABCMeta", POLICY),
        "policy_kwargs": {"net_arch": {"pi": layers, "vf": layers}},
        "observation_space": _space(observed),
        "action_space": _space(acted),
        "n_envs": 1,
        "verbose": 0,
    }
    parts = {
        "data": json.dumps(data, indent=4).encode(),
        "policy.pth": _torch_file(state),
        "policy.optimizer.pth": _torch_file(adam.state_dict()),
        "_stable_baselines3_version": VERSION.encode(),
        "system_info.txt": b"Written by Tacit.\n",
    }
    try:
        path.write_bytes(_zip(parts))
    except OSError as error:
        raise InvalidFile(f"{path} cannot be written: {error.strerror}") from error


def _name_weights(shape: NetworkShape, weights: Array) -> dict[str, NDArray[np.float32]]:
    """Return the weights under the names that they have in an `MlpPolicy`."""
    found: dict[str, NDArray[np.float32]] = {}
    for layers, hidden, last in zip(
        shape.layers(weights), ("policy_net", "value_net"), ("action_net", "value_net"), strict=True
    ):
        names = [f"mlp_extractor.{hidden}.{2 * depth}" for depth in range(len(layers) - 1)]
        for name, (weight, bias) in zip([*names, last], layers, strict=True):
            found |= {f"{name}.weight": weight.astype(np.float32), f"{name}.bias": bias.astype(np.float32)}
    return found


def _torch_file(value: object) -> bytes:
    import torch

    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


class _Call:
    """A call of a public constructor, which is made upon unpickling."""

    def __init__(self, called: Callable[..., object], *arguments: object) -> None:
        self.called, self.arguments = called, arguments

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return self.called, self.arguments


def _space(space: "Box | Discrete") -> dict[str, object]:
    """Write a space as Stable-Baselines3 keeps it: pickled, and in words."""
    kind = type(space)
    if kind.__name__ == "Discrete":
        count = int(cast("Discrete", space).n)
        call, told = _Call(kind, count, None, 0), {"n": count, "start": "0"}
    else:
        box = cast("Box", space)
        low, high = (
            # Numbers are the same in float64, and whole ones stay whole.
            _Call(np.reshape, _Call(np.array, ends.ravel().tolist(), str(ends.dtype)), ends.shape)
            for ends in (cast(Array, box.low), cast(Array, box.high))
        )
        call = _Call(kind, low, high, box.shape, str(box.dtype))
        told = {"dtype": str(box.dtype), "_shape": list(box.shape)}
    return _object(f"{kind.__module__}.{kind.__name__}", pickle.dumps(call, 2), **told)


def _object(kind: str, pickled: bytes, **told: object) -> dict[str, object]:
    """Describe a pickled object, as Stable-Baselines3 stores it."""
    return {":type:": f"<class '{kind}'>", ":serialized:": base64.b64encode(pickled).decode(), **told}
