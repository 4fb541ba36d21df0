"""The autoencoder descends the loss it states, record by record, and its draws vary as records do."""

import numpy as np
import pytest
import torch
from torch.func import functional_call, grad, vmap

from tacit import Key
from tacit.errors import InvalidValue
from tacit.learning.batches import Batch
from tacit.privacy.mechanisms.base import NoPrivacy, RecordLevel
from tacit.sites.table import Table, from_arrays
from tacit.survival.augment.mvae import FARTHEST, Autoencoder, Scale, TrainingOptions, cohort_of, draw, train

KEY = Key(3, rehearsal=True)
NETWORK = Autoencoder(4, 3, 7, 0.7, 1.3)
GENERATOR = np.random.default_rng(0)
WEIGHTS = GENERATOR.normal(size=(2, NETWORK.size)) * 0.4
FEATURES, TIME = GENERATOR.normal(size=(12, 4)), GENERATOR.normal(size=12)
DRAWS = GENERATOR.normal(size=(2, 6, 3))
SHARE = np.array([1, 1, 0, 1, 1, 1, 2.5, 1, 1, 0, 1, 1.0])
STORE = Table(FEATURES, {"time": TIME, "share": SHARE}, ("a", "b", "c", "d"))
BATCH = Batch(np.arange(12).reshape(2, 6, 1), np.ones((2, 6, 1), dtype=bool))


