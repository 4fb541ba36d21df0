"""The disk is full, or a file of the run damaged, lost or old: one sentence says so, and nothing is lost."""

import errno
import json
import os
import shutil
import struct
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from processes import forked
from test_ledger_disk import ended, limited

from tacit import Federation, Open, Privacy, fit
from tacit.engines.base import Local
from tacit.errors import LedgerTampered, LedgerUnusable, RunUnusable
from tacit.privacy import accounting, policy
from tacit.privacy.ledger.store import Ledger, verify
from tacit.runs.directory import EXPERIMENT, LEDGER, ROUNDS, SECRET, STATE, STATEMENT, SUMMARY, Directory
from tacit.runs.run import read
from tacit.sites.table import from_arrays
from tacit.survival import LogisticHazard

SITES = ("oslo", "bergen", "voss")
ROUND_COUNT = 4
# The number that sums are divided by is said, so nothing has to be bought before the first round.
TASK = LogisticHazard(hidden=(4,), cuts=5, horizon=3.0, steps=2, sample=0.3, batch=9, lr=0.3)
PRIVATE = Privacy(unit="record", epsilon=3.0, delta=1e-4, clip=1.0)
REHEARSAL = replace(PRIVATE, rehearsal=True)
SOLVED = cache(accounting.calibrate)


def patients(number, seed, shift=0.0):
    generator = np.random.default_rng(seed)
    features, time = generator.normal(size=(number, 3)), generator.exponential(size=number) + 0.01
    features[0, 0] += shift
    return from_arrays(features, time=time, event=(generator.random(number) < 0.8).astype(float))


def federation(shift=0.0):
    tables = {name: patients(30, seed, shift) for seed, name in enumerate(SITES)}
    return Federation(tables, held_out=patients(60, 9), held_out_public=True)


class Cut(Exception):
    """The end of a run that is to be resumed."""


@dataclass(frozen=True, kw_only=True)
class Engine(Local):
    """The local engine; a broken one fails after the sites let a round out, before anybody writes it down."""

    fails: Callable[[], bool] = lambda: False

    def train(self, *given):
        updates = super().train(*given)
        if self.fails():
            raise Cut
        return updates


BROKEN = Engine(fails=lambda: True)


def go(out, *, data=None, **choices):
    usual = {"privacy": REHEARSAL, "rounds": ROUND_COUNT, "resume": True, "task": TASK, "engine": Engine()}
    choices = usual | choices
    return fit(choices.pop("task"), data or federation(), out=out, seed=3, **choices)


def cut_after(number):
    def callback(entry):
        if entry.number == number:
            raise Cut

    return callback


def begun(out, *, rounds_done=2, **choices):
    """A run that was cut off after some rounds."""
    with pytest.raises(Cut):
        go(out, callbacks=[cut_after(rounds_done)], **choices)
    return out


