"""The ledger as one process sees it: what is charged, what it costs, what is refused, what stays."""

import hashlib
import io
import json
import math
import sqlite3
import threading
from datetime import datetime
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.errors import (
    BudgetExhausted,
    InvalidValue,
    LedgerError,
    LedgerTampered,
    LedgerUnusable,
    Refused,
    TacitError,
)
from tacit.privacy import accounting
from tacit.privacy.accounting.release import Release
from tacit.privacy.ledger.store import Budget, Ledger, verify

DELTA = 1e-5


def release(**fields):
    return Release(**{"scale": 10.0, "sensitivity": 1.0, **fields})


def epsilon_of(*releases):
    return accounting.epsilon(releases, DELTA)


def state(ledger):
    """Everything a refusal must leave alone."""
    content = ledger.path.read_bytes() if ledger.path is not None else b""
    return content, ledger.entries(), ledger.head, ledger.spent(DELTA), ledger.budgets(), ledger.releases()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "ledger.db"


@pytest.fixture
def ledger(path):
    with Ledger(path) as opened:
        yield opened


def test_a_new_ledger_has_spent_nothing(ledger):
    assert ledger.spent(DELTA) == 0
    assert ledger.releases() == []
    assert ledger.budgets() == {}
    assert [entry["kind"] for entry in ledger.entries()] == ["opened"]


def test_a_charge_is_spent_and_remembered(ledger):
    assert ledger.charge([release(purpose="round 1", party="oslo")]) is True
    assert ledger.spent(DELTA) == epsilon_of(release())
    entry = ledger.entries()[-1]
    assert entry["kind"] == "release"
    assert (entry["purpose"], entry["party"], entry["scale"]) == ("round 1", "oslo", 10.0)


def test_charging_nothing_changes_nothing(ledger):
    before = state(ledger)
    assert ledger.charge([]) is False
    assert state(ledger) == before


def test_releases_may_come_from_a_generator(ledger):
    ledger.charge(release(count=times) for times in (1, 2))
    assert ledger.spent(DELTA) == epsilon_of(release(count=3))


def test_equal_releases_are_counted_together_whoever_let_them_out(ledger):
    ledger.charge([release(purpose="round 1", party="oslo"), release(purpose="round 2", party="bergen")])
    ledger.charge([release(count=3), release(scale=7.0)])
    assert ledger.releases() == [release(count=5), release(scale=7.0)]


def test_three_releases_cost_what_one_release_of_three_costs():
    with Ledger() as one, Ledger() as three:
        one.charge([release(count=3)])
        three.register([release(count=3)], plan="plan")
        for _ in range(3):
            three.charge([release()], plan="plan")
        assert one.spent(DELTA) == three.spent(DELTA)


def test_a_number_from_numpy_is_charged_like_any_other(ledger):
    ledger.allow(epsilon=np.float64(2.0), delta=np.float64(DELTA))
    ledger.charge([release(scale=np.float64(10.0))])
    assert ledger.spent() == epsilon_of(release())


VARIED = [
    release(),
    release(scale=3.0),
    release(scale=3.0, relation="replace", subject="records@oslo"),
    release(subject="records@oslo", count=4),
    release(law="laplace", scale=20.0, subject="records@bergen"),
    release(scale=5.0, unit="site", subject="sites"),
    release(scale=1.5, rate=0.01, count=20),
]


@settings(deadline=None, max_examples=20)
@given(st.lists(st.sampled_from(VARIED), min_size=1, max_size=8).flatmap(
    lambda rows: st.tuples(st.just(rows), st.permutations(rows))
))  # fmt: skip
def test_the_order_of_charges_does_not_change_what_is_spent(both):
    first, second = both
    with Ledger() as one, Ledger() as other:
        one.charge(first)
        other.register(first, plan="plan")
        for row in second:
            other.charge([row], plan="plan")
        assert one.spent(DELTA) == other.spent(DELTA) == epsilon_of(*first)
        assert other.spent_as_planned(DELTA) == other.spent(DELTA)


@settings(deadline=None, max_examples=20)
@given(st.lists(st.sampled_from(VARIED), min_size=1, max_size=5))
def test_what_is_spent_never_falls(rows):
    with Ledger() as ledger:
        spent = [0.0]
        for row in rows:
            ledger.charge([row])
            spent.append(ledger.spent(DELTA))
    # Bounds by grids may differ in the last digits that a grid resolves.
    assert all(after >= before * (1 - 1e-3) for before, after in pairwise(spent))


