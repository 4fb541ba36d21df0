"""Penalized least-squares surface between two curves, from moments and penalties on roughness.

The coefficients B of a surface solve a generalized Sylvester equation; written as one linear system, it is as
large as the product of both sides. In the right coordinates all of it is diagonal at once, whatever the
penalties are: one eigenvalue problem per predictor sets it up, and a few small products solve it.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg.lapack import dpotrf, dsyevd, dtrtri

from tacit.errors import InvalidValue, require
from tacit.runtime.arrays import Array


def solve(
    G: ArrayLike, R: ArrayLike, Ox: ArrayLike, Oy: ArrayLike, ls: float, lt: float, lst: float
) -> Array:
    """Solve (G + ls Ox) B + lt B Oy + lst Ox B Oy = R for B.

    Args:
        G: Moments of a predictor or of a stack of them, positive definite with `ls Ox` added (..., q, q).
        R: Its moments with the response (..., q, m).
        Ox: The predictor's penalty, a matrix (..., q, q) or its diagonal (..., q).
        Oy: The penalty of the response, a matrix (m, m) or its diagonal (m,).
        ls: The penalty on roughness along the predictor's argument.
        lt: Along that of the response.
        lst: Along both.
    """
    return prepare(G, Ox, Oy, ls, lt, lst).solve(np.asarray(R, dtype=float))


def prepare(
    G: ArrayLike, Ox: ArrayLike, Oy: ArrayLike, ls: ArrayLike, lt: ArrayLike, lst: ArrayLike
) -> "Prepared":
    """Factorize the equation of a predictor, or of a stack of them, for any right-hand side.

    Args:
        G: As for `solve`.
        Ox: As for `solve`; of as many axes as `G` if it is a matrix, of fewer if it is a diagonal.
        Oy: As for `solve`.
        ls: As for `solve`, or one for each of the stack, as are `lt` and `lst`.
        lt: See `ls`.
        lst: See `ls`.
    """
    moments, rough_x, rough_y = (np.asarray(given, dtype=float) for given in (G, Ox, Oy))
    weights = [np.asarray(given, dtype=float) for given in (ls, lt, lst)]
    _require_fit(moments, rough_x, rough_y)
    for name, weight in zip(("ls", "lt", "lst"), weights, strict=True):
        require(bool((weight >= 0).all()), name, weight.tolist(), "0 or more")
    along_s, along_t, along_both = (weight[..., None] for weight in weights)
    if rough_x.ndim < moments.ndim:
        left, right = _with_diagonal(moments, along_s * rough_x), along_t + along_both * rough_x
        basis, slopes = _both_diagonal(left, right)
    else:
        left, right = moments + along_s[..., None] * rough_x, along_both[..., None] * rough_x
        basis, slopes = _both_diagonal(left, _with_diagonal(right, along_t * np.ones(moments.shape[-1])))
    if rough_y.ndim == 1:
        return Prepared(basis, 1 / (1 + slopes[..., None] * rough_y), None)
    roots, rotation = _eigen(rough_y)
    return Prepared(basis, 1 / (1 + slopes[..., None] * roots), rotation)


@dataclass(frozen=True, eq=False)
class Prepared:
    """An equation, or a stack of them, in coordinates in which it is diagonal.

    Args:
        basis: W with W'(G + ls Ox)W = 1 and W'(lt + lst Ox)W diagonal (..., q, q).
        shrink: The multiplier of each number of W'RV (..., q, m).
        rotation: V, in whose columns the penalty of the response is diagonal; None if it is so already.
    """

    basis: Array
    shrink: Array
    rotation: Array | None

    def solve(self, right: Array) -> Array:
        """The coefficients B = W [shrink * (W'RV)] V' for a right-hand side R (..., q, m)."""
        inner = self.basis.swapaxes(-1, -2) @ right
        if self.rotation is None:
            return self.basis @ (self.shrink * inner)
        return self.basis @ (self.shrink * (inner @ self.rotation)) @ self.rotation.T


def _require_fit(moments: Array, rough_x: Array, rough_y: Array) -> None:
    size = moments.shape[-1] if moments.ndim > 1 else -1
    require(moments.ndim > 1 and moments.shape[-2] == size, "G", moments.shape, "square")
    sized = rough_x.ndim > 0 and rough_x.shape[-1] == size
    square = rough_x.ndim < moments.ndim or rough_x.shape[-2] == size
    require(sized and square, "Ox", rough_x.shape, f"of size {size}, as G is")
    flat = rough_y.ndim == 1 or (rough_y.ndim == 2 and rough_y.shape[0] == rough_y.shape[1])
    require(flat, "Oy", rough_y.shape, "a square matrix or its diagonal")


def _with_diagonal(matrix: Array, diagonal: Array) -> Array:
    """Matrices with something added to their diagonals."""
    found = np.broadcast_to(
        matrix, np.broadcast_shapes(matrix.shape, (*diagonal.shape, diagonal.shape[-1]))
    ).copy()
    np.einsum("...ii->...i", found)[...] += diagonal
    return found


def _both_diagonal(left: Array, right: Array) -> tuple[Array, Array]:
    """W with W' left W = 1 and W' right W diagonal, and that diagonal (Golub and Van Loan 2013, 8.7).

    Args:
        left: Positive definite.
        right: Positive semidefinite; its diagonal alone, if that is all there is.
    """
    whitener = _whitener(left)
    if not right.any():
        return whitener, np.zeros(left.shape[:-1])
    turned = whitener.swapaxes(-1, -2)
    scaled = turned * right[..., None, :] if right.ndim < left.ndim else turned @ right
    roots, rotation = _eigen(scaled @ whitener)
    # Roughness is never negative; rounding can make its smallest roots so.
    return whitener @ rotation, np.maximum(roots, 0.0)


def _eigen(matrix: Array) -> tuple[Array, Array]:
    """Eigenvalues and eigenvectors, of a symmetric matrix or of a stack of them."""
    if matrix.ndim > 2:
        return np.linalg.eigh(matrix)
    # A small one takes numpy longer to look at than to decompose.
    roots, rotation, failed = dsyevd(matrix, lower=1)
    return (roots, rotation) if failed == 0 else np.linalg.eigh(matrix)


def _whitener(left: Array) -> Array:
    """W with W' left W = 1: the inverse of the transposed Cholesky factor."""
    require(bool(np.isfinite(left).all()), "G + ls Ox", "not finite", "finite numbers")
    try:
        inverse = _inverse_factor(left)
    except np.linalg.LinAlgError:
        found = f"smallest eigenvalue {np.linalg.eigvalsh(left).min():.3g}"
        raise InvalidValue(f"G + ls Ox with {found} is not allowed: it must be positive definite") from None
    return inverse.swapaxes(-1, -2)


def _inverse_factor(left: Array) -> Array:
    """Return the inverse of the Cholesky factor."""
    if left.ndim > 2:
        return np.asarray(np.linalg.inv(np.linalg.cholesky(left)), dtype=np.float64)
    factor, failed = dpotrf(left, lower=1, clean=1)
    if failed:
        raise np.linalg.LinAlgError
    # Half the work: numpy inverts stacks, but knows nothing of triangles.
    return np.asarray(dtrtri(factor, lower=1)[0], dtype=np.float64)
