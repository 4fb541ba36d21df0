"""A record's contribution has the same bits in batches of any size and order, and beside any other site.

Otherwise one record more rounds all others anew, and where a preactivation cancels to 0, that turns whole
gradients: far more than the clip bound moves.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from tacit import Federation, Key, Supervised
from tacit.learning import elementwise, kernels, torch_modules
from tacit.learning.batches import Batch
from tacit.learning.optimizers import ChunkedContributions
from tacit.learning.perceptron import ACTIVATIONS
from tacit.privacy.mechanisms.base import NoPrivacy, RecordLevel
from tacit.sites.encoding import Encoding
from tacit.sites.table import Table
from tacit.survival.augment.mvae import Autoencoder
from tacit.survival.models.cox import BreslowQuery
from tacit.survival.statistics.bounded_score import (
    InformationRows,
    MomentLayout,
    MomentRows,
    RegressionRecords,
    Regressors,
    ScoreRows,
)
from tacit.survival.statistics.private_cox import feature_limits
from tacit.survival.tasks import CoxCC, CoxPH, CoxTime, DeepHit, DeepSurv, LogisticHazard, PCHazard, PoissonPH

COLUMNS, ENDS, RECORDS = 10, (0.5, 1.0, 2.0, 4.0), 300
NAMES = tuple(f"x{column}" for column in range(COLUMNS))


class Normalised(nn.Module):
    """A module without a closed form."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.norm, self.last = nn.Linear(COLUMNS, 8), nn.LayerNorm(8), nn.Linear(8, 1)

    def forward(self, rows: Tensor) -> Tensor:
        return self.last(torch.relu(self.norm(self.first(rows))))


def record_loss(output: Tensor, time: Tensor, event: Tensor) -> Tensor:
    return nn.functional.softplus(output[0] - time) * (1 + event)


def group_loss(outputs: Tensor, present: Tensor, time: Tensor, event: Tensor) -> Tensor:
    among = torch.where(present, outputs[:, 0], 0.0)
    return (among * torch.sigmoid(time - event)).sum() ** 2 / 2


def perceptron() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(COLUMNS, 12), nn.ReLU(), nn.Linear(12, 1))


def supervised(module: nn.Module, loss=record_loss, **options) -> Supervised:
    return Supervised(module=module.double(), loss=loss, **options)


SEPARABLE = {
    **{
        f"logistic-hazard {activation}": LogisticHazard(activation=activation)
        for activation in ACTIVATIONS
        if activation != "identity"
    },
    "logistic-hazard linear": LogisticHazard(hidden=()),
    "logistic-hazard deep": LogisticHazard(hidden=(32, 5, 17, 8)),
    "logistic-hazard wide": LogisticHazard(hidden=(130,)),
    "pc-hazard": PCHazard(),
    "poisson-ph": PoissonPH(),
    "poisson-ph network": PoissonPH(hidden=(9,), activation="tanh"),
    "deep-hit": DeepHit(causes=2, ranking=0.0),
    "closed form, own loss": supervised(perceptron()),
    "module": supervised(Normalised()),
}
GROUPED = {
    "cox-ph": CoxPH(),
    "deep-surv": DeepSurv(),
    "deep-surv gelu": DeepSurv(activation="gelu"),
    "cox-cc": CoxCC(),
    "cox-time": CoxTime(),
    "deep-hit ranking": DeepHit(ranking=0.3),
    "closed form, own coupled loss": supervised(perceptron(), group_loss, coupled=True),
    "coupled module": supervised(Normalised(), group_loss, coupled=True),
}


def ready(task):
    return task if isinstance(task, Supervised) else replace(task, columns=NAMES, cuts=ENDS)


def records(seed: int, count: int = RECORDS, *, crafted: bool = True) -> Table:
    """Records of all sizes; in some of them, whatever is added up cancels but for rounding."""
    draws = np.random.default_rng(seed)
    features = draws.normal(size=(count, COLUMNS)) * np.exp2(draws.integers(-10, 10, (count, 1)))
    if crafted:
        features[::3] = draws.normal(size=(len(features[::3]), COLUMNS)) * 1e15
        features[1::7] = draws.integers(0, 2, (len(features[1::7]), COLUMNS))
    targets = {"time": draws.exponential(1.0, count) + 0.01, "event": (draws.random(count) < 0.6) * 1.0}
    return Table(features, targets, NAMES)


