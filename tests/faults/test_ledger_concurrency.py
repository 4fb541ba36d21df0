"""Several processes charge one ledger at the same time: nothing is lost, and the budget holds."""

import json
import os
import time
from itertools import count

import pytest
from processes import forked

from tacit.errors import BudgetExhausted
from tacit.privacy import accounting
from tacit.privacy.accounting import filters
from tacit.privacy.accounting.release import Release, group_events
from tacit.privacy.ledger import store as module
from tacit.privacy.ledger.store import Ledger, verify

DELTA = 1e-5


def release(**fields):
    return Release(**{"scale": 10.0, "sensitivity": 1.0, **fields})


def spent(times, rows=1):
    """Price a number of charges, of several releases each, without the ledger."""
    if times == 1:
        return accounting.epsilon([release(count=rows)], DELTA)
    return filters.epsilon(
        group_events([release(count=times * rows)]), group_events([release(count=rows)]), DELTA
    )


def admitted(epsilon, rows=1):
    """Count the adaptively chosen charges that the budget admits, without the ledger."""
    return next(n for n in count() if spent(n + 1, rows) > epsilon)


def after(gate, work, report):
    """Wait for the gate to open, work, and write down what came of it."""

    def run():
        waiting, opening = gate
        os.close(opening)
        os.read(waiting, 1)
        report.write_text(json.dumps(work()))

    return run


def at_once(folder, *works, meanwhile=lambda: None):
    """Do all the works in processes of their own that start together; return what each returned."""
    gate = os.pipe()
    reports = [folder / f"report-{number}.json" for number in range(len(works))]
    processes = [forked(after(gate, work, report)) for work, report in zip(works, reports, strict=True)]
    for end in gate:
        os.close(end)
    try:
        meanwhile()
    finally:
        codes = [os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) for process in processes]
    assert codes == [0] * len(works)
    return [json.loads(report.read_text()) for report in reports]


def charging(path, name, *, times, rows=1):
    """Charge again and again, refused or not; return which charges were made and which refused."""

    def work():
        outcomes = {"charged": [], "refused": []}
        with Ledger(path) as ledger:
            for turn in range(times):
                ticket = f"{name}-{turn}"
                try:
                    assert ledger.charge([release(party=name)] * rows, ticket=ticket)
                    outcomes["charged"].append(ticket)
                except BudgetExhausted:
                    outcomes["refused"].append(ticket)
        return outcomes

    return work


def charged_rows(path):
    with Ledger(path, mode="read") as ledger:
        return [entry["ticket"] for entry in ledger.entries() if entry["kind"] == "release"]


@pytest.mark.parametrize(("processes", "rows"), [(2, 1), (4, 1), (4, 3)])
def test_processes_that_charge_at_once_lose_nothing_and_keep_the_budget(tmp_path, processes, rows):
    path, epsilon, times = tmp_path / "ledger.db", 1.6, 60 // (processes * rows)
    limit = admitted(epsilon, rows)
    assert 0 < limit < processes * times
    with Ledger(path) as ledger:
        ledger.allow(epsilon=epsilon, delta=DELTA)
    works = [charging(path, f"process {number}", times=times, rows=rows) for number in range(processes)]
    outcomes = at_once(tmp_path, *works)
    charged = [ticket for outcome in outcomes for ticket in outcome["charged"]]
    refused = [ticket for outcome in outcomes for ticket in outcome["refused"]]
    assert sorted(charged_rows(path)) == sorted(charged * rows)
    assert len(charged) == limit
    assert len(charged) + len(refused) == processes * times
    found = verify(path)
    assert found.valid
    assert found.events == limit * rows
    assert found.epsilon == spent(limit, rows) <= epsilon


def test_processes_that_race_for_the_last_charge_make_it_once(tmp_path):
    for number in range(8):
        path = tmp_path / f"{number}.db"
        with Ledger(path) as ledger:
            ledger.allow(epsilon=accounting.epsilon([release()], DELTA), delta=DELTA)
        outcomes = at_once(tmp_path, *[charging(path, f"process {process}", times=1) for process in range(4)])
        assert sum(len(outcome["charged"]) for outcome in outcomes) == 1
        assert verify(path).events == 1


def test_processes_that_share_a_ticket_pay_once(tmp_path):
    path = tmp_path / "ledger.db"
    with Ledger(path):
        pass

    def work():
        with Ledger(path) as ledger:
            return [ledger.charge([release()], ticket=f"round {turn}") for turn in range(10)]

    outcomes = at_once(tmp_path, work, work, work)
    assert [sum(turn) for turn in zip(*outcomes, strict=True)] == [1] * 10
    assert sorted(charged_rows(path)) == sorted(f"round {turn}" for turn in range(10))


