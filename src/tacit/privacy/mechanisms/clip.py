"""Bounding what one person or one site can contribute, before anything is added up.

Clipping is what makes a sensitivity true, so its guarantee is strict: a clipped row is never longer than the
bound, rounding included. Rows within the bound stay bit-identical. Nothing here adds noise.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, cast

import numpy as np
import torch
from torch import Tensor

from tacit.errors import InvalidValue, require, require_count, require_positive, require_word
from tacit.privacy.mechanisms.row_sums import row_lengths
from tacit.runtime.jit import contiguous

Norm = Literal["l2", "l1"]


@dataclass(frozen=True, eq=False)
class Geometry:
    """Lengths by a positive definite matrix M: `|r|^2 = r' M r`, such as the Gram matrix of a basis.

    Clipping to a length in this geometry and adding isotropic noise to whitened rows belong together: noise
    that is isotropic in any other coordinates does not match the bound.
    """

    matrix: Tensor

    def __post_init__(self) -> None:
        shape = tuple(self.matrix.shape)
        require(len(shape) == 2 and shape[0] == shape[1], "matrix", f"shape {shape}", "square")
        finite = bool(torch.isfinite(self.matrix).all())
        # Computed Gram matrices are symmetric up to rounding, relative to their largest entry.
        rounding = 100 * torch.finfo(self.matrix.dtype).eps * self.matrix.abs().max()
        symmetric = finite and bool(((self.matrix - self.matrix.T).abs() <= rounding).all())
        require(symmetric, "matrix", "this one", "symmetric and finite")
        _ = self.root

    @cached_property
    def root(self) -> Tensor:
        """The lower Cholesky factor L of M = L L'."""
        factor, failed = cast("tuple[Tensor, Tensor]", torch.linalg.cholesky_ex(self.matrix.double()))
        if int(failed) != 0:
            raise InvalidValue(
                "matrix is not allowed: it must be positive definite, and its Cholesky factor fails"
            )
        return factor

    def whiten(self, rows: Tensor) -> Tensor:
        """Coordinates in which M-lengths are ordinary lengths: L' r for each row."""
        return rows.double() @ self.root

    def unwhiten(self, rows: Tensor) -> Tensor:
        """Back from whitened coordinates."""
        return cast(Tensor, torch.linalg.solve_triangular(self.root, rows.double(), upper=False, left=False))


def clip_rows(rows: Tensor, bound: float, *, norm: Norm = "l2", geometry: Geometry | None = None) -> Tensor:
    """Scale each row down to length `bound`; shorter rows stay as they are, to the bit.

    A single vector is one row: that is how the whole update of a site is clipped.

    Args:
        rows: What to clip (..., coordinates).
        bound: The largest length allowed.
        norm: `l2` for Gaussian noise, `l1` for Laplace noise.
        geometry: Another inner product than the ordinary one, for L2.

    Guarantee:
        Every row of the result has length at most `bound`, but for a rounding of double precision; a row that
        holds NaN or infinity, or whose length does, becomes zero, and `count_broken` counts it.
    """
    require_positive("bound", bound)
    length = lengths(rows, norm=norm, geometry=geometry)
    if bool((length <= bound).all()):
        return rows.clone()
    # Long rows shrink by a few roundings more than needed, so that the bound holds after rounding as well;
    # divided first, so that no factor is too small to be exact.
    slack = 1 - 8 * torch.finfo(rows.dtype).eps - rows.shape[-1] * torch.finfo(torch.float64).eps
    shrunk = (rows.double() / length.unsqueeze(-1) * (bound * slack)).to(rows.dtype)
    # What is no normal number could have been rounded up to a multiple of itself.
    shrunk = torch.where(shrunk.abs() < torch.finfo(rows.dtype).tiny, 0.0, shrunk)
    clipped = torch.where((length > bound).unsqueeze(-1), shrunk, rows)
    return torch.where(length.isfinite().unsqueeze(-1), clipped, 0.0)


def clip_groups(rows: Tensor, labels: Tensor, groups: int, bound: float, *, norm: Norm = "l2") -> Tensor:
    """Add up the rows of each group and clip the sums, for losses that couple the records of a group.

    Args:
        rows: One contribution per record (records, coordinates).
        labels: The group of each record, from 0 to `groups` - 1, chosen without looking at data.
        groups: How many groups there are, fixed in advance; an empty one contributes zero.
        bound: The largest length of a group's sum.
        norm: As for `clip_rows`.

    Guarantee:
        One record moves one row of the result, by at most twice the bound.
    """
    require_count("groups", groups)
    inside = bool(((labels >= 0) & (labels < groups)).all())
    require(inside, "labels", "one outside", f"from 0 to {groups - 1}")
    sums = torch.zeros(groups, rows.shape[-1], dtype=rows.dtype).index_add_(0, labels, rows)
    return clip_rows(sums, bound, norm=norm)


def count_broken(rows: Tensor) -> int:
    """How many rows would become zero. The number is as private as the rows: it stays at the site."""
    return int(lengths(rows).isinf().sum())


def lengths(rows: Tensor, *, norm: Norm = "l2", geometry: Geometry | None = None) -> Tensor:
    """The length of each row, in double precision; infinite where a row is broken."""
    require_word("norm", norm, ("l2", "l1"))
    require(rows.is_floating_point(), "rows", str(rows.dtype), "floating-point numbers")
    require(rows.ndim > 0 and rows.shape[-1] > 0, "rows", f"shape {tuple(rows.shape)}", "rows of coordinates")
    require(
        norm == "l2" or geometry is None,
        "geometry",
        "one with an L1 norm",
        "left out: it defines an L2 length",
    )
    exact = rows.double() if geometry is None else geometry.whiten(rows)
    flat = contiguous(exact.detach().numpy()).reshape(-1, rows.shape[-1])
    found = np.empty(len(flat))
    row_lengths(flat, norm == "l2", found)
    length = torch.from_numpy(found.reshape(tuple(rows.shape[:-1])))
    if geometry is None:
        return length
    return torch.where(torch.isfinite(rows).all(dim=-1), length, torch.inf)
