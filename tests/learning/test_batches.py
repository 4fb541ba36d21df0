"""Poisson sampling of steps: independent draws at the declared rate, none cut off, none twice.

Draws are those of rehearsals with fixed seeds. `FALSE_ALARM` is the share of seeds on which right draws would
be accused by one test.
"""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from tacit.learning.batches import Batch, poisson, poisson_groups, shuffle
from tacit.runtime.keys import Key
from tacit.sites.federation import Cohort
from tacit.sites.table import from_arrays

FALSE_ALARM = 1e-6
REHEARSAL = Key(11, rehearsal=True)


def cohort(sizes: list[int], *, offset: float = 0.0) -> Cohort:
    """Sites of these sizes, one after the other in the store."""
    ends = np.cumsum(sizes)
    store = from_arrays(offset + np.arange(float(ends[-1]))[:, None], y=np.zeros(ends[-1]))
    names = tuple(f"site-{number}" for number in range(len(sizes)))
    return Cohort(names, store, ends - sizes, np.array(sizes))


def keys(sites: Cohort, key: Key = REHEARSAL) -> list[Key]:
    return [key / name for name in sites.names]


def positions(batch: Batch, site: int) -> list[int]:
    return batch.rows[site][batch.present[site]].tolist()


def draws(size: int, steps: int, rate: float, key: Key = REHEARSAL, sites: int = 1) -> np.ndarray:
    """Return the drawn records (sites, steps, records) at sites of equal size."""
    whole = cohort([size] * sites)
    drawn = np.zeros((sites, steps, size), dtype=bool)
    for step, batch in enumerate(poisson(whole, steps, rate, keys(whole, key), coupled=False)):
        for site in range(sites):
            drawn[site, step, np.array(positions(batch, site), dtype=int) - whole.starts[site]] = True
    return drawn


def accused_of_dependence(first: np.ndarray, second: np.ndarray) -> bool:
    """Test pairs of draws for dependence: chi-square on the table of all pairs."""
    table = np.array([[np.sum((first == a) & (second == b)) for b in (0, 1)] for a in (0, 1)])
    return bool(stats.chi2_contingency(table, correction=False).pvalue < FALSE_ALARM)


# Poisson


@pytest.mark.parametrize("rate", [0.01, 0.3, 0.9])
def test_records_are_drawn_at_the_rate(rate):
    drawn = draws(500, 200, rate)
    assert stats.binomtest(int(drawn.sum()), drawn.size, rate).pvalue > FALSE_ALARM
    # A rate that is wrong by a fifth would be accused.
    assert stats.binomtest(int(drawn.sum()), drawn.size, 0.8 * rate).pvalue < FALSE_ALARM


def test_every_place_is_drawn_at_the_rate():
    drawn = draws(40, 3000, 0.3)[0]
    hits = drawn.sum(axis=0)
    # One test for each of 40 places.
    assert min(stats.binomtest(int(k), 3000, 0.3).pvalue for k in hits) > FALSE_ALARM / 40


def test_batches_are_as_large_as_independent_draws_make_them():
    sizes = draws(60, 6000, 0.2)[0].sum(axis=1)
    edges = [-1, 7, 9, 11, 13, 15, 17, 60]
    seen = np.histogram(sizes, bins=np.array(edges) + 0.5)[0]
    expected = 6000 * np.diff(stats.binom(60, 0.2).cdf(edges))
    assert stats.chisquare(seen, expected).pvalue > FALSE_ALARM
    # Batches of fixed size, as if shuffled, would be accused at once.
    assert sizes.std() > 1


def test_draws_of_different_records_are_independent():
    drawn = draws(400, 200, 0.5)[0]
    assert not accused_of_dependence(drawn[:, 0::2], drawn[:, 1::2])
    assert accused_of_dependence(drawn, drawn)


def test_draws_of_different_steps_are_independent():
    drawn = draws(400, 200, 0.5)[0]
    assert not accused_of_dependence(drawn[0::2], drawn[1::2])


def test_draws_of_different_sites_are_independent():
    drawn = draws(400, 200, 0.5, sites=2)
    assert not accused_of_dependence(drawn[0], drawn[1])


def test_draws_of_different_rounds_are_independent():
    first, second = (draws(400, 200, 0.5, REHEARSAL / number) for number in (1, 2))
    assert not accused_of_dependence(first, second)


def test_everybody_is_drawn_at_rate_one_however_unequal_the_sites():
    whole = cohort([2, 300, 7])
    for batch in poisson(whole, 3, 1.0, keys(whole), coupled=False):
        assert positions(batch, 0) == [0, 1]
        assert positions(batch, 1) == list(range(2, 302))
        assert positions(batch, 2) == list(range(302, 309))


def test_a_batch_is_as_wide_as_the_largest_draw_so_that_nothing_is_cut_off():
    whole = cohort([300, 300, 300])
    widths = {batch.rows.shape[1] for batch in poisson(whole, 50, 0.5, keys(whole), coupled=False)}
    # 50 steps of three draws: the largest of each is above 150 nearly always, and they differ.
    assert len(widths) > 5
    for batch in poisson(whole, 50, 0.5, keys(whole), coupled=False):
        assert batch.present.sum(axis=(1, 2)).max() == batch.rows.shape[1]


