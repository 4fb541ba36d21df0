"""Models in parts, for use in other programs: named tensors, and the computation of predictions from them.

Parts hold nothing that is not in the model of a run, which has left the sites already: networks of survival
with their grid, Cox regressions, survival curves; surfaces between curves; the networks of agents; a user's
own network of torch.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from tacit.compat.export.onnx import Graph, Tensors, stack, survival_graph
from tacit.control.agents.policy import Policy
from tacit.control.networks import Layers
from tacit.control.tasks import PPO
from tacit.errors import InvalidValue
from tacit.functional.curves import smoothing
from tacit.functional.curves.basis import Basis, BSplines, Fourier, frame
from tacit.functional.model import POINTS, Model
from tacit.learning.perceptron import Layer, Squared
from tacit.learning.task import Task
from tacit.runtime.arrays import Array, as_array, as_numpy
from tacit.sites.encoding import Encoding
from tacit.survival.models.cox_loss import Pairs
from tacit.survival.models.feature_scaling import BEND, WEIGHT
from tacit.survival.models.losses import PoissonLoss
from tacit.survival.models.newton_ph import NewtonModel
from tacit.survival.models.newton_steps import LARGEST
from tacit.survival.models.prediction import GridModel, HazardModel, IncidenceModel, RelativeModel
from tacit.survival.statistics.cox_fit import CoxFit
from tacit.survival.statistics.kaplan_meier_task import KaplanMeierFit

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True, eq=False, kw_only=True)
class ModelParts:
    """A model in parts.

    Args:
        tensors: Its numbers, by name.
        inputs: The inputs: names, order, and transformations of raw values.
        outputs: The outputs and their meaning.
        architecture: The architecture of the network or the form of the model.
        steps: The computation of predictions, in sentences, for programmers of other languages.
        recipe: The template in `recipes/` of the Python that does so with numpy alone, if there is one.
        example: Lines that use it, or lines of their own.
        time: The grid of time, where there is one.
        drawn: Draws the network as a graph; None if it is not one.
        instead: The reason that there is no graph, and the alternative.
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
        "The log hazard ratio is the output less that of a record of zeros, the reference; above 50 it "
        "counts as 50. Each interval adds its baseline hazard times e^ratio to the cumulative hazard."
    ),
}
CLOCK = (
    "The last input of the network is the time: the middle of each interval, as clock has it; so a record "
    "has one ratio for each interval."
)
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
SURVIVAL_EXAMPLE = """
card, tensors = load_model()
features = np.zeros((1, {columns}))  # or encode(card, {"column": [values], ...})
print(survival(card, tensors, features, tensors["grid"]))
"""
NOT_A_NETWORK = "is not a network; its numbers are in model.safetensors: leave --onnx (onnx=True) out"
CURVES_STEPS = (
    "A curve has the center of its predictor subtracted and is divided by its scale.",
    "Its coordinates are a penalized least-squares fit to its observations, in the functions of its basis "
    "times mixing: the mean square of residuals plus smooth times relative roughness. A small ridge makes "
    "the solution unique, and a doubling step removes its bias. The first coordinates are kept, and "
    "shortened to length reach where there is one.",
    "Predicted coordinates are mean.RESPONSE plus the sum over needed predictors of "
    "(coordinates - mean.NAME) @ coefficients.NAME.",
    "The response is the functions of its basis times the first columns of mixing, times predicted "
    "coordinates; times its scale, plus its center.",
    "surfaces.NAME shows beta(s, t) at the times of times.NAME and times.RESPONSE: the response moves by the "
    "integral of (curve - its mean) times the surface.",
)
CURVES_EXAMPLE = """
card, tensors = load_model()
curves = {name: (tensors[f"times.{name}"], np.zeros((1, 101))) for name in card["inputs"]["needed"]}
print(predict(card, tensors, curves, tensors[f"times.{card['architecture']['response']['name']}"]))
"""
POLICY_STEPS = (
    "An observation, flattened, has center subtracted and is divided by scale.",
    "It passes through the layers of the actor: current @ weight.T + bias, and tanh between layers.",
    "A softmax of the outputs gives the chance of each action; the greedy action is the likeliest.",
)
CRITIC = "The critic is a network alike with one output: the expected return, in the units of training."
POLICY_EXAMPLE = """
card, tensors = load_model()
print(actions(card, tensors, np.zeros((1, {columns}))))
"""
MODULE_EXAMPLE = """\
from safetensors.torch import load_file

module = ...  # your own network, made as it was for the run
module.load_state_dict(load_file("{file}"))
"""
MODULE_INSTEAD = (
    "this network is not a plain stack of linear layers and known activations: export it with "
    "torch.onnx.export(run.model, ...), which traces what your code does"
)


