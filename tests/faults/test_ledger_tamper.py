"""Somebody or something changes a ledger after it was written: a look at it finds that out."""

import hashlib
import json
import os
import random
import shutil
import sqlite3
from contextlib import closing
from math import inf

import pytest

from tacit.errors import LedgerError, LedgerTampered, LedgerUnusable
from tacit.privacy.accounting.release import Release
from tacit.privacy.ledger.store import Ledger, verify

DELTA = 1e-5
PAGE = 4096
ROWS = 16


def release(**fields):
    return Release(**{"scale": 10.0, "sensitivity": 1.0, **fields})


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A ledger of varied rows on several pages; one of them is longer than a page."""
    path = tmp_path_factory.mktemp("written") / "ledger.db"
    with Ledger(path) as ledger:
        ledger.allow(epsilon=50, delta=DELTA)
        ledger.allow(epsilon=20, delta=DELTA, subject="records@oslo")
        ledger.charge([release(), release(law="laplace", scale=20.0, party="æøå")], ticket="round 1")
        ledger.charge([release(subject="records@oslo", purpose="a long tale " * 350, count=3)])
        ledger.charge([release(subject="records@bergen", relation="replace", view="public")])
        ledger.charge([release(unit="site", subject="sites", scale=30.0, rehearsal=True)], ticket="round 2")
        for number in range(8):
            ledger.charge([release(scale=11.0 + number, purpose=f"round {number}", party="oslo")])
    return path.read_bytes()


@pytest.fixture
def path(tmp_path, written):
    path = tmp_path / "ledger.db"
    path.write_bytes(written)
    return path


def rows_exist(connection):
    return connection.execute("SELECT count(*) FROM sqlite_master WHERE name = 'entries'").fetchone()[0]


def test_dropped_guards_are_found(path):
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("DROP TRIGGER remain")
    assert verify(path).problems == ("the table and its guards were changed",)


@pytest.fixture
def damaged(path):
    """Run statements as somebody with the file and no scruples would."""

    def run(*statements):
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            guards = connection.execute(
                "SELECT name, sql FROM sqlite_master WHERE type = 'trigger'"
            ).fetchall()
            for name, _ in guards:
                connection.execute(f"DROP TRIGGER {name}")
            for statement in statements:
                connection.execute(*statement) if isinstance(statement, tuple) else connection.execute(
                    statement
                )
            for _, guard in guards if rows_exist(connection) else []:
                connection.execute(guard)
        return path

    return run


def rows_of(path):
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("SELECT number, body, hash FROM entries ORDER BY number").fetchall()


def link(previous, number, body):
    """The hash of a row, as the ledger's documentation has it."""
    return hashlib.sha256(previous + number.to_bytes(8, "big") + body.encode()).digest()


def assert_found(path, delta=None):
    found = verify(path, delta)
    assert not found.valid
    assert found.problems != ()
    assert found.epsilon == inf
    with pytest.raises(LedgerTampered), Ledger(path) as ledger:
        ledger.charge([release()])


# The bytes of the rows in the file: https://www.sqlite.org/fileformat2.html, sections 1.6 and 2.1.


def varint(data, place):
    value = 0
    for step in range(9):
        value = (value << 7) | (data[place + step] & 0x7F)
        if data[place + step] < 0x80:
            return value, place + step + 1
    raise AssertionError("no number of ours is that long")


def word(data, place, size):
    return int.from_bytes(data[place : place + size], "big")


def cells(data, page):
    """Locate the rows below a page: for each, its pieces as (start of the content, start, end)."""
    start = (page - 1) * PAGE
    kind, number = data[start], word(data, start + 3, 2)
    inner, tree = kind in (0x02, 0x05), kind in (0x05, 0x0D)
    assert kind in (0x02, 0x05, 0x0A, 0x0D)
    for place in range(number):
        cell = start + word(data, start + (12 if inner else 8) + 2 * place, 2)
        if inner:
            yield from cells(data, word(data, cell, 4))
        if kind != 0x05:
            yield extents(data, cell, cell + (4 if inner else 0), tree)
    if inner:
        yield from cells(data, word(data, start + 8, 4))


