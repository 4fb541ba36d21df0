"""The fault matrix, rows 1 to 14 and 50: the server is killed, its disk fails, its clock jumps.

Each row of the matrix is one test of its number. Other rows: `test_fault_matrix_books` (15 to 18, 47 to 49),
`test_fault_matrix_sites` (19 to 29 and 33 to 40), `test_fault_matrix_messages` (25, 30 to 32 and 41 to 46).
"""

import errno
import itertools
import os
import shutil
import signal
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from processes import forked
from test_ledger_disk import ended, killed_while_charging
from test_run_kill import (
    FEDERATION,
    PRIVATE,
    SOLVED,
    TASK,
    Trial,
    assert_paid_before_it_was_let_out,
    assert_same,
    killed_again_and_again,
    planned,
    started,
)

from tacit import Open, fit
from tacit.aggregation.mean import Mean
from tacit.cli.output import INTERRUPTED, handle_errors
from tacit.engines.base import Local
from tacit.errors import LedgerTampered, LedgerUnusable, RunUnusable
from tacit.privacy import policy
from tacit.privacy.accounting.release import Release
from tacit.privacy.ledger import store as books
from tacit.privacy.ledger.store import Ledger, verify
from tacit.runs.directory import LEDGER, ROUNDS, STATE, Directory
from tacit.runtime import files

# Nothing is solved for and nothing is limited: what is paid twice is seen, not refused.
UNLIMITED = replace(PRIVATE, epsilon=None, delta=1e-5, noise_multiplier=6.0)


@pytest.fixture(autouse=True)
def solved_once(monkeypatch):
    monkeypatch.setattr(policy, "calibrate", SOLVED)


@pytest.fixture
def made(tmp_path):
    """New private trials, each in a place of its own."""
    numbers = itertools.count()
    return lambda privacy=PRIVATE, rounds=3: Trial(
        tmp_path / f"run-{next(numbers)}", {"privacy": privacy, "rounds": rounds}
    )


def killed_at(trial, owner, name, when, *, after=False):
    """Kill the run just before, or just after, the first such call."""

    def work():
        real = getattr(owner, name)

        def call(*given, **named):
            hit = when(*given)
            if hit and not after:
                os.kill(os.getpid(), signal.SIGKILL)
            found = real(*given, **named)
            if hit:
                os.kill(os.getpid(), signal.SIGKILL)
            return found

        setattr(owner, name, call)
        trial.go()

    assert ended(forked(work)) == -signal.SIGKILL, "the run was not killed"


def is_charge_of_round_2(ledger, releases):
    return any(release.purpose == "round 2" for release in releases)


def is_round_2(*given):
    return given[-1].path[0] == 2


def resumed_as_if_nothing_had_happened(trial, whole):
    assert_paid_before_it_was_let_out(trial)
    assert_same(trial, trial.go(), whole)
    assert_paid_before_it_was_let_out(trial)
    assert trial.paid() == planned(trial.choices["rounds"])


def test_row_01_a_run_killed_before_a_charge_pays_once_and_ends_the_same(made):
    trial = made()
    killed_at(trial, Ledger, "charge", is_charge_of_round_2)
    assert not any(purpose == "round 2" for purpose, _ in trial.paid())
    resumed_as_if_nothing_had_happened(trial, made().go())


def test_row_02_a_run_killed_after_a_charge_pays_again_only_for_another_question(made, monkeypatch):
    trial, other = made(), made(UNLIMITED)
    for each in (trial, other):
        killed_at(each, Local, "train", is_round_2)
        assert {("round 2", name) for name in FEDERATION} <= set(each.paid())
    resumed_as_if_nothing_had_happened(trial, made().go())
    # On another machine sums may differ in their last bit: the noise must be another, and so must the charge.
    monkeypatch.setattr("tacit.runs.context.machine", lambda: "another")
    other.go()
    assert {other.paid()["round 2", name] for name in FEDERATION} == {2}
    assert {other.paid()["round 3", name] for name in FEDERATION} == {1}


def test_row_03_what_was_let_out_before_a_kill_is_let_out_again_byte_for_byte(made):
    trial = made()
    killed_at(trial, Local, "train", is_round_2, after=True)
    resumed_as_if_nothing_had_happened(trial, made().go())
    # Killed after the noise was drawn and before anybody noted it: the second time is the first one noted.
    again = made()
    killed_at(again, Directory, "write_round", lambda self, entry: entry.number == 2)
    resumed_as_if_nothing_had_happened(again, made().go())
    told = [digest for number, digest in again.noted("let out") if number == 2]
    assert len(told) == 2
    assert len({*told, *(digest for number, digest in trial.noted("let out") if number == 2)}) == 1


