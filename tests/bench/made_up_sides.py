"""Sides of made-up races, for tests of how races are run."""

import time

import numpy as np

from bench.racing import Work


def exact(size, **_):
    return Work(lambda: np.arange(size, dtype=float))


def nearly(size, apart=0.0):
    return Work(lambda: np.arange(size, dtype=float) + apart)


def broken(size, **_):
    return Work(lambda: np.full(size, np.nan))


def named(size, **_):
    return Work(lambda: {"one": 1.0, "two": np.zeros(size)})


def checked(size, **_):
    return Work(lambda: 1 / 0, check=lambda: np.arange(size, dtype=float), seconds=lambda: (2.0, 3.0))


def slow(size, **_):
    """Does something for about so many thousandths of a second."""

    def run():
        began = time.process_time()
        while time.process_time() - began < size / 1000:
            pass
        return np.arange(size, dtype=float)

    return Work(run)


def talkative(size, **_):
    print("what a library prints is no answer")
    return exact(size)


def failing(**_):
    raise ValueError("cannot be got ready")


def large(size, **_):
    return Work(lambda: float(np.ones(size * 2**20 // 8).sum()) * 0 + size)
