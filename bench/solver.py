"""The equation of a surface against the dense Kronecker method, which writes it as one linear system.

The coefficients that map one curve to another solve a generalized Sylvester equation with 10 to 80 functions
on each side. Ours uses coordinates in which the equation is diagonal; the dense method is a Cholesky
factorization of a matrix whose number of rows is the square of that number. Each is timed with its set-up and
without, because boosting solves the same equation many times. Penalties are diagonal, as in a frame, or
arbitrary.
"""

import numpy as np

from bench.racing import Race, Work

SIZES = (10, 20, 40, 80)
PRICES = (0.05, 0.05, 0.05)
# What is at least to be had with the set-up included.
GOALS = {40: 100, 80: 2000}


def equation(size, penalties):
    draws = np.random.default_rng(size)
    rows = draws.normal(size=(4 * size, size))
    rough = np.maximum(np.arange(size) - 1.0, 0.0) ** 4
    rough = rough / rough.mean()
    if penalties == "any":
        turned = np.linalg.qr(draws.normal(size=(size, size)))[0]
        rough = turned * rough @ turned.T
    return rows.T @ rows / (4 * size), draws.normal(size=(size, size)), rough, rough


def ours(size, penalties, ready):
    from tacit.functional.solver import prepare, solve

    moments, right, rough_x, rough_y = equation(size, penalties)
    if not ready:
        return Work(lambda: solve(moments, right, rough_x, rough_y, *PRICES))
    known = prepare(moments, rough_x, rough_y, *PRICES)
    return Work(lambda: known.solve(right))


def kronecker(size, penalties, ready):
    from scipy.linalg import cho_factor, cho_solve

    moments, right, rough_x, rough_y = equation(size, penalties)
    along_s, along_t, along_both = PRICES
    rough_x, rough_y = (np.diag(one) if one.ndim == 1 else one for one in (rough_x, rough_y))

    def factorised():
        system = np.kron(np.eye(size), moments + along_s * rough_x)
        system += np.kron(rough_y, along_t * np.eye(size) + along_both * rough_x)
        return cho_factor(system, overwrite_a=True, check_finite=False)

    def solved(factor):
        return cho_solve(factor, right.T.ravel(), check_finite=False).reshape(size, size).T

    if not ready:
        return Work(lambda: solved(factorised()))
    known = factorised()
    return Work(lambda: solved(known))


RACES = [
    Race(
        name=f"{size} functions a side, {penalties} penalties" + (", set up before" if ready else ""),
        group=f"the equation of a surface, {size} functions a side" + (", set up before" if ready else ""),
        given={"size": size, "penalties": penalties, "ready": ready},
        ours=ours,
        theirs={"dense Kronecker Cholesky": kronecker},
        same=1e-10,
        goal=None if ready or penalties == "any" else GOALS.get(size),
    )
    for ready in (False, True)
    for size in SIZES
    for penalties in ("diagonal", "any")
]
