"""A network and a loss of one's own as a task: what it asks for, what it refuses, what it gives back."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import tacit
from tacit import Federation, Key, Open, Privacy, Supervised
from tacit.aggregation.mean import Mean
from tacit.errors import InvalidValue, NotSeparable, Refused
from tacit.learning.perceptron import Perceptron
from tacit.learning.torch_modules import ParameterLayout, TorchProgram
from tacit.privacy.mechanisms.base import NoPrivacy, RecordLevel
from tacit.privacy.mechanisms.site_level import SiteLevel
from tacit.privacy.policy import Provenance
from tacit.sites.table import Table, from_arrays

TRUTH = np.array([1.0, -2.0, 0.5])


def table(size: int, seed: int = 0) -> Table:
    draw = np.random.default_rng(seed)
    x = draw.normal(size=(size, 3))
    return from_arrays(x, y=x @ TRUTH + 0.01 * draw.normal(size=size))


def federation(**fields) -> Federation:
    tables = {name: table(size, seed) for seed, (name, size) in enumerate([("oslo", 60), ("bergen", 25)])}
    return Federation(tables, held_out=table(50, 9), **fields)


def own(output: Tensor, y: Tensor) -> Tensor:
    return torch.log1p((output[0] - y) ** 2)


def coupled(outputs: Tensor, present: Tensor, y: Tensor) -> Tensor:
    kept = torch.where(present, outputs[:, 0] - y, 0.0)
    return kept.square().sum() / present.sum().clamp(min=1)


def linear() -> nn.Module:
    module = nn.Linear(3, 1)
    with torch.no_grad():
        for values in module.parameters():
            values.zero_()
    return module


def perceptron() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))


def custom() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.LayerNorm(3), nn.Linear(3, 1))


# What it promises about itself


def test_a_loss_over_records_is_separable_and_has_no_groups():
    task = Supervised(module=linear(), loss="squared")
    assert (task.separable, task.groups, task.risk_groups, task.kind) == (True, "none", None, "supervised")


def test_a_coupled_loss_is_not_separable_until_it_is_formed_in_groups():
    whole = Supervised(module=linear(), loss=coupled, coupled=True)
    grouped = replace(whole, groups_per_site=6)
    assert (whole.separable, whole.groups, whole.risk_groups) == (False, "none", None)
    assert (grouped.separable, grouped.groups, grouped.risk_groups) == (False, "groups", 6)


def test_epochs_are_shuffled_and_steps_are_not():
    assert Supervised(module=linear(), loss="squared", epochs=1).shuffled
    assert not Supervised(module=linear(), loss="squared", steps=3).shuffled


def test_what_counts_is_the_loss_unless_a_metric_is_named():
    assert Supervised(module=linear(), loss="squared").goal == ("loss", "min")
    assert Supervised(module=linear(), loss="squared", maximize="r2").goal == ("r2", "max")


def promise(**fields) -> Privacy:
    return Privacy(**{"unit": "record", "delta": 1e-5, "clip": 1.0, "noise_multiplier": 1.0, **fields})


def solved(task: Supervised, privacy: Privacy | Open):
    return privacy.solve(task, ["oslo", "bergen"], Mean(), 2, records=85)


def test_records_are_protected_where_the_loss_is_a_sum_over_them():
    mechanism = solved(Supervised(module=linear(), loss="squared", steps=4, sample=0.2), promise())
    assert isinstance(mechanism, RecordLevel)
    assert (mechanism.steps, mechanism.rate, mechanism.grouped, mechanism.sampled) == (4, 0.2, False, "unit")


def test_records_of_a_coupled_loss_are_protected_in_groups():
    task = Supervised(module=linear(), loss=coupled, coupled=True, groups_per_site=6, steps=4, sample=0.2)
    mechanism = solved(task, promise())
    assert isinstance(mechanism, RecordLevel)
    assert (mechanism.grouped, mechanism.sampled, mechanism.counts) == (True, "group", None)


def test_records_of_a_coupled_loss_cannot_be_protected_one_by_one():
    with pytest.raises(NotSeparable, match="supervised cannot protect single records"):
        solved(Supervised(module=linear(), loss=coupled, coupled=True), promise())


def test_records_cannot_be_protected_in_shuffled_batches():
    with pytest.raises(Refused, match="Use steps and sample instead of epochs"):
        solved(Supervised(module=linear(), loss="squared", epochs=2), promise())


@pytest.mark.parametrize(
    "task",
    [
        Supervised(module=linear(), loss=coupled, coupled=True),
        Supervised(module=linear(), loss="squared", epochs=2),
    ],
    ids=["coupled", "epochs"],
)
def test_whole_sites_are_protected_whatever_the_loss(task):
    assert isinstance(solved(task, promise(unit="site")), SiteLevel)
    assert isinstance(solved(task, Open()), NoPrivacy)


# What it refuses


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"steps": 0}, "steps = 0"),
        ({"steps": 1.5}, "steps = 1.5"),
        ({"sample": 0.0}, "sample = 0.0"),
        ({"sample": 1.1}, "sample = 1.1"),
        ({"sample": float("nan")}, "sample = nan"),
        ({"epochs": 0}, "epochs = 0"),
        ({"batch": 0}, "batch = 0"),
        ({"lr": 0.0}, "lr = 0.0"),
        ({"lr": float("inf")}, "lr = inf"),
        ({"optimizer": "adagrad"}, "optimizer = 'adagrad'"),
        ({"proximal": -0.1}, "proximal = -0.1"),
        ({"proximal": float("nan")}, "proximal = nan"),
        ({"loss": "sqared"}, 'did you mean "squared"'),
        ({"coupled": True}, "your own function if coupled"),
        ({"groups_per_site": 4}, "left out unless coupled"),
        ({"loss": coupled, "coupled": True, "groups_per_site": 0}, "groups_per_site = 0"),
    ],
)
def test_a_mistake_is_named(fields, said):
    with pytest.raises(InvalidValue, match=said):
        Supervised(**{"module": linear(), "loss": "squared", **fields})


def test_a_module_with_running_state_is_refused_when_it_is_named():
    with pytest.raises(Refused, match=r"nn\.GroupNorm"):
        Supervised(module=nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)), loss="squared")


def test_a_frozen_module_has_nothing_to_learn():
    module = linear().requires_grad_(False)
    with pytest.raises(InvalidValue, match="no parameters to train"):
        Supervised(module=module, loss="squared").start(federation(), Key(0))


# The state


def test_the_start_is_the_module_as_it_came():
    module = perceptron()
    state = Supervised(module=module, loss="squared").start(federation(), Key(0))
    expected = torch.nn.utils.parameters_to_vector(module.parameters()).detach().double()
    np.testing.assert_array_equal(state, expected.numpy())
    assert state.dtype == np.float64


@pytest.mark.parametrize("make", [perceptron, custom])
def test_a_model_is_a_copy_of_the_module_with_the_weights_of_a_state(make):
    module = make()
    before = copy.deepcopy(module.state_dict())
    task = Supervised(module=module, loss="squared")
    state = task.start(federation(), Key(0)) + 0.25
    model = task.model(state)
    assert type(model) is type(module)
    assert all(torch.allclose(values, before[name] + 0.25) for name, values in model.state_dict().items())
    assert all(torch.equal(values, before[name]) for name, values in module.state_dict().items())


def test_a_model_of_half_a_frozen_module_keeps_the_frozen_half():
    module = perceptron()
    module[0].requires_grad_(False)
    task = Supervised(module=module, loss="squared")
    state = task.start(federation(), Key(0))
    assert len(state) == 9
    model = task.model(np.zeros_like(state))
    assert torch.equal(model[0].weight, module[0].weight)
    assert not model[2].weight.any()


def test_a_step_moves_the_state():
    task = Supervised(module=linear(), loss="squared")
    assert task.advance(torch.tensor([1.0, 2.0]), torch.tensor([0.5, -1.0])).tolist() == [1.5, 1.0]


def test_nothing_depends_on_the_federation():
    task = Supervised(module=linear(), loss="squared")
    provenance = Provenance(promise(), public=False)
    assert task.bind(federation(), provenance) is task
    assert provenance.bare == []


def test_plain_stacks_take_the_closed_form_and_others_do_not():
    assert isinstance(Supervised(module=perceptron(), loss="squared").program(3), Perceptron)
    assert isinstance(Supervised(module=perceptron(), loss=own).program(3), Perceptron)
    assert isinstance(Supervised(module=custom(), loss="squared").program(3), TorchProgram)


# Work


def test_updates_come_in_the_order_of_the_cohort_one_row_for_each():
    task, whole = Supervised(module=perceptron(), loss="squared"), federation()
    state = task.start(whole, Key(0))
    updates = task.train(state, whole.cohort(["bergen", "oslo"]), NoPrivacy(), Key(1, rehearsal=True))
    assert updates.names == ("bergen", "oslo")
    assert updates.matrix.shape == (2, len(state))
    other = task.train(state, whole.cohort(["oslo"]), NoPrivacy(), Key(1, rehearsal=True))
    np.testing.assert_allclose(updates.matrix[1], other.matrix[0], rtol=0, atol=1e-13)


def test_each_site_may_have_a_state_of_its_own():
    task, whole, key = Supervised(module=perceptron(), loss="squared"), federation(), Key(1, rehearsal=True)
    state = task.start(whole, key)
    states = np.stack([state, state + 0.5])
    together = task.train(states, whole.cohort(["oslo", "bergen"]), NoPrivacy(), key).matrix
    apart = task.train(states[1], whole.cohort(["bergen"]), NoPrivacy(), key).matrix
    np.testing.assert_allclose(together[1], apart[0], rtol=0, atol=1e-13)


def test_training_leaves_the_state_alone():
    task, whole = Supervised(module=perceptron(), loss="squared"), federation()
    state = task.start(whole, Key(0))
    before = state.copy()
    task.train(state, whole.cohort(list(whole)), NoPrivacy(), Key(1, rehearsal=True))
    assert np.array_equal(state, before)


@pytest.mark.parametrize("loss", ["squared", own])
@pytest.mark.parametrize("make", [linear, perceptron])
def test_a_network_learns_what_is_there_to_learn(make, loss):
    task = Supervised(module=make(), loss=loss, steps=20, sample=0.5, lr=0.1)
    run = tacit.fit(task, federation(), rounds=15)
    assert run.scores["loss"] < 0.15 * task.score(task.start(federation(), Key(0)), table(50, 9))["loss"]


def test_a_linear_model_finds_the_truth():
    task = Supervised(module=linear(), loss="squared", steps=20, sample=0.5, lr=0.2)
    run = tacit.fit(task, federation(), rounds=20)
    np.testing.assert_allclose(run.model.weight.detach().numpy()[0], TRUTH, atol=0.02)


@pytest.mark.parametrize("groups", [None, 5])
def test_a_coupled_loss_learns_too(groups):
    task = Supervised(
        module=linear(), loss=coupled, coupled=True, groups_per_site=groups, steps=20, sample=0.6, lr=0.05
    )
    run = tacit.fit(task, federation(), rounds=15)
    assert run.scores["loss"] < 0.1


@pytest.mark.parametrize(
    "module", [nn.Linear(2, 3), nn.Sequential(nn.Sequential(nn.Linear(2, 3)))], ids=["plain", "nested"]
)
def test_classes_are_learnt(module):
    draw = np.random.default_rng(0)
    centres = np.array([[3.0, 0.0], [0.0, 3.0], [-3.0, -3.0]])

    def classes(size: int) -> Table:
        y = draw.integers(0, 3, size)
        return from_arrays(centres[y] + draw.normal(size=(size, 2)), y=y)

    task = Supervised(module=module, loss="cross-entropy", steps=20, sample=0.5, lr=0.2)
    test = classes(200)
    run = tacit.fit(task, Federation({"oslo": classes(60), "bergen": classes(40)}, held_out=test), rounds=5)
    with torch.no_grad():
        outputs = run.model.double()(torch.from_numpy(test.features))
    y = torch.from_numpy(test.targets["y"]).long()
    assert float((outputs.argmax(dim=1) == y).double().mean()) > 0.9
    assert run.scores["loss"] == pytest.approx(float(nn.functional.cross_entropy(outputs, y)), rel=1e-5)


def test_a_private_run_learns_too_and_says_what_it_cost():
    task = Supervised(module=linear(), loss="squared", steps=10, sample=0.5, lr=0.2)
    privacy = promise(clip=2.0, rehearsal=True)
    run = tacit.fit(task, federation(records=85), privacy=privacy, rounds=10)
    assert run.scores["loss"] < 0.5 * task.score(task.start(federation(), Key(0)), table(50, 9))["loss"]
    assert run.privacy.epsilon is not None
    assert run.privacy.epsilon > 1
    assert set(run.privacy.subjects) == {"records@oslo", "records@bergen"}


# Scores


@pytest.mark.parametrize("make", [perceptron, custom])
def test_the_score_is_the_mean_loss_of_the_model(make):
    task = Supervised(module=make(), loss="squared")
    state, test = task.start(federation(), Key(0)) + 0.1, table(50, 9)
    with torch.no_grad():
        outputs = task.model(state).double()(torch.from_numpy(test.features))[:, 0].numpy()
    expected = float(((outputs - test.targets["y"]) ** 2 / 2).mean())
    assert task.score(state, test) == {"loss": pytest.approx(expected, rel=1e-5)}
    assert task.losses(state, test).shape == (50,)
    assert float(task.losses(state, test).mean()) == pytest.approx(expected, rel=1e-5)


def test_the_loss_of_a_coupled_task_is_that_of_everybody_together():
    task = Supervised(module=linear(), loss=coupled, coupled=True, groups_per_site=3)
    test = table(50, 9)
    found = task.score(task.start(federation(), Key(0)), test)["loss"]
    assert found == pytest.approx(float((test.targets["y"] ** 2).mean()))


def test_metrics_see_outputs_and_targets_and_stand_beside_the_loss():
    def metrics(outputs: np.ndarray, y: np.ndarray) -> dict[str, float]:
        assert outputs.shape == (50, 1)
        return {"bias": np.float32((outputs[:, 0] - y).mean())}

    task = Supervised(module=linear(), loss="squared", metrics=metrics, maximize="bias")
    found = task.score(task.start(federation(), Key(0)), table(50, 9))
    assert found["bias"] == pytest.approx(-table(50, 9).targets["y"].mean(), rel=1e-5)
    assert set(found) == {"bias", "loss"}
    assert all(type(value) is float for value in found.values())


def test_the_score_of_a_state_is_that_of_its_layout():
    module = perceptron()
    task = Supervised(module=module, loss="squared")
    layout = ParameterLayout.of(module)
    state = task.start(federation(), Key(0))
    parts = layout.unflatten(torch.from_numpy(state))
    with torch.no_grad():
        module[2].bias.add_(3.0)
    parts["2.bias"] += 3.0
    other = Supervised(module=module, loss="squared")
    assert task.score(state, table(50, 9)) == pytest.approx(
        other.score(other.start(federation(), Key(0)), table(50, 9)), rel=1e-6
    )
