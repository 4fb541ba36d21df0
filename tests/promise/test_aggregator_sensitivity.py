"""No site moves an aggregate further than its noise was made for, whatever the others send.

A search looks for the worst case of every rule that claims a sensitivity: clipped rows, one of which is
exchanged for zeros, changed a little at a time as long as that moves the result further. It must come near
the bounds that are known to be tight, or it would prove nothing.
"""

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.aggregation.base import Rule
from tacit.aggregation.mean import Mean
from tacit.aggregation.robust.coordinatewise import MeanAroundMedian, Median, TrimmedMean
from tacit.aggregation.robust.krum import Bulyan, Krum, MultiKrum
from tacit.aggregation.robust.mixing import Bucketing, Mixing
from tacit.aggregation.robust.reweighted import CenteredClip, CovarianceFilter, GeometricMedian, Robust
from tacit.privacy.mechanisms.clip import clip_rows

CLIP = 0.7
# Double precision: what is charged is charged to nine digits.
SLACK = 1 + 1e-9
ORDERS = {"l2": 2, "l1": 1}


@dataclass(frozen=True)
class Case:
    """A rule among so many sites, and how much of its bound is known to be reached."""

    rule: Mean | Rule | Mixing
    sites: int
    tight: float


CASES = {
    "mean": Case(Mean(), 6, 0.999),
    "centered-clip-long": Case(CenteredClip(radius=2.0), 6, 0.999),
    "centered-clip-short": Case(CenteredClip(radius=0.3), 6, 0.4),
    "trimmed-mean-7-2": Case(TrimmedMean(f=2), 7, 0.95),
    "trimmed-mean-8-1": Case(TrimmedMean(f=1), 8, 0.95),
    "trimmed-mean-0": Case(TrimmedMean(f=0), 5, 0.999),
    "trimmed-share": Case(TrimmedMean(trim=0.3), 10, 0.8),
    "mixing-0": Case(Mixing(then=TrimmedMean(f=0)), 5, 0.999),
    "mixing-5-1": Case(Mixing(then=TrimmedMean(f=1)), 5, 0.4),
    "mixing-7-2": Case(Mixing(then=TrimmedMean(f=2)), 7, 0.4),
    "mixing-10-3": Case(Mixing(then=TrimmedMean(f=3)), 10, 0.35),
}


def clipped(rows: np.ndarray, norm: str) -> np.ndarray:
    lengths = np.linalg.norm(rows, ORDERS[norm], axis=1, keepdims=True)
    return rows * np.minimum(1, CLIP / np.maximum(lengths, 1e-300))


def moved(case: Case, rows: np.ndarray, norm: str) -> float:
    """Return how far the result moves if the first site sends zeros, in units of the claim."""
    without = rows.copy()
    without[0] = 0
    claimed = case.rule.sensitivity(CLIP, case.sites, norm)
    assert claimed is not None
    apart = case.rule(rows, sites=case.sites) - case.rule(without, sites=case.sites)
    return float(np.linalg.norm(apart, ORDERS[norm])) / claimed


def start(generator: np.random.Generator, sites: int, width: int) -> np.ndarray:
    """Rows at, between or near the corners, where worst cases live."""
    corners = generator.choice([-1.0, 0.0, 1.0], (sites, width)) * CLIP
    spread = generator.choice([0.0, 1e-6, 0.1, 1.0])
    return corners + spread * generator.standard_normal((sites, width))


def worst(case: Case, width: int, norm: str, *, restarts: int = 8, steps: int = 24) -> float:
    generator = np.random.default_rng([case.sites, width, ORDERS[norm]])
    best = 0.0
    for _ in range(restarts):
        rows = clipped(start(generator, case.sites, width), norm)
        found = moved(case, rows, norm)
        for step in range(steps):
            size = CLIP * 0.9**step
            changed = rows + size * generator.standard_normal(rows.shape) * (
                generator.random((case.sites, 1)) < 0.4
            )
            # Often the site itself is at the bound.
            changed[0] *= 1 if step % 2 else 1e3
            changed = clipped(changed, norm)
            value = moved(case, changed, norm)
            if value > found:
                rows, found = changed, value
        best = max(best, found)
    return best