def test_disjoint_people_cost_their_maximum(ledger):
    ledger.charge([release(subject="records@oslo", count=4), release(subject="records@bergen")])
    assert ledger.spent(DELTA) == ledger.spent(DELTA, subject="records@oslo") == epsilon_of(release(count=4))
    assert ledger.spent(DELTA, subject="records@bergen") == epsilon_of(release())


def test_the_same_people_cost_the_sum_over_all_parties(ledger):
    ledger.charge([release(party=party) for party in ("oslo", "bergen", "tromso")])
    assert ledger.spent(DELTA) == epsilon_of(release(count=3))


def test_a_release_about_all_records_costs_those_of_each_party(ledger):
    ledger.charge([release(subject="records@oslo"), release(subject="records", count=2)])
    assert ledger.spent(DELTA, subject="records@oslo") == epsilon_of(release(count=3))


def test_a_release_about_all_records_costs_a_party_that_released_nothing_itself(ledger):
    ledger.charge([release(subject="records")])
    assert ledger.spent(DELTA, subject="records@oslo") == pytest.approx(epsilon_of(release()))


def test_a_release_about_whole_sites_costs_their_records(ledger):
    ledger.charge([release(unit="site", subject="sites")])
    assert ledger.spent(DELTA, subject="records@oslo") >= epsilon_of(release())


def test_a_subject_that_nothing_concerns_has_spent_nothing(ledger):
    ledger.charge([release(subject="records@oslo")])
    assert ledger.spent(DELTA, subject="records@bergen") == 0


def test_without_a_budget_the_usual_delta_is_taken(ledger):
    ledger.charge([release()])
    assert ledger.usual_delta() == 1e-5
    assert ledger.spent() == ledger.spent(subject="records") == ledger.spent(1e-5)


def test_without_a_budget_the_smallest_delta_that_a_plan_states_is_taken(ledger):
    ledger.charge([release()], plan="a", delta=1e-3)
    assert (ledger.usual_delta(), ledger.stated_deltas()) == (1e-3, [1e-3])
    ledger.charge([release()], plan="b", delta=1e-4)
    # Pure epsilon: a part of the total has delta 0, all of it has no price there.
    ledger.charge([release(law="laplace")], plan="c", delta=0)
    assert (ledger.usual_delta(), ledger.stated_deltas()) == (1e-4, [0, 1e-4, 1e-3])
    assert ledger.spent() == ledger.spent(1e-4) > ledger.spent(1e-3)
    # A plan that states none, as all of older versions, counts as 1e-5.
    ledger.owe([release()], ticket="d", plan="d")
    assert (ledger.usual_delta(), len(ledger.stated_deltas())) == (1e-5, 4)
    ledger.allow(epsilon=9, delta=1e-2)
    assert ledger.usual_delta() == 1e-2


def test_pure_plans_that_state_delta_zero_are_priced_there(ledger):
    ledger.owe([release(law="laplace")], ticket="a", plan="a", delta=0)
    ledger.charge([release(law="laplace")], plan="b", delta=0)
    assert (ledger.usual_delta(), ledger.spent()) == (0, pytest.approx(0.2))


def test_the_stated_delta_is_a_probability_of_a_plan_and_in_the_chain(path):
    with Ledger(path) as ledger:
        for delta in (-1e-9, 1.0, math.nan):
            with pytest.raises(InvalidValue, match="delta"):
                ledger.charge([release()], plan="a", delta=delta)
        with pytest.raises(InvalidValue, match="given with a plan"):
            ledger.charge([release()], delta=1e-4)
        assert len(ledger.entries()) == 1
        ledger.charge([release()], plan="a", delta=1e-4)
        # Charged again under the same plan, it states what it stated first.
        ledger.charge([release()], plan="a", delta=1e-9)
        assert ledger.usual_delta() == 1e-5
        assert ledger.stated_deltas() == [1e-5, 1e-4]
    with Ledger(path, mode="read") as ledger:
        (plan,) = (entry for entry in ledger.entries() if entry["kind"] == "plan")
        assert (plan["delta"], ledger.stated_deltas()) == (1e-4, [1e-5, 1e-4])


