"""Local work takes the steps that torch's optimisers take, and divides by numbers that everybody may know."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from tacit.learning import optimizers
from tacit.learning.batches import poisson
from tacit.learning.optimizers import descend
from tacit.learning.supervised import Supervised
from tacit.learning.torch_modules import ParameterLayout
from tacit.privacy.mechanisms.base import NoPrivacy, RecordLevel
from tacit.runtime.keys import Key
from tacit.sites.federation import Cohort, RowFederation
from tacit.sites.table import from_arrays

COLUMNS = 3
KEY = Key(2, rehearsal=True) / 1


def federation(sizes: list[int], *, records: int | None = None) -> RowFederation:
    draw = np.random.default_rng(7)
    tables = {
        f"site-{number}": from_arrays(draw.normal(size=(size, COLUMNS)), y=draw.normal(size=size))
        for number, size in enumerate(sizes)
    }
    return RowFederation(tables, records=records)


def everybody(whole: RowFederation) -> Cohort:
    return whole.cohort(list(whole))


def network() -> nn.Sequential:
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return nn.Sequential(nn.Linear(COLUMNS, 4), nn.Tanh(), nn.Linear(4, 1)).double()


def moved(task: Supervised, cohort: Cohort, mechanism=None, key: Key = KEY) -> np.ndarray:
    start = task.start(None, key)  # type: ignore[arg-type]
    starts = np.broadcast_to(start, (len(cohort), len(start)))
    keys = [key / name for name in cohort.names]
    return descend(task, task.program(COLUMNS), starts, cohort, mechanism or NoPrivacy(), keys)


def by_torch(
    module: nn.Module, optimizer: str, lr: float, steps: int, site, proximal: float = 0.0
) -> np.ndarray:
    """The same steps on the mean loss of a site, by torch's own optimisers."""
    layout = ParameterLayout.of(module)
    start = layout.flatten(dict(module.named_parameters()))
    kinds = {
        "sgd": lambda given: torch.optim.SGD(given, lr=lr),
        "momentum": lambda given: torch.optim.SGD(given, lr=lr, momentum=0.9),
        "adam": lambda given: torch.optim.Adam(given, lr=lr),
    }
    taken = kinds[optimizer](module.parameters())
    x, y = torch.from_numpy(site.table.features), torch.from_numpy(site.table.targets["y"])
    for _ in range(steps):
        taken.zero_grad()
        loss = ((module(x)[:, 0] - y) ** 2 / 2).mean()
        now = torch.cat([values.reshape(-1) for values in module.parameters()])
        (loss + proximal / 2 * ((now - start) ** 2).sum()).backward()
        taken.step()
    return (layout.flatten(dict(module.named_parameters())) - start).numpy()


# Optimisers


@pytest.mark.parametrize("proximal", [0.0, 0.3])
@pytest.mark.parametrize(("optimizer", "lr"), [("sgd", 0.1), ("momentum", 0.05), ("adam", 0.02)])
def test_steps_are_those_of_torch(optimizer, lr, proximal):
    whole = federation([20, 33])
    task = Supervised(
        module=network(), loss="squared", steps=25, sample=1.0, lr=lr, optimizer=optimizer, proximal=proximal
    )
    found = moved(task, everybody(whole))
    for row, site in zip(found, whole.values(), strict=True):
        expected = by_torch(network(), optimizer, lr, 25, site, proximal)
        np.testing.assert_allclose(row, expected, rtol=0, atol=1e-9)
        assert float(np.abs(row).max()) > 0.05


@pytest.mark.parametrize(("optimizer", "lr"), [("sgd", 0.1), ("momentum", 0.05), ("adam", 0.02)])
def test_epochs_of_whole_batches_are_the_same_steps(optimizer, lr):
    whole = federation([20])
    task = Supervised(module=network(), loss="squared", epochs=25, batch=20, lr=lr, optimizer=optimizer)
    found = moved(task, everybody(whole))[0]
    np.testing.assert_allclose(
        found, by_torch(network(), optimizer, lr, 25, whole["site-0"]), rtol=0, atol=1e-9
    )


@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adam"])
def test_a_site_that_is_done_early_is_not_moved_by_those_who_go_on(optimizer):
    whole = federation([40, 5, 17, 9])
    task = Supervised(module=network(), loss="squared", epochs=3, batch=4, lr=0.02, optimizer=optimizer)
    together = moved(task, everybody(whole))
    for row, name in zip(together, whole, strict=True):
        np.testing.assert_allclose(row, moved(task, whole.cohort([name]))[0], rtol=0, atol=1e-12)