def test_row_04_a_run_killed_between_release_and_checkpoint_does_the_round_again(made):
    trial = made()
    killed_at(trial, Directory, "write_checkpoint", lambda self, point: point.finished == 2)
    assert Directory(trial.out).checkpoint().finished == 1
    assert len(Directory(trial.out).rounds()) == 2
    resumed_as_if_nothing_had_happened(trial, made().go())


@pytest.mark.parametrize("written", ["half", "all"])
def test_row_05_a_run_killed_inside_a_checkpoint_uses_the_old_one(made, written):
    trial, turns = made(), itertools.count()

    def is_third_state(target, content, mode):
        if target.name != STATE or next(turns) < 2:
            return False
        part = target.with_name(f".{target.name}.part")
        part.write_bytes(content[: len(content) // 2] if written == "half" else content)
        return True

    killed_at(trial, files, "replace", is_third_state)
    assert (trial.out / f".{STATE}.part").exists()
    assert Directory(trial.out).checkpoint().finished == 1
    resumed_as_if_nothing_had_happened(trial, made().go())


def test_row_06_a_torn_tail_of_the_books_is_undone(made):
    trial = made(UNLIMITED)
    killed_at(trial, Directory, "write_checkpoint", lambda self, point: point.finished == 2)
    # Half a charge in the file, and half a line in the list of rounds.
    killed_while_charging(trial.out / LEDGER)
    assert (trial.out / f"{LEDGER}-journal").exists()
    with (trial.out / ROUNDS).open("ab") as rounds:
        rounds.write(b'{"number":3,"rou')
    resumed_as_if_nothing_had_happened(trial, made(UNLIMITED).go())


def test_row_07_a_flipped_byte_or_a_missing_row_stops_the_run(made):
    for damage in ("flip", "remove"):
        trial = made()
        killed_at(trial, Local, "train", is_round_2)
        if damage == "flip":
            data = bytearray((trial.out / LEDGER).read_bytes())
            data[data.rindex(b'"purpose":"round 1"') + 17] ^= 1
            (trial.out / LEDGER).write_bytes(data)
        else:
            _remove_a_row(trial.out / LEDGER)
        before = (trial.out / LEDGER).read_bytes()
        with pytest.raises(LedgerTampered, match=rf"{trial.out}/{LEDGER} cannot be opened"):
            trial.go()
        assert (trial.out / LEDGER).read_bytes() == before


def _remove_a_row(path):
    import sqlite3

    with sqlite3.connect(path) as connection:
        connection.execute("DROP TRIGGER remain")
        connection.execute("DELETE FROM entries WHERE number = 4")
    connection.close()


def test_row_08_a_ledger_older_than_the_checkpoint_is_refused(made, tmp_path):
    trial, older, newer = made(), tmp_path / "older.db", tmp_path / "newer.db"
    killed_at(trial, Ledger, "charge", is_charge_of_round_2)
    shutil.copy(trial.out / LEDGER, older)
    killed_at(trial, Local, "train", lambda *given: given[-1].path[0] == 3)
    shutil.move(trial.out / LEDGER, newer)
    # A backup that is sound in itself, restored.
    shutil.copy(older, trial.out / LEDGER)
    assert verify(older).valid
    with pytest.raises(RunUnusable, match=r"lacks what was charged before round 3; restore the newer"):
        trial.go()
    shutil.copy(newer, trial.out / LEDGER)
    resumed_as_if_nothing_had_happened(trial, made().go())


def test_row_09_a_second_trainer_on_one_run_is_refused(made):
    trial = made()
    with started(trial) as (process, begin):
        try:
            begin()
            os.kill(process, signal.SIGSTOP)
            with pytest.raises(RunUnusable, match="is running in another process: wait for it, or stop it"):
                trial.go()
        finally:
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)
    resumed_as_if_nothing_had_happened(trial, made().go())


def failing_at(patch, number, error):
    """Let one of the steps fail that put something on disk, the tests' own notes aside; count them all."""
    calls = []

    def counted(real):
        def call(first, *others):
            if not str(os.readlink(f"/proc/self/fd/{first}") if real is os_fsync else first).endswith(
                ".book"
            ):
                calls.append(real)
                if len(calls) == number:
                    raise OSError(error, os.strerror(error))
            return real(first, *others)

        return call

    os_fsync = os.fsync
    for name in ("fsync", "replace"):
        patch.setattr(os, name, counted(getattr(os, name)))
    return calls


def stopped(trial, patch, number, error):
    """Run until a write fails; return what is said, or nothing when there are not so many writes."""
    calls = failing_at(patch, number, error)
    try:
        trial.go()
    except (RunUnusable, LedgerUnusable) as refusal:
        # After a failed sync the disk may say that all is well: it is not asked again.
        return str(refusal) if len(calls) == number else "it was tried again"
    return ""


def test_row_10_a_disk_that_fails_at_any_write_stops_the_run_and_loses_nothing(made, monkeypatch):
    whole, said = made(rounds=1).go(), []
    for number in itertools.count(1):
        trial, error = made(rounds=1), (errno.ENOSPC, errno.EIO)[number % 2]
        with monkeypatch.context() as patch:
            said.append(stopped(trial, patch, number, error))
        if not said[-1]:
            break
        assert os.strerror(error) in said[-1]
        assert_paid_before_it_was_let_out(trial)
        if number % 3 == 0:
            resumed_as_if_nothing_had_happened(trial, whole)
    assert len(said) > 15


def test_row_11_a_sync_that_fails_is_taken_for_a_crash_and_not_tried_again(made, monkeypatch):
    trial = made()
    with monkeypatch.context() as patch:
        assert "Input/output error; what was written before is intact" in stopped(trial, patch, 9, errno.EIO)
    resumed_as_if_nothing_had_happened(trial, made().go())


def test_row_12_a_clock_that_jumps_changes_no_order_and_no_price(tmp_path, monkeypatch):
    jumps = itertools.cycle([0, 400, -4000, 12, -1])

    class Jumping:
        @staticmethod
        def now(zone):
            return datetime.now(UTC) + timedelta(days=next(jumps))

    releases = [Release(scale=20.0, sensitivity=1.0, purpose=f"round {number}") for number in range(5)]
    with Ledger(tmp_path / "steady.db") as steady, Ledger(tmp_path / "jumping.db") as jumping:
        for release in releases:
            steady.charge([release])
            with monkeypatch.context() as patch:
                patch.setattr(books, "datetime", Jumping)
                jumping.charge([release])
        rows = [entry for entry in jumping.entries() if entry["kind"] == "release"]
        assert [row["purpose"] for row in rows] == [release.purpose for release in releases]
        assert [row["at"] for row in rows] != sorted(row["at"] for row in rows), "the clock did not jump"
        assert jumping.verify().problems == ()
        assert jumping.spent() == steady.spent()


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "SIGTERM"])
def test_row_13_a_run_told_to_stop_in_a_round_can_be_resumed(made, how, capfd):
    trial = made()
    told, tell = os.pipe()

    def work():
        signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            with handle_errors(json=False, debug=False):
                trial.go(lambda: os.write(tell, b".") and signal.pause())
        except SystemExit as left:
            os._exit(left.code)

    process = forked(work)
    os.read(told, 1)
    os.kill(process, how)
    code = ended(process)
    for end in (told, tell):
        os.close(end)
    assert code == (INTERRUPTED if how == signal.SIGINT else -signal.SIGTERM)
    resumed_as_if_nothing_had_happened(trial, made().go())


