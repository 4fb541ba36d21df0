"""The noise in a trained model is what the ledger was charged for, and nobody moves a model by more.

Everything is read off whole runs: the updates that leave the sites, and the releases that the ledger has for
them. Losses are chosen so that the gradient is known: zero, or the record itself. In a rehearsal noise
depends on the key alone, so the difference of two runs under one seed is the difference of what was noised.
Draws are fixed; `FALSE_ALARM` is the share of seeds on which right noise would be accused by one test.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from scipy import stats
from torch import Tensor, nn

import tacit
from tacit import Federation, Ledger, Open, Privacy, Supervised
from tacit.aggregation.mean import Mean
from tacit.engines.base import Engine, Local, run_at_site
from tacit.errors import BudgetExhausted
from tacit.privacy.accounting.release import Release
from tacit.privacy.mechanisms.base import RecordLevel
from tacit.privacy.mechanisms.clip import clip_rows
from tacit.privacy.mechanisms.noise import GRID_BITS
from tacit.runtime.arrays import Array
from tacit.runtime.keys import Key
from tacit.sites.table import Table, from_arrays

FALSE_ALARM = 1e-6
LAWS = {"gaussian": stats.norm, "laplace": stats.laplace}
ORDER = {"gaussian": 2, "laplace": 1}
DELTA = 1e-5


# Runs whose gradients are known


def nothing(output: Tensor, y: Tensor) -> Tensor:
    """A loss without a slope: what moves is noise."""
    return 0.0 * output.sum()


def itself(output: Tensor, y: Tensor) -> Tensor:
    """A loss whose gradient is the record, whatever the weights."""
    return output[0]


def zeros(module: nn.Module) -> nn.Module:
    with torch.no_grad():
        for values in module.parameters():
            values.zero_()
    return module


def table(features: np.ndarray) -> Table:
    return from_arrays(features, y=np.zeros(len(features)))


def drawn(records: int, columns: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(records, columns))


@dataclass(frozen=True, kw_only=True)
class Watched(Engine):
    """The local engine, and what passes through it."""

    kind: ClassVar[str] = "local"
    seen: list[Any] = field(default_factory=list)
    before: Callable[[], None] = field(default=lambda: None)

    def train(self, task, federation, state, names, mechanism, key):
        self.before()
        updates = Local().train(task, federation, state, names, mechanism, key)
        self.seen.append(updates)
        return updates


def charged(folder: Path) -> list[dict[str, Any]]:
    """The releases in the ledger of a run, as they were written."""
    with Ledger(folder / "ledger.db", mode="read") as ledger:
        return [entry for entry in ledger.entries() if entry["kind"] == "release"]


def private(**fields: Any) -> Privacy:
    given = {"unit": "record", "noise_multiplier": 0.8, "delta": DELTA, "clip": 0.5, "rehearsal": True}
    return Privacy(**{**given, **fields})


def accused(draws: np.ndarray, law: str, scale: float) -> bool:
    return bool(stats.kstest(draws.reshape(-1), LAWS[law](scale=scale).cdf).pvalue < FALSE_ALARM)


def room(scale: float, coordinates: int) -> float:
    """Return the most that the public grid and rounding may add to a difference of two answers."""
    return coordinates * scale * 2.0**-GRID_BITS + 1e-9


# The noise of record-level training


def noise_of_a_run(
    folder: Path, seed: int, *, law: str, steps: int, sample: float
) -> tuple[np.ndarray, dict]:
    """The update of a site that has nothing to tell, and what was charged for it."""
    engine = Watched()
    task = Supervised(module=zeros(nn.Linear(100, 100)), loss=nothing, steps=steps, sample=sample, lr=0.3)
    federation = Federation({"oslo": table(drawn(30, 100))}, records=50)
    tacit.fit(task, federation, privacy=private(mechanism=law), engine=engine, seed=seed, out=folder)
    (release,) = charged(folder)
    return engine.seen[0].matrix, release


@pytest.mark.parametrize(
    ("law", "steps", "sample"),
    [("gaussian", 1, 0.5), ("gaussian", 7, 0.5), ("gaussian", 3, 1.0), ("laplace", 1, 0.5)],
)
def test_a_site_without_anything_to_tell_sends_noise_of_the_charged_law_and_scale(
    tmp_path, law, steps, sample
):
    found = []
    for seed in range(5):
        update, release = noise_of_a_run(tmp_path / str(seed), seed, law=law, steps=steps, sample=sample)
        assert (release["law"], release["count"], release["rate"]) == (law, steps, sample)
        assert (release["subject"], release["sensitivity"], release["bound"]) == ("records@oslo", 0.5, 0.5)
        # Each step adds noise to a sum and moves by lr over the expected batch.
        found.append(update * (sample * 50) / (0.3 * math.sqrt(release["count"])))
    draws = np.stack(found)
    assert not accused(draws, law, release["scale"])
    assert accused(draws, law, 1.1 * release["scale"])
    assert accused(draws, law, release["scale"] / 1.1)


def test_an_empty_batch_is_a_noisy_step_all_the_same(tmp_path):
    update, release = noise_of_a_run(tmp_path, 1, law="gaussian", steps=4, sample=1e-6)
    assert release["rate"] == 1e-6
    draws = update * (1e-6 * 50) / (0.3 * math.sqrt(release["count"]))
    assert not accused(draws, "gaussian", release["scale"])
    assert accused(draws, "gaussian", 1.15 * release["scale"])


@pytest.mark.parametrize("law", LAWS)
def test_what_privacy_adds_to_an_open_run_is_noise_of_the_charged_law_and_scale(tmp_path, law):
    # Records shorter than the clip bound in either norm: nothing but noise tells the two runs apart.
    features = np.sign(drawn(40, 2000)) / 5000
    task = Supervised(
        module=zeros(nn.Linear(2000, 1, bias=False)), loss=itself, steps=1, sample=0.5, lr=2.0, batch=10
    )
    draws, moved = [], []
    for seed in range(8):
        updates = []
        for promise in (private(mechanism=law), Open()):
            engine, folder = Watched(), tmp_path / f"{seed} {type(promise).__name__}"
            tacit.fit(
                task,
                Federation({"oslo": table(features)}),
                privacy=promise,
                engine=engine,
                seed=seed,
                out=folder,
            )
            updates.append(engine.seen[0].matrix)
        draws.append((updates[0] - updates[1]) * 10 / 2.0)
        moved.append(float(np.abs(updates[1]).max()))
    (release,) = charged(tmp_path / "0 Privacy")
    assert min(moved) > 0
    assert not accused(np.stack(draws), law, release["scale"])
    assert accused(np.stack(draws), law, 1.2 * release["scale"])


@pytest.mark.parametrize("unit", ["record", "site"])
def test_the_noise_of_sites_rounds_and_seeds_has_nothing_in_common(unit):
    task = Supervised(module=zeros(nn.Linear(60, 50)), loss=nothing, steps=2, sample=0.5)
    tables = {name: table(drawn(20, 60, seed)) for seed, name in enumerate(("oslo", "bergen", "tromso"))}
    seen = []
    for seed in (0, 1):
        engine, whole = Watched(), Federation(tables, records=60)
        tacit.fit(task, whole, privacy=private(unit=unit), engine=engine, rounds=2, seed=seed)
        seen += [row for updates in engine.seen for row in updates.matrix]
    correlations = np.corrcoef(np.stack(seen))[np.triu_indices(12, 1)]
    # 66 pairs of 3,050 independent draws each.
    limit = stats.norm.isf(FALSE_ALARM / 2 / 66) / math.sqrt(3050)
    assert float(np.abs(correlations).max()) < limit


# Who takes part


def test_records_take_part_at_the_charged_rate(tmp_path):
    # Each record has a coordinate of its own, which counts the steps that it joined.
    records, steps = 150, 40
    task = Supervised(
        module=zeros(nn.Linear(records, 1, bias=False)), loss=itself, steps=steps, sample=0.3, lr=1.0, batch=1
    )
    engine, federation = Watched(), Federation({"oslo": table(np.eye(records))})
    tacit.fit(
        task, federation, privacy=private(noise_multiplier=0.005, clip=1.0), engine=engine, out=tmp_path
    )
    (release,) = charged(tmp_path)
    joined = -engine.seen[0].matrix[0]
    hits = np.round(joined)
    assert float(np.abs(joined - hits).max()) < 0.3
    assert stats.binomtest(int(hits.sum()), records * release["count"], release["rate"]).pvalue > FALSE_ALARM
    assert (
        stats.binomtest(int(hits.sum()), records * release["count"], 0.85 * release["rate"]).pvalue
        < FALSE_ALARM
    )
    # Independent draws: every record's count is binomial, neither all alike nor all or nothing.
    variance = steps * release["rate"] * (1 - release["rate"])
    spread = ((hits - steps * release["rate"]) ** 2).sum() / variance
    assert stats.chi2(records).sf(spread) > FALSE_ALARM / 2
    assert stats.chi2(records).cdf(spread) > FALSE_ALARM / 2


class Counted:
    """A mechanism, and the key of every noisy sum that was taken."""

    def __init__(self, mechanism: Any, keys: list[tuple[Any, ...]]) -> None:
        self.mechanism, self.keys = mechanism, keys

    def __getattr__(self, name: str) -> Any:
        return getattr(self.mechanism, name)

    def noisy_sums(self, contributions, keys, step):
        self.keys += [(key / step).path for key in keys]
        return self.mechanism.noisy_sums(contributions, keys, step)


@dataclass(frozen=True, kw_only=True)
class Counting(Engine):
    kind: ClassVar[str] = "local"
    keys: list[tuple[Any, ...]] = field(default_factory=list)

    def train(self, task, federation, state, names, mechanism, key):
        return run_at_site(task, state, federation.cohort(names), Counted(mechanism, self.keys), key)


@pytest.mark.parametrize("loss", ["squared", "own", "groups"])
def test_there_are_as_many_noisy_sums_as_were_charged_and_no_key_is_used_twice(tmp_path, loss):
    sizes = {"oslo": 50, "bergen": 4, "tromso": 21}
    tables = {name: table(drawn(size, 3, size)) for name, size in sizes.items()}
    work_of_a_round = {"steps": 6, "sample": 0.2}
    tasks = {
        "squared": Supervised(module=zeros(nn.Linear(3, 1)), loss="squared", **work_of_a_round),
        "own": Supervised(module=nn.Sequential(nn.Tanh(), nn.Linear(3, 1)), loss=itself, **work_of_a_round),
        "groups": Supervised(
            module=nn.Linear(3, 1), loss=in_groups, coupled=True, groups_per_site=4, **work_of_a_round
        ),
    }
    engine = Counting()
    tacit.fit(
        tasks[loss], Federation(tables, records=75), privacy=private(), engine=engine, rounds=2, out=tmp_path
    )
    releases = charged(tmp_path)
    assert sorted((entry["party"], entry["purpose"]) for entry in releases) == [
        (name, f"round {number}") for name in sorted(tables) for number in (1, 2)
    ]
    for entry in releases:
        number = int(entry["purpose"].removeprefix("round "))
        taken = [path for path in engine.keys if path[0] == number and entry["party"] in path]
        assert len(taken) == entry["count"] == 6
    assert len(set(engine.keys)) == len(engine.keys) == sum(entry["count"] for entry in releases)


# How far one record moves a sum


def in_groups(outputs: Tensor, present: Tensor, y: Tensor) -> Tensor:
    """Everybody present is compared with everybody, as in Cox's likelihood."""
    among = torch.where(present, outputs[:, 0], -1e9)
    everybody = torch.logsumexp(among, 0)
    return (torch.where(present, 1.0 + y, 0.0) * (everybody - outputs[:, 0])).sum()


