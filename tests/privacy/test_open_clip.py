"""Open runs with a clip bound: clipped as under a promise, not noised, and nothing is promised."""

from dataclasses import replace

import numpy as np
import pytest

from tacit import Open, Privacy, fit
from tacit.errors import InvalidValue, Refused
from tacit.privacy.mechanisms.base import ClippedOnly
from tacit.runtime.keys import Key
from tacit.sites.splits import SPLITS
from tacit.survival import CoxPH, NewtonPH, PoissonPH
from tacit.survival.data.sources import Simulated

TASK = PoissonPH(hidden=(), cuts=3, horizon=3.0, steps=3, sample=1.0, lr=0.5)


@pytest.fixture(scope="module")
def patients():
    return Simulated(records=90, features=2).open(SPLITS["iid"](count=3), 0)


@pytest.mark.parametrize(("norm", "length"), [("l2", 5.0), ("l1", 7.0)])
def test_contributions_are_clipped_where_asked_and_there_alone(norm, length):
    rows, key = np.array([[3.0, 4.0], [0.1, 0.0]]), Key(0)
    short = np.array([3.0, 4.0]) / length
    records = ClippedOnly(clip=1.0, norm=norm, unit="record")
    np.testing.assert_allclose(records.noisy_sum(rows, key), short + np.array([0.1, 0.0]))
    np.testing.assert_array_equal(records.at_sites(rows, [key, key]), rows)
    sites = ClippedOnly(clip=1.0, norm=norm, unit="site")
    np.testing.assert_allclose(sites.at_sites(rows, [key, key]), [short, [0.1, 0.0]])
    np.testing.assert_array_equal(sites.noisy_sum(rows, key), rows.sum(axis=0))
    assert records.release(1, ["a"]) == sites.release(1, ["a"]) == ()


@pytest.mark.parametrize("unit", ["record", "site"])
@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
def test_a_promise_without_noise_is_what_much_epsilon_comes_near_to(unit, mechanism, patients):
    delta = 1e-5 if mechanism == "gaussian" else 0.0
    promise = Privacy(unit=unit, epsilon=1e5, delta=delta, clip=0.01, mechanism=mechanism, rehearsal=True)
    private, clipped, plain = (
        fit(TASK, patients, privacy=privacy, rounds=2).state
        for privacy in (promise, promise.without_noise(), Open())
    )
    missed = np.linalg.norm(private - clipped)
    assert missed < 0.1 * np.linalg.norm(plain - clipped)


def test_bounds_that_follow_a_quantile_do_so_without_noise(patients):
    promise = Privacy(unit="site", epsilon=8.0, delta=1e-5, clip=1e-3, clip_quantile=0.5, rehearsal=True)
    opened = promise.without_noise()
    assert opened == Open(clip=1e-3, clip_quantile=0.5, clipped="site")
    run = fit(TASK, patients, privacy=opened, rounds=3)
    assert run.privacy.epsilon is None
    fixed = fit(TASK, patients, privacy=replace(opened, clip_quantile=None), rounds=3)
    assert not np.array_equal(run.state, fixed.state)


def test_what_cannot_be_clipped_is_refused_and_the_way_out_works(patients):
    with pytest.raises(Refused, match="leave it out"):
        fit(NewtonPH(horizon=3.0), patients, privacy=Open(clip=1.0))
    task = CoxPH(cuts=3, horizon=3.0)
    with pytest.raises(Refused, match='clipped = "site"'):
        fit(task, patients, privacy=Open(clip=1.0), rounds=1)
    fit(task, patients, privacy=Open(clip=1.0, clipped="site"), rounds=1)


@pytest.mark.parametrize(
    "options",
    [{"clip": 0.0}, {"clip_quantile": 0.5}, {"clip": 1.0, "clip_quantile": 0.5}, {"clipped": "person"}],
)
def test_bad_options_are_refused(options):
    with pytest.raises(InvalidValue):
        Open(**options)
