"""DifferentialPrivacy by its names: each answer costs what it says, and no seed gives its noise away."""

import numpy as np
import pytest
import torch
from torch import nn

from tacit.compat.federated_survival import DifferentialPrivacy, Explained, FSAConfig
from tacit.errors import BudgetExhausted, InvalidValue, Refused
from tacit.privacy import accounting
from tacit.privacy.accounting import gaussian
from tacit.privacy.accounting.release import clipped_release

MANY = 40_000
# The spread of 40,000 draws is within 2.5 % of the truth, but for one case in 10^9 and fewer.
CLOSE = 0.025


def tool(**options: object) -> DifferentialPrivacy:
    return DifferentialPrivacy(FSAConfig(use_differential_privacy=True, **options))


def model_with_gradients(*values: float) -> nn.Module:
    model = nn.Linear(len(values), 1, bias=False)
    model.weight.grad = torch.tensor([values])
    return model


def test_a_choice_prefers_good_candidates_and_is_charged():
    private, candidates = tool(dp_epsilon=1.0), torch.randn(5, 100)
    scores = torch.tensor([0.75, 0.80, 0.85, 0.78, 0.82])
    index = private.exponential_mechanism(candidates=candidates, quality_scores=scores, epsilon=1.0)
    assert isinstance(index, int)
    assert 0 <= index < 5
    chosen = private.exponential_mechanism_tensor(candidates=candidates, quality_scores=scores)
    assert any(torch.equal(chosen, row) for row in candidates)
    assert private.spent(0.0) == pytest.approx(2.0)
    sure = private.exponential_mechanism(candidates, 1e9 * scores, sensitivity=1.0, epsilon=1.0)
    assert sure == 2


def test_choices_follow_the_exponential_mechanism():
    private = tool(dp_sensitivity=0.5)
    drawn = [private.exponential_mechanism([0, 1], [0.0, 1.0], epsilon=1.0) for _ in range(1500)]
    # Odds of e to 1; 1,500 draws stray by more than 0.08 once in 10^10.
    assert np.mean(drawn) == pytest.approx(np.e / (1 + np.e), abs=0.08)


def test_bad_choices_are_refused_before_they_cost_anything():
    private = tool()
    with pytest.raises(InvalidValue, match="candidates = '2 for 3 scores'"):
        private.exponential_mechanism([1, 2], [0.1, 0.2, 0.3])
    with pytest.raises(InvalidValue, match="epsilon"):
        private.exponential_mechanism([1, 2], [0.1, 0.2], epsilon=0.0)
    assert private.spent() == 0


def test_gradients_are_clipped_together_and_their_length_is_told():
    model = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 1))
    model(torch.full((4, 3), 100.0)).sum().backward()
    before = torch.cat([p.grad.reshape(-1) for p in model.parameters()]).norm()
    told = tool(dp_clip_norm=0.5).clip_gradients(model)
    after = torch.cat([p.grad.reshape(-1) for p in model.parameters()]).norm()
    assert told == pytest.approx(float(before), rel=1e-6)
    assert 0.4999 < float(after) <= 0.5


def test_short_gradients_stay_as_they_are_and_broken_ones_vanish():
    short = model_with_gradients(0.3, 0.4)
    assert tool().clip_gradients(short) == pytest.approx(0.5)
    assert torch.equal(short.weight.grad, torch.tensor([[0.3, 0.4]]))
    broken = model_with_gradients(float("nan"), 1.0)
    assert tool().clip_gradients(broken) == np.inf
    assert torch.equal(broken.weight.grad, torch.zeros(1, 2))


def test_a_model_without_gradients_is_refused():
    with pytest.raises(InvalidValue, match="call backward"):
        tool().clip_gradients(nn.Linear(2, 1))


@pytest.mark.parametrize("sensitivity", [None, 3.0])
def test_gaussian_noise_keeps_epsilon_for_one_answer(sensitivity: float | None):
    private = tool(dp_epsilon=1.0, dp_delta=1e-5)
    drawn = private.add_gaussian_noise(torch.zeros(MANY), sensitivity)
    needed = gaussian.multiplier_of(1.0, 1e-5) * (sensitivity or 1.0)
    assert drawn.dtype == torch.float32
    assert float(drawn.std()) == pytest.approx(needed, rel=CLOSE)
    assert 0.99 <= private.spent() <= 1.0


def test_a_multiplier_that_is_too_small_is_explained_and_not_used():
    private = tool(dp_epsilon=2.0, dp_noise_multiplier=0.5)
    with pytest.warns(Explained, match=r"contradicts dp_epsilon = 2: one answer would cost epsilon 9\.997"):
        private.add_gaussian_noise(torch.zeros(3))
    assert private.spent() <= 2.0


def test_a_multiplier_that_is_larger_than_needed_is_used():
    private = tool(dp_epsilon=5.0, dp_noise_multiplier=8.0)
    drawn = private.add_gaussian_noise(torch.zeros(MANY))
    assert float(drawn.std()) == pytest.approx(8.0, rel=CLOSE)
    assert private.spent() == pytest.approx(accounting.epsilon([clipped_release(8.0)], 1e-5))


