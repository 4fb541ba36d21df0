"""Boosting of surfaces against the dense Kronecker method, and a whole fit against the R reference code.

A path of 30 steps: each step tries all predictors and moves the best one. The dense method factorizes the
linear system of every predictor once and solves it in every step. A fit contains everything from curves on a
grid to coefficients: smoothing, screening, selection of penalties and early stopping, for 20 predictors of
which five matter, and 750 subjects. R and its packages are not installed here: their CPU time was recorded on
two slow shared cores, and their error on held-out subjects was 0.165. Before ours is timed, it must select
the five predictors and have a smaller error.
"""

import numpy as np

from bench.racing import Race, Recorded, Work

STEPS, RATE = 30, 0.3
PRICES = (0.05, 0.05, 0.05)
SUBJECTS, APART, ERROR = 750, 250, 0.165
R = Recorded(11.1, "R 4.2.2, seed v1.1.0: mean over two draws and two folds, recorded on two shared cores")


def moments(predictors, size):
    """Moments of predictors with each other and with a response that two of them make, and roughness."""
    draws = np.random.default_rng([predictors, size])
    x = draws.normal(size=(40 * size, predictors * size)) / (1 + np.arange(size * predictors) % size) ** 0.5
    surfaces = draws.normal(size=(2 * size, size))
    y = x[:, : 2 * size] @ surfaces + draws.normal(size=(len(x), size))
    return x.T @ x / len(x), x.T @ y / len(x), y.T @ y / len(x), (1.0 + np.arange(size)) ** 4


def walk(predictors, size):
    from tacit.functional.boosting.boost import boost_path
    from tacit.functional.boosting.moments import DebiasedMoments, Moments, Penalty, design

    xx, xy, yy, rough = moments(predictors, size)
    whole = Moments(xx=xx, xy=xy, yy=yy, count=40 * size)
    evidence = DebiasedMoments(
        whole=whole,
        raw=whole,
        splits=[],
        blocks=tuple(slice(size * place, size * (place + 1)) for place in range(predictors)),
        floors=(0.0,) * predictors,
        roughness=(rough,) * predictors,
        roughness_y=rough,
    )

    def run():
        place = design(evidence, [(whole,)], Penalty(s=PRICES[0], t=PRICES[1], st=PRICES[2]))
        return boost_path(place, steps=STEPS, rate=RATE, weights=np.ones(1)).coefficients(STEPS)[0]

    return Work(run)


def kronecker(predictors, size):
    xx, xy, _, rough = moments(predictors, size)
    blocks = xx.reshape(predictors, size, predictors, size)

    def run():
        from scipy.linalg import cho_solve

        factors = [factorised(blocks[place, :, place], rough) for place in range(predictors)]
        found, slopes = np.zeros((predictors, size, size)), xy.reshape(predictors, size, size).copy()
        for _ in range(STEPS):
            ways = []
            for place, factor in enumerate(factors):
                own = blocks[place, :, place]
                right = slopes[place] + own @ found[place]
                best = cho_solve(factor, right.T.ravel(), check_finite=False).reshape(size, size).T
                ahead = best - found[place]
                ways.append((np.vdot(ahead, own @ ahead - 2 * slopes[place]), place, ahead))
            _, place, ahead = min(ways, key=lambda way: way[0])
            found[place] += RATE * ahead
            slopes -= blocks[:, :, place] @ (RATE * ahead)
        return found

    return Work(run)


def factorised(own, rough):
    """The linear system of one predictor: penalties are relative to its mean variance, as ours are."""
    from scipy.linalg import cho_factor

    size, variance = len(own), np.trace(own) / len(own)
    per_s = PRICES[0] * variance / rough.mean()
    per_t, per_both = PRICES[1] * variance / rough.mean(), PRICES[2] * variance / rough.mean() ** 2
    system = np.kron(np.eye(size), own + 1e-10 * variance * np.eye(size) + per_s * np.diag(rough))
    system += np.kron(np.diag(rough), per_t * np.eye(size) + per_both * np.diag(rough))
    return cho_factor(system, overwrite_a=True, check_finite=False)


def whole_fit(seed):
    from tacit.functional import FunctionalRegressor
    from tacit.functional.data import simulate
    from tacit.functional.metrics import ril2

    made = simulate("seed", records=SUBJECTS + APART, seed=seed)
    response = made.response
    known = {name: (x.times, x.values[:SUBJECTS]) for name, x in made.predictors.items()}
    new = {name: (x.times, x.values[SUBJECTS:]) for name, x in made.predictors.items()}

    def run():
        return FunctionalRegressor().fit(known, (response.times, response.values[:SUBJECTS]))

    def check():
        model = run()
        error = ril2(response.values[SUBJECTS:], model.predict(new), response.times)
        assert set(model.selected_) == {f"x{number}" for number in range(1, 6)}, model.selected_
        assert error < ERROR, error
        return error

    return Work(run, check)


RACES = [
    *(
        Race(
            name=f"{STEPS} steps, {predictors} predictors, {size} functions a side",
            group=f"boosting, {STEPS} steps, {predictors} predictors, {size} functions a side",
            given={"predictors": predictors, "size": size},
            ours=walk,
            theirs={"dense Kronecker Cholesky": kronecker},
            same=1e-8,
        )
        for predictors, size in ((5, 20), (20, 20), (5, 40))
    ),
    Race(
        name="a whole fit, 20 predictors, 750 subjects",
        group="a fit of curves on curves, 20 predictors, 750 subjects",
        given={"seed": 7001},
        ours=whole_fit,
        theirs={"R 4.2, the reference's code": R},
        same=0.0,
        goal=20,
    ),
]
