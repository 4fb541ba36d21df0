"""Plain data and plain words, whatever they were."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.reports.page.blocks import cut, finite, legible, numeric, one_line


def test_numbers_that_are_not_finite_become_null_however_deep():
    given = {"a": math.nan, 1: [math.inf, (1.5, {"b": -math.inf})], "c": "nan", "d": True, "e": 2}
    assert finite(given) == {"a": None, "1": [None, [1.5, {"b": None}]], "c": "nan", "d": True, "e": 2}


@given(st.text(st.characters(codec=None, categories=None)))
def test_legible_words_can_be_written_and_are_as_long_as_before(words):
    shown = legible(words)
    assert len(shown) == len(words)
    shown.encode()
    json.dumps(shown)
    assert not set(shown) & {chr(code) for code in (*range(9), 11, 12, *range(14, 32), *range(127, 160))}


def test_what_turns_its_neighbours_is_marked_and_letters_of_any_script_stay():
    assert legible("a\u202eb\u2066c\x00d\ud800") == "a\ufffdb\ufffdc\ufffdd\ufffd"
    assert (
        legible("مستشفى 病院 \N{GRINNING FACE}\u200d\u200f\tx\n")
        == "مستشفى 病院 \N{GRINNING FACE}\u200d\u200f\tx\n"
    )


def test_one_line_has_no_breaks():
    assert one_line("  a\r\n\n b\tc\u2028d ") == "a b c d"


def test_words_that_are_cut_say_how_much_is_missing():
    assert cut("x" * 10, 10) == "x" * 10
    assert cut("x" * 10_000, 3) == "xxx\N{HORIZONTAL ELLIPSIS} [9,997 more letters]"


@pytest.mark.parametrize(
    ("column", "numbers"),
    [
        (("1", "2.5", "-"), True),
        (("1e-05", "inf", "-3", "+4", ""), True),
        (("1,234", "12 %", "12.5%"), True),
        (("0.685 (0.661 to 0.709)", "0.6 [0.5, 0.7]", "broken"), True),
        (("1", "one"), False),
        (("-", ""), True),
        (("", ""), False),
        (("site-1",), False),
        (("2.5.1",), False),
        ((), False),
    ],
)
def test_columns_of_numbers_are_known(column, numbers):
    assert numeric([(cell,) for cell in column], 1) == [numbers]
