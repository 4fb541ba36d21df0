"""Parties that hold different columns of the same subjects."""

import numpy as np
import pytest

from tacit.errors import InvalidValue
from tacit.functional.curves import curves
from tacit.sites.vertical import ByParty, Subjects, VerticalFederation


def column(records: int = 6, seed: int = 0):
    return curves(np.random.default_rng(seed).normal(size=(records, 5)), name=f"c{seed}")


def test_a_federation_of_columns_knows_who_holds_what():
    made = VerticalFederation({"a": {"x1": column(seed=1), "y": column(seed=2)}, "b": {"x2": column(seed=3)}})
    assert (list(made), made.layout, made.records) == (["a", "b"], "columns", 6)
    assert made.holder("x2") == "b"
    assert list(made["a"].columns) == ["x1", "y"]
    cohort = made.cohort(["b", "a"])
    assert [list(held) for held in cohort.holdings] == [["x2"], ["x1", "y"]]
    assert list(made.pool().holdings["pooled"]) == ["x1", "y", "x2"]


def test_an_order_of_its_own_does_not_depend_on_the_parties():
    held = {"a": {"x2": column(seed=1)}, "b": {"x1": column(seed=3), "y": column(seed=2)}}
    assert list(VerticalFederation(held, order=["x1", "x2", "y"]).subjects.columns) == ["x1", "x2", "y"]
    with pytest.raises(InvalidValue, match=r"order = .* each column once"):
        VerticalFederation(held, order=["x1", "x2"])


def test_what_cannot_be_is_refused():
    with pytest.raises(InvalidValue, match="x2 has 5 subjects and x1 has 6: every column must hold the same"):
        VerticalFederation({"a": {"x1": column()}, "b": {"x2": column(5)}})
    with pytest.raises(InvalidValue, match="column x1"):
        VerticalFederation({"a": {"x1": column()}, "b": {"x1": column()}})
    with pytest.raises(InvalidValue, match="party b = 'no column' is not allowed"):
        VerticalFederation({"a": {"x1": column()}, "b": {}})
    with pytest.raises(InvalidValue, match="held_out"):
        VerticalFederation({"a": {"x1": column(), "y": column()}}, held_out=Subjects({"x1": column()}))


def test_fingerprints_tell_data_and_holders_apart():
    one = VerticalFederation({"a": {"x1": column(seed=1), "y": column(seed=2)}})
    same = VerticalFederation({"a": {"x1": column(seed=1), "y": column(seed=2)}})
    other = VerticalFederation({"a": {"x1": column(seed=1)}, "b": {"y": column(seed=2)}})
    moved = VerticalFederation({"a": {"x1": column(seed=9), "y": column(seed=2)}})
    assert one.fingerprint == same.fingerprint
    assert len({one.fingerprint, other.fingerprint, moved.fingerprint}) == 3


def test_columns_are_dealt_out_in_turn_and_the_first_party_is_active():
    names = [f"x{k}" for k in range(1, 6)]
    assert ByParty(count=2).deal(names, "y") == {"party-1": ("x1", "x3", "x5", "y"), "party-2": ("x2", "x4")}
    assert ByParty(count=2, active="party-2").deal(names, "y")["party-2"] == ("x2", "x4", "y")


def test_named_parties_hold_what_they_are_said_to():
    split = ByParty(parties={"utility": ["demand"], "kent": ["kent"], "airport": ["airport"]})
    assert split.names == ("utility", "kent", "airport")
    assert split.deal(["kent", "airport"], "demand")["utility"] == ("demand",)
    alone = ByParty(parties={"utility": [], "kent": ["kent"]})
    assert alone.deal(["kent"], "demand")["utility"] == ("demand",)


@pytest.mark.parametrize(
    ("split", "message"),
    [
        ({"count": 4}, "4 parties for 3 predictors is not allowed: party-4 would hold no column"),
        ({"parties": {"a": ["x1"], "b": ["x2"]}}, "no party holds x3"),
        ({"parties": {"a": ["x1", "x2", "x4"], "b": ["x3"]}}, "parties.a"),
    ],
)
def test_a_division_that_leaves_somebody_or_something_out_is_refused(split, message):
    with pytest.raises(InvalidValue, match=message):
        ByParty(**split).deal(["x1", "x2", "x3"], "y")


@pytest.mark.parametrize(
    "given",
    [
        {"count": 0},
        {"count": 2, "parties": {"a": ["x1"]}},
        {"parties": {"a": ["x"], "b": ["x"]}},
        {"active": "z"},
    ],
)
def test_a_division_that_contradicts_itself_is_refused(given):
    with pytest.raises(InvalidValue):
        ByParty(**given)
