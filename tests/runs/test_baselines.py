"""Each site alone and everybody pooled: the same work without exchange, and never where it tells tales."""

import numpy as np
import pytest
import torch
from torch import nn

import tacit
from tacit import Federation, Key, Open, Privacy, Supervised
from tacit.errors import Refused
from tacit.privacy.policy import Provenance
from tacit.runs.fit import train_baselines
from tacit.sites.table import Table, from_arrays

ROUNDS, LR, STEPS = 3, 0.1, 4
PRIVATE = Privacy(unit="record", delta=1e-5, clip=1.0, noise_multiplier=1.0)
LOOKED = "the scores of models trained alone and on pooled records"


def table(size: int, seed: int, slope: float = 1.0) -> Table:
    draw = np.random.default_rng(seed)
    x = draw.normal(size=(size, 2))
    return from_arrays(x, y=slope * x[:, 0] + 0.1 * draw.normal(size=size))


def federation(*, held_out: bool = True, **fields) -> Federation:
    # Two sites that have seen different worlds.
    tables = {"oslo": table(12, 0, 1.0), "bergen": table(30, 1, -1.0)}
    return Federation(tables, held_out=table(40, 2) if held_out else None, **fields)


def network() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(3)
        return nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1)).double()


def task(**work) -> Supervised:
    return Supervised(module=network(), loss="squared", **{"steps": STEPS, "sample": 1.0, "lr": LR, **work})


def compared(
    given: Supervised, whole: Federation, rounds: int = ROUNDS, provenance: Provenance | None = None
):
    allowed = provenance or Provenance(Open(), public=False)
    found = train_baselines(given, whole, rounds, whole.held_out, allowed, Key(5, rehearsal=True))
    return {name: score(whole.held_out) for name, score in found.items()}


def by_torch(parts: list[Table], steps: int) -> nn.Module:
    """As many plain steps on the mean loss of these records."""
    module = network()
    x = torch.from_numpy(np.concatenate([part.features for part in parts]))
    y = torch.from_numpy(np.concatenate([part.targets["y"] for part in parts]))
    taken = torch.optim.SGD(module.parameters(), lr=LR)
    for _ in range(steps):
        taken.zero_grad()
        ((module(x)[:, 0] - y) ** 2 / 2).mean().backward()
        taken.step()
    return module


def loss_of(module: nn.Module) -> float:
    test = table(40, 2)
    with torch.no_grad():
        outputs = module(torch.from_numpy(test.features))[:, 0].numpy()
    return float(((outputs - test.targets["y"]) ** 2 / 2).mean())


# What they are


def test_alone_is_the_mean_score_of_models_that_never_met():
    whole = federation()
    scores = [loss_of(by_torch([site.table], ROUNDS * STEPS)) for site in whole.values()]
    assert compared(task(), whole)["alone"]["loss"] == pytest.approx(float(np.mean(scores)), rel=1e-9)
    # They are different models, so that a mean of scores is not the score of a mean.
    assert abs(scores[0] - scores[1]) > 0.1


def test_pooled_is_the_score_of_a_model_of_all_records():
    whole = federation()
    expected = loss_of(by_torch([site.table for site in whole.values()], ROUNDS * STEPS))
    assert compared(task(), whole)["pooled"]["loss"] == pytest.approx(expected, rel=1e-9)


def test_a_known_number_of_records_does_not_slow_a_site_that_works_alone():
    one, other = (compared(task(), federation(records=records)) for records in (None, 4200))
    assert one == other


def test_a_single_site_alone_is_everybody_pooled():
    only = Federation({"oslo": table(12, 0)}, held_out=table(40, 2))
    found = compared(task(), only)
    assert found["alone"] == found["pooled"]


def test_more_rounds_are_more_work():
    losses = [compared(task(), federation(), rounds)["pooled"]["loss"] for rounds in (1, 10)]
    start = task()
    before = start.score(start.start(federation(), Key(0)), table(40, 2))["loss"]
    assert losses[1] != pytest.approx(losses[0], rel=1e-3)
    assert losses[0] != pytest.approx(before, rel=1e-3)


@pytest.mark.parametrize("work", [{"sample": 0.3}, {"epochs": 2, "batch": 5}], ids=["steps", "epochs"])
def test_baselines_repeat_with_the_key(work):
    first, second = (compared(task(**work), federation()) for _ in range(2))
    assert first == second
    test, allowed = table(40, 2), Provenance(Open(), public=False)
    others = train_baselines(task(**work), federation(), ROUNDS, test, allowed, Key(6, rehearsal=True))
    assert {name: score(test) for name, score in others.items()} != first


def test_they_do_the_local_work_of_the_task():
    plain = compared(task(), federation())
    for changed in ({"lr": 0.01}, {"optimizer": "adam"}, {"steps": 1}):
        assert compared(task(**changed), federation()) != plain


# When they may be known


def test_without_records_to_score_on_nothing_is_trained_or_noted():
    provenance = Provenance(PRIVATE, public=False)
    assert compared(task(), federation(held_out=False), provenance=provenance) == {}
    assert provenance.bare == []


def test_a_private_run_may_not_know_them():
    with pytest.raises(Refused, match="would leave the sites unprotected"):
        compared(task(), federation(), provenance=Provenance(PRIVATE, public=False))


def test_an_open_run_says_that_it_looked():
    provenance = Provenance(Open(), public=False)
    compared(task(), federation(), provenance=provenance)
    assert provenance.bare == [LOOKED]


def test_public_records_are_nobodys_secret():
    provenance = Provenance(PRIVATE, public=True)
    assert set(compared(task(), federation(), provenance=provenance)) == {"alone", "pooled"}
    assert provenance.bare == []


@pytest.mark.parametrize(
    "promise", [PRIVATE, Privacy(unit="site", delta=1e-5, clip=1.0, noise_multiplier=1.0)]
)
def test_a_private_run_leaves_them_out_and_its_statement_has_nothing_bare(promise):
    whole = federation(records=42, held_out_public=True)
    run = tacit.fit(task(sample=0.5), whole, privacy=promise, baselines=True)
    assert run.baselines == {}
    assert run.privacy.bare == ()


def test_an_open_run_has_them_and_its_statement_says_so():
    run = tacit.fit(task(), federation(), baselines=True, rounds=ROUNDS)
    assert set(run.baselines) == {"alone", "pooled"}
    assert LOOKED in run.privacy.bare


def test_a_rehearsal_has_them_and_its_statement_says_so():
    promise = Privacy(unit="record", delta=1e-5, clip=1.0, noise_multiplier=1.0, rehearsal=True)
    run = tacit.fit(task(sample=0.5), federation(records=42), privacy=promise, baselines=True)
    assert set(run.baselines) == {"alone", "pooled"}
    assert LOOKED in run.privacy.bare
    assert run.privacy.rehearsal


def test_they_cost_the_ledger_nothing_and_change_nothing_of_the_run(tmp_path):
    promise = Privacy(unit="record", delta=1e-5, clip=1.0, noise_multiplier=1.0, rehearsal=True)
    runs = [
        tacit.fit(
            task(sample=0.5),
            federation(records=42),
            privacy=promise,
            baselines=given,
            out=tmp_path / str(given),
        )
        for given in (True, False)
    ]
    assert np.array_equal(runs[0].state, runs[1].state)
    assert runs[0].privacy.epsilon == runs[1].privacy.epsilon
    assert runs[0].scores == runs[1].scores
    assert runs[1].baselines == {}


def test_a_run_that_asks_for_none_has_none():
    assert tacit.fit(task(), federation()).baselines == {}
