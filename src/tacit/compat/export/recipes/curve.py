"""An exported survival curve at any time, from its card and its tensors."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load

Array = NDArray[np.float64]


def load_model(folder: str = ".", model: int = 0) -> tuple[dict[str, Any], dict[str, Array]]:
    """The card in a folder, and the tensors of a model."""
    card = json.loads(Path(folder, "card.json").read_text())
    return card, load(Path(folder, card["models"][model]["tensors"]["file"]).read_bytes())


def survival(card: Mapping[str, Any], tensors: Mapping[str, Array], times: Array) -> Array:
    """The chance of no event up to each time (times,); beyond what is known it stays where it is."""
    known, values = tensors["time"], tensors["survival"]
    asked = np.minimum(times, card["time"].get("until", np.inf))
    if card["time"]["between"] == "line":
        return np.interp(asked, known, values)
    return values[np.searchsorted(known, asked, side="right") - 1]