@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adam"])
def test_each_round_starts_afresh(optimizer):
    whole = federation([20, 30])
    task = Supervised(module=network(), loss="squared", steps=5, sample=0.5, optimizer=optimizer)
    assert np.array_equal(moved(task, everybody(whole)), moved(task, everybody(whole)))


@settings(max_examples=20)
@given(st.floats(0.1, 5), st.sampled_from(["sgd", "momentum"]))
def test_a_proximal_term_pulls_towards_the_start(proximal, optimizer):
    whole = federation([20, 30])
    free = Supervised(module=network(), loss="squared", steps=30, sample=1.0, lr=0.02, optimizer=optimizer)
    held = replace(free, proximal=proximal)
    distances = [np.linalg.norm(moved(task, everybody(whole)), axis=1) for task in (held, free)]
    assert bool((distances[0] < distances[1]).all())


def test_a_strong_proximal_term_stops_where_pull_and_slope_balance():
    # With a slope that never changes, w - w0 tends to -slope / proximal.
    whole = federation([10])
    task = Supervised(
        module=nn.Linear(COLUMNS, 1),
        loss=lambda output, y: output[0],
        steps=200,
        sample=1.0,
        lr=0.1,
        proximal=2.0,
    )
    slope = np.append(whole.store.features.mean(axis=0), 1.0)
    np.testing.assert_allclose(moved(task, everybody(whole))[0], -slope / 2, atol=1e-9)


def test_the_start_is_left_as_it_was():
    whole = federation([20, 30])
    task = Supervised(module=network(), loss="squared", steps=5, sample=0.5)
    starts = np.stack([task.start(whole, KEY)] * 2)
    before = starts.copy()
    descend(task, task.program(COLUMNS), starts, everybody(whole), NoPrivacy(), [KEY / 0, KEY / 1])
    assert np.array_equal(starts, before)


def test_each_site_may_start_from_a_state_of_its_own():
    whole = federation([20, 30])
    task = Supervised(module=network(), loss="squared", steps=5, sample=0.5)
    start = task.start(whole, KEY)
    starts = np.stack([start, start + 0.1])
    keys = [KEY / name for name in whole]
    together = descend(task, task.program(COLUMNS), starts, everybody(whole), NoPrivacy(), keys)
    alone = descend(task, task.program(COLUMNS), starts[1:], whole.cohort(["site-1"]), NoPrivacy(), keys[1:])
    np.testing.assert_allclose(together[1], alone[0], rtol=0, atol=1e-13)
    assert not np.allclose(together[0], together[1])


# Denominators


def linear_loss(output: Tensor, y: Tensor) -> Tensor:
    """Its gradient is the record itself, whatever the weights."""
    return output[0]


def one_step(**work) -> Supervised:
    given = {"steps": 1, "sample": 1.0, "lr": 1.0}
    return Supervised(module=nn.Linear(COLUMNS, 1, bias=False), loss=linear_loss, **{**given, **work})


def sums(whole: RowFederation) -> np.ndarray:
    return np.stack([site.table.features.sum(axis=0) for site in whole.values()])


def test_sums_are_divided_by_the_batch_that_was_agreed():
    whole = federation([4, 25, 9], records=38)
    np.testing.assert_allclose(moved(one_step(batch=10), everybody(whole)), -sums(whole) / 10, atol=1e-12)


def test_without_one_they_are_divided_by_what_a_typical_site_draws():
    whole = federation([4, 25, 9], records=60)
    np.testing.assert_allclose(moved(one_step(), everybody(whole)), -sums(whole) / 20, atol=1e-12)