@pytest.fixture(autouse=True)
def solved_once(monkeypatch):
    """Solve for the noise once, not in every run: what is tested here comes after that."""
    monkeypatch.setattr(policy, "calibrate", SOLVED)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The rehearsal that nothing happened to."""
    return go(tmp_path_factory.mktemp("whole") / "run")


def refused(out, kinds=RunUnusable, **choices):
    """Return the refusal: one sentence that names the directory."""
    with pytest.raises(kinds) as refusal:
        go(out, **choices)
    message = str(refusal.value)
    assert str(out) in message
    assert "\n" not in message
    return message


def assert_same(run, whole):
    assert np.array_equal(run.state, whole.state)
    assert run.history.drop(columns="seconds").equals(whole.history.drop(columns="seconds"))
    assert run.privacy == whole.privacy
    found = verify(run.path / LEDGER)
    assert (found.valid, found.epsilon) == (True, whole.privacy.epsilon)
    assert [path.name for path in run.path.iterdir() if path.name.endswith(".part")] == []


def paid(out):
    with Ledger(out / LEDGER, mode="read") as ledger:
        rows = [entry for entry in ledger.entries() if entry["kind"] == "release"]
    return Counter((row["purpose"], row["party"]) for row in rows)


def planned(times=1):
    return {(f"round {number}", name): times for number in range(1, ROUND_COUNT + 1) for name in SITES}


def contents(out):
    return {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in out.iterdir()}


# Disks that are full, or not ours to write on.


def test_a_run_on_a_disk_that_fills_up_stops_with_one_sentence_and_goes_on_when_there_is_room(
    tmp_path, whole
):
    """The limit hits each file in turn: those of the start, the secret, the ledger, the checkpoint."""
    out = tmp_path / "run"

    def work():
        said = []
        for room in (0, 20, 40, 300, 600, 1000, 2000, 4096, 8192, 16384, 20480, 24576, 28672, 32768, 1 << 20):
            with limited(room):
                try:
                    go(out)
                    break
                except (RunUnusable, LedgerUnusable) as error:
                    said.append(str(error))
        assert len(said) >= 6
        assert all(str(out) in message and "\n" not in message for message in said)
        (tmp_path / "said").write_text(json.dumps(said))

    assert ended(forked(work)) == 0
    said = json.loads((tmp_path / "said").read_text())
    for name in ("environment.json", EXPERIMENT, LEDGER):
        assert any(name in message for message in said), f"the disk was never full for {name}"
    assert_same(go(out), whole)


@pytest.mark.parametrize("room", [400, 700, 4096, 8192, 12288])
def test_a_run_that_hit_the_end_of_the_disk_once_ends_as_if_it_had_not(tmp_path, whole, room):
    out = tmp_path / "run"

    def work():
        with limited(room):
            refused(out, (RunUnusable, LedgerUnusable))

    assert ended(forked(work)) == 0
    assert not (out / SUMMARY).exists()
    assert_same(go(out), whole)


def failing_at(patch, number, error):
    """Let one of the steps that put something on disk fail; return how to ask whether it came to that."""
    calls = []

    def counted(real):
        def call(*given):
            calls.append(real)
            if len(calls) == number:
                raise error
            return real(*given)

        return call

    for name in ("fsync", "replace"):
        patch.setattr(os, name, counted(getattr(os, name)))
    return lambda: len(calls) >= number


def complaint(out):
    """Return the message of a run that stops; empty if it ends."""
    try:
        go(out)
    except RunUnusable as error:
        return str(error)
    return ""


def test_a_write_that_fails_at_any_point_leaves_the_last_good_checkpoint(tmp_path, whole, monkeypatch):
    number, failed = 0, True
    while failed:
        number += 1
        out = tmp_path / f"run-{number}"
        with monkeypatch.context() as patch:
            reached = failing_at(patch, number, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
            said = complaint(out)
            failed = reached()
        full = "No space left on device; what was written before is intact"
        begins = said.startswith((f"run {out} cannot be written: ", f"run {out} cannot be made: "))
        assert (begins and said.endswith(full)) is failed
        assert [path.name for path in out.iterdir() if path.name.endswith(".part")] == []
        point, told = Directory(out).checkpoint(), Directory(out).rounds()
        finished = point.finished if point is not None else 0
        assert len(told) in (finished, finished + 1)
        assert_same(go(out), whole)
    # Three steps for each file that is replaced, four for each round.
    assert number > 3 * 5 + 4 * ROUND_COUNT


def test_an_interrupt_at_any_point_leaves_no_half_written_file(tmp_path, whole, monkeypatch):
    for number in range(1, 3 * 6 + 4 * ROUND_COUNT, 2):
        out = tmp_path / f"run-{number}"
        with monkeypatch.context() as patch:
            failing_at(patch, number, KeyboardInterrupt())
            with pytest.raises(KeyboardInterrupt):
                go(out)
        assert [path.name for path in out.iterdir() if path.name.endswith(".part")] == []
        assert_same(go(out), whole)


def test_a_place_that_is_no_directory_is_refused_before_anything_is_done(tmp_path):
    file = tmp_path / "file"
    file.write_text("not a directory")
    for out in (file, file / "run", file / "deep" / "run"):
        assert refused(out).startswith(f"run {out} cannot be made: ")
    assert file.read_text() == "not a directory"


def test_a_directory_of_somebody_else_is_refused(whole):
    """Root may write anywhere, so the process becomes nobody first."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        out = begun(Path(folder) / "run")
        before = contents(out)
        for path in (*out.iterdir(), out):
            path.chmod(0o555 if path == out else 0o444 if path.name != SECRET else 0o400)

        def work():
            if os.geteuid() == 0:
                os.setuid(65534)
            refused(out, (RunUnusable, LedgerUnusable))
            new = Path(folder) / "new"
            assert "Permission denied" in refused(new)
            assert not new.exists()

        try:
            assert ended(forked(work)) == 0
        finally:
            out.chmod(0o755)
            for path in out.iterdir():
                path.chmod(0o600)
        assert {name: content for name, (content, _) in contents(out).items()} == {
            name: content for name, (content, _) in before.items()
        }
        assert_same(go(out), whole)


def test_a_directory_that_vanishes_during_the_run_stops_it(tmp_path):
    out = tmp_path / "run"

    def take_away(entry):
        if entry.number == 2:
            out.rename(tmp_path / "elsewhere")

    assert "cannot be written" in refused(out, (RunUnusable, LedgerUnusable), callbacks=[take_away])
    assert [entry.number for entry in Directory(tmp_path / "elsewhere").rounds()] == [1, 2]


