"""Reports in files."""

import json
import math
import os

import pytest

from tacit.errors import InvalidValue
from tacit.reports.page import write
from tacit.reports.page.blocks import Page, Section, Text

PAGE = Page(
    title="T",
    lead="L",
    sections=(Section("S", (Text("w"),)),),
    document={"schema": 1, "x": math.nan, "names": ["<é\ud800"], "n": [1, 2.5, math.inf]},
)


@pytest.mark.parametrize(
    ("name", "start"),
    [("r.html", "<!doctype html>"), ("r.md", "# T\n"), ("r.json", "{\n"), ("r.HTML", "<!doctype")],
)
def test_the_ending_says_of_which_kind_a_report_is(tmp_path, name, start):
    place = write(PAGE, str(tmp_path / name))
    assert place == tmp_path / name
    assert place.read_text(encoding="utf-8").startswith(start)
    assert os.listdir(tmp_path) == [name]


def test_json_is_the_document_with_null_for_what_is_not_finite(tmp_path):
    found = json.loads(write(PAGE, tmp_path / "r.json").read_bytes())
    assert found == {"schema": 1, "x": None, "names": ["<é\ud800"], "n": [1, 2.5, None]}


def test_the_same_page_is_the_same_file(tmp_path):
    first, second = (write(PAGE, tmp_path / name).read_bytes() for name in ("a.html", "b.html"))
    assert first == second


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("r.txt", "ends in .html, .md, .json"),
        ("report", "ends in .html, .md, .json"),
        ("missing/r.html", "in a folder that exists"),
        ("folder.html", "a file, not a folder"),
    ],
)
def test_a_place_that_cannot_be_is_refused_with_its_name(tmp_path, name, said):
    (tmp_path / "folder.html").mkdir()
    with pytest.raises(InvalidValue, match=said) as told:
        write(PAGE, tmp_path / name)
    assert name in str(told.value)


def test_what_was_there_stays_when_writing_fails(tmp_path, monkeypatch):
    place = tmp_path / "r.md"
    place.write_text("before")

    def full(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(InvalidValue, match=r"r\.md' cannot be written: No space left on device"):
        write(PAGE, place)
    assert place.read_text() == "before"
    assert os.listdir(tmp_path) == ["r.md"]


def test_a_report_may_be_read_by_whom_files_may_be_read(tmp_path):
    before = os.umask(0o027)
    try:
        place = write(PAGE, tmp_path / "r.md")
    finally:
        os.umask(before)
    assert place.stat().st_mode & 0o777 == 0o640


def test_a_name_may_be_as_long_as_a_name_can_be(tmp_path):
    assert write(PAGE, tmp_path / ("n" * 252 + ".md")).is_file()