def test_laplace_noise_has_the_scale_of_sensitivity_over_epsilon():
    private = tool(dp_mechanism="laplace", dp_delta=None)
    drawn = private.add_laplace_noise(torch.zeros(MANY, dtype=torch.float64), sensitivity=3.0, epsilon=0.5)
    assert float(drawn.abs().mean()) == pytest.approx(6.0, rel=CLOSE)
    assert private.spent() == pytest.approx(0.5)
    with pytest.raises(InvalidValue, match="dp_delta = None"):
        private.add_gaussian_noise(torch.zeros(3))


def test_answers_compose():
    private = tool(dp_mechanism="laplace", dp_epsilon=0.5)
    for _ in range(4):
        private.add_laplace_noise(torch.zeros(2))
    assert private.spent(0.0) == pytest.approx(2.0)


def test_noise_does_not_come_from_a_seed():
    drawn: list[torch.Tensor] = []
    for _ in range(2):
        torch.manual_seed(42)
        np.random.seed(42)
        drawn.append(tool(random_seed=42).add_gaussian_noise(torch.zeros(4)))
    assert not torch.equal(drawn[0], drawn[1])


def test_what_is_not_finite_gets_no_noise():
    private = tool()
    with pytest.raises(InvalidValue, match="finite"):
        private.add_laplace_noise(torch.tensor([float("inf")]))
    assert private.spent() == 0


def test_private_gradients_cost_epsilon_over_all_calls_and_no_call_more():
    private = tool(dp_epsilon=1.0, global_epochs=3, local_epochs=2)
    model = model_with_gradients(3.0, 4.0)
    for _ in range(6):
        model.weight.grad = torch.tensor([[3.0, 4.0]])
        assert private.apply_dp_to_gradients(model, mechanism="gaussian") == pytest.approx(5.0)
    assert 0.99 <= private.spent() <= 1.0
    kept = model.weight.grad.clone()
    with pytest.raises(BudgetExhausted, match="all 6 gradients are used"):
        private.apply_dp_to_gradients(model)
    assert torch.equal(model.weight.grad, kept)


@pytest.mark.parametrize(("mechanism", "spread"), [("gaussian", 1.0), ("laplace", 2**0.5)])
def test_the_noise_of_gradients_is_for_a_record_that_turns_the_batch_around(mechanism: str, spread: float):
    private = tool(dp_epsilon=2.0, dp_clip_norm=0.5, global_epochs=4)
    model = nn.Linear(MANY, 1, bias=False)
    model.weight.grad = torch.zeros(1, MANY)
    private.apply_dp_to_gradients(model, None, mechanism)
    delta = 0.0 if mechanism == "laplace" else 1e-5
    twice = accounting.calibrate(2.0, delta, 4, relation="replace", mechanism=mechanism) * 0.5
    assert float(model.weight.grad.std()) == pytest.approx(spread * twice, rel=CLOSE)


def test_for_laplace_noise_gradients_are_clipped_in_l1():
    private = tool(dp_epsilon=1e6, dp_mechanism="laplace", global_epochs=1)
    model = model_with_gradients(3.0, -4.0)
    assert private.apply_dp_to_gradients(model, None, "laplace") == pytest.approx(7.0)
    assert float(model.weight.grad.abs().sum()) == pytest.approx(1.0, abs=1e-3)


def test_gradients_are_not_chosen():
    with pytest.raises(Refused, match="chooses one of several candidates"):
        tool().apply_dp_to_gradients(model_with_gradients(1.0), None, "exponential")
    with pytest.raises(InvalidValue, match="mechanism"):
        tool().apply_dp_to_gradients(model_with_gradients(1.0), None, "normal")


@pytest.mark.parametrize("rounds", [1, 10, 50])
def test_the_budget_of_several_rounds_is_composed(rounds: int):
    each, sigma = tool(dp_epsilon=1.0).compute_privacy_budget(rounds, num_clients=5)
    assert 0.99 <= gaussian.epsilon_of(sigma / rounds**0.5, 1e-5) <= 1.0
    assert each == pytest.approx(gaussian.epsilon_of(sigma, 1e-5))
    # Neither the sum of the parts, nor less noise for more clients.
    assert each * rounds >= 0.99
    assert tool().compute_privacy_budget(rounds, num_clients=500)[1] == sigma


def test_the_budget_of_laplace_noise_adds_up():
    private = tool(dp_mechanism="laplace", dp_delta=None, dp_epsilon=2.0, dp_sensitivity=3.0)
    each, scale = private.compute_privacy_budget(10, 5)
    assert each == pytest.approx(0.2)
    assert scale == pytest.approx(15.0)


def test_the_noise_of_one_answer_does_not_depend_on_the_number_of_clients():
    assert tool().get_noise_scale(100) == tool().get_noise_scale(1)
    assert tool().get_noise_scale(1) == pytest.approx(gaussian.multiplier_of(1.0, 1e-5), rel=1e-6)
