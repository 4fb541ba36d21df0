"""A plan prices an experiment before it touches data."""

import pytest

from tacit import Open, Privacy, Supervised
from tacit.errors import NotSeparable
from tacit.learning.task import Task
from tacit.privacy.plan import Plan
from tacit.runs.setup import prepare
from tacit.runs.spec import PublicFacts, RunSpec
from tacit.survival import LogisticHazard

TASK = LogisticHazard(steps=10, sample=0.1, batch=20, horizon=5.0)
SITES = ("oslo", "bergen")


def plan(privacy: Privacy | Open, task: Task, rounds: int, records: int | None = None) -> Plan:
    spec = RunSpec(task=task, privacy=privacy, rounds=rounds)
    return prepare(spec, PublicFacts(names=SITES, records=records)).plan()


def test_the_planned_rounds_fit_the_budget_and_one_more_does_not():
    made = plan(Privacy(unit="record", epsilon=3, delta=1e-4, clip=1), TASK, 40)
    assert 0.995 * 3 <= made.spends[40] <= 3 < made.spends[41]
    assert made.noise_multiplier == pytest.approx(2.60, abs=0.01)
    assert made.spends[1] < made.spends[20] < made.spends[40]


def test_other_theorems_would_claim_more():
    made = plan(Privacy(unit="record", epsilon=3, delta=1e-4, clip=1), TASK, 40)
    assert made.comparisons["rdp"] == pytest.approx(3.32, abs=0.1)
    assert all(value > made.spends[40] for value in made.comparisons.values() if value is not None)


def test_given_noise_is_priced_instead_of_solved():
    made = plan(Privacy(unit="record", noise_multiplier=1.0, delta=1e-5, clip=2), TASK, 1)
    assert made.noise_multiplier == 1.0
    assert made.budget is None


def test_an_open_run_has_no_price():
    made = plan(Open(), TASK, 40)
    assert made.noise_multiplier is None
    assert made.spends == {}
    assert "open" in made.warnings[0]


@pytest.mark.parametrize(
    ("fields", "records", "word"),
    [
        ({"delta": 1e-5, "rehearsal": True}, 2000, "rehearsal"),
        ({"delta": 1e-5, "epsilon": 50}, 2000, "is a weak promise"),
        ({"delta": 1e-2}, 2000, "a person may be exposed"),
        ({"delta": 3e-4}, 2000, "loose"),
    ],
)
def test_the_author_is_warned(fields: dict, records: int, word: str):
    privacy = Privacy(unit="record", clip=1, **{"epsilon": 3, **fields})
    assert any(word in warning for warning in plan(privacy, TASK, 4, records=records).warnings)


@pytest.mark.parametrize(("delta", "loose"), [(0.99e-4, False), (1.01e-4, True)])
def test_a_delta_is_loose_from_a_tenth_of_one_in_the_records_of_a_site(delta: float, loose: bool):
    """Two sites of 1,000 records each; one in 2,000 is far above it."""
    privacy = Privacy(unit="record", epsilon=1, delta=delta, clip=1)
    found = [warning for warning in plan(privacy, TASK, 4, records=2000).warnings if "is loose" in warning]
    assert len(found) == loose
    assert all("a site of about 1,000 records" in warning for warning in found)


def test_a_sound_plan_has_no_warnings():
    privacy = Privacy(unit="record", epsilon=3, delta=1e-6, clip=1)
    assert plan(privacy, TASK, 4, records=2000).warnings == ()


def test_a_coupled_loss_is_refused_with_the_way_out():
    from torch import nn

    coupled = Supervised(module=nn.Linear(3, 1), loss=lambda outputs, present, time, event: 0, coupled=True)
    with pytest.raises(NotSeparable, match="poisson-ph"):
        plan(Privacy(unit="record", epsilon=3, delta=1e-5, clip=1), coupled, 4)


def test_a_number_of_records_that_nobody_knows_is_bought_within_the_budget():
    privacy = Privacy(unit="record", epsilon=3, delta=1e-5, clip=1)
    unknown, known = (
        plan(privacy, LogisticHazard(horizon=5.0), 40, records=records) for records in (None, 2000)
    )
    assert 0.95 * 3 <= unknown.spends[40] <= 3
    assert unknown.noise_multiplier > known.noise_multiplier
    assert any("number of records" in line and "Laplace" in line for line in unknown.statement.released)
    assert not any("Laplace" in line for line in known.statement.released)


@pytest.mark.parametrize(("delta", "warned"), [(1e-3, False), (1.001e-3, True)])
def test_a_delta_for_fewer_than_a_thousand_records_is_warned_about(delta, warned):
    made = plan(Privacy(unit="record", epsilon=3, delta=delta, clip=1), TASK, 2)
    assert any("is for data of at most" in warning for warning in made.warnings) == warned
