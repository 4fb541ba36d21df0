"""Quality of predicted curves: without noise, and at every promised epsilon.

Two designs, both with a noise floor of RIL2 = 1/11. The seed design is the reference's own: 750 subjects to
learn from and 250 to judge by, 20 predictors of which 5 count. R took 11.1 s for 0.165 there. The smooth one
has 5,000 and 2,000 subjects and 4 predictors, 2 of which count. Wherever there is a promise, all radii are
bought with a part of it, so that no constant was chosen by looking, and steps, prices and predictors are
chosen from the release alone. Every seed has a truth, subjects and noise of its own.
"""

from dataclasses import replace
from functools import cache, lru_cache
from typing import NamedTuple

import numpy as np
import pytest

from tacit import Open, Privacy, fit
from tacit.functional import Boosting, FunctionalRegressor
from tacit.functional.data import simulate
from tacit.functional.data.sources import SimulatedCurves
from tacit.functional.metrics import ril2
from tacit.runs.run import Run
from tacit.sites.vertical import ByParty, VerticalFederation

ACTIVE = ("x1", "x2", "x3", "x4", "x5")
# What nobody can predict.
FLOOR = 1 / 11
SEED_DESIGN = SimulatedCurves()
SMOOTH = SimulatedCurves(design="smooth", records=7000, held_out=2 / 7)
SEEDS = (6001, 6002, 6003, 6004, 6005)
# What the promise says of lengths, to no purpose: what curves are clipped to is bought.
FAR = 100.0
# Who adds noise, and epsilon: the largest RIL2 that was promised, and the mean that was found once.
PROMISED = {
    ("site", 10): (0.5, 0.191),
    ("server", 10): (0.13, 0.093),
    ("server", 1): (0.25, 0.129),
}


class Found(NamedTuple):
    """Results of a run: RIL2 on held-out subjects, its price, and the largest clip radius."""

    error: float
    epsilon: float | None
    radius: float


@lru_cache(maxsize=len(SEEDS))
def subjects(parties: int, seed: int) -> VerticalFederation:
    return SMOOTH.open(ByParty(count=parties), seed)


@cache
def smooth(noise: str, epsilon: float | None, seed: int, parties: int = 2, draw: int = 0) -> Found:
    """A fit to the smooth design; draws have the same subjects, and other noise."""
    promise = Open() if epsilon is None else Privacy(
        unit="record", epsilon=epsilon, delta=1e-5, clip=FAR, noise=noise, rehearsal=True
    )  # fmt: skip
    task = Boosting(radius="private")
    run = fit(task, subjects(parties, seed), privacy=promise, seed=1000 * draw + seed)
    longest = max((run.task.lengths or {"none": 0.0}).values())
    return Found(run.scores["ril2"], run.privacy.epsilon, longest)


def errors(noise: str, epsilon: float | None, parties: int = 2, draw: int = 0) -> np.ndarray:
    """RIL2 for each seed."""
    return np.array([smooth(noise, epsilon, seed, parties, draw).error for seed in SEEDS])


@cache
def seed_design(seed: int, parties: int) -> Run:
    return fit(Boosting(), SEED_DESIGN.open(ByParty(count=parties), seed), seed=seed)


def check_one(noise: str, epsilon: float, seed: int) -> None:
    found = smooth(noise, epsilon, seed)
    assert found.error <= PROMISED[noise, epsilon][0]
    assert 0.99 * epsilon < found.epsilon <= epsilon
    assert found.radius < FAR / 10


def test_the_seed_design_is_predicted_better_than_by_the_reference_and_its_predictors_are_found():
    for seed in SEEDS[:2]:
        run = seed_design(seed, 2)
        assert FLOOR < run.scores["ril2"] <= 0.12
        assert run.model.selected == ACTIVE


def test_the_regressor_is_as_good_as_the_task_it_is_made_of():
    made = simulate("seed", records=1000, seed=SEEDS[0])
    known, new = made.take(slice(0, 750)), made.take(slice(750, 1000))
    model = FunctionalRegressor().fit(known.predictors, known.response)
    found = ril2(new.response.values, model.predict(new.predictors), new.response.times)
    assert found == pytest.approx(seed_design(SEEDS[0], 2).scores["ril2"], abs=1e-9)
    assert model.selected_ == ACTIVE


def test_without_noise_the_number_of_parties_changes_nothing():
    few, many = seed_design(SEEDS[0], 2), seed_design(SEEDS[0], 10)
    assert many.scores == pytest.approx(few.scores, abs=1e-9)
    assert many.model.path == few.model.path


@pytest.mark.parametrize(("noise", "epsilon"), PROMISED)
def test_what_was_promised_for_the_smooth_design_is_kept(noise: str, epsilon: float):
    check_one(noise, epsilon, SEEDS[0])


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6001, 6011))
def test_over_ten_draws_of_the_seed_design_all_that_counts_is_found(seed: int):
    run = seed_design(seed, 2)
    assert run.scores["ril2"] <= 0.12
    assert set(ACTIVE) <= set(run.model.selected)
    assert len(run.model.selected) <= 6


@pytest.mark.slow
@pytest.mark.parametrize(("noise", "epsilon"), PROMISED)
def test_over_five_draws_of_the_smooth_design_what_was_promised_is_kept(noise: str, epsilon: float):
    for seed in SEEDS:
        check_one(noise, epsilon, seed)
    assert errors(noise, epsilon).mean() == pytest.approx(PROMISED[noise, epsilon][1], rel=0.1)


@pytest.mark.slow
@pytest.mark.parametrize("parties", [4, 6, 8, 10])
def test_over_two_draws_no_number_of_parties_changes_anything_without_noise(parties: int):
    for seed in SEEDS[:2]:
        assert seed_design(seed, parties).scores == pytest.approx(seed_design(seed, 2).scores, abs=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize(("noise", "epsilon"), PROMISED)
def test_at_the_same_epsilon_any_number_of_parties_is_as_good_up_to_noise(noise: str, epsilon: float):
    # Every number of parties has noise of its own, and the first one several, to see how much that varies.
    usual = [errors(noise, epsilon, 2, draw) for draw in range(3)]
    variance = float(np.mean(np.var(usual, axis=0, ddof=1)))
    for parties in (3, 4):
        apart = errors(noise, epsilon, parties, parties).mean() - np.mean(usual)
        assert abs(apart) <= 3 * np.sqrt((1 + 1 / 3) * variance / len(SEEDS))


@pytest.mark.slow
@pytest.mark.parametrize("parties", [2, 4, 6, 8, 10])
def test_with_the_same_noise_on_moments_the_number_of_parties_changes_nothing(parties: int):
    promise = Privacy(unit="record", epsilon=10, delta=1e-5, clip=2.0, noise="server", rehearsal=True)
    one, several = (
        fit(
            Boosting(),
            replace(SMOOTH, predictors=10).open(ByParty(count=count), SEEDS[0]),
            privacy=promise,
            seed=1,
        )
        for count in (1, parties)
    )
    assert several.scores["ril2"] == pytest.approx(one.scores["ril2"], abs=1e-9)
    assert several.privacy.epsilon == one.privacy.epsilon


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [10, 1])
def test_products_in_secret_lose_no_more_than_the_share_of_noise_that_does_not_count(epsilon: float):
    # The server may know one of three shares, so that there is 3/2 of the variance that is needed.
    best = errors("server", None).mean()
    trusted, secret = (errors(noise, epsilon, 3).mean() - best for noise in ("server", "secure"))
    assert 0 < secret <= 1.25 * 1.5 * trusted
    assert (errors("secure", epsilon, 3) <= PROMISED["server", epsilon][0]).all()
