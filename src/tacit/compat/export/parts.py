"""What a model is made of, whoever is to use it: numbers by name, and how predictions come of them.

An anatomy holds nothing that is not in the model of a run, which has left the sites already.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.compat.export.onnx import Graph

Tensors = Mapping[str, NDArray[np.generic]]


@dataclass(frozen=True, eq=False, kw_only=True)
class ModelParts:
    """A model in parts.

    Args:
        tensors: Its numbers, by name.
        inputs: What goes in: names, order, and what is done to raw values first.
        outputs: What comes out, and what that means.
        architecture: What is between.
        steps: How predictions come about, in sentences, for whoever writes their own code.
        recipe: The template in `recipes/` of the Python that does so with numpy alone, if there is one.
        example: Lines that use it, or lines of their own.
        time: The grid of time, where there is one.
        drawn: Draws the network as a graph; None if it is not one.
        instead: Why there is no graph, and what to do instead.
    """

    tensors: Tensors
    inputs: Mapping[str, Any]
    outputs: Mapping[str, str]
    architecture: Mapping[str, Any]
    steps: tuple[str, ...]
    recipe: str | None
    example: str
    time: Mapping[str, Any] | None = None
    drawn: Callable[[], Graph] | None = None
    instead: str = ""
