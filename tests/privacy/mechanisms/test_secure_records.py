"""Noise in shares on sums of records: what a record can move, what is charged, and what leaves a site."""

import math
from dataclasses import replace

import numpy as np
import pytest

from tacit import Privacy
from tacit.aggregation.mean import Mean
from tacit.errors import InvalidValue, Refused
from tacit.privacy.accounting import epsilon
from tacit.privacy.mechanisms.base import MOST_ADDED, Rows
from tacit.privacy.mechanisms.lattice import COARSEST_RECORD, DEVIATIONS, HALF, ROUNDING_COST, RecordLattice
from tacit.privacy.mechanisms.secure_records import SecureRecordSum, SecureSumRounds
from tacit.privacy.mechanisms.secure_sum import honest, least_shares
from tacit.runtime.keys import Key
from tacit.survival import NewtonPH

NAMES = [f"site-{number}" for number in range(5)]
REHEARSAL = Key(8, rehearsal=True)
PROMISE = Privacy(unit="record", noise="secure", epsilon=1.0, delta=1e-5, rehearsal=True)


def blind(**fields) -> SecureRecordSum:
    usual = {"clip": 1.0, "multiplier": 2.0, "colluders": 1, "sites": 5, "rehearsal": True}
    return SecureRecordSum(**{**usual, **fields})


def rounds(**fields) -> SecureSumRounds:
    usual = {"bound": 1.0, "multiplier": 3.0, "shares": (0.2, 0.8), "colluders": 1, "sites": 5}
    return SecureSumRounds(**{**usual, "rehearsal": True, **fields})


class TestLattice:
    @pytest.mark.parametrize("sites", [3, 5, 20, 100])
    @pytest.mark.parametrize("width", [1, 300, 5000])
    @pytest.mark.parametrize("clip", [1.0, 0.3, 7e-4])
    def test_rounding_costs_little_and_the_sum_with_its_noise_stays_in_the_ring(self, sites, width, clip):
        shares = honest(sites, 1)
        lattice = RecordLattice.fit(clip=clip, width=width, sites=sites, multiplier=5.0, honest=shares)
        bound = lattice.scale * clip
        assert bound >= COARSEST_RECORD
        assert bound < lattice.sensitivity <= bound * (1 + ROUNDING_COST + 1e-5)
        noise = lattice.share(5.0, shares) * math.sqrt(sites)
        assert sites * lattice.most + DEVIATIONS * noise < HALF
        assert lattice.most >= 1024 * bound

    def test_three_hospitals_of_half_a_million_records_fit_with_hundreds_of_numbers(self):
        lattice = RecordLattice.fit(clip=1.0, width=300, sites=3, multiplier=5.0, honest=2)
        # Of fewer records than those for which rounding of sums is covered.
        assert 500_000 < lattice.most / lattice.scale <= MOST_ADDED

    def test_the_sums_of_all_sites_stay_below_half_of_the_ring(self):
        usual = {"scale": 1.0, "clip": 1.0, "width": 1}
        assert RecordLattice(**usual, sites=4, most=2**29 - 1).most == 2**29 - 1
        for sites, most in ((4, 2**29), (1, 2**31)):
            with pytest.raises(InvalidValue, match=f"most = {most} .* below 2\\^31 / {sites}"):
                RecordLattice(**usual, sites=sites, most=most)

    @pytest.mark.parametrize("clip", [1e-200, 1e200])
    def test_a_clip_bound_lies_between_1e_200_and_1e200(self, clip):
        usual = {"scale": 1.0, "width": 1, "sites": 1, "most": 1}
        assert RecordLattice(**usual, clip=clip**0.999).clip == clip**0.999
        with pytest.raises(InvalidValue, match="from 1e-200 to 1e200"):
            RecordLattice(**usual, clip=clip**1.001)

    @pytest.mark.parametrize("fields", [{"multiplier": 1e6}, {"width": 10**9}])
    def test_what_leaves_no_room_for_records_is_refused(self, fields):
        usual = {"clip": 1.0, "width": 10, "sites": 100, "multiplier": 5.0, "honest": 60}
        with pytest.raises(InvalidValue, match="no room for sums of records in 32 bits"):
            RecordLattice.fit(**{**usual, **fields})

    def test_no_record_moves_a_rounded_sum_by_more_than_the_sensitivity(self):
        """A search for the worst: sums whose parts are at a half, moved by a record towards the next step."""
        draw, closest = np.random.default_rng(5), 0.0
        for number in range(400):
            width = int(draw.integers(1, 40))
            scale, most = float(2.0 ** draw.integers(0, 4)), 60
            lattice = RecordLattice(scale=scale, clip=1.0, width=width, sites=1, most=most)
            record = np.ones(width) if number % 2 else draw.normal(size=width)
            record /= np.linalg.norm(record)
            # Just below a half before the record, and at or beyond one after it, as far as that goes.
            steps = draw.integers(-most - 3, most + 3, width) + 0.5 - draw.choice([1e-9, 0.0, 0.2], width)
            before = np.where(record > 0, steps, -steps) / scale
            moved = lattice.round_sum(before + record) - lattice.round_sum(before)
            closest = max(closest, float(np.linalg.norm(moved)) / lattice.sensitivity)
        assert 0.9 < closest <= 1

    def test_sums_beyond_the_limit_are_cut_off_and_broken_ones_are_zero(self):
        lattice = RecordLattice(scale=4.0, clip=1.0, width=5, sites=3, most=100)
        wild = np.array([1e300, -np.inf, np.nan, 24.9, -25.1])
        assert lattice.round_sum(wild).tolist() == [100, -100, 0, 100, -100]


