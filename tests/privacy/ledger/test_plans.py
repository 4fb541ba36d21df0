"""Charges by plan: one fixed plan is composed, plans that are chosen in turn are held against a filter."""

import hashlib
import json
import sqlite3

import pytest

from tacit.errors import BudgetExhausted, InvalidValue, Refused
from tacit.privacy import accounting
from tacit.privacy.accounting import epsilon, group_events
from tacit.privacy.accounting.release import Release, clipped_release
from tacit.privacy.ledger.plans import Commitment, RegisteredPlan, Tally, _first, max_epsilon
from tacit.privacy.ledger.store import Ledger, verify

DELTA = 1e-5
STEP = clipped_release(1.1, rate=0.05, subject="records@oslo")


def plan(noise: float = 1.1, count: int = 100, **fields) -> Release:
    return clipped_release(noise, rate=0.05, count=count, **{"subject": "records@oslo", **fields})


@pytest.fixture
def ledger(tmp_path):
    with Ledger(tmp_path / "ledger.db") as opened:
        yield opened


def test_a_plan_of_a_run_fits_a_budget_that_it_uses_up(ledger):
    noise = accounting.calibrate(3.0, DELTA, 100, rate=0.05)
    ledger.allow(epsilon=3.0, delta=DELTA)
    ledger.register([plan(noise)], plan="run")
    for number in range(100):
        ledger.charge([plan(noise, 1, purpose=f"round {number + 1}")], ticket=str(number), plan="run")
    assert ledger.spent() == epsilon([plan(noise)], DELTA) <= 3.0
    # What composition uses up leaves no room for anything that is chosen afterwards.
    with pytest.raises(BudgetExhausted, match="over plans chosen one after another"):
        ledger.charge([plan(1e6, 1)])


def test_several_plans_cost_more_than_if_they_had_been_one(ledger):
    for number in range(3):
        ledger.charge([plan()], plan=f"run {number}")
    together = epsilon([plan(count=300)], DELTA)
    assert ledger.spent_as_planned(DELTA) == together
    assert together < ledger.spent(DELTA) < 1.15 * together
    assert ledger.spent(DELTA, subject="records@oslo") == ledger.spent(DELTA)
    assert ledger.prices(DELTA) == {"records@oslo": ledger.spent(DELTA)}


def test_plans_about_different_people_stay_plans_of_their_own(ledger):
    ledger.charge([plan()], plan="oslo")
    ledger.charge([plan(subject="records@bergen")], plan="bergen")
    assert ledger.spent(DELTA) == epsilon([plan()], DELTA)
    # What concerns everybody is another plan to each.
    ledger.charge([plan(subject="records", count=1)], plan="all")
    assert ledger.spent(DELTA) > epsilon([plan(count=101)], DELTA)


def test_a_charge_without_a_plan_is_a_plan_of_its_own(ledger):
    ledger.charge([plan()])
    assert ledger.spent(DELTA) == epsilon([plan()], DELTA)
    ledger.charge([plan()])
    assert ledger.spent(DELTA) > epsilon([plan(count=200)], DELTA)
    names = [entry["plan"] for entry in ledger.entries() if entry["kind"] == "release"]
    assert len(set(names)) == 2


def test_what_goes_beyond_a_plan_is_a_plan_of_its_own(ledger):
    ledger.register([plan()], plan="run")
    ledger.charge([plan(count=100)], plan="run")
    ledger.charge([plan(count=1)], plan="run")
    assert ledger.spent(DELTA) > epsilon([plan(count=101)], DELTA) == ledger.spent_as_planned(DELTA)


@pytest.mark.parametrize(
    "other",
    [plan(1.0, 1), clipped_release(1.1, rate=0.06, subject="records@oslo"), plan(subject="records@bergen")],
)
def test_other_noise_another_rate_and_other_people_are_not_planned(ledger, other):
    ledger.register([plan()], plan="run")
    ledger.charge([plan(count=1)], plan="run")
    ledger.charge([other], plan="run")
    assert len(ledger._account.plans.names()) == 2


