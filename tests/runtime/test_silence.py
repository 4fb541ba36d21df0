"""Warnings: suppressed while records are worked on, whatever the filters are, and restored afterwards."""

import threading
import warnings

import numpy as np
import pytest

from tacit.runtime.silence import suppress_warnings


def noisy() -> None:
    """Warn in the two ways in which libraries do."""
    warnings.warn("Mean of empty slice", RuntimeWarning, stacklevel=2)
    _ = np.float64(1.0) / np.float64(0.0)
    _ = np.array([1e300]) * 1e300


def heard(work) -> list[str]:
    # Whatever an imported library did to numpy's error state.
    with np.errstate(all="warn"), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        work()
    return [str(warning.message) for warning in caught]


def test_nothing_is_heard_inside_and_everything_afterwards():
    assert len(heard(noisy)) == 3

    def both():
        with suppress_warnings():
            noisy()
        noisy()

    assert len(heard(both)) == 3


@pytest.mark.parametrize("action", ["error", "always", "once"])
def test_a_filter_that_was_set_before_does_not_let_a_warning_through(action):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter(action)
        with np.errstate(all="raise"), suppress_warnings():
            noisy()
    assert caught == []


def test_a_filter_that_is_set_inside_is_overruled_by_the_next_block():
    with suppress_warnings(), warnings.catch_warnings():
        warnings.simplefilter("error")
        with suppress_warnings():
            noisy()


def test_filters_and_numpy_are_as_before_even_after_an_error():
    before, numpy = list(warnings.filters), np.geterr()

    @suppress_warnings()
    def fails():
        raise KeyError

    for _ in range(2):
        with pytest.raises(KeyError):
            fails()
    assert (list(warnings.filters), np.geterr()) == (before, numpy)


def test_a_thread_that_leaves_first_does_not_let_the_others_speak():
    """Filters belong to the process: the last thread to leave restores them, not the first."""
    before, second, left = list(warnings.filters), threading.Event(), threading.Event()
    caught: list[str] = []

    def longer():
        with suppress_warnings():
            second.set()
            left.wait()
            noisy()

    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        thread = threading.Thread(target=longer)
        with suppress_warnings():
            thread.start()
            second.wait()
        left.set()
        thread.join()
        caught += [str(warning.message) for warning in found]
    assert caught == []
    assert list(warnings.filters) == before
