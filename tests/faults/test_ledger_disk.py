"""The disk is full, the file is locked, moved or half-written: a charge fails as a whole and says why."""

import os
import resource
import shutil
import signal
import sqlite3
from contextlib import closing, contextmanager, suppress

import pytest
from processes import forked

from tacit.errors import LedgerUnusable
from tacit.privacy import accounting
from tacit.privacy.accounting.release import Release
from tacit.privacy.ledger import store as module
from tacit.privacy.ledger.plans import Plans
from tacit.privacy.ledger.store import Ledger, verify

DELTA = 1e-5
SOME = 60


def release(**fields):
    return Release(**{"scale": 20.0, "sensitivity": 1.0, **fields})


def many(times=SOME):
    """Releases that fill several pages."""
    return [release(purpose=f"round {number}") for number in range(times)]


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "ledger.db"
    with Ledger(path) as ledger:
        ledger.allow(epsilon=50, delta=DELTA)
        ledger.charge([release()], ticket="round 0")
    return path


def ended(process):
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def failing(path, use):
    """Return the refusal of a ledger that cannot be written: one sentence that names the file."""
    with pytest.raises(LedgerUnusable) as refusal:
        use()
    message = str(refusal.value)
    assert message.startswith(f"ledger {path} cannot be ")
    assert "\n" not in message
    return message