def test_spent_uses_the_delta_of_the_budget_unless_another_is_given(ledger):
    ledger.allow(epsilon=5, delta=1e-3)
    ledger.charge([release()])
    assert ledger.spent() == ledger.spent(1e-3) == accounting.epsilon([release()], 1e-3)
    assert ledger.spent(1e-9) > ledger.spent()


def test_spent_uses_the_delta_of_each_subject(ledger):
    ledger.allow(epsilon=5, delta=1e-3)
    ledger.allow(epsilon=5, delta=1e-9, subject="records@oslo")
    ledger.charge([release(subject="records@oslo"), release(subject="records@bergen")])
    assert ledger.spent(subject="records@oslo") == accounting.epsilon([release()], 1e-9)
    assert ledger.spent(subject="records@bergen") == accounting.epsilon([release()], 1e-3)
    assert ledger.spent() == ledger.spent(subject="records@oslo")


@pytest.mark.parametrize("delta", [-1e-9, 1.0, math.nan, "small"])
def test_a_delta_that_is_no_probability_is_refused(ledger, delta):
    ledger.charge([release()])
    with pytest.raises(InvalidValue, match="delta"):
        ledger.spent(delta)


def test_delta_zero_has_a_price_only_without_gaussian_noise(ledger):
    ledger.charge([release(law="laplace", count=3)])
    assert ledger.spent(0) == pytest.approx(0.3)
    ledger.charge([release()])
    assert ledger.spent(0) == math.inf


def test_a_budget_is_written_and_read_back(ledger):
    ledger.allow(epsilon=3, delta=DELTA)
    ledger.allow(epsilon=1, delta=1e-6, subject="records@oslo")
    assert ledger.budgets() == {"*": Budget(3, DELTA), "records@oslo": Budget(1, 1e-6)}
    assert [entry["kind"] for entry in ledger.entries()] == ["opened", "budget", "budget"]


def test_the_same_budget_again_writes_nothing(ledger):
    ledger.allow(epsilon=3, delta=DELTA)
    before = state(ledger)
    ledger.allow(epsilon=3, delta=DELTA)
    assert state(ledger) == before


@pytest.mark.parametrize(
    ("epsilon", "delta"),
    [(0, DELTA), (-1, DELTA), (math.inf, DELTA), (math.nan, DELTA), (1, 1.0), (1, -DELTA), (1, math.nan)],
)
def test_an_impossible_budget_is_refused_and_not_written(ledger, epsilon, delta):
    before = state(ledger)
    with pytest.raises(InvalidValue):
        ledger.allow(epsilon=epsilon, delta=delta)
    assert state(ledger) == before


def test_a_budget_may_be_spent_to_the_last_drop(ledger):
    ledger.allow(epsilon=epsilon_of(release(count=5)), delta=DELTA)
    ledger.register([release(count=5)], plan="plan")
    for _ in range(5):
        ledger.charge([release()], plan="plan")
    with pytest.raises(BudgetExhausted):
        ledger.charge([release()], plan="plan")
    assert ledger.spent() == ledger.budgets()["*"].epsilon


def test_a_refused_charge_changes_nothing(ledger):
    ledger.allow(epsilon=1, delta=DELTA)
    ledger.charge([release(count=2)])
    before = state(ledger)
    with pytest.raises(BudgetExhausted, match="budget of records exhausted") as refusal:
        ledger.charge([release(count=1000)])
    assert "1 is allowed; nothing was charged" in str(refusal.value)
    assert state(ledger) == before
    assert ledger.charge([release()])


@pytest.mark.parametrize("turned", [False, True])
def test_a_batch_is_charged_as_a_whole_or_not_at_all(ledger, turned):
    ledger.allow(epsilon=1, delta=DELTA)
    before = state(ledger)
    batch = [release(subject="records@oslo"), release(subject="records@bergen", count=1000)]
    with pytest.raises(BudgetExhausted, match="records@bergen"):
        ledger.charge(batch[::-1] if turned else batch)
    assert state(ledger) == before


def test_a_batch_whose_rows_fit_only_one_by_one_is_refused(ledger):
    ledger.allow(epsilon=epsilon_of(release(count=3)), delta=DELTA)
    before = state(ledger)
    with pytest.raises(BudgetExhausted):
        ledger.charge([release(purpose=f"round {number}") for number in range(4)])
    assert state(ledger) == before


def test_a_release_without_any_provable_price_fits_no_budget(ledger):
    ledger.allow(epsilon=1e9, delta=0)
    with pytest.raises(BudgetExhausted):
        ledger.charge([release()])


