"""Networks as graphs of ONNX: drawn operation by operation, so that no tracer decides what is in the file.

A graph is drawn as plain data; only `encode` needs the package onnx. Operations are those of an old set, so
that runtimes of several years take it. Numbers are in single precision, as runtimes expect.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.errors import require_extra
from tacit.runtime.arrays import Array, as_array
from tacit.survival.models.feature_scaling import BEND, WEIGHT
from tacit.survival.models.losses import LARGEST_LOG_RATE
from tacit.survival.models.newton_steps import LARGEST

Tensors = Mapping[str, NDArray[np.generic]]

# The set of operations, and the form of the file: both of 2022.
OPERATIONS, FORM = 17, 8
BATCH = "batch"


@dataclass(eq=False)
class Graph:
    """An ONNX graph under construction.

    Args:
        inputs: The width of each input, by name; the first axis is the batch.
        nodes: Operations in order: what is done, to what, into what, and how.
        constants: Numbers of the graph, by name.
        outputs: The width of each output, by name, and 0 for a single number without an axis of its own.
    """

    inputs: Mapping[str, int]
    nodes: list[tuple[str, tuple[str, ...], str, dict[str, Any]]] = field(
        default_factory=list[tuple[str, tuple[str, ...], str, dict[str, Any]]]
    )
    constants: dict[str, NDArray[np.generic]] = field(default_factory=dict[str, NDArray[np.generic]])
    outputs: dict[str, int] = field(default_factory=dict[str, int])

    def add(self, operation: str, *entering: str, into: str | None = None, **how: Any) -> str:
        """Add an operation to the graph; return the name of its output."""
        made = into or f"{operation.lower()}_{len(self.nodes)}"
        self.nodes.append((operation, entering, made, how))
        return made

    def keep(self, values: object, name: str | None = None) -> str:
        """Add a constant to the graph; the name to use them by."""
        found = np.asarray(values)
        made = name or f"constant_{len(self.constants)}"
        self.constants[made] = found.astype(np.float32) if found.dtype.kind == "f" else found
        return made

    def show(self, name: str, width: int) -> None:
        """Declare an output of the graph."""
        self.outputs[name] = width

    def layer(self, current: str, tensors: Mapping[str, NDArray[np.float64]], name: str) -> str:
        """Add a linear layer whose tensors have the names of the safetensors file."""
        weight, bias = tensors.get(f"{name}.weight"), tensors.get(f"{name}.bias")
        given = [] if bias is None else [self.keep(bias, f"{name}.bias")]
        if weight is None:
            return self.add("Add", current, *given)
        return self.add("Gemm", current, self.keep(weight, f"{name}.weight"), *given, transB=1)

    def activation(self, current: str, kind: str) -> str:
        """Add the activation of a layer, as in `tacit.learning.perceptron.ACTIVATIONS`."""
        if kind == "identity":
            return current
        if kind == "silu":
            return self.add("Mul", current, self.add("Sigmoid", current))
        if kind == "gelu":
            # x Phi(x): an operation of its own came with a later set.
            bent = self.add("Erf", self.add("Mul", current, self.keep(np.sqrt(0.5))))
            share = self.add("Mul", self.add("Add", bent, self.keep(1.0)), self.keep(0.5))
            return self.add("Mul", current, share)
        return self.add({"relu": "Relu", "elu": "Elu"}.get(kind, kind.capitalize()), current)


def stack(
    graph: Graph,
    current: str,
    tensors: Mapping[str, NDArray[np.float64]],
    activations: Sequence[str],
    prefix: str = "layers",
    first: int = 0,
) -> str:
    """Add layers to a graph, from position `first` on; the name of what comes out."""
    for place, kind in list(enumerate(activations))[first:]:
        current = graph.activation(graph.layer(current, tensors, f"{prefix}.{place}"), kind)
    return current


def survival_graph(columns: int, given: Tensors, architecture: Mapping[str, Any], curves: bool) -> Graph:
    """Build the graph of a survival model: network, hazards, survival."""
    graph, intervals, link = Graph({"features": columns}), len(given["grid"]), architecture["link"]
    tensors = {name: as_array(values) for name, values in given.items()}
    activations = [str(layer["activation"]) for layer in architecture.get("layers", ())]
    if link == "bounded":
        _bounded_log_risk(graph, given)
        graph.show("log_risk", 1)
    elif link == "relative":
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
    """Add the hazard of each interval."""
    if link == "softplus":
        return graph.add("Softplus", "outputs")
    if link == "bounded":
        return _bounded_increments(graph, tensors)
    most = 50.0 if link == "relative" else LARGEST_LOG_RATE
    raised = graph.add(
        "Exp", graph.add("Min", "log_risk" if link == "relative" else "outputs", graph.keep(most))
    )
    if link == "exp":
        return raised
    return graph.add("Mul", raised, graph.keep(tensors["baseline_hazard"], "baseline_hazard"))


def _ratios(graph: Graph, tensors: Mapping[str, Array], activations: Sequence[str]) -> str:
    """Add log hazard ratios: the network's output minus that for a record of zeros."""
    told = _network_outputs(graph, "features", tensors, activations)
    return graph.add("Sub", told, graph.keep(tensors["reference"], "reference"), into="log_risk")


