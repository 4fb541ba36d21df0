"""Evidence from rows, as one would write it down, and the design that the reference system is judged on."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from tacit.functional.boosting.debias import BlockShape, debias_sums
from tacit.functional.boosting.moments import NOISY_FOLDS, DebiasedMoments, Moments, fold_sums


def moments(x: np.ndarray, y: np.ndarray, noise: float = 0.0) -> Moments:
    x, y, less = x - x.mean(axis=0), y - y.mean(axis=0), len(x) - 1
    xx = x.T @ x / less - noise**2 * np.eye(x.shape[1])
    return Moments(xx=xx, xy=x.T @ y / less, yy=y.T @ y / less, count=len(x))


def evidence(
    x: np.ndarray,
    y: np.ndarray,
    sizes: Sequence[int],
    *,
    folds: int = 5,
    noise: float = 0.0,
    roughness: Sequence[np.ndarray] | None = None,
    roughness_y: np.ndarray | None = None,
    optimism: bool = False,
) -> DebiasedMoments:
    whole = moments(x, y, noise)
    ends = np.cumsum([0, *sizes]).tolist()
    parts = np.array_split(np.arange(len(x)), folds) if folds else []
    splits = [
        (
            moments(np.delete(x, rows, axis=0), np.delete(y, rows, axis=0), noise),
            moments(x[rows], y[rows], noise),
        )
        for rows in parts
    ]
    edges = [noise**2 * (2 * np.sqrt(size / len(x)) + size / len(x)) for size in sizes]
    return DebiasedMoments(
        whole=whole,
        raw=whole,
        splits=[(whole, whole)] if optimism else splits,
        blocks=tuple(slice(start, stop) for start, stop in pairwise(ends)),
        floors=tuple(edges),
        roughness=tuple(np.zeros(size) for size in sizes) if roughness is None else tuple(roughness),
        roughness_y=np.zeros(y.shape[1]) if roughness_y is None else roughness_y,
        optimism=optimism,
    )


def debias_rows(
    x: np.ndarray,
    y: np.ndarray,
    shape: BlockShape,
    *,
    variances: Sequence[float] | None = None,
    variance_y: float = 0.0,
    folds: int = 5,
) -> DebiasedMoments:
    noisy = variances is not None and bool(np.any(variances))
    sums = fold_sums(x, y, NOISY_FOLDS if noisy else folds)
    return debias_sums(sums, shape, variances=variances, variance_y=variance_y)


def seed_design(
    seed: int,
    *,
    records: int = 1000,
    predictors: int = 20,
    active: int = 5,
    size: int = 20,
    snr: float = 10.0,
) -> tuple[np.ndarray, np.ndarray]:
    """White coordinates of predictors, and a response of operators of rank 3 of the first ones."""
    draws = np.random.default_rng(seed)
    x = draws.normal(size=(records, predictors * size))
    signal = np.zeros((records, size))
    for row in range(active):
        left, right = (np.linalg.qr(draws.normal(size=(size, 3)))[0] for _ in range(2))
        operator = left * [1.0, 0.7, 0.4] @ right.T
        signal += x[:, row * size : (row + 1) * size] @ operator * np.sqrt(3) / np.linalg.norm(operator)
    return x, signal + np.sqrt(3 * active / (size * snr)) * draws.normal(size=signal.shape)


def left_over(coefficients: np.ndarray, x: np.ndarray, y: np.ndarray, train: slice, test: slice) -> float:
    """RIL2: the squared distance from what is predicted, relative to that from nothing."""
    predicted = y[train].mean(axis=0) + (x[test] - x[train].mean(axis=0)) @ coefficients
    return float(((y[test] - predicted) ** 2).sum() / (y[test] ** 2).sum())
