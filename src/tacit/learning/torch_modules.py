"""Own modules and losses, written with torch: the one door of torch into training.

Multilayer perceptrons take the closed form (`perceptron_of`); any other module takes gradients by
`torch.func`, one program over sites and units. Gradients of every unit are written out only when their
lengths are asked for, that is, when a promise clips them; otherwise the sum is differentiated directly.

Torch chooses its kernels by the shape of all its arguments, and takes another formula for the elements that
do not fill a vector. So units are evaluated in chunks of one shape (`Chunks`), the last one filled up with
zeros, once a trial on public numbers has shown that a unit gets the same bits at every place of a chunk; one
by one where it has not. A group of records is as wide as its own size makes it, not as the largest group.
"""

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional

from tacit.errors import InvalidValue, Refused, require
from tacit.learning.batches import Batch, Marks
from tacit.learning.perceptron import NAMED, Layer, Loss, LossName, Perceptron
from tacit.privacy.mechanisms.base import Norm, Rows
from tacit.runtime.arrays import Array, as_array
from tacit.runtime.jit import contiguous
from tacit.sites.table import Table

Module = nn.Module
# `loss(output, **targets)` of one record, or `loss(outputs, present, **targets)` of a group.
LossFunction = Callable[..., Tensor]
# Weights, features, targets, and the mask of members: all with the sites as first axis.
Evidence = tuple[Tensor, Tensor, dict[str, Tensor], Tensor]

RUNNING = "use nn.GroupNorm or nn.LayerNorm, which look at one record alone"
# Units in a chunk: enough to share the cost of a transformed function's call, few enough to avoid padding.
UNITS = 32
# Arguments of a function: each has the units as its first axis; targets come by name.
Arguments = tuple[Tensor | Mapping[str, Tensor], ...]
# Arguments without names, in one order.
Flat = list[Tensor]
# The modules of torch that are these activations, if they are made as torch makes them by default.
KNOWN: Mapping[type[nn.Module], str] = {
    nn.Identity: "identity",
    nn.ReLU: "relu",
    nn.Tanh: "tanh",
    nn.Sigmoid: "sigmoid",
    nn.SiLU: "silu",
    nn.GELU: "gelu",
    nn.Softplus: "softplus",
    nn.ELU: "elu",
}


def program_of(
    module: nn.Module, loss: LossFunction | LossName, *, coupled: bool
) -> "Perceptron | TorchProgram":
    """Return the closed form of a module and its loss where there is one, and `torch.func` otherwise."""
    by_torch = TorchLoss.of(loss, coupled=coupled)
    return perceptron_of(module, by_torch if callable(loss) else NAMED[loss]) or TorchProgram(
        module, by_torch
    )


def weights_of(module: nn.Module) -> Array:
    """Return the trained parameters of a module as one vector of doubles."""
    return as_array(ParameterLayout.of(module).flatten(dict(module.named_parameters())))


def with_weights(module: nn.Module, state: Array) -> nn.Module:
    """Return a copy of a module that has the weights of a state."""
    layout, made = ParameterLayout.of(module), copy.deepcopy(module)
    with torch.no_grad():
        for name, values in layout.unflatten(torch.from_numpy(contiguous(state))).items():
            made.get_parameter(name).copy_(values)
    return made


def record_losses(
    loss: LossFunction | LossName, outputs: Array, targets: Mapping[str, Array], *, coupled: bool
) -> Array:
    """Return the loss of each record; of all together, as a single one, where the loss couples them."""
    rows, unit = torch.from_numpy(outputs), TorchLoss.of(loss, coupled=coupled).unit
    given = {name: torch.from_numpy(contiguous(values)) for name, values in targets.items()}
    present = torch.ones(len(rows), dtype=torch.bool)
    if coupled:
        return unit(rows, given, present).reshape(1).numpy()
    alone = {name: values.unsqueeze(1) for name, values in given.items()}
    each = Chunks(vmap(unit), members=False)
    return each((rows.unsqueeze(1), alone, present.unsqueeze(1))).numpy()