def test_without_either_by_what_the_site_itself_draws():
    whole = federation([4, 25, 9])
    expected = -sums(whole) / np.array([[4], [25], [9]])
    np.testing.assert_allclose(moved(one_step(), everybody(whole)), expected, atol=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_the_rate_is_part_of_what_is_expected_and_the_draw_is_not(seed):
    whole, key = federation([40, 11], records=100), Key(seed, rehearsal=True)
    (batch,) = poisson(everybody(whole), 1, 0.5, [key / name for name in whole], coupled=False)
    drawn = np.where(batch.present, whole.store.features[batch.rows[:, :, 0]], 0.0).sum(axis=1)
    found = moved(one_step(sample=0.5), everybody(whole), key=key)
    np.testing.assert_allclose(found, -drawn / 25, atol=1e-12)


def in_groups(outputs: Tensor, present: Tensor, y: Tensor) -> Tensor:
    return torch.where(present, outputs[:, 0], 0.0).sum()


def test_sums_over_groups_are_divided_by_the_expected_number_of_groups():
    whole = federation([4, 25, 9], records=38)
    module = nn.Linear(COLUMNS, 1, bias=False)
    task = Supervised(
        module=module, loss=in_groups, coupled=True, groups_per_site=5, steps=1, sample=1.0, lr=1.0, batch=77
    )
    np.testing.assert_allclose(moved(task, everybody(whole)), -sums(whole) / 5, atol=1e-12)


def test_a_coupled_loss_of_a_whole_batch_is_divided_by_nothing():
    whole = federation([4, 25, 9], records=38)
    task = Supervised(
        module=nn.Linear(COLUMNS, 1, bias=False), loss=in_groups, coupled=True, steps=1, sample=1.0, lr=1.0
    )
    np.testing.assert_allclose(moved(task, everybody(whole)), -sums(whole), atol=1e-12)


def test_a_shuffled_batch_is_divided_by_those_who_are_there():
    whole = federation([5], records=100)
    task = one_step(epochs=1, batch=3)
    found = moved(task, everybody(whole))[0]
    # Three records over 3, and two over 2.
    candidates = []
    features = whole.store.features
    for chosen in range(2**5):
        inside = np.array([chosen >> row & 1 for row in range(5)], dtype=bool)
        if inside.sum() == 3:
            candidates.append(-features[inside].mean(axis=0) - features[~inside].mean(axis=0))
    assert min(float(np.abs(found - candidate).max()) for candidate in candidates) < 1e-12


# Buckets and pieces


def custom() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(4)
        return nn.Sequential(nn.Sequential(nn.Linear(COLUMNS, 3), nn.LayerNorm(3)), nn.Linear(3, 1)).double()


WORKS = {"steps": {"steps": 4, "sample": 0.4}, "epochs": {"epochs": 2, "batch": 7}}


@pytest.fixture
def in_pieces(monkeypatch):
    """Make batches too large for memory; gives how many were."""
    cut: list[int] = []
    made = optimizers.ChunkedContributions.__init__

    def noted(self, pieces, units) -> None:
        cut.append(len(pieces))
        made(self, pieces, units)

    def shrink(room: int) -> list[int]:
        monkeypatch.setattr(optimizers, "LARGEST_STEP", room)
        monkeypatch.setattr(optimizers.ChunkedContributions, "__init__", noted)
        return cut

    return shrink


MADE = [pytest.param(network, 60, id="closed form"), pytest.param(custom, 250, id="custom")]


@pytest.mark.parametrize("work", WORKS)
@pytest.mark.parametrize(("make", "room"), MADE)
def test_batches_that_are_taken_in_pieces_give_the_same(make, room, work, in_pieces):
    whole = federation([60, 3, 25, 40, 2])
    task = Supervised(module=make(), loss="squared", optimizer="momentum", **WORKS[work])
    at_once, cut = moved(task, everybody(whole)), in_pieces(room)
    np.testing.assert_allclose(moved(task, everybody(whole)), at_once, rtol=0, atol=1e-12)
    assert max(cut) > 2


@pytest.mark.parametrize("law", ["gaussian", "laplace"])
@pytest.mark.parametrize(("make", "room"), MADE)
def test_pieces_are_clipped_record_by_record_too(make, room, law, in_pieces):
    whole = federation([60, 3, 25, 40, 2], records=130)
    task = Supervised(module=make(), loss="squared", steps=3, sample=0.4)
    guard = RecordLevel(law=law, clip=0.1, multiplier=0.5, steps=3, rate=0.4, rehearsal=True)
    at_once, cut = moved(task, everybody(whole), guard), in_pieces(room)
    np.testing.assert_allclose(moved(task, everybody(whole), guard), at_once, rtol=0, atol=1e-9)
    assert max(cut) > 2


@pytest.mark.parametrize("work", WORKS)
def test_how_sites_are_put_into_buckets_does_not_matter(work, monkeypatch):
    whole = federation([60, 3, 25, 40, 2, 61, 59])
    task = Supervised(module=network(), loss="squared", optimizer="adam", **WORKS[work])
    found = {}
    for most in (1, 2, 100):
        monkeypatch.setattr(optimizers, "_bucket_size", lambda *_, most=most: most)
        found[most] = moved(task, everybody(whole))
    np.testing.assert_allclose(found[1], found[100], rtol=0, atol=1e-12)
    np.testing.assert_allclose(found[2], found[100], rtol=0, atol=1e-12)