class TestSum:
    def test_a_sum_leaves_in_whole_steps_that_the_ring_gives_back(self):
        mechanism, draw = blind(multiplier=0.1), np.random.default_rng(1)
        rows = [draw.normal(size=(40, 6)) for _ in NAMES]
        total = np.zeros(6, dtype=np.uint32)
        for name, own in zip(NAMES, rows, strict=True):
            noisy = mechanism.noisy_sum(own, REHEARSAL / name)
            steps = mechanism.at_site(noisy, REHEARSAL / name)
            assert np.array_equal(steps, np.rint(steps))
            total += mechanism.on_ring(steps)
        clipped = [own / np.maximum(np.linalg.norm(own, axis=1, keepdims=True), 1) for own in rows]
        exact = sum(own.sum(axis=0) for own in clipped)
        spread = 5 * mechanism.deviation(5)
        assert np.abs(mechanism.mean_of(total, 5) * 5 - exact).max() < 5 * spread
        assert spread == pytest.approx(0.1 * math.sqrt(5 / 3))

    def test_a_site_without_records_sends_noise_alone(self):
        assert blind().noisy_sum(np.zeros((0, 4)), REHEARSAL / "empty").std() > 0

    def test_what_is_no_noisy_sum_does_not_leave(self):
        mechanism = blind()
        noisy = mechanism.noisy_sum(np.ones((3, 4)), REHEARSAL / "a")
        for changed in (noisy / 3, noisy + np.pi, np.append(noisy[:-1], np.nan)):
            with pytest.raises(Refused, match="sends one noisy sum of each site as it is"):
                mechanism.at_site(changed, REHEARSAL)

    def test_a_second_sum_in_a_round_is_refused(self):
        with pytest.raises(InvalidValue, match="there is one secure sum in a round"):
            blind().noisy_sums(Rows(np.ones((1, 2, 2))), [REHEARSAL], 1)

    def test_a_rehearsal_key_is_refused_where_none_was_declared(self):
        with pytest.raises(Refused, match="rehearsal"):
            blind(rehearsal=False).noisy_sum(np.ones((2, 2)), REHEARSAL)

    def test_the_same_sum_gets_the_same_noise_and_another_gets_another(self):
        key, mechanism = Key(3), blind(rehearsal=False)
        one, other = np.zeros((1, 50)), np.full((1, 50), 1e-3)
        assert np.array_equal(mechanism.noisy_sum(one, key), mechanism.noisy_sum(one, key))
        for apart in (
            mechanism.noisy_sum(one, key) - mechanism.noisy_sum(other, key),
            # In a round with another share of the noise, the draws are unrelated, not the same and longer.
            mechanism.noisy_sum(one, key) - blind(rehearsal=False, multiplier=2.1).noisy_sum(one, key),
        ):
            assert float(apart.std()) > 0.7 * 2.0 / math.sqrt(3)


