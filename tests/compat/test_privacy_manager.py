"""The names people know, with an epsilon that is true."""

from contextlib import nullcontext

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tacit import Ledger
from tacit.compat.privacy_manager import (
    BudgetNearlyExhausted,
    DPSGDTrainer,
    PrivacyBudget,
    PrivacyManager,
    PrivacyParams,
    advanced_composition_epsilon,
    basic_composition_epsilon,
    compute_delta_from_epsilon,
    compute_epsilon_from_delta,
    estimate_noise_scale,
)
from tacit.errors import BudgetExhausted, InvalidValue
from tacit.privacy.accounting import gaussian

# Most tests use up their budget.
pytestmark = pytest.mark.filterwarnings("ignore::tacit.compat.privacy_manager.BudgetNearlyExhausted")


@pytest.mark.parametrize("rounds", [1, 10, 50, 100])
def test_the_stated_epsilon_is_the_composed_one(rounds: int):
    manager = PrivacyManager(epsilon=1, delta=1e-5, num_rounds=rounds)
    composed = gaussian.epsilon_of(manager.get_noise_scale() / rounds**0.5, 1e-5)
    assert 0.98 <= composed <= 1
    for _ in range(rounds):
        manager.apply_privacy(np.ones(3))
    assert 0.98 <= manager.get_privacy_status()["epsilon_spent"] <= 1


def test_a_release_beyond_the_rounds_is_refused_and_changes_nothing():
    manager = PrivacyManager(epsilon=1, delta=1e-5, num_rounds=2)
    for _ in range(2):
        manager.apply_privacy(np.ones(3))
    before = manager.get_privacy_status()
    with pytest.raises(BudgetExhausted, match="all 2 releases are used"):
        manager.apply_privacy(np.ones(3))
    assert manager.get_privacy_status() == before


def test_a_record_in_a_batch_needs_twice_the_noise():
    whole, record = PrivacyManager(num_rounds=5), PrivacyManager(num_rounds=5, relation="replace")
    assert record.get_noise_scale() == pytest.approx(2 * whole.get_noise_scale())


def test_clipping_works_on_arrays_tensors_and_dicts():
    manager = PrivacyManager(clip_norm=1.0)
    assert np.linalg.norm(manager.clip_gradients(np.array([10.0, 20.0, 30.0]))) == pytest.approx(1)
    assert float(manager.clip_gradients(torch.full((2, 2), 9.0)).norm()) == pytest.approx(1)
    clipped = manager.clip_gradients({"weight": np.full((2, 3), 5.0, np.float32), "bias": np.zeros(2)})
    assert clipped["weight"].shape == (2, 3)
    assert clipped["weight"].dtype == np.float32
    assert np.sqrt(sum(np.sum(part.astype(float) ** 2) for part in clipped.values())) <= 1 + 1e-6


def test_short_gradients_stay_as_they_are():
    short = np.array([0.1, -0.2, 0.3])
    assert np.array_equal(PrivacyManager().clip_gradients(short), short)


def test_broken_gradients_become_noise_alone():
    manager = PrivacyManager(num_rounds=1)
    assert np.isfinite(manager.apply_privacy(np.array([np.nan, np.inf, 1.0]))).all()


def test_noise_is_never_added_to_what_was_not_clipped():
    manager = PrivacyManager(epsilon=1e6, clip_norm=1.0, num_rounds=1, seed=0)
    assert np.linalg.norm(manager.add_gaussian_noise(np.full(4, 1e9))) < 2


def test_noise_has_the_stated_scale():
    manager = PrivacyManager(epsilon=1, delta=1e-5, num_rounds=1, seed=3)
    drawn = manager.apply_privacy(np.zeros(40_000))
    # The standard deviation of 40,000 normal draws is within 2 % of the truth, but for one case in 10^8.
    assert np.std(drawn) == pytest.approx(manager.get_noise_scale(), rel=0.02)


def test_a_seed_is_a_rehearsal_and_says_so():
    first, second = (PrivacyManager(num_rounds=1, seed=5) for _ in range(2))
    assert np.array_equal(first.apply_privacy(np.ones(3)), second.apply_privacy(np.ones(3)))
    assert first.get_privacy_status()["rehearsal"] is True
    assert first.privacy_budget.ledger.releases()[0].rehearsal
    unseeded = [PrivacyManager(num_rounds=1).apply_privacy(np.ones(3)) for _ in range(2)]
    assert not np.array_equal(*unseeded)


def test_whole_numbers_and_kinds_of_arrays_come_back_in_kind():
    manager = PrivacyManager(num_rounds=3)
    assert manager.apply_privacy(np.array([1, 2])).dtype == np.float64
    assert isinstance(manager.apply_privacy({"a": torch.ones(2)})["a"], torch.Tensor)
    assert manager.apply_privacy(torch.ones(2, dtype=torch.float64)).dtype == torch.float64


