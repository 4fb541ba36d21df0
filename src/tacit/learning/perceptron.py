"""Multilayer perceptrons by the closed form: gradients of every record without writing them out.

The gradient of one record in a linear layer is an outer product of what went in and what came back, so its
length is a product of two lengths, and a sum of clipped gradients is one matrix product (Goodfellow 2015). A
whole cohort is then a handful of batched products. Double precision throughout; what comes of a record or a
group has the same bits in batches of any shape, beside any other site. Losses with a name have their slopes
in the outputs in closed form, too.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, ndtr

from tacit.errors import require_weights
from tacit.learning import elementwise, kernels
from tacit.learning.batches import Batch, Marks
from tacit.learning.elementwise import exp
from tacit.learning.kernels import lengths
from tacit.privacy.contracts import Norm
from tacit.runtime.arrays import Array
from tacit.runtime.jit import contiguous
from tacit.sites.table import Table

LossName = Literal["squared", "logistic", "cross-entropy"]


@dataclass(frozen=True)
class Squared:
    """Half the squared distance between the first output and the target `y`."""

    def slopes(self, outputs: Array, targets: Mapping[str, Array], present: Marks) -> Array:
        """The gradient in the outputs."""
        slopes = np.zeros(outputs.shape)
        np.subtract(outputs[..., 0], targets["y"], out=slopes[..., 0])
        return slopes


@dataclass(frozen=True)
class Logistic:
    """Negative log-likelihood of a target `y` of 0 or 1 whose log-odds are the first output."""

    def slopes(self, outputs: Array, targets: Mapping[str, Array], present: Marks) -> Array:
        """The gradient in the outputs."""
        slopes = np.zeros_like(outputs)
        slopes[..., 0] = expit(outputs[..., 0]) - targets["y"]
        return slopes


@dataclass(frozen=True)
class CrossEntropy:
    """Negative log-likelihood of a class `y` (0, 1, ...) whose scores are the outputs."""

    def slopes(self, outputs: Array, targets: Mapping[str, Array], present: Marks) -> Array:
        """The gradient in the outputs."""
        chances = exp(outputs - outputs.max(axis=-1, keepdims=True))
        chances /= chances.sum(axis=-1, keepdims=True)
        return chances - (targets["y"][..., None] == np.arange(outputs.shape[-1], dtype=np.float64))


NAMED: dict[LossName, Squared | Logistic | CrossEntropy] = {
    "squared": Squared(),
    "logistic": Logistic(),
    "cross-entropy": CrossEntropy(),
}


# An activation, and its slope from the input and the output.
Activation = tuple[Callable[[Array], Array], Callable[[Array, Array], Array | Marks]]


def _gelu(inputs: Array) -> Array:
    return inputs * np.asarray(ndtr(inputs), dtype=np.float64)


def _gelu_slope(inputs: Array, outputs: Array) -> Array:
    density = elementwise.exp(-(inputs**2) / 2) / np.sqrt(2 * np.pi)
    return np.asarray(ndtr(inputs), dtype=np.float64) + inputs * density


def _sigmoid(inputs: Array) -> Array:
    return np.asarray(expit(inputs), dtype=np.float64)


ACTIVATIONS: Mapping[str, Activation] = {
    "identity": (lambda z: z, lambda z, a: np.ones(1)),
    "relu": (lambda z: np.maximum(z, 0.0), lambda z, a: a > 0),
    "tanh": (elementwise.tanh, lambda z, a: 1 - a**2),
    "sigmoid": (_sigmoid, lambda z, a: a * (1 - a)),
    "silu": (lambda z: z * _sigmoid(z), lambda z, a: a + _sigmoid(z) * (1 - a)),
    "gelu": (_gelu, _gelu_slope),
    "softplus": (lambda z: np.logaddexp(0.0, z), lambda z, a: _sigmoid(z)),
    "elu": (
        lambda z: np.where(z > 0, z, elementwise.expm1(np.minimum(z, 0.0))),
        lambda z, a: np.where(z > 0, 1, a + 1),
    ),
}


class Loss(Protocol):
    """Loss, given by its slope in the outputs of the network."""

    def slopes(self, outputs: Array, targets: Mapping[str, Array], present: Marks) -> Array:
        """The gradient of each unit's loss in its outputs (sites, units, members, outputs), a new array."""
        ...