def refuse_running_state(module: nn.Module) -> None:
    """Refuse modules in which a record's gradient depends on other records, or on the order of the work."""
    parts = cast("list[tuple[str, nn.Module]]", [*module.named_modules()])
    for name, part in parts:
        place = f"{name or 'module'} ({type(part).__name__})"
        if isinstance(part, nn.modules.batchnorm._NormBase):  # pyright: ignore[reportPrivateUsage]
            raise Refused(f"{place} mixes the records of a batch and keeps running statistics: {RUNNING}")
        if isinstance(part, nn.modules.dropout._DropoutNd) and part.p > 0:  # pyright: ignore[reportPrivateUsage]
            raise Refused(
                f"{place} draws from the global random state: leave it out; noise, `proximal` and early "
                "stopping hold a model back as well"
            )
    for name, _ in module.named_buffers():
        raise Refused(f"{name} is a buffer, which is not part of the update: make it a parameter or constant")


def _squared_error(output: Tensor, y: Tensor) -> Tensor:
    return (output[0] - y) ** 2 / 2


def _logistic(output: Tensor, y: Tensor) -> Tensor:
    return functional.softplus(output[0]) - y * output[0]


def _cross_entropy(output: Tensor, y: Tensor) -> Tensor:
    chosen = (torch.arange(output.shape[-1]) == y).to(output.dtype)
    return -(chosen * torch.log_softmax(output, dim=-1)).sum()


# The losses of one record that have a name, as torch differentiates them.
FUNCTIONS: Mapping[LossName, LossFunction] = {
    "squared": _squared_error,
    "logistic": _logistic,
    "cross-entropy": _cross_entropy,
}


class TorchLoss:
    """Loss function of torch, as its slope in the outputs; differentiated unit by unit.

    Unit by unit, not as one sum: a loss that mixed records would otherwise break the bound of a contribution.
    """

    def __init__(self, function: LossFunction, *, coupled: bool) -> None:
        self.function, self.coupled = function, coupled
        slopes = vmap(grad(self.unit), in_dims=(0, 0, 0))
        self._chunks = Chunks(lambda *units: cast(Tensor, slopes(*units)), members=coupled, like=0)

    @classmethod
    def of(cls, loss: LossFunction | LossName, *, coupled: bool) -> "TorchLoss":
        """Return any loss, named or own, as torch differentiates it."""
        return cls(loss if callable(loss) else FUNCTIONS[loss], coupled=coupled)

    def unit(self, outputs: Tensor, targets: Mapping[str, Tensor], present: Tensor) -> Tensor:
        """The loss of one unit: its outputs (members, outputs) and targets."""
        if self.coupled:
            return self.function(outputs, present, **targets).sum()
        return self.function(outputs[0], **{name: values[0] for name, values in targets.items()}).sum()

    def slopes(self, outputs: Array, targets: Mapping[str, Array], present: Marks) -> Array:
        """The gradient of each unit's loss in its outputs."""
        named = {name: _units(values) for name, values in targets.items()}
        found = self._chunks((_units(outputs), named, _units(present)))
        return found.numpy().reshape(outputs.shape)


