"""The files of a run: each is there as a whole or not at all; without a path nothing is written."""

import json
import os
import stat
import struct
from dataclasses import replace

import numpy as np
import pytest

from tacit import Ledger
from tacit.errors import RunUnusable
from tacit.learning.record import Round
from tacit.runs.directory import (
    ENVIRONMENT,
    EXPERIMENT,
    ROUNDS,
    SECRET,
    STATE,
    Checkpoint,
    Directory,
    environment,
    machine,
)

EXPERIMENT_TABLES = {"name": "trial", "rounds": 2, "task": {"kind": "logistic-hazard", "lr": 0.1}}


@pytest.fixture
def directory(tmp_path):
    directory = Directory(tmp_path / "run")
    with directory.claim(EXPERIMENT_TABLES, resume=False):
        pass
    return directory


def point(**fields):
    state = np.linspace(-1, 1, 7, dtype=np.float64) / 3
    usual = Checkpoint(2, state, np.stack([state, state**2]), state / 7, 1, "ab" * 32, "cd" * 32)
    return replace(usual, **fields)


def entry(number, **fields):
    usual = {"rounds": 3, "sites": 2, "scores": {"c_index": number / 7}, "epsilon": 0.1, "budget": None}
    return Round(**{"number": number, "seconds": 0.1, **usual, **fields})


def names(directory):
    return sorted(path.name for path in directory.path.iterdir())


def test_a_claimed_directory_holds_the_experiment_and_what_it_runs_on(directory):
    assert names(directory) == [ENVIRONMENT, EXPERIMENT]
    assert directory.read_json(ENVIRONMENT) == environment()
    assert set(environment()) >= {"python", "platform", "tacit", "numpy", "dp-accounting"}
    assert b'name = "trial"' in directory.read(EXPERIMENT)


def test_folders_above_a_run_are_made(tmp_path):
    with Directory(tmp_path / "far" / "down" / "run").claim(EXPERIMENT_TABLES, resume=False):
        pass
    assert (tmp_path / "far" / "down" / "run" / EXPERIMENT).is_file()


def test_a_claimed_directory_is_claimed_again_only_to_resume_the_same_experiment(directory):
    with (
        pytest.raises(RunUnusable, match="exists already"),
        directory.claim(EXPERIMENT_TABLES, resume=False),
    ):
        pass
    with directory.claim(EXPERIMENT_TABLES, resume=True):
        pass
    other = {**EXPERIMENT_TABLES, "task": {"kind": "logistic-hazard", "lr": 0.2}}
    with (
        pytest.raises(RunUnusable, match=r"another experiment.*\(lr = 0\.1 before, lr = 0\.2 now\)"),
        directory.claim(other, resume=True),
    ):
        pass
    longer = {**EXPERIMENT_TABLES, "stop": {"patience": 3}}
    with (
        pytest.raises(RunUnusable, match=r"\(nothing before, \[stop\] now\)"),
        directory.claim(longer, resume=True),
    ):
        pass


def test_resuming_where_nothing_was_begun_begins(tmp_path):
    directory = Directory(tmp_path / "run")
    with directory.claim(EXPERIMENT_TABLES, resume=True):
        pass
    assert directory.checkpoint() is None
    assert directory.rounds() == []


def test_a_file_is_replaced_as_a_whole_and_nothing_is_left_over(directory):
    for content in ("long " * 1000, b"short", ""):
        directory.write("file", content)
        assert directory.read("file") == (content if isinstance(content, bytes) else content.encode())
    assert names(directory) == [ENVIRONMENT, EXPERIMENT, "file"]


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_file_that_cannot_be_replaced_is_still_there(directory, monkeypatch, step):
    directory.write("file", "before")

    def full(*given):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, step, full)
        with pytest.raises(RunUnusable, match=r"run .*/run cannot be written: file: No space left on device"):
            directory.write("file", "after")
    assert directory.read("file") == b"before"
    assert names(directory) == [ENVIRONMENT, EXPERIMENT, "file"]


def test_a_file_is_synced_before_it_takes_its_place_and_the_folder_after(directory, monkeypatch):
    steps, kinds = [], {True: "sync folder", False: "sync file"}
    fsync, move = os.fsync, os.replace

    def synced(file):
        steps.append(kinds[stat.S_ISDIR(os.fstat(file).st_mode)])
        fsync(file)

    def moved(old, new):
        steps.append("replace")
        move(old, new)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", moved)
    directory.write("file", "content")
    assert steps == ["sync file", "replace", "sync folder"]
    directory.write_rounds([entry(1)])
    steps.clear()
    directory.write_round(entry(2))
    assert steps == ["sync file"]


def test_what_is_not_there_is_none(directory):
    assert directory.read("missing") is None
    assert directory.read_json("missing") is None
    assert directory.checkpoint() is None
    assert directory.rounds() == []


def test_json_is_read_back_as_it_was_written(directory):
    directory.write_json("file.json", {"epsilon": 1 / 3, "nested": {"list": [1, None, "two"]}})
    assert directory.read_json("file.json") == {"epsilon": 1 / 3, "nested": {"list": [1, None, "two"]}}
    assert directory.read("file.json").endswith(b"\n")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[1]",
        b'"text"',
        b"\xff",
        b"{}{}",
        b'{"a": "\xa1"}',
        b'{"\xc3": 1}',
        b'{"a": ' + b"[" * 9999,
    ],
)
def test_damaged_json_is_named(directory, content):
    directory.write("file.json", content)
    with pytest.raises(RunUnusable, match=r"cannot be read: file\.json is damaged"):
        directory.read_json("file.json")