def model_parts(task: Task, model: object) -> ModelParts:
    """The parts of a model that a task has learned.

    Raises:
        InvalidValue: Its kind is not known here.
    """
    match model:
        case RelativeModel():
            return _relative(model)
        case HazardModel():
            return _hazards(model)
        case NewtonModel():
            return _network(model, _bounded_tensors(model), {"link": "bounded"})
        case CoxFit():
            return _regression(model)
        case KaplanMeierFit():
            return _kaplan_meier(model)
        case Model():
            return _curve_model(model)
        case Policy():
            # A critic that sites keep to themselves is in no model.
            return _policy(model, shared=not isinstance(task, PPO) or task.share == "all")
        case _:
            return _module(task, model)


def layers_of(layers: Sequence[Layer], weights: Array) -> tuple[dict[str, Array], list[dict[str, Any]]]:
    """Return the tensors of each layer by name, and the layers' descriptions."""
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
    rules = {
        "levels": dict(encoding.levels), "fill": dict(encoding.fill), "center": dict(encoding.center),
        "scale": dict(encoding.scale),
    }  # fmt: skip
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


def _network(model: GridModel, tensors: Tensors, architecture: Mapping[str, Any]) -> ModelParts:
    link, curves = (
        str(architecture["link"]),
        "baseline_hazard" in tensors or architecture["link"] != "relative",
    )
    outputs = {"outputs": "output of the network (records, outputs)"}
    if link == "relative":
        outputs = {"log_risk": "the log hazard ratio against a record of zeros (records, 1 or intervals)"}
    if link == "bounded":
        outputs = {"log_risk": LOG_RISK}
    if link == "softmax":
        outputs["chances"] = "the chance of every interval, cause by cause, and of the time beyond the grid"
    if curves:
        outputs["cumulative_hazard"] = (
            "the cumulative hazard at the end of each interval (records, intervals)"
        )
        outputs["survival"] = "the chance of no event up to the end of each interval (records, intervals)"
    clock = [CLOCK] if "clock" in tensors else []
    passing = "Features pass through the layers: current @ weight.T + bias, then the activation."
    steps = _bounded_steps(tensors) if link == "bounded" else (passing, *clock, LINKS[link])
    return ModelParts(
        tensors={**tensors, "grid": model.ends},
        inputs=_inputs(model.columns, model.encoding),
        outputs=outputs,
        architecture=architecture,
        steps=(ENCODING, *steps, BETWEEN),
        recipe="survival",
        example=SURVIVAL_EXAMPLE.replace("{columns}", str(len(model.columns))),
        time={"tensor": "grid", "ends": model.ends.tolist(), "begins": 0.0, "between": "line, of the hazard"},
        drawn=lambda: survival_graph(
            len(model.columns), {**tensors, "grid": model.ends}, architecture, curves
        ),
    )


def _bounded_tensors(model: NewtonModel) -> dict[str, NDArray[np.generic]]:
    """Return scaling, effects and baseline hazard; `bent` only where effects have hinges."""
    bent = {"bent": np.array(model.bent, dtype=np.int64)} if model.bent else {}
    scaling = {name: np.asarray(values) for name, values in vars(model.scale).items()}
    return {
        **scaling,
        **bent,
        "effects": model.point.effects[1:],
        "baseline_hazard": np.exp(model.log_baseline),
    }