class Gated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate, self.value = nn.Linear(3, 2), nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        return (torch.tanh(self.gate(x)) * self.value(x)).sum(dim=-1, keepdim=True)


def made(kind: Callable[[], nn.Module]) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(2)
        return kind()


NETWORKS: dict[str, nn.Module] = {
    "linear": made(lambda: nn.Linear(3, 1)),
    "perceptron": made(lambda: nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))),
    "custom": made(Gated),
}
BATCH, LR = 5, 0.5
features_of_a_site = arrays.arrays(
    np.float64, st.tuples(st.integers(2, 6), st.just(3)), elements=st.floats(-10, 10)
)
wild_record = arrays.arrays(np.float64, (1, 3), elements=st.floats(-1e6, 1e6))


def step_of(features: np.ndarray, task: Supervised, mechanism, seed: int, divisor: float) -> Array:
    """The noisy sum behind the only step of a site's round."""
    federation = Federation({"oslo": from_arrays(features, y=features[:, 0])})
    state, key = task.start(federation, Key(0)), Key(seed, rehearsal=True)
    update = Local().train(task, federation, state, ["oslo"], mechanism, key / 1).matrix[0]
    return -update * divisor / LR


@pytest.mark.parametrize("network", NETWORKS)
@settings(max_examples=40)
@given(
    features=features_of_a_site,
    record=wild_record,
    law=st.sampled_from(sorted(LAWS)),
    clip=st.floats(0.01, 100),
    seed=st.integers(0, 1000),
    rate=st.sampled_from([0.5, 1.0]),
)
def test_one_record_moves_a_training_step_by_at_most_the_charged_sensitivity(
    network, features, record, law, clip, seed, rate
):
    task = Supervised(module=NETWORKS[network], loss="squared", steps=1, sample=rate, lr=LR, batch=BATCH)
    promise = private(mechanism=law, clip=clip, noise_multiplier=1e-3)
    mechanism = promise.solve(task, ["oslo"], Mean(), 1)
    (release,) = mechanism.release(1, ["oslo"])
    # Draws go by position, so that the new one comes last.
    without = step_of(features, task, mechanism, seed, BATCH)
    moved = step_of(np.concatenate([features, record]), task, mechanism, seed, BATCH) - without
    assert (release.relation, release.sensitivity) == ("add-remove", clip)
    assert float(np.linalg.norm(moved, ord=ORDER[law])) <= release.sensitivity * (1 + 1e-9) + room(
        release.scale, len(moved)
    )


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("law", LAWS)
def test_the_sensitivity_of_a_training_step_is_reached(network, law):
    task = Supervised(module=NETWORKS[network], loss="squared", steps=1, sample=1.0, lr=LR, batch=BATCH)
    mechanism = private(mechanism=law, noise_multiplier=1e-3).solve(task, ["oslo"], Mean(), 1)
    (release,) = mechanism.release(1, ["oslo"])
    features, record = drawn(4, 3), np.array([[1e5, -1e5, 1e5]])
    without = step_of(features, task, mechanism, 0, BATCH)
    moved = step_of(np.concatenate([features, record]), task, mechanism, 0, BATCH) - without
    assert float(np.linalg.norm(moved, ord=ORDER[law])) == pytest.approx(release.sensitivity, rel=1e-6)


