"""Your own network in parts: its tensors as torch names them; a graph where it is a plain stack of layers."""

from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from tacit.compat.export.onnx import Graph, stack
from tacit.compat.export.parts import ModelParts
from tacit.compat.export.survival_models import layers_of
from tacit.learning.torch_modules import perceptron_of

Array = NDArray[np.float64]

EXAMPLE = """\
from safetensors.torch import load_file

module = ...  # your own network, made as it was for the run
module.load_state_dict(load_file("{file}"))
"""
INSTEAD = (
    "this network is not a plain stack of linear layers and known activations: export it with "
    "torch.onnx.export(run.model, ...), which traces what your code does"
)


def model_parts(task: object, model: object) -> ModelParts | None:
    """A module of torch in parts; None for any other model."""
    from torch import nn

    if not isinstance(model, nn.Module):
        return None
    tensors = {name: values.detach().cpu().numpy() for name, values in model.state_dict().items()}
    # The loss plays no part in what a network says.
    plain = perceptron_of(model, cast(Any, None))
    told: dict[str, Any] = {"kind": "module", "module": str(model)}
    if plain is None:
        return _make_parts(tensors, told, {"how": "as your network takes them"}, None)
    layers = plain.layers
    weights = np.concatenate([values.ravel().astype(np.float64) for values in tensors.values()])
    named, told["layers"] = layers_of(layers, weights)
    given = {"columns": layers[0].inputs, "how": "the columns of the federation, in its order"}

    def build_graph() -> Graph:
        graph = Graph({"features": layers[0].inputs})
        said = stack(graph, "features", named, [layer.activation for layer in layers])
        _ = graph.add("Identity", said, into="outputs")
        graph.show("outputs", layers[-1].outputs)
        return graph

    return _make_parts(tensors, told, given, build_graph)


def _make_parts(tensors: Any, told: dict[str, Any], given: dict[str, Any], drawn: Any) -> ModelParts:  # noqa: ANN401
    return ModelParts(
        tensors=tensors,
        inputs=given,
        outputs={"outputs": "what your network says (records, outputs)"},
        architecture=told,
        steps=("Load the tensors into your own network, by name.",),
        recipe=None,
        example=EXAMPLE,
        drawn=drawn,
        instead=INSTEAD,
    )
