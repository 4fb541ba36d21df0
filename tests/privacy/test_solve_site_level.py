"""A promise to whole sites pays for its questions as for rounds, whoever adds the noise."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import pytest

from tacit.aggregation.mean import Mean
from tacit.privacy import accounting
from tacit.privacy.mechanisms.site_level import solve
from tacit.privacy.policy import Privacy

SITES = [f"site-{number}" for number in range(1, 9)]
NOISES = ["site", "server", "secure"]


@dataclass(frozen=True, kw_only=True)
class Task:
    """The public facts about a task that a promise depends on."""

    kind: str = "logistic-hazard"
    separable: bool = True
    groups: Literal["none"] = "none"
    steps: int = 5
    sample: float = 0.1
    batch: int = 10
    shuffled: bool = False
    layout: ClassVar[str] = "rows"
    exempt: ClassVar[tuple] = ()
    width: ClassVar[None] = None
    lengths: ClassVar[None] = None
    own_bound: ClassVar[None] = None
    cells_per_record: ClassVar[None] = None

    def round_shares(self, rounds: int) -> None:
        return None


def promise(noise: str, **given: object) -> Privacy:
    return Privacy(unit="site", noise=noise, epsilon=2.0, delta=1e-5, clip=1.0, **given)


def spent(mechanism, rounds: int) -> float:
    plan = [release for number in range(rounds) for release in mechanism.release(number, SITES)]
    return accounting.epsilon(plan, 1e-5)


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("asked", [0, 1, 3])
def test_rounds_and_questions_together_cost_the_promise_and_hardly_less(noise, asked):
    mechanism = solve(promise(noise), SITES, Mean(), 6, "poisson", asked)
    assert 0.99 * 2.0 <= spent(mechanism, 6 + asked) <= 2.0
    assert spent(mechanism, 7 + asked) > 2.0


def test_a_secret_draw_of_sites_is_counted_on_by_questions_as_by_rounds():
    drawn = promise("server", participation=0.5)
    mechanism = solve(drawn, SITES, Mean(), 6, "poisson", 2)
    assert 0.99 * 2.0 <= spent(mechanism, 8) <= 2.0
    assert {release.rate for release in mechanism.release(1, SITES)} == {0.5}


@pytest.mark.parametrize("noise", NOISES)
def test_what_a_promise_solves_for_is_what_protects_its_sites(noise):
    mechanism = promise(noise).solve(Task(), SITES, Mean(), 6)
    assert mechanism.release(1, SITES) == solve(promise(noise), SITES, Mean(), 6, "poisson", 0).release(
        1, SITES
    )