@pytest.mark.parametrize("network", NETWORKS)
@settings(max_examples=15)
@given(
    features=features_of_a_site,
    record=arrays.arrays(np.float64, (1, 3), elements=st.floats(-1e3, 1e3)),
    law=st.sampled_from(sorted(LAWS)),
    clip=st.floats(0.01, 100),
    seed=st.integers(0, 1000),
)
def test_one_record_moves_a_step_over_risk_groups_by_at_most_the_charged_sensitivity(
    network, features, record, law, clip, seed
):
    task = Supervised(
        module=NETWORKS[network], loss=in_groups, coupled=True, groups_per_site=3, steps=1, sample=1.0, lr=LR
    )
    mechanism = private(mechanism=law, clip=clip, noise_multiplier=1e-3).solve(task, ["oslo"], Mean(), 1)
    (release,) = mechanism.release(1, ["oslo"])
    without = step_of(features, task, mechanism, seed, 3)
    moved = step_of(np.concatenate([features, record]), task, mechanism, seed, 3) - without
    assert (release.sampled, release.sensitivity, release.bound) == ("group", 2 * clip, clip)
    assert float(np.linalg.norm(moved, ord=ORDER[law])) <= release.sensitivity * (1 + 1e-6) + room(
        release.scale, len(moved)
    )