def test_a_batch_may_be_empty():
    whole = cohort([5, 9])
    found = list(poisson(whole, 4, 1e-12, keys(whole), coupled=False))
    assert len(found) == 4
    for batch in found:
        assert not batch.present.any()
        assert batch.rows.shape == (2, 1, 1)
        assert batch.counts.tolist() == [1, 1]


def test_one_site_may_be_empty_while_another_is_not():
    whole = cohort([2, 200])
    found = list(poisson(whole, 20, 0.3, keys(whole), coupled=False))
    lonely = [batch for batch in found if not batch.present[0].any()]
    assert 0 < len(lonely) < 20
    assert all(batch.present[1].any() for batch in lonely)


@settings(max_examples=50)
@given(st.lists(st.integers(2, 40), min_size=1, max_size=6), st.floats(0.01, 1.0), st.integers(0, 1000))
def test_a_site_draws_its_own_records_and_none_twice(sizes, rate, seed):
    whole = cohort(sizes)
    steps = list(poisson(whole, 3, rate, keys(whole, Key(seed, rehearsal=True)), coupled=False))
    assert len(steps) == 3
    for batch in steps:
        assert batch.rows.shape == batch.present.shape
        for site, (start, size) in enumerate(zip(whole.starts, whole.sizes, strict=True)):
            found = positions(batch, site)
            assert len(set(found)) == len(found)
            assert all(start <= row < start + size for row in found)


def test_a_site_draws_the_same_whoever_else_is_there():
    whole, alone = cohort([30, 50]), cohort([30, 50]).part(np.array([1]))
    together = list(poisson(whole, 5, 0.4, keys(whole), coupled=False))
    apart = list(poisson(alone, 5, 0.4, keys(alone), coupled=False))
    for one, other in zip(together, apart, strict=True):
        assert positions(one, 1) == positions(other, 0)


def test_a_coupled_loss_gets_the_same_draw_as_one_unit():
    whole = cohort([30, 50])
    units = list(poisson(whole, 3, 0.4, keys(whole), coupled=False))
    groups = list(poisson(whole, 3, 0.4, keys(whole), coupled=True))
    for one, other in zip(units, groups, strict=True):
        assert other.rows.shape[1] == 1
        assert [positions(one, site) for site in (0, 1)] == [positions(other, site) for site in (0, 1)]
        assert other.counts.tolist() == [1, 1]


def test_secret_draws_differ_from_run_to_run_and_rehearsals_do_not():
    first, second = (draws(200, 20, 0.5, Key(7)) for _ in range(2))
    assert not np.array_equal(first, second)
    assert not accused_of_dependence(first, second)
    again = [draws(200, 20, 0.5, Key(7, rehearsal=True)) for _ in range(2)]
    assert np.array_equal(again[0], again[1])


def test_a_resumed_run_repeats_its_draws():
    first, second = (draws(200, 20, 0.5, Key(7, entropy=bytes(32))) for _ in range(2))
    assert np.array_equal(first, second)


# Shuffled


@settings(max_examples=60)
@given(
    st.lists(st.integers(2, 40), min_size=1, max_size=6),
    st.integers(1, 12),
    st.integers(1, 3),
    st.integers(0, 99),
)
def test_every_record_comes_exactly_once_in_each_epoch(sizes, size, epochs, seed):
    whole = cohort(sorted(sizes, reverse=True))
    seen: list[list[list[int]]] = [[] for _ in sizes]
    for batch in shuffle(whole, epochs, size, keys(whole, Key(seed, rehearsal=True)), coupled=False):
        # As wide as the site that has the most, and no wider.
        assert batch.rows.shape[1] == batch.present.sum(axis=(1, 2)).max() <= size
        for site in range(len(batch.rows)):
            seen[site].append(positions(batch, site))
    for site, batches in enumerate(seen):
        per_epoch = math.ceil(whole.sizes[site] / size)
        assert len(batches) == epochs * per_epoch
        own = range(whole.starts[site], whole.starts[site] + whole.sizes[site])
        for epoch in range(epochs):
            part = batches[epoch * per_epoch : (epoch + 1) * per_epoch]
            assert sorted(row for batch in part for row in batch) == list(own)
            # Only the last one of an epoch may be short.
            assert all(len(batch) == size for batch in part[:-1])


def test_a_site_is_dealt_the_same_whoever_else_is_there():
    # Sites of one size are dealt together, and must not see each other.
    whole = cohort([70, 70, 64, 33, 33])
    together = list(shuffle(whole, 2, 32, keys(whole), coupled=False))
    for site in range(len(whole)):
        own = whole.part(np.array([site]))
        order = keys(own)[0] / "batches"
        draws = order.secret().uniform((2, int(own.sizes[0])))
        dealt = [positions(batch, site) for batch in together if site < len(batch.rows)]
        assert dealt == [positions(batch, 0) for batch in shuffle(own, 2, 32, keys(own), coupled=False)]
        assert np.concatenate(dealt).tolist() == (np.argsort(draws, axis=1).ravel() + own.starts[0]).tolist()