def test_nothing_to_protect_is_an_error_and_charges_nothing():
    manager = PrivacyManager(num_rounds=1)
    for empty in ({}, np.array([])):
        with pytest.raises(InvalidValue, match="empty"):
            manager.apply_privacy(empty)
    assert manager.privacy_budget.rounds_used == 0


def test_the_budget_counts_down():
    budget = PrivacyBudget(epsilon=1, delta=1e-5, num_rounds=4)
    remaining = [budget.epsilon_remaining()]
    for number in range(4):
        with nullcontext() if number != 2 else pytest.warns(BudgetNearlyExhausted, match="1 of 4 releases"):
            budget.use_round()
        remaining.append(budget.epsilon_remaining())
    assert remaining == sorted(remaining, reverse=True)
    assert remaining[0] == 1
    assert remaining[-1] == pytest.approx(0, abs=1e-3)
    status = budget.get_status()
    assert (status["rounds_used"], status["exhausted"]) == (4, True)


def test_a_ledger_that_outlives_the_manager_remembers():
    with Ledger() as ledger:
        ledger.allow(epsilon=1.1, delta=1e-5)
        PrivacyManager(epsilon=1, num_rounds=1, ledger=ledger).apply_privacy(np.ones(2))
        with pytest.raises(BudgetExhausted, match=r"1\.1 is allowed"):
            PrivacyManager(epsilon=1, num_rounds=1, ledger=ledger).apply_privacy(np.ones(2))


@pytest.mark.parametrize("named", ["advanced", "basic"])
def test_another_composition_is_taken_and_explained_by_the_exact_one(named: str):
    with pytest.warns(UserWarning, match=f'composition = "{named}" is not used'):
        manager = PrivacyManager(num_rounds=10, composition=named)
    assert manager.get_noise_scale() == PrivacyManager(num_rounds=10).get_noise_scale()
    assert manager.get_privacy_status()["composition"] == "exact"
    with pytest.raises(InvalidValue, match="composition"):
        PrivacyManager(composition="optimal")


def test_the_trainer_counts_what_goes_through():
    trainer = DPSGDTrainer(PrivacyManager(num_rounds=3))
    trainer.clip_and_noise_gradients({"w": np.ones(3)})
    with pytest.warns(BudgetNearlyExhausted):
        trainer.clip_and_noise_gradients({"w": np.full(3, 0.1)})
    stats = trainer.get_stats()
    assert (stats["training_steps"], stats["gradients_clipped"], stats["noise_added"]) == (2, 1, 2)
    assert stats["privacy_budget"]["rounds_used"] == 2


@given(st.floats(0.05, 20), st.floats(1e-8, 1e-3), st.integers(1, 500), st.floats(0.1, 10))
def test_the_conversions_agree_with_each_other(epsilon: float, delta: float, rounds: int, clip: float):
    scale = estimate_noise_scale(epsilon, delta, clip, rounds)
    assert compute_epsilon_from_delta(delta, scale, clip, rounds) == pytest.approx(epsilon, rel=1e-5)
    assert compute_delta_from_epsilon(epsilon, scale, clip, rounds) == pytest.approx(delta, rel=1e-3)


def test_the_theorems_are_the_right_ones():
    assert basic_composition_epsilon(0.1, 100) == pytest.approx(10)
    assert advanced_composition_epsilon(10**-0.5, 10, 1e-5) == pytest.approx(5.9747, abs=1e-3)


@pytest.mark.parametrize(
    "call",
    [
        lambda: PrivacyParams(epsilon=-1),
        lambda: PrivacyParams(delta=0),
        lambda: PrivacyParams(clip_norm=float("nan")),
        lambda: PrivacyManager(num_rounds=0),
        lambda: PrivacyManager(epsilon=float("inf")),
        lambda: compute_epsilon_from_delta(1e-5, 0.0),
        lambda: compute_delta_from_epsilon(-1, 1.0),
        lambda: estimate_noise_scale(1, 1e-5, clip_norm=-1),
        lambda: advanced_composition_epsilon(0.1, 10, 2.0),
        lambda: basic_composition_epsilon(0.1, 0),
    ],
)
def test_bad_input_is_refused(call):
    with pytest.raises(InvalidValue, match="is not allowed"):
        call()


def test_a_list_of_arrays_is_refused_with_a_remedy_that_works():
    manager, parts = PrivacyManager(num_rounds=2, seed=0), [np.ones((2, 3)), np.ones(4)]
    with pytest.raises(InvalidValue, match=r"a list of them as dict\(enumerate\(...\)\)"):
        manager.apply_privacy(parts)
    assert manager.privacy_budget.rounds_used == 0
    private = manager.apply_privacy(dict(enumerate(parts)))
    assert [private[number].shape for number in range(2)] == [(2, 3), (4,)]
