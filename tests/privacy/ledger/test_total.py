"""The total over all runs in words: a promise where something binds it, a comparison where nothing does."""

import pytest

from tacit.privacy.accounting.release import Release
from tacit.privacy.ledger.store import Ledger
from tacit.privacy.ledger.total import AllRuns, in_words, so_far


def total(runs=3, epsilon=2.5, delta=1e-5, lifetime=None, **also):
    return AllRuns(
        runs=runs, epsilon=epsilon, delta=delta, unit="record", lifetime=lifetime, **also
    ).as_dict()


UNBOUND = (
    "no lifetime budget is set; if you decide by results whether to run again, delta may be larger (set a "
    "budget: tacit ledger FILE --lifetime E)"
)


def test_several_runs_without_a_lifetime_are_compared_with_one():
    assert in_words(total()) == (
        "All runs: the 3 runs on these data cost any one record epsilon 2.5 in total, at delta 1e-05, as a "
        f"lifetime budget fixed in advance; {UNBOUND}."
    )
    assert so_far(total()) == (
        "3 runs on these data have cost any one record epsilon 2.5 so far, at delta 1e-05, as a lifetime "
        f"budget fixed in advance; another run adds its own cost; {UNBOUND}"
    )


def test_several_runs_under_a_lifetime_cost_what_they_cost():
    assert in_words(total(lifetime=(5.0, 1e-5))) == (
        "All runs: the 3 runs on these data cost any one record epsilon 2.5 in total, at delta 1e-05; their "
        "lifetime budget is epsilon 5 at delta 1e-05."
    )
    assert so_far(total(lifetime=(5.0, 1e-5))) == (
        "3 runs on these data have cost any one record epsilon 2.5 so far, at delta 1e-05; the lifetime "
        "budget is epsilon 5 at delta 1e-05; another run adds its own cost"
    )


def test_one_run_is_one_plan_and_who_decides_on_another_is_told():
    assert in_words(total(runs=1)) == "All runs: Tacit knows of no earlier run on these records."
    assert so_far(total(runs=1)) == (
        "1 run on these data has cost any one record epsilon 2.5 so far, at delta 1e-05; another run adds "
        f"its own cost; {UNBOUND}"
    )


def test_pure_epsilons_add_up_whatever_decides_on_the_next():
    assert in_words(total(delta=0.0)) == (
        "All runs: the 3 runs on these data cost any one record epsilon 2.5 in total, at delta 0."
    )
    assert "delta may be larger" not in so_far(total(delta=0.0))


@pytest.mark.parametrize("words", [in_words, so_far])
def test_a_total_that_is_not_proven_has_no_number(words):
    told = words(total(epsilon=float("inf"), notes=("something",)))
    assert "bounded" in told
    assert "epsilon" not in told


def test_a_ledger_shows_several_plans_without_a_budget_as_a_comparison():
    with Ledger() as ledger:
        ledger.charge([Release(scale=3.0, sensitivity=1.0)])
        assert "fixed in advance" not in str(ledger._repr_html_())
        ledger.charge([Release(scale=3.0, sensitivity=1.0)])
        assert "fixed in advance" in str(ledger._repr_html_())
        ledger.allow(epsilon=5.0, delta=1e-5)
        assert "fixed in advance" not in str(ledger._repr_html_())
