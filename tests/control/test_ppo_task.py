"""PPO as a task of the one loop: alone, federated, private, clustered."""

import numpy as np
import pytest

import tacit
from tacit.aggregation.defence.clustering import Clusters
from tacit.aggregation.server import Adam, Momentum
from tacit.control import PPO
from tacit.control.history import History
from tacit.errors import InvalidValue, Refused
from tacit.sites.environments import EnvFederation, World

SMALL = {"hidden": (8,), "envs": 2, "steps": 128, "epochs": 2, "lr": 1e-3}


def carts(count=3, **choices):
    return EnvFederation.of("CartPole-v1", copies=count, episodes=2, **choices)


def private(**choices):
    told = {"unit": "site", "noise_multiplier": 1.0, "delta": 1e-3, "clip": 0.1, "rehearsal": True}
    return tacit.Privacy(**{**told, **choices})


def test_it_learns_to_balance_together():
    task = PPO(hidden=(32, 32), envs=4, steps=2048, lr=1e-3)
    run = tacit.fit(task, carts(), rounds=6, seed=1)
    history = run.history["return"]
    assert history.iloc[-1] > 150
    assert run.scores["return"] > 150
    assert run.scores["iqm_low"] <= run.scores["iqm"] <= run.scores["iqm_high"]


def test_the_same_seed_gives_the_same_bits_and_another_does_not():
    runs = [tacit.fit(PPO(**SMALL), carts(), rounds=2, seed=seed) for seed in (5, 5, 6)]
    assert np.array_equal(runs[0].state, runs[1].state)
    assert not np.array_equal(runs[0].state, runs[2].state)


def test_a_run_that_was_cut_off_goes_on_to_the_same_bits(tmp_path):
    class Enough(Exception):
        pass

    def stop(entry):
        if entry.number == 2:
            raise Enough

    choices = {"rounds": 4, "seed": 2, "privacy": private(noise="server", participation=0.7)}
    whole = tacit.fit(PPO(**SMALL), carts(), **choices, out=tmp_path / "whole")
    with pytest.raises(Enough):
        tacit.fit(PPO(**SMALL), carts(), **choices, out=tmp_path / "cut", callbacks=[stop])
    resumed = tacit.fit(PPO(**SMALL), carts(), **choices, out=tmp_path / "cut", resume=True)
    assert np.array_equal(whole.state, resumed.state)
    assert resumed.privacy.epsilon == whole.privacy.epsilon
    assert np.array_equal(tacit.load(tmp_path / "cut").state, whole.state)


def test_steps_are_counted_exactly_and_kept_as_plain_arrays(tmp_path):
    task = PPO(**SMALL, snapshots=2)
    tacit.fit(task, carts(2), rounds=4, out=tmp_path / "run")
    kept = History.load(tmp_path / "run" / "history.npz")
    assert set(kept.labels) == {"site-1", "site-2"}
    for label in kept.labels:
        own = kept.ep_labels == label
        # What is not in an episode that ended is in the two that each round leaves open.
        assert kept.ep_lengths[own].sum() <= 4 * 128
        assert kept.ep_steps[own].max() <= 4 * 128
        assert (np.diff(kept.ep_steps[own]) >= 0).all()
        assert (kept.ep_rewards[own] == kept.ep_lengths[own]).all()
    assert sorted(set(kept.weight_labels.tolist())) == ["global", "site-1", "site-2"]
    assert kept.weight_rounds.tolist() == [2, 2, 2, 4, 4, 4]
    assert kept.weights.shape == (6, task.with_spaces(4, 2).width)


def test_nothing_is_told_of_episodes_where_who_took_part_is_a_secret_or_worlds_are_private(tmp_path):
    secret = private(noise="server", participation=0.5)
    run = tacit.fit(PPO(**SMALL, snapshots=1), carts(), privacy=secret, rounds=2, out=tmp_path / "secret")
    assert all(entry.diary == {} for entry in run.record.rounds)
    assert set(History.load(tmp_path / "secret" / "history.npz").weight_labels.tolist()) == {"global"}
    own = {f"site-{number}": World("CartPole-v1") for number in range(3)}
    run = tacit.fit(PPO(**SMALL), EnvFederation(own), privacy=private(rehearsal=False), rounds=2)
    assert all(entry.diary == {} for entry in run.record.rounds)
    assert run.scores == {}
    assert any("name of the environment" in line for line in run.privacy.public)


def test_each_site_alone_is_the_same_loop_with_a_model_for_each():
    run = tacit.fit(PPO(**SMALL), carts(), clusters=Clusters(by="site"), rounds=3, seed=3)
    assert len(run.models) == 3
    together = tacit.fit(PPO(**SMALL), carts(), rounds=3, seed=3, baselines=True)
    assert set(together.baselines) == {"alone", "pooled"}
    assert "return" in together.baselines["alone"]


def test_actors_can_be_shared_without_their_critics():
    full, half = (PPO(**SMALL, share=share).with_spaces(4, 2) for share in ("all", "actor"))
    assert half.width == full.shape.actor < full.width
    run = tacit.fit(PPO(**SMALL, share="actor"), carts(), rounds=2)
    assert run.state.shape == (half.width,)
    assert run.model.act(np.zeros(4)) in (0, 1)


