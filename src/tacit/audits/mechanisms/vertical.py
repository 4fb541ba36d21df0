"""Columns of the same records: apart, multiplied, counted."""

from collections.abc import Mapping

import numpy as np

from tacit.audits.canaries import LONG
from tacit.audits.lower_bounds import Evidence, ratios
from tacit.audits.mechanisms.base import FEW, SITE, Primitive, canary_primitive, toss_coins, zeros
from tacit.privacy.mechanisms.vertical import ClippedSecureGram, GramMatrix, LocalColumns, NoisyHistograms
from tacit.runtime.keys import Key

COLUMNS: Mapping[str, float] = {"x": 1.0, "y": 2.0}


def curves(direction: int) -> Primitive:
    """Curves as their coordinates, each person's by itself, along one of the coordinates."""
    mechanism = LocalColumns(
        multiplier=1.0, radii=COLUMNS, holders=dict.fromkeys(COLUMNS, SITE), widths=dict.fromkeys(COLUMNS, 4),
        rehearsal=True,
    )  # fmt: skip

    def attack(attacked: LocalColumns, count: int, key: Key) -> Evidence:
        present = toss_coins(count, key)
        scores = np.zeros(count)
        for price, (column, radius) in zip(mechanism.release(1, [SITE]), COLUMNS.items(), strict=True):
            rows = np.zeros((count, 4))
            rows[:, direction] = LONG * radius * np.where(present, 1, -1)
            scores += ratios(price, attacked.noisy_rows(rows, column, key / SITE / column)[:, direction])
        return Evidence(scores, present)

    return Primitive(mechanism, mechanism.release(1, [SITE]), attack)


def products() -> Primitive:
    """Products of all curves, with noise of a server."""
    mechanism = GramMatrix(
        multiplier=1.0, radii=COLUMNS, holders=dict.fromkeys(COLUMNS, SITE), rehearsal=True
    )
    return canary_primitive(
        mechanism, lambda planted, key: planted.at_server(zeros(6), key / "server"), most=FEW
    )


def secure_products() -> Primitive:
    """Products of all curves that parties take in secret."""
    mechanism = ClippedSecureGram(
        multiplier=0.5, radii=dict.fromkeys("xyz", 1.0), widths=((1,), (1,), (1,)), records=1, rehearsal=True
    )
    return canary_primitive(
        mechanism, lambda planted, key: planted.at_site(zeros(1), key / SITE / "update"), most=FEW
    )


def histogram() -> Primitive:
    """How many records are in each of several bins."""
    mechanism = NoisyHistograms(multiplier=1.0, holders={"x": SITE}, purpose="lengths", rehearsal=True)

    def play(planted: NoisyHistograms, key: Key) -> None:
        planted.noisy_sum(zeros(2)[None], key / SITE / "x")

    return canary_primitive(mechanism, play, most=FEW)
