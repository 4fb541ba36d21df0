"""Curves predicted from curves, from the card and the tensors of an exported model."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load
from scipy.interpolate import BSpline

Array = NDArray[np.float64]
Card = Mapping[str, Any]
Tensors = Mapping[str, Array]


def load_model(folder: str = ".", model: int = 0) -> tuple[dict[str, Any], dict[str, Array]]:
    """The card in a folder, and the tensors of a model."""
    card = json.loads(Path(folder, "card.json").read_text())
    return card, load(Path(folder, card["models"][model]["tensors"]["file"]).read_bytes())


def functions(basis: Mapping[str, Any], times: Array) -> Array:
    """The functions of a basis at these times (times, functions)."""
    (low, high), size = basis["domain"], int(basis["size"])
    places = ((times - low) / (high - low)).clip(0.0, 1.0)
    if basis["kind"] == "b-splines":
        splines = BSpline(np.array(basis["knots"]), np.eye(size), basis["order"] - 1)
        return np.asarray(splines(places), dtype=np.float64)
    waves = np.ceil(np.arange(size) / 2)
    # A constant, and for each wave a sine and a cosine, which is a sine that was turned.
    turned = np.array([0.0, *[0.0, np.pi / 2] * (size // 2)])
    found = np.sin(2 * np.pi * places[:, None] * waves + turned) * (2 / (high - low)) ** 0.5
    found[:, 0] = (high - low) ** -0.5
    return found


def coordinates(card: Card, tensors: Tensors, name: str, times: Array, values: Array) -> Array:
    """One curve in the frame of its predictor; NaN where it was not observed."""
    given, rules = card["inputs"]["curves"][name], card["architecture"]["smoothing"]
    seen = ~np.isnan(values)
    shifted = (values[seen] - given["center"]) / given["scale"]
    design = functions(given["basis"], times[seen]) @ tensors[given["mixing"]]
    rough = tensors[given["roughness"]]
    relative = rough / rough[rough > 0].min()
    ridge = rules["ridge"] * relative.clip(*rules["clip"])
    ridge[0] = 0.0
    normal = design.T @ design / len(shifted)
    solver = np.linalg.inv(normal + np.diag(rules["smooth"] * relative + ridge))
    left = solver * ridge
    # The bias of the ridge is taken back, doubling.
    for _ in range(rules["doublings"]):
        solver, left = solver + left @ solver, left @ left
    found = (solver @ design.T @ shifted / len(shifted))[: given["coordinates"]]
    return found * min(1.0, given.get("reach", np.inf) / max(float(np.linalg.norm(found)), 1e-300))


def predict(card: Card, tensors: Tensors, curves: Mapping[str, tuple[Array, Array]], times: Array) -> Array:
    """The response at these times (subjects, times).

    Each predictor gives its times, and its values there (subjects, times).
    """
    response = card["architecture"]["response"]
    total: Any = tensors[f"mean.{response['name']}"][None]
    for name in card["inputs"]["needed"]:
        moments, values = curves[name]
        rows = [coordinates(card, tensors, name, moments, row) for row in values]
        total = total + (np.array(rows) - tensors[f"mean.{name}"]) @ tensors[f"coefficients.{name}"]
    mixing = tensors[response["mixing"]][:, : response["coordinates"]]
    shown = total @ (functions(response["basis"], times) @ mixing).T
    return shown * response["scale"] + response["center"]