@dataclass(frozen=True)
class Layer:
    """A linear layer and the activation behind it; `start` is where its weights begin in the flat vector.

    A layer without inputs has biases alone: it spreads a single number over its outputs and shifts each.
    """

    inputs: int
    outputs: int
    bias: bool
    activation: str
    start: int

    @cached_property
    def middle(self) -> int:
        """End of its weights, and beginning of its biases, in the flat vector."""
        return self.start + self.outputs * self.inputs

    @cached_property
    def end(self) -> int:
        """End of its coordinates in the flat vector."""
        return self.middle + self.bias * self.outputs

    @cached_property
    def blocks(self) -> bool:
        """True if BLAS may take products of this shape in blocks of rows."""
        return kernels.position_independent(self.inputs, self.outputs)

    @property
    def rectified(self) -> bool:
        """True if the compiled layer includes its activation."""
        return self.activation == "relu"

    def matrices(self, weights: Array) -> Array:
        """The weights of each site (sites, outputs, inputs), as a view."""
        return weights[:, self.start : self.middle].reshape(len(weights), self.outputs, self.inputs)

    def forward(self, weights: Array, current: Array) -> tuple[Array, Array]:
        """Return input and output of the activation, from the layer's inputs (sites, records, inputs).

        The same array twice, where the activation can do without the first.
        """
        self._fit(weights, len(current), current.shape[2], self.outputs)
        if self.inputs == 0:
            made = current + self.biases(weights)[:, None]
        else:
            made = np.empty((*current.shape[:2], self.outputs))
            kernels.layer_forward(
                contiguous(current),
                contiguous(weights),
                self.start,
                self.bias,
                self.rectified,
                self.blocks,
                made,
            )
        known = self.activation == "identity" or (self.rectified and self.inputs > 0)
        return made, made if known else ACTIVATIONS[self.activation][0](made)

    def backward(self, weights: Array, back: Array, entered: Array, *, rectified: bool) -> Array:
        """Return the gradient with respect to the layer's inputs, from that of its activation's inputs.

        Args:
            weights: The weights of each site.
            back: The gradient that is known.
            entered: Inputs of the layer.
            rectified: Whether what went in came out of a rectifier, through which to go back as well.
        """
        self._fit(weights, len(back), entered.shape[2], back.shape[2])
        if self.inputs == 0:
            # Summed along rows of one public width: the order of summation does not depend on their number.
            single = contiguous(back).sum(axis=2, keepdims=True)
            return single * (entered > 0) if rectified else single
        under = np.empty((*back.shape[:2], self.inputs))
        kernels.layer_backward(
            contiguous(back),
            contiguous(weights),
            self.start,
            contiguous(entered),
            rectified,
            self.blocks,
            under,
        )
        return under

    def _fit(self, weights: Array, sites: int, inputs: int, outputs: int) -> None:
        """Refuse arrays that do not fit: compiled code would read beyond their end."""
        known = (len(weights), self.inputs or 1, self.outputs)
        if (sites, inputs, outputs) != known or weights.shape[1] < self.end:
            raise ValueError(
                f"{inputs} numbers in, {outputs} out and {weights.shape[1]} weights of {len(weights)} for "
                f"{sites} sites do not fit a layer of {self.inputs} inputs and {self.outputs} outputs that "
                f"ends at {self.end}"
            )

    def biases(self, weights: Array) -> Array:
        """The biases of each site (sites, outputs), as a view."""
        return weights[:, self.middle : self.end]