class TorchProgram:
    """A module of any shape and a loss, for many sites at once.

    Args:
        module: The network; its weights are a starting point and are not touched.
        loss: Its loss, unit by unit.
    """

    # Large, because each call of a transformed function costs milliseconds.
    working_numbers = 8_000_000

    def __init__(self, module: nn.Module, loss: TorchLoss) -> None:
        refuse_running_state(module)
        self.layout = ParameterLayout.of(module)
        self.size = self.layout.size
        # Gradients are written out, forward and backward.
        self.numbers_per_record = 4 * self.size
        # A copy: a module in which a layer is used twice is not restored as it was.
        self._module, self._loss = copy.deepcopy(module), loss
        self._fixed = {
            name: values.detach().double()
            for name, values in module.named_parameters()
            if not values.requires_grad
        }
        rows = vmap(grad(self._unit), in_dims=(0, 0, 0, 0))
        self._rows = Chunks(lambda *units: cast(Tensor, rows(*units)).detach(), members=loss.coupled)
        self._outputs = Chunks(lambda *units: vmap(self._call)(*units), members=False)
        self._sums = vmap(grad(self._site), in_dims=(0, 0, 0, 0))

    def outputs(self, weights: Array, features: Array) -> Array:
        """Return the network's outputs (sites, records, outputs) for features (sites, records, columns)."""
        sites, records, columns = features.shape
        rows, places = torch.from_numpy(contiguous(features)).reshape(-1, 1, columns), _places(sites, records)
        with torch.no_grad():
            found = self._outputs((rows,), weights=torch.from_numpy(contiguous(weights)), places=places)
        return found.numpy().reshape(sites, records, -1)

    def contributions(self, weights: Array, batch: Batch, store: Table) -> "WrittenGradients":
        """The gradients of every unit of a batch, one row of weights for each site."""
        features = store.features[batch.rows]
        # Padding must not carry the influence of any record, however broken it is.
        features[~batch.present] = 0.0
        inputs = torch.from_numpy(features)
        targets = {name: torch.from_numpy(values[batch.rows]) for name, values in store.targets.items()}
        return WrittenGradients(
            self, (torch.from_numpy(weights), inputs, targets, torch.from_numpy(batch.present))
        )

    def _call(self, weights: Tensor, features: Tensor) -> Tensor:
        parameters = {**self._fixed, **self.layout.unflatten(weights)}
        return functional_call(self._module, parameters, (features,))

    def _unit(
        self, weights: Tensor, inputs: Tensor, targets: Mapping[str, Tensor], present: Tensor
    ) -> Tensor:
        loss = self._loss.unit(self._call(weights, inputs), targets, present)
        return torch.where(present.any(), loss, 0.0)

    def _site(
        self, weights: Tensor, inputs: Tensor, targets: Mapping[str, Tensor], present: Tensor
    ) -> Tensor:
        return vmap(self._unit, in_dims=(None, 0, 0, 0))(weights, inputs, targets, present).sum()

    def rows(self, evidence: Evidence) -> Tensor:
        """The gradient of each unit (sites, units, coordinates), written out; its bits are its own."""
        weights, inputs, targets, present = evidence
        sites, units = present.shape[:2]
        named = {name: values.flatten(0, 1) for name, values in targets.items()}
        arguments = (inputs.flatten(0, 1), named, present.flatten(0, 1))
        found = self._rows(arguments, weights=weights, places=_places(sites, units))
        return found.reshape(sites, units, self.size)

    def sums(self, evidence: Evidence) -> Tensor:
        """The gradient of each site's sum (sites, coordinates)."""
        return cast(Tensor, self._sums(*evidence)).detach()


class WrittenGradients:
    """Gradients that are written out only to compute their lengths (`mechanism.Contributions`)."""

    def __init__(self, program: TorchProgram, evidence: Evidence) -> None:
        self._program, self._evidence = program, evidence

    @cached_property
    def _rows(self) -> Rows:
        present = self._evidence[3].any(dim=2).unsqueeze(-1)
        return Rows(as_array(torch.where(present, self._program.rows(self._evidence), 0.0)))

    def lengths(self, norm: Norm) -> Array:
        """The length of each unit's gradient."""
        return self._rows.lengths(norm)

    def total(self, factors: Array | None) -> Array:
        """The sum over units, each times its factor."""
        if factors is not None:
            return self._rows.total(factors)
        sums = self._program.sums(self._evidence).numpy()
        # A loss that is not finite on padding would spoil a sum; written out, it is left out.
        return sums if np.isfinite(sums).all() else self._rows.total(None)


def _units(values: NDArray[np.float64] | Marks) -> Tensor:
    """Sites and units as one axis."""
    return torch.from_numpy(values.reshape(-1, *values.shape[2:]))


def _places(sites: int, units: int) -> Tensor:
    """Return the site of each unit, as `flatten` puts them one after the other."""
    return torch.arange(sites).repeat_interleave(units)


