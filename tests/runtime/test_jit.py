from importlib import import_module

import numpy as np
import pytest

from tacit.runtime.jit import compiled, compiled_sums, contiguous


@compiled_sums
def total(values):
    added = 0.0
    for place in range(len(values)):
        added += values[place]
    return added


@compiled
def ratio(one, other):
    return one / other


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_sums_in_any_order_keep_what_is_not_finite(bad):
    values = np.arange(100.0)
    values[57] = bad
    np.testing.assert_array_equal(total(values), bad)


def test_divisions_are_those_of_numpy():
    assert ratio(1.0, 0.0) == np.inf
    assert np.isnan(ratio(0.0, 0.0))


def test_where_nothing_can_be_kept_it_is_compiled_all_the_same(monkeypatch):
    """A guard may write nowhere: its unit protects the system and all homes."""
    caching = import_module("numba.core.caching")
    monkeypatch.setattr(caching.CacheImpl, "_locator_classes", [])
    doubled = compiled(_doubled)
    assert type(doubled._cache).__name__ == "NullCache"
    assert doubled(21.0) == 42.0


def _doubled(value):
    return 2 * value


@pytest.mark.parametrize("index", [b"", b"damaged", b"\x80\x04cno.such.module\nName\n."])
def test_code_whose_index_cannot_be_read_is_compiled_anew(index):
    """After a class was renamed, the index of kept code names one that is gone."""
    kept = compiled(_doubled)._cache._cache_file
    version = kept._version
    with open(kept._index_path, "wb") as file:
        file.write(__import__("pickle").dumps(version) + index)
    again = compiled(_doubled)
    assert again(21.0) == 42.0
    assert again.stats.cache_hits == {} or not any(again.stats.cache_hits.values())
    assert compiled(_doubled)(21.0) == 42.0


def test_values_in_order_are_taken_as_they_are():
    values = np.arange(12.0).reshape(3, 4)
    assert contiguous(values) is values
    assert contiguous(values[1:]).base is not None


@pytest.mark.parametrize("change", ["turned", "locked", "spread"])
def test_others_are_copied(change):
    values = np.arange(12.0).reshape(3, 4)
    given = {"turned": values.T, "locked": values.copy(), "spread": np.broadcast_to(values[0], (3, 4))}[
        change
    ]
    given.flags.writeable = False
    found = contiguous(given)
    assert found.flags.carray
    assert (found == given).all()
