"""Any other module: gradients by `torch.func`, one program over sites and units.

Gradients of every unit are written out only when their lengths are asked for, that is, when a promise clips
them; otherwise the sum is differentiated directly. Written out, they come in chunks of one shape
(`tacit.learning.torch_chunks`), so that the bits of a unit are its own.
"""

import copy
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from tacit.errors import Refused
from tacit.learning.batches import Batch, Marks
from tacit.learning.torch_chunks import Chunks
from tacit.learning.vector import ParameterLayout
from tacit.privacy.mechanisms.base import Norm, Rows
from tacit.runtime.jit import contiguous
from tacit.sites.table import Table

Array = NDArray[np.float64]
# `loss(output, **targets)` of one record, or `loss(outputs, present, **targets)` of a group.
LossFunction = Callable[..., Tensor]
# Weights, features, targets, and who is present: all with the sites as first axis.
Evidence = tuple[Tensor, Tensor, dict[str, Tensor], Tensor]

RUNNING = "use nn.GroupNorm or nn.LayerNorm, which look at one record alone"


def refuse_running_state(module: nn.Module) -> None:
    """Refuse what makes a record's gradient depend on other records, or on the order of the work."""
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
        raise Refused(f"{name} is a buffer, which no site's update carries: make it a parameter or constant")


class TorchLoss:
    """A loss function of torch, seen as its slope in the outputs; differentiated unit by unit.

    Unit by unit, not as one sum: a loss that mixed records would otherwise break the bound of a contribution.
    """

    def __init__(self, function: LossFunction, *, coupled: bool) -> None:
        self.function, self.coupled = function, coupled
        slopes = vmap(grad(self.unit), in_dims=(0, 0, 0))
        self._chunks = Chunks(lambda *units: cast(Tensor, slopes(*units)), members=coupled, like=0)

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
        """What the network says (sites, records, outputs) of features (sites, records, columns)."""
        sites, records, columns = features.shape
        rows, places = torch.from_numpy(contiguous(features)).reshape(-1, 1, columns), _places(sites, records)
        with torch.no_grad():
            found = self._outputs((rows,), weights=torch.from_numpy(contiguous(weights)), places=places)
        return found.numpy().reshape(sites, records, -1)

    def contributions(self, weights: Array, batch: Batch, store: Table) -> "WrittenGradients":
        """The gradients of every unit of a batch, one row of weights for each site."""
        features = store.features[batch.rows]
        # Where nobody is, nobody's record may have an influence, however broken it is.
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
    """Gradients that are written out when somebody asks for their lengths (`mechanism.Contributions`)."""

    def __init__(self, program: TorchProgram, evidence: Evidence) -> None:
        self._program, self._evidence = program, evidence

    @cached_property
    def _rows(self) -> Rows:
        present = self._evidence[3].any(dim=2).unsqueeze(-1)
        return Rows(torch.where(present, self._program.rows(self._evidence), 0.0))

    def lengths(self, norm: Norm) -> Array:
        """The length of each unit's gradient."""
        return self._rows.lengths(norm)

    def total(self, factors: Array | None) -> Array:
        """The sum over units, each times its factor."""
        if factors is not None:
            return self._rows.total(factors)
        sums = self._program.sums(self._evidence).numpy()
        # A loss that is not finite where nobody is would spoil a sum; written out, it is left out.
        return sums if np.isfinite(sums).all() else self._rows.total(None)


def _units(values: NDArray[np.float64] | Marks) -> Tensor:
    """Sites and units as one axis."""
    return torch.from_numpy(values.reshape(-1, *values.shape[2:]))


def _places(sites: int, units: int) -> Tensor:
    """The site of each unit, as `flatten` puts them one after the other."""
    return torch.arange(sites).repeat_interleave(units)