# Files that are damaged, lost, old, or of another run.


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[:4],
        lambda data: data[: len(data) // 2],
        lambda data: data[:-1],
        lambda data: data + b"!",
        lambda data: bytes(len(data)),
        lambda data: data.replace(b'"finished"', b'"finishee"'),
        lambda data: data.replace(b'"memory"', b'"remory"'),
        lambda data: bytes([data[0] ^ 1]) + data[1:],
    ],
    ids=["empty", "4 bytes", "half", "one byte less", "one more", "zeros", "note", "tensor", "length"],
)
def test_a_damaged_checkpoint_is_refused_and_the_good_one_resumes(tmp_path, whole, damage):
    out = begun(tmp_path / "run")
    good, price = (out / STATE).read_bytes(), paid(out)
    (out / STATE).write_bytes(damage(good))
    assert refused(out).startswith(f"run {out} cannot be read: {STATE} is damaged")
    assert paid(out) == price
    (out / STATE).write_bytes(good)
    assert_same(go(out), whole)


@pytest.mark.parametrize("name", [SUMMARY, STATEMENT])
@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe", b'{"name": "run"}', b"{}"])
def test_a_damaged_result_is_refused_and_names_the_directory(tmp_path, whole, name, content):
    out = tmp_path / "run"
    shutil.copytree(whole.path, out)
    (out / name).write_bytes(content)
    refused(out)
    with pytest.raises(RunUnusable, match="cannot be read"):
        read(Directory(out), whole.task)
    shutil.copy(whole.path / name, out)
    assert np.array_equal(read(Directory(out), whole.task).state, whole.state)


def test_half_a_result_is_cut_short_and_does_not_count(tmp_path, whole):
    out = tmp_path / "run"
    shutil.copytree(whole.path, out)
    for name in (SUMMARY, STATEMENT):
        (out / name).write_bytes((out / name).read_bytes()[:-20])
        assert name in refused(out)
        shutil.copy(whole.path / name, out)


@pytest.mark.parametrize("torn", [b"{", b'{"number":3,"rounds":4,"sites":3,"sco', b"\x00\x00\x00"])
def test_a_line_of_a_round_that_a_crash_cut_off_does_not_count(tmp_path, whole, torn):
    out = begun(tmp_path / "run")
    with (out / ROUNDS).open("ab") as rounds:
        rounds.write(torn)
    assert_same(go(out), whole)
    assert [json.loads(line)["number"] for line in (out / ROUNDS).read_text().splitlines()] == [1, 2, 3, 4]


def test_a_round_that_was_told_but_not_kept_is_told_once(tmp_path, whole):
    """Killed between the line and the checkpoint: the round is done again."""
    out = begun(tmp_path / "run")
    kept = (out / STATE).read_bytes()
    begun(out, rounds_done=3)
    (out / STATE).write_bytes(kept)
    assert len(Directory(out).rounds()) == 3
    assert_same(go(out), whole)


@pytest.mark.parametrize("privacy", [PRIVATE, REHEARSAL], ids=["private", "rehearsal"])
@pytest.mark.parametrize("left", [None, b"", b"half of the secret"])
def test_a_run_that_lost_its_secret_is_refused_at_no_cost_until_it_is_back(tmp_path, privacy, left):
    out = begun(tmp_path / "run", privacy=privacy)
    secret, price = (out / SECRET).read_bytes(), paid(out)
    (out / SECRET).unlink() if left is None else (out / SECRET).write_bytes(left)
    for _ in range(2):
        assert "cannot be resumed" in refused(out, privacy=privacy)
        assert paid(out) == price
    (out / SECRET).write_bytes(secret)
    run = go(out, privacy=privacy)
    assert paid(out) == planned()
    assert len(run.record.rounds) == ROUND_COUNT


def test_a_secret_lost_in_the_first_round_is_refused_at_no_cost_as_well(tmp_path):
    out = tmp_path / "run"
    with pytest.raises(Cut):
        go(out, privacy=PRIVATE, engine=BROKEN)
    (out / SECRET).unlink()
    price = paid(out)
    with pytest.raises(RunUnusable, match=r"its secret\.key is lost"):
        go(out, privacy=PRIVATE)
    assert paid(out) == price
    assert not (out / SUMMARY).exists()


def test_an_older_ledger_is_refused_until_the_newer_one_is_back(tmp_path, whole):
    out, older, newer = begun(tmp_path / "run", rounds_done=1), tmp_path / "older", tmp_path / "newer"
    shutil.copy(out / LEDGER, older)
    begun(out, rounds_done=2)
    shutil.move(out / LEDGER, newer)
    shutil.copy(older, out / LEDGER)
    assert "ledger.db lacks what was charged before round 3" in refused(out)
    (out / LEDGER).unlink()
    assert "ledger.db lacks what was charged" in refused(out)
    shutil.copy(newer, out / LEDGER)
    assert_same(go(out), whole)