def test_a_whole_group_turned_around_reaches_twice_the_bound():
    def added(outputs: Tensor, present: Tensor, y: Tensor) -> Tensor:
        return 100 * torch.where(present, outputs[:, 0], 0.0).sum()

    module = nn.Linear(3, 1, bias=False)
    task = Supervised(module=module, loss=added, coupled=True, groups_per_site=1, steps=1, sample=1.0, lr=LR)
    mechanism = private(noise_multiplier=1e-3).solve(task, ["oslo"], Mean(), 1)
    (release,) = mechanism.release(1, ["oslo"])
    features = np.array([[1.0, 0.0, 0.0], [1.0, 0.0, 0.0]])
    without = step_of(features, task, mechanism, 0, 1)
    moved = step_of(np.concatenate([features, [[-5.0, 0.0, 0.0]]]), task, mechanism, 0, 1) - without
    assert float(np.linalg.norm(moved)) == pytest.approx(release.sensitivity, rel=1e-6)


# How far one site moves a round


def round_of(tables: dict[str, Table], mechanism, *, aggregation: Mean = Mean(), left_out: str = "") -> Array:
    """Return the result of a round of three sites, one of which may be absent."""
    task = Supervised(module=NETWORKS["perceptron"], loss="squared", steps=3, sample=0.7, lr=LR)
    federation, key = Federation(tables), Key(4, rehearsal=True) / 1
    state, names = task.start(federation, key), [name for name in tables if name != left_out]
    updates = Local().train(task, federation, state, names, mechanism, key)
    combined = aggregation(updates, sites=mechanism.denominator(len(tables)))
    return mechanism.at_server(combined, key / "server")


