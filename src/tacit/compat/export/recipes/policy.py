"""What an exported agent does, from its card and its tensors."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load

Array = NDArray[np.float64]
Tensors = Mapping[str, Array]


def load_model(folder: str = ".", model: int = 0) -> tuple[dict[str, Any], dict[str, Array]]:
    """The card in a folder, and the tensors of a model."""
    card = json.loads(Path(folder, "card.json").read_text())
    return card, load(Path(folder, card["models"][model]["tensors"]["file"]).read_bytes())


def network(card: Mapping[str, Any], tensors: Tensors, part: str, observations: Array) -> Array:
    """What the actor, or the critic, says to each observation (observations, outputs)."""
    current = (observations - tensors["center"]) / tensors["scale"]
    for place, layer in enumerate(card["architecture"][part]):
        name = f"{part}.layers.{place}"
        current = current @ tensors[f"{name}.weight"].T + tensors[f"{name}.bias"]
        current = np.tanh(current) if layer["activation"] == "tanh" else current
    return current


def probabilities(card: Mapping[str, Any], tensors: Tensors, observations: Array) -> Array:
    """How likely each action is upon each observation (observations, actions)."""
    logits = network(card, tensors, "actor", observations)
    raised = np.exp(logits - logits.max(axis=1, keepdims=True))
    return raised / raised.sum(axis=1, keepdims=True)


def actions(card: Mapping[str, Any], tensors: Tensors, observations: Array) -> NDArray[np.int64]:
    """The likeliest action upon each observation (observations,)."""
    return network(card, tensors, "actor", observations).argmax(axis=1)
