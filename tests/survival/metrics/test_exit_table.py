"""Scores from tables of exits: equal to the exact ones on fine bins, unbiased and covered under noise."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from tacit.errors import InvalidValue
from tacit.learning.noisy_scores import Noise
from tacit.survival.metrics import auc, exit_table, harrell, integrated_brier, uno
from tacit.survival.metrics.brier_score import kaplan_meier
from tacit.survival.metrics.exit_table import ExitTable, Tables, calibrate_shares, score_table, table_of

ENDS = np.arange(1, 9) / 4
# Edges and means of six equal shares of a normal law.
EDGES = 0.985 * np.array([-0.967, -0.431, 0.0, 0.431, 0.967])
MIDDLES = 0.985 * np.array([-1.5, -0.68, -0.21, 0.21, 0.68, 1.5])
NOISE = Noise("discrete-laplace", 1.0)

counts_of_tables = arrays(np.float64, (3, 5, 2), elements=st.integers(-20, 60).map(float))


def draw(seed, records, useless=False):
    random = np.random.default_rng(seed)
    true, other = random.normal(0, 0.9, (2, records))
    risk = (other if useless else true) + random.normal(0, 0.4, records)
    event, left = random.exponential(np.exp(-true)), random.exponential(1 / 0.3, records)
    return np.minimum(event, left), (event <= left).astype(int), risk


def predict(risk, ends=ENDS):
    return np.exp(-np.exp(np.asarray(risk))[:, None] * ends)


def tabulate(seed, records, useless=False, noise=None):
    time, event, risk = draw(seed, records, useless)
    counts = table_of(time, event, np.searchsorted(EDGES, risk), ENDS, 6)
    if noise is None:
        return ExitTable(counts, ENDS, predict(MIDDLES))
    noisy = counts + noise.redraw(np.random.default_rng(seed), counts.shape)
    return ExitTable(noisy, ENDS, predict(MIDDLES), noise)


def fine(seed, records=40, until=26):
    """Records, and a table with a bin for each of them and an interval for each of the first times."""
    time, event, risk = draw(seed, records)
    ends, place = np.sort(time)[:until], np.argsort(np.argsort(risk))
    counts, predicted = table_of(time, event, place, ends, records), predict(np.sort(risk), ends)
    return time, event, risk, ExitTable(counts, ends, predicted, spread=np.zeros_like(predicted))


@pytest.mark.parametrize("seed", range(5))
def test_fine_bins_without_noise_give_the_exact_concordance(seed):
    time, event, risk, table = fine(seed)
    last = table.ends[-1]
    until, seen, tables = (
        np.minimum(time, last),
        np.where(time > last, 0, event),
        Tables(table.counts[None], 0),
    )
    assert exit_table.harrell(tables)[0] == pytest.approx(harrell(until, seen, risk))
    assert exit_table.uno(tables)[0] == pytest.approx(uno(time, event, risk, tau=last + 1e-9))
    scored = table.ends >= time[event == 1].min()
    exact = auc(time, event, risk, table.ends[scored])
    assert exit_table.areas(tables)[0, scored] == pytest.approx(exact)


@pytest.mark.parametrize("seed", range(5))
def test_fine_bins_without_noise_give_the_exact_brier_score_of_model_and_kaplan_meier(seed):
    time, event, risk, table = fine(seed)
    tables, curve = Tables(table.counts[None], 0), kaplan_meier(time, event)(table.ends)
    both = exit_table.brier_scores(tables, table.predicted, table.spread)
    model, plain = (exit_table.integrate(scores, table.ends)[0] for scores in both)
    assert model == pytest.approx(integrated_brier(time, event, predict(risk, table.ends), table.ends))
    constant = np.broadcast_to(curve, (len(time), len(curve)))
    assert plain == pytest.approx(integrated_brier(time, event, constant, table.ends))
    merged = exit_table.merge(tables, [np.arange(len(time))])
    assert exit_table.survival(merged)[0, 0] == pytest.approx(curve)


def test_six_bins_and_eight_intervals_come_close_to_the_exact_scores():
    time, event, risk = draw(1, 20_000)
    found = score_table(tabulate(1, 20_000))
    until, seen = np.minimum(time, ENDS[-1]), np.where(time > ENDS[-1], 0, event)
    brier = integrated_brier(time, event, predict(risk), ENDS)
    constant = np.broadcast_to(kaplan_meier(time, event)(ENDS), (len(time), len(ENDS)))
    assert found.harrell.value == pytest.approx(harrell(until, seen, risk), abs=0.004)
    assert found.uno.value == pytest.approx(uno(until, seen, risk), abs=0.004)
    assert [one.value for one in found.auc] == pytest.approx(auc(time, event, risk, ENDS), abs=0.005)
    assert found.brier.value == pytest.approx(brier, abs=0.002)
    gain = integrated_brier(time, event, constant, ENDS) - brier
    assert found.gain.value == pytest.approx(gain, abs=0.002)


def test_an_exit_at_an_end_belongs_to_the_interval_that_ends_there_and_stayers_are_censored():
    counts = table_of([0.25, 0.26, 2.0, 2.1, 9.0], [1, 1, 0, 1, 0], [0, 0, 1, 1, 1], ENDS, 2)
    expected = np.zeros((2, 9, 2))
    expected[0, 0, 0] = expected[0, 1, 0] = expected[1, 7, 1] = 1
    expected[1, 8, 1] = 2
    assert (counts == expected).all()
    assert (table_of([], [], [], ENDS, 2) == 0).all()


@given(st.lists(st.tuples(st.floats(0.01, 5), st.integers(0, 1), st.integers(0, 2)), min_size=1, max_size=30))
def test_a_record_moves_one_cell_by_one(records):
    time, event, bins = map(list, zip(*records, strict=True))
    table, less = (table_of(time[k:], event[k:], bins[k:], ENDS, 3) for k in (0, 1))
    assert np.abs(table - less).sum() == 1
    assert table.sum() == len(records)
    assert (table[:, -1, 0] == 0).all()


@settings(max_examples=30, deadline=None)
@given(counts_of_tables, st.sampled_from([0.0, 1.0, 6.0]))
def test_any_counts_give_scores_inside_their_bounds_or_none(counts, scale):
    table = ExitTable(counts, [1, 2, 3, 4], predict([-1, 0, 1], np.arange(1, 5) / 4), Noise(scale=scale))
    found = score_table(table, repeats=10)
    for score in (found.harrell, found.uno, found.brier, found.kaplan_meier, *found.auc):
        assert 0 <= score.low <= score.high <= 1
        assert (score.value is None) == bool(score.hidden)
        assert score.value is None or score.low <= score.value <= score.high
    for band in (found.calibration, found.risk_groups):
        known = ~np.isnan(band.value)
        assert (band.low >= 0).all()
        assert (band.high <= 1).all()
        assert (np.diff(band.value, axis=-1)[known[..., 1:] & known[..., :-1]] <= 1e-12).all()
    assert 0 <= found.d_calibration.p_value <= 1


@settings(max_examples=30, deadline=None)
@given(counts_of_tables)
def test_the_order_of_scores_turns_with_the_order_of_bins(counts):
    one, other = Tables(counts[None], 0), Tables(counts[None, ::-1], 0)
    turned = exit_table.harrell(one) + exit_table.harrell(other)
    assert np.isnan(turned) | (np.abs(turned - 1) < 1e-9)


def test_noise_leaves_sums_of_pairs_unbiased():
    table, random = tabulate(3, 300), np.random.default_rng(0)
    noisy = table.counts + NOISE.redraw(random, (4000, *table.counts.shape))
    exact = exit_table.harrell(Tables(table.counts[None], 0))[0]
    found = exit_table.harrell(Tables(noisy, NOISE.variance))
    # Standard error of the mean is .0004; a ratio is biased by far less than its deviation, .025.
    assert found.mean() == pytest.approx(exact, abs=0.004)


def test_intervals_cover_the_truth_and_widen_with_noise():
    # True C of this world up to time 2 is .694; 60 intervals of 95 % miss it more than 9 times by a chance of
    # one in a thousand.
    found = [score_table(tabulate(seed, 500, noise=NOISE), repeats=60).harrell for seed in range(60)]
    assert sum(one.low <= 0.694 <= one.high for one in found) > 50
    exact = score_table(tabulate(0, 500)).harrell
    assert found[0].high - found[0].low > exact.high - exact.low


def test_hidden_scores_say_why_and_are_tested_all_the_same():
    found = score_table(tabulate(0, 300, noise=Noise(scale=8.0)))
    assert found.harrell.value is None
    assert "wider than 0.2" in str(found.harrell)
    empty = score_table(ExitTable(np.zeros((6, 9, 2)), ENDS, predict(MIDDLES)))
    assert (empty.harrell.value, empty.harrell.hidden) == (None, "there are too few records beside the noise")
    assert not empty.better_than_chance
    assert not empty.better_than_kaplan_meier
    assert empty.verdict[0] == "its order of risks: the noise hides a comparison with chance"
    assert np.isnan(found.risk_groups.value).all()


@pytest.mark.parametrize("noise", [None, NOISE], ids=["exact", "noisy"])
def test_the_verdict_tells_a_useless_model_from_a_useful_one(noise):
    useless = [score_table(tabulate(seed, 1000, True, noise), repeats=60) for seed in range(12)]
    assert sum(one.better_than_chance for one in useless) <= 3
    assert not any(one.better_than_kaplan_meier for one in useless)
    useful = [score_table(tabulate(seed, 1000, noise=noise), repeats=60) for seed in range(12)]
    assert all(one.better_than_chance and one.better_than_kaplan_meier for one in useful)
    assert useful[0].verdict == ()
    assert (
        "order of risks: not shown to be better than chance" in score_table(tabulate(1, 300, True)).verdict[0]
    )


def test_risk_groups_are_in_order_and_close_to_kaplan_meier():
    time, event, risk = draw(4, 4000)
    found = score_table(tabulate(4, 4000)).risk_groups
    for group, (low, high) in enumerate([(-9, EDGES[1]), (EDGES[1], EDGES[3]), (EDGES[3], 9)]):
        own = (risk > low) & (risk <= high)
        curve = kaplan_meier(time[own], event[own])(ENDS)
        assert found.value[group] == pytest.approx(curve, abs=0.01)
        assert ((found.low[group] < curve) & (curve < found.high[group])).all()


@settings(max_examples=50, deadline=None)
@given(arrays(np.float64, (2, 4), elements=st.floats(0, 1)))
def test_shares_of_predicted_survival_are_shares(steps):
    predicted = np.sort(steps, axis=1)[:, ::-1]
    shares = exit_table.survival_shares(predicted, 5)
    assert (shares >= -1e-9).all()
    assert shares.sum(axis=-1) == pytest.approx(np.ones((2, 5, 2)))


def test_shares_of_predicted_survival_by_hand():
    shares = exit_table.survival_shares(np.array([[0.6, 0.5]]), 5)[0]
    # An event before survival falls to .6: survival between .6 and 1; one after .5 is below it.
    assert shares[0, 0] == pytest.approx([0, 0, 0, 0.5, 0.5], abs=1e-5)
    assert shares[1, 0] == pytest.approx([0, 0, 1, 0, 0], abs=1e-5)
    assert shares[2, 1] == pytest.approx([0.4, 0.4, 0.2, 0, 0], abs=1e-5)


@pytest.mark.parametrize("noise", [None, NOISE], ids=["exact", "noisy"])
def test_d_calibration_has_its_size_and_power_under_censoring(noise):
    def reject(seed, factor):
        random = np.random.default_rng(seed)
        bins = random.integers(0, 6, 800)
        event, left = random.exponential(factor * np.exp(-MIDDLES[bins])), random.exponential(1.5, 800)
        counts = table_of(np.minimum(event, left), event <= left, bins, ENDS, 6)
        noisy = counts if noise is None else counts + noise.redraw(random, counts.shape)
        table = ExitTable(noisy, ENDS, predict(MIDDLES), noise or Noise())
        return calibrate_shares(table).p_value < 0.05

    # More than 18 of 150 by a chance of one in a thousand; fewer than 2 by one in two hundred.
    assert 2 <= sum(reject(seed, 1.0) for seed in range(150)) <= 18
    assert sum(reject(seed, 1.5) for seed in range(20)) > 15


def test_the_same_seed_gives_the_same_intervals():
    table = tabulate(0, 300, noise=NOISE)
    assert score_table(table).harrell == score_table(table).harrell
    assert score_table(table, seed=1).harrell != score_table(table).harrell


def test_one_bin_and_one_interval_are_a_table():
    found = score_table(ExitTable([[[4.0, 2.0], [0.0, 5.0]]], [1.0], [[0.5]]))
    assert found.harrell.low <= 0.5 <= found.harrell.high
    assert len(found.auc) == 1


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        ({"counts": np.zeros((6, 8, 2))}, "counts"),
        ({"counts": np.full((6, 9, 2), np.nan)}, "counts"),
        ({"predicted": np.full((6, 8), 1.5)}, "predicted"),
        ({"ends": ENDS[::-1]}, "grid"),
        ({"spread": np.full((6, 8), -1.0)}, "spread"),
    ],
)
def test_tables_that_do_not_fit_are_refused(wrong, match):
    right = {"counts": np.zeros((6, 9, 2)), "ends": ENDS, "predicted": predict(MIDDLES)}
    with pytest.raises(InvalidValue, match=match):
        ExitTable(**(right | wrong))


def test_bins_and_places_that_do_not_exist_are_refused():
    with pytest.raises(InvalidValue, match="bins"):
        table_of([1.0], [1], [2], ENDS, 2)
    with pytest.raises(InvalidValue, match="at = "):
        score_table(tabulate(0, 50), [8])