def _network_outputs(
    graph: Graph, entry: str, tensors: Mapping[str, Array], activations: Sequence[str]
) -> str:
    """Add the network to a graph and return its output, at every time if time is an input."""
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
    """Add the probabilities of all intervals, and survival after each."""
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


def _bounded_log_risk(graph: Graph, tensors: Tensors) -> None:
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


def _bounded_increments(graph: Graph, tensors: Tensors) -> str:
    """Add the hazard that each interval adds."""
    baseline = graph.keep(np.log(np.asarray(tensors["baseline_hazard"])), "log_baseline_hazard")
    return graph.add("Exp", graph.add("Min", graph.add("Add", "log_risk", baseline), graph.keep(LARGEST)))


def _shorten(graph: Graph, rows: str) -> str:
    """Shorten rows to length at most 1."""
    length = graph.add("ReduceL2", rows, axes=[1], keepdims=1)
    return graph.add("Div", rows, graph.add("Max", length, graph.keep(1.0)))


def encode(graph: Graph, name: str, words: str, notes: Mapping[str, str]) -> bytes:
    """Encode a graph as an ONNX file, validated by the checker of ONNX.

    Args:
        graph: The graph.
        name: Its name.
        words: Its description.
        notes: Its metadata.
    """
    require_extra("onnx", "onnx", "model.onnx")
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    def value_info(entry: str, width: int, kind: int) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(entry, kind, [BATCH, width] if width else [BATCH])

    integers = {made for operation, _, made, _ in graph.nodes if operation == "ArgMax"}
    made = helper.make_model(
        helper.make_graph(
            nodes=[
                helper.make_node(operation, list(entering), [out], name=out, **how)
                for operation, entering, out, how in graph.nodes
            ],
            name=name,
            inputs=[value_info(entry, width, TensorProto.FLOAT) for entry, width in graph.inputs.items()],
            outputs=[
                value_info(entry, width, TensorProto.INT64 if entry in integers else TensorProto.FLOAT)
                for entry, width in graph.outputs.items()
            ],
            initializer=[
                numpy_helper.from_array(np.ascontiguousarray(values), entry)
                for entry, values in graph.constants.items()
            ],
            doc_string=words,
        ),
        opset_imports=[helper.make_opsetid("", OPERATIONS)],
        ir_version=FORM,
        producer_name="tacit",
        doc_string=words,
    )
    helper.set_model_props(made, dict(notes))
    onnx.checker.check_model(made, full_check=True)
    return made.SerializeToString()
