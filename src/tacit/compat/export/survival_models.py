"""Survival models in parts: networks with their grid, Cox regressions, curves of everybody."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from tacit.compat.export.onnx import Graph, stack
from tacit.compat.export.parts import ModelParts
from tacit.learning.perceptron import Layer
from tacit.sites.encoding import Encoding
from tacit.survival.models.cox_loss import Pairs
from tacit.survival.models.losses import LARGEST_LOG_RATE, PoissonLoss
from tacit.survival.models.prediction import GridModel, HazardModel, IncidenceModel, RelativeModel
from tacit.survival.statistics.cox_fit import CoxFit
from tacit.survival.statistics.kaplan_meier_task import KaplanMeierFit

Array = NDArray[np.float64]

ENCODING = (
    "A raw column with levels becomes one column of 0 and 1 for each level but the first, named "
    "column=level. A missing value is replaced by its fill first. Any other column has its center subtracted "
    "and is divided by its scale. Then features stand in this order."
)
BETWEEN = (
    "The cumulative hazard is 0 at time 0, a straight line between the ends of two intervals, and constant "
    "after the last. Survival is e to minus the cumulative hazard."
)
LINKS = {
    "softplus": "Each interval adds log(1 + e^output) to the cumulative hazard.",
    "exp": "Each interval adds e^output to the cumulative hazard, where an output above 30 counts as 30.",
    "softmax": (
        "Outputs are scores of every interval, cause by cause; that of the time beyond the grid is 0. A "
        "softmax over all of them gives chances. Survival at the end of an interval is the chance of all "
        "later ones, and the incidence of a cause the sum of its chances so far; inside an interval, events "
        "of all causes come as survival falls, each cause with a constant part."
    ),
    "relative": (
        "The log hazard ratio is the output less that of a record of zeros, which is the reference; above 50 "
        "it counts as 50. Each interval adds its baseline hazard times e^ratio to the cumulative hazard."
    ),
}
CLOCK = (
    "The network is told the time as its last input: the middle of each interval, as clock has it; so a "
    "record has one ratio for each interval."
)
EXAMPLE = """
card, tensors = load_model()
features = np.zeros((1, {columns}))  # or encode(card, {"column": [values], ...})
print(survival(card, tensors, features, tensors["grid"]))
"""
NOT_A_NETWORK = "is no network, and its numbers are in model.safetensors: leave --onnx (onnx=True) out"


def model_parts(task: object, model: object) -> ModelParts | None:
    """A survival model in parts; None for any other model."""
    if isinstance(model, RelativeModel):
        return _relative(model)
    if isinstance(model, HazardModel):
        return _hazards(model)
    if isinstance(model, CoxFit):
        return _regression(model)
    return _curve(model) if isinstance(model, KaplanMeierFit) else None


def layers_of(layers: Sequence[Layer], weights: Array) -> tuple[dict[str, Array], list[dict[str, Any]]]:
    """The numbers of each layer by name, and what each layer is."""
    tensors, told = dict[str, Array](), list[dict[str, Any]]()
    for place, layer in enumerate(layers):
        if layer.inputs:
            tensors[f"layers.{place}.weight"] = layer.matrices(weights[None])[0]
        if layer.bias:
            tensors[f"layers.{place}.bias"] = layer.biases(weights[None])[0]
        kind = "linear" if layer.inputs else "shift"
        shape = {"inputs": layer.inputs or 1, "outputs": layer.outputs, "bias": layer.bias}
        told.append({"kind": kind, **shape, "activation": layer.activation})
    return tensors, told


def _inputs(columns: Sequence[str], encoding: Encoding) -> dict[str, Any]:
    rules = {name: dict(getattr(encoding, name)) for name in ("levels", "fill", "center", "scale")}
    return {"features": list(columns), "raw": list(encoding.raw(columns)), "encoding": rules, "how": ENCODING}


def _hazards(model: HazardModel) -> ModelParts:
    tensors, layers = layers_of(model.program.layers, model.weights)
    deep_hit, poisson = isinstance(model, IncidenceModel), isinstance(model.loss, PoissonLoss)
    link = "softmax" if deep_hit else "exp" if poisson else "softplus"
    several = {"causes": model.loss.causes} if isinstance(model, IncidenceModel) else {}
    return _network(model, tensors, {"layers": layers, "link": link, **several})


def _relative(model: RelativeModel) -> ModelParts:
    program = model.task.program(len(model.columns))
    tensors, layers = layers_of(program.layers, model.state[: program.size])
    if model.baseline is not None:
        tensors["baseline_hazard"] = model.baseline
    edges = np.concatenate([[0.0], model.ends])
    middles = (edges[1:] + edges[:-1]) / 2
    zeros = np.zeros((1, len(model.columns)))
    if isinstance(program, Pairs) and program.layers[0].inputs > len(model.columns):
        zeros = program.append_time(np.zeros((len(middles), len(model.columns))), middles)
        tensors["clock"] = zeros[:, -1]
    weights = model.state[None, : program.size]
    tensors["reference"] = program.outputs(weights, zeros[None])[0, :, 0]
    return _network(model, tensors, {"layers": layers, "link": "relative"})


def _network(model: GridModel, tensors: Mapping[str, Array], architecture: Mapping[str, Any]) -> ModelParts:
    link, curves = (
        str(architecture["link"]),
        "baseline_hazard" in tensors or architecture["link"] != "relative",
    )
    outputs = {"outputs": "what the network says (records, outputs)"}
    if link == "relative":
        outputs = {"log_risk": "the log hazard ratio against a record of zeros (records, 1 or intervals)"}
    if link == "softmax":
        outputs["chances"] = "the chance of every interval, cause by cause, and of the time beyond the grid"
    if curves:
        outputs["cumulative_hazard"] = (
            "the cumulative hazard at the end of each interval (records, intervals)"
        )
        outputs["survival"] = "the chance of no event up to the end of each interval (records, intervals)"
    clock = [CLOCK] if "clock" in tensors else []
    passing = "Features pass through the layers: current @ weight.T + bias, then the activation."
    return ModelParts(
        tensors={**tensors, "grid": model.ends},
        inputs=_inputs(model.columns, model.encoding),
        outputs=outputs,
        architecture=architecture,
        steps=(ENCODING, passing, *clock, LINKS[link], BETWEEN),
        recipe="survival",
        example=EXAMPLE.replace("{columns}", str(len(model.columns))),
        time={"tensor": "grid", "ends": model.ends.tolist(), "begins": 0.0, "between": "line, of the hazard"},
        drawn=lambda: _build_graph(len(model.columns), {**tensors, "grid": model.ends}, architecture, curves),
    )


def _build_graph(
    columns: int, tensors: Mapping[str, Array], architecture: Mapping[str, Any], curves: bool
) -> Graph:
    """The network, and what it means for survival."""
    graph, intervals, link = Graph({"features": columns}), len(tensors["grid"]), architecture["link"]
    activations = [str(layer["activation"]) for layer in architecture["layers"]]
    if link == "relative":
        _ = _ratios(graph, tensors, activations)
        graph.show("log_risk", intervals if "clock" in tensors else 1)
    else:
        told = stack(graph, "features", tensors, activations)
        _ = graph.add("Identity", told, into="outputs")
        graph.show("outputs", intervals * int(architecture.get("causes", 1)))
    if not curves:
        return graph
    if link == "softmax":
        _chances(graph, intervals, int(architecture["causes"]))
    else:
        hazard = graph.add(
            "CumSum", _hazard_increments(graph, link, tensors), graph.keep(1), into="cumulative_hazard"
        )
        _ = graph.add("Exp", graph.add("Neg", hazard), into="survival")
    graph.show("cumulative_hazard", intervals)
    graph.show("survival", intervals)
    return graph


def _hazard_increments(graph: Graph, link: str, tensors: Mapping[str, Array]) -> str:
    """The hazard that each interval adds."""
    if link == "softplus":
        return graph.add("Softplus", "outputs")
    most = 50.0 if link == "relative" else LARGEST_LOG_RATE
    raised = graph.add(
        "Exp", graph.add("Min", "log_risk" if link == "relative" else "outputs", graph.keep(most))
    )
    if link == "exp":
        return raised
    return graph.add("Mul", raised, graph.keep(tensors["baseline_hazard"], "baseline_hazard"))


def _ratios(graph: Graph, tensors: Mapping[str, Array], activations: Sequence[str]) -> str:
    """Log hazard ratios: what the network says, less what it says of a record of zeros."""
    told = _network_outputs(graph, "features", tensors, activations)
    return graph.add("Sub", told, graph.keep(tensors["reference"], "reference"), into="log_risk")


def _network_outputs(
    graph: Graph, entry: str, tensors: Mapping[str, Array], activations: Sequence[str]
) -> str:
    """What the network says to features, with every time of the clock if it has one."""
    if "clock" not in tensors:
        return stack(graph, entry, tensors, activations)
    # The first layer is linear: what the time adds to it is known for each interval.
    weight, clock = tensors["layers.0.weight"], tensors["clock"]
    told = clock[:, None] * weight[:, -1] + tensors.get("layers.0.bias", np.zeros(len(weight)))
    own = graph.add("Gemm", entry, graph.keep(weight[:, :-1], "layers.0.features"), transB=1)
    each = graph.add("Unsqueeze", own, graph.keep(np.array([1])))
    current = graph.activation(graph.add("Add", each, graph.keep(told, "layers.0.clock")), activations[0])
    flat = graph.add("Reshape", current, graph.keep(np.array([-1, len(weight)])))
    last = stack(graph, flat, tensors, activations, first=1)
    return graph.add("Reshape", last, graph.keep(np.array([-1, len(clock)])))


def _chances(graph: Graph, intervals: int, causes: int) -> None:
    """Chances, and what is left of them after each interval."""
    scores = graph.add("Pad", "outputs", graph.keep(np.array([0, 0, 0, 1])))
    chances = graph.add("Softmax", scores, into="chances", axis=1)
    graph.show("chances", causes * intervals + 1)
    ends = [np.array([causes * intervals]), np.array([causes * intervals + 1])]
    first, last, axis = graph.keep(np.array([0])), graph.keep(ends[0]), graph.keep(np.array([1]))
    seen = graph.add("Slice", chances, first, last, axis)
    beyond = graph.add("Slice", chances, last, graph.keep(ends[1]), axis)
    by_cause = graph.add("Reshape", seen, graph.keep(np.array([-1, causes, intervals])))
    either = graph.add("ReduceSum", by_cause, axis, keepdims=0)
    every = graph.add("Concat", either, beyond, axis=1)
    later = graph.add("CumSum", every, graph.keep(1), reverse=1, exclusive=1)
    left = graph.add("Slice", later, first, graph.keep(np.array([intervals])), axis, into="survival")
    # Below this, single precision has no logarithm.
    least = graph.add("Max", left, graph.keep(1e-37))
    _ = graph.add("Neg", graph.add("Log", least), into="cumulative_hazard")


def _regression(model: CoxFit) -> ModelParts:
    raw = (
        "features as the run's records had them: this kind of run does not keep how raw columns were encoded"
    )
    return ModelParts(
        tensors={
            "coefficients": model.coefficients,
            "standard_errors": model.standard_errors,
            "covariance": model.covariance,
        },
        inputs={"features": list(model.columns), "how": raw},
        outputs={"log_risk": "the log hazard ratio against a record of zeros (records,)"},
        architecture={
            "kind": "linear", "ties": model.ties, "strata": model.strata, "records": model.records,
            "events": model.events, "provenance": model.provenance,
        },
        steps=("The log hazard ratio is features @ coefficients. No baseline hazard is known, so no curve.",),
        recipe="regression",
        example="\n_, tensors = load_model()\n"
        f"print(log_risk(tensors, np.zeros((1, {len(model.columns)}))))\n",
        instead=f"a Cox regression {NOT_A_NETWORK}",
    )  # fmt: skip


def _curve(model: KaplanMeierFit) -> ModelParts:
    found = model.survival
    columns = [str(name) for name in found.table.columns]
    tensors = {name.replace(" ", "_"): found.table[name].to_numpy(dtype=np.float64) for name in columns}
    tensors["time"] = found.table.index.to_numpy(dtype=np.float64)
    hazard = model.hazard
    tensors["cumulative_hazard"] = hazard.table[hazard.curves[0]].to_numpy(dtype=np.float64)
    between = "line" if found.spread else "step"
    known = {} if np.isinf(found.until) else {"until": float(found.until)}
    return ModelParts(
        tensors=tensors,
        inputs={"times": "times at which the curve is wanted, at least 0"},
        outputs={"survival": "the chance of no event up to each time", "lower, upper": "its band"},
        architecture={"kind": "kaplan-meier", "level": model.level, "provenance": found.provenance},
        steps=(
            "The tensor survival holds the curve at the times of the tensor time.",
            "Between two times it is a straight line."
            if found.spread
            else "Between two times it stays at the first.",
            "Beyond the last time that is known it stays where it is.",
        ),
        recipe="curve",
        example='\ncard, tensors = load_model()\nprint(survival(card, tensors, tensors["time"]))\n',
        time=cast("dict[str, Any]", {"tensor": "time", "between": between, **known}),
        instead=f"a survival curve {NOT_A_NETWORK}",
    )