def _bounded_steps(tensors: Tensors) -> tuple[str, ...]:
    """Return the computation of the hazard, in sentences."""
    return (SCALING, *([HINGES] if "bent" in tensors else []), HAZARD)


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


def _kaplan_meier(model: KaplanMeierFit) -> ModelParts:
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
        inputs={"times": "times of the curve, at least 0"},
        outputs={"survival": "the chance of no event up to each time", "lower, upper": "its band"},
        architecture={"kind": "kaplan-meier", "level": model.level, "provenance": found.provenance},
        steps=(
            "The tensor survival holds the curve at the times of the tensor time.",
            "Between two times it is a straight line."
            if found.spread
            else "Between two times it has the value at the first.",
            "Beyond the last known time it is constant.",
        ),
        recipe="curve",
        example='\ncard, tensors = load_model()\nprint(survival(card, tensors, tensors["time"]))\n',
        time=cast("dict[str, Any]", {"tensor": "time", "between": between, **known}),
        instead=f"a survival curve {NOT_A_NETWORK}",
    )


def _curve_model(model: Model) -> ModelParts:
    tensors = dict[str, Array]()
    given = {name: _describe_curve(model, name, tensors) for name in (*model.predictors, model.response)}
    for name, place in model.places.items():
        tensors[f"coefficients.{name}"] = model.boosted.coefficients[place]
        tensors[f"mean.{name}"] = model.means[place]
        if name in model.selected:
            tensors[f"surfaces.{name}"] = model.surface(name)
    tensors[f"mean.{model.response}"] = model.mean_y
    rules = {
        "smooth": model.smooth,
        "ridge": smoothing.LEAST,
        "clip": [smoothing.FLATTEST, smoothing.ROUGHEST],
        "doublings": smoothing.DOUBLINGS,
    }
    response = {"name": model.response, **given.pop(model.response)}
    return ModelParts(
        tensors=tensors,
        inputs={"needed": list(model.selected), "curves": given, "how": CURVES_STEPS[0]},
        outputs={
            model.response: "the predicted curve of each subject at the times asked for (subjects, times)"
        },
        architecture={
            "kind": "functional linear",
            "response": response,
            "smoothing": rules,
            "steps": model.steps,
        },
        steps=CURVES_STEPS,
        recipe="curves",
        example=CURVES_EXAMPLE,
        instead=(
            "a model of curves is not a network; its numbers are in model.safetensors: leave --onnx "
            "(onnx=True) out"
        ),
    )


def _describe_curve(model: Model, name: str, tensors: dict[str, Array]) -> dict[str, Any]:
    """Describe the transformation of a curve and add its tensors, which equal predictors share."""
    own = model.frames[name]
    whole, basis = frame(own.basis), _basis(own.basis)
    place = next(
        (
            stem
            for stem in (f"bases.{number}" for number in range(len(model.frames)))
            if f"{stem}.mixing" not in tensors or np.array_equal(tensors[f"{stem}.mixing"], whole.mixing)
        ),
        "bases.0",
    )
    tensors[f"{place}.mixing"], tensors[f"{place}.roughness"] = whole.mixing, whole.roughness
    tensors[f"times.{name}"] = np.linspace(*own.domain, POINTS)
    reach = {"reach": model.reach[name]} if name in model.reach else {}
    return {
        "basis": basis,
        "mixing": f"{place}.mixing",
        "roughness": f"{place}.roughness",
        "coordinates": own.size,
        "center": model.center.get(name, 0.0),
        "scale": model.scale.get(name, 1.0),
        **reach,
    }