@pytest.mark.parametrize("server", [Momentum(), Adam()])
def test_the_server_may_have_a_momentum_of_its_own(server):
    run = tacit.fit(PPO(**SMALL), carts(), rounds=2, server=server, privacy=tacit.Open(participation=0.7))
    assert np.isfinite(run.state).all()


@pytest.mark.parametrize(
    "promise",
    [
        {"noise": "site"},
        {"noise": "server", "participation": 0.5},
        {"noise": "secure"},
        {"noise": "server", "clip_quantile": 0.5},
        {"mechanism": "laplace", "delta": 0.0, "noise": "site"},
    ],
)
def test_every_place_of_the_noise_and_both_laws_have_a_true_price(promise):
    run = tacit.fit(PPO(**SMALL), carts(), rounds=2, privacy=private(**promise))
    assert run.privacy.unit == "site"
    assert 0 < run.privacy.epsilon < 200
    assert np.isfinite(run.state).all()


def test_single_records_cannot_be_promised_anything():
    with pytest.raises(Refused, match='Use unit = "site"'):
        tacit.fit(PPO(**SMALL), carts(), privacy=private(unit="record"), rounds=1)


def test_observations_are_scaled_by_what_sites_say_and_that_is_charged():
    task = PPO(**SMALL, normalise="sites", limit=4.0)
    open_run = tacit.fit(task, carts(), rounds=1)
    assert len(open_run.task.center) == len(open_run.task.scale) == 4
    assert all(0 < scale <= 4 for scale in open_run.task.scale)
    plain, asked = (
        tacit.fit(PPO(**SMALL, **also), carts(), rounds=2, privacy=private()).privacy.epsilon
        for also in ({}, {"normalise": "sites"})
    )
    assert asked > plain


def test_a_pace_that_falls_ends_near_nothing():
    task = PPO(**SMALL, anneal=True)
    assert [task.at_round(number, 4).lr for number in (1, 2, 4)] == pytest.approx([1e-3, 7.5e-4, 2.5e-4])
    assert PPO(**SMALL).at_round(3, 4).lr == 1e-3


def test_worlds_that_differ_in_kind_are_refused_by_site():
    mixed = EnvFederation({"a": World("CartPole-v1"), "b": World("Acrobot-v1")})
    with pytest.raises(InvalidValue, match="site b has 6 numbers in an observation and 3 actions, site a"):
        tacit.fit(PPO(**SMALL), mixed, rounds=1)


class _Broken:
    """A cart that shows NaN after some steps."""

    def __new__(cls, after=20):
        import gymnasium

        class Nan(gymnasium.Wrapper):
            steps = 0

            def step(self, action):
                seen, *rest = self.env.step(action)
                Nan.steps += 1
                return (seen * np.nan if Nan.steps > after else seen), *rest

        return Nan(gymnasium.make("CartPole-v1"))


def test_a_world_that_shows_no_number_is_named_with_its_site():
    federation = EnvFederation({"oslo": World("CartPole-v1"), "bergen": World(_Broken)})
    with pytest.raises(InvalidValue, match=r"site bergen.*_Broken.*not finite"):
        tacit.fit(PPO(**SMALL), federation, rounds=1)


def test_a_run_needs_worlds_and_worlds_need_an_agent():
    tables = tacit.Federation({"a": tacit.sites.table.from_arrays(np.zeros((3, 1)), y=np.zeros(3))})
    with pytest.raises(InvalidValue, match="ppo learns from sites that hold worlds"):
        tacit.fit(PPO(**SMALL), tables, rounds=1)


def test_models_are_picked_by_what_they_bring_in_at_home():
    run = tacit.fit(PPO(**SMALL), carts(4), clusters=Clusters(count=2, by="loss"), rounds=3)
    assert set(run.clusters.values()) <= {0, 1}


def test_a_plan_counts_what_is_asked_of_the_sites(tmp_path):
    from tacit.experiments.experiment import read

    (tmp_path / "e.toml").write_text(
        '[task]\nkind = "ppo"\nnormalise = "sites"\nhidden = [8]\nsteps = 64\nenvs = 2\nepochs = 1\n'
        '[privacy]\nunit = "site"\nnoise_multiplier = 2.0\ndelta = 1e-3\nclip = 0.1\nrehearsal = true\n'
    )
    experiment = read(tmp_path / "e.toml", ["rounds=2", "baselines=false"])
    assert experiment.run(None).privacy.epsilon == pytest.approx(experiment.plan().statement.epsilon)


def test_a_task_of_ones_own_cannot_tell_a_diary_of_private_worlds():
    from dataclasses import replace

    class Telling(PPO):
        def train(self, state, cohort, mechanism, key):
            found = super().train(state, cohort, mechanism, key)
            return replace(found, metrics={name: {"secret": [1.0]} for name in cohort.names})

    own = EnvFederation({f"site-{number}": World("CartPole-v1") for number in range(3)})
    run = tacit.fit(Telling(**SMALL), own, privacy=private(rehearsal=False), rounds=1)
    assert run.record.rounds[0].diary == {}