WEIGHTS = {"oslo": 5.0, "bergen": 1.0, "tromso": 0.5}


@pytest.mark.parametrize("weights", ["uniform", WEIGHTS], ids=["uniform", "public weights"])
@pytest.mark.parametrize("law", LAWS)
@settings(max_examples=25)
@given(scales=st.lists(st.floats(0.01, 1e4), min_size=3, max_size=3), gone=st.sampled_from(sorted(WEIGHTS)))
def test_one_site_moves_what_leaves_the_server_by_at_most_the_charged_sensitivity(law, weights, scales, gone):
    aggregation = Mean(weights=weights)
    tables = {name: table(scale * drawn(6, 3, 1)) for name, scale in zip(WEIGHTS, scales, strict=True)}
    promise = private(unit="site", noise="server", mechanism=law, noise_multiplier=1e-3, participation=0.8)
    mechanism = promise.solve(
        Supervised(module=NETWORKS["perceptron"], loss="squared"), list(tables), aggregation, 1
    )
    (release,) = mechanism.release(1, list(tables))
    moved = round_of(tables, mechanism, aggregation=aggregation) - round_of(
        tables, mechanism, aggregation=aggregation, left_out=gone
    )
    assert (release.relation, release.rate) == ("add-remove", 0.8)
    assert float(np.linalg.norm(moved, ord=ORDER[law])) <= release.sensitivity * (1 + 1e-9) + room(
        release.scale, len(moved)
    )


@pytest.mark.parametrize("weights", ["uniform", WEIGHTS], ids=["uniform", "public weights"])
def test_the_heaviest_site_reaches_it(weights):
    aggregation = Mean(weights=weights)
    tables = {name: table(100 * drawn(6, 3, 1)) for name in WEIGHTS}
    promise = private(unit="site", noise="server", noise_multiplier=1e-3, participation=0.8)
    mechanism = promise.solve(
        Supervised(module=NETWORKS["perceptron"], loss="squared"), list(tables), aggregation, 1
    )
    (release,) = mechanism.release(1, list(tables))
    moved = round_of(tables, mechanism, aggregation=aggregation) - round_of(
        tables, mechanism, aggregation=aggregation, left_out="oslo"
    )
    assert float(np.linalg.norm(moved)) == pytest.approx(release.sensitivity, rel=1e-6)


@pytest.mark.parametrize("law", LAWS)
@settings(max_examples=25)
@given(scales=st.lists(st.floats(-1e4, 1e4).filter(lambda s: abs(s) > 1e-3), min_size=2, max_size=2))
def test_an_exchanged_site_moves_its_own_noisy_update_by_at_most_the_charged_sensitivity(law, scales):
    promise = private(unit="site", mechanism=law, noise_multiplier=1e-3)
    task = Supervised(module=NETWORKS["perceptron"], loss="squared", steps=3, sample=0.7, lr=LR)
    mechanism = promise.solve(task, ["oslo", "bergen"], Mean(), 1)
    (release,) = mechanism.release(1, ["oslo", "bergen"])
    sent = []
    for scale in scales:
        tables = {"oslo": table(scale * drawn(6, 3, 1)), "bergen": table(drawn(9, 3, 2))}
        federation, key = Federation(tables), Key(4, rehearsal=True) / 1
        sent.append(
            Local().train(task, federation, task.start(federation, key), list(tables), mechanism, key).matrix
        )
    moved = sent[0] - sent[1]
    assert (release.relation, release.sensitivity) == ("replace", 2 * promise.clip)
    assert float(np.linalg.norm(moved[0], ord=ORDER[law])) <= release.sensitivity * (1 + 1e-9) + room(
        release.scale, 21
    )
    # Nobody else's update is touched.
    assert float(np.abs(moved[1]).max()) == 0