def test_a_subject_has_its_own_budget_and_the_star_stands_for_all_others(ledger):
    ledger.allow(epsilon=epsilon_of(release(count=2)), delta=DELTA)
    ledger.allow(epsilon=epsilon_of(release(count=4)), delta=DELTA, subject="records@oslo")
    ledger.charge([release(subject="records@oslo", count=4), release(subject="records@bergen", count=2)])
    for subject in ("records@oslo", "records@bergen"):
        with pytest.raises(BudgetExhausted, match=subject):
            ledger.charge([release(subject=subject)])
    assert ledger.charge([release(subject="records@tromso", count=2)])


def test_a_subject_without_any_budget_is_not_limited(ledger):
    ledger.allow(epsilon=0.1, delta=DELTA, subject="records@oslo")
    assert ledger.charge([release(subject="records@bergen", count=1000)])


def test_the_budget_of_a_part_binds_what_is_released_about_the_whole(ledger):
    ledger.allow(epsilon=0.1, delta=DELTA, subject="records@oslo")
    with pytest.raises(BudgetExhausted, match="records@oslo"):
        ledger.charge([release(subject="records", count=1000)])


def test_the_budget_of_records_binds_what_is_released_about_whole_sites(ledger):
    ledger.allow(epsilon=0.1, delta=DELTA, subject="records")
    with pytest.raises(BudgetExhausted, match="records"):
        ledger.charge([release(unit="site", subject="sites", count=1000)])


def test_a_release_about_the_whole_uses_up_the_budget_of_a_part(ledger):
    ledger.allow(epsilon=epsilon_of(release(count=3)), delta=DELTA, subject="records@oslo")
    ledger.charge([release(subject="records@oslo"), release(subject="records", count=2)])
    with pytest.raises(BudgetExhausted, match="records@oslo"):
        ledger.charge([release(subject="records")])


def test_a_later_budget_counts(ledger):
    ledger.allow(epsilon=epsilon_of(release(count=2)), delta=DELTA)
    ledger.charge([release(count=2)])
    with pytest.raises(BudgetExhausted):
        ledger.charge([release()])
    ledger.allow(epsilon=1.1 * epsilon_of(release(count=3)), delta=DELTA)
    assert ledger.charge([release()])


def test_a_budget_lowered_below_what_is_spent_refuses_everything_more(ledger):
    ledger.allow(epsilon=5, delta=DELTA)
    ledger.charge([release(count=3)])
    ledger.allow(epsilon=0.1, delta=DELTA)
    with pytest.raises(BudgetExhausted):
        ledger.charge([release(scale=1e6)])
    assert ledger.spent() == epsilon_of(release(count=3))


def test_a_check_charges_nothing(ledger):
    ledger.allow(epsilon=1, delta=DELTA)
    before = state(ledger)
    ledger.check([release()])
    with pytest.raises(BudgetExhausted):
        ledger.check([release(count=1000)])
    assert state(ledger) == before


def test_a_check_counts_what_was_charged_before(ledger):
    ledger.allow(epsilon=1.1 * epsilon_of(release(count=3)), delta=DELTA)
    ledger.check([release(count=3)])
    ledger.charge([release()])
    ledger.check([release(count=2)])
    with pytest.raises(BudgetExhausted):
        ledger.check([release(count=3)])


@pytest.fixture
def compositions(monkeypatch):
    """Count the calls of the accountant."""
    calls, real = [], accounting.is_within_budget
    monkeypatch.setattr(accounting, "is_within_budget", lambda *given: (calls.append(given), real(*given))[1])
    return calls


def test_a_plan_checked_as_a_whole_makes_its_charges_cheap(ledger, compositions):
    ledger.allow(epsilon=3, delta=DELTA)
    ledger.register([release(count=30), release(law="laplace", scale=50.0)], plan="plan")
    asked = len(compositions)
    assert asked > 0
    for number in range(30):
        ledger.charge([release(purpose=f"round {number}")], ticket=f"round {number}", plan="plan")
    ledger.charge([release(law="laplace", scale=50.0)], plan="plan")
    assert len(compositions) == asked


def test_what_goes_beyond_a_checked_plan_is_composed_again(ledger, compositions):
    ledger.allow(epsilon=epsilon_of(release(count=30)), delta=DELTA)
    ledger.check([release(count=10)])
    asked = len(compositions)
    ledger.charge([release(count=30)])
    assert len(compositions) > asked