@contextmanager
def limited(size):
    """No file of this process may grow beyond `size`: the disk is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


def test_a_charge_is_synced_to_the_file_and_its_folder_before_it_returns(path):
    with Ledger(path) as ledger:
        extra, journal = 3, b"delete"
        assert ledger._connection.execute("PRAGMA synchronous").fetchone() == (extra,)
        assert ledger._connection.execute("PRAGMA journal_mode").fetchone() == (journal,)


def test_a_charge_that_does_not_fit_on_the_disk_changes_nothing(path):
    before = path.read_bytes()
    with Ledger(path) as ledger:
        head, spent = ledger.head, ledger.spent()
        (pages,) = ledger._connection.execute("PRAGMA page_count").fetchone()
        ledger._connection.execute(f"PRAGMA max_page_count = {pages}")
        assert "full" in failing(path, lambda: ledger.charge(many(), ticket="round 1"))
        assert (ledger.head, ledger.spent()) == (head, spent)
        assert path.read_bytes() == before
        assert verify(path).valid
        assert ledger.charge([release()], ticket="small enough")
        ledger._connection.execute("PRAGMA max_page_count = 1000000")
        assert ledger.charge(many(), ticket="round 1") is True
        assert ledger.spent_as_planned() == accounting.epsilon([release(count=SOME + 2)], DELTA)
    assert verify(path).valid


@pytest.mark.parametrize("cache", [100, 2])
def test_a_disk_that_is_full_at_any_point_of_a_charge_leaves_a_sound_ledger(path, cache):
    """The limit hits the journal or the ledger; with a small cache also before the charge is complete."""

    def work():
        outcomes = []
        with Ledger(path) as ledger:
            ledger._connection.execute(f"PRAGMA cache_size = {cache}")
            for step in range(40):
                before = ledger.head, path.read_bytes()
                try:
                    with limited(step * 2048):
                        ledger.charge(many(), ticket=f"attempt {step}")
                    outcomes.append("charged")
                except LedgerUnusable:
                    assert (ledger.head, path.read_bytes()) == before
                    outcomes.append("refused")
                found = verify(path)
                assert found.valid
                assert found.events == 1 + SOME * outcomes.count("charged")
            assert outcomes.count("refused") >= 20
            assert outcomes.count("charged") >= 2
            assert ledger.charge([release()]) is True

    assert ended(forked(work)) == 0
    assert verify(path).valid


def test_a_ledger_that_cannot_be_made_on_a_full_disk_can_be_made_later(tmp_path):
    def work():
        for size in (0, 100, 512, 2048, 4096, 6000):
            path = tmp_path / f"{size}.db"
            with limited(size):
                failing(path, lambda path=path: Ledger(path))
            with Ledger(path) as ledger:
                assert ledger.charge([release()])
            assert verify(path, DELTA).valid

    assert ended(forked(work)) == 0


def test_a_ledger_on_a_full_disk_can_still_be_read(path):
    def work():
        with limited(0):
            assert verify(path).events == 1
            with Ledger(path) as ledger:
                assert ledger.charge([release()], ticket="round 0") is False

    assert ended(forked(work)) == 0


@contextmanager
def locked(path, how):
    """Another process holds the file."""
    held, hold = os.pipe()
    freed, free = os.pipe()

    def work():
        os.close(free)
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute(f"BEGIN {how}")
            os.write(hold, b".")
            os.read(freed, 1)

    process = forked(work)
    os.close(hold)
    os.close(freed)
    try:
        assert os.read(held, 1) == b"."
        yield
    finally:
        os.close(free)
        os.close(held)
        assert ended(process) == 0


def test_a_ledger_that_stays_locked_cannot_be_opened(path, monkeypatch):
    monkeypatch.setattr(module, "WAIT_SECONDS", 0.05)
    with locked(path, "EXCLUSIVE"):
        for mode in ("write", "read"):
            assert "locked" in failing(path, lambda mode=mode: Ledger(path, mode=mode))
        failing(path, lambda: verify(path))
    assert verify(path).valid


@pytest.mark.parametrize("how", ["EXCLUSIVE", "IMMEDIATE"])
def test_a_ledger_that_is_locked_by_another_is_charged_when_it_is_free(path, monkeypatch, how):
    monkeypatch.setattr(module, "WAIT_SECONDS", 0.05)
    with Ledger(path) as ledger:
        with locked(path, how):
            message = failing(path, lambda: ledger.charge([release()], ticket="round 1"))
            assert "cannot be written" in message
            assert "locked" in message
            if how == "IMMEDIATE":
                assert ledger.spent() == accounting.epsilon([release()], DELTA)
        assert ledger.charge([release()], ticket="round 1") is True
        assert ledger.spent_as_planned() == accounting.epsilon([release(count=2)], DELTA)
    assert verify(path).valid


def test_a_charge_that_a_reader_holds_up_too_long_changes_nothing(path, monkeypatch):
    monkeypatch.setattr(module, "WAIT_SECONDS", 0.05)
    with Ledger(path) as ledger, closing(sqlite3.connect(path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM entries").fetchone()
        assert "locked" in failing(path, lambda: ledger.charge([release()]))
        reader.execute("ROLLBACK")
        assert ledger.spent() == accounting.epsilon([release()], DELTA)
        assert ledger.charge([release()])
    assert verify(path).events == 2


def test_an_interrupted_charge_changes_nothing_and_frees_the_file(path, monkeypatch):
    with Ledger(path) as ledger, Ledger(path) as other:
        before = path.read_bytes(), ledger.head

        def interrupted(*given):
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(Plans, "can_afford", interrupted)
            with pytest.raises(KeyboardInterrupt):
                ledger.charge([release(count=1000)])
        assert (path.read_bytes(), ledger.head) == before
        assert other.charge([release()])
        assert ledger.charge([release()])
    assert verify(path).events == 3


class Interrupted:
    """A connection during whose wait for the lock somebody pressed Ctrl-C: Python raises when it is taken."""

    def __init__(self, connection):
        self.connection = connection

    def execute(self, statement, *given):
        result = self.connection.execute(statement, *given)
        if statement.startswith("BEGIN"):
            raise KeyboardInterrupt
        return result

    @property
    def in_transaction(self):
        return self.connection.in_transaction


def test_an_interrupt_just_as_the_lock_is_taken_frees_the_file(path, monkeypatch):
    monkeypatch.setattr(module, "WAIT_SECONDS", 0.05)
    with Ledger(path) as ledger, Ledger(path) as other:
        with monkeypatch.context() as patch:
            patch.setattr(ledger, "_connection", Interrupted(ledger._connection))
            with pytest.raises(KeyboardInterrupt):
                ledger.charge([release()])
        assert other.charge([release()])
        assert ledger.charge([release()])


@pytest.mark.parametrize("replaced", [False, True])
def test_a_ledger_whose_file_was_taken_away_cannot_be_charged(path, tmp_path, replaced):
    """Rows written to a deleted file are not on disk."""
    with Ledger(path) as ledger:
        if replaced:
            shutil.copy(path, tmp_path / "copy.db")
            os.replace(tmp_path / "copy.db", path)
        else:
            path.unlink()
        failing(path, lambda: ledger.charge([release()]))
    assert not path.exists() or verify(path).events == 1


def killed_while_charging(path):
    """A process is killed in the middle of a charge, when part of it is in the file already."""

    def work():
        with Ledger(path) as ledger:
            # With so little memory, pages go to the file before the charge is complete.
            ledger._connection.execute("PRAGMA cache_size = 2")
            ledger._connection.set_trace_callback(
                lambda statement: statement == "COMMIT" and os.kill(os.getpid(), signal.SIGKILL)
            )
            ledger.charge(many(300))

    assert ended(forked(work)) == -signal.SIGKILL


@pytest.fixture
def abandoned(path):
    before = path.read_bytes()
    killed_while_charging(path)
    assert path.with_name(path.name + "-journal").exists()
    assert path.read_bytes() != before
    return path, before


@pytest.mark.parametrize("mode", ["read", "write"])
def test_what_a_killed_writer_left_is_undone_when_the_ledger_is_opened(abandoned, mode):
    path, before = abandoned
    with Ledger(path, mode=mode) as ledger:
        assert ledger.spent() == accounting.epsilon([release()], DELTA)
        assert ledger.verify().problems == ()
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_what_a_killed_writer_left_is_undone_by_a_verification(abandoned):
    path, before = abandoned
    found = verify(path)
    assert (found.events, found.valid) == (1, True)
    assert path.read_bytes() == before


def test_what_a_killed_writer_left_is_undone_through_a_link(abandoned, tmp_path):
    path, before = abandoned
    link = tmp_path / "elsewhere" / "link.db"
    link.parent.mkdir()
    link.symlink_to(path)
    assert verify(link).valid
    assert path.read_bytes() == before


def test_a_copy_made_together_with_its_journal_is_undone_as_well(abandoned, tmp_path):
    path, before = abandoned
    copy = tmp_path / "copy.db"
    shutil.copy(path, copy)
    shutil.copy(f"{path}-journal", f"{copy}-journal")
    assert verify(copy).valid
    assert copy.read_bytes() == before


def test_a_copy_made_without_its_journal_shows_what_was_charged_or_is_found(abandoned, tmp_path):
    path, _ = abandoned
    copy = tmp_path / "copy.db"
    shutil.copy(path, copy)
    found = verify(copy)
    assert (found.valid, found.events) in [(True, 1), (False, 0)]


def test_a_reader_never_sees_half_a_charge_of_a_writer_that_was_killed_after_it_opened(path):
    with Ledger(path, mode="read") as reader:
        spent = reader.spent()
        killed_while_charging(path)
        # A reader cannot undo it: it gives the right answer, or says that it cannot be read.
        with suppress(LedgerUnusable):
            assert reader.spent() == spent
        assert verify(path).valid
        assert reader.spent() == spent


def test_the_journal_of_a_living_writer_is_left_alone(path):
    """A reader that finds a journal must not undo a charge that is being made."""
    with Ledger(path) as ledger:
        ledger._connection.execute("BEGIN IMMEDIATE")
        ledger._connection.execute("PRAGMA user_version = 77")
        journal = path.with_name(path.name + "-journal")
        assert journal.exists()
        with Ledger(path, mode="read") as reader:
            assert reader.spent() == accounting.epsilon([release()], DELTA)
        assert journal.exists()
        ledger._connection.execute("ROLLBACK")
        assert ledger.charge([release()])
    assert verify(path).events == 2