def test_noise_that_was_computed_in_two_ways_is_still_the_same_plan(ledger):
    ledger.register([plan(count=10)], plan="run")
    for clip in (1.0, 0.1, 3.0, 1e7, 1 / 3):
        ledger.charge([plan(count=2, clip=clip)], plan="run")
    assert ledger._account.plans.names() == {"run"}
    assert ledger.spent(DELTA) == pytest.approx(epsilon([plan(count=10)], DELTA), rel=1e-9)


def test_gaussians_without_a_draw_may_share_their_precision_otherwise_than_planned(ledger):
    """A noise that is split by bought radii: together they are the one Gaussian that was planned."""
    rows = [Release(scale=noise, sensitivity=1.0) for noise in (3.0, 3.0, 3.0)]
    ledger.register(rows, plan="run")
    ledger.charge([Release(scale=2.5, sensitivity=1.0), Release(scale=4.0, sensitivity=1.0)], plan="run")
    rest = 3 / 9 - 1 / 2.5**2 - 1 / 4.0**2
    ledger.charge([Release(scale=rest**-0.5, sensitivity=1.0)], plan="run")
    assert ledger._account.plans.names() == {"run"}
    assert ledger.spent(DELTA) == pytest.approx(epsilon(rows, DELTA))
    ledger.charge([Release(scale=1e4, sensitivity=1.0)], plan="run")
    assert len(ledger._account.plans.names()) == 2


@pytest.mark.parametrize("noise", [0.1, 1 / 3, 7.7, 1e-160, 1e160])
def test_many_charges_one_by_one_fill_a_plan_to_the_last(noise):
    whole = RegisteredPlan([Release(scale=noise, sensitivity=1.0, count=20_000)])
    one = Release(scale=noise, sensitivity=1.0)
    assert all(whole.consume(one) is None for _ in range(20_000))
    assert whole.consume(one) == one


def test_what_is_only_owed_makes_no_second_plan(ledger):
    ledger.register([plan(count=10)], plan="run")
    ledger.charge([plan(count=10)], plan="run")
    ledger.owe([plan(count=5)], ticket="rest", plan="run")
    assert ledger.spent(DELTA) == epsilon([plan(count=15)], DELTA)


def test_a_plan_that_has_begun_is_counted_whole_against_others(ledger):
    """Otherwise who sees its first results could choose between its rest and something else."""
    ledger.allow(epsilon=3.0, delta=DELTA)
    noise = accounting.calibrate(2.9, DELTA, 100, rate=0.05)
    ledger.register([plan(noise)], plan="run")
    ledger.charge([plan(noise, 1)], plan="run")
    with pytest.raises(BudgetExhausted):
        ledger.charge([plan(noise, 30)], plan="other")
    ledger.charge([plan(noise, 99)], plan="run")


def test_a_plan_that_never_began_stands_in_nobodys_way(ledger):
    ledger.allow(epsilon=3.0, delta=DELTA)
    noise = accounting.calibrate(2.9, DELTA, 100, rate=0.05)
    ledger.register([plan(noise)], plan="run")
    ledger.charge([plan(noise, 30)], plan="other")
    with pytest.raises(BudgetExhausted):
        ledger.charge([plan(noise, 1)], plan="run")


def test_a_plan_is_written_down_once_and_as_it_was(ledger):
    assert ledger.register([plan(count=60), plan(count=40)], plan="run") is True
    before = ledger.entries()
    assert ledger.register([plan()], plan="run") is False
    with pytest.raises(Refused, match="is registered with other releases"):
        ledger.register([plan(count=99)], plan="run")
    assert ledger.entries() == before


def test_a_plan_that_the_budget_cannot_bear_is_not_written_down(ledger):
    ledger.allow(epsilon=0.5, delta=DELTA)
    before = ledger.entries()
    with pytest.raises(BudgetExhausted, match="nothing was charged"):
        ledger.register([plan()], plan="run")
    assert ledger.entries() == before


@pytest.mark.parametrize("name", ["", " run", "run ", "#7", "x" * 257, 7, None])
def test_a_name_that_is_none_is_refused(ledger, name):
    with pytest.raises(InvalidValue, match="plan"):
        ledger.register([plan()], plan=name)
    if name is not None:
        with pytest.raises(InvalidValue, match="plan"):
            ledger.charge([plan()], plan=name)