def test_a_ledger_of_another_run_is_refused(tmp_path):
    out, other = begun(tmp_path / "run"), begun(tmp_path / "other", rounds_done=3)
    shutil.copy(other / LEDGER, out / LEDGER)
    assert "ledger.db lacks what was charged" in refused(out)


def test_a_damaged_ledger_is_refused(tmp_path):
    out = begun(tmp_path / "run")
    data = bytearray((out / LEDGER).read_bytes())
    place = data.rindex(b'"purpose":"round 2"')
    data[place + 17] ^= 1
    (out / LEDGER).write_bytes(data)
    assert "row" in refused(out, LedgerTampered)


def test_changed_data_are_refused_at_no_cost(tmp_path, whole):
    out = begun(tmp_path / "run")
    price = paid(out)
    assert "the data have changed" in refused(out, data=federation(shift=1e-12))
    assert paid(out) == price
    assert_same(go(out), whole)


@pytest.mark.parametrize(
    ("choices", "said"),
    [
        ({"task": replace(TASK, lr=0.4)}, "(lr = 0.3 before, lr = 0.4 now)"),
        ({"rounds": 5}, "(rounds = 4 before, rounds = 5 now)"),
        ({"privacy": replace(REHEARSAL, epsilon=4.0)}, "(epsilon = 3.0 before, epsilon = 4.0 now)"),
        ({"privacy": PRIVATE}, "(rehearsal = true before, rehearsal = false now)"),
        ({"privacy": Open()}, '(kind = "private" before, kind = "open" now)'),
        ({"baselines": True}, "(baselines = false before, baselines = true now)"),
    ],
)
def test_a_changed_experiment_is_refused_and_the_difference_named(tmp_path, whole, choices, said):
    out = begun(tmp_path / "run")
    before = contents(out)
    assert said in refused(out, **choices)
    assert contents(out) == before
    assert_same(go(out), whole)


def test_a_run_that_is_over_is_returned_without_work_or_price(tmp_path, whole):
    out = tmp_path / "run"
    shutil.copytree(whole.path, out)
    before = contents(out)
    run = go(out, engine=BROKEN, callbacks=[cut_after(1)])
    assert contents(out) == before
    assert run.path == out
    assert_same(run, whole)
    assert run.scores == whole.scores


@pytest.mark.parametrize("over", [False, True])
def test_a_run_is_never_begun_over_another(tmp_path, over):
    out = tmp_path / "run"
    go(out) if over else begun(out)
    before = contents(out)
    assert "exists already: resume it (--resume), or choose another directory" in refused(out, resume=False)
    assert contents(out) == before


def test_what_a_killed_run_left_half_written_is_cleared_away(tmp_path, whole):
    out = begun(tmp_path / "run")
    for name in (STATE, ROUNDS, STATEMENT, SUMMARY):
        (out / f".{name}.part").write_bytes(b"half")
    assert_same(go(out), whole)


# What must not be on the disk.


def test_the_secret_is_for_its_owner_alone_and_gone_when_the_run_is_over(tmp_path):
    out, modes = tmp_path / "run", []

    def look(entry):
        secret = (out / SECRET).stat()
        modes.append((secret.st_mode & 0o777, secret.st_size))

    before = os.umask(0)
    try:
        go(out, privacy=PRIVATE, callbacks=[look])
    finally:
        os.umask(before)
    assert modes == [(0o600, 32)] * ROUND_COUNT
    assert not (out / SECRET).exists()


@pytest.mark.parametrize("privacy", [PRIVATE, REHEARSAL, Open()], ids=["private", "rehearsal", "open"])
def test_no_file_of_a_run_holds_a_value_of_a_record(tmp_path, privacy):
    data = federation()
    out = begun(tmp_path / "run", data=data, privacy=privacy)
    found = [*map(Path.read_bytes, out.iterdir())]
    go(out, data=data, privacy=privacy)
    found += map(Path.read_bytes, out.iterdir())
    values = [*data.store.features.ravel(), *data.store.targets["time"]]
    for value in map(float, values):
        for written in (struct.pack("<d", value), struct.pack(">d", value), struct.pack("<f", value)):
            assert not any(written in content for content in found)
        assert not any(repr(value)[:10].encode() in content for content in found)
    for digest in (data.fingerprint, data.store.digest()):
        # Who knows everybody but one could find the one by trying.
        assert not any(digest in content or digest.hex().encode() in content for content in found)