class ByHand(torch.nn.Module):
    """The same network in torch, its parameters in the same order."""

    def __init__(self) -> None:
        super().__init__()
        linear, relu, tanh = torch.nn.Linear, torch.nn.ReLU, torch.nn.Tanh
        self.encoder = torch.nn.Sequential(linear(4, 7), relu(), linear(7, 7), relu(), linear(7, 6))
        self.decoder = torch.nn.Sequential(linear(3, 7), tanh(), linear(7, 4))
        self.clock = torch.nn.Sequential(linear(3, 7), relu(), linear(7, 7), relu(), linear(7, 1))

    def forward(
        self, x: torch.Tensor, t: torch.Tensor, eta: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        mean, log = self.encoder(x).split(3, dim=-1)
        hidden = mean + torch.exp(log) * eta
        divergence = -0.5 * (1 + 2 * log - mean**2 - torch.exp(2 * log)).sum(-1)
        return ((self.decoder(hidden) - x) ** 2).sum(-1), divergence, (self.clock(hidden)[..., 0] - t) ** 2


MODULE = ByHand().double()


def parameters(weights: torch.Tensor) -> dict[str, torch.Tensor]:
    found, start = {}, 0
    for name, values in MODULE.named_parameters():
        found[name] = weights[start : start + values.numel()].view(values.shape)
        start += values.numel()
    assert start == len(weights)
    return found


def by_hand(weights: torch.Tensor, x: torch.Tensor, t: torch.Tensor, eta: torch.Tensor) -> torch.Tensor:
    features, divergence, time = functional_call(MODULE, parameters(weights), (x, t, eta))
    return features + 0.7 * divergence + 1.3 * time


def gradients() -> np.ndarray:
    """Of every record, by torch (sites, records, coordinates)."""
    per_record = vmap(grad(by_hand), in_dims=(None, 0, 0, 0))
    x, t, eta = (torch.from_numpy(values) for values in (FEATURES, TIME, DRAWS))
    rows = [
        per_record(torch.from_numpy(WEIGHTS[site]), x[6 * site :][:6], t[6 * site :][:6], eta[site])
        for site in range(2)
    ]
    return torch.stack(rows).numpy() * SHARE.reshape(2, 6, 1)


def test_each_part_of_the_loss_is_its_formula():
    found = NETWORK.losses(WEIGHTS, FEATURES.reshape(2, 6, 4), TIME.reshape(2, 6), DRAWS)
    for site in range(2):
        x, t = torch.from_numpy(FEATURES[6 * site :][:6]), torch.from_numpy(TIME[6 * site :][:6])
        values = (x, t, torch.from_numpy(DRAWS[site]))
        squares, divergence, time = functional_call(
            MODULE, parameters(torch.from_numpy(WEIGHTS[site])), values
        )
        np.testing.assert_allclose(found.features[site], squares.numpy(), rtol=1e-12)
        np.testing.assert_allclose(found.divergence[site], 0.7 * divergence.numpy(), rtol=1e-12)
        np.testing.assert_allclose(found.time[site], 1.3 * time.numpy(), rtol=1e-12)


def test_gradients_of_every_record_are_those_of_torch():
    found, expected = NETWORK.contributions(WEIGHTS, BATCH, STORE, DRAWS), gradients()
    np.testing.assert_allclose(found.lengths("l2"), np.linalg.norm(expected, axis=2), rtol=1e-10)
    np.testing.assert_allclose(found.lengths("l1"), np.abs(expected).sum(axis=2), rtol=1e-10)
    np.testing.assert_allclose(found.total(None), expected.sum(axis=1), atol=1e-10)
    factors = GENERATOR.uniform(size=(2, 6))
    weighted = np.einsum("sr,src->sc", factors, expected)
    np.testing.assert_allclose(found.total(factors), weighted, atol=1e-10)


def test_the_censored_and_the_absent_contribute_nothing_at_all():
    present = BATCH.present.copy()
    present[1, 4] = False
    lengths = NETWORK.contributions(WEIGHTS, Batch(BATCH.rows, present), STORE, DRAWS).lengths("l2")
    assert lengths[0, 2] == lengths[1, 3] == lengths[1, 4] == 0.0
    assert (np.delete(lengths.ravel(), [2, 9, 10]) > 0).all()


def test_one_record_moves_the_sum_by_at_most_the_clip_however_wild_it_is():
    mechanism = RecordLevel(law="gaussian", clip=0.5, multiplier=1e-9, steps=1, rate=1.0, rehearsal=True)
    for value in (1e3, -1e3, 1e200):
        wild = Table(
            np.where(np.arange(12)[:, None] == 5, value, FEATURES),
            {"time": np.where(np.arange(12) == 5, -value, TIME), "share": SHARE},
            STORE.columns,
        )
        present = BATCH.present.copy()
        present[0, 5] = False
        with np.errstate(over="ignore", invalid="ignore"):
            sums = [
                mechanism.noisy_sums(NETWORK.contributions(WEIGHTS, batch, wild, DRAWS), [KEY, KEY], 0)
                for batch in (BATCH, Batch(BATCH.rows, present))
            ]
        assert np.isfinite(sums[0]).all()
        moved = np.linalg.norm(sums[0] - sums[1], axis=1)
        assert moved[0] <= 0.5 * (1 + 1e-6)
        assert moved[1] < 1e-6


def normal_records(records: int, seed: int) -> Table:
    """Correlated features of means 2, 0, -1 and sds 3, 1, 0.5, and a log time that follows the first."""
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(records, 3))
    x[:, 1] = 0.7 * x[:, 0] + np.sqrt(1 - 0.49) * x[:, 1]
    time = np.exp(1 + 0.6 * x[:, 0] + 0.5 * generator.normal(size=records))
    return from_arrays(x * [3, 1, 0.5] + [2, 0, -1], time=time, event=np.ones(records))


def learnt(table: Table, *, steps: int = 300, **options: float) -> tuple[Autoencoder, np.ndarray, Scale]:
    scale, network = Scale.from_events(table), Autoencoder(3, 4, 20, 1.0, 1.0)
    weights = train(
        network,
        cohort_of({"oslo": scale.standardise(table)}),
        NoPrivacy(),
        [KEY / "oslo"],
        TrainingOptions(**{"steps": steps, "sample": 1.0, "lr": 0.01, **options}),
        start=network.start(KEY / "weights"),
        expected=np.array([float(len(table))]),
    )
    return network, weights[0], scale


def test_synthetic_records_have_the_means_spreads_and_correlations_of_the_real_ones():
    table = normal_records(300, 1)
    network, weights, scale = learnt(table)
    made = scale.destandardise(draw(network, weights, 3000, KEY, residuals="drawn"), table)
    ratio = made.features.std(axis=0) / table.features.std(axis=0)
    np.testing.assert_allclose(ratio, 1.0, atol=0.1)
    shift = (made.features.mean(axis=0) - table.features.mean(axis=0)) / table.features.std(axis=0)
    np.testing.assert_allclose(shift, 0.0, atol=0.15)
    logs, real = np.log(made.targets["time"]), np.log(table.targets["time"])
    assert abs(logs.mean() - real.mean()) < 0.15 * real.std()
    assert 0.85 < logs.std() / real.std() < 1.15
    joint = [np.corrcoef(np.column_stack([t.features, np.log(t.targets["time"])]).T) for t in (made, table)]
    np.testing.assert_allclose(joint[0], joint[1], atol=0.25)


