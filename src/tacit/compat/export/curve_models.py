"""Models of curves in parts: surfaces, the functions that they are made of, and what makes curves numbers."""

from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from tacit.compat.export.parts import ModelParts
from tacit.functional.curves import smoothing
from tacit.functional.curves.basis import Basis, BSplines, frame
from tacit.functional.model import POINTS, Model

Array = NDArray[np.float64]

STEPS = (
    "A curve has the center of its predictor subtracted and is divided by its scale.",
    "Its coordinates are a penalised least-squares fit to its observations, in the functions of its basis "
    "times mixing: the mean square of residuals plus smooth times relative roughness. What observations "
    "leave open is settled by a tiny ridge, whose bias is taken back by doubling. The first coordinates are "
    "kept, and shortened to length reach where there is one.",
    "Predicted coordinates are mean.RESPONSE plus the sum over needed predictors of "
    "(coordinates - mean.NAME) @ coefficients.NAME.",
    "The response is the functions of its basis times the first columns of mixing, times predicted "
    "coordinates; times its scale, plus its center.",
    "surfaces.NAME shows beta(s, t) at the times of times.NAME and times.RESPONSE: the response moves by the "
    "integral of (curve - its mean) times the surface.",
)
EXAMPLE = """
card, tensors = load_model()
curves = {name: (tensors[f"times.{name}"], np.zeros((1, 101))) for name in card["inputs"]["needed"]}
print(predict(card, tensors, curves, tensors[f"times.{card['architecture']['response']['name']}"]))
"""


def model_parts(task: object, model: object) -> ModelParts | None:
    """A model of curves in parts; None for any other model."""
    if not isinstance(model, Model):
        return None
    tensors = dict[str, Array]()
    given = {name: _curve(model, name, tensors) for name in (*model.predictors, model.response)}
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
        inputs={"needed": list(model.selected), "curves": given, "how": STEPS[0]},
        outputs={
            model.response: "the predicted curve of each subject at the times asked for (subjects, times)"
        },
        architecture={
            "kind": "functional linear",
            "response": response,
            "smoothing": rules,
            "steps": model.steps,
        },
        steps=STEPS,
        recipe="curves",
        example=EXAMPLE,
        instead=(
            "a model of curves is no network, and its numbers are in model.safetensors: leave --onnx "
            "(onnx=True) out"
        ),
    )


def _curve(model: Model, name: str, tensors: dict[str, Array]) -> dict[str, Any]:
    """What is done to a curve, and the tensors that it takes; predictors alike share them."""
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
    """A basis as plain data; its knots with the domain mapped to [0, 1], those of the ends repeated."""
    told: dict[str, Any] = {"size": basis.size, "domain": list(basis.domain)}
    if not isinstance(basis, BSplines):
        return {"kind": cast(str, getattr(basis, "kind", "fourier")), **told}
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
