"""A process is killed while it charges: the books open, are sound, and have paid for all releases."""

import os
import random
import signal
import time
from collections import Counter

import pytest
from processes import forked

from tacit.errors import LedgerUnusable
from tacit.privacy.accounting.release import Release
from tacit.privacy.ledger.store import Ledger, verify

KILLS = 200
ROWS = 2


def releases():
    return [Release(scale=50.0, sensitivity=1.0, purpose=f"part {part}") for part in range(ROWS)]


def started(work):
    """Fork a process that does `work` and tells of its progress; it ends with `work`, or when we are gone."""
    told, tell = os.pipe()

    def run():
        os.close(told)
        work(lambda: os.write(tell, b"."))

    process = forked(run)
    os.close(tell)
    return process, told


def killed(work, *, steps, delay):
    """Kill `work` after it told of so many steps, and a little later; return whether it was still alive."""
    process, told = started(work)
    try:
        for _ in range(steps):
            os.read(told, 1)
        time.sleep(delay)
    finally:
        os.kill(process, signal.SIGKILL)
        _, status = os.waitpid(process, 0)
        os.close(told)
    return os.WIFSIGNALED(status)


def charging(path, released, name, *, turns):
    """Charge, and only then release, some times over; then wait to be killed."""

    def work(tell):
        book = os.open(released, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        with Ledger(path) as ledger:
            for turn in range(turns):
                tell()
                ledger.charge(releases(), ticket=f"{name}-{turn}")
                os.write(book, f"{name}-{turn}\n".encode())
                os.fsync(book)
            signal.pause()

    return work


def pace(folder):
    """Measure the seconds to create and charge a ledger here: kills are spread over that time."""
    start = time.perf_counter()
    with Ledger(folder / "pace.db") as ledger:
        made = time.perf_counter()
        for _ in range(3):
            ledger.charge(releases())
    charged = (time.perf_counter() - made) / 3
    return min(made - start, 0.05), min(charged, 0.03)


def paid(path):
    """Count the rows of each ticket."""
    with Ledger(path) as ledger:
        return Counter(entry["ticket"] for entry in ledger.entries() if entry["kind"] == "release")


@pytest.mark.slow
def test_a_ledger_killed_at_any_instant_opens_and_has_paid_for_everything_released(tmp_path):
    path, released, journal = tmp_path / "ledger.db", tmp_path / "released", tmp_path / "ledger.db-journal"
    with Ledger(path) as ledger:
        ledger.allow(epsilon=1000, delta=1e-5)
    released.touch()
    chance, interrupted, (_, charge) = random.Random(20), 0, pace(tmp_path)
    for number in range(KILLS):
        steps, delay = chance.choice([0, 1, 2, 2, 3]), chance.uniform(0, 1.5 * charge)
        assert killed(charging(path, released, number, turns=steps + 2), steps=steps, delay=delay)
        interrupted += journal.exists()
        # Read first: a reader, too, must cope with what a killed writer left behind.
        found = verify(path)
        assert found.valid
        assert found.problems == ()
        tickets, out = paid(path), released.read_text().split()
        assert set(out) <= set(tickets), "something was released that was not charged"
        assert len(tickets) <= len(out) + number + 1, "a kill wastes one charge at most"
        assert set(tickets.values()) <= {ROWS}, "a charge was written in part"
        assert found.events == tickets.total()
    # A good share of the kills came in the middle of the work, and of a charge.
    assert len({ticket.partition("-")[0] for ticket in out}) > KILLS * 2 // 5
    assert interrupted > KILLS // 20


def test_a_ledger_killed_while_it_is_made_can_be_made_again(tmp_path):
    chance, outcomes, (make, charge) = random.Random(21), Counter(), pace(tmp_path)
    for number in range(30):
        path = tmp_path / f"{number}.db"

        def making(tell, path=path):
            tell()
            with Ledger(path) as ledger:
                ledger.charge(releases())
                tell()
                signal.pause()

        assert killed(making, steps=chance.choice([1, 1, 1, 2]), delay=chance.uniform(0, make + charge))
        try:
            outcomes[verify(path, 1e-5).events] += 1
        except LedgerUnusable:
            outcomes["nothing yet"] += 1
        with Ledger(path) as ledger:
            ledger.charge(releases())
        found = verify(path, 1e-5)
        assert found.valid
        assert found.events in (ROWS, 2 * ROWS)
    assert len(outcomes) > 1, "the kills came too early or too late"


def test_the_charge_that_a_kill_cut_short_is_charged_again_under_its_ticket(tmp_path):
    """A resumed run pays once for each round, whether or not the kill came before the charge was done."""
    path, chance, (_, charge) = tmp_path / "ledger.db", random.Random(22), pace(tmp_path)
    with Ledger(path):
        pass
    for number in range(30):

        def work(tell, number=number):
            with Ledger(path) as ledger:
                tell()
                ledger.charge(releases(), ticket=f"round {number}")
                tell()
                signal.pause()

        assert killed(work, steps=1, delay=chance.uniform(0, 1.5 * charge))
        with Ledger(path) as resumed:
            resumed.charge(releases(), ticket=f"round {number}")
    assert paid(path) == {f"round {number}": ROWS for number in range(30)}