def test_a_checked_plan_is_forgotten_when_the_budget_changes(ledger):
    ledger.allow(epsilon=5, delta=DELTA)
    ledger.check([release(count=30)])
    ledger.allow(epsilon=0.1, delta=DELTA)
    with pytest.raises(BudgetExhausted):
        ledger.charge([release()])


def test_the_same_ticket_pays_once(ledger):
    rows = [release(purpose="round 1"), release(scale=3.0)]
    assert ledger.charge(rows, ticket="round 1") is True
    before = state(ledger)
    assert ledger.charge(rows, ticket="round 1") is False
    assert state(ledger) == before


def test_without_a_ticket_the_same_releases_pay_twice(ledger):
    ledger.charge([release()])
    ledger.charge([release()])
    assert ledger.spent_as_planned(DELTA) == epsilon_of(release(count=2)) < ledger.spent(DELTA)


@pytest.mark.parametrize(
    "others",
    [
        [],
        [release()],
        [release(), release(scale=3.0), release()],
        [release(), release(scale=4.0)],
        [release(count=2), release(scale=3.0)],
        [release(purpose="other"), release(scale=3.0)],
        [release(subject="records@oslo"), release(scale=3.0)],
    ],
)
def test_a_ticket_pays_for_no_other_releases(ledger, others):
    ledger.charge([release(), release(scale=3.0)], ticket="round 1")
    before = state(ledger)
    with pytest.raises(Refused, match="'round 1' was charged for other releases"):
        ledger.charge(others, ticket="round 1")
    assert state(ledger) == before


def test_a_ticket_is_honoured_when_the_budget_is_exhausted(ledger):
    ledger.allow(epsilon=epsilon_of(release()), delta=DELTA)
    ledger.charge([release()], ticket="round 1")
    assert ledger.charge([release()], ticket="round 1") is False


def test_a_refused_charge_does_not_use_up_its_ticket(ledger):
    ledger.allow(epsilon=0.01, delta=DELTA)
    with pytest.raises(BudgetExhausted):
        ledger.charge([release()], ticket="round 1")
    ledger.allow(epsilon=1, delta=DELTA)
    assert ledger.charge([release()], ticket="round 1") is True


def test_a_ticket_is_honoured_by_the_next_process(path):
    with Ledger(path) as before:
        before.charge([release(scale=0.1 + 0.2, count=2)], ticket="round 1")
    with Ledger(path) as after:
        assert after.charge([release(scale=0.1 + 0.2, count=2)], ticket="round 1") is False
        with pytest.raises(Refused):
            after.charge([release()], ticket="round 1")


def test_a_reopened_ledger_is_the_same(path):
    with Ledger(path) as first:
        first.allow(epsilon=8, delta=DELTA)
        first.charge(VARIED)
        before = state(first)
    for mode in ("write", "read"):
        with Ledger(path, mode=mode) as again:
            assert state(again) == before


def test_what_several_runs_cost_the_same_people_adds_up(path):
    budget = 1.1 * epsilon_of(release(count=5))
    with Ledger(path) as run:
        run.allow(epsilon=budget, delta=DELTA)
        run.charge([release(count=3)], ticket="first run, round 1")
    with Ledger(path) as run:
        run.allow(epsilon=budget, delta=DELTA)
        run.charge([release(count=2)], ticket="second run, round 1")
        assert epsilon_of(release(count=5)) == run.spent_as_planned() < run.spent() <= budget
        with pytest.raises(BudgetExhausted, match="over plans chosen one after another"):
            run.charge([release()], ticket="second run, round 2")


def test_the_path_may_be_a_string(path):
    with Ledger(str(path)) as ledger:
        assert ledger.path == path


def test_a_path_with_strange_letters_is_one_file(tmp_path):
    path = tmp_path / "årlig? 100 % #1&mode=memory.db"
    with Ledger(path) as ledger:
        ledger.charge([release()])
    assert [file.name for file in tmp_path.iterdir()] == [path.name]
    assert verify(path, DELTA).events == 1