class TestPrice:
    @pytest.mark.parametrize("budget", [0.1, 1.0, 8.0])
    @pytest.mark.parametrize("number", [1, 6])
    @pytest.mark.parametrize("sites", [3, 20])
    def test_query_and_rounds_cost_the_budget_and_no_more(self, budget, number, sites):
        privacy, task = replace(PROMISE, epsilon=budget), NewtonPH(columns=("a",), horizon=1.0)
        names, question = [f"s{place}" for place in range(sites)], task.initial_query
        assert question is not None
        mechanism = privacy.solve(task, names, Mean(), number, questions=[question])
        asked = privacy.solve_query(question, mechanism)
        assert isinstance(asked, SecureRecordSum)
        assert asked.shares == honest(sites, 1)
        releases = [*asked.release(0, names)]
        for place in range(1, number + 1):
            releases += mechanism.release(place, names)
        own = [release for release in releases if release.subject == "records@s0"]
        assert len(own) == 1 + number
        assert {release.law for release in own} == {"discrete"}
        assert epsilon(own, 1e-5) <= budget
        assert epsilon(own, 1e-5) == pytest.approx(budget, rel=1e-3)
        assert epsilon(releases, 1e-5) == epsilon(own, 1e-5)

    def test_no_lattice_is_charged_less_than_it_costs(self):
        """Steps are counted on the coarsest lattice; on every one that is used the same noise costs less."""
        for multiplier in (0.5, 2.0, 30.0):
            mechanism = blind(multiplier=multiplier)
            (charged,) = mechanism.release(1, ["a"])
            for width in (1, 300, 5000):
                lattice = mechanism.lattice(width)
                scale = math.sqrt(mechanism.shares) * lattice.share(multiplier, mechanism.shares)
                true = type(charged)(law="discrete", scale=scale, sensitivity=lattice.sensitivity)
                assert true.as_gaussian().multiplier >= charged.as_gaussian().multiplier

    def test_a_given_noise_multiplier_is_that_of_all_rounds(self):
        privacy = Privacy(unit="record", noise="secure", noise_multiplier=4.0, delta=1e-5, rehearsal=True)
        mechanism = privacy.solve(NewtonPH(), NAMES, Mean(), 1)
        # The query has a fifth of it.
        assert mechanism.release(1, ["a"])[0].multiplier == pytest.approx(4.0 / math.sqrt(0.8), rel=1e-6)

    def test_a_sum_has_the_noise_of_few_sites_and_not_of_all(self):
        at_sites = math.sqrt(5) * 3.0 / math.sqrt(0.8)
        assert rounds().deviation(5) * 5 == pytest.approx(at_sites / math.sqrt(3))
        assert [least_shares(sites, 1) for sites in (2, 3, 5, 20, 101)] == [None, 2, 3, 13, None]


class TestRefusals:
    @pytest.mark.parametrize(("sites", "colluders", "why"), [
        (2, 1, "a group of 2 sites is too small"),
        (3, 2, "could unmask a site"),
        (101, 1, "from 3 to 100"),
    ])  # fmt: skip
    def test_too_few_sites_and_too_many_colluders(self, sites, colluders, why):
        privacy = Privacy(unit="record", noise="secure", epsilon=1.0, delta=1e-5, colluders=colluders)
        with pytest.raises((Refused, InvalidValue), match=why):
            privacy.solve(NewtonPH(), [f"s{place}" for place in range(sites)], Mean(), 6)

    def test_every_site_has_to_begin(self):
        with pytest.raises(Refused, match="4 sites cannot use secure aggregation whose noise is shared"):
            rounds().groups(NAMES[:4])

    def test_laplace_noise_and_drawn_sites(self):
        with pytest.raises(Refused, match="adds discrete Gaussian noise"):
            replace(PROMISE, mechanism="laplace").solve(NewtonPH(), NAMES, Mean(), 6)
        with pytest.raises(Refused, match="every site adds its share"):
            replace(PROMISE, participation=0.5).solve(NewtonPH(), NAMES, Mean(), 6)
        with pytest.raises(Refused, match="every site adds its share"):
            PROMISE.solve(NewtonPH(), NAMES, Mean(), 6, sampling="fixed")

    def test_noise_that_does_not_fit_the_ring(self):
        with pytest.raises(InvalidValue, match="no room for sums of records"):
            rounds(multiplier=1e7).check_width(10)
        with pytest.raises(InvalidValue, match="a share has"):
            rounds(multiplier=1e-3).check_width(10)
