"""A statistic is paid for on all ledgers before any noise is drawn, and its noise is what was paid."""

import math

import numpy as np
import pytest

from tacit.errors import BudgetExhausted, InvalidValue, Refused
from tacit.privacy.ledger.payment import Payment, from_sites
from tacit.privacy.ledger.store import Ledger
from tacit.runtime.keys import Key

SUMS = {"oslo": np.arange(5.0), "bergen": np.ones(5)}


@pytest.mark.parametrize("epsilon", [0, -1, math.nan, math.inf])
def test_epsilon_is_a_finite_number_above_zero(epsilon):
    with pytest.raises(InvalidValue, match="epsilon"):
        Payment(ledger=Ledger(), epsilon=epsilon)


@pytest.mark.parametrize("delta", [-1e-9, 1.0, math.nan])
def test_delta_is_a_probability(delta):
    with pytest.raises(InvalidValue, match="delta"):
        Payment(epsilon=1.0, delta=delta, ledger=Ledger())


def test_without_epsilon_sums_leave_as_they_are():
    left = Payment().release_sums(SUMS, 1.0, "counts")
    assert left.cells.tolist() == [SUMS["oslo"].tolist(), SUMS["bergen"].tolist()]
    assert left.variance == 0
    assert left.provenance == "bare: counts, from each of 2 sites"


@pytest.mark.parametrize(("delta", "law", "cost"), [(0.0, "laplace", 2.0), (1e-5, "gaussian", 2**0.5)])
def test_one_release_of_each_site_is_charged_and_has_the_noise_that_it_names(delta, law, cost):
    ledger = Ledger()
    paid = Payment(epsilon=1.0, delta=delta, ledger=ledger, key=Key(3, rehearsal=True))
    left = paid.release_sums({name: np.zeros(20000) for name in SUMS}, 1.0, "counts", cells=2)
    rows = ledger.releases()
    assert [(row.law, row.subject, row.purpose) for row in rows] == [
        (law, f"records@{name}", "counts") for name in SUMS
    ]
    assert [row.sensitivity for row in rows] == pytest.approx([cost, cost])
    assert ledger.spent(delta) <= 1.0
    assert left.variance == pytest.approx(rows[0].scale ** 2 * (1 if delta else 2))
    assert left.cells.std() ** 2 == pytest.approx(left.variance, rel=0.05)


def test_a_ledger_that_cannot_bear_it_releases_nothing():
    ledger = Ledger()
    ledger.allow(epsilon=0.5, delta=0.0)
    with pytest.raises(BudgetExhausted):
        Payment(epsilon=1.0, ledger=ledger).release_sums(SUMS, 1.0, "counts")
    assert ledger.releases() == []


def test_a_release_of_several_answers_is_charged_as_often():
    ledger = Ledger()
    paid = Payment(epsilon=1.0, delta=1e-5, ledger=ledger)
    told = paid.charge([paid.release(1.0, "answers", multiplier=9.0, count=8)], SUMS, "answers")
    assert [row.count for row in ledger.releases()] == [8, 8]
    assert told == f"released: epsilon 1 at delta 1e-05 for any one record; answers, {from_sites(2)}"


def test_epsilon_needs_a_ledger():
    with pytest.raises(Refused, match=r"ledger=Ledger\(path\)"):
        Payment(epsilon=1.0)
