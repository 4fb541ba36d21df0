"""Our rules on the inputs on which ByzFL 0.0.11 gave its answers, and on those that break it.

Recorded by `bench/peers/run_byzfl.py`, in double precision. Its iterations run to their end; its covariance
filter is given the direction that its one power iteration only guesses, and no say of rows without weight,
which keep it from ending.
"""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from tacit.aggregation.mean import Mean
from tacit.aggregation.robust.coordinatewise import MeanAroundMedian, Median, TrimmedMean
from tacit.aggregation.robust.krum import Krum, MultiKrum
from tacit.aggregation.robust.mixing import Mixing
from tacit.aggregation.robust.reweighted import CenteredClip, CovarianceFilter, GeometricMedian
from tacit.errors import InvalidValue
from tacit.learning.task import Updates

RECORDED = json.loads((Path(__file__).parent / "byzfl_rules.json").read_text())
INPUTS = {name: np.array(rows) for name, rows in RECORDED["inputs"].items()}
HOLES = RECORDED["holes"]
RADIUS = RECORDED["radius"]
Rules = dict[str, Callable[[int], object]]
ROBUST: Rules = {
    "median": lambda f: Median(f=f),
    "trimmed-mean": lambda f: TrimmedMean(f=f),
    "mean-around-median": lambda f: MeanAroundMedian(f=f),
    "geometric-median": lambda f: GeometricMedian(f=f),
    "krum": lambda f: Krum(f=f),
    "multi-krum": lambda f: MultiKrum(f=f),
    "centered-clip": lambda f: CenteredClip(f=f, radius=RADIUS),
    "centered-clip, 4 steps": lambda f: CenteredClip(f=f, radius=RADIUS, steps=4),
    "covariance-filter": lambda f: CovarianceFilter(f=f),
    "mixing, trimmed-mean": lambda f: Mixing(then=TrimmedMean(f=f)),
    "mixing, krum": lambda f: Mixing(then=Krum(f=f)),
}
RULES: Rules = {"mean": lambda f: Mean()} | ROBUST
each_rule = pytest.mark.parametrize("name", ROBUST)


def test_every_rule_is_compared_in_every_size():
    compared = {(entry["rule"], entry["inputs"]) for entry in RECORDED["answers"]}
    assert len(compared) == len(RULES) * len(INPUTS) - 2
    assert {name for name, _ in compared} == set(RULES)


@pytest.mark.parametrize("name", RULES)
def test_answers_are_those_of_byzfl(name):
    for entry in (entry for entry in RECORDED["answers"] if entry["rule"] == name):
        found = RULES[name](entry["f"])(INPUTS[entry["inputs"]])
        told = f"{name} of {entry['inputs']} with f = {entry['f']}"
        np.testing.assert_allclose(found, entry["answer"], rtol=1e-6, atol=1e-6, err_msg=told)


@each_rule
def test_a_row_that_is_not_finite_is_named_where_byzfl_may_return_it(name):
    for word, poison in (("nan", np.nan), ("infinite", np.inf), ("infinite", -np.inf)):
        assert {"not finite", "nothing"} & set(HOLES[word].values())
        rows = INPUTS["10 x 7"].copy()
        rows[4, 2] = poison
        with pytest.raises(InvalidValue, match=r"updates\[4\].* must be finite"):
            RULES[name](3)(rows)


@each_rule
def test_numbers_so_large_that_the_filter_of_byzfl_does_not_end_are_stood(name):
    assert HOLES["huge"]["covariance-filter"] == "no end"
    for kind in (np.float32, np.float64):
        rows = INPUTS["10 x 7"].astype(kind)
        rows[-1] = 1e38
        found = RULES[name](3)(rows)
        # A mix of honest updates with one that is shortened to the radius, at the most.
        assert np.isfinite(found).all()
        assert np.abs(found).max() <= np.abs(rows[:-1]).max() + RADIUS


@each_rule
def test_the_order_of_the_rows_does_not_matter(name):
    rows = INPUTS["20 x 7"]
    order = np.random.default_rng(3).permutation(20)
    expected = RULES[name](6)(rows)
    np.testing.assert_allclose(RULES[name](6)(rows[order]), expected, rtol=0, atol=1e-9)
    names = tuple(f"site-{place:02}" for place in range(20))
    named = Updates(names=names, matrix=rows)
    shuffled = Updates(names=tuple(names[place] for place in order), matrix=rows[order])
    assert np.array_equal(RULES[name](6)(named), RULES[name](6)(shuffled))


@each_rule
def test_the_same_rows_have_the_same_answer_whatever_was_drawn_before(name):
    rows = INPUTS["20 x 40"]
    np.random.seed(0)
    first = RULES[name](6)(rows)
    np.random.seed(1)
    assert np.array_equal(RULES[name](6)(rows), first)


@each_rule
def test_the_rows_are_left_as_they_were(name):
    kept = INPUTS["20 x 7"]
    for rows in (kept.copy(), torch.from_numpy(kept.copy())):
        RULES[name](6)(rows)
        np.testing.assert_array_equal(rows, kept)


@each_rule
def test_doubles_stay_doubles(name):
    rows = INPUTS["10 x 7"] + 1e-9 * np.arange(10)[:, None]
    found = RULES[name](3)(torch.from_numpy(rows))
    assert found.dtype == np.float64
    assert np.array_equal(found, RULES[name](3)(rows))


@each_rule
def test_a_rule_may_be_asked_twice(name):
    """ByzFL's centered clipping goes on from its last answer without being told to."""
    rule = RULES[name](3)
    assert np.array_equal(rule(INPUTS["10 x 7"]), rule(INPUTS["10 x 7"]))


@each_rule
def test_a_whole_number_of_numpy_is_a_whole_number(name):
    assert HOLES["f of numpy"]["trimmed-mean"] == "ValueError"
    rows = INPUTS["10 x 7"]
    assert np.array_equal(RULES[name](np.int64(3))(rows), RULES[name](3)(rows))


@each_rule
def test_without_liars_every_rule_has_an_answer(name):
    assert HOLES["no liars"]["covariance-filter"] == "nothing"
    rows = INPUTS["10 x 7"]
    found = RULES[name](0)(rows)
    assert np.isfinite(found).all()
    if name in ("trimmed-mean", "mean-around-median", "multi-krum", "mixing, trimmed-mean"):
        np.testing.assert_allclose(found, rows.mean(axis=0), atol=1e-12)


def test_the_geometric_median_is_not_dragged_away_before_it_has_converged():
    """Four of ten sites far away: three of Weiszfeld's steps, the default of ByzFL, end in between."""
    rows = np.random.default_rng(0).normal(size=(10, 5))
    rows[6:] += 1e6
    distance = np.linalg.norm(GeometricMedian()(rows) - rows[:6].mean(axis=0))
    assert distance < 5
