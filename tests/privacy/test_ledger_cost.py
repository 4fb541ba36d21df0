"""The time to write a charge does not grow with earlier charges."""

import pytest

from tacit.errors import LedgerTampered
from tacit.privacy.accounting import filters
from tacit.privacy.accounting.release import Release, clipped_release
from tacit.privacy.ledger.plans import Plans
from tacit.privacy.ledger.store import Ledger

DELTA = 1e-5


def steps_of(ledger, work):
    """Count the steps of SQLite's machine for some work, in tens."""
    taken = []
    ledger._connection.set_progress_handler(lambda: taken.append(1) and None, 10)
    try:
        work()
    finally:
        ledger._connection.set_progress_handler(None, 0)
    return len(taken)


@pytest.mark.parametrize("planned", [True, False])
def test_a_charge_takes_as_many_steps_of_the_database_however_many_rows_there_are(tmp_path, planned):
    name = "run" if planned else None
    with Ledger(tmp_path / "ledger.db") as ledger:
        ledger.allow(epsilon=50.0, delta=DELTA)
        ledger.register([clipped_release(30.0, count=10_000)], plan="run")

        def pay():
            ledger.charge([clipped_release(30.0)], plan=name)

        pay()
        early = max(steps_of(ledger, pay) for _ in range(5))
        ledger.charge([clipped_release(30.0)] * 1_500, plan=name)
        late = max(steps_of(ledger, pay) for _ in range(5))
    assert 0 < late <= 2 * early


def test_a_charge_looks_at_its_own_releases_alone_however_many_there_were(monkeypatch):
    """Kinds all differ, so that nothing can be counted together."""
    looked = []
    real = filters.divergence
    with Ledger() as ledger:
        ledger.allow(epsilon=20.0, delta=DELTA)
        for number in range(300):
            ledger.charge([Release(scale=100.0 + number, sensitivity=1.0)])
        monkeypatch.setattr(filters, "divergence", lambda *given: (looked.append(given), real(*given))[1])
        ledger.charge([Release(scale=99.0, sensitivity=1.0)])
    # Once for the check, once for the sum.
    assert len(looked) <= 4


def test_charges_within_a_plan_compose_nothing(monkeypatch):
    with Ledger() as ledger:
        ledger.allow(epsilon=3.0, delta=DELTA)
        plan = [clipped_release(2.0 + number, rate=0.1, count=3) for number in range(5)]
        ledger.register(plan, plan="run")
        monkeypatch.setattr("tacit.privacy.accounting.is_within_budget", None)
        for release in plan * 3:
            ledger.charge([clipped_release(release.multiplier, rate=0.1)], plan="run")


def test_a_refused_charge_does_not_read_the_ledger_again(tmp_path, monkeypatch):
    with Ledger(tmp_path / "ledger.db") as ledger:
        ledger.allow(epsilon=2.0, delta=DELTA)
        ledger.charge([Release(scale=50.0, sensitivity=1.0)] * 200)
        added = []
        real = Plans.add
        monkeypatch.setattr(Plans, "add", lambda *given, **named: (added.append(1), real(*given, **named)))
        for _ in range(3):
            with pytest.raises(Exception, match="exhausted"):
                ledger.charge([Release(scale=0.1, sensitivity=1.0)])
        assert ledger.spent() > 0
    assert added == []


@pytest.mark.parametrize("also", [False, True], ids=["rows alone", "and their number"])
def test_a_tail_that_is_cut_off_while_a_ledger_is_open_is_missed_by_the_next_charge(tmp_path, also):
    import sqlite3

    path = tmp_path / "ledger.db"
    with Ledger(path) as ledger:
        for _ in range(5):
            ledger.charge([Release(scale=50.0, sensitivity=1.0)])
        with sqlite3.connect(path) as other:
            other.execute("DROP TRIGGER remain")
            other.execute("DELETE FROM entries WHERE number > 4")
            if also:
                other.execute("PRAGMA user_version = 4")
        other.close()
        with pytest.raises(LedgerTampered, match="rows were written"):
            ledger.charge([Release(scale=50.0, sensitivity=1.0)])
