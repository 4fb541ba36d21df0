"""The fault matrix, rows 19 to 24, 26 to 29 and 33 to 40: sites that vanish, repeat themselves, or lie.

What a site sends is a `Reply` here. Over a network, messages, deadlines and signatures come before that: the
parts of rows 21, 25 and 30 to 32 that need a network come with the Flower engine.
"""

from dataclasses import dataclass, fields, replace

import numpy as np
import pytest

from tacit import Federation, Privacy, fit
from tacit.aggregation import AGGREGATORS
from tacit.aggregation.attacks import ATTACKS
from tacit.aggregation.defence.quarantine import Quarantine
from tacit.aggregation.mean import Mean
from tacit.aggregation.robust.coordinatewise import Median, TrimmedMean
from tacit.aggregation.robust.reweighted import Robust
from tacit.aggregation.screening import Reply, Screen
from tacit.engines.base import Local
from tacit.errors import InvalidValue
from tacit.learning.record import Standing
from tacit.learning.task import Updates
from tacit.privacy.ledger.store import Ledger
from tacit.runs.directory import LEDGER
from tacit.sites.sampling import Poisson
from tacit.sites.table import from_arrays
from tacit.survival import CoxPH

SITES = tuple(f"site {number:02d}" for number in range(20))
EFFECTS = np.array([1.0, -1.0, 0.5, 0.0])
TASK = CoxPH(steps=4, sample=0.5, lr=0.5)
PROMISE = Privacy(unit="site", noise_multiplier=0.5, delta=1e-5, clip=5.0, rehearsal=True)
# Every rule, each standing two liars where it says how many.
FIELDS = {"mean": {}, "mixing": {"then": Median(f=2)}, "bucketing": {"then": Median(f=2), "size": 2}}
RULES = {kind: rule(**FIELDS.get(kind, {"f": 2})) for kind, rule in AGGREGATORS.items()}


def patients(number, seed, shift=0.0):
    generator = np.random.default_rng(seed)
    features = generator.normal(shift, 1.0, size=(number, len(EFFECTS)))
    time = generator.exponential(size=number) * np.exp(-features @ EFFECTS) + 0.01
    return from_arrays(features, time=time, event=(generator.random(number) < 0.8).astype(float))


def hospitals(sites=SITES, shift=0.3):
    """Sites that differ in who comes to them, and a public held-out set."""
    shifts = np.random.default_rng(99).normal(0, shift, len(sites))
    tables = {name: patients(30, place, shifts[place]) for place, name in enumerate(sites)}
    return Federation(tables, held_out=patients(300, 1000), held_out_public=True)


SEVEN = hospitals(SITES[:7])


def learnt(federation=SEVEN, **choices):
    usual = {"task": TASK, "aggregation": TrimmedMean(f=2), "rounds": 3, "seed": 1}
    choices = usual | choices
    return fit(choices.pop("task"), federation, **choices)


@dataclass(frozen=True, kw_only=True)
class Losing(Local):
    """An engine that loses what some sites send, or spoils it, by round."""

    lost: dict
    spoilt: dict

    def train(self, *given):
        updates, number = super().train(*given), given[-1].path[0]
        if not isinstance(given[0], CoxPH):
            return updates
        matrix = updates.matrix.copy()
        for name, value in self.spoilt.get(number, {}).items():
            matrix[updates.names.index(name)] = value
        kept = [place for place, name in enumerate(updates.names) if name not in self.lost.get(number, ())]
        return replace(updates, names=tuple(updates.names[place] for place in kept), matrix=matrix[kept])


def losing(**by_round):
    return Losing(lost={int(number[1:]): names for number, names in by_round.items()}, spoilt={})


def spoiling(**by_round):
    return Losing(lost={}, spoilt={int(number[1:]): rows for number, rows in by_round.items()})


# Sites that do not answer, or more than once.


