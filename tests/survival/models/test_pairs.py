"""Case-control pairs: who is drawn, what that costs, and gradients as torch finds them."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch

from tacit import Federation, Key
from tacit.learning.batches import Batch, SiteStreams
from tacit.learning.perceptron import build_layers
from tacit.sites.table import Table, from_arrays
from tacit.survival.models.cox_loss import Pairs, Ranks

CLOCK = (0.5, 1.0, 2.5, 4.0)
KEY = Key(3, rehearsal=True)


def records(size: int, seed: int, **more: np.ndarray) -> Table:
    draw = np.random.default_rng(seed)
    time = draw.integers(1, 9, size) / 2
    return from_arrays(draw.normal(size=(size, 3)), time=time, event=draw.integers(0, 2, size), **more)


def late_and_weighed(size: int, seed: int) -> Table:
    draw, plain = np.random.default_rng(seed + 50), records(size, seed)
    entry = np.where(draw.random(size) < 0.5, plain.targets["time"] * draw.random(size) * 0.99, 0.0)
    return records(size, seed, entry=entry, weight=draw.uniform(0.2, 3, size))


def federation(table=records) -> Federation:
    return Federation({"oslo": table(9, 1), "bergen": table(14, 2)})


def whole(data: Federation, step: int = 0, *, room: int = 0) -> Batch:
    """Every site as two units of up to seven members, with room for more."""
    cohort = data.cohort(list(data))
    rows, present = np.zeros((2, 2, 7 + room), dtype=np.int64), np.zeros((2, 2, 7 + room), dtype=np.bool_)
    for site, (start, size) in enumerate(zip(cohort.starts, cohort.sizes, strict=True)):
        for unit, members in enumerate(np.array_split(np.arange(start, start + size), 2)):
            rows[site, unit, : len(members)], present[site, unit, : len(members)] = members, True
    return Batch(rows, present, SiteStreams([KEY / name / step for name in data]))


def controls(batch: Batch, store: Table) -> tuple[np.ndarray, np.ndarray]:
    """Return the control of each case, as a place in the unit, and True where there is one."""
    time = np.where(batch.present, store.targets["time"][batch.rows], -np.inf)
    return Ranks({"time": time}).draw_controls(batch.uniforms)


# Who is drawn


def test_a_control_is_somebody_else_who_is_there_and_still_at_risk():
    data = federation()
    for step in range(50):
        batch = whole(data, step, room=3)
        control, found = controls(batch, data.store)
        time = data.store.targets["time"][batch.rows]
        for place in zip(*np.nonzero(batch.present & found), strict=True):
            other = (*place[:2], control[place])
            assert batch.present[other]
            assert control[place] != place[2]
            assert time[other] >= time[place]


def test_whoever_is_alone_at_risk_has_no_control():
    time = np.array([[[3.0, 1.0, 2.0, -np.inf]]])
    _, found = Ranks({"time": time}).draw_controls(np.full((1, 1, 4), 0.7))
    assert found[0, 0, :3].tolist() == [False, True, True]
    _, tied = Ranks({"time": np.array([[[3.0, 3.0, 1.0]]])}).draw_controls(np.zeros((1, 1, 3)))
    assert tied.all()


def test_everybody_at_risk_is_as_likely_to_be_drawn():
    time = np.array([2.0, 5.0, 2.0, 1.0, 3.0, 2.0])
    luck, draws = np.random.default_rng(0), 4000
    control, found = Ranks({"time": np.broadcast_to(time, (1, draws, 6))}).draw_controls(
        luck.random((1, draws, 6))
    )
    for case, at_risk in {0: {1, 2, 4, 5}, 2: {0, 1, 4, 5}, 3: {0, 1, 2, 4, 5}, 4: {1}}.items():
        counted = Counter(control[0, :, case].tolist())
        assert set(counted) == at_risk
        share = draws / len(at_risk)
        assert all(abs(times - share) < 5 * np.sqrt(share) for times in counted.values())
    assert not found[0, :, 1].any()


def test_luck_is_even_between_zero_and_one_and_new_in_every_step():
    data = federation()
    seen = np.concatenate(
        [batch.uniforms[batch.present] for batch in (whole(data, step) for step in range(200))]
    )
    assert ((seen >= 0) & (seen < 1)).all()
    assert len(np.unique(seen)) == len(seen)
    counts = np.histogram(seen, bins=20, range=(0, 1))[0]
    share = len(seen) / 20
    assert (np.abs(counts - share) < 5 * np.sqrt(share)).all()
    steps = seen.reshape(200, -1)
    assert abs(np.corrcoef(steps[:-1].ravel(), steps[1:].ravel())[0, 1]) < 0.05
    assert abs(np.corrcoef(steps[:, :-1].ravel(), steps[:, 1:].ravel())[0, 1]) < 0.05


def test_luck_is_a_secret_of_the_run():
    """If draws could be predicted, a record's controls would disclose those before it in the table."""
    batch = whole(federation())
    one, other = (
        replace(
            batch, chance=SiteStreams([Key(3, entropy=bytes([number] * 32)) / name for name in "ab"])
        ).uniforms
        for number in (1, 2)
    )
    assert not np.isclose(one, other)[batch.present].any()


