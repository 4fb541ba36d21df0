"""Arrays of doubles: the one form of states, updates, noise and messages.

Users may hand over lists, arrays of single precision or torch tensors; they are converted here, at the door.
"""

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

Array = NDArray[np.float64]


def as_numpy(values: "ArrayLike | TensorLike") -> NDArray[Any]:
    """Return values as a numpy array of their own precision, without copying where that is possible."""
    # A torch tensor that requires gradients, or lies on a GPU, refuses to become an array by itself.
    return np.asarray(values.detach().cpu().numpy() if isinstance(values, TensorLike) else values)


def as_array(values: "ArrayLike") -> Array:
    """Return values as a contiguous array of doubles, without copying where they are one already."""
    return np.ascontiguousarray(as_numpy(values), dtype=np.float64)


@runtime_checkable
class TensorLike(Protocol):
    """Structural test for a torch tensor that does not import torch."""

    def detach(self) -> Any:  # noqa: ANN401
        """The numbers without their gradients."""
        ...
