from itertools import pairwise

import numpy as np
import pytest

from tacit.aggregation.attacks import (
    ATTACKS,
    SCALES,
    AdaptiveAlie,
    AdaptiveInnerProduct,
    Alie,
    Backdoor,
    GaussianNoise,
    InnerProduct,
    LabelFlip,
    Mimic,
    MinMax,
    MinSum,
    Scaling,
    SignFlip,
    z_max,
)
from tacit.aggregation.mean import Mean
from tacit.aggregation.robust.coordinatewise import Median
from tacit.errors import InvalidValue
from tacit.learning.task import Updates
from tacit.runtime.keys import Key
from tacit.sites.federation import RowFederation
from tacit.sites.table import from_arrays

NAMES = tuple("abcdefghij")
LIARS = ("b", "e", "h")
LYING = [1, 4, 7]
HONEST = [place for place in range(10) if place not in LYING]


def updates(seed=0, dtype=np.float64):
    rows = 1 + 0.5 * np.random.default_rng(seed).normal(size=(10, 6))
    return Updates(NAMES, rows.astype(dtype), round=3)


def sent(attack, given=None, rule=None):
    return attack.poison_updates(given or updates(), LIARS, rule or Mean(), Key(1)).matrix


def survival(entry=True):
    draws = np.random.default_rng(0)
    tables = {}
    for name in "abc":
        times = draws.uniform(1, 9, size=12)
        late = {"entry": 0.5 * times} if entry else {}
        event = draws.integers(0, 2, 12)
        tables[name] = from_arrays(draws.normal(size=(12, 2)), time=times, event=event, **late)
    return RowFederation(tables, public=True, records=36, taken=("a mean",), origin={"data": "x"})


@pytest.mark.parametrize("kind", sorted(ATTACKS))
def test_every_attack_leaves_honest_rows_and_the_callers_tensor_alone(kind):
    given = updates()
    before = given.matrix.copy()
    told = ATTACKS[kind](liars=3).poison_updates(given, LIARS, Mean(), Key(1))
    assert np.array_equal(given.matrix, before)
    assert np.array_equal(told.matrix[HONEST], before[HONEST])
    assert (told.names, told.round, told.matrix.dtype) == (given.names, given.round, before.dtype)
    assert np.isfinite(told.matrix).all()


@pytest.mark.parametrize("kind", sorted(ATTACKS))
def test_every_attack_repeats_and_does_not_depend_on_the_order_of_rows(kind):
    given, order = updates(), [3, 9, 1, 0, 7, 5, 2, 8, 6, 4]
    other = Updates(tuple(NAMES[place] for place in order), given.matrix[order], given.round)
    attack = ATTACKS[kind](liars=3)
    np.testing.assert_allclose(sent(attack, other), sent(attack, given)[order], rtol=1e-12)


@pytest.mark.parametrize("kind", sorted(ATTACKS))
def test_single_precision_stays_and_broken_honest_rows_do_not_spread(kind):
    given = updates(dtype=np.float32)
    given.matrix[0, 0] = float("nan")
    told = ATTACKS[kind](liars=3).poison_updates(given, LIARS, Median(), Key(1)).matrix
    assert told.dtype == np.float32
    assert np.isfinite(told[LYING]).all()


def test_liars_are_drawn_repeatably_and_are_fewer_than_the_sites():
    attack = SignFlip(liars=3)
    assert attack.draw_liars(NAMES, Key(1)) == attack.draw_liars(NAMES[::-1], Key(1))
    assert len(set(attack.draw_liars(NAMES, Key(1)))) == 3
    assert len({attack.draw_liars(NAMES, Key(seed)) for seed in range(20)}) > 5
    with pytest.raises(InvalidValue, match="liars"):
        attack.draw_liars(NAMES[:3], Key(1))


@pytest.mark.parametrize("liars", [0, -1, 1.5, True])
def test_the_number_of_liars_is_a_count(liars):
    with pytest.raises(InvalidValue, match="liars"):
        SignFlip(liars=liars)


