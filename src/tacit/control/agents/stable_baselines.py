"""Agents of Stable-Baselines3, read and written without it, and without running anything that a file holds.

An agent is a zip: `data`, JSON with a few objects spelled in opcodes, and `policy.pth`, the weights. Reading
takes the weights apart (see `torch_archive`) and of the objects only what the JSON says of them in words; the
opcodes are not looked at. Writing spells the two spaces with public constructors alone, so that `PPO.load`
makes the agent, with or without an environment, and `PPO.set_parameters` takes its weights.

What is read must be our kind of network: `MlpPolicy`, tanh, as many nodes in the actor as in the critic,
discrete actions. Statistics of `VecNormalize` are no part of an agent's zip: an agent that was trained with
them wants observations that are normalised the same way.
"""

import base64
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from tacit.control.agents.opcodes import Call, Name, encode_program
from tacit.control.agents.torch_archive import (
    Floats,
    member,
    open_zip,
    read_tensors,
    refuse_large,
    tensors_file,
    torch_file,
    zip_files,
)
from tacit.control.networks import NetworkShape
from tacit.errors import InvalidFile, InvalidValue
from tacit.runtime import files
from tacit.runtime.arrays import Array

if TYPE_CHECKING:
    import gymnasium

Layers = list[tuple[Array, Array]]

# Whose files these are like.
VERSION = "2.9.2"
# Observations that are numbers, or become numbers as Gymnasium flattens them.
FLAT = ("Box", "Discrete", "MultiBinary", "MultiDiscrete")
# Adam as Stable-Baselines3 starts it.
ADAM = {"lr": 3e-4, "betas": (0.9, 0.999), "eps": 1e-5, "weight_decay": 0, "amsgrad": False}


def read(path: Path) -> tuple[NetworkShape, Array]:
    """The network of an agent, and its weights as one vector.

    Raises:
        InvalidFile: It cannot be read, is damaged or too large, or is another kind of agent.
    """
    place = str(path)
    try:
        refuse_large(path.stat().st_size, place)
        content = files.read_bytes(path)
    except OSError as error:
        raise InvalidFile(f"{place} cannot be read: {error.strerror}") from error
    with open_zip(content, place) as archive:
        _refuse_others(_data(member(archive, "data", place), place), place)
        tensors = read_tensors(member(archive, "policy.pth", place), f"policy.pth of {place}")
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
    """Refuse an agent that would act otherwise than its weights say to us."""
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
    """The name of a class as it is told in words, `<class 'package.module.Name'>`."""
    found = re.search(r"(\w+)'>$", str(told))
    return str(told)[:80] if found is None else found[1]


def _network(tensors: Mapping[str, Floats], hidden: str, last: str) -> list[str]:
    """The names of a network's layers; every second one is a tanh, and has no weights."""
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
    """The shape that the weights have."""
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


def write(
    path: Path,
    shape: NetworkShape,
    weights: Array,
    observed: "gymnasium.Space[Any] | None" = None,
    acted: "gymnasium.Space[Any] | None" = None,
) -> None:
    """Write an agent that takes observations as they are.

    Args:
        path: Where to.
        shape: The network.
        weights: Its weights, with any normalisation of observations folded in.
        observed: The space of observations; numbers without bounds if not said.
        acted: That of actions.

    Raises:
        InvalidFile: It cannot be written.
    """
    tensors = _tensors(shape, weights)
    group = {**ADAM, "maximize": False, "foreach": None, "capturable": False, "differentiable": False}
    group |= {"fused": None, "params": list(range(len(tensors)))}
    files = {
        "data": json.dumps(
            _metadata(shape, _box(shape, observed), _actions(shape, acted)), indent=4
        ).encode(),
        "policy.pth": tensors_file(tensors),
        "policy.optimizer.pth": torch_file({"state": {}, "param_groups": [group]}),
        "_stable_baselines3_version": VERSION.encode(),
        "system_info.txt": b"Written by Tacit.\n",
    }
    try:
        path.write_bytes(zip_files(files))
    except OSError as error:
        raise InvalidFile(f"{path} cannot be written: {error.strerror}") from error