def test_row_19_a_round_goes_on_without_those_who_dropped_out_as_long_as_enough_are_left():
    run = learnt(engine=losing(_1=SITES[:1], _2=SITES[:3]))
    assert [entry.skipped is None for entry in run.record.rounds] == [True, False, True]
    assert "needs at least 5" in run.record.rounds[1].skipped


@dataclass(frozen=True, kw_only=True)
class Absent(Poisson):
    """A draw that nobody is in, in the second round."""

    def __call__(self, names, participation, key):
        return [] if key.path[0] == 2 else list(names)


def test_row_20_a_round_to_which_nobody_comes_is_skipped_and_not_charged(tmp_path):
    run = learnt(sampling=Absent(), privacy=PROMISE, out=tmp_path / "run")
    assert [entry.skipped for entry in run.record.rounds] == [None, "no site took part", None]
    with Ledger(tmp_path / "run" / LEDGER, mode="read") as ledger:
        paid = [entry["purpose"] for entry in ledger.entries() if entry["kind"] == "release"]
    assert [purpose for purpose in paid if purpose.startswith("round")] == ["round 1", "round 3"]
    assert run.record.rounds[1].epsilon == run.record.rounds[0].epsilon


def screened(*replies):
    """Screen replies in round 3 of a run with three sites and vectors of two numbers."""
    screen = Screen(names=("oslo", "bergen", "voss"), width=2, round=3, ticket="third")
    updates, faults = screen(replies)
    rows = {name: row.tolist() for name, row in zip(updates.names, updates.matrix, strict=True)}
    return rows, [(fault.site, fault.reason) for fault in faults]


def reply(site="oslo", vector=(1.0, 2.0), number=3, ticket="third"):
    sent = np.array(vector) if isinstance(vector, tuple) else vector
    return Reply(site=site, round=number, ticket=ticket, vector=sent)


def test_row_21_an_update_of_an_earlier_round_is_late_and_never_mixed_in():
    rows, faults = screened(reply(number=2, ticket="second"), reply("bergen"))
    assert rows == {"bergen": [1.0, 2.0]}
    assert faults == [("oslo", "late")]


def test_row_22_the_same_update_twice_is_counted_once():
    rows, faults = screened(reply(), reply(), reply("bergen"))
    assert rows == {"oslo": [1.0, 2.0], "bergen": [1.0, 2.0]}
    assert faults == [("oslo", "duplicate")]


def test_row_23_of_two_different_updates_the_first_counts_and_the_site_is_named():
    rows, faults = screened(reply(), reply(vector=(9.0, 9.0)))
    assert rows == {"oslo": [1.0, 2.0]}
    assert faults == [("oslo", "equivocation")]


def test_row_24_an_old_update_that_claims_to_be_of_this_round_is_rejected():
    rows, faults = screened(reply(ticket="second"), reply("bergen", number=4))
    assert rows == {}
    assert faults == [("oslo", "replay"), ("bergen", "replay")]


# Numbers and shapes that are none.


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_row_26_numbers_that_are_not_finite_are_rejected_and_small_ones_are_not(bad):
    rows, faults = screened(reply(vector=(1.0, bad)), reply("bergen", (-0.0, 5e-324)))
    assert (rows, faults) == ({"bergen": [-0.0, 5e-324]}, [("oslo", "not-finite")])
    run = learnt(engine=spoiling(_2={SITES[0]: bad}))
    assert [fault.site for fault in run.record.rounds[1].faults] == [SITES[0]]
    assert all(entry.skipped is None for entry in run.record.rounds)
    assert bool(np.isfinite(run.state).all())


@pytest.mark.parametrize("huge", [1e38, 1e300])
@pytest.mark.parametrize("kind", sorted(RULES))
def test_row_27_huge_numbers_are_screened_and_no_rule_hangs_on_them(kind, huge):
    run = learnt(
        hospitals(SITES[:12]), engine=spoiling(_2={SITES[0]: huge}), aggregation=RULES[kind], rounds=2
    )
    (fault,) = run.record.rounds[1].faults
    assert (fault.site, fault.reason) == (SITES[0], "too-long")
    assert bool(np.isfinite(run.state).all())
    # A rule that is given one all the same stands it, or says who it was.
    rows = np.random.default_rng(1).normal(size=(12, 3))
    rows[4] = huge
    found = combined(RULES[kind], Updates(SITES[:12], rows))
    assert (
        SITES[4] in found if isinstance(found, str) else kind == "mean" or float(np.linalg.norm(found)) < 10
    )