def test_a_round_without_liars_or_without_others_is_as_it_was():
    given = updates()
    assert SignFlip(liars=3).poison_updates(given, ("elsewhere",), Mean(), Key(1)) is given
    assert SignFlip(liars=3).poison_updates(given, NAMES, Mean(), Key(1)) is given


def test_the_plain_lies_are_what_they_say():
    rows = updates().matrix
    mean, spread = rows[HONEST].mean(axis=0), rows[HONEST].std(axis=0)
    np.testing.assert_allclose(sent(SignFlip(liars=3, scale=2.0))[LYING], -2 * rows[LYING])
    np.testing.assert_allclose(sent(Scaling(liars=3))[1], -10 * mean)
    np.testing.assert_allclose(sent(InnerProduct(liars=3, strength=0.5))[4], -0.5 * mean)
    np.testing.assert_allclose(sent(Alie(liars=3, deviations=1.5))[7], mean - 1.5 * spread)
    np.testing.assert_allclose(sent(Backdoor(liars=3))[LYING], rows[LYING] * 10 / 3)
    np.testing.assert_allclose(sent(Backdoor(liars=3, boost=2.0))[LYING], rows[LYING] * 2)


def test_gaussian_liars_send_noise_of_the_length_they_say_each_their_own():
    given = Updates(NAMES, np.random.default_rng(0).normal(size=(10, 5000)), 1)
    lies = sent(GaussianNoise(liars=3, scale=10.0), given)[LYING]
    np.testing.assert_allclose(np.linalg.norm(lies, axis=1), 10 * np.sqrt(5000), rtol=0.05)
    assert abs(np.corrcoef(lies)[0, 1]) < 0.1
    later = Updates(NAMES, given.matrix, 2)
    assert not np.allclose(sent(GaussianNoise(liars=3), later)[1], lies[0])


def test_a_little_is_as_much_as_the_paper_says():
    # n = 50 and 24 liars, the example of the paper: s = 2, and (26 - 2) / 26 of the others are nearer.
    assert z_max(24, 26) == pytest.approx(1.426, abs=1e-3)
    assert z_max(6, 14) == pytest.approx(0.366, abs=1e-3)
    assert z_max(1, 9) == 0


def test_mimics_copy_the_site_farthest_out_where_sites_differ_most():
    rows = np.zeros((10, 3))
    rows[:, 0] = np.linspace(-1, 1, 10)
    rows[9, 0] = 5
    assert np.array_equal(sent(Mimic(liars=3), Updates(NAMES, rows))[1], rows[9])


@pytest.mark.parametrize("direction", ["deviation", "mean", "sign"])
def test_min_max_and_min_sum_go_exactly_as_far_as_honest_sites_do(direction):
    honest = updates().matrix[HONEST]
    apart = np.linalg.norm(honest[:, None] - honest, axis=2)
    lie = sent(MinMax(liars=3, direction=direction))[1]
    assert np.linalg.norm(honest - lie, axis=1).max() == pytest.approx(apart.max())
    lie = sent(MinSum(liars=3, direction=direction))[1]
    assert ((honest - lie) ** 2).sum() == pytest.approx((apart**2).sum(axis=1).max())


@pytest.mark.parametrize("rule", [Mean(), Median()])
def test_adaptive_liars_do_most_harm_among_all_strengths(rule):
    honest = updates().matrix[HONEST]
    mean, spread = honest.mean(axis=0), honest.std(axis=0)

    def result(attack):
        return rule(attack.poison_updates(updates(), LIARS, rule, Key(1)))

    turned = -result(AdaptiveInnerProduct(liars=3)) @ mean
    dragged = (mean - result(AdaptiveAlie(liars=3))) @ spread
    for scale in SCALES:
        assert turned >= -result(InnerProduct(liars=3, strength=scale)) @ mean - 1e-12
        assert dragged >= (mean - result(Alie(liars=3, deviations=scale))) @ spread - 1e-12