def test_a_ledger_in_memory_counts_and_leaves_no_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with Ledger() as ledger, Ledger() as other:
        ledger.allow(epsilon=epsilon_of(release()), delta=DELTA)
        ledger.charge([release()], ticket="round 1")
        assert ledger.charge([release()], ticket="round 1") is False
        with pytest.raises(BudgetExhausted):
            ledger.charge([release()])
        assert ledger.path is None
        assert ledger.spent() == epsilon_of(release())
        assert other.releases() == []
    assert list(tmp_path.iterdir()) == []


def test_a_closed_ledger_can_neither_be_charged_nor_read(path):
    ledger = Ledger(path)
    ledger.close()
    ledger.close()
    for use in (lambda: ledger.charge([release()]), lambda: ledger.spent(DELTA), ledger.entries):
        with pytest.raises(LedgerUnusable):
            use()


def test_a_ledger_used_from_another_thread_refuses_and_charges_nothing(ledger):
    caught = []

    def charge():
        try:
            ledger.charge([release()])
        except TacitError as error:
            caught.append(error)

    thread = threading.Thread(target=charge)
    thread.start()
    thread.join()
    assert [type(error) for error in caught] == [LedgerUnusable]
    assert ledger.spent(DELTA) == 0


def test_rows_are_numbered_timed_and_chained(ledger):
    ledger.allow(epsilon=8, delta=DELTA)
    ledger.charge(VARIED, ticket="all")
    entries = ledger.entries()
    assert [entry["number"] for entry in entries] == list(range(1, len(VARIED) + 3))
    times = [datetime.fromisoformat(entry["at"]) for entry in entries]
    assert all(time.tzinfo is not None for time in times)
    assert entries[-1]["hash"] == ledger.head


def test_anybody_can_recompute_the_chain(ledger):
    ledger.charge(VARIED)
    connection = sqlite3.connect(ledger.path)
    rows = connection.execute("SELECT number, body, hash FROM entries ORDER BY number").fetchall()
    connection.close()
    previous = hashlib.sha256(b"tacit ledger 1").digest()
    for number, body, digest in rows:
        previous = hashlib.sha256(previous + number.to_bytes(8, "big") + body.encode()).digest()
        assert digest == previous
    assert previous.hex() == ledger.head


def test_the_head_changes_with_every_row(ledger):
    heads = [ledger.head]
    ledger.allow(epsilon=8, delta=DELTA)
    heads.append(ledger.head)
    for _ in range(5):
        ledger.charge([release()])
        heads.append(ledger.head)
    assert len(set(heads)) == len(heads)


def test_two_ledgers_with_the_same_charges_have_different_heads():
    with Ledger() as one, Ledger() as other:
        assert one.head != other.head
        for ledger in (one, other):
            ledger.charge([release()])
        assert one.head != other.head


def test_the_export_is_one_json_object_per_row(ledger):
    ledger.allow(epsilon=8, delta=DELTA)
    ledger.charge([release(purpose="two\nlines, æøå", party='"oslo"'), *VARIED], ticket="all")
    stream = io.StringIO()
    ledger.export(stream)
    lines = stream.getvalue().split("\n")
    assert lines.pop() == ""
    assert [json.loads(line) for line in lines] == ledger.entries()


def test_rows_cannot_be_changed_or_deleted_by_hand(ledger):
    ledger.charge([release(), release()])
    before = state(ledger)
    connection = sqlite3.connect(ledger.path, isolation_level=None)
    for statement in (
        "UPDATE entries SET body = '{}'",
        "UPDATE entries SET number = 9 WHERE number = 3",
        "DELETE FROM entries",
        "DELETE FROM entries WHERE number = 3",
    ):
        with pytest.raises(sqlite3.IntegrityError, match="append-only"):
            connection.execute(statement)
    connection.close()
    assert state(ledger) == before


def test_rows_cannot_be_replaced_by_hand(ledger):
    ledger.charge([release(), release()])
    before = state(ledger)
    connection = sqlite3.connect(ledger.path, isolation_level=None)
    try:
        with pytest.raises(sqlite3.IntegrityError):
            connection.execute("INSERT OR REPLACE INTO entries VALUES (2, '{}', x'00')")
    finally:
        connection.close()
    assert state(ledger) == before


def test_a_sound_ledger_verifies(path):
    with Ledger(path) as ledger:
        ledger.allow(epsilon=8, delta=DELTA)
        ledger.charge([release(), release(count=3)])
        head = ledger.head
    found = verify(path)
    assert (found.events, found.valid, found.delta, found.head, found.problems) == (2, True, DELTA, head, ())
    assert found.epsilon == epsilon_of(release(count=4))


