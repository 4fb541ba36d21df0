"""Fields are read by their names in one helper, which asks for no member that may be missing."""

from dataclasses import dataclass
from typing import NamedTuple

import pytest

from tacit.runtime.contracts import fields_of


@dataclass(frozen=True)
class Options:
    rate: float = 0.1
    steps: int = 3


class Pair(NamedTuple):
    left: int
    right: int


def test_a_dataclass_gives_all_fields_in_their_order():
    assert list(fields_of(Options()).items()) == [("rate", 0.1), ("steps", 3)]


def test_names_choose_fields_and_their_order():
    assert list(fields_of(Options(), ("steps", "rate"))) == ["steps", "rate"]
    assert fields_of(Pair(1, 2), ["right"]) == {"right": 2}
    assert fields_of(Options(), ()) == {}


def test_a_name_that_is_missing_is_refused():
    with pytest.raises(AttributeError, match="width"):
        fields_of(Options(), ("rate", "width"))