def test_plans_are_the_same_to_whoever_opens_the_file(tmp_path):
    path = tmp_path / "ledger.db"
    with Ledger(path) as ledger:
        ledger.allow(epsilon=8.0, delta=DELTA)
        ledger.register([plan(), plan(count=3, subject="records@bergen")], plan="run")
        ledger.charge([plan(count=40), plan(count=3, subject="records@bergen")], plan="run")
        ledger.charge([plan(3.0)], plan="other")
        ledger.charge([plan(2.0, 5)])
        known, head = ledger.spent(), ledger.head
    with Ledger(path, mode="read") as again:
        assert (again.spent(), again.head) == (known, head)
        assert again._account.plans.names() == {"run", "other", "#8"}
    found = verify(path)
    assert found.valid
    assert (found.epsilon, found.epsilon_as_lifetime) == (known, known)
    assert found.epsilon_as_planned < known


def test_a_copy_is_the_same_ledger_in_memory(ledger):
    ledger.allow(epsilon=4.0, delta=DELTA)
    ledger.charge([plan()], plan="run")
    with ledger.copy() as copied:
        assert copied.entries() == ledger.entries()
        copied.charge([plan(50.0)])
        assert copied.spent() > ledger.spent()
    assert ledger.spent() == epsilon([plan()], DELTA)


def former(path, rows):
    """A ledger as versions without plans have written it."""
    with Ledger(path):
        pass
    connection = sqlite3.connect(path)
    ((first, _),) = connection.execute("SELECT body, hash FROM entries").fetchall()
    guards = [sql for (sql,) in connection.execute("SELECT sql FROM sqlite_master WHERE type = 'trigger'")]
    for name in ("stay", "remain", "follow"):
        connection.execute(f"DROP TRIGGER {name}")
    connection.execute("DELETE FROM entries")
    head, time = hashlib.sha256(b"tacit ledger 1").digest(), {"at": "2026-01-01T00:00:00.000+00:00"}
    bodies = [{**json.loads(first), "format": 1}]
    bodies += [{**time, "kind": "release", "ticket": ticket, **row.as_dict()} for ticket, row in rows]
    for number, body in enumerate(bodies, start=1):
        text = json.dumps(body)
        head = hashlib.sha256(head + number.to_bytes(8, "big") + text.encode()).digest()
        connection.execute("INSERT INTO entries VALUES (?, ?, ?)", (number, text, head))
    connection.execute(f"PRAGMA user_version = {len(bodies)}")
    for sql in guards:
        connection.execute(sql)
    connection.commit()
    connection.close()
    return path


def test_the_ledger_of_a_run_from_before_states_what_it_stated(tmp_path):
    rows = [(f"{number:064x}", plan(count=1, purpose=f"round {number}")) for number in range(20)]
    path = former(tmp_path / "ledger.db", rows)
    assert verify(path, DELTA).valid
    assert verify(path, DELTA).epsilon == epsilon([plan(count=20)], DELTA)


def test_a_run_from_before_that_is_resumed_stays_one_plan(tmp_path):
    rows = [(f"{number:064x}", plan(count=1, purpose=f"round {number}")) for number in range(20)]
    with Ledger(former(tmp_path / "ledger.db", rows)) as ledger:
        ledger.register([plan(count=100)], plan="run", resumed=True)
        ledger.charge([plan(count=80)], plan="run")
        assert ledger.spent(DELTA) == epsilon([plan(count=100)], DELTA)
        ledger.charge([plan(count=1)], plan="run")
        assert ledger.spent(DELTA) > epsilon([plan(count=101)], DELTA)


def test_another_run_is_another_plan_than_one_from_before(tmp_path):
    with Ledger(former(tmp_path / "ledger.db", [("ab", plan(count=20, purpose="round 1"))])) as ledger:
        ledger.charge([plan(count=20)], plan="run")
        assert ledger.spent(DELTA) > epsilon([plan(count=40)], DELTA)