def _tensors(shape: NetworkShape, weights: Array) -> dict[str, NDArray[np.float32]]:
    """The weights under the names that they have in an `MlpPolicy`."""
    found: dict[str, NDArray[np.float32]] = {}
    for layers, hidden, last in zip(
        shape.layers(weights), ("policy_net", "value_net"), ("action_net", "value_net"), strict=True
    ):
        names = [f"mlp_extractor.{hidden}.{2 * depth}" for depth in range(len(layers) - 1)]
        for name, (weight, bias) in zip([*names, last], layers, strict=True):
            found |= {f"{name}.weight": weight.astype(np.float32), f"{name}.bias": bias.astype(np.float32)}
    return found


def _metadata(shape: NetworkShape, observed: Call, acted: Call) -> dict[str, Any]:
    """All that `PPO.load` needs to know of an agent; what it is not told is as usual."""
    layers = list(shape.hidden)
    return {
        "policy_class": _object(
            "abc.ABCMeta", Name("stable_baselines3.common.policies", "ActorCriticPolicy")
        ),
        "policy_kwargs": {"net_arch": {"pi": layers, "vf": layers}},
        "observation_space": _object(f"{observed.called}", observed, **_box_fields(observed)),
        "action_space": _object(f"{acted.called}", acted, n=acted.arguments[0], start="0"),
        "n_envs": 1,
        "verbose": 0,
    }


def _object(kind: str, value: object, **told: object) -> dict[str, Any]:
    """An object in opcodes, and what it is in words, as Stable-Baselines3 keeps it."""
    return {
        ":type:": f"<class '{kind}'>",
        ":serialized:": base64.b64encode(encode_program(value)).decode(),
        **told,
    }


def _box_fields(observed: Call) -> dict[str, object]:
    if observed.called.name != "Box":
        return {}
    *_, shape, kind = observed.arguments
    return {"dtype": kind, "_shape": list(cast("tuple[int, ...]", shape))}


def _box(shape: NetworkShape, space: "gymnasium.Space[Any] | None") -> Call:
    """The constructor's call that makes a space equal to that of observations."""
    from gymnasium import spaces
    from gymnasium.spaces import flatdim

    found = spaces.Box(-np.inf, np.inf, (shape.inputs,)) if space is None else space
    image = isinstance(found, spaces.Box) and found.dtype == np.uint8 and len(found.shape) == 3
    late = isinstance(found, spaces.Discrete) and int(found.start) != 0
    if not isinstance(found, spaces.Box | spaces.Discrete) or image or late:
        raise InvalidValue(
            f"observations of {found} have no place in an agent of Stable-Baselines3: they must be a Box "
            "that is not an image, or Discrete from 0"
        )
    if flatdim(found) != shape.inputs:
        raise InvalidValue(f"observations of {found} do not fit {shape.inputs} inputs")
    if isinstance(found, spaces.Discrete):
        return _discrete(found)
    kind = cast("np.dtype[Any]", found.dtype)
    low, high = cast("NDArray[Any]", found.low), cast("NDArray[Any]", found.high)
    return Call(Name("gymnasium.spaces.box", "Box"), (_array(low), _array(high), found.shape, str(kind)))


def _array(values: NDArray[Any]) -> Call:
    """The call that makes an array; a number is the same in float64, and whole ones stay whole."""
    flat = Call(Name("numpy", "array"), (values.ravel().tolist(), str(values.dtype)))
    return Call(Name("numpy", "reshape"), (flat, values.shape))


def _actions(shape: NetworkShape, space: "gymnasium.Space[Any] | None") -> Call:
    from gymnasium import spaces

    found = spaces.Discrete(shape.actions) if space is None else space
    if not isinstance(found, spaces.Discrete) or int(found.n) != shape.actions or int(found.start) != 0:
        raise InvalidValue(f"actions of {found} do not fit an agent with Discrete({shape.actions})")
    return _discrete(found)


def _discrete(space: "gymnasium.spaces.Discrete") -> Call:
    return Call(Name("gymnasium.spaces.discrete", "Discrete"), (int(space.n), None, int(space.start)))