def test_verification_can_be_asked_for_another_delta(path):
    with Ledger(path) as ledger:
        ledger.allow(epsilon=8, delta=DELTA)
        ledger.charge([release()])
    found = verify(path, 1e-9)
    assert (found.delta, found.epsilon) == (1e-9, accounting.epsilon([release()], 1e-9))


def test_a_ledger_without_a_budget_can_be_verified(path):
    with Ledger(path) as ledger:
        ledger.charge([release()])
        head = ledger.head
    found = verify(path)
    assert (found.events, found.valid, found.head) == (1, True, head)


def test_the_epsilon_of_a_verification_holds_at_its_delta(path):
    with Ledger(path) as ledger:
        ledger.allow(epsilon=5, delta=1e-9)
        ledger.allow(epsilon=5, delta=1e-2, subject="records@oslo")
        ledger.charge([release(subject="records@oslo", count=10)])
    found = verify(path)
    assert found.delta is None or found.epsilon >= accounting.epsilon([release(count=10)], found.delta)


def test_an_empty_ledger_verifies(path):
    with Ledger(path):
        pass
    found = verify(path)
    assert (found.events, found.valid, found.epsilon) == (0, True, 0.0)


@pytest.fixture
def written(path):
    with Ledger(path) as ledger:
        ledger.allow(epsilon=8, delta=DELTA)
        ledger.charge([release()], ticket="round 1")
    return path


def files(folder: Path):
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def test_reading_changes_no_byte(written):
    before = files(written.parent)
    with Ledger(written, mode="read") as ledger:
        ledger.spent()
        ledger.check([release()])
        ledger.export(io.StringIO())
        assert ledger.verify().problems == ()
    verify(written)
    assert files(written.parent) == before


def test_opening_to_write_changes_no_byte_of_an_existing_ledger(written):
    before = files(written.parent)
    with Ledger(written) as ledger:
        ledger.spent()
    assert files(written.parent) == before


def test_a_ledger_opened_to_read_cannot_be_charged(written):
    before = files(written.parent)
    with Ledger(written, mode="read") as ledger:
        for write in (lambda: ledger.charge([release()]), lambda: ledger.allow(epsilon=9, delta=DELTA)):
            with pytest.raises(LedgerUnusable, match="cannot be written"):
                write()
        assert ledger.spent() == epsilon_of(release())
    assert files(written.parent) == before


def test_a_reader_sees_what_is_charged_after_it_opened(written):
    with Ledger(written, mode="read") as reader, Ledger(written) as writer:
        writer.charge([release()])
        assert reader.spent_as_planned() == epsilon_of(release(count=2))
        assert reader.head == writer.head


@pytest.mark.parametrize("mode", ["read", "write"])
def test_a_row_before_the_first_is_found_when_the_ledger_is_opened(written, mode):
    """No hash binds it, since rows are read by their numbers from 1 on: their count tells."""
    connection = sqlite3.connect(written, isolation_level=None)
    (guard,) = connection.execute("SELECT sql FROM sqlite_master WHERE name = 'follow'").fetchone()
    connection.execute("DROP TRIGGER follow")
    connection.execute("INSERT INTO entries VALUES (-1, '{}', x'00')")
    connection.execute(guard)
    connection.close()
    with pytest.raises(LedgerTampered, match="3 rows were written, 4 exist"):
        Ledger(written, mode=mode)


def test_an_unknown_mode_is_refused_and_makes_no_file(path):
    with pytest.raises(InvalidValue, match="mode"):
        Ledger(path, mode="reed")
    assert not path.exists()


def explain(path, mode):
    with pytest.raises(LedgerUnusable) as refusal:
        Ledger(path, mode=mode)
    message = str(refusal.value)
    assert message.startswith(f"ledger {path} cannot be opened: ")
    assert "\n" not in message
    return message.removeprefix(f"ledger {path} cannot be opened: ")


@pytest.mark.parametrize("mode", ["read", "write"])
def test_a_link_that_leads_to_itself_is_refused(path, mode):
    path.symlink_to(path)
    assert "symbolic links" in explain(path, mode)


@pytest.mark.parametrize("use", [verify, lambda path: Ledger(path, mode="read")])
def test_a_missing_file_cannot_be_read_and_is_not_made(path, use):
    with pytest.raises(LedgerUnusable, match="there is no such file"):
        use(path)
    assert not path.exists()


