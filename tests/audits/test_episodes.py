"""Episodes that an agent learned by heart are named from what its site sends, but not under a promise."""

import json
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from tacit import Key, Open, Worlds
from tacit.audits.episodes import ReplayVectorEnv, collect_episodes, episodes
from tacit.control.ppo import learn
from tacit.errors import InvalidValue, Refused
from tacit.experiments.experiment import construct_experiment
from tacit.privacy.policy import Provenance

# The package has a function of the same name.
audit = import_module("tacit.audits.episodes")

LANDER = {"kind": "gymnasium", "env": "LunarLander-v3", "world": "fast-lander"}
TASK = {"kind": "ppo", "hidden": [32, 32], "envs": 4, "steps": 512, "reward_scale": 0.01}
PROMISE = {"unit": "site", "epsilon": 1.0, "delta": 1e-5, "clip": 1.0, "rehearsal": True}


def experiment(data=LANDER, task=TASK, copies=2, **tables):
    sites = {"kind": "variants", "copies": copies}
    return construct_experiment({"data": data, "task": task, "sites": sites, **tables}, Path())


def opened(given):
    """The sites of an experiment, its task settled, its first policy."""
    federation = given.open_federation()
    task = given.task.bind(federation, Provenance(Open(), public=True))
    return federation, task, task.model(task.start(federation, Key(0)))


@pytest.fixture
def short(monkeypatch):
    """Fewer sites and steps than an audit has."""
    monkeypatch.setattr(audit, "SITES", 1)
    monkeypatch.setattr(audit, "TAKEN", 600)


@pytest.mark.slow
def test_the_open_model_gives_episodes_away_and_the_private_one_does_not(short):
    given = experiment(privacy=PROMISE)
    found = episodes(given, given.open_federation(), shadows=8)
    assert (found.unit, found.models, found.records) == ("episode", 9, 20)
    assert found.members == found.others == 90
    bare, kept = found.settings
    assert bare["attacks"]["lira"]["auc"] > 0.85
    assert bare["attacks"]["lira"]["named"] > 10
    assert bare["ceiling"] is None
    assert 0.35 < kept["attacks"]["lira"]["auc"] < 0.65
    assert kept["attacks"]["lira"]["low"] <= kept["ceiling"]["named"] < 5
    assert kept["epsilon"] == pytest.approx(1, abs=1e-3)
    assert bare["by"] == kept["by"] == "accuracy of the critic"
    told = json.loads(json.dumps(found.as_dict()))
    assert told["kind"] == "membership"
    assert told["sentence"].startswith("Of 100 training episodes an attacker would identify")


@pytest.mark.slow
def test_noise_too_small_to_hide_anybody_is_found_out(short):
    # The same attack on the same models: the noise is what protects, not something on the way.
    weak = {"unit": "site", "noise_multiplier": 1e-6, "delta": 1e-5, "clip": 100.0, "rehearsal": True}
    given = experiment(privacy=weak)
    bare, kept = episodes(given, given.open_federation(), shadows=4).settings
    assert kept["attacks"]["lira"]["auc"] == pytest.approx(bare["attacks"]["lira"]["auc"], abs=0.02)


@pytest.mark.parametrize("noise", ["server", "secure"])
def test_noise_that_others_add_is_noise_on_one_update(short, noise):
    wide = {**PROMISE, "noise": noise, "participation": 0.5 if noise == "server" else 1.0}
    given = experiment(privacy=wide, copies=4)
    # Nobody counts on a draw: the site is there for certain, and others tell what they sent.
    kept = episodes(given, given.open_federation(), shadows=2).settings[1]
    assert 0.3 < kept["attacks"]["lira"]["auc"] < 0.7
    # One site more or less is what was promised; another in its place is twice as far.
    assert kept["ceiling"]["named"] == 4
    assert kept["epsilon"] == pytest.approx(1, abs=1e-3)


def test_a_pool_holds_whole_episodes_as_they_were_played():
    federation, task, policy = opened(experiment())
    name = next(iter(federation))
    pool = collect_episodes(federation.holdings[name], policy, task, Key(1), name)
    ends = np.flatnonzero(pool.rollout.ended[:, 0])
    assert len(pool) == len(ends) == 20
    # Each step belongs to the episode that ends next.
    np.testing.assert_array_equal(pool.owner, np.searchsorted(ends, np.arange(len(pool.owner))))
    expected = policy.shape.values(policy.weights, pool.rollout.observations[:, 0])
    np.testing.assert_allclose(pool.rollout.values[:, 0], expected, atol=1e-4)


def test_a_part_of_a_pool_has_the_steps_of_its_episodes_alone():
    federation, task, policy = opened(experiment())
    name = next(iter(federation))
    pool = collect_episodes(federation.holdings[name], policy, task, Key(1), name)
    marks = np.arange(len(pool)) % 2 == 0
    part, other = pool.part(marks), pool.part(~marks)
    assert len(part.rewards) + len(other.rewards) == len(pool.owner)
    assert int(part.ended.sum()) == int(marks.sum())
    assert pool.means(pool.owner.astype(float)).tolist() == list(range(20))
    # An episode that was left out has no influence on what is learned.
    options = {"steps": len(part.rewards), "rollout": len(part.rewards)}
    one, again = (
        learn(
            policy.weights, policy.shape, ReplayVectorEnv(each), task, generator=Key(2).generator(), **options
        )[0]
        for each in (part, pool.part(marks))
    )
    np.testing.assert_array_equal(one, again)
    assert not np.allclose(one, policy.weights)


def test_it_repeats_by_its_seed(short):
    given = experiment(privacy=PROMISE)
    federation = given.open_federation()
    one, again, other = (episodes(given, federation, shadows=2, seed=seed) for seed in (1, 1, 2))
    assert one.as_dict() == again.as_dict()
    assert one.as_dict() != other.as_dict()


def test_a_site_that_shares_its_actor_alone_is_attacked_by_it(short):
    given = experiment(task={**TASK, "share": "actor"})
    (bare,) = episodes(given, given.open_federation(), shadows=4).settings
    assert bare["by"] == "increase in the probability of better actions"


def test_worlds_that_are_promised_protection_are_not_attacked():
    given = experiment(privacy={**PROMISE, "rehearsal": False})
    secret = Worlds.of("CartPole-v1", copies=2, public=False)
    with pytest.raises(Refused, match="single episodes would leave the sites unprotected"):
        episodes(given, secret)


def test_what_cannot_be_attacked_is_told_in_one_sentence(monkeypatch):
    given = experiment()
    federation = given.open_federation()
    with pytest.raises(InvalidValue, match="shadows = 1 "):
        episodes(given, federation, shadows=1)
    survival = construct_experiment({"task": {"kind": "poisson-ph"}}, Path())
    with pytest.raises(InvalidValue, match=r"\[task\] kind = 'poisson-ph'"):
        episodes(survival, federation)
    monkeypatch.setattr(audit, "MOST", 1)
    monkeypatch.setattr(audit, "STRETCH", 2)
    with pytest.raises(InvalidValue, match="ended 0 episodes in 8 steps: at least 8 are needed"):
        episodes(given, federation, shadows=2)
