"""Nothing that a site sends can end everybody's run: what cannot be used is named and left out."""

import re

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from tacit.aggregation.screening import ABSURD, Reply, Screen, anonymize
from tacit.errors import InvalidValue
from tacit.learning.record import Fault
from tacit.learning.task import Updates

NAMES = ("bergen", "oslo", "tromso")


def screen(**fields):
    return Screen(**{"names": NAMES, "width": 2, "round": 3, "ticket": "t3", **fields})


def reply(site="oslo", vector=None, **fields):
    values = np.array([1.0, -2.0]) if vector is None else vector
    return Reply(**{"site": site, "round": 3, "ticket": "t3", "vector": values, **fields})


def reasons(faults):
    return [(fault.site, fault.reason) for fault in faults]


def test_good_updates_come_out_as_they_came_in_the_order_the_sites_were_asked():
    kept, faults = screen()([reply("tromso", np.array([5.0, 6.0])), reply("bergen", np.array([1.0, 2.0]))])
    assert kept.names == ("bergen", "tromso")
    assert kept.matrix.tolist() == [[1, 2], [5, 6]]
    assert kept.matrix.dtype == np.float64
    assert (kept.round, faults) == (3, ())


@pytest.mark.parametrize(
    ("vector", "said"),
    [
        (np.zeros(3), r"shape \(3,\)"),
        (np.zeros(1), r"shape \(1,\)"),
        (np.zeros((1, 2)), r"shape \(1, 2\)"),
        (np.float64(1), "float64"),
        (np.zeros(0), r"shape \(0,\)"),
        (np.zeros(2, dtype=np.int64), "int64"),
        (np.zeros(2, dtype=np.complex128), "complex128"),
        (np.array(["a", "b"]), "array of <U1"),
        (np.array([None, 1], dtype=object), "object"),
        ([1.0, 2.0], "list"),
        ({"weights": np.zeros(2)}, "dict"),
        (b"bytes", "bytes"),
    ],
)
def test_what_is_not_a_vector_of_the_right_length_is_left_out(vector, said):
    kept, faults = screen()([reply("oslo", vector), reply("bergen")])
    assert kept.names == ("bergen",)
    assert reasons(faults) == [("oslo", "schema")]
    assert re.search(said, faults[0].detail)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_not_finite_are_left_out(bad):
    kept, faults = screen()([reply("oslo", np.array([1.0, bad])), reply("bergen")])
    assert kept.names == ("bergen",)
    assert reasons(faults) == [("oslo", "not-finite")]
    assert "1 of 2" in faults[0].detail


def test_minus_zero_and_denormals_are_numbers_like_any_other():
    kept, faults = screen()([reply("oslo", np.array([-0.0, 5e-324]))])
    assert kept.names == ("oslo",)
    assert faults == ()


@pytest.mark.parametrize("huge", [1e38, 1e200, 1e308])
def test_an_absurd_length_is_left_out_whatever_its_size(huge):
    kept, faults = screen()([reply("oslo", np.array([huge, 0.0])), reply("bergen"), reply("tromso")])
    assert kept.names == ("bergen", "tromso")
    assert reasons(faults) == [("oslo", "too-long")]


def test_an_absurd_length_is_left_out_among_updates_whose_squares_vanish():
    tiny = np.array([1e-170, 0.0])
    kept, faults = screen()([reply("oslo", tiny * 1e30), reply("bergen", tiny), reply("tromso", tiny)])
    assert kept.names == ("bergen", "tromso")
    assert reasons(faults) == [("oslo", "too-long")]


def test_sites_may_differ_in_length_by_much():
    long = np.array([0.9 * ABSURD, 0.0])
    kept, faults = screen()([reply("oslo", long), reply("bergen"), reply("tromso")])
    assert len(kept.names) == 3
    assert faults == ()


def test_a_public_bound_is_the_limit_where_there_is_one():
    kept, faults = screen(limit=(2.0, "l2"))([
        reply("oslo", np.array([2.0, 0.0])),
        reply("bergen", np.array([2.1, 0.0])),
        reply("tromso", np.array([1e-9, 0.0])),
    ])  # fmt: skip
    assert kept.names == ("oslo", "tromso")
    assert reasons(faults) == [("bergen", "too-long")]


def test_a_public_bound_has_its_norm():
    long = np.array([0.8, 0.8])
    assert screen(limit=(1.2, "l2"))([reply("oslo", long)])[1] == ()
    assert reasons(screen(limit=(1.2, "l1"))([reply("oslo", long)])[1]) == [("oslo", "too-long")]


def test_half_of_the_sites_cannot_raise_the_limit():
    kept, faults = screen()([reply("oslo", np.array([1e149, 0.0])), reply("bergen")])
    assert kept.names == ("bergen",)
    assert reasons(faults) == [("oslo", "too-long")]


@pytest.mark.parametrize("odd", [torch.zeros(2, dtype=torch.bfloat16), torch.zeros(2).to_sparse()])
def test_a_tensor_that_is_no_array_is_left_out(odd):
    _, faults = screen()([reply("oslo", odd)])
    assert reasons(faults) == [("oslo", "schema")]


