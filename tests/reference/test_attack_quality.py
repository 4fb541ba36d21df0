"""Quality of a model when six of twenty hospitals lie: the default rule beside the plain mean.

The hospitals differ in whom they treat, in how much their patients vary, in how long they live, and in what
their features do: what a hospital adds to the effects is two thirds as long as what all share.
"""

from functools import cache

import numpy as np
import pytest

from tacit import Federation, Open, Privacy, fit
from tacit.aggregation import Krum, Mean, Median, Robust, TrimmedMean
from tacit.aggregation.attacks import ATTACKS
from tacit.aggregation.base import Aggregator
from tacit.sites.table import Table, concatenate, from_arrays
from tacit.survival import CoxPH
from tacit.survival.metrics import harrell

SITES, LIARS = 20, 6
RECORDS, HELD_OUT, FEATURES = 100, 50, 20
# How far all sites' effects go together, and what a site adds to each.
SHARED, OWN = 2.7, 0.4
# What the default may lose to any liar.
MARGIN = 0.025
# Those that reverse the plain mean or make it useless, and what it is left with at best.
RUIN = {"scaling": 0.4, "adaptive-inner-product": 0.4, "adaptive-alie": 0.65}


@cache
def hospitals(seed: int) -> tuple[Federation, Table]:
    """Twenty sites, none like another, and records of all of them to score models on."""
    draw = np.random.default_rng(seed)
    shared = draw.standard_normal(FEATURES)
    shared *= SHARED / np.linalg.norm(shared)
    sites: dict[str, Table] = {}
    apart: list[Table] = []
    for number in range(1, SITES + 1):
        middle, spread, own, rate = (draw.standard_normal(FEATURES) for _ in range(4))
        x = draw.standard_normal((RECORDS + HELD_OUT, FEATURES)) * np.exp(0.3 * spread)
        events = draw.exponential(size=len(x)) / np.exp(x @ (shared + OWN * own) + 0.5 * rate[0])
        censorings = 2 * draw.exponential(size=len(x))
        time, event = np.minimum(events, censorings), (events < censorings).astype(float)
        patients = from_arrays(x + 0.5 * middle, time=time, event=event)
        sites[f"site-{number}"] = patients.take(slice(0, RECORDS))
        apart.append(patients.take(slice(RECORDS, None)))
    return Federation(sites, public=True, records=SITES * RECORDS), concatenate(apart)


@cache
def concordance(aggregation: Aggregator, attack: str | None, seed: int = 0, noise: float = 0.0) -> float:
    """The C-index on everybody's held-out records after fifteen rounds."""
    federation, held_out = hospitals(seed)
    promise = Privacy(
        unit="site", noise="site", noise_multiplier=noise, delta=1e-2, clip=0.5, rehearsal=True
    ) if noise else Open()  # fmt: skip
    run = fit(
        CoxPH(steps=5, sample=1.0, lr=0.2),
        federation,
        privacy=promise,
        aggregation=aggregation,
        attack=None if attack is None else ATTACKS[attack](liars=LIARS),
        rounds=15,
        seed=seed,
    )
    return harrell(held_out.targets["time"], held_out.targets["event"], run.model.risk(held_out.features))


def lost(aggregation: Aggregator, attack: str | None, seed: int = 0, noise: float = 0.0) -> float:
    """Return the loss against the plain mean without liars, with the same noise."""
    return concordance(Mean(), None, seed, noise) - concordance(aggregation, attack, seed, noise)


def test_the_hospitals_are_those_of_the_reference():
    # The reference has 0.806 for the mean, not quite such sites; there too Krum pays without a single liar.
    assert concordance(Mean(), None) == pytest.approx(0.79, abs=0.025)
    assert lost(Krum(f=LIARS, allow_fragile=True), None) > 0.015


@pytest.mark.parametrize("attack", [None, *ATTACKS])
def test_no_attack_costs_the_default_more_than_a_fortieth_of_concordance(attack: str | None):
    assert lost(Robust(f=LIARS), attack) <= MARGIN


@pytest.mark.parametrize("attack", RUIN)
def test_the_plain_mean_is_ruined(attack: str):
    assert concordance(Mean(), attack) <= RUIN[attack]


def test_sites_differ_so_much_that_rules_by_coordinate_lose_more_than_the_default_does():
    for rule in (Median(f=LIARS), TrimmedMean(f=LIARS)):
        assert lost(rule, "adaptive-inner-product") > lost(Robust(f=LIARS), "adaptive-inner-product") + 0.015


@pytest.mark.slow
def test_noise_takes_the_classics_away_and_leaves_the_default():
    for rule in (Median(f=LIARS), TrimmedMean(f=LIARS), Krum(f=LIARS, allow_fragile=True)):
        assert concordance(rule, "adaptive-inner-product", noise=0.3) < 0.65
    assert lost(Robust(f=LIARS), "adaptive-inner-product", noise=0.3) <= MARGIN


@pytest.mark.slow
@pytest.mark.parametrize("attack", [None, *ATTACKS])
def test_over_three_draws_of_hospitals_no_attack_costs_the_default_more_than_that(attack: str | None):
    losses = [lost(Robust(f=LIARS), attack, seed) for seed in (0, 1, 2)]
    assert max(losses) <= MARGIN
    assert np.mean(losses) <= 0.021
    # Noise hides a little more: liars off by some deviations cost 0.033 then.
    assert np.mean([lost(Robust(f=LIARS), attack, seed, 0.3) for seed in (0, 1, 2)]) <= 0.04


@pytest.mark.slow
@pytest.mark.parametrize("noise", [0.0, 0.3])
def test_over_three_draws_of_hospitals_the_plain_mean_is_ruined(noise: float):
    for attack, most in RUIN.items():
        assert max(concordance(Mean(), attack, seed, noise) for seed in (0, 1, 2)) <= most
