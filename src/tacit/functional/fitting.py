"""From what was released to a model: evidence is made of it, and boosting makes a fit of the evidence."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tacit.functional.boosting.boost import BoostingFit, boost
from tacit.functional.boosting.debias import debias_moments, debias_sums
from tacit.functional.boosting.folds import Sums, fold_sums
from tacit.functional.config import FunctionalConfig
from tacit.functional.curves.basis import Frame
from tacit.functional.metrics import BYTES
from tacit.functional.model import Model, empty_fit
from tacit.privacy.mechanisms.vertical import allocate_noise
from tacit.runtime.keys import Key

if TYPE_CHECKING:
    from tacit.functional.curves import Curves
    from tacit.functional.tasks import Boosting

Array = NDArray[np.float64]
# How much longer than its radius a curve may be that is predicted from: surfaces are known for clipped ones.
BEYOND = 3.0
# Bytes of a number of the ring in which sums are taken in secret.
RING = 4


def from_sums(choices: FunctionalConfig, middle: Array, sums: Sequence[Sums]) -> Model:
    """The model of sums over parts of the subjects, each curve with its noise."""
    cut = len(choices.predictors) * choices.width
    noise = dict.fromkeys(choices.blocks.widths, 0.0)
    if choices.noise is not None and choices.lengths is not None:
        widths = {name: choices.widths[name] for name in choices.lengths}
        noise |= allocate_noise(choices.lengths, widths, choices.noise)
    evidence = debias_sums(
        sums, **_shape(choices),
        variances=[noise[name] ** 2 for name in choices.predictors],
        variance_y=noise[choices.response] ** 2,
    )  # fmt: skip
    return _model(choices, boost(evidence, choices), middle[:cut], middle[cut:])


def from_moments(choices: FunctionalConfig, noisy: Array) -> Model:
    """The model of products of all curves, with their noise."""
    names = (*choices.predictors, choices.response)
    # Without noise, rows are not divided by a radius.
    lengths = None if choices.noise is None else choices.lengths
    radii = [1.0 if lengths is None else lengths[name] for name in names]
    count = choices.blocks.records
    evidence = debias_moments(
        noisy, **_shape(choices), sigma=choices.noise or 0.0, radii=radii, count=count,
        key=Key(0) / "fission",
    )  # fmt: skip
    means = noisy[0, 1:] / count * np.repeat(radii, list(choices.blocks.widths.values()))
    cut = len(choices.predictors) * choices.width
    spread = (choices.noise or 0.0) / math.sqrt(2) / count * radii[-1]
    return _model(choices, boost(evidence, choices), means[:cut], _shrink_mean(means[cut:], spread))


def _shrink_mean(mean: Array, spread: float) -> Array:
    """A mean with noise of this deviation, shrunk by what noise may explain of it (James and Stein)."""
    square, width = float(mean @ mean), len(mean)
    # Three deviations of the squared length of nothing but noise.
    explained = (width + 3 * math.sqrt(2 * width)) * spread**2
    return mean * max(0.0, 1 - explained / square) if square > 0 else mean


def empty_model(choices: FunctionalConfig) -> Model:
    """The model before anything was released."""
    columns, width_y = len(choices.predictors) * choices.width, choices.width_y
    return _model(choices, empty_fit(columns, width_y), np.zeros(columns), np.zeros(width_y))


def without_noise(task: "Boosting", columns: Mapping[str, "Curves"]) -> Model:
    """The model of these curves in one place, without any promise."""
    predictors = tuple(name for name in task.predictors if name in columns)
    # Without noise every coordinate is worth having.
    alone = replace(
        task, predictors=predictors, parties={"here": (*predictors, task.response)}, release="local",
        components=None, components_y=1 if task.components_y == 1 else None, radius=None, noise=None,
        stretch={},
    )  # fmt: skip
    rows = np.hstack([alone.coordinates_of(name, columns[name]) for name in (*predictors, task.response)])
    if predictors:
        cut = rows.shape[1] - alone.width_y
        return from_sums(alone, rows.mean(axis=0), fold_sums(rows[:, :cut], rows[:, cut:], alone.folds))
    return replace(empty_model(alone), mean_y=rows.mean(axis=0))


def _shape(choices: FunctionalConfig) -> dict[str, Any]:
    """What is public about the columns of evidence."""
    names = (*choices.predictors, choices.response)
    return {
        "blocks": choices.blocks.predictors,
        "roughness": [choices.frame_of(name).roughness for name in choices.predictors],
        "roughness_y": choices.frame_of(choices.response).roughness,
        "stretches": [choices.stretch.get(name, 1.0) for name in names] if choices.stretch else None,
    }


def _model(choices: FunctionalConfig, boosted: BoostingFit, means: Array, mean_y: Array) -> Model:
    frames: dict[str, Frame] = {
        name: choices.frame_of(name) for name in (*choices.predictors, choices.response)
    }
    return Model(
        predictors=choices.predictors,
        response=choices.response,
        frames=frames,
        boosted=boosted,
        means=means,
        mean_y=mean_y,
        center=choices.center,
        scale=choices.scale,
        smooth=choices.smooth,
        sent={party: _bytes_sent(choices, party) for party in choices.parties},
        reach={} if choices.noise is None else _clip_radii(choices),
    )


def _clip_radii(choices: FunctionalConfig) -> dict[str, float]:
    return {name: BEYOND * length for name, length in (choices.lengths or {}).items()}


def _bytes_sent(choices: FunctionalConfig, party: str) -> int:
    """How many bytes leave a party, once."""
    blocks, others = choices.blocks, len(choices.parties) - 1
    columns = blocks.column_count(party)
    if choices.secret:
        # Rows that are hidden go to each of the others, and a masked vector of products to the server.
        products = (blocks.columns + 1) * (blocks.columns + 2) // 2
        return RING * (others * blocks.records * columns + products)
    if (
        not choices.release_moments
        and choices.protect == "predictors"
        and choices.response in choices.parties[party]
    ):
        # The active party keeps its response.
        columns -= choices.widths[choices.response]
    return BYTES * blocks.records * columns
