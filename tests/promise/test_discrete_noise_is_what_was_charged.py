"""Secure sums carry at least the charged noise, whichever sites drop out or collude.

Every site adds its share to its rounded vector. The worst that the promise allows: as many sites drop out as
may, and the colluders subtract their own shares. What is left must vary no less than what was charged
(chi-square), and tell no more than the claim (Clopper and Pearson 1934). A test that accuses nobody proves
nothing, so each is shown to accuse less noise. Seeds are fixed: verdicts repeat.
"""

import math
from itertools import product

import numpy as np
import pytest
from scipy import stats

from tacit.privacy import accounting
from tacit.privacy.accounting.release import Release, clipped_release
from tacit.privacy.mechanisms.discrete import discrete_gaussian
from tacit.privacy.mechanisms.lattice import Lattice
from tacit.runtime.keys import Key

FALSE_ALARM = 1e-6
WIDTH, CLIP, MULTIPLIER = 20_000, 2.0, 1.3
REHEARSAL = Key(46, rehearsal=True)
# Sites, survivors that are counted on, colluders among them.
CASES = [(3, 3, 0), (3, 2, 1), (10, 7, 2), (20, 14, 6), (50, 34, 16)]


def charged(lattice: Lattice) -> Release:
    return clipped_release(MULTIPLIER, clip=lattice.sensitivity, law="discrete", unit="site", subject="sites")


def fitted(sites: int, honest: int, width: int = WIDTH) -> Lattice:
    return Lattice.fit(clip=CLIP, width=width, sites=sites, multiplier=MULTIPLIER, honest=honest)


def messages(lattice: Lattice, values: np.ndarray, share: float, sites: int, key: Key) -> list[np.ndarray]:
    """Return each site's term of the sum, modulo 2^32."""
    return [
        lattice.encode(
            lattice.stochastic_round(values, (key / site / "rounding").secret())
            + discrete_gaussian(share, values.size, (key / site / "noise").secret())
        )
        for site in range(sites)
    ]


def too_little(noise: np.ndarray, deviation: float) -> bool:
    """Return True if noise of this standard deviation or more would hardly ever vary so little."""
    return bool(stats.chi2.cdf(float(((noise / deviation) ** 2).sum()), noise.size) < FALSE_ALARM)


@pytest.mark.parametrize(("sites", "survivors", "colluders"), CASES)
def test_the_noise_that_is_left_varies_by_what_was_charged(sites, survivors, colluders):
    honest = survivors - colluders
    lattice = fitted(sites, honest)
    share = lattice.share(MULTIPLIER, honest)
    sent = messages(lattice, np.zeros(WIDTH), share, survivors, REHEARSAL / sites / survivors)
    total = np.add.reduce(sent, dtype=np.uint32)
    # Colluders know what they added, and take it out again.
    hidden = total - np.add.reduce(sent[:colluders], dtype=np.uint32, initial=np.uint32(0))
    noise, deviation = lattice.decode(hidden) * lattice.scale, charged(lattice).scale
    assert not too_little(noise, deviation)
    # Nor is it more than was asked for: the shares of the missing are not made up for twice.
    assert (noise**2).mean() < 1.06 * deviation**2
    if honest > 1:
        fewer = lattice.decode(hidden - sent[-1]) * lattice.scale
        assert too_little(fewer, deviation) or honest > 15


def test_a_share_too_few_is_accused_and_so_is_noise_that_forgets_the_dropouts():
    lattice = fitted(10, 5, 200_000)
    deviation = charged(lattice).scale
    # The mistake of fault 46: noise cut into ten shares, five of which arrive.
    thin = lattice.share(MULTIPLIER, 10)
    for share, arrived in ((thin, 5), (thin, 9), (lattice.share(MULTIPLIER, 5), 4)):
        noise = sum(
            discrete_gaussian(share, 200_000, (REHEARSAL / "thin" / site / arrived).secret())
            for site in range(arrived)
        )
        assert too_little(np.asarray(noise), deviation)


@pytest.mark.parametrize(("sites", "survivors", "colluders"), CASES)
def test_shares_add_up_to_no_less_than_the_charge_to_the_last_bit(sites, survivors, colluders):
    honest = survivors - colluders
    lattice = fitted(sites, honest)
    share = lattice.share(MULTIPLIER, honest)
    assert math.sqrt(honest) * share >= charged(lattice).scale
    assert math.sqrt(honest) * share <= charged(lattice).scale * (1 + 1e-12)


def test_the_decoded_sum_is_the_sum_of_the_vectors_and_the_noise_of_all_who_came():
    sites, honest = 10, 6
    lattice = fitted(sites, honest)
    values = np.random.default_rng(2).normal(size=WIDTH)
    values *= CLIP / np.linalg.norm(values)
    share = lattice.share(MULTIPLIER, honest)
    sent = messages(lattice, values, share, sites, REHEARSAL / "sum")
    errors = lattice.decode(np.add.reduce(sent, dtype=np.uint32)) - sites * values
    deviation = share * math.sqrt(sites) / lattice.scale
    assert stats.kstest(errors / deviation, "norm").pvalue > FALSE_ALARM


def epsilon_at_least(hits: int, false_hits: int, runs: int, delta: float) -> float:
    """A lower bound on epsilon, wrong with probability at most 1e-4."""
    likely = stats.beta(hits, runs - hits + 1).ppf(5e-5)
    unlikely = stats.beta(false_hits + 1, runs - false_hits).isf(5e-5)
    return math.log((likely - delta) / unlikely) if likely > delta else -math.inf


@pytest.mark.parametrize("halved", [False, True])
def test_an_adversary_learns_no_more_than_the_claim_and_more_from_half_the_noise(halved):
    sites, honest, delta, runs = 5, 3, 0.1, 40_000
    lattice = fitted(sites, honest, 1)
    claim = accounting.epsilon([charged(lattice)], delta)
    share = lattice.share(MULTIPLIER, honest) / (2 if halved else 1)
    # One coordinate for each run: a site that is there to its full reach, or not at all.
    counts = []
    for there in (True, False):
        noise = sum(
            discrete_gaussian(share, runs, (REHEARSAL / "told" / site / str(there)).secret())
            for site in range(honest)
        )
        counts.append(
            int((np.asarray(noise) + there * math.floor(lattice.sensitivity) > lattice.sensitivity).sum())
        )
    found = epsilon_at_least(counts[0], counts[1], runs, delta)
    assert (found > claim) if halved else (found <= claim)


def test_no_vector_moves_the_sum_by_more_than_was_charged():
    """A search for the worst: corners, vectors at the clip, beyond it, and parts just below or above half."""
    generator = np.random.default_rng(4)
    for width, scale in product((1, 2, 3, 16, 257), (0.5, 1.0, 4.0)):
        lattice = Lattice(scale=scale, clip=CLIP, width=width, sites=1)
        worst = 0
        for number in range(60):
            values = generator.normal(size=width)
            if number % 3 == 0:
                values = np.ones(width)
            if number % 3 == 1:
                values = (np.rint(values * 3) + 0.5 + generator.choice([-1e-9, 1e-9])) / scale
            values = values * (CLIP / np.linalg.norm(values)) if number % 2 else values
            steps = lattice.stochastic_round(values, (REHEARSAL / "worst" / width / number).secret())
            worst = max(worst, int(steps @ steps))
        assert worst <= lattice.sensitivity**2