def test_sites_that_are_done_wait_and_come_last():
    whole = cohort([20, 8, 3])
    working = [len(batch.rows) for batch in shuffle(whole, 1, 4, keys(whole), coupled=False)]
    assert working == [3, 2, 1, 1, 1]


def test_every_order_of_a_shuffle_is_equally_likely():
    whole = cohort([3])
    seen: dict[tuple[int, ...], int] = {}
    for batch in shuffle(whole, 6000, 3, keys(whole), coupled=False):
        order = tuple(positions(batch, 0))
        seen[order] = seen.get(order, 0) + 1
    assert len(seen) == 6
    assert stats.chisquare(list(seen.values())).pvalue > FALSE_ALARM


def test_the_mean_of_a_short_batch_is_over_those_who_are_there():
    whole = cohort([5])
    counts = [batch.counts.tolist() for batch in shuffle(whole, 1, 3, keys(whole), coupled=False)]
    assert counts == [[3], [2]]


# Groups


def members(size: int, groups: int, key: Key = REHEARSAL, *, offset: float = 0.0) -> list[list[int]]:
    """The records of each group of a single site."""
    whole = cohort([size], offset=offset)
    (batch,) = poisson_groups(whole, 1, 1.0, groups, keys(whole, key))
    return [batch.rows[0, unit][batch.present[0, unit]].tolist() for unit in range(groups)]


def test_every_record_is_in_exactly_one_group():
    found = members(200, 7)
    assert sorted(row for group in found for row in group) == list(range(200))


def test_groups_are_as_large_as_independent_labels_make_them():
    sizes = np.array(
        [[len(group) for group in members(60, 4, Key(seed, rehearsal=True))] for seed in range(300)]
    )
    assert stats.chisquare(sizes.sum(axis=0)).pvalue > FALSE_ALARM
    # Dealt out evenly, all groups would hold 15; independent labels spread by their binomial.
    spread = sizes[:, 0]
    assert stats.chi2(299).sf(299 * spread.var(ddof=1) / stats.binom(60, 0.25).var()) > FALSE_ALARM / 2
    assert stats.chi2(299).cdf(299 * spread.var(ddof=1) / stats.binom(60, 0.25).var()) > FALSE_ALARM / 2


def test_labels_do_not_look_at_the_data():
    assert members(50, 5) == members(50, 5, offset=1e6)


def test_one_record_more_changes_one_group_alone():
    before, after = members(50, 5), members(51, 5)
    changed = [one != other for one, other in zip(before, after, strict=True)]
    assert sum(changed) == 1
    grown = changed.index(True)
    assert after[grown] == [*before[grown], 50]


def test_groups_stay_together_through_all_steps_of_a_round():
    whole = cohort([40])
    fixed = {tuple(group) for group in members(40, 6)}
    for batch in poisson_groups(whole, 30, 0.5, 6, keys(whole)):
        for unit in range(batch.rows.shape[1]):
            there = tuple(batch.rows[0, unit][batch.present[0, unit]].tolist())
            assert there in fixed or there == ()


def test_whole_groups_are_drawn_at_the_rate_and_independently():
    whole = cohort([400, 400])
    fixed = [{row: label for label, group in enumerate(part) for row in group} for part in _labels(whole, 4)]
    drawn = np.zeros((2, 4000, 4), dtype=bool)
    for step, batch in enumerate(poisson_groups(whole, 4000, 0.3, 4, keys(whole))):
        for site in (0, 1):
            drawn[site, step, [fixed[site][row] for row in positions(batch, site)]] = True
    assert stats.binomtest(int(drawn.sum()), drawn.size, 0.3).pvalue > FALSE_ALARM
    assert not accused_of_dependence(drawn[:, :, 0], drawn[:, :, 1])
    assert not accused_of_dependence(drawn[:, 0::2], drawn[:, 1::2])
    assert not accused_of_dependence(drawn[0], drawn[1])


def _labels(whole: Cohort, groups: int) -> list[list[list[int]]]:
    (batch,) = poisson_groups(whole, 1, 1.0, groups, keys(whole))
    return [
        [batch.rows[site, unit][batch.present[site, unit]].tolist() for unit in range(groups)]
        for site in range(len(whole))
    ]


def test_there_are_as_many_groups_as_were_agreed_even_if_some_are_empty():
    whole = cohort([2])
    (batch,) = poisson_groups(whole, 1, 1.0, 9, keys(whole))
    assert batch.rows.shape[1] == 9
    assert batch.present.any(axis=2).sum() <= 2


def test_no_group_at_all_may_be_drawn():
    whole = cohort([20, 30])
    (batch,) = poisson_groups(whole, 1, 1e-12, 4, keys(whole))
    assert not batch.present.any()