@dataclass(frozen=True, kw_only=True)
class Greedy(Mean):
    """A mean that has no memory left in the second round."""

    def __call__(self, updates, *, sites=None):
        if updates.round == 2:
            raise MemoryError
        return super().__call__(updates, sites=sites)


def test_row_14_a_round_without_memory_to_combine_it_fails_and_changes_nothing():
    states = []

    class Watching(Local):
        def train(self, *given):
            states.append(given[2])
            return super().train(*given)

    run = fit(TASK, FEDERATION, privacy=Open(), aggregation=Greedy(), engine=Watching(), rounds=3, seed=1)
    skipped = [entry.skipped for entry in run.record.rounds]
    assert skipped == [None, "not enough memory to combine the updates", None]
    assert np.array_equal(states[1], states[2])
    assert not np.array_equal(run.state, states[2])


def soak(tmp_path, kills):
    """Promises 1 to 3 under kills at random instants: paid before, paid once, the same model."""
    numbers = itertools.count()
    trials = (
        Trial(tmp_path / f"run-{next(numbers)}", {"privacy": PRIVATE, "rounds": 5}) for _ in itertools.count()
    )
    chains = killed_again_and_again(trials, kills=kills, seed=50)
    assert sum(map(len, chains)) >= kills


@pytest.mark.slow
def test_row_50_twenty_kills_at_random_instants_change_nothing(tmp_path):
    soak(tmp_path, 20)


@pytest.mark.slow
def test_row_50_two_hundred_kills_at_random_instants_change_nothing(tmp_path):
    soak(tmp_path, 200)