@pytest.mark.parametrize(
    ("noise", "law"), [("site", "gaussian"), ("site", "laplace"), ("server", "gaussian")]
)
def test_the_noise_of_site_level_training_has_the_charged_law_and_scale(tmp_path, noise, law):
    task = Supervised(module=zeros(nn.Linear(200, 200)), loss=nothing, steps=1, sample=0.5)
    tables = {name: table(drawn(3, 200)) for name in ("oslo", "bergen")}
    engine = Watched()
    promise = private(unit="site", noise=noise, mechanism=law)
    run = tacit.fit(task, Federation(tables), privacy=promise, engine=engine, out=tmp_path)
    (release,) = charged(tmp_path)
    sent = engine.seen[0].matrix
    if noise == "site":
        assert not accused(sent, law, release["scale"])
        assert accused(sent, law, 1.06 * release["scale"])
        np.testing.assert_allclose(run.state, sent.mean(axis=0), atol=1e-12)
    else:
        assert float(np.abs(sent).max()) == 0
        assert release["scale"] == pytest.approx(0.8 * 0.5 / 2)
        assert not accused(run.state, law, release["scale"])
        assert accused(run.state, law, 1.06 * release["scale"])


# The loop


@pytest.mark.parametrize("promise", [private(), private(unit="site"), private(unit="site", noise="server")])
def test_a_round_is_paid_for_before_it_is_trained(tmp_path, promise):
    paid: list[list[str]] = []
    engine = Watched(before=lambda: paid.append([entry["purpose"] for entry in charged(tmp_path)]))
    task = Supervised(module=NETWORKS["linear"], loss="squared", steps=1, sample=0.5)
    federation = Federation({"oslo": table(drawn(5, 3)), "bergen": table(drawn(4, 3))}, records=9)
    tacit.fit(task, federation, privacy=promise, engine=engine, rounds=3, out=tmp_path)
    each = 2 if promise.unit == "record" else 1
    rounds = [f"round {number}" for number in (1, 2, 3) for _ in range(each)]
    assert paid == [rounds[: each * number] for number in (1, 2, 3)]


def test_only_those_who_take_part_are_charged(tmp_path):
    task = Supervised(module=NETWORKS["linear"], loss="squared", steps=1, sample=0.5)
    tables = {f"site-{number}": table(drawn(4, 3, number)) for number in range(6)}
    engine = Watched()
    promise = private(participation=0.5)
    tacit.fit(task, Federation(tables, records=24), privacy=promise, engine=engine, rounds=4, out=tmp_path)
    came = [(f"round {number}", name) for number, seen in enumerate(engine.seen, 1) for name in seen.names]
    assert [(entry["purpose"], entry["party"]) for entry in charged(tmp_path)] == came
    assert 0 < len(came) < 24


def test_a_budget_that_does_not_suffice_stops_everything_before_it_begins(tmp_path):
    with Ledger(tmp_path / "ledger.db") as ledger:
        ledger.charge([Release(scale=0.5, sensitivity=1.0, subject="records@oslo")])
        head = ledger.head
    engine = Watched()
    task = Supervised(module=NETWORKS["linear"], loss="squared", steps=2, sample=0.5)
    federation = Federation({"oslo": table(drawn(5, 3)), "bergen": table(drawn(4, 3))}, records=9)
    promise = private(noise_multiplier=None, epsilon=2.0)
    with pytest.raises(BudgetExhausted, match="records@oslo"):
        tacit.fit(task, federation, privacy=promise, engine=engine, rounds=3, out=tmp_path)
    with Ledger(tmp_path / "ledger.db", mode="read") as ledger:
        assert [entry["kind"] for entry in ledger.entries()] == ["opened", "release", "budget"]
        assert ledger.entries()[1]["hash"] == head
    assert engine.seen == []
    assert not (tmp_path / "state.safetensors").exists()


def test_a_round_that_is_refused_leaves_ledger_and_state_unchanged(tmp_path):
    engine = Watched()
    task = Supervised(module=NETWORKS["linear"], loss="squared", steps=2, sample=0.5)
    federation = Federation({"oslo": table(drawn(5, 3)), "bergen": table(drawn(4, 3))}, records=9)
    promise = private(noise_multiplier=None, epsilon=2.0)
    kept: dict[str, Any] = {}

    def somebody_else_spends(entry) -> None:
        with Ledger(tmp_path / "ledger.db") as ledger:
            ledger.allow(epsilon=50.0, delta=DELTA)
            ledger.charge([Release(scale=0.4, sensitivity=1.0, subject="records@bergen")])
            ledger.allow(epsilon=2.0, delta=DELTA)
        kept["state"] = (tmp_path / "state.safetensors").read_bytes()
        kept["entries"] = charged(tmp_path)

    with pytest.raises(BudgetExhausted, match="records@bergen"):
        tacit.fit(
            task,
            federation,
            privacy=promise,
            engine=engine,
            rounds=3,
            out=tmp_path,
            callbacks=[somebody_else_spends],
        )
    assert charged(tmp_path) == kept["entries"]
    assert (tmp_path / "state.safetensors").read_bytes() == kept["state"]
    assert len(engine.seen) == 1