def contribution(task, program, weights, table, rows, present) -> tuple[np.ndarray, np.ndarray]:
    """Lengths (units,), and what each unit alone adds to the sum (units, coordinates)."""
    batch = Batch(rows[None], present[None])
    # Whatever a step draws beyond its records is a number of the record.
    batch.__dict__["uniforms"] = (rows[None] * 0.6180339887) % 1.0
    with np.errstate(all="ignore"):
        made = ChunkedContributions.of(program, weights, batch, table)
        lengths = np.stack([made.lengths(norm)[0] for norm in ("l2", "l1")], axis=1)
        alone = [made.total(np.eye(len(rows))[None, unit])[0] for unit in range(len(rows))]
    return lengths, np.stack(alone)


def start(task, program, seed: int) -> np.ndarray:
    away = np.random.default_rng(seed).normal(size=program.size)
    if isinstance(task, Supervised):
        return (task.start(Federation({"a": records(0, 3)}), Key(0)) + 0.1 * away)[None]
    return (away * (1e8 if seed % 3 == 0 else 0.5))[None]


@pytest.mark.parametrize("name", SEPARABLE)
@settings(max_examples=8, deadline=None)
@given(
    size=st.sampled_from([1, 2, 3, 12, 13, 15, 16, 17, 24, 37, 38, 60, 61, 100, 299, 300]),
    seed=st.integers(0, 99),
)
def test_records_contribute_the_same_bits_in_batches_of_any_size_and_order(name, size, seed):
    task, table = ready(SEPARABLE[name]), records(seed)
    program = task.program(COLUMNS)
    weights = start(task, program, seed)
    order = np.random.default_rng(seed).permutation(RECORDS)[:size]
    probes = order[:: max(size // 5, 1)]
    places = [int(np.flatnonzero(order == probe)[0]) for probe in probes]
    batch = order[:, None], np.ones((size, 1), dtype=bool)
    with np.errstate(all="ignore"):
        made = ChunkedContributions.of(program, weights, Batch(batch[0][None], batch[1][None]), table)
        lengths = np.stack([made.lengths(norm)[0] for norm in ("l2", "l1")], axis=1)
    for probe, place in zip(probes, places, strict=True):
        one = contribution(task, program, weights, table, np.array([[probe]]), np.ones((1, 1), dtype=bool))
        assert lengths[place].tobytes() == one[0][0].tobytes()
        factors = np.zeros((1, size))
        factors[0, place] = 1.0
        with np.errstate(all="ignore"):
            assert np.array_equal(made.total(factors)[0], one[1][0], equal_nan=True)


@pytest.mark.parametrize("name", GROUPED)
@settings(max_examples=8, deadline=None)
@given(sizes=st.lists(st.integers(1, 9), min_size=2, max_size=12), seed=st.integers(0, 99))
def test_groups_contribute_the_same_bits_beside_any_other_group(name, sizes, seed):
    task, table = ready(GROUPED[name]), records(seed, crafted=seed % 2 == 0)
    program = task.program(COLUMNS)
    weights = start(task, program, seed)
    rows, present = (
        np.zeros((len(sizes), max(sizes)), dtype=np.int64),
        np.zeros((len(sizes), max(sizes)), bool),
    )
    order, used = np.random.default_rng(seed).permutation(RECORDS), 0
    for unit, size in enumerate(sizes):
        rows[unit, :size], present[unit, :size] = order[used : used + size], True
        used += size
    lengths, gradients = contribution(task, program, weights, table, rows, present)
    for unit, size in enumerate(sizes):
        alone = contribution(
            task, program, weights, table, rows[unit : unit + 1, :size], present[unit : unit + 1, :size]
        )
        assert lengths[unit].tobytes() == alone[0][0].tobytes()
        assert np.array_equal(gradients[unit], alone[1][0], equal_nan=True)


@pytest.mark.parametrize("name", [*SEPARABLE, *GROUPED])
def test_a_cohort_moves_each_site_as_it_would_move_alone(name):
    task = ready({**SEPARABLE, **GROUPED}[name])
    groups = {"groups_per_site": 4} if name in GROUPED else {}
    task = replace(task, steps=3, sample=0.5, batch=None if groups else 10, optimizer="adam", **groups)
    sizes = {"oslo": 37, "bergen": 38, "tromso": 90, "bodo": 5, "hamar": 61}
    federation = Federation({place: records(k, n) for k, (place, n) in enumerate(sizes.items())}, records=200)
    state = task.start(federation, Key(0)) if isinstance(task, Supervised) else task.start(federation, Key(3))
    mechanisms = [
        RecordLevel(
            law="gaussian", clip=1.0, multiplier=1.0, steps=3, rate=0.5, grouped=bool(groups),
            sampled="group" if groups else "unit", rehearsal=True,
        )
    ]  # fmt: skip
    if not any(word in name for word in ("module", "own")):
        mechanisms.append(NoPrivacy())
    for mechanism in mechanisms:
        together = task.train(state, federation.cohort(list(sizes)), mechanism, Key(1, True)).matrix
        for place, row in zip(sizes, together, strict=True):
            alone = task.train(state, federation.cohort([place]), mechanism, Key(1, True)).matrix[0]
            assert float(np.abs(row - alone).max()) == 0.0, place


@pytest.mark.parametrize("kind", [CoxPH, DeepSurv, CoxTime])
def test_the_closing_question_sees_each_record_alone(kind):
    task, table = ready(kind()), records(1)
    state = start(task, task.program(COLUMNS), 1)[0]
    question = BreslowQuery(task)
    with np.errstate(all="ignore"):
        together = question.contributions(state, table, 3.0)
        for count in (1, 2, 3, 15, 16, 17, 37, 38, 200):
            assert np.array_equal(
                question.contributions(state, table.take(slice(0, count)), 3.0), together[:count]
            )


def test_losses_and_curves_of_records_are_their_own():
    table = records(2)
    for name in ("logistic-hazard relu", "pc-hazard", "poisson-ph", "deep-hit", "module"):
        task = ready(SEPARABLE[name])
        state = start(task, task.program(COLUMNS), 2)[0]
        with np.errstate(all="ignore"):
            together = task.losses(state, table)
            for count in (1, 2, 3, 12, 13, 16, 17, 37, 38, 200):
                part = table.take(slice(0, count))
                assert np.array_equal(task.losses(state, part), together[:count], equal_nan=True), (
                    name,
                    count,
                )
                if not isinstance(task, Supervised):
                    curves = [task.model(state).survival(some.features, ENDS) for some in (part, table)]
                    assert np.array_equal(curves[0], curves[1][:count], equal_nan=True)


def test_vectors_of_a_private_cox_regression_are_their_own():
    table, grid = records(3), np.array(ENDS)
    draws = np.random.default_rng(0)
    limits = feature_limits(NAMES, Encoding(), {}, 3.0)
    public = Regressors(
        ends=grid, log_rates=draws.normal(size=(1, 4)), trends=draws.normal(size=(4, 3)),
        center=draws.normal(size=COLUMNS), whitening=draws.normal(size=(COLUMNS, COLUMNS)), bound=3.0,
        information_bound=5.0,
    )  # fmt: skip
    point, layout = draws.normal(size=public.size) * 3, MomentLayout(4, COLUMNS, 1, False, 3.0)

    def vectors(some: Table) -> list[np.ndarray]:
        own = RegressionRecords.of(some, grid, limits, 0)
        rows = (
            MomentRows(some, own, layout, grid),
            InformationRows(own, public),
            ScoreRows(own, public, point),
        )
        return [one.rows(0) for one in rows]

    with np.errstate(all="ignore"):
        together = vectors(table)
        for count in (1, 2, 3, 7, 16, 37, 38, 100):
            for rows, own in zip(together, vectors(table.take(slice(0, count))), strict=True):
                assert np.array_equal(own, rows[:count])


def test_gradients_of_an_autoencoder_are_their_own():
    network = Autoencoder(columns=COLUMNS, latent=3, width=8, alpha=0.5, beta=0.5)
    draws = np.random.default_rng(0)
    table = records(4, crafted=False)
    table = Table(table.features, {"time": table.targets["time"], "share": table.targets["event"]}, NAMES)
    hidden, weights = draws.normal(size=(1, RECORDS, 3)), network.start(Key(0))[None]

    def lengths(count: int) -> np.ndarray:
        batch = Batch(np.arange(count)[None, :, None], np.ones((1, count, 1), dtype=bool))
        return network.contributions(weights, batch, table, hidden[:, :count]).lengths("l2")[0]

    together = lengths(RECORDS)
    for count in (1, 2, 3, 16, 17, 37, 38, 61):
        assert np.array_equal(lengths(count), together[:count])


def test_where_blocks_would_depend_on_places_rows_are_multiplied_one_by_one(monkeypatch):
    # A library whose last bits hang on the place of a row in its block.
    def uneven(inputs, weights, start, bias, rectified, blocks, made):
        made[:] = np.arange(made.shape[1])[None, :, None] * 1e-16

    kernels.position_independent.cache_clear()
    monkeypatch.setattr(kernels, "layer_forward", uneven)
    assert not kernels.position_independent(3, 4)
    monkeypatch.undo()
    kernels.position_independent.cache_clear()
    table, task = records(5), ready(LogisticHazard())
    program = task.program(COLUMNS)
    weights = start(task, program, 5)
    monkeypatch.setattr(kernels, "position_independent", lambda inputs, outputs: False)
    rows = task.program(COLUMNS)
    assert not any(layer.blocks for layer in rows.layers)
    everybody = np.arange(50)[:, None], np.ones((50, 1), dtype=bool)
    by_rows = contribution(task, rows, weights, table, *everybody)
    by_blocks = contribution(task, program, weights, table, *everybody)
    np.testing.assert_allclose(by_rows[0], by_blocks[0], rtol=1e-6)
    for size in (1, 2, 17, 38):
        some = contribution(task, rows, weights, table, everybody[0][:size], everybody[1][:size])
        assert np.array_equal(some[0], by_rows[0][:size])


def test_functions_that_depend_on_places_are_replaced_by_loops():
    def uneven(values: np.ndarray) -> np.ndarray:
        found = np.exp(values)
        found[len(found) // 8 * 8 :] *= 1 + 2.0**-52
        return found

    values = np.linspace(-3, 3, elementwise.LONGEST)
    assert not elementwise.independent(uneven, values)
    for name in ("exp", "expm1", "tanh"):
        loop = elementwise.one_by_one(name)
        assert elementwise.independent(loop, values)
        np.testing.assert_allclose(loop(values), getattr(np, name)(values), rtol=1e-14)
    for name in ("log", "log1p"):
        loop = elementwise.one_by_one(name)
        assert elementwise.independent(loop, values + 4)
        np.testing.assert_allclose(loop(values + 4), getattr(np, name)(values + 4), rtol=1e-14)


def test_a_function_of_torch_that_depends_on_places_is_asked_one_by_one():
    asked = []

    def uneven(rows: Tensor) -> Tensor:
        asked.append(len(rows))
        return rows * (1 + torch.arange(len(rows), dtype=torch.float64)[:, None] * 2.0**-52)

    values = torch.rand(5, 3, dtype=torch.float64)
    assert torch.equal(torch_modules.Chunks(uneven, members=False)((values,)), values)
    assert asked[-5:] == [1] * 5


def test_a_module_that_draws_is_refused_before_anything_is_charged():
    from tacit import Privacy, fit
    from tacit.errors import Refused

    class Drawing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(COLUMNS, 1)

        def forward(self, rows: Tensor) -> Tensor:
            return self.inner(rows) * torch.from_numpy(np.random.default_rng().random(1))

    federation = Federation({"a": records(0, 30, crafted=False)}, records=30)
    privacy = Privacy(unit="record", epsilon=1.0, delta=1e-5, clip=1.0)
    with pytest.raises(Refused, match="two answers"):
        fit(supervised(Drawing()), federation, privacy=privacy)
