"""Queries beside the rounds are paid from the same budget, which all charges together keep."""

import math
from dataclasses import dataclass, replace
from itertools import product
from typing import ClassVar

import numpy as np
import pytest

from tacit.aggregation.mean import Mean
from tacit.errors import InvalidValue
from tacit.privacy.accounting import calibrate, epsilon
from tacit.privacy.accounting.release import Release, clipped_release
from tacit.privacy.mechanisms.base import NORMS, NoPrivacy, RecordLevel
from tacit.privacy.mechanisms.site_level import SiteLevel
from tacit.privacy.policy import Open, Privacy

DELTA = 1e-5
LAWS = ("gaussian", "laplace")


def bought(law: str, budget: float, shares: tuple[float, ...]) -> list[Release]:
    """Answers that cost these shares of a budget, each by itself."""
    return [
        Release(law=law, scale=3 * calibrate(share * budget, DELTA, mechanism=law), sensitivity=3.0)
        for share in shares
    ]


def whole(noise: float, steps: int, beside: list[Release], **options) -> float:
    return epsilon([clipped_release(noise, count=steps, **options), *beside], DELTA)


CASES = list(product(LAWS, (0.5, 3.0, 20.0), (0.05, 1.0), ("unit", "group")))


@pytest.mark.parametrize(("law", "budget", "rate", "sampled"), CASES)
def test_steps_and_what_is_beside_them_cost_the_budget_and_no_more(law, budget, rate, sampled):
    beside = bought(law, budget, (0.1, 0.2))
    options = {"rate": rate, "sampled": sampled}
    noise = calibrate(budget, DELTA, 20, mechanism=law, beside=beside, **options)
    spent = whole(noise, 20, beside, law=law, **options)
    assert 0.98 * budget < spent <= budget
    # It is dearer than without.
    assert noise > calibrate(budget, DELTA, 20, mechanism=law, **options)


@pytest.mark.parametrize("seed", range(10))
def test_no_combination_costs_more_than_its_budget(seed):
    draw = np.random.default_rng(seed)
    law, other = (str(name) for name in draw.choice(LAWS, 2))
    budget, steps = float(np.exp(draw.uniform(-3, 3))), int(draw.integers(1, 50))
    beside = bought(other, budget, tuple(draw.uniform(0.01, 0.3, draw.integers(0, 4)).tolist()))
    options = {"rate": float(draw.choice([0.01, 0.3, 1.0])), "sampled": str(draw.choice(["unit", "group"]))}
    noise = calibrate(budget, DELTA, steps, mechanism=law, beside=beside, **options)
    assert 0 < noise < math.inf
    assert whole(noise, steps, beside, law=law, **options) <= budget


@pytest.mark.parametrize(("law", "budget", "rate", "sampled"), CASES)
def test_with_nothing_beside_it_is_what_it_was(law, budget, rate, sampled):
    options = {"mechanism": law, "rate": rate, "sampled": sampled}
    assert calibrate(budget, DELTA, 20, beside=[], **options) == calibrate(budget, DELTA, 20, **options)


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("share", [1.01, 1.2, 30.0])
def test_a_budget_that_is_spent_already_is_refused(law, share):
    beside = bought(law, 2.0, (share,))
    with pytest.raises(InvalidValue, match=r"epsilon = 2.0 is not allowed.*the price of the other releases"):
        calibrate(2.0, DELTA, 20, mechanism=law, beside=beside)


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("share", [0.5, 0.9, 0.97])
def test_little_that_is_left_takes_much_noise(law, share):
    beside = bought(law, 1.0, (share,))
    noise = calibrate(1.0, DELTA, 40, rate=0.1, mechanism=law, beside=beside)
    assert whole(noise, 40, beside, law=law, rate=0.1) <= 1.0


def test_without_delta_parts_add_up():
    beside = [Release(law="laplace", scale=1 / 0.3, sensitivity=1.0)]
    noise = calibrate(1.0, 0, 10, mechanism="laplace", beside=beside)
    assert noise == pytest.approx(10 / 0.7)
    assert epsilon([clipped_release(noise, count=10, law="laplace"), *beside], 0) <= 1.0


def test_whose_releases_are_beside_does_not_matter():
    """They are about the same records, whatever they call them."""
    beside = bought("gaussian", 1.0, (0.2,))
    named = [replace(release, subject="records@oslo", party="oslo") for release in beside]
    assert calibrate(1.0, DELTA, 10, beside=named) == calibrate(1.0, DELTA, 10, beside=beside)


# Promises


@dataclass(frozen=True)
class Asks:
    """A question, as far as a promise needs to know it."""

    kind: str = "how many"
    share: float = 0.15
    share_of: ClassVar[str] = "epsilon"
    cells_per_record: ClassVar[None] = None
    layout: ClassVar[str] = "rows"

    def record_bound(self, norm: str) -> float:
        return 2.0 if norm == "l2" else 5.0