class Perceptron:
    """A stack of linear layers with element-wise activations, its parameters in the order torch has them."""

    # About the size of a cache. Measured with 100 sites: half of that is a tenth slower, twice that no
    # faster.
    working_numbers = 800_000

    def __init__(self, layers: Sequence[Layer], loss: Loss) -> None:
        self.layers = tuple(layers)
        self.loss = loss
        self.size = self.layers[-1].end
        self.numbers_per_record = sum(2 * layer.inputs + 3 * layer.outputs for layer in self.layers)

    def outputs(self, weights: Array, features: Array) -> Array:
        """Return the network's outputs (sites, records, outputs) for features (sites, records, columns)."""
        return forward(self.layers, weights, features)[-1][1]

    def contributions(self, weights: Array, batch: Batch, store: Table) -> "OuterProducts":
        """The gradients of every unit of a batch, one row of weights for each site."""
        sites, units, members = batch.rows.shape
        flat, here = batch.rows.reshape(sites, -1), batch.present.reshape(sites, -1)
        # Counting is the fastest way to ask about all.
        inputs, full = store.features.take(flat, axis=0), np.count_nonzero(here) == here.size
        if not full:
            # Padding must not carry the influence of any record, however broken it is.
            inputs[~here] = 0.0
        targets = {name: values.take(batch.rows, axis=0) for name, values in store.targets.items()}

        def slopes(outputs: Array) -> Array:
            shaped = outputs.reshape(sites, units, members, -1)
            back = self.loss.slopes(shaped, targets, batch.present).reshape(outputs.shape)
            return back if full else np.where(here[:, :, None], back, 0.0)

        return self.products(weights, inputs, units, slopes, counts_of(here), grouped=batch.grouped)

    def products(
        self,
        weights: Array,
        inputs: Array,
        units: int,
        slopes: Callable[[Array], Array],
        counts: NDArray[np.int64] | None = None,
        *,
        grouped: bool = False,
    ) -> "OuterProducts":
        """Return the gradients of units, from inputs and the slopes of the loss in the outputs."""
        passed = forward(self.layers, weights, inputs)
        activations = [inputs, *(outputs for _, outputs in passed[:-1])]
        signals = backward(self.layers, weights, activations, passed, slopes(passed[-1][1]))[0]
        entering = [
            values[:, :, : layer.inputs] for layer, values in zip(self.layers, activations, strict=True)
        ]
        return OuterProducts(self.layers, entering, signals, units, counts, grouped=grouped)


def counts_of(here: Marks) -> NDArray[np.int64]:
    """Return the number of places of each site (sites, places) up to its last member."""
    last = here.shape[1] - here[:, ::-1].argmax(axis=1)
    return np.where(here.any(axis=1), last, 0)


def forward(layers: Sequence[Layer], weights: Array, current: Array) -> list[tuple[Array, Array]]:
    """Return the inputs and outputs of every activation."""
    passed: list[tuple[Array, Array]] = []
    for layer in layers:
        passed.append(layer.forward(weights, current))
        current = passed[-1][1]
    return passed


def backward(
    layers: Sequence[Layer],
    weights: Array,
    entered: Sequence[Array],
    passed: Sequence[tuple[Array, Array]],
    back: Array,
    *,
    whole: bool = False,
) -> tuple[list[Array], Array]:
    """Backpropagate from the outputs to the input of every activation.

    Args:
        layers: The layers.
        weights: The weights of each site.
        entered: Inputs of each layer.
        passed: Input and output of each activation.
        back: The gradient in the outputs.
        whole: Whether the gradient in what went into the first layer is asked for too; it comes last.
    """
    signals: list[Array] = []
    for place in range(len(layers) - 1, -1, -1):
        layer, last = layers[place], place == len(layers) - 1
        # Rectifiers between layers have been gone through on the way to them.
        if layer.activation != "identity" and (last or not layer.rectified):
            back = back * ACTIVATIONS[layer.activation][1](*passed[place])
        signals.append(back)
        if place or whole:
            rectified = place > 0 and layers[place - 1].rectified
            back = layer.backward(weights, back, entered[place], rectified=rectified)
    return signals[::-1], back