@pytest.mark.parametrize("seed", range(4))
def test_under_noise_at_the_server_the_denominator_is_the_expected_number_of_sites(tmp_path, seed):
    names = [f"site-{number}" for number in range(8)]
    engine = Watched()
    task = Supervised(module=zeros(nn.Linear(3, 1, bias=False)), loss=itself, steps=1, sample=1.0, lr=1.0)
    promise = private(unit="site", noise="server", participation=0.4, noise_multiplier=0.01, clip=0.2)
    federation = Federation({name: table(1 + drawn(4, 3, number) ** 2) for number, name in enumerate(names)})
    run = tacit.fit(task, federation, privacy=promise, engine=engine, seed=seed, out=tmp_path)
    (release,) = charged(tmp_path)
    came = engine.seen[0].names
    clipped = [clip_rows(-federation[name].table.features.mean(axis=0), 0.2) for name in came]
    expected = np.stack(clipped).sum(axis=0) / (0.4 * 8)
    assert release["sensitivity"] == pytest.approx(0.2 / (0.4 * 8))
    assert float(np.abs(run.state - expected).max()) < 6 * release["scale"]
    # All of them pull the same way, so that the number of those who came would show.
    assert len(came) > 0
    assert float(np.abs(run.state - np.stack(clipped).mean(axis=0)).max()) > 6 * release["scale"]


def test_how_many_sites_came_is_told_only_where_no_price_counts_on_it(tmp_path):
    task = Supervised(module=NETWORKS["linear"], loss="squared", steps=1, sample=0.5)
    tables = {f"site-{number}": table(drawn(4, 3)) for number in range(6)}
    told = {}
    for name, promise in {
        "open": Open(participation=0.5),
        "site": private(unit="site", participation=0.5),
        "server": private(unit="site", noise="server", participation=0.5),
    }.items():
        run = tacit.fit(task, Federation(tables), privacy=promise, rounds=3, out=tmp_path / name)
        told[name] = [entry.sites for entry in run.record.rounds]
        assert ('"sites":null' in (tmp_path / name / "rounds.jsonl").read_text()) == (name == "server")
    assert told["server"] == [None, None, None]
    # The same seed draws the same sites, whoever may know.
    assert told["open"] == told["site"]
    assert all(isinstance(count, int) for count in told["open"])


def test_a_round_to_which_nobody_came_is_noise_and_is_paid_for(tmp_path):
    engine = Watched()
    task = Supervised(module=zeros(nn.Linear(200, 200)), loss="squared", steps=1, sample=0.5)
    promise = private(unit="site", noise="server", participation=1e-6)
    federation = Federation({"oslo": table(drawn(3, 200)), "bergen": table(drawn(4, 200))})
    run = tacit.fit(task, federation, privacy=promise, engine=engine, out=tmp_path)
    (release,) = charged(tmp_path)
    assert engine.seen[0].names == ()
    assert not accused(run.state, "gaussian", release["scale"])
    assert accused(run.state, "gaussian", 1.2 * release["scale"])


# The number of records


def test_the_number_of_records_is_bought_before_it_is_used(tmp_path):
    paid: list[list[str]] = []
    engine = Watched(before=lambda: paid.append([entry["purpose"] for entry in charged(tmp_path)]))
    task = Supervised(module=NETWORKS["linear"], loss="squared", steps=1, sample=0.5)
    federation = Federation({"oslo": table(drawn(40, 3)), "bergen": table(drawn(60, 3, 1))})
    run = tacit.fit(
        task, federation, privacy=private(noise_multiplier=None, epsilon=1.0), engine=engine, out=tmp_path
    )
    counted = ["number of records", "number of records"]
    assert paid == [counted, [*counted, "round 1", "round 1"]]
    count, *_ = charged(tmp_path)
    assert (count["law"], count["sensitivity"], count["rate"], count["count"]) == ("laplace", 1.0, 1.0, 1)
    assert count["scale"] == pytest.approx(1 / 0.02)
    assert count["subject"] == "records@oslo"
    assert run.privacy.epsilon is not None
    assert run.privacy.epsilon <= 1.0
    assert any("scale 50" in sentence for sentence in run.privacy.released)


