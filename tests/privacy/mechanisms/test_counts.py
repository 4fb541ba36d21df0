"""Counts with discrete Laplace noise: what a record can move, what is charged, and what leaves a site."""

import math
from dataclasses import replace

import numpy as np
import pytest

from tacit import Privacy
from tacit.aggregation.mean import Mean
from tacit.errors import InvalidValue, Refused
from tacit.privacy.accounting import epsilon
from tacit.privacy.mechanisms.base import RecordLevel, Rows
from tacit.privacy.mechanisms.counts import CountLattice, NoisyCounts, SecureCounts
from tacit.privacy.mechanisms.discrete import discrete_laplace_variance
from tacit.privacy.mechanisms.lattice import HALF
from tacit.privacy.mechanisms.secure_sum import honest, threshold
from tacit.runtime.keys import Key
from tacit.survival.tasks import KaplanMeier, LogisticHazard

NAMES = [f"site-{number}" for number in range(5)]
REHEARSAL = Key(8, rehearsal=True)
PROMISE = Privacy(unit="record", mechanism="laplace", epsilon=1.0, delta=0.0, rehearsal=True)
SECURE = replace(PROMISE, noise="secure")


def blind(**fields) -> SecureCounts:
    usual = {"clip": 1.0, "multiplier": 1.0, "colluders": 1, "sites": 5, "rehearsal": True}
    return SecureCounts(**{**usual, **fields})


def at_site(**fields) -> NoisyCounts:
    return NoisyCounts(**{"cells": 1, "multiplier": 1.0, "rehearsal": True, **fields})


def table(mechanism, privacy=PROMISE):
    return KaplanMeier(horizon=3.0).with_privacy(privacy)


class TestCounts:
    @pytest.mark.parametrize("mechanism", [at_site(), blind()])
    def test_a_record_moves_whole_counts_by_its_cells_and_longer_or_broken_ones_are_left_out(self, mechanism):
        key, cells = REHEARSAL / "a", np.eye(6)[[0, 0, 3]]
        small = replace(mechanism, multiplier=2.0**-12)
        assert small.noisy_sum(cells, key).tolist() == [2, 0, 0, 1, 0, 0]
        wild = np.array([[5.0, 0, 0, 0, 0, 0], [np.nan] * 6, [0, 1, 1, 0, 0, 0], [0, 0, -1, 0, 0, 0]])
        assert small.noisy_sum(np.vstack([cells, wild]), key).tolist() == [2, 0, -1, 1, 0, 0]

    @pytest.mark.parametrize("mechanism", [at_site(), blind()])
    def test_what_is_left_is_whole_and_has_noise_in_every_cell(self, mechanism):
        noisy = mechanism.noisy_sum(np.zeros((0, 5000)), REHEARSAL / "a")
        assert np.array_equal(noisy, np.rint(noisy))
        shares = mechanism.shares if isinstance(mechanism, SecureCounts) else 1
        assert noisy.var() == pytest.approx(discrete_laplace_variance(1.0) / shares, rel=0.2)

    @pytest.mark.parametrize("mechanism", [at_site(), blind()])
    def test_sums_that_are_no_counts_are_refused(self, mechanism):
        with pytest.raises(Refused, match="not whole numbers"):
            mechanism.noisy_sum(np.array([[0.5, 0.2]]), REHEARSAL)

    def test_one_table_has_one_noise_and_another_has_another(self):
        for mechanism in (at_site(rehearsal=False), blind(rehearsal=False)):
            key, one, other = Key(3), np.zeros((1, 400)), np.eye(400)[:1]
            assert np.array_equal(mechanism.noisy_sum(one, key), mechanism.noisy_sum(one, key))
            apart = mechanism.noisy_sum(one, key) - mechanism.noisy_sum(other, key)
            assert (apart[1:] != 0).any()

    def test_a_rehearsal_key_is_refused_where_none_was_declared(self):
        for mechanism in (at_site(rehearsal=False), blind(rehearsal=False)):
            with pytest.raises(Refused, match="rehearsal"):
                mechanism.noisy_sum(np.eye(2), REHEARSAL)


