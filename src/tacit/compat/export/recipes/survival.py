"""Survival curves of an exported network, from its card and its tensors."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load
from scipy.special import expit, ndtr

Array = NDArray[np.float64]
Tensors = Mapping[str, Array]
ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "identity": lambda z: z,
    "relu": lambda z: np.maximum(z, 0.0),
    "tanh": np.tanh,
    "sigmoid": lambda z: np.asarray(expit(z)),
    "silu": lambda z: z * np.asarray(expit(z)),
    "gelu": lambda z: z * np.asarray(ndtr(z)),
    "softplus": lambda z: np.logaddexp(0.0, z),
    "elu": lambda z: np.where(z > 0, z, np.expm1(np.minimum(z, 0.0))),
}


def load_model(folder: str = ".", model: int = 0) -> tuple[dict[str, Any], dict[str, Array]]:
    """The card in a folder, and the tensors of a model."""
    card = json.loads(Path(folder, "card.json").read_text())
    return card, load(Path(folder, card["models"][model]["tensors"]["file"]).read_bytes())


def encode(card: Mapping[str, Any], columns: Mapping[str, Sequence[Any]]) -> Array:
    """Raw columns, by name, as the numbers that the network takes (records, features)."""
    rules, made = card["inputs"]["encoding"], list[Array]()
    known = {f"{name}={level}": (name, level) for name, levels in rules["levels"].items() for level in levels}
    for feature in card["inputs"]["features"]:
        name, level = known.get(feature, (feature, None))
        fill = rules["fill"].get(name)
        values = [fill if value is None or value != value else value for value in columns[name]]
        if level is not None:
            made.append(np.array([float(_word(value) == level) for value in values]))
        else:
            center, scale = rules["center"].get(name, 0.0), rules["scale"].get(name, 1.0)
            made.append((np.array(values, dtype=np.float64) - center) / scale)
    return np.column_stack(made)


def network(card: Mapping[str, Any], tensors: Tensors, inputs: Array) -> Array:
    """What the network says."""
    current = inputs
    for place, layer in enumerate(card["architecture"]["layers"]):
        if f"layers.{place}.weight" in tensors:
            current = current @ tensors[f"layers.{place}.weight"].T
        if f"layers.{place}.bias" in tensors:
            current = current + tensors[f"layers.{place}.bias"]
        current = ACTIVATIONS[layer["activation"]](current)
    return current


def log_risk(card: Mapping[str, Any], tensors: Tensors, features: Array) -> Array:
    """Log hazard ratios against a record of zeros (records, intervals), or one column if they stay."""
    if "clock" not in tensors:
        return network(card, tensors, features) - tensors["reference"]
    # The network is told the time as one more number.
    moments = [np.full((len(features), 1), moment) for moment in tensors["clock"]]
    told = np.hstack([network(card, tensors, np.hstack([features, moment])) for moment in moments])
    return told - tensors["reference"]


def cumulative_hazard(card: Mapping[str, Any], tensors: Tensors, features: Array) -> Array:
    """The cumulative hazard at the end of each interval (records, intervals)."""
    link = card["architecture"]["link"]
    if link == "relative":
        ratios = np.minimum(log_risk(card, tensors, features), 50.0)
        return np.cumsum(tensors["baseline_hazard"] * np.exp(ratios), axis=1)
    outputs = network(card, tensors, features)
    if link == "softmax":
        intervals = len(tensors["grid"])
        scores = np.hstack([outputs, np.zeros((len(outputs), 1))])
        raised = np.exp(scores - scores.max(axis=1, keepdims=True))
        chances = raised / raised.sum(axis=1, keepdims=True)
        either = chances[:, :-1].reshape(len(chances), -1, intervals).sum(axis=1)
        later = np.cumsum(np.hstack([chances[:, -1:], either[:, :0:-1]]), axis=1)[:, ::-1]
        return -np.log(np.maximum(later, 1e-300))
    added = np.logaddexp(0.0, outputs) if link == "softplus" else np.exp(np.minimum(outputs, 30.0))
    return np.cumsum(added, axis=1)


def survival(card: Mapping[str, Any], tensors: Tensors, features: Array, times: Array) -> Array:
    """The chance of being event-free at each time (records, times)."""
    hazard = cumulative_hazard(card, tensors, features)
    edges = np.concatenate([[0.0], tensors["grid"]])
    rows = [np.interp(times, edges, np.concatenate([[0.0], row])) for row in hazard]
    return np.exp(-np.array(rows))


def _word(value: object) -> str:
    """A level as it reads: 2 and 2.0 are "2", True is "true"."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