class Chunks:
    """A function of many units, evaluated in chunks, with a separate answer for each unit.

    Args:
        function: It takes units along the first axis of all arguments and answers along its first.
        members: Whether units have members along the second axis, marked in the last argument, the first of
            which are there.
        like: The argument whose shape the answers have, members included; by default answers have none.
    """

    def __init__(self, function: Callable[..., Tensor], *, members: bool, like: int | None = None) -> None:
        self._function, self._members, self._like = function, members, like
        self._sizes: dict[tuple[object, ...], int] = {}

    def __call__(
        self, arguments: Arguments, *, weights: Tensor | None = None, places: Tensor | None = None
    ) -> Tensor:
        """Evaluate the function for each unit.

        Args:
            arguments: Arguments of the function.
            weights: Its first argument: a row for each site.
            places: The site of each unit.

        Guarantee:
            The bits of an answer depend on the arguments of its own unit and the weights of its site alone.

        Raises:
            Refused: The function gives two answers to the same arguments.
        """
        names = [list(part) if isinstance(part, Mapping) else None for part in arguments]
        flat = [one for part in arguments for one in (part.values() if isinstance(part, Mapping) else [part])]

        def call(units: Flat, own: Tensor | None) -> Tensor:
            left = iter(units)
            given = [next(left) if keys is None else {key: next(left) for key in keys} for keys in names]
            return self._function(*given) if own is None else self._function(own, *given)

        found: Tensor | None = None
        for chosen, width in self._widths(flat):
            part = [one[chosen] if width is None else _pad_members(one[chosen], width) for one in flat]
            own = None if places is None else places[chosen]
            answers = self._evaluate(call, part, weights, own)
            if found is None:
                found = torch.zeros(self._shape(flat, answers), dtype=answers.dtype)
            if width is None or self._like is None:
                found[chosen] = answers
            else:
                padded = torch.zeros((len(chosen), *found.shape[1:]), dtype=answers.dtype)
                padded[:, :width] = answers[:, : padded.shape[1]]
                found[chosen] = padded
        assert found is not None, "there are units"
        return found

    def _shape(self, flat: Flat, answers: Tensor) -> tuple[int, ...]:
        if self._like is None:
            return (len(flat[0]), *answers.shape[1:])
        return tuple(flat[self._like].shape)

    def _widths(self, flat: Flat) -> list[tuple[Tensor, int | None]]:
        """Return the units that are evaluated together, and their padded width: the next power of two."""
        if not self._members:
            return [(torch.arange(len(flat[0])), None)]
        sizes = flat[-1].sum(dim=1).clamp(min=1)
        widths = 2 ** torch.ceil(torch.log2(sizes.double())).long()
        own = cast("list[int]", widths.tolist())
        return [(torch.nonzero(widths == width)[:, 0], width) for width in sorted(set(own))]

    def _evaluate(
        self,
        call: Callable[[Flat, Tensor | None], Tensor],
        part: Flat,
        weights: Tensor | None,
        places: Tensor | None,
    ) -> Tensor:
        shapes = tuple((tuple(one.shape[1:]), one.dtype) for one in part)
        shape = (shapes, None if weights is None else weights.shape[1])
        if shape not in self._sizes:
            self._sizes[shape] = _size(call, part, weights)
        size, pieces = self._sizes[shape], list[Tensor]()
        for start in range(0, len(part[0]), size):
            piece = [_pad_units(one[start : start + size], size) for one in part]
            own = None
            if weights is not None:
                own = weights[_pad_units(cast(Tensor, places)[start : start + size], size)]
            pieces.append(call(piece, own)[: len(part[0]) - start])
        return torch.cat(pieces)


def _pad_members(values: Tensor, width: int) -> Tensor:
    """Cut or pad units to `width` members: members beyond are padding, missing ones become zeros."""
    short = values[:, :width]
    if short.shape[1] == width:
        return short
    return torch.cat(
        [short, torch.zeros((len(short), width - short.shape[1], *short.shape[2:])).to(short)], 1
    )


def _pad_units(values: Tensor, size: int) -> Tensor:
    """Pad a chunk to `size` units with zeros, which are public."""
    if len(values) == size:
        return values
    return torch.cat([values, torch.zeros((size - len(values), *values.shape[1:])).to(values)])