class OuterProducts:
    """Gradients as outer products (`tacit.privacy.mechanisms.base.Contributions`).

    Args:
        layers: The layers.
        inputs: Inputs of each layer (sites, units x members, inputs).
        signals: Gradient with respect to the outputs of each layer (sites, units x members, outputs).
        units: Number of units of each site.
        counts: Number of records of each site, those behind being zeros; by default all of them.
        grouped: Whether units are risk groups, which are added up one by one however many members they have.
    """

    def __init__(
        self,
        layers: Sequence[Layer],
        inputs: list[Array],
        signals: list[Array],
        units: int,
        counts: NDArray[np.int64] | None = None,
        *,
        grouped: bool = False,
    ) -> None:
        self.grouped = grouped
        self.layers, self.inputs, self.signals, self.units = layers, inputs, signals, units
        sites, records = inputs[0].shape[:2]
        self.counts = np.full(sites, records, dtype=np.int64) if counts is None else counts

    def lengths(self, norm: Norm) -> Array:
        """The length of each unit's gradient (sites, units), infinite where it is broken."""
        biases = [layer.bias for layer in self.layers]
        return lengths(list(zip(self.inputs, self.signals, biases, strict=True)), self.units, norm)

    def total(self, factors: Array | None) -> Array:
        """The sum over units (sites, coordinates), each times its factor."""
        sites, records = self.inputs[0].shape[:2]
        sums = np.empty((sites, self.layers[-1].end))
        # One unit of all records is as good as single ones, if nothing has to be clipped.
        single = not self.grouped and (records == self.units or factors is None)
        each = _ones(sites, records if single else self.units) if factors is None else factors
        gone = (each == 0)[:, :, None] if single and np.count_nonzero(each) < each.size else None
        for layer, entering, back in zip(self.layers, self.inputs, self.signals, strict=True):
            assert entering.shape[1:] == (records, layer.inputs), "what went into the layer"
            assert back.shape[1:] == (records, layer.outputs), "what came back to it"
            if gone is not None:
                entering, back = np.where(gone, 0.0, entering), np.where(gone, 0.0, back)
            parts, place = (
                (contiguous(entering), contiguous(back), contiguous(each)),
                (layer.start, layer.bias),
            )
            if single:
                kernels.add_up(*parts, self.counts, *place, sums)
            else:
                kernels.add_groups(*parts, *place, sums)
        return sums


@lru_cache(maxsize=8)
def _ones(sites: int, records: int) -> Array:
    """Return a one for each record; cached, as most steps need the same."""
    return np.ones((sites, records))


def build_perceptron(
    widths: Sequence[int], activation: str, loss: Loss, *, spread: int | None = None
) -> Perceptron:
    """A perceptron of these widths, from features to outputs; see `build_layers`."""
    return Perceptron(build_layers(widths, activation, bias=spread is None, spread=spread), loss)


def build_layers(
    widths: Sequence[int], activation: str, *, bias: bool, spread: int | None = None
) -> tuple[Layer, ...]:
    """Build layers of these widths, from features to outputs, with the same activation between them.

    Args:
        widths: From the features to the outputs.
        activation: Activation between layers.
        bias: Whether the last of them has biases.
        spread: Over how many outputs, each with a shift of its own, the single output is spread, if it is.
    """
    require_weights(widths)
    layers: list[Layer] = []
    for inputs, outputs in pairwise(widths):
        last = len(layers) == len(widths) - 2
        start = layers[-1].end if layers else 0
        layers.append(Layer(inputs, outputs, bias or not last, "identity" if last else activation, start))
    if spread is not None:
        layers.append(Layer(0, spread, True, "identity", layers[-1].end))
    return tuple(layers)
