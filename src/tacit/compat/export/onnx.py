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
        """Numbers of the graph; the name to use them by."""
        found = np.asarray(values)
        made = name or f"constant_{len(self.constants)}"
        self.constants[made] = found.astype(np.float32) if found.dtype.kind == "f" else found
        return made

    def show(self, name: str, width: int) -> None:
        """Declare an output of the graph."""
        self.outputs[name] = width

    def layer(self, current: str, tensors: Mapping[str, NDArray[np.float64]], name: str) -> str:
        """A linear layer, its numbers called as they are in the file of tensors."""
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
    """Layer upon layer, from some place on; the name of what comes out."""
    for place, kind in list(enumerate(activations))[first:]:
        current = graph.activation(graph.layer(current, tensors, f"{prefix}.{place}"), kind)
    return current


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