def combined(rule, updates):
    """Return the aggregate of a rule, or its refusal."""
    try:
        return rule(updates)
    except InvalidValue as error:
        return str(error)


@pytest.mark.parametrize(
    "vector",
    [
        np.zeros(3), np.zeros((2, 1)), np.zeros((1, 2)), np.zeros(0), np.array(1.0), {"weights": np.zeros(2)},
        None, [1.0, 2.0], "1 2", b"\x00" * 16, np.zeros(2, dtype=np.int64), np.zeros(2, dtype=np.complex128),
        np.array([None, None]), np.array(["1", "2"]), np.zeros(2, dtype=bool), 3.5,
    ],
)  # fmt: skip
def test_row_28_what_is_no_vector_of_the_right_kind_is_rejected_and_the_round_goes_on(vector):
    rows, faults = screened(reply(vector=vector), reply("bergen"))
    assert rows == {"bergen": [1.0, 2.0]}
    assert faults == [("oslo", "schema")]


def test_row_29_a_shape_that_could_be_spread_over_all_numbers_is_rejected():
    rows, faults = screened(reply(vector=np.ones(1)), reply("bergen", np.float64(1.0)))
    assert rows == {}
    assert {reason for _, reason in faults} == {"schema"}


@pytest.mark.parametrize("claim", [0.0, -3.0, np.nan, np.inf])
def test_row_33_nobody_is_asked_how_many_records_it_has(claim):
    """Weights are uniform, or public and given beforehand; a reply has no room for a claim."""
    assert {entry.name for entry in fields(Reply)} == {"site", "round", "ticket", "vector"}
    with pytest.raises(InvalidValue, match=r"weights\.oslo"):
        Mean(weights={"oslo": claim, "bergen": 1.0})
    with pytest.raises(InvalidValue, match="weights"):
        Mean(weights="records")


# Liars.


def c_index(kind=None, aggregation=None, *, liars=6, seed=1):
    attack = None if kind is None else ATTACKS[kind](liars=liars)
    rule = Robust(f=6) if aggregation is None else aggregation
    run = learnt(HOSPITALS, aggregation=rule, attack=attack, rounds=8, seed=seed)
    assert bool(np.isfinite(run.state).all())
    return run.scores["c_index"]


HOSPITALS = hospitals()


@pytest.fixture(scope="module")
def unattacked():
    return c_index(aggregation=Mean())


@pytest.mark.parametrize("kind", sorted(ATTACKS))
def test_row_34_with_as_many_liars_as_it_stands_the_default_learns_as_if_there_were_none(kind, unattacked):
    assert c_index(kind) > unattacked - 0.03


@pytest.mark.parametrize("kind", sorted(set(AGGREGATORS) - {"mean", "krum", "bucketing", "bulyan", "robust"}))
def test_row_34_every_robust_rule_stands_a_crude_attack(kind, unattacked):
    six = {"mixing": {"then": Median(f=6)}}
    rule = AGGREGATORS[kind](**six.get(kind, {"f": 6}))
    assert c_index("scaling", rule) > unattacked - 0.05


def test_row_34_the_plain_mean_is_broken_by_the_same_attack(unattacked):
    assert unattacked > 0.75
    assert c_index("scaling", Mean()) < 0.5


@pytest.mark.parametrize("kind", sorted(ATTACKS))
def test_row_35_one_liar_more_than_was_said_breaks_no_run(kind):
    """The assumption is violated, so nothing is claimed; the run still ends with finite numbers."""
    assert 0 <= c_index(kind, TrimmedMean(f=2), liars=3) <= 1