def test_with_a_public_bound_nobody_is_judged_by_the_others():
    # Where the server adds the noise, whether a site counts must not hang on the data of another.
    _, faults = screen(limit=(2.0, "l2"))([
        reply("oslo", np.array([2.0, 0.0])), reply("bergen", np.zeros(2)), reply("tromso", np.zeros(2))
    ])  # fmt: skip
    assert faults == ()


def test_updates_of_zeros_are_updates():
    kept, faults = screen()([reply(name, np.zeros(2)) for name in NAMES])
    assert kept.names == NAMES
    assert faults == ()


def test_the_same_update_twice_counts_once():
    kept, faults = screen()([reply("oslo"), reply("oslo")])
    assert kept.matrix.tolist() == [[1, -2]]
    assert reasons(faults) == [("oslo", "duplicate")]


def test_of_two_different_updates_the_first_counts_and_the_site_is_named():
    kept, faults = screen()([reply("oslo"), reply("oslo", np.array([9.0, 9.0]))])
    assert kept.matrix.tolist() == [[1, -2]]
    assert reasons(faults) == [("oslo", "equivocation")]


def test_an_answer_to_an_earlier_round_is_late_and_never_mixed_in():
    kept, faults = screen()([reply("oslo", round=2, ticket="t2")])
    assert kept.names == ()
    assert reasons(faults) == [("oslo", "late")]


def test_an_old_update_that_claims_to_be_new_is_a_replay():
    for fields in ({"ticket": "t2"}, {"round": 4, "ticket": "t4"}):
        kept, faults = screen()([reply("oslo", **fields)])
        assert kept.names == ()
        assert reasons(faults) == [("oslo", "replay")]


def test_a_site_that_was_not_asked_is_unknown():
    kept, faults = screen()([reply("stavanger")])
    assert kept.names == ()
    assert reasons(faults) == [("stavanger", "unknown")]


def test_rows_of_a_matrix_are_screened_alike():
    matrix = np.array([[1.0, 2.0], [float("nan"), 0.0], [3.0, 4.0]], dtype=np.float64)
    kept, faults = screen().rows(Updates(NAMES, matrix))
    assert kept.names == ("bergen", "tromso")
    assert reasons(faults) == [("oslo", "not-finite")]


def test_what_came_is_left_as_it_was_and_not_shared():
    vector = np.array([1.0, 2.0])
    kept, _ = screen()([reply("oslo", vector)])
    kept.matrix[:] = 0.0
    assert vector.tolist() == [1, 2]


def test_faults_lose_their_names_where_who_took_part_is_a_secret():
    faults = (Fault(site="oslo", reason="late", detail="x"),)
    assert anonymize(faults) == (Fault(site="", reason="late", detail="x"),)


@pytest.mark.parametrize(
    "fields", [{"width": 0}, {"names": ("a", "a")}, {"limit": (0.0, "l2")}, {"limit": (np.nan, "l2")}]
)
def test_a_screen_that_cannot_work_is_refused(fields):
    with pytest.raises(InvalidValue):
        screen(**fields)


anything = st.one_of(
    arrays.arrays(np.float64, st.integers(0, 3), elements=st.floats()),
    arrays.arrays(np.float32, st.tuples(st.integers(0, 2), st.integers(0, 2)), elements=st.floats(width=32)),
    st.binary(max_size=8), st.none(), st.text(max_size=3), st.integers(),
)  # fmt: skip


@settings(deadline=None, max_examples=300)
@given(st.lists(st.tuples(st.sampled_from([*NAMES, "x"]), st.integers(1, 4), anything), max_size=8))
def test_whatever_comes_is_either_a_finite_row_or_a_named_fault(sent):
    replies = [reply(site, vector, round=number, ticket=f"t{number}") for site, number, vector in sent]
    kept, faults = screen()(replies)
    assert len(kept.names) + len(faults) == len(replies)
    assert kept.matrix.shape == (len(kept.names), 2)
    assert bool(np.isfinite(kept.matrix).all())
    assert set(kept.names) <= set(NAMES)


@given(
    arrays.arrays(
        np.float64,
        (3, 2),
        elements=st.sampled_from([0.0, 1e-200, -1e-3, 1.0, -2.0, 999.0, 1e4, 1e160, np.nan, np.inf]),
    ),
    st.sampled_from([None, (2.0, "l2"), (3.0, "l1")]),
)
def test_a_matrix_is_screened_as_its_rows_one_by_one(matrix, limit):
    asked = screen(limit=limit)
    whole, faults = asked.rows(Updates(NAMES, matrix))
    each, found = asked(reply(name, row) for name, row in zip(NAMES, matrix, strict=True))
    assert (whole.names, faults) == (each.names, found)
    assert np.array_equal(whole.matrix, each.matrix)


def test_what_was_screened_is_a_copy():
    sent = np.ones((3, 2))
    kept, _ = screen().rows(Updates(NAMES, sent))
    sent += 1
    assert bool((kept.matrix == 1).all())


def test_a_matrix_is_measured_in_the_norm_of_the_limit():
    # As long as 1 in L2 and as 1.4 in L1.
    rows = np.full((3, 2), 0.5**0.5)
    updates = Updates(NAMES, rows, round=3)
    assert screen(limit=(1.2, "l2")).rows(updates)[1] == ()
    assert reasons(screen(limit=(1.2, "l1")).rows(updates)[1]) == [(name, "too-long") for name in NAMES]
    assert screen(limit=(1.5, "l1")).rows(updates)[1] == ()
