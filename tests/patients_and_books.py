"""Patients whose records are private, and what their books hold: for tests of the book of the data."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from tacit import Federation, Ledger, Privacy, fit
from tacit.privacy.ledger.data_book import envelope
from tacit.sites.splits import ByColumn
from tacit.survival import PoissonPH
from tacit.survival.data.sources import Csv

PRIVATE = Privacy(unit="record", epsilon=1.0, delta=1e-5, clip=1.0)
TASK = PoissonPH(horizon=4.0, steps=2)


def patients(count=60, seed=0):
    draws = np.random.default_rng(seed)
    return pd.DataFrame({
        "age": draws.normal(60, 9, count),
        "dose": draws.normal(size=count),
        "time": draws.exponential(2, count) + 0.01,
        "event": draws.integers(0, 2, count),
        "site": ["oslo", "bergen"] * (count // 2),
    })  # fmt: skip


def at_sites(frame):
    return Federation.from_frame(frame, site="site", targets=["time", "event"])


def opened(path):
    return Csv(path=str(path)).open(ByColumn(column="site"), 0)


def train(federation, privacy=PRIVATE, **also):
    return fit(TASK, federation, privacy=privacy, rounds=2, **also)


def kinds(releases):
    found = Counter()
    for row in releases:
        found[replace(row, count=1, party="", purpose="", subject=row.unit + "s")] += row.count
    return found


def borne(path):
    """Count the kinds of releases in a ledger, about one subject for all sites."""
    if not Path(path).exists() or Path(path).stat().st_size == 0:
        # Nobody has come to write anything.
        return Counter()
    with Ledger(path, mode="read") as ledger:
        return kinds(envelope(ledger.releases()))


def never_behind(own, books):
    """Assert that each book holds at least what the ledger of a run was charged for."""
    charged = borne(own)
    for book in books:
        held = borne(book)
        assert all(held[kind] >= times for kind, times in charged.items()), book