def _basis(basis: Basis) -> dict[str, Any]:
    """Describe a basis as plain data, with its knots on [0, 1] and those of the ends repeated."""
    told: dict[str, Any] = {"size": basis.size, "domain": list(basis.domain)}
    if not isinstance(basis, BSplines):
        return {"kind": basis.kind if isinstance(basis, Fourier) else type(basis).__name__, **told}
    low, high = basis.domain
    inner = (
        np.linspace(0.0, 1.0, basis.size - basis.order + 2)
        if basis.knots is None
        else np.concatenate([[0.0], (np.array(basis.knots) - low) / (high - low), [1.0]])
    )
    return {
        "kind": basis.kind,
        **told,
        "order": basis.order,
        "knots": np.pad(inner, basis.order - 1, mode="edge").tolist(),
    }


def _policy(model: Policy, *, shared: bool) -> ModelParts:
    actor, critic = model.shape.layers(model.weights)
    networks = {"actor": actor, **({"critic": critic} if shared else {})}
    tensors = {
        name: values for part, found in networks.items() for name, values in _named_tensors(part, found)
    }
    tensors |= {"center": model.center, "scale": model.scale}
    outputs = {"logits": "score of each action (observations, actions)"}
    if shared:
        outputs["value"] = "expected return from here on, in the units of training (observations,)"
    outputs["action"] = "the likeliest action (observations,)"
    known = {"env": model.env.name} if model.env is not None else {}
    return ModelParts(
        tensors=tensors,
        inputs={
            "observation": model.shape.inputs, "how": POLICY_STEPS[0], "center": model.center.tolist(),
            "scale": model.scale.tolist(), **known,
        },
        outputs=outputs,
        architecture={
            "kind": "actor and critic" if shared else "actor",
            **{part: _describe_layers(found) for part, found in networks.items()},
        },
        steps=(*POLICY_STEPS, *([CRITIC] if shared else [])),
        recipe="policy",
        example=POLICY_EXAMPLE.replace("{columns}", str(model.shape.inputs)),
        drawn=lambda: _policy_graph(model, tensors, list(networks)),
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


def _policy_graph(model: Policy, tensors: dict[str, Array], parts: list[str]) -> Graph:
    """Return the graph of both networks on raw observations."""
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


def _module(task: Task, model: object) -> ModelParts:
    """Export a module of torch: its tensors by torch's names, and a graph of a plain stack of layers."""
    # A module of torch can exist only if torch is imported.
    if sys.modules.get("torch") is not None:
        from torch import nn

        if isinstance(model, nn.Module):
            return _module_parts(model)
    raise InvalidValue(
        f"task = {task.kind!r} cannot be exported: its model is of unknown type, {type(model).__name__}; its "
        "numbers are in run.state"
    )


def _module_parts(module: "nn.Module") -> ModelParts:
    from tacit.learning.torch_modules import perceptron_of

    tensors = {name: as_numpy(values) for name, values in module.state_dict().items()}
    told: dict[str, Any] = {"kind": "module", "module": str(module)}
    given: dict[str, Any] = {"how": "as your network takes them"}
    drawn = None
    # The loss plays no part in what a network says.
    plain = perceptron_of(module, Squared())
    if plain is not None:
        layers = plain.layers
        weights = np.concatenate([as_array(values).ravel() for values in tensors.values()])
        named, told["layers"] = layers_of(layers, weights)
        given = {"columns": layers[0].inputs, "how": "the columns of the federation, in its order"}
        drawn = partial(_module_graph, named, layers)
    return ModelParts(
        tensors=tensors,
        inputs=given,
        outputs={"outputs": "output of your network (records, outputs)"},
        architecture=told,
        steps=("Load the tensors into your own network, by name.",),
        recipe=None,
        example=MODULE_EXAMPLE,
        drawn=drawn,
        instead=MODULE_INSTEAD,
    )


def _module_graph(tensors: Mapping[str, Array], layers: Sequence[Layer]) -> Graph:
    graph = Graph({"features": layers[0].inputs})
    told = stack(graph, "features", tensors, [layer.activation for layer in layers])
    _ = graph.add("Identity", told, into="outputs")
    graph.show("outputs", layers[-1].outputs)
    return graph