def _size(call: Callable[[Flat, Tensor | None], Tensor], part: Flat, weights: Tensor | None) -> int:
    """Return `UNITS` if a unit gets the same bits at every place of a chunk, 1 otherwise.

    Tried on numbers that are public and always the same, of the shape of these arguments.
    """
    draws = torch.Generator().manual_seed(7)

    def draw(shape: tuple[int, ...], like: Tensor) -> Tensor:
        if like.dtype == torch.bool:
            return torch.ones(shape, dtype=torch.bool)
        return torch.rand(shape, generator=draws, dtype=torch.float64).to(like.dtype)

    units = [draw((UNITS, *one.shape[1:]), one) for one in part]
    own = None if weights is None else torch.randn((UNITS, weights.shape[1]), generator=draws).to(weights)
    known, again = call(units, own), call(units, own)
    if not _alike(known, again):
        raise Refused(
            "the module gives two answers for the same records, as a random one does: it cannot protect "
            'single records. Remove random layers, or protect whole sites (unit="site")'
        )
    for shift in (1, 2, 3, 5, 8, 13, 21):
        rolled = [one.roll(shift, 0) for one in units]
        answers = call(rolled, None if own is None else own.roll(shift, 0))
        if not _alike(answers, known.roll(shift, 0)):
            return 1
    return UNITS


def _alike(one: Tensor, other: Tensor) -> bool:
    """Return True if two tensors hold the same bits; all NaN count as one."""
    return bool(((one == other) | (one.isnan() & other.isnan())).all())


@dataclass(frozen=True)
class ParameterLayout:
    """Layout of a module's trained parameters in the flat vector, in torch's order."""

    names: tuple[str, ...]
    shapes: tuple[torch.Size, ...]

    @classmethod
    def of(cls, module: nn.Module) -> "ParameterLayout":
        """The layout of a module; parameters that are not trained have no place."""
        trained = [(name, values) for name, values in module.named_parameters() if values.requires_grad]
        if not trained:
            raise InvalidValue("module has no parameters to train: give it at least one layer")
        return cls(tuple(name for name, _ in trained), tuple(values.shape for _, values in trained))

    @property
    def size(self) -> int:
        """Number of coordinates of the vector."""
        return sum(shape.numel() for shape in self.shapes)

    def flatten(self, parameters: Mapping[str, Tensor]) -> Tensor:
        """The parameters as one vector in double precision."""
        return torch.cat([parameters[name].detach().double().reshape(-1) for name in self.names])

    def unflatten(self, vector: Tensor) -> dict[str, Tensor]:
        """The parameters as views of a vector."""
        require(vector.shape == (self.size,), "vector", f"shape {tuple(vector.shape)}", f"({self.size},)")
        parts = torch.split(vector, [shape.numel() for shape in self.shapes])
        return {
            name: part.view(shape) for name, part, shape in zip(self.names, parts, self.shapes, strict=True)
        }


def perceptron_of(module: nn.Module, loss: Loss) -> Perceptron | None:
    """Return the closed form of a module that is a plain stack of linear layers and known activations."""
    parts = list(module) if type(module) is nn.Sequential else [module]
    if any(_has_hooks(part) for part in (module, *parts)):
        return None
    layers: list[Layer] = []
    for part in parts:
        if type(part) is nn.Linear:
            start = layers[-1].end if layers else 0
            bias = "bias" in dict(part.named_parameters())
            layers.append(Layer(part.in_features, part.out_features, bias, "identity", start))
        elif layers and layers[-1].activation == "identity" and _is_default(part):
            layers.append(replace(layers.pop(), activation=KNOWN[type(part)]))
        else:
            return None
    # A layer used twice, or a frozen one, has no place of its own in the flat vector.
    trained = sum(values.numel() for values in module.parameters() if values.requires_grad)
    return Perceptron(layers, loss) if layers and trained == layers[-1].end else None


def _has_hooks(part: nn.Module) -> bool:
    """Return True if a module has hooks, which its layers do not show."""
    return any(getattr(part, name) for name in ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks"))


def _is_default(part: nn.Module) -> bool:
    """Return True for a known activation with torch's default options."""
    return type(part) in KNOWN and part.extra_repr() in ("inplace=True", type(part)().extra_repr())