class TestSecureSum:
    @pytest.mark.parametrize(("sites", "colluders"), [(3, 1), (5, 1), (10, 2)])
    def test_the_fewest_survivors_hold_the_noise_that_was_charged(self, sites, colluders):
        mechanism, width = blind(sites=sites, colluders=colluders), 20_000
        sent = [
            mechanism.on_ring(mechanism.at_site(mechanism.noisy_sum(np.zeros((0, width)), key), key))
            for key in (REHEARSAL / sites / site for site in range(threshold(sites)))
        ]
        # Colluders know what they added, and take it out again.
        hidden = np.add.reduce(sent[colluders:], dtype=np.uint32)
        noise = mechanism.mean_of(hidden, 1)
        (price,) = mechanism.release(1, ["a"])
        # The variance of a squared draw is about 5.6 times its square here: 5 deviations of the mean.
        assert abs(noise.var() / discrete_laplace_variance(price.scale) - 1) < 5 * math.sqrt(5.6 / width)
        # The lightest probabilities that the law allows, at zero and beside it.
        zero, one = ((noise == place).mean() for place in (0, 1))
        assert zero / one == pytest.approx(math.e, rel=0.1)
        assert price.multiplier == 1.0

    def test_a_sum_leaves_whole_and_the_ring_gives_it_back(self):
        mechanism, draw = blind(multiplier=2.0**-12), np.random.default_rng(1)
        total = np.zeros(4, dtype=np.uint32)
        tables = [np.eye(4)[draw.integers(0, 4, 30)] for _ in NAMES]
        for name, rows in zip(NAMES, tables, strict=True):
            own = mechanism.at_site(mechanism.noisy_sum(rows, REHEARSAL / name), REHEARSAL / name)
            total += mechanism.on_ring(own)
        assert (mechanism.mean_of(total, 5) * 5).tolist() == sum(rows.sum(axis=0) for rows in tables).tolist()
        negative = mechanism.on_ring(np.array([-3.0, 7.0]))
        assert mechanism.lattice(2).decode(negative).tolist() == [-3, 7]

    def test_what_is_no_noisy_count_does_not_leave(self):
        mechanism = blind()
        noisy = mechanism.noisy_sum(np.eye(4), REHEARSAL / "a")
        for changed in (noisy / 3, noisy + np.pi, np.append(noisy[:-1], np.nan)):
            with pytest.raises(Refused, match="sends the noisy counts of each site as they are"):
                mechanism.at_site(changed, REHEARSAL)
        with pytest.raises(InvalidValue, match="there is one secure sum in a round"):
            mechanism.noisy_sums(Rows(np.ones((1, 2, 2))), [REHEARSAL], 1)

    @pytest.mark.parametrize("sites", [3, 20, 100])
    def test_counts_and_noise_stay_in_the_ring(self, sites):
        lattice = blind(sites=sites, multiplier=1000.0).lattice(10)
        assert sites * lattice.most + 100 * 1000 < HALF
        assert lattice.most > 20_000_000
        site = blind(sites=sites)
        cut = site.noisy_sum(np.repeat(np.eye(1), 3, axis=0), REHEARSAL)
        assert abs(cut[0]) < 100
        assert math.sqrt(site.shares) * lattice.share(1000.0, site.shares) == pytest.approx(lattice.deviation)

    def test_counts_beyond_the_limit_are_cut_off(self):
        mechanism = blind(multiplier=2.0**-12)

        class Many:
            def lengths(self, norm):
                return np.ones((1, 1))

            def total(self, factors):
                return np.array([[1e12, -1e300]])

        most = mechanism.lattice(2).most
        assert mechanism.noisy_sums(Many(), [REHEARSAL], 0).tolist() == [[most, -most]]

    def test_noise_without_room_is_refused(self):
        with pytest.raises(InvalidValue, match="no room for counts"):
            CountLattice.fit(cells=1.0, scale=1e7, sites=50, shares=10)


class TestPolicy:
    def test_counts_get_discrete_laplace_noise_for_the_whole_budget_at_delta_0(self):
        for promise in (PROMISE, SECURE):
            mechanism = promise.solve(table(promise, promise), NAMES, Mean(), 1)
            (first, *others) = mechanism.release(1, NAMES)
            assert len(others) == 4
            assert first.law == "discrete-laplace"
            assert first.scale == pytest.approx(1.0, rel=1e-6)
            assert 0.999 < epsilon([first, *others], 0.0) <= 1.0

    def test_a_secure_sum_has_one_noise_and_noise_at_the_sites_has_as_many_as_sites(self):
        alone, shared = (
            promise.solve(table(promise, promise), NAMES, Mean(), 1) for promise in (PROMISE, SECURE)
        )
        assert isinstance(shared, SecureCounts)
        assert shared.shares == honest(5, 1) == 3
        variance = discrete_laplace_variance(alone.release(1, ["a"])[0].scale)
        assert (5 * alone.deviation(5)) ** 2 == pytest.approx(5 * variance)
        assert (5 * shared.deviation(5)) ** 2 == pytest.approx(5 / 3 * variance)

    def test_other_tasks_keep_their_laplace_noise_and_have_none_in_shares(self):
        task = LogisticHazard(steps=1, sample=1.0, horizon=1.0, batch=100)
        found = replace(PROMISE, clip=1.0).solve(task, NAMES, Mean(), 1)
        assert isinstance(found, RecordLevel)
        assert found.law == "laplace"
        with pytest.raises(Refused):
            replace(SECURE, clip=1.0).solve(task, NAMES, Mean(), 1)

    def test_a_query_that_counts_costs_its_share(self):
        class Question:
            kind, share, share_of, layout, columns = "counts", 0.25, "epsilon", "rows", {}
            cells_per_record = 2

        rounds = SECURE.solve(table(SECURE, SECURE), NAMES, Mean(), 1)
        asked = SECURE.solve_query(Question(), rounds)
        assert isinstance(asked, SecureCounts)
        (price,) = asked.release(0, ["a"])
        assert price.sensitivity == 2.0
        assert epsilon([price], 0.0) == pytest.approx(0.25, rel=1e-6)
        alone = PROMISE.solve_query(Question(), rounds)
        assert isinstance(alone, NoisyCounts)

    def test_too_few_sites_and_too_little_budget_are_refused_before_anything_is_charged(self):
        with pytest.raises(Refused, match="a group of 2 sites is too small"):
            SECURE.solve(table(SECURE, SECURE), NAMES[:2], Mean(), 1)
        with pytest.raises(Refused, match="a group of 1 sites is too small"):
            SECURE.solve(table(SECURE, SECURE), NAMES[:1], Mean(), 1)
        with pytest.raises(InvalidValue, match="with discrete Laplace noise"):
            replace(PROMISE, epsilon=1e-4).solve(table(PROMISE), NAMES, Mean(), 1)
        with pytest.raises(InvalidValue, match="a whole number of cells"):
            blind(clip=1.5)