def test_decoded_means_alone_vary_less_than_records():
    table = normal_records(200, 2)
    network, weights, _ = learnt(table)
    means = draw(network, weights, 2000, KEY, residuals="none").std(axis=0)
    drawn = draw(network, weights, 2000, KEY, residuals="drawn").std(axis=0)
    assert (means < drawn).all()
    np.testing.assert_allclose(drawn, 1.0, atol=0.08)


def test_training_lowers_the_loss():
    table = normal_records(100, 3)
    network, weights, scale = learnt(table, steps=200)
    standard = scale.standardise(table)
    draws = np.random.default_rng(5).normal(size=(1, 100, 4))
    before, after = (
        sum(
            part.mean()
            for part in network.losses(
                point[None], standard.features[None], standard.targets["time"][None], draws
            )
        )
        for point in (network.start(KEY / "weights"), weights)
    )
    assert after < 0.8 * before


def test_a_site_learns_the_same_alone_and_among_others():
    tables = {name: normal_records(size, seed) for seed, (name, size) in enumerate([("a", 30), ("b", 45)])}
    network = Autoencoder(3, 2, 8, 1.0, 1.0)

    def weights(names: list[str]) -> dict[str, np.ndarray]:
        cohort = cohort_of(
            {name: Scale.from_events(tables[name]).standardise(tables[name]) for name in names}
        )
        found = train(
            network,
            cohort,
            NoPrivacy(),
            [KEY / name for name in names],
            TrainingOptions(steps=40, sample=0.5, lr=0.01),
            start=network.start(KEY / "weights"),
            expected=np.array([float(len(tables[name])) for name in names]),
        )
        return dict(zip(names, found, strict=True))

    alone, among, turned = weights(["a"]), weights(["a", "b"]), weights(["b", "a"])
    np.testing.assert_allclose(alone["a"], among["a"], atol=1e-9)
    np.testing.assert_allclose(among["b"], turned["b"], atol=1e-9)


def test_a_scale_goes_forth_and_back():
    table = normal_records(50, 4)
    scale = Scale.from_events(table)
    standard = scale.standardise(table)
    numbers = np.column_stack([standard.features, standard.targets["time"]])
    back = scale.destandardise(numbers, table)
    np.testing.assert_allclose(back.features, table.features, rtol=1e-9)
    np.testing.assert_allclose(back.targets["time"], table.targets["time"], rtol=1e-9)
    assert (back.targets["event"] == 1).all()


def test_a_column_that_does_not_vary_stays_as_it_is():
    table = normal_records(50, 4)
    flat = from_arrays(np.where([True, False, False], 7.0, table.features), **table.targets)
    network, weights, scale = learnt(flat, steps=20)
    made = scale.destandardise(draw(network, weights, 20, KEY, residuals="drawn"), flat)
    assert (made.features[:, 0] == 7.0).all()


def test_what_lies_far_out_is_taken_as_near():
    table = normal_records(50, 4)
    features = table.features.copy()
    features[0] = 1e9
    scale = Scale.from_events(table).with_span((1.0, 10.0))
    standard = scale.standardise(from_arrays(features, **table.targets))
    assert np.abs(standard.features).max() == FARTHEST
    assert np.abs(standard.targets["time"]).max() <= FARTHEST
    times = scale.destandardise(np.full((4, 4), 1e6) * [[1], [-1], [1], [-1]], table).targets["time"]
    np.testing.assert_allclose(times, [10, 1, 10, 1])


def test_nobody_can_be_standardised_by_nobody():
    with pytest.raises(InvalidValue, match="to standardize by"):
        _ = Scale.from_events(normal_records(5, 0).take(np.zeros(5, dtype=bool)))
