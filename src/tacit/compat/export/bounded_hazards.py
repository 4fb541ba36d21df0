"""Proportional hazards on bounded features (`newton-ph`) in parts: tensors, steps in words, ONNX graph."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tacit.compat.export.onnx import Graph
from tacit.survival.models.feature_scaling import BEND, WEIGHT
from tacit.survival.models.newton_steps import LARGEST

if TYPE_CHECKING:
    from tacit.survival.models.newton_ph import NewtonModel

Tensors = Mapping[str, NDArray[np.generic]]

SCALING = (
    "A feature that is NaN or infinite becomes its center. Features below low are raised to low, those above "
    "high are lowered to high; then center is subtracted, and the rest is divided by scale and by the square "
    "root of the number of features. A row that is longer than 1 (L2 norm) is shortened to length 1."
)
HINGES = (
    f"For each column in bent (counted from 0), one more is appended: {WEIGHT:g} x (|feature| - {BEND:g} / "
    "root), where root is the square root of the number of features. A row that is longer than 1 now is "
    "shortened to length 1 again."
)
HAZARD = (
    "log_risk is the sum of effects times features. Each interval adds baseline_hazard x e^log_risk to the "
    f"cumulative hazard, at most e^{LARGEST:g}."
)
LOG_RISK = "the log of the hazard over the baseline hazard (records, 1)"


def bounded_tensors(model: "NewtonModel") -> dict[str, NDArray[np.generic]]:
    """Return scaling, effects and baseline hazard; `bent` only where effects have hinges."""
    bent = {"bent": np.array(model.bent, dtype=np.int64)} if model.bent else {}
    scaling = {name: np.asarray(values) for name, values in vars(model.scale).items()}
    return {
        **scaling,
        **bent,
        "effects": model.point.effects[1:],
        "baseline_hazard": np.exp(model.log_baseline),
    }


def bounded_steps(tensors: Tensors) -> tuple[str, ...]:
    """Return the computation of the hazard, in sentences."""
    return (SCALING, *([HINGES] if "bent" in tensors else []), HAZARD)


def bounded_log_risk(graph: Graph, tensors: Tensors) -> None:
    """Add scaling, hinges and the sum of effects to a graph, as `log_risk`."""
    columns = len(tensors["center"])
    center = graph.keep(tensors["center"], "center")
    broken = graph.add("Or", graph.add("IsNaN", "features"), graph.add("IsInf", "features"))
    known = graph.add("Where", broken, center, "features")
    above = graph.add("Max", known, graph.keep(tensors["low"], "low"))
    within = graph.add("Min", above, graph.keep(tensors["high"], "high"))
    length = graph.keep(np.asarray(tensors["scale"], dtype=np.float64) * np.sqrt(columns), "scale")
    current = _shorten(graph, graph.add("Div", graph.add("Sub", within, center), length))
    if "bent" in tensors:
        own = graph.add("Gather", current, graph.keep(tensors["bent"], "bent"), axis=1)
        beyond = graph.add("Sub", graph.add("Abs", own), graph.keep(BEND / np.sqrt(columns)))
        moved = graph.add("Mul", beyond, graph.keep(WEIGHT))
        current = _shorten(graph, graph.add("Concat", current, moved, axis=1))
    effects = graph.keep(np.asarray(tensors["effects"])[:, None], "effects")
    _ = graph.add("MatMul", current, effects, into="log_risk")


def bounded_increments(graph: Graph, tensors: Tensors) -> str:
    """Add the hazard that each interval adds."""
    baseline = graph.keep(np.log(np.asarray(tensors["baseline_hazard"])), "log_baseline_hazard")
    return graph.add("Exp", graph.add("Min", graph.add("Add", "log_risk", baseline), graph.keep(LARGEST)))


def _shorten(graph: Graph, rows: str) -> str:
    """Rows of length at most 1."""
    length = graph.add("ReduceL2", rows, axes=[1], keepdims=1)
    return graph.add("Div", rows, graph.add("Max", length, graph.keep(1.0)))
