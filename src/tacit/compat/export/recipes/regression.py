"""Log hazard ratios of an exported Cox regression, from its tensors."""

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


def log_risk(tensors: Mapping[str, Array], features: Array) -> Array:
    """The log hazard ratio of each record against one whose features are all 0."""
    return features @ tensors["coefficients"]