@dataclass(frozen=True)
class Task:
    """Some work, as far as a promise needs to know it."""

    groups: str = "none"
    separable: bool = True
    kind: str = "work"
    steps: int = 3
    sample: float = 0.2
    batch: int | None = None
    shuffled: bool = False
    layout: ClassVar[str] = "rows"
    exempt: ClassVar[tuple] = ()
    width: ClassVar[None] = None
    lengths: ClassVar[None] = None
    own_bound: ClassVar[None] = None
    cells_per_record: ClassVar[None] = None

    def round_shares(self, rounds: int) -> None:
        return None


QUESTIONS = [Asks(), Asks("when", 0.2)]
RECORD = Privacy(unit="record", epsilon=2.0, delta=DELTA, clip=0.5)


def spent(promise: Privacy, task: Task, rounds: int, records: int | None = None) -> float:
    """Everything that is released about the records of one site."""
    mechanism = promise.solve(task, ["oslo", "bergen"], Mean(), rounds, records=records, questions=QUESTIONS)
    told = [release for number in range(rounds) for release in mechanism.release(number, ["oslo"])]
    for question in QUESTIONS:
        told += promise.solve_query(question, mechanism).release(0, ["oslo"])
    return epsilon([*told, *mechanism.count_releases(["oslo"])], promise.delta)


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("records", [None, 400])
@pytest.mark.parametrize("groups", ["none", "records", "groups"])
def test_rounds_questions_and_counts_cost_the_promise(groups, records, law):
    promise = replace(RECORD, mechanism=law)
    task = Task(groups=groups, separable=groups == "none")
    assert 0.97 * promise.epsilon < spent(promise, task, 5, records) <= promise.epsilon


@pytest.mark.parametrize(("noise", "participation"), [("site", 1.0), ("server", 1.0), ("server", 0.6)])
@pytest.mark.parametrize("law", LAWS)
def test_to_whole_sites_a_question_is_a_round(law, noise, participation):
    promise = replace(
        RECORD, unit="site", mechanism=law, noise=noise, participation=participation, epsilon=6.0
    )
    sites = [f"site-{number}" for number in range(9)]
    mechanism = promise.solve(Task(), sites, Mean(), 5, questions=QUESTIONS)
    assert isinstance(mechanism, SiteLevel)
    assert mechanism == promise.solve(Task(), sites, Mean(), 7)
    assert all(promise.solve_query(question, mechanism) is mechanism for question in QUESTIONS)
    told = [release for number in range(7) for release in mechanism.release(number, sites)]
    assert 0.97 * promise.epsilon < epsilon(told, promise.delta) <= promise.epsilon


@pytest.mark.parametrize("law", LAWS)
def test_a_question_is_answered_by_everybody_within_its_own_reach(law):
    promise = replace(RECORD, mechanism=law)
    mechanism = promise.solve_query(QUESTIONS[0], NoPrivacy())
    assert isinstance(mechanism, RecordLevel)
    assert (mechanism.clip, mechanism.rate, mechanism.steps) == (
        QUESTIONS[0].record_bound(NORMS[law]),
        1.0,
        1,
    )
    assert not mechanism.grouped
    assert mechanism.counts is None
    price = epsilon(mechanism.release(0, ["oslo"]), promise.delta)
    assert 0.97 * 0.15 * 2.0 < price <= 0.15 * 2.0
    # The clip of the rounds has nothing to do with it.
    assert promise.solve_query(QUESTIONS[0], NoPrivacy()) == replace(promise, clip=9.0).solve_query(
        QUESTIONS[0], NoPrivacy()
    )


def test_a_rehearsal_stays_one_and_open_questions_cost_nothing():
    promise = replace(RECORD, rehearsal=True)
    assert promise.solve_query(QUESTIONS[0], NoPrivacy()).release(0, ["oslo"])[0].rehearsal
    mechanism = Open().solve(Task(), ["oslo"], Mean(), 3, questions=QUESTIONS)
    assert Open().solve_query(QUESTIONS[0], mechanism).release(0, ["oslo"]) == ()


def test_with_noise_that_is_given_a_question_has_that_noise():
    promise = Privacy(unit="record", noise_multiplier=1.3, delta=DELTA, clip=0.5)
    (price,) = promise.solve_query(QUESTIONS[0], NoPrivacy()).release(0, ["oslo"])
    assert price.multiplier == pytest.approx(1.3)
    assert price.scale == pytest.approx(1.3 * 2.0)


def test_shares_that_leave_nothing_are_refused():
    with pytest.raises(InvalidValue, match="the price of the other releases"):
        RECORD.solve(Task(), ["oslo"], Mean(), 3, questions=[Asks(share=0.99), Asks(share=0.99)])
