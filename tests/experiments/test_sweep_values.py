"""Lists on a command line: what is one value, what is several, and what is refused."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.errors import InvalidFile, InvalidValue
from tacit.experiments.sweeps import (
    in_words,
    labels,
    parse_list,
    sort_value,
    split_lists,
    value_of,
    values_by_key,
)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("0.5,1,3,8,inf", ("0.5", "1", "3", "8", "inf")),
        (" mean , median ", ("mean", "median")),
        ('"a,b",c', ('"a,b"', "c")),
        ("'a,b'", ("'a,b'",)),
        ("[1,2],[3]", ("[1,2]", "[3]")),
        ("[1, 2]", ("[1, 2]",)),
        ('["x,]", "y"]', ('["x,]", "y"]',)),
        ('{a = 1, b = 2},{a = "2}"}', ("{a = 1, b = 2}", '{a = "2}"}')),
        (r'"say \"hi, you\"",x', (r'"say \"hi, you\""', "x")),
        ("O'Brien,O'Neill", ("O'Brien", "O'Neill")),
        ("true,false", ("true", "false")),
        ("3", ("3",)),
        ("", ("",)),
    ],
)
def test_commas_part_values_except_in_quotes_and_brackets(text, values):
    assert parse_list(f"task.key={text}") == ("task.key", values)


@given(st.lists(st.floats(allow_nan=False), min_size=2, max_size=8))
def test_numbers_come_back_as_they_went(numbers):
    _, values = parse_list("a.b=" + ",".join(map(repr, numbers)))
    assert [sort_value(text) for text in values] == numbers


@given(st.lists(st.text(alphabet="ab,'[]{} x", max_size=8), min_size=1, max_size=5))
def test_whatever_is_quoted_is_one_value(words):
    _, values = parse_list("a.b=" + ",".join(f'"{word}"' for word in words))
    assert [value_of(text) for text in values] == words


@pytest.mark.parametrize("change", ["privacy.epsilon", "=1,2", "privacy.=1,2", "a..b=1,2"])
def test_what_is_no_change_is_refused(change):
    with pytest.raises(InvalidFile, match=r"must be table\.key=value"):
        parse_list(change)


@pytest.mark.parametrize("text", ["1,", ",1", "1,,2", ","])
def test_a_value_that_is_missing_is_refused(text):
    with pytest.raises(InvalidFile, match="a value on both sides of every comma"):
        parse_list(f"privacy.epsilon={text}")


def test_single_values_are_no_lists():
    assert split_lists(["rounds=3", "a.b=1,2", "c=[1,2]"]) == (["rounds=3", "c=[1,2]"], ["a.b=1,2"])


def test_a_list_gives_each_value_once_and_each_key_has_one_list():
    assert values_by_key(["a.b=1,2", "c=x,y"]) == {"a.b": ("1", "2"), "c": ("x", "y")}
    with pytest.raises(InvalidValue, match=r"--set a\.b=1,2,1\.0 is not allowed: a value is in it twice"):
        values_by_key(["a.b=1,2,1.0"])
    with pytest.raises(InvalidFile, match=r"--set a\.b is given twice"):
        values_by_key(["a.b=1,2", "a.b=3,4"])
    with pytest.raises(InvalidFile, match="there is nothing to sweep: give a key several values"):
        values_by_key([])


def test_a_whole_number_is_a_number_and_a_word_stays_one():
    assert sort_value("3") == 3.0
    assert sort_value("inf") == math.inf
    assert sort_value("0x10") == 16.0
    assert sort_value("true") == "true"
    assert sort_value('"mean"') == sort_value("mean") == "mean"
    assert sort_value("[1, 2]") == "[1, 2]"


def test_keys_are_called_by_their_last_part_if_that_tells_them_apart():
    assert labels(["privacy.epsilon", "task.lr"]) == {"privacy.epsilon": "epsilon", "task.lr": "lr"}
    assert labels(["task.lr", "server.lr"]) == {"task.lr": "task.lr", "server.lr": "server.lr"}
    assert labels(["aggregation.kind", "rounds"]) == {"aggregation.kind": "aggregation", "rounds": "rounds"}
    assert in_words([("privacy.epsilon", "0.5"), ("task.lr", "2")]) == "epsilon 0.5, lr 2"
