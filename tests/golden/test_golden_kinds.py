"""Kinds and keys of experiment files: a file that was read stays readable, and means the same."""

import capture
import pytest

GOLDEN = capture.load("kinds")


@pytest.fixture(scope="module")
def found(folder):
    return capture.collect_kinds(folder)


@pytest.mark.parametrize("part", [part for part in GOLDEN if part != "kinds"])
def test_the_same_keys_are_known(found, part):
    assert sorted(found[part]) == sorted(GOLDEN[part])


@pytest.mark.parametrize("table", GOLDEN["kinds"])
def test_a_table_has_the_same_kinds(found, table):
    assert list(found["kinds"][table]) == list(GOLDEN["kinds"][table])


@pytest.mark.parametrize("table", GOLDEN["kinds"])
def test_a_kind_has_the_same_keys_with_the_same_defaults(found, table):
    assert capture.compare(found["kinds"][table], GOLDEN["kinds"][table]) == []


def test_an_unknown_kind_of_any_table_is_refused(found):
    assert all(found["kinds"].values())