def test_processes_that_make_the_same_ledger_at_once_make_one(tmp_path):
    for number in range(10):
        path = tmp_path / f"{number}.db"

        def work(path=path):
            with Ledger(path) as ledger:
                return [ledger.charge([release()]), ledger.entries()[0]["id"]]

        outcomes = at_once(tmp_path, *[work] * (2 if number % 2 else 4))
        with Ledger(path, mode="read") as ledger:
            kinds = [entry["kind"] for entry in ledger.entries()]
            identity = ledger.entries()[0]["id"]
        assert kinds == ["opened"] + ["release"] * len(outcomes)
        assert outcomes == [[True, identity]] * len(outcomes)
        assert verify(path, DELTA).valid


def test_a_budget_raised_by_one_process_counts_for_another(tmp_path):
    path = tmp_path / "ledger.db"
    with Ledger(path) as ledger:
        ledger.allow(epsilon=accounting.epsilon([release()], DELTA), delta=DELTA)
        ledger.charge([release()])
        with pytest.raises(BudgetExhausted):
            ledger.charge([release()])

    def raising():
        with Ledger(path) as other:
            other.allow(epsilon=spent(2), delta=DELTA)

    with Ledger(path) as ledger:
        at_once(tmp_path, raising)
        assert ledger.charge([release()])


def test_a_verification_during_charges_describes_one_instant(tmp_path):
    path, enough, seen = tmp_path / "ledger.db", tmp_path / "enough", []
    with Ledger(path) as ledger:
        ledger.allow(epsilon=1000, delta=DELTA)

    def work():
        with Ledger(path) as ledger:
            for _ in range(2000):
                if enough.exists():
                    break
                ledger.charge([release()])
                # A run works between its charges; a writer that never rests can starve a reader for seconds.
                time.sleep(0.002)

    def looking():
        try:
            seen.extend(verify(path) for _ in range(8))
        finally:
            enough.touch()

    at_once(tmp_path, work, meanwhile=looking)
    with Ledger(path, mode="read") as ledger:
        entries = ledger.entries()
    # The second row is the budget; each row after it is a release.
    events = {entry["hash"]: entry["number"] - 2 for entry in entries}
    assert all(found.valid for found in seen)
    assert [events[found.head] for found in seen] == [found.events for found in seen]
    assert [found.epsilon for found in seen if found.events] == [
        spent(found.events) for found in seen if found.events
    ]


class Overtaken:
    """A connection that another process overtakes whenever it lets go of the file."""

    def __init__(self, connection, overtake):
        self.connection, self.overtake = connection, overtake

    def execute(self, statement, *given):
        result = self.connection.execute(statement, *given)
        if statement == "COMMIT":
            self.overtake()
        return result

    def __getattr__(self, name):
        return getattr(self.connection, name)


def test_a_charge_in_the_middle_of_a_verification_is_in_all_of_it_or_in_nothing(tmp_path, monkeypatch):
    path, connect = tmp_path / "ledger.db", module.connect
    with Ledger(path) as other:
        other.allow(epsilon=5, delta=DELTA)
        other.charge([release()])
        monkeypatch.setattr(
            module, "connect", lambda *given: Overtaken(connect(*given), lambda: other.charge([release()]))
        )
        found = verify(path)
        events = {entry["hash"]: entry["number"] - 2 for entry in other.entries()}
    assert found.valid
    assert found.events == events[found.head]
    assert found.epsilon == spent(found.events)


def test_two_ledgers_of_one_file_in_one_process_take_turns(tmp_path):
    path = tmp_path / "ledger.db"
    with Ledger(path) as one, Ledger(path) as other:
        one.allow(epsilon=accounting.epsilon([release(count=10)], DELTA), delta=DELTA)
        one.register([release(count=10)], plan="both")
        for turn in range(10):
            (one if turn % 2 else other).charge([release()], ticket=f"round {turn}", plan="both")
            assert one.head == other.head
            assert one.spent() == other.spent() == accounting.epsilon([release(count=turn + 1)], DELTA)
        for ledger in (one, other):
            with pytest.raises(BudgetExhausted):
                ledger.charge([release()], plan="both")
            assert ledger.charge([release()], ticket="round 0", plan="both") is False
        assert one.entries() == other.entries()
    assert verify(path).events == 10


def test_a_plan_checked_by_one_ledger_does_not_hide_what_another_has_spent(tmp_path):
    path = tmp_path / "ledger.db"
    with Ledger(path) as one, Ledger(path) as other:
        one.allow(epsilon=accounting.epsilon([release(count=10)], DELTA), delta=DELTA)
        one.register([release(count=10)], plan="both")
        other.charge([release(count=9)], plan="both")
        one.charge([release()], plan="both")
        with pytest.raises(BudgetExhausted):
            one.charge([release()], plan="both")


def test_a_refused_charge_of_one_ledger_does_not_disturb_another(tmp_path):
    path = tmp_path / "ledger.db"
    with Ledger(path) as one, Ledger(path) as other:
        one.allow(epsilon=1, delta=DELTA)
        with pytest.raises(BudgetExhausted):
            one.charge([release(count=1000)])
        assert other.charge([release()])
        assert one.charge([release()])
        assert one.spent() == other.spent() == spent(2)
