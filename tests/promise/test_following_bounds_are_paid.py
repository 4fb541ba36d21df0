"""Bounds that follow the updates cost nothing beyond the one release that they are part of."""

import numpy as np
import pytest
import torch

import tacit
from tacit.errors import InvalidValue, Refused
from tacit.learning.supervised import Supervised
from tacit.privacy.accounting import calibrate
from tacit.privacy.mechanisms.adaptive_clipping import AdaptiveClipping
from tacit.sites.table import from_arrays


def federation(sites=12, records=40):
    chance = np.random.default_rng(3)
    tables = {}
    for site in range(sites):
        x = chance.normal(size=(records, 3))
        tables[f"site-{site}"] = from_arrays(x, y=x @ [1.0, -2.0, 0.5] + 0.1 * chance.normal(size=records))
    return tacit.Federation(tables, public=True)


def task():
    torch.manual_seed(0)
    return Supervised(module=torch.nn.Linear(3, 1), loss="squared", steps=5, sample=0.5, lr=0.05)


def promise(**choices):
    told = {
        "unit": "site", "epsilon": 5.0, "delta": 1e-3, "clip": 0.1, "clip_quantile": 0.5, "noise": "server",
        "participation": 0.5, "rehearsal": True,
    }  # fmt: skip
    return tacit.Privacy(**{**told, **choices})


def test_one_release_a_round_has_a_bound_of_one_and_the_noise_of_the_plain_promise(tmp_path):
    run = tacit.fit(task(), federation(), privacy=promise(), rounds=4, out=tmp_path / "run")
    with tacit.Ledger(tmp_path / "run" / "ledger.db", mode="read") as ledger:
        releases = ledger.releases()
    assert sum(release.count for release in releases) == 4
    reach = 1.0 / (0.5 * 12)
    for release in releases:
        assert release.sensitivity == pytest.approx(reach)
        assert release.rate == 0.5
        needed = calibrate(epsilon=5.0, delta=1e-3, steps=4, rate=0.5)
        assert release.scale == pytest.approx(needed * reach, rel=1e-6)
    assert run.privacy.epsilon <= 5.0


def test_the_server_sees_the_update_times_a_public_factor_and_the_counts_under_one_noise():
    # The same vector without noise, as sites send it: nothing else leaves a site.
    made = federation()
    sent = {}

    class Watching(tacit.engines.base.Local):
        def train(self, task, federation, state, names, mechanism, key):
            updates = super().train(task, federation, state, names, mechanism, key)
            sent[key.path] = updates.matrix
            return updates

    tacit.fit(task(), made, privacy=promise(), rounds=3, engine=Watching())
    assert len(sent) == 3
    for matrix in sent.values():
        # Four weights and one count.
        assert matrix.shape[1] == 5
        assert float(np.linalg.norm(matrix, axis=1).max()) <= 1 + 1e-12


def test_bounds_follow_the_updates_and_survive_an_interruption(tmp_path):
    made = federation()
    whole = tacit.fit(task(), made, privacy=promise(), rounds=6, out=tmp_path / "whole")

    class Enough(Exception):
        pass

    def after_three(entry):
        if entry.number == 3:
            raise Enough

    with pytest.raises(Enough):
        tacit.fit(task(), made, privacy=promise(), rounds=6, out=tmp_path / "cut", callbacks=[after_three])
    resumed = tacit.fit(task(), made, privacy=promise(), rounds=6, out=tmp_path / "cut", resume=True)
    assert np.array_equal(whole.state, resumed.state)
    from tacit.runs.directory import Directory

    bounds = [Directory(tmp_path / name).checkpoint().kept["bounds"] for name in ("whole", "cut")]
    assert np.array_equal(*bounds)
    assert float(bounds[0][0]) != 0.1


@pytest.mark.parametrize("noise", ["site", "secure"])
def test_other_places_for_the_noise_work_alike(noise):
    run = tacit.fit(
        task(), federation(), privacy=promise(noise=noise, participation=1.0, epsilon=50.0), rounds=2
    )
    assert 0 < run.privacy.epsilon <= 50


def test_laplace_noise_is_sized_in_the_other_norm():
    run = tacit.fit(
        task(), federation(), privacy=promise(mechanism="laplace", delta=0.0, participation=1.0), rounds=2
    )
    assert run.privacy.epsilon == pytest.approx(5.0, rel=1e-3)


def test_single_records_and_rules_that_compare_updates_are_refused():
    with pytest.raises(InvalidValue, match="clip_quantile"):
        promise(unit="record", noise="site")
    with pytest.raises(Refused, match="clip_quantile does not go with"):
        tacit.fit(
            task(), federation(), rounds=1,
            privacy=promise(noise="site", participation=1.0), aggregation=tacit.aggregation.GeometricMedian(),
        )  # fmt: skip
    with pytest.raises(Refused, match=r"\[clusters\] does not go with clip_quantile"):
        tacit.fit(
            task(), federation(), rounds=1, privacy=promise(noise="site", participation=1.0),
            clusters=tacit.aggregation.defence.clustering.Clusters(count=2, by="direction"),
        )  # fmt: skip


def test_the_first_bound_and_the_quantile_do_not_change_the_price():
    made = [
        promise(clip=clip, clip_quantile=quantile).solve(
            task(), list(federation()), tacit.aggregation.Mean(), 10
        )
        for clip, quantile in ((0.1, 0.5), (7.0, 0.9))
    ]
    assert made[0].release(1, ["a"]) == made[1].release(1, ["a"])


def test_a_round_to_which_nobody_comes_is_noise_alone_and_the_run_goes_on():
    run = tacit.fit(task(), federation(sites=3), privacy=promise(participation=0.2), rounds=12)
    assert len(run.record.rounds) == 12
    assert np.isfinite(run.state).all()


def test_the_statement_says_that_counts_leave_too():
    run = tacit.fit(task(), federation(), privacy=promise(), rounds=1)
    assert any("shorter than their clip bounds" in line for line in run.privacy.released)


def test_bounds_neither_vanish_nor_overflow_over_thousands_of_rounds():
    packing = AdaptiveClipping(blocks=(2,), quantile=0.5, start=0.1)
    bounds = packing.initial()
    for sent in (1.0, -1.0):
        for _ in range(4000):
            _, bounds = packing.decode(np.array([0.0, 0.0, sent], dtype=np.float64), bounds)
        assert 1e-8 < float(bounds[0]) < 1e6