def test_luck_does_not_depend_on_padding_pieces_or_company():
    data = federation()
    plain, roomy = whole(data), whole(data, room=5)
    assert np.array_equal(plain.uniforms[plain.present], roomy.uniforms[roomy.present])
    second = roomy.units(slice(1, 2))
    assert np.array_equal(second.uniforms[second.present], roomy.uniforms[:, 1:][roomy.present[:, 1:]])
    batch = Batch(plain.rows[1:], plain.present[1:], SiteStreams([KEY / "bergen" / 0]))
    assert np.array_equal(batch.uniforms[batch.present], plain.uniforms[1][plain.present[1]])


# What that costs


def by_torch(weights: np.ndarray, batch: Batch, store: Table, clock: tuple[float, ...] | None) -> np.ndarray:
    """Gradients (sites, units, coordinates): pair by pair, over the number of members."""
    control, found = controls(batch, store)
    edges = np.array([0.0, *(clock or ())])
    gradients = np.zeros((*batch.rows.shape[:2], weights.shape[1]))
    for site, unit in np.ndindex(batch.rows.shape[:2]):
        flat = torch.tensor(weights[site], requires_grad=True)
        total = torch.zeros((), dtype=torch.float64)
        for case in np.flatnonzero(batch.present[site, unit] & found[site, unit]):
            own, other = batch.rows[site, unit, [case, control[site, unit, case]]]
            time = store.targets["time"][own]
            if store.targets["event"][own] == 0 or store.targets.get("entry", np.zeros(99))[other] >= time:
                continue
            rows = [store.features[own], store.features[other]]
            if clock is not None:
                told = np.interp(time, edges, np.linspace(-1, 1, len(edges)))
                rows = [np.append(row, told) for row in rows]
            risks = [network(flat, torch.from_numpy(row)) for row in rows]
            counted = store.targets.get("weight", np.ones(99))[own]
            total = total + counted * torch.nn.functional.softplus(risks[1] - risks[0])
        if total.requires_grad:
            (total / batch.present[site, unit].sum()).backward()
            gradients[site, unit] = flat.grad.numpy()
    return gradients


def network(flat: torch.Tensor, row: torch.Tensor) -> torch.Tensor:
    inputs = len(row)
    first, shift, last = flat.split([5 * inputs, 5, 5])
    return torch.tanh(first.view(5, inputs) @ row + shift) @ last


@pytest.mark.parametrize("clock", [None, CLOCK], ids=["CoxCC", "CoxTime"])
@pytest.mark.parametrize("table", [records, late_and_weighed], ids=["plain", "late and weighed"])
@pytest.mark.parametrize("room", [0, 3])
def test_gradients_of_units_are_those_that_torch_finds(room, table, clock):
    data = federation(table)
    program = Pairs(build_layers([3 + (clock is not None), 5, 1], "tanh", bias=False), clock)
    weights = np.random.default_rng(5).normal(size=(2, program.size))
    for step in range(3):
        batch = whole(data, step, room=room)
        expected = by_torch(weights, batch, data.store, clock)
        found = program.contributions(weights, batch, data.store)
        np.testing.assert_allclose(found.total(None), expected.sum(axis=1), rtol=0, atol=1e-11)
        np.testing.assert_allclose(found.lengths("l2"), np.linalg.norm(expected, axis=2), rtol=1e-5)
        np.testing.assert_allclose(found.lengths("l1"), np.abs(expected).sum(axis=2), rtol=1e-5)
        for unit in range(2):
            chosen = np.zeros((2, 2))
            chosen[:, unit] = 1
            np.testing.assert_allclose(found.total(chosen), expected[:, unit], rtol=0, atol=1e-11)
    assert np.abs(expected).max() > 1e-3


def test_time_is_told_evenly_over_the_grid_and_no_further():
    program = Pairs(build_layers([2, 1], "relu", bias=False), CLOCK)
    told = program.append_time(np.zeros((7, 1)), np.array([0.0, 0.25, 0.5, 1.0, 2.5, 4.0, 70.0]))[:, 1]
    assert told.tolist() == [-1, -0.75, -0.5, 0.0, 0.5, 1.0, 1.0]


def test_a_record_that_is_not_there_has_no_influence_however_broken_it_is():
    data = federation()
    batch = whole(data, room=2)
    program = Pairs(build_layers([3, 1], "relu", bias=False))
    weights = np.ones((2, 3))
    plain = program.contributions(weights, batch, data.store).total(None)
    # Where nobody is, the batch points to the first record: leave that record out, and break it.
    gone = replace(batch, present=batch.present & (batch.rows > 0))
    huge = data.store.features.copy()
    huge[0] = 1e308
    broken = Table(huge, data.store.targets, data.store.columns)
    found = [program.contributions(weights, gone, store).total(None) for store in (data.store, broken)]
    assert np.array_equal(found[0], found[1])
    assert not np.array_equal(found[0], plain)