@pytest.mark.parametrize("mode", ["read", "write"])
def test_a_folder_is_no_ledger(tmp_path, mode):
    assert explain(tmp_path, mode)


@pytest.mark.parametrize("mode", ["read", "write"])
def test_a_missing_folder_is_named_and_not_made(tmp_path, mode):
    reason = explain(tmp_path / "absent" / "ledger.db", mode)
    assert mode == "read" or str(tmp_path / "absent") in reason
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("mode", ["read", "write"])
def test_a_path_through_a_file_is_no_ledger(written, mode):
    explain(written / "ledger.db", mode)


@pytest.mark.parametrize("mode", ["read", "write"])
def test_a_name_too_long_for_the_disk_is_no_ledger(tmp_path, mode):
    explain(tmp_path / ("x" * 300), mode)


@pytest.mark.parametrize("mode", ["read", "write"])
@pytest.mark.parametrize("content", [b"dear diary", b"SQLite format 3\x00", b"\x00" * 5000, b"x" * 5000])
def test_another_kind_of_file_is_no_ledger_and_stays_as_it_is(path, mode, content):
    path.write_bytes(content)
    explain(path, mode)
    assert files(path.parent) == {path.name: content}


@pytest.mark.parametrize("mode", ["read", "write"])
@pytest.mark.parametrize(
    "statements",
    [
        ["CREATE TABLE people (name TEXT)"],
        ["CREATE TABLE entries (number INTEGER PRIMARY KEY, body TEXT, hash BLOB)"],
        ["PRAGMA application_id = 7", "CREATE TABLE people (name TEXT)"],
    ],
)
def test_the_database_of_another_program_is_no_ledger_and_stays_as_it_is(path, mode, statements):
    connection = sqlite3.connect(path, isolation_level=None)
    for statement in statements:
        connection.execute(statement)
    connection.close()
    before = files(path.parent)
    assert "not a ledger" in explain(path, mode)
    assert files(path.parent) == before


def test_an_empty_file_cannot_be_read_and_stays_empty(path):
    path.touch()
    explain(path, "read")
    assert path.read_bytes() == b""


def test_an_empty_file_becomes_a_ledger_when_opened_to_write(path):
    path.touch()
    with Ledger(path) as ledger:
        ledger.charge([release()])
    assert verify(path, DELTA).valid


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="open files are counted by Linux alone")
@pytest.mark.parametrize("content", [b"", b"dear diary"])
def test_a_file_that_is_no_ledger_is_not_kept_open(path, content):
    path.write_bytes(content)
    with pytest.raises(LedgerUnusable) as refusal:
        Ledger(path, mode="read")
    # The refusal is still at hand, and with it whatever it holds on to.
    kept = [link.readlink() for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    assert refusal is not None
    assert path not in kept


def test_every_refusal_of_a_file_is_a_tacit_error():
    assert issubclass(LedgerUnusable, LedgerError)
    assert issubclass(LedgerTampered, LedgerError)
    assert issubclass(LedgerError, TacitError)


@pytest.mark.parametrize("subject", ["records@oslo ", "records@", "", "records@oslo@ward"])
def test_a_budget_whose_subject_no_release_can_have_is_refused(ledger, subject):
    with pytest.raises(InvalidValue, match="subject"):
        ledger.allow(epsilon=1, delta=1e-5, subject=subject)
    assert ledger.budgets() == {}


def test_what_is_owed_is_on_the_books_beyond_the_budget_and_leaves_room_for_nothing(tmp_path):
    one = Release(scale=1.0, sensitivity=1.0)
    with Ledger(tmp_path / "ledger.db") as ledger:
        ledger.allow(epsilon=5.0, delta=1e-5)
        ledger.charge([one], plan="plan")
        with pytest.raises(BudgetExhausted):
            ledger.charge([one, one], ticket="rest")
        assert ledger.owe([one, one], ticket="rest", plan="plan")
        assert not ledger.owe([one, one], ticket="rest", plan="plan")
        assert ledger.spent(1e-5) == pytest.approx(accounting.epsilon([one] * 3, 1e-5))
        with pytest.raises(BudgetExhausted):
            ledger.charge([Release(scale=1e6, sensitivity=1.0)])
    assert verify(tmp_path / "ledger.db").valid