def extents(data, cell, place, tree):
    size, place = varint(data, place)
    if tree:
        _, place = varint(data, place)
    most = PAGE - 35 if tree else (PAGE - 12) * 64 // 255 - 23
    least = (PAGE - 12) * 32 // 255 - 23
    here = least + (size - least) % (PAGE - 4)
    here = size if size <= most else here if here <= most else least
    spans = [(place, cell, place + here + (4 if here < size else 0))]
    rest, following = size - here, word(data, place + here, 4)
    while rest:
        start = (following - 1) * PAGE
        spans.append((start + 4, start, start + 4 + min(rest, PAGE - 4)))
        rest, following = rest - min(rest, PAGE - 4), word(data, start, 4)
    return spans


def located(path):
    """Locate each row in the file, checked against SQLite."""
    data = path.read_bytes()
    with closing(sqlite3.connect(path)) as connection:
        (root,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'entries'").fetchone()
    found = list(cells(data, root))
    assert len(found) == ROWS
    for (_, body, digest), spans in zip(rows_of(path), found, strict=True):
        pieces = [data[payload:end] for payload, _, end in spans]
        whole = b"".join(piece[:-4] if piece is pieces[0] and len(pieces) > 1 else piece for piece in pieces)
        assert whole.endswith(body.encode() + digest)
    return data, found


class Flipper:
    """Flips bits of a file in place, one at a time, and puts them back."""

    def __init__(self, path, data):
        self.path, self.data = path, data
        self.file = os.open(path, os.O_RDWR)

    def verify(self, place, bit):
        os.pwrite(self.file, bytes([self.data[place] ^ (1 << bit)]), place)
        try:
            return verify(self.path)
        finally:
            os.pwrite(self.file, self.data[place : place + 1], place)

    def close(self):
        os.close(self.file)


@pytest.mark.slow
def test_a_flipped_byte_anywhere_in_a_row_is_found(path):
    data, rows = located(path)
    chance, missed, tried = random.Random(30), [], 0
    with closing(Flipper(path, data)) as flipper:
        for number, spans in enumerate(rows, start=1):
            for payload, start, end in spans:
                for place in range(start, end):
                    # Every bit of what says how to read the row, and one bit of each byte of its content.
                    head = spans[0][0] == payload and place < payload + 6
                    for bit in range(8) if head else [chance.randrange(8)]:
                        tried += 1
                        if flipper.verify(place, bit).valid:
                            missed.append(f"row {number}, byte {place - start} of the cell, bit {bit}")
    assert tried > 8000
    assert missed == []
    assert path.read_bytes() == data
    assert verify(path).valid


def test_a_flipped_byte_anywhere_in_the_file_is_found_or_has_no_effect(path):
    data, rows = located(path)
    inside = {place for spans in rows for _, start, end in spans for place in range(start, end)}
    # All that is used outside the rows, and some of the free space.
    chance, wrong = random.Random(31), []
    outside = [
        place
        for place in range(len(data))
        if place not in inside and (data[place] or place < 200 or chance.random() < 0.005)
    ]
    good = verify(path)
    with closing(Flipper(path, data)) as flipper:
        for place in outside:
            for bit in (chance.randrange(7), 7):
                try:
                    found = flipper.verify(place, bit)
                    if found.valid and found != good:
                        wrong.append((place, bit, found))
                except LedgerUnusable:
                    pass
                except Exception as error:
                    wrong.append((place, bit, repr(error)))
    assert len(outside) > 500
    assert wrong == []


def test_a_changed_row_is_found(damaged):
    for number, body, _ in rows_of(damaged()):
        if '"scale":10.0' in body:
            changed = body.replace('"scale":10.0', '"scale":90.0')
            path = damaged(("UPDATE entries SET body = ? WHERE number = ?", (changed, number)))
            assert_found(path)
            damaged(("UPDATE entries SET body = ? WHERE number = ?", (body, number)))
            assert verify(path).valid


def test_a_row_made_consistent_with_itself_alone_is_found(damaged):
    rows = rows_of(damaged())
    for place, (number, body, _) in enumerate(rows[1:-1], start=1):
        changed = body.replace('"at":"20', '"at":"19')
        digest = link(rows[place - 1][2], number, changed)
        path = damaged(("UPDATE entries SET body = ?, hash = ? WHERE number = ?", (changed, digest, number)))
        assert_found(path)
        damaged(("UPDATE entries SET body = ?, hash = ? WHERE number = ?", (body, rows[place][2], number)))
    assert verify(path).valid


def test_a_last_row_made_consistent_is_found_by_who_kept_the_head(damaged):
    path = damaged()
    head, rows = verify(path).head, rows_of(path)
    number, body, _ = rows[-1]
    changed = body.replace('"scale":18.0', '"scale":99.0')
    assert changed != body
    digest = link(rows[-2][2], number, changed)
    damaged(("UPDATE entries SET body = ?, hash = ? WHERE number = ?", (changed, digest, number)))
    assert verify(path).head != head


@pytest.mark.parametrize("number", [1, 2, 5, ROWS])
def test_a_deleted_row_is_found(damaged, number):
    assert_found(damaged(f"DELETE FROM entries WHERE number = {number}"))


def test_rows_deleted_and_renumbered_are_found(damaged):
    assert_found(
        damaged(
            "DELETE FROM entries WHERE number = 5",
            "UPDATE entries SET number = -number WHERE number > 5",
            "UPDATE entries SET number = -number - 1 WHERE number < 0",
            f"PRAGMA user_version = {ROWS - 1}",
        )
    )


def test_all_rows_deleted_are_found(damaged):
    assert_found(damaged("DELETE FROM entries"))


@pytest.mark.parametrize("columns", [("body", "hash"), ("body",), ("hash",)])
def test_swapped_rows_are_found(damaged, columns):
    rows = {number: {"body": body, "hash": digest} for number, body, digest in rows_of(damaged())}
    swaps = [
        (f"UPDATE entries SET {column} = ? WHERE number = ?", (rows[source][column], target))
        for column in columns
        for source, target in ((4, 7), (7, 4))
    ]
    assert_found(damaged(*swaps))


@pytest.mark.parametrize("version", [0, ROWS - 1, ROWS + 1, -ROWS])
def test_a_changed_count_of_rows_is_found(damaged, version):
    assert_found(damaged(f"PRAGMA user_version = {version}"))


FORGED = json.dumps({"at": "2026-01-01T00:00:00.000+00:00", "kind": "budget", "subject": "*", "epsilon": 1e6,
                     "delta": DELTA})  # fmt: skip


@pytest.mark.parametrize("number", [-3, 0, ROWS + 1, ROWS + 2])
@pytest.mark.parametrize("counted", [False, True])
def test_an_inserted_row_is_found(damaged, number, counted):
    path = damaged(("INSERT INTO entries VALUES (?, ?, ?)", (number, FORGED, bytes(32))))
    if counted:
        damaged(f"PRAGMA user_version = {max(number, ROWS)}")
    assert_found(path)


def test_an_inserted_row_with_the_right_hash_is_found_by_the_count(damaged):
    last = rows_of(damaged())[-1][2]
    digest = link(last, ROWS + 1, FORGED)
    assert_found(damaged(("INSERT INTO entries VALUES (?, ?, ?)", (ROWS + 1, FORGED, digest))))


@pytest.mark.parametrize(
    "body",
    [
        "no json",
        "[]",
        "{}",
        '{"at": "now", "kind": "grant", "subject": "*"}',
        '{"at": "now", "kind": "budget", "subject": "*", "epsilon": "much", "delta": 0.1}',
        '{"at": "now", "kind": "budget", "subject": "*", "epsilon": -1, "delta": 0.1}',
        '{"at": "now", "kind": "budget", "subject": ["*"], "epsilon": 1, "delta": 0.1}',
        '{"at": "now", "kind": "budget", "subject": "*", "delta": 0.1, "epsilon": 1' + "0" * 400 + "}",
        '{"at": "now", "kind": "release", "ticket": null, "scale": 0, "sensitivity": 1}',
        '{"at": "now", "kind": "release", "ticket": null, "scale": 1, "sensitivity": 1, "count": 0}',
        '{"at": "now", "kind": "release", "ticket": null, "scale": 1, "sensitivity": 1, "law": "none"}',
        '{"at": "now", "kind": "release", "ticket": null, "scale": 1}',
        '{"at": "now", "kind": "release", "scale": 1, "sensitivity": 1}',
        "[" * 5000,
    ],
    ids=lambda body: body[:90],
)
def test_a_row_that_fits_the_chain_but_cannot_be_understood_is_found(damaged, body):
    """Also what a later version may have written: a cost we do not understand is not a cost of nothing."""
    last = rows_of(damaged())[-1][2]
    digest = link(last, ROWS + 1, body)
    assert_found(
        damaged(
            ("INSERT INTO entries VALUES (?, ?, ?)", (ROWS + 1, body, digest)),
            f"PRAGMA user_version = {ROWS + 1}",
        )
    )


def test_a_truncated_file_is_found(path):
    data, rows = located(path)
    used = max(end for spans in rows for _, _, end in spans)
    for size in [*range(0, len(data), PAGE), 1, 99, 511, PAGE + 1, used - 1]:
        path.write_bytes(data[:size])
        try:
            found = verify(path)
        except LedgerUnusable:
            assert size < PAGE, "what begins like a ledger is a damaged ledger"
        else:
            assert not found.valid, size
    path.write_bytes(data)
    assert verify(path).valid


def test_a_cut_off_zero_is_found(path):
    with Ledger(path) as ledger:
        ledger.charge([release(purpose="a long tale " * 350)])
    data = path.read_bytes()
    assert data[-1] == 0, "the file ends with the unused rest of a page"
    for lost in (1, 7):
        # SQLite reads zeros where a file ends early, so it misses nothing.
        path.write_bytes(data[:-lost])
        assert verify(path).problems == (f"the file ends {lost} bytes early",)


def test_a_page_of_zeros_is_found(path):
    data = path.read_bytes()
    for start in range(PAGE, len(data), PAGE):
        path.write_bytes(data[:start] + bytes(PAGE) + data[start + PAGE :])
        assert not verify(path).valid, start


def test_a_page_of_another_ledger_is_found(path, tmp_path):
    other = tmp_path / "other.db"
    with Ledger(other) as ledger:
        for number in range(20):
            ledger.charge([release(purpose=f"round {number}")])
    data, foreign = path.read_bytes(), other.read_bytes()
    for start in range(PAGE, min(len(data), len(foreign)), PAGE):
        path.write_bytes(data[:start] + foreign[start : start + PAGE] + data[start + PAGE :])
        assert not verify(path).valid, start


def test_a_restored_old_copy_is_sound_and_has_another_head(path, tmp_path):
    copy, before = tmp_path / "copy.db", verify(path)
    shutil.copy(path, copy)
    with Ledger(path) as ledger:
        ledger.charge([release()])
        head = ledger.head
    shutil.copy(copy, path)
    restored = verify(path)
    assert restored == before
    assert restored.head != head


def test_two_branches_of_one_ledger_never_share_a_head_again(path, tmp_path):
    copy = tmp_path / "copy.db"
    shutil.copy(path, copy)
    with Ledger(path) as one, Ledger(copy) as other:
        one.charge([release()], ticket="one")
        other.charge([release()], ticket="other")
        assert one.head != other.head


def test_a_ledger_changed_while_it_is_open_is_never_shown_as_sound(path, damaged):
    with Ledger(path) as ledger:
        ledger.spent()
        damaged("UPDATE entries SET body = '{' WHERE number = 4")
        with pytest.raises(LedgerTampered):
            ledger.entries()
    assert_found(path)


def test_a_ledger_without_its_table_is_not_taken_for_a_new_one(damaged):
    path = damaged("DROP TABLE entries")
    with pytest.raises(LedgerError):
        Ledger(path)