def test_row_36_liars_are_never_fewer_because_sites_dropped_out():
    run = learnt(engine=losing(_2=SITES[:3]))
    assert run.record.rounds[1].skipped == (
        "f = 2 is not allowed with 4 sites: trimmed-mean needs at least 5 to tolerate that number of "
        "dishonest ones"
    )
    assert run.record.rounds[2].skipped is None
    # In a round that is not drawn large enough nothing is trained, either.
    few = learnt(sampling=Three(), aggregation=TrimmedMean(f=2))
    assert all("f = 2 is not allowed with 3 sites" in entry.skipped for entry in few.record.rounds)


@dataclass(frozen=True, kw_only=True)
class Three(Poisson):
    """A draw of three sites."""

    def __call__(self, names, participation, key):
        return list(names)[:3]


def judged(quarantine, rounds, *, extreme, seed=0):
    """The standings of ten sites after some rounds; the first is what `extreme` makes of its update."""
    draws, past, told = np.random.default_rng(seed), {}, []
    for number in range(1, rounds + 1):
        rows = np.ones((10, 30)) + draws.normal(scale=0.5, size=(10, 30))
        rows[0] = extreme(number, rows[0], draws)
        past, decisions = quarantine.judge(Updates(SITES[:10], rows), past, 3)
        told += decisions
    return past, told


def test_row_37_an_honest_but_extreme_site_is_not_left_out_for_good():
    quarantine = Quarantine(mode="exclude")
    # It differs for a while, as a hospital with other patients does, and then learns like the others.
    past, told = judged(quarantine, 60, extreme=lambda number, row, draws: -3 * row if number <= 15 else row)
    assert [decision.now for decision in told if decision.site == SITES[0]][:2] == ["watch", "quarantined"]
    assert past[SITES[0]].status == "active"
    # Nobody else ever was, and by default nobody is left out at all.
    assert {decision.site for decision in told if decision.now == "quarantined"} == {SITES[0]}
    assert Quarantine().mode == "observe"
    updates = Updates(SITES[:1], np.ones((1, 2)))
    left_out = {SITES[0]: Standing(status="quarantined", suspicion=12.0)}
    assert Quarantine().admit(updates, left_out) is updates


# What every rule does with ordinary updates.

ALL_RULES = pytest.mark.parametrize("kind", sorted(RULES))


@ALL_RULES
@pytest.mark.parametrize("value", [0.0, 0.1, -7.25])
def test_row_38_identical_updates_are_their_own_aggregate(kind, value):
    updates = Updates(SITES[:11], np.full((11, 5), value))
    assert RULES[kind](updates).tolist() == pytest.approx([value] * 5, rel=1e-12, abs=0)
    one = replace(RULES[kind], then=Median()) if kind in ("mixing", "bucketing") else AGGREGATORS[kind]()
    alone = Updates(SITES[:1], updates.matrix[:1])
    assert one(alone).tolist() == pytest.approx([value] * 5, rel=1e-12, abs=0)


@ALL_RULES
def test_row_39_the_order_of_answers_changes_no_bit(kind):
    draws, names = np.random.default_rng(2), SITES[:13]
    rows, order = draws.normal(size=(13, 400)) * 1e-3, draws.permutation(13)
    screen = Screen(names=names, width=400, round=4, ticket="fourth")
    straight, shuffled = (
        screen([reply(names[place], rows[place], 4, "fourth") for place in places])[0]
        for places in (range(13), order)
    )
    assert np.array_equal(RULES[kind](straight), RULES[kind](shuffled))


@ALL_RULES
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_row_40_what_is_given_is_left_as_it_was(kind, dtype):
    rows = np.random.default_rng(3).normal(size=(11, 40)).astype(dtype)
    kept, updates = rows.copy(), Updates(SITES[:11], rows)
    found = RULES[kind](updates)
    RULES[kind].shares(updates)
    assert np.array_equal(rows, kept)
    assert found.dtype == np.float64
    found += 1
    assert np.array_equal(rows, kept)
