"""Digests of records: the same for the same values, however they are written down."""

import io

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.runtime.fingerprints import digest_frame, digest_numbers, digest_observations, digest_table

EXTREMES = [0.0, -0.0, 1e-320, -1e-300, 1e5, 1e160, 1e300, 1.7e308, 9.9999996, 10.0, np.inf, -np.inf, np.nan]


def test_how_numbers_are_written_does_not_matter():
    frame = pd.DataFrame(
        {"a": [1.0, 2.5, -3e-7], "b": [4, 5, 6], "c": ["x", " y", "7"], "d": [True, False, True]}
    )
    written = frame.to_csv(index=False, float_format="%.6g", lineterminator="\r\n")
    other = pd.read_csv(io.StringIO(written), dtype={"b": str})
    assert (digest_frame(frame) == digest_frame(other)).all()
    assert (digest_frame(frame) == digest_frame(frame[["d", "b", "a", "c"]])).all()
    assert len(set(digest_frame(frame).tolist())) == 3


@given(st.lists(st.floats(1e-290, 1e290), min_size=1, max_size=20), st.sampled_from([1.0, -1.0]))
def test_what_follows_the_sixth_digit_does_not_matter(values, sign):
    rounded = sign * np.array([float(f"{value:.6g}") for value in values])
    for nearly in (rounded * (1 + 1e-9), rounded * (1 - 1e-9)):
        assert digest_numbers(nearly).tolist() == digest_numbers(rounded).tolist()


def test_numbers_that_differ_have_digests_that_differ():
    numbers = np.array([1.0, -1.0, 1.00001, 10.0, 0.1, 0.0, 999999.0, 1e6])
    assert len(set(digest_numbers(numbers).tolist())) == len(numbers)
    assert digest_numbers(np.array([9.9999996])) == digest_numbers(np.array([10.0]))
    assert digest_numbers(np.array([0.0])) == digest_numbers(np.array([-0.0]))


def test_numbers_beyond_all_measure_are_digested_in_silence():
    assert len(digest_numbers(np.array(EXTREMES))) == len(EXTREMES)
    assert len(digest_table(np.zeros((0, 3)), [np.zeros(0)])) == 0


def test_a_table_and_the_frame_it_came_from_have_the_same_digests():
    draws = np.random.default_rng(0)
    values = draws.normal(size=(40, 5))
    frame = pd.DataFrame(values, columns=list("abcde"))
    assert (digest_table(values[:, :3], [values[:, 3], values[:, 4]]) == digest_frame(frame)).all()


def test_a_record_is_digested_by_itself():
    draws = np.random.default_rng(0)
    values = draws.normal(size=(50, 4))
    alone = [digest_table(values[place : place + 1], [])[0] for place in range(50)]
    assert digest_table(values, []).tolist() == alone


@pytest.mark.parametrize("count", [1, 3])
def test_observations_are_digested_by_their_owner(count):
    owners = np.repeat(np.arange(count), 2)
    values = np.arange(2.0 * count)
    found = digest_observations(values, owners, count)
    assert found.tolist() == digest_table(values.reshape(count, 2), []).tolist()