@pytest.mark.parametrize(
    "tickets", [(None, None), ("first", "second")], ids=["asked by itself", "experiments at a site"]
)
def test_what_was_chosen_in_turn_before_there_were_plans_is_held_against_a_filter(tmp_path, tickets):
    rows = [(ticket, plan(purpose="experiment x: round 1")) for ticket in tickets]
    assert verify(former(tmp_path / "ledger.db", rows), DELTA).epsilon > epsilon([plan(count=200)], DELTA)


SITE = clipped_release(accounting.calibrate(3.0, DELTA), unit="site", subject="sites")
JOINED = epsilon([SITE.under_replacement()], DELTA)


@pytest.mark.parametrize("subject", ["records", "records@oslo"])
def test_a_budget_of_records_is_held_against_an_exchange_of_their_site(ledger, subject):
    ledger.allow(epsilon=3.0, delta=DELTA, subject=subject)
    with pytest.raises(BudgetExhausted, match=rf"{subject} exhausted: epsilon would be {JOINED:.4g}"):
        ledger.charge([SITE])
    ledger.allow(epsilon=1.001 * JOINED, delta=DELTA, subject=subject)
    ledger.charge([SITE])
    assert ledger.spent(DELTA, subject=subject) == JOINED > 6.7
    # The promise to sites is priced as before, and so is a second plan about them.
    assert ledger.spent(DELTA) == epsilon([SITE], DELTA) <= 3.0
    with pytest.raises(BudgetExhausted, match="over plans chosen one after another"):
        ledger.charge([clipped_release(1e3, unit="site", subject="sites")])


def test_plans_about_whole_sites_are_added_up_for_records_under_an_exchange(ledger):
    for number in range(3):
        ledger.charge([SITE], plan=f"run {number}")
    with Ledger() as exchanged:
        for number in range(3):
            exchanged.charge([SITE.under_replacement()], plan=f"run {number}")
        assert ledger.spent(DELTA, subject="records") == exchanged.spent(DELTA, subject="records")
    assert ledger.spent(DELTA, subject="sites") < ledger.spent(DELTA, subject="records")


@pytest.mark.parametrize("rounds", [1, 3])
def test_a_lifetime_of_people_bounds_the_sum_of_site_level_charges_for_records(ledger, rounds):
    ledger.allow_lifetime(epsilon=3.0, delta=DELTA)
    noise = accounting.calibrate(3.0, DELTA, rounds)
    with pytest.raises(BudgetExhausted, match="budget of records exhausted"):
        ledger.register([clipped_release(noise, count=rounds, unit="site", subject="sites")], plan="run")
    ledger.register([clipped_release(2 * noise, count=rounds, unit="site", subject="sites")], plan="run")


def test_a_first_plan_is_the_one_with_the_smallest_number_whichever_list_holds_it():
    """Lists are read one after the other, that of the subject before those of the wholes it is a part of."""
    a, b = plan(2.0), plan(3.0)
    site = clipped_release(5.0, unit="site", subject="sites")
    tally = Tally("records@oslo")
    tally.extend(
        {
            "records@oslo": [Commitment(3, "a", a), Commitment(2, "b", b)],
            "sites": [Commitment(1, "a", site)],
        }
    )
    assert tally.began == {"a": 1, "b": 2}
    only = Tally("records@oslo")
    only.extend({"records@oslo": [Commitment(1, "a", a)], "sites": [Commitment(1, "a", site)]})
    assert tally.first() == only.first()


def test_of_plans_that_begin_together_the_first_is_the_one_named_first():
    more = [("a", plan(2.0)), ("b", plan(3.0)), ("a", plan(2.0, 50))]
    assert _first(Tally("records@oslo"), more) == group_events([plan(2.0, 150)])


def test_what_is_owed_to_the_first_plan_later_leaves_the_order_of_the_filter(ledger):
    """The order has to be known before the first result: `owe` may be called after it."""
    ledger.charge([plan()], plan="first")
    before = ledger._account.plans._tally("records@oslo").first()
    ledger.owe([plan(0.3, 1), plan(50.0, 1000)], ticket="more", plan="first")
    tally = ledger._account.plans._tally("records@oslo")
    assert tally.first() == before
    assert sum(times for _, times in tally.counts()) == 1101