@pytest.mark.parametrize("known", ["records", "batch"])
def test_a_number_that_is_public_is_not_bought(tmp_path, known):
    batch = 4 if known == "batch" else None
    task = Supervised(module=NETWORKS["linear"], loss="squared", steps=1, sample=0.5, batch=batch)
    federation = Federation({"oslo": table(drawn(40, 3))}, records=40 if known == "records" else None)
    tacit.fit(task, federation, privacy=private(), out=tmp_path)
    assert [entry["purpose"] for entry in charged(tmp_path)] == ["round 1"]


@pytest.mark.parametrize("law", LAWS)
def test_the_noisy_number_of_records_has_the_charged_law_and_scale(law):
    task = Supervised(module=NETWORKS["linear"], loss="squared", steps=1, sample=0.5)
    mechanism = private(mechanism=law, noise_multiplier=3000.0).solve(task, ["oslo"], Mean(), 1)
    assert isinstance(mechanism, RecordLevel)
    (release,) = mechanism.count_releases(["oslo"])
    assert (release.law, release.scale, release.sensitivity) == (law, 3000.0, 1.0)
    counts = [round(mechanism.noisy_count(10**6, Key(seed, rehearsal=True) / "oslo")) for seed in range(5000)]
    draws = np.array(counts, dtype=np.float64) - 10**6
    assert not accused(draws, law, release.scale)
    assert accused(draws, law, 1.35 * release.scale)


# Noise that nobody can recompute


def secret(**fields: Any) -> Privacy:
    return private(**{"rehearsal": False, **fields})


@pytest.mark.parametrize("promise", [secret(), secret(unit="site"), secret(unit="site", noise="server")])
def test_a_private_run_cannot_be_repeated_from_its_seed(promise):
    task = Supervised(module=zeros(nn.Linear(40, 40)), loss=nothing, steps=1, sample=0.5)
    tables = {"oslo": table(drawn(5, 40)), "bergen": table(drawn(6, 40))}
    states = [
        tacit.fit(task, Federation(tables, records=11), privacy=promise, seed=7).state for _ in range(2)
    ]
    correlation = float(np.corrcoef(states[0], states[1])[0, 1])
    assert abs(correlation) < stats.norm.isf(FALSE_ALARM / 2) / math.sqrt(1640)


@pytest.mark.parametrize("promise", [secret(), secret(unit="site")])
def test_a_private_run_never_uses_the_same_noise_twice(promise):
    # Every site and round adds noise to the same values: zeros.
    task = Supervised(module=zeros(nn.Linear(40, 40)), loss=nothing, steps=1, sample=0.5)
    tables = {name: table(drawn(5, 40)) for name in ("oslo", "bergen", "tromso")}
    engine = Watched()
    tacit.fit(task, Federation(tables, records=15), privacy=promise, engine=engine, rounds=3)
    rows = np.concatenate([updates.matrix for updates in engine.seen])
    correlations = np.corrcoef(rows)[np.triu_indices(9, 1)]
    assert float(np.abs(correlations).max()) < stats.norm.isf(FALSE_ALARM / 2 / 36) / math.sqrt(1640)


def test_a_private_run_draws_other_records_every_time():
    task = Supervised(
        module=zeros(nn.Linear(100, 1, bias=False)), loss=itself, steps=1, sample=0.5, lr=1.0, batch=1
    )
    joined = []
    for _ in range(2):
        engine = Watched()
        promise = secret(noise_multiplier=0.005, clip=1.0)
        tacit.fit(task, Federation({"oslo": table(np.eye(100))}), privacy=promise, engine=engine, seed=7)
        joined.append(np.round(-engine.seen[0].matrix[0]))
    # Two independent draws of a hundred agree in about fifty places.
    agree = int((joined[0] == joined[1]).sum())
    assert stats.binomtest(agree, 100, 0.5).pvalue > FALSE_ALARM


def test_what_comes_from_the_seed_is_public_and_repeats():
    task = Supervised(module=zeros(nn.Linear(3, 1)), loss="squared", steps=1, sample=0.5)
    tables = {"oslo": table(drawn(5, 3)), "bergen": table(drawn(6, 3))}
    runs = [tacit.fit(task, Federation(tables, records=11), privacy=private(), seed=7) for _ in range(2)]
    assert np.array_equal(runs[0].state, runs[1].state)
    assert runs[0].privacy.rehearsal
    other = tacit.fit(task, Federation(tables, records=11), privacy=secret(), seed=7)
    assert not other.privacy.rehearsal