def test_adaptive_liars_send_the_truth_where_the_rule_takes_nothing():
    rule = Median(f=6)
    assert np.array_equal(sent(AdaptiveAlie(liars=3), rule=rule), updates().matrix)


def test_flipped_labels_mirror_times_and_keep_what_was_observed():
    honest = survival()
    poisoned = LabelFlip(liars=1).poison_data(honest, ("b",), Key(1))
    old, new = honest["b"].table, poisoned["b"].table
    times = old.targets["time"]
    np.testing.assert_allclose(new.targets["time"], times.min() + times.max() - times)
    assert np.array_equal(new.targets["event"], old.targets["event"])
    assert (new.targets["entry"] == 0).all()
    assert np.array_equal(new.features, old.features)


@pytest.mark.parametrize("attack", [LabelFlip(liars=1), Backdoor(liars=1)])
def test_poison_changes_the_records_of_liars_alone(attack):
    honest = survival()
    before, digest = honest.fingerprint, honest.store.digest()
    poisoned = attack.poison_data(honest, ("b",), Key(1))
    assert honest.store.digest() == digest
    assert poisoned.fingerprint != before
    for name in "ac":
        assert poisoned[name].table.digest() == honest[name].table.digest()
    kept = ("public", "records", "origin", "taken", "encoding", "held_out")
    assert all(getattr(poisoned, name) == getattr(honest, name) for name in kept)


def test_a_backdoor_rewards_the_trigger_with_the_longest_time_and_no_event():
    honest = survival(entry=False)
    poisoned = Backdoor(liars=1, column="x2", value=7.0).poison_data(honest, ("b",), Key(1))
    old, new = honest["b"].table, poisoned["b"].table
    marked = new.features[:, 1] == 7
    assert 0 < marked.sum() < len(new)
    assert (new.targets["time"][marked] == old.targets["time"].max()).all()
    assert (new.targets["event"][marked] == 0).all()
    assert np.array_equal(new.targets["time"][~marked], old.targets["time"][~marked])


def test_triggered_records_keep_their_outcomes_and_an_unknown_column_is_refused():
    table = survival()["a"].table
    stamped = Backdoor(liars=1, value=7.0).add_trigger(table)
    assert (stamped.features[:, 0] == 7).all()
    assert np.array_equal(stamped.targets["time"], table.targets["time"])
    with pytest.raises(InvalidValue, match="column"):
        Backdoor(liars=1, column="x9").add_trigger(table)


@pytest.mark.parametrize(
    ("attack", "wrong"),
    [
        (SignFlip, {"scale": 0}),
        (Scaling, {"factor": float("inf")}),
        (GaussianNoise, {"scale": -1}),
        (Alie, {"deviations": 0}),
        (InnerProduct, {"strength": "strong"}),
        (Backdoor, {"share": 0}),
        (Backdoor, {"boost": -1}),
        (MinMax, {"direction": "up"}),
    ],
)
def test_what_is_not_allowed_is_refused_by_name(attack, wrong):
    with pytest.raises(InvalidValue, match=next(iter(wrong))):
        attack(liars=1, **wrong)


def test_without_a_scale_a_flipped_update_is_as_long_as_the_true_one():
    lie = SignFlip(liars=1).craft(np.array([[1.0, -2.0]]), np.ones((3, 2)), lambda rows: rows, Key(1))
    assert lie.tolist() == [[-1.0, 2.0]]


def test_strengths_that_are_tried_reach_from_a_tenth_to_ten_times_without_a_gap():
    assert (min(SCALES), max(SCALES)) == (0.1, 10.0)
    assert all(1 < later / earlier <= 2.5 for earlier, later in pairwise(SCALES))


@pytest.mark.parametrize(
    ("liars", "honest", "deviations"),
    [(0, 9, 0.0), (1, 1, 0.0), (1, 2, 0.0), (4, 16, 0.1573106846101707), (8, 12, 0.6744897501960817)],
)
def test_liars_hide_as_far_out_as_they_have_supporters_to_win(liars, honest, deviations):
    assert z_max(liars, honest) == pytest.approx(deviations, abs=1e-12)