def test_what_goes_beyond_a_plan_shares_no_name_with_a_plan_of_a_user(ledger):
    ledger.register([plan(subject="records@bergen")], plan="run")
    ledger.charge([plan()], plan="run")
    (name,) = {entry.plan for entry in ledger._account.plans.commitments["records@oslo"]}
    with pytest.raises(InvalidValue, match="plan"):
        ledger.charge([plan()], plan=name)


def test_a_plan_is_resumed_only_where_a_run_of_a_version_without_plans_has_charged(ledger, tmp_path):
    ledger.charge([plan(count=1)], plan="other")
    before = ledger.entries()
    with pytest.raises(Refused, match=r"'run' cannot be resumed: .*; register it without resumed"):
        ledger.register([plan()], plan="run", resumed=True)
    assert ledger.entries() == before
    assert not ledger.has_former_run()
    # The advice works.
    ledger.register([plan()], plan="run")
    # Known as it is, a resumed run finds its plan there.
    assert ledger.register([plan()], plan="run", resumed=True) is False
    with Ledger(former(tmp_path / "former.db", [("ab", plan(count=1, purpose="round 1"))])) as older:
        assert older.has_former_run()
        older.register([plan()], plan="run", resumed=True)
        with pytest.raises(Refused, match="cannot be resumed"):
            older.register([plan()], plan="again", resumed=True)


def test_resuming_a_run_from_before_leaves_other_plans_what_they_were(tmp_path):
    """Their names, their place in order, and what is reserved for those that have begun."""
    with Ledger(former(tmp_path / "ledger.db", [("ab", plan(count=20, purpose="round 1"))])) as ledger:
        ledger.register([plan(2.0)], plan="other")
        ledger.charge([plan(2.0, 60)], plan="other")
        ledger.register([plan()], plan="run", resumed=True)
        assert ledger._account.plans.names() == {"other", "run"}
        tally = ledger._account.plans._tally("records@oslo")
        assert sum(times for _, times in tally.counts()) == 200
        assert tally.began["run"] < tally.began["other"]
        ledger.charge([plan(count=80)], plan="run")
        ledger.charge([plan(2.0, 40)], plan="other")
        assert ledger._account.plans.names() == {"other", "run"}


def test_nothing_costs_nothing():
    assert max_epsilon([], 1e-5) == 0.0


def test_pure_plans_chosen_in_turn_fill_a_budget_at_delta_zero(ledger):
    """Nothing is counted before the first: two plans of 0.4 fit into 1, a third does not."""
    release = Release(law="laplace", scale=2.5, sensitivity=1.0)
    ledger.allow(epsilon=1.0, delta=0.0)
    for number in range(2):
        ledger.charge([release], plan=f"plan {number}")
    before = ledger.entries()
    with pytest.raises(BudgetExhausted, match=r"epsilon would be 1\.2 at delta 0"):
        ledger.charge([release], plan="plan 2")
    assert ledger.entries() == before
    assert Tally("records").admits([release], epsilon=0.5, delta=0.0)


def test_a_filter_leaves_room_for_the_rounding_of_pure_sums():
    """A sum over a budget by less than a billionth is not within it."""
    for share, admitted in ((1 - 1e-8, True), (1 + 5e-10, False), (1 + 1e-8, False)):
        release = Release(law="laplace", scale=1 / share, sensitivity=1.0)
        assert Tally("records").admits([release], epsilon=1.0, delta=0.0) is admitted


def test_what_one_budget_bears_says_nothing_about_a_smaller_one(ledger):
    ledger.allow(epsilon=5.0, delta=DELTA)
    ledger.charge([plan(count=10)], plan="run")
    with Ledger() as other:
        other.allow(epsilon=5.0, delta=DELTA)
        other.allow(epsilon=0.9 * ledger.spent(), delta=DELTA, subject="records@oslo")
        other.charge([plan(count=10, subject="records@bergen")], plan="run")
        with pytest.raises(BudgetExhausted):
            other.charge([plan(count=10)], plan="run")
