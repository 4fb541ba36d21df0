from dataclasses import replace

import pytest

from tacit.aggregation.mean import Mean
from tacit.control import PPO
from tacit.privacy.plan import PlannedPrice, SignalToNoise, plan
from tacit.privacy.policy import Privacy
from tacit.runs.setup import prepare
from tacit.runs.spec import PublicFacts, RunSpec


def planned(sites, rounds, **promise):
    task = PPO(hidden=(16, 16)).with_spaces(8, 4)
    names = [f"site-{number}" for number in range(sites)]
    spec = RunSpec(task=task, privacy=Privacy(unit="site", **promise), rounds=rounds)
    return prepare(spec, PublicFacts(names=tuple(names))).plan()


def test_a_thousand_sites_are_heard_and_thirty_three_drown():
    heard = planned(1000, 100, noise_multiplier=1.0, delta=1e-5, clip=0.1, noise="server", participation=0.1)
    # 917 numbers, 100 sites: an update of 1 against noise of sqrt(917) / 100.
    assert heard.signal is not None
    assert heard.signal.update / heard.signal.noise == pytest.approx(100 / 917**0.5, rel=1e-6)
    assert not heard.signal.drowned
    drowned = planned(33, 100, noise_multiplier=2.0, delta=1e-2, clip=0.1, noise="server", participation=0.5)
    assert any("noise will hide the signal" in warning for warning in drowned.warnings)


def test_the_reference_s_own_laplace_setting_drowns_and_its_epsilon_is_said():
    found = planned(33, 2, noise_multiplier=1 / 30, delta=0.0, clip=15.0, mechanism="laplace")
    assert found.statement.epsilon == pytest.approx(2 * 2 * 30)
    assert found.signal is not None
    assert found.signal.whole < 0.3
    assert found.as_dict()["signal"]["whole"] == found.signal.whole


def test_a_signal_of_exactly_what_was_seen_to_learn_does_not_drown():
    heard = SignalToNoise(update=1.0, noise=2.0, sites=10.0, numbers=7, rounds=100)
    assert heard.whole == 5.0
    assert not heard.drowned
    assert replace(heard, noise=2.0001).drowned


def test_the_bound_cancels_out_unless_it_is_one_that_follows():
    lengths = [
        planned(100, 10, noise_multiplier=1.0, delta=1e-3, clip=clip, noise="server").signal.whole
        for clip in (0.01, 10.0)
    ]
    assert lengths[0] == pytest.approx(lengths[1])


def test_several_models_share_the_sites_and_one_has_them_all():
    task, names = PPO(hidden=(16, 16)).with_spaces(8, 4), [f"site-{number}" for number in range(100)]
    promise = Privacy(unit="site", noise_multiplier=1.0, delta=1e-3, clip=1.0, noise="server")
    mechanism = promise.solve(task, names, Mean(), 10)
    price = PlannedPrice((), (mechanism.release(1, names),), 10)
    alone, shared = (
        plan(promise, task, mechanism, price, sites=100, models=models).signal for models in (1, 2)
    )
    assert plan(promise, task, mechanism, price, sites=100).signal == alone != shared