@pytest.mark.parametrize("norm", ["l2", "l1"])
@pytest.mark.parametrize("name", CASES)
def test_a_search_never_moves_a_result_further_than_is_claimed(name, norm):
    case = CASES[name]
    found = [worst(case, width, norm) for width in (1, 3)]
    assert max(found) <= SLACK
    assert max(found) >= case.tight


lattices = st.integers(3, 9).flatmap(
    lambda sites: st.lists(
        st.lists(st.integers(-1, 1), min_size=2, max_size=2), min_size=sites, max_size=sites
    )
)


@pytest.mark.parametrize("norm", ["l2", "l1"])
@given(rows=lattices, gone=st.integers(0, 8))
def test_a_site_that_is_not_there_moves_no_mix_further_however_many_are_equally_near(norm, rows, gone):
    # All distances are tied many times over, and everybody after the absent site changes place.
    matrix = clipped(np.array(rows, dtype=np.float64), norm)
    sites, f = len(matrix), (len(matrix) - 1) // 2
    rule = Mixing(then=TrimmedMean(f=f))
    apart = rule(matrix, sites=sites) - rule(np.delete(matrix, gone % sites, axis=0), sites=sites)
    claimed = rule.sensitivity(CLIP, sites, norm)
    assert claimed is not None
    assert float(np.linalg.norm(apart, ORDERS[norm])) <= claimed * SLACK


@pytest.mark.parametrize("rule", [TrimmedMean(f=2), Mixing(then=TrimmedMean(f=2)), CenteredClip(radius=0.5)])
def test_a_site_that_is_not_there_counts_as_one_that_sends_zeros(rule):
    rows = clip_rows(np.random.default_rng(3).normal(size=(9, 40)), CLIP)
    silent = rows.copy()
    silent[4] = 0
    absent = rule(np.delete(rows, 4, axis=0), sites=9)
    np.testing.assert_allclose(absent, rule(silent, sites=9), rtol=0, atol=1e-15)


@pytest.mark.parametrize(("sites", "f", "proven"), [(10, 3, 1.14), (15, 4, 0.649), (30, 9, 0.397)])
def test_the_bound_of_mixing_is_no_looser_than_the_one_that_is_known_for_an_exchange(sites, f, proven):
    # An exchange for zeros moves less than one for anything; these numbers are for any, with a bound of 1.
    claimed = Mixing(then=TrimmedMean(f=f)).sensitivity(1.0, sites)
    assert claimed is not None
    assert 1 / (sites - 2 * f) < claimed < proven


def test_noise_is_not_smaller_than_the_pull_of_a_site_in_the_one_step_that_is_public():
    assert CenteredClip(radius=0.5).sensitivity(1.0, 8) == 0.5 / 8
    assert CenteredClip(radius=2.0).sensitivity(1.0, 8) == 1 / 8
    # Shortening by L2 length need not shorten an L1 length at all.
    assert CenteredClip(radius=0.5).sensitivity(1.0, 8, "l1") == 1 / 8


@pytest.mark.parametrize(
    "rule",
    [
        Median(),
        MeanAroundMedian(),
        GeometricMedian(),
        Krum(),
        MultiKrum(),
        Bulyan(),
        CovarianceFilter(),
        CenteredClip(),
        CenteredClip(radius=1.0, steps=2),
        Mixing(then=GeometricMedian()),
        Mixing(then=Krum()),
        Bucketing(then=TrimmedMean()),
        Robust(),
        Robust(f=1),
    ],
    ids=lambda rule: rule.kind,
)
def test_a_rule_without_a_proof_claims_nothing(rule):
    assert rule.sensitivity(1.0, 20) is None
    assert rule.sensitivity(1.0, 20, "l1") is None
