"""A model as one flat vector, and back: what travels, is clipped, averaged and kept is always one array."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from tacit.errors import InvalidValue, require


@dataclass(frozen=True)
class ParameterLayout:
    """Where each trained parameter of a module lies in the flat vector, in the order torch has them."""

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
        """How many numbers the vector has."""
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
