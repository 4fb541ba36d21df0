"""Compiled layers do what numpy does with the same numbers, whoever works beside a site."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.learning import kernels

WIDE = st.integers(1, 9)
shapes = st.tuples(st.integers(1, 4), st.integers(0, 7), WIDE, WIDE)


def layer(sites: int, records: int, inputs: int, outputs: int, *, before: int = 0, bias: bool = True):
    """Some numbers of a layer whose weights begin at `before`: what goes in, weights, what comes back."""
    draws = np.random.default_rng(sites + 10 * records + 100 * inputs + 1000 * outputs)
    width = before + outputs * (inputs + bias) + 3
    entered = np.maximum(draws.normal(size=(sites, records, inputs)), 0.0)
    return entered, draws.normal(size=(sites, width)), draws.normal(size=(sites, records, outputs))


def everybody(back):
    """All records of each site."""
    return np.full(len(back), back.shape[1], dtype=np.int64)


def matrices(weights, before, inputs, outputs):
    middle = before + outputs * inputs
    return weights[:, before:middle].reshape(-1, outputs, inputs), weights[:, middle : middle + outputs]


@settings(max_examples=40)
@given(shapes, st.integers(0, 5), st.booleans(), st.booleans(), st.booleans())
def test_a_layer_spreads_its_inputs(shape, before, bias, rectified, blocks):
    _, records, inputs, outputs = shape
    entered, weights, made = layer(*shape, before=before, bias=bias)
    kernels.layer_forward(entered, weights, before, bias, rectified, blocks, made)
    matrix, biases = matrices(weights, before, inputs, outputs)
    expected = entered @ matrix.swapaxes(1, 2) + (biases[:, None] if bias else 0.0)
    np.testing.assert_allclose(made, np.maximum(expected, 0.0) if rectified else expected, atol=1e-13)
    assert made.shape[1] == records


@settings(max_examples=40)
@given(shapes, st.integers(0, 5), st.booleans(), st.booleans())
def test_a_layer_gathers_what_comes_back(shape, before, rectified, blocks):
    entered, weights, back = layer(*shape, before=before)
    under = np.empty_like(entered)
    kernels.layer_backward(back, weights, before, entered, rectified, blocks, under)
    expected = back @ matrices(weights, before, *shape[2:])[0]
    np.testing.assert_allclose(under, expected * (entered > 0) if rectified else expected, atol=1e-13)


@settings(max_examples=40)
@given(shapes, st.integers(0, 5), st.booleans())
def test_gradients_are_added_up_with_their_factors(shape, before, bias):
    entered, sums, back = layer(*shape, before=before, bias=bias)
    kept, factors = sums.copy(), np.random.default_rng(0).random(back.shape[:2])
    kernels.add_up(entered, back, factors, everybody(back), before, bias, sums)
    matrix, biases = matrices(sums, before, *shape[2:])
    np.testing.assert_allclose(matrix, np.einsum("sr,sro,sri->soi", factors, back, entered), atol=1e-13)
    if bias:
        np.testing.assert_allclose(biases, np.einsum("sr,sro->so", factors, back), atol=1e-13)
    # Nothing is written beside the layer.
    end = before + shape[3] * (shape[2] + bias)
    np.testing.assert_array_equal(sums[:, :before], kept[:, :before])
    np.testing.assert_array_equal(sums[:, end:], kept[:, end:])


@settings(max_examples=40)
@given(shapes, st.booleans())
def test_squares_are_those_of_gradients_that_are_written_out(shape, bias):
    entered, _, back = layer(*shape)
    found, unsure = np.ones(back.shape[:2]), np.zeros(back.shape[:2], dtype=bool)
    kernels.squares(entered, back, bias, 1e60, found, unsure)
    assert not unsure.any()
    ones = np.ones((*entered.shape[:2], int(bias)))
    written = np.einsum("sri,sro->srio", np.concatenate([entered, ones], axis=2), back)
    np.testing.assert_allclose(found, 1 + (written**2).sum(axis=(2, 3)), rtol=1e-12)


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e31])
@pytest.mark.parametrize("which", ["entered", "back"])
def test_what_squares_do_not_measure_is_marked(bad, which):
    entered, _, back = layer(2, 3, 4, 5)
    (entered if which == "entered" else back)[1, 2, 3] = bad
    unsure = np.zeros((2, 3), dtype=bool)
    kernels.squares(entered, back, True, 1e60, np.zeros((2, 3)), unsure)
    assert np.argwhere(unsure).tolist() == [[1, 2]]


def test_what_is_no_number_does_not_vanish_in_a_rectifier():
    entered, weights, made = layer(1, 2, 3, 4)
    entered[0, 1, 0] = np.nan
    kernels.layer_forward(entered, weights, 0, True, True, True, made)
    assert np.isfinite(made[0, 0]).all()
    assert np.isnan(made[0, 1]).all()


def test_a_site_computes_the_same_bits_whoever_works_beside_it():
    entered, weights, back = layer(5, 32, 10, 7)
    factors, sums, made, under = np.ones((5, 32)), weights.copy(), back.copy(), entered.copy()
    kernels.layer_forward(entered, weights, 0, True, True, True, made)
    kernels.layer_backward(back, weights, 0, entered, True, True, under)
    kernels.add_up(entered, back, factors, everybody(back), 0, True, sums)
    for site in range(5):
        part = slice(site, site + 1)
        one, other, third = np.empty_like(made[part]), np.empty_like(under[part]), weights[part].copy()
        kernels.layer_forward(entered[part], weights[part], 0, True, True, True, one)
        kernels.layer_backward(back[part], weights[part], 0, entered[part], True, True, other)
        kernels.add_up(entered[part], back[part], factors[part], everybody(back[part]), 0, True, third)
        assert (one == made[part]).all()
        assert (other == under[part]).all()
        assert (third == sums[part]).all()


def test_adam_is_that_of_its_paper_for_each_site():
    draws = np.random.default_rng(0)
    weights, mean, square = draws.normal(size=(3, 20)), np.zeros((3, 20)), np.zeros((3, 20))
    expected, first, second = weights.copy(), mean.copy(), square.copy()
    for taken in range(1, 6):
        slopes = draws.normal(size=(3, 20))
        first, second = 0.9 * first + 0.1 * slopes, 0.999 * second + 0.001 * slopes**2
        pace = np.sqrt(second / (1 - 0.999**taken)) + 1e-8
        expected -= 0.01 * first / (1 - 0.9**taken) / pace
        kernels.adam(weights, slopes, mean, square, 0.01, taken)
    np.testing.assert_allclose(weights, expected, rtol=1e-12)


def test_what_rounding_leaves_of_a_gradient_moves_nothing():
    weights, slopes = np.zeros((2, 3)), np.array([[1.0, 1e-14, 0.0], [1e-14, 1e-14, 0.0]])
    kernels.adam(weights, slopes, np.zeros((2, 3)), np.zeros((2, 3)), 0.1, 1)
    assert (weights != 0).tolist() == [[True, False, False], [True, True, False]]


groups = st.tuples(st.integers(1, 3), st.integers(1, 5), st.integers(2, 4), WIDE, WIDE)


@settings(max_examples=40)
@given(groups, st.integers(0, 5), st.booleans())
def test_groups_are_measured_and_added_up_as_if_they_were_written_out(shape, before, bias):
    sites, units, members, inputs, outputs = shape
    entered, sums, back = layer(sites, units * members, inputs, outputs, before=before, bias=bias)
    ones = np.ones((*entered.shape[:2], int(bias)))
    written = np.einsum("sri,sro->sroi", np.concatenate([entered, ones], axis=2), back)
    written = written.reshape(sites, units, members, outputs, inputs + bias).sum(axis=2)
    found, unsure = np.zeros((sites, units)), np.zeros((sites, units), dtype=bool)
    kernels.group_squares(entered, back, bias, 1e60, found, unsure)
    np.testing.assert_allclose(found, (written**2).sum(axis=(2, 3)), rtol=1e-9, atol=1e-10)
    absolute = np.zeros((sites, units))
    kernels.group_sums(entered, back, bias, 1e200, absolute)
    np.testing.assert_allclose(absolute, np.abs(written).sum(axis=(2, 3)), rtol=1e-5, atol=1e-10)
    factors = np.random.default_rng(0).random((sites, units))
    kernels.add_groups(entered, back, factors, before, bias, sums)
    matrix, biases = matrices(sums, before, inputs, outputs)
    expected = np.einsum("su,suoi->soi", factors, written)
    np.testing.assert_allclose(matrix, expected[..., :inputs], atol=1e-12)
    if bias:
        np.testing.assert_allclose(biases, expected[..., inputs], atol=1e-12)


def test_sums_over_many_blocks_lose_no_more_than_one_block_does():
    draws = np.random.default_rng(0)
    records = 5000
    entered, back = draws.normal(size=(1, records, 3)), draws.normal(size=(1, records, 2))
    sums, factors = np.empty((1, 8)), np.ones((1, records))
    kernels.add_up(entered, back, factors, everybody(back), 0, True, sums)
    exact = np.einsum("ro,ri->oi", back[0].astype(np.longdouble), entered[0].astype(np.longdouble))
    lost = np.abs(sums[0, :6].reshape(2, 3) - exact).max()
    lengths = np.abs(np.einsum("ro,ri->roi", back[0], entered[0])).sum(axis=0).max()
    assert lost <= kernels.ADDED * 2.0**-53 * lengths