def test_text_that_is_none_is_named(directory):
    assert directory.text(STATE) == ""
    directory.write(EXPERIMENT, 'name = "é"')
    assert directory.text(EXPERIMENT) == 'name = "é"'
    directory.write(EXPERIMENT, b"name = '\xa1'")
    with pytest.raises(RunUnusable, match=r"cannot be read: experiment\.toml is damaged"):
        directory.text(EXPERIMENT)


def test_a_checkpoint_is_read_back_to_the_last_bit(directory):
    kept = point()
    directory.write_checkpoint(kept)
    found = directory.checkpoint()
    for name in ("state", "memory", "best"):
        assert np.array_equal(getattr(found, name), getattr(kept, name))
        assert getattr(found, name).dtype == np.float64
    notes = ("finished", "best_round", "ledger_head", "data")
    assert [getattr(found, name) for name in notes] == [2, 1, "ab" * 32, "cd" * 32]


def test_a_checkpoint_may_hold_one_tensor_twice_and_an_empty_one(directory):
    state = np.zeros(3)
    directory.write_checkpoint(point(state=state, best=state, memory=np.zeros((0, 3))))
    found = directory.checkpoint()
    assert np.array_equal(found.state, found.best)
    assert found.memory.shape == (0, 3)


def test_a_checkpoint_read_before_it_is_replaced_stays_as_it_was(directory):
    directory.write_checkpoint(point())
    before = directory.checkpoint()
    directory.write_checkpoint(point(state=point().state + 1, finished=3))
    assert np.array_equal(before.state, point().state)
    assert directory.checkpoint().finished == 3


def test_a_run_goes_on_from_its_checkpoint_only_with_its_own_ledger_and_data(directory, tmp_path):
    with Ledger(tmp_path / "ledger.db") as ledger, Ledger(tmp_path / "other.db") as other:
        assert directory.resumable(ledger, "the data") is None
        directory.write_checkpoint(point(ledger_head=ledger.head, data="the data"))
        ledger.allow(epsilon=1, delta=1e-5)
        assert directory.resumable(ledger, "the data").finished == 2
        with pytest.raises(RunUnusable, match="the data have changed"):
            directory.resumable(ledger, "other data")
        with pytest.raises(RunUnusable, match=r"lacks what was charged before round 3; restore the newer"):
            directory.resumable(other, "the data")


def test_rounds_are_listed_in_order_as_they_were_told(directory):
    directory.write_rounds([entry(1)])
    directory.write_round(entry(2))
    directory.write_round(entry(3, sites=None, epsilon=None))
    assert directory.rounds() == [entry(1), entry(2), entry(3, sites=None, epsilon=None)]
    assert [json.loads(line)["number"] for line in directory.read(ROUNDS).splitlines()] == [1, 2, 3]
    directory.write_rounds([entry(1)])
    assert directory.rounds() == [entry(1)]


@pytest.mark.parametrize(
    "torn", [b'{"number":2,"rou', b"\x00", b"null", b'{"number":"two"}', b'{"number":2,"stopped":"\xff"}']
)
def test_a_last_line_that_is_no_round_does_not_count(directory, torn):
    directory.write_rounds([entry(1)])
    with directory.file(ROUNDS).open("ab") as file:
        file.write(torn)
    assert directory.rounds() == [entry(1)]


def test_a_secret_is_drawn_once_kept_for_its_owner_and_forgotten(directory):
    secret = directory.secret()
    assert len(secret) == 32
    assert directory.secret() == secret == directory.read(SECRET)
    assert directory.file(SECRET).stat().st_mode & 0o777 == 0o600
    directory.forget_secret()
    directory.forget_secret()
    assert not directory.file(SECRET).exists()
    assert directory.secret() != secret


def test_nothing_is_kept_without_a_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    directory = Directory(None)
    with directory.claim(EXPERIMENT_TABLES, resume=False):
        pass
    with directory.claim(EXPERIMENT_TABLES, resume=True):
        pass
    directory.write("file", "content")
    directory.write_checkpoint(point())
    directory.write_rounds([entry(1)])
    directory.write_round(entry(2))
    directory.forget_secret()
    assert len(directory.secret()) == 32
    assert directory.secret() != directory.secret()
    assert (directory.checkpoint(), directory.rounds(), directory.read("file")) == (None, [], None)
    assert directory.file(STATE) is None
    assert list(tmp_path.iterdir()) == []


def test_a_machine_with_other_cores_to_work_on_is_another_machine(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1}, raising=False)
    machine.cache_clear()
    one = machine()
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0}, raising=False)
    machine.cache_clear()
    assert machine() != one
    machine.cache_clear()


def saved(kind: str, size: int) -> bytes:
    """A file of tensors with one of two numbers of this type."""
    header = json.dumps({"state": {"dtype": kind, "shape": [2], "data_offsets": [0, size]}}).encode()
    return struct.pack("<Q", len(header)) + header + bytes(size)


@pytest.mark.parametrize(
    ("kind", "size"), [("BF16", 4), ("F8_E4M3", 2), ("F16", 4), ("BOOL", 2), ("C64", 16)]
)
def test_a_checkpoint_of_numbers_that_are_no_doubles_is_refused(directory, kind, size):
    directory.write("state.safetensors", saved(kind, size))
    with pytest.raises(RunUnusable, match=r"cannot be read: state\.safetensors is damaged"):
        directory.checkpoint()


def test_weights_of_a_type_that_numpy_lacks_are_refused(directory):
    (directory.path / "weights").mkdir()
    directory.write("weights/000001.safetensors", saved("BF16", 4))
    with pytest.raises(RunUnusable, match=r"cannot be read: weights is damaged"):
        directory.weights()
