"""Agents in parts: the network that acts, the one that judges if it was learnt, and what they are shown."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.compat.export.onnx import Graph, stack
from tacit.compat.export.parts import ModelParts
from tacit.control.agents.policy import Policy
from tacit.control.networks import Layers

Array = NDArray[np.float64]

STEPS = (
    "An observation, flattened, has center subtracted and is divided by scale.",
    "It passes through the layers of the actor: current @ weight.T + bias, and tanh between layers.",
    "A softmax of the outputs gives the chance of each action; the greedy action is the likeliest.",
)
CRITIC = (
    "The critic is a network alike with one output: what is expected to be earned, in the units of training."
)
EXAMPLE = """
card, tensors = load_model()
print(actions(card, tensors, np.zeros((1, {columns}))))
"""


def model_parts(task: object, model: object) -> ModelParts | None:
    """An agent in parts; None for any other model."""
    if not isinstance(model, Policy):
        return None
    actor, critic = model.shape.layers(model.weights)
    # A critic that sites keep to themselves is in no model.
    shared = getattr(task, "share", "all") == "all"
    networks = {"actor": actor, **({"critic": critic} if shared else {})}
    tensors = {
        name: values for part, found in networks.items() for name, values in _named_tensors(part, found)
    }
    tensors |= {"center": model.center, "scale": model.scale}
    outputs = {"logits": "how much speaks for each action (observations, actions)"}
    if shared:
        outputs["value"] = (
            "what is expected to be earned from here on, in the units of training (observations,)"
        )
    outputs["action"] = "the likeliest action (observations,)"
    known = {"env": model.env.name} if model.env is not None else {}
    return ModelParts(
        tensors=tensors,
        inputs={
            "observation": model.shape.inputs, "how": STEPS[0], "center": model.center.tolist(),
            "scale": model.scale.tolist(), **known,
        },
        outputs=outputs,
        architecture={
            "kind": "actor and critic" if shared else "actor",
            **{part: _describe_layers(found) for part, found in networks.items()},
        },
        steps=(*STEPS, *([CRITIC] if shared else [])),
        recipe="policy",
        example=EXAMPLE.replace("{columns}", str(model.shape.inputs)),
        drawn=lambda: _build_graph(model, tensors, list(networks)),
    )  # fmt: skip


def _named_tensors(part: str, layers: Layers) -> list[tuple[str, Array]]:
    return [
        (f"{part}.layers.{place}.{name}", values)
        for place, (matrix, intercepts) in enumerate(layers)
        for name, values in (("weight", matrix), ("bias", intercepts))
    ]


def _describe_layers(layers: Layers) -> list[dict[str, Any]]:
    last = len(layers) - 1
    return [
        {
            "kind": "linear",
            "inputs": matrix.shape[1],
            "outputs": matrix.shape[0],
            "bias": True,
            "activation": "identity" if place == last else "tanh",
        }
        for place, (matrix, _) in enumerate(layers)
    ]


def _build_graph(model: Policy, tensors: dict[str, Array], parts: list[str]) -> Graph:
    """What both networks say to observations as they are."""
    graph = Graph({"observation": model.shape.inputs})
    shifted = graph.add("Sub", "observation", graph.keep(model.center, "center"))
    seen = graph.add("Div", shifted, graph.keep(model.scale, "scale"))
    activations = [*["tanh"] * len(model.shape.hidden), "identity"]
    logits = stack(graph, seen, tensors, activations, "actor.layers")
    _ = graph.add("Identity", logits, into="logits")
    graph.show("logits", model.shape.actions)
    if "critic" in parts:
        value = stack(graph, seen, tensors, activations, "critic.layers")
        _ = graph.add("Reshape", value, graph.keep(np.array([-1])), into="value")
        graph.show("value", 0)
    _ = graph.add("ArgMax", logits, into="action", axis=1, keepdims=0)
    graph.show("action", 0)
    return graph
