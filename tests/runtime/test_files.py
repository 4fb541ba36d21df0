"""Files that may be anything: pipes and devices are not opened, and what is replaced is on disk."""

import os
import re
import socket
import stat
from pathlib import Path

import pytest

from tacit.deploy.site.agreement import AnswerLog
from tacit.errors import InvalidFile, LedgerUnusable
from tacit.privacy.ledger.store import Ledger
from tacit.runtime import files
from tacit.sites.table_files import read

SOURCES = sorted((Path(__file__).parents[2] / "src" / "tacit").rglob("*.py"))


@pytest.fixture(params=["a named pipe", "a device", "a socket", "a device behind a link"])
def odd(request, tmp_path):
    """Paths that are no plain files, with their names."""
    path = tmp_path / "odd.csv"
    if request.param == "a named pipe":
        os.mkfifo(path)
    elif request.param == "a socket":
        with socket.socket(socket.AF_UNIX) as door:
            door.bind(str(path))
    elif request.param == "a device":
        path = Path("/dev/zero")
    else:
        path.symlink_to("/dev/zero")
    return path, request.param.removesuffix(" behind a link")


def test_what_is_no_plain_file_is_not_opened(odd):
    path, what = odd
    for opened in (files.open_regular, files.read_bytes, files.read_text, files.require_regular):
        with pytest.raises(files.NotPlain, match=f"it is {what}, and must be a plain file"):
            opened(path)
    with pytest.raises(files.NotPlain):
        files.append(path, b"more")


def test_what_is_no_plain_file_is_no_table(odd, tmp_path):
    path, what = odd
    link = tmp_path / "table.csv"
    link.symlink_to(path)
    with pytest.raises(InvalidFile, match=rf"table\.csv cannot be read: it is {what}"):
        read(link)


@pytest.mark.parametrize("beside", ["", "-journal", "-wal"])
@pytest.mark.parametrize("mode", ["read", "write"])
def test_a_ledger_beside_a_named_pipe_is_not_opened(tmp_path, beside, mode):
    path = tmp_path / "ledger.db"
    if beside:
        Ledger(path).close()
    os.mkfifo(f"{path}{beside}")
    with pytest.raises(LedgerUnusable, match="it is a named pipe, and must be a plain file"):
        Ledger(path, mode=mode)


def test_a_folder_is_no_file(tmp_path):
    with pytest.raises(IsADirectoryError):
        files.read_bytes(tmp_path)
    with pytest.raises(FileNotFoundError):
        files.read_bytes(tmp_path / "nothing")
    files.require_regular(tmp_path / "nothing")


def test_nothing_is_read_of_a_file_that_is_too_large(tmp_path):
    place = tmp_path / "holes"
    with place.open("wb") as stream:
        stream.truncate(2**40)
    with pytest.raises(OSError, match=r"it is larger than 1,000 bytes"):
        files.read_bytes(place, 1000)
    with pytest.raises(OSError, match="it is larger than"):
        files.read_bytes(place)
    place.write_bytes(b"x" * 1000)
    assert files.read_bytes(place, 1000) == b"x" * 1000


def steps_of(monkeypatch, work):
    """Record the syncs and renames of a write, in order."""
    steps, fsync, move = [], os.fsync, os.replace

    def synced(handle):
        steps.append("folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else "file")
        fsync(handle)

    def moved(old, new):
        steps.append("rename")
        move(old, new)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", synced)
        patch.setattr(os, "replace", moved)
        work()
    return steps


def test_a_file_is_synced_before_it_is_renamed_and_its_folder_after(tmp_path, monkeypatch):
    place = tmp_path / "file"
    written = steps_of(monkeypatch, lambda: files.replace(place, "one", 0o600))
    assert written == ["file", "rename", "folder"]
    assert place.read_text() == "one"
    assert place.stat().st_mode & 0o777 == 0o600
    assert steps_of(monkeypatch, lambda: files.create(tmp_path / "new", b"two")) == ["file", "folder"]
    with pytest.raises(FileExistsError):
        files.create(tmp_path / "new", b"three")
    assert os.listdir(tmp_path) in (["file", "new"], ["new", "file"])


def test_a_site_syncs_an_answer_and_its_folder_before_it_leaves(tmp_path, monkeypatch):
    memory = AnswerLog(tmp_path / "answers.jsonl")
    written = steps_of(monkeypatch, lambda: memory.keep("e", "round 1", "question", b"answer"))
    assert written == ["file", "rename", "folder", "file"]


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_what_cannot_be_replaced_is_still_there(tmp_path, monkeypatch, step):
    place = tmp_path / ("f" * 255)
    files.replace(place, b"before")

    def full(*given):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, step, full)
        with pytest.raises(OSError, match="No space left"):
            files.replace(place, b"after")
    assert place.read_bytes() == b"before"
    assert os.listdir(tmp_path) == [place.name]


def test_only_one_module_renames_and_only_one_parses_files_of_tables():
    renames = r"os\.(replace|rename|renames)\(|shutil\.move\(|\bpart\.(replace|rename)\(|\.part\""
    texts = {path: path.read_text() for path in SOURCES}
    renaming = {path for path, text in texts.items() if re.search(renames, text)}
    assert renaming <= {Path(files.__file__)}
    # What the others parse they have written themselves, or they catch all that a hostile text can raise.
    parsing = {path.name for path, text in texts.items() if "tomllib.load" in text}
    assert parsing <= {"tables.py", "directory.py", "grid.py", "run.py", "published.py"}


def test_no_module_reads_a_file_of_a_run_or_a_site_but_by_the_one_door():
    # Files of our own package, of the system, and of programs that we have started ourselves.
    known = {"__init__.py", "html.py", "plan.py", "published.py", "directory.py", "processes.py"}
    recipes = {"survival.py", "regression.py", "policy.py", "curve.py", "curves.py"}
    found = {path.name for path in SOURCES if re.search(r"\.read_(text|bytes)\(", path.read_text())
             and not re.search(r"files\.read_(text|bytes)\(", path.read_text())}  # fmt: skip
    assert found <= known | recipes
