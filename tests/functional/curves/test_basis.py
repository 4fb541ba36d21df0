"""Splines and waves: exact integrals, and frames whose coordinates are as long as curves are high."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.interpolate import BSpline

from tacit.errors import InvalidValue
from tacit.functional.curves.basis import BSplines, Fourier, frame, whitening

BASES = [
    BSplines(),
    BSplines(size=4),
    BSplines(size=12, order=3, domain=(-2, 5)),
    BSplines(order=6, domain=(0, 100), knots=(10, 11, 50, 90)),
    BSplines(size=80, domain=(0, 24)),
    Fourier(),
    Fourier(size=5, domain=(3, 10)),
]
SMALL = [basis for basis in BASES if basis.size <= 21]
ENDS = st.tuples(st.floats(-1e3, 1e3), st.floats(1e-2, 1e3)).map(lambda ends: (ends[0], ends[0] + ends[1]))


def named(basis: BSplines | Fourier) -> str:
    return f"{basis.kind}-{basis.size}-{basis.domain}"


def grid(basis: BSplines | Fourier, points: int = 201) -> np.ndarray:
    return np.linspace(*basis.domain, points)


def test_the_gram_matrix_of_the_reference_design_has_known_eigenvalues():
    found = np.linalg.eigvalsh(BSplines(size=20, domain=(0, 100)).gram())
    assert found[[0, -1]] == pytest.approx([0.2183752391, 5.8118873472], abs=1e-9)


def test_the_reference_system_finds_the_same_up_to_the_error_of_its_quadrature():
    """R's fda integrates by Romberg's rule over the domain and stops at 129 points, whatever the knots."""
    basis, rules = BSplines(size=20, domain=(0, 100)), []
    for points in (9, 17, 33, 65, 129):
        values = basis.design(np.linspace(0, 100, points))
        weights = np.full(points, 100 / (points - 1))
        weights[[0, -1]] /= 2
        rules.append((values.T * weights) @ values)
    for order in range(1, 5):
        rules = [fine + (fine - rough) / (4**order - 1) for rough, fine in pairwise(rules)]
    assert np.linalg.eigvalsh(rules[0])[[0, -1]] == pytest.approx([0.2183389, 5.8118875], abs=1e-7)
    assert np.abs(rules[0] - basis.gram()).max() < 0.01


@pytest.mark.parametrize("basis", SMALL, ids=named)
@pytest.mark.parametrize("derivative", [0, 1, 2])
def test_integrals_are_those_of_adaptive_quadrature(basis, derivative):
    exact = basis.penalty(derivative)
    breaks = np.array(basis.knots) if getattr(basis, "knots", None) else np.empty(0)
    if isinstance(basis, BSplines) and basis.knots is None:
        breaks = np.linspace(*basis.domain, basis.size - basis.order + 2)[1:-1]
    for i, j in [(0, 0), (1, 2), (basis.size - 1, basis.size - 2)]:

        def product(when, i=i, j=j):
            values = basis.design([when], derivative)[0]
            return values[i] * values[j]

        found = quad(
            product,
            *basis.domain,
            points=breaks if len(breaks) else None,
            limit=200,
            epsabs=1e-9 * exact.max(),
        )[0]
        assert exact[i, j] == pytest.approx(found, rel=1e-7, abs=1e-7 * np.abs(exact).max())


@pytest.mark.parametrize("basis", BASES, ids=named)
def test_gram_and_penalty_are_symmetric_and_positive(basis):
    for matrix in (basis.gram(), basis.penalty()):
        assert np.allclose(matrix, matrix.T, rtol=1e-12)
        assert np.linalg.eigvalsh(matrix)[0] >= -1e-12 * np.abs(matrix).max()


def test_splines_are_those_of_scipy():
    times = np.linspace(0, 100, 57)
    knots = np.pad(np.linspace(0, 100, 18), 3, mode="edge")
    expected = BSpline.design_matrix(times, knots, 3).toarray()
    assert np.allclose(BSplines(domain=(0, 100)).design(times), expected, atol=1e-14)


@settings(max_examples=30)
@given(st.integers(3, 7), st.integers(0, 20), ENDS, st.lists(st.floats(0, 1), min_size=1, max_size=20))
def test_splines_add_up_to_one_everywhere(order, more, domain, shares):
    basis = BSplines(size=order + more, order=order, domain=domain)
    times = domain[0] + np.array(shares) * (domain[1] - domain[0])
    found = basis.design(times)
    assert found.sum(axis=1) == pytest.approx(np.ones(len(times)))
    assert found.min() >= 0
    assert (np.count_nonzero(found, axis=1) <= order).all()


@settings(max_examples=30)
@given(st.sampled_from(SMALL), st.integers(1, 2), st.floats(0.02, 0.98))
def test_derivatives_are_limits_of_differences(basis, derivative, share):
    low, high = basis.domain
    step = 1e-5 * (high - low)
    when = low + share * (high - low)
    if isinstance(basis, BSplines):
        breaks = basis.knots or np.linspace(low, high, basis.size - basis.order + 2)[1:-1]
        when += 4 * step * (np.abs(np.array([*breaks, np.inf]) - when).min() < 2 * step)
    before, after = basis.design([when - step, when + step], derivative - 1)
    found = basis.design([when], derivative)[0]
    assert found == pytest.approx(
        (after - before) / (2 * step), abs=1e-4 * max(1e-9, np.abs(found).max()) + 1e-6
    )


@pytest.mark.parametrize("basis", BASES, ids=named)
def test_a_frame_is_orthonormal_in_the_mean_and_its_penalty_diagonal(basis):
    found, length = frame(basis), basis.domain[1] - basis.domain[0]
    gram = found.mixing.T @ basis.gram() @ found.mixing / length
    penalty = found.mixing.T @ basis.penalty() @ found.mixing * length**3
    assert np.abs(gram - np.eye(basis.size)).max() < 1e-10
    assert np.abs(penalty - np.diag(found.roughness)).max() < 1e-8 * found.roughness[-1]
    assert (np.diff(found.roughness) >= -1e-8 * found.roughness[1:]).all()
    flat = 2 if isinstance(basis, BSplines) else 1
    assert (found.roughness[:flat] == 0).all()
    assert (found.roughness[flat:] > 400).all()


@pytest.mark.parametrize("basis", BASES, ids=named)
def test_a_frame_begins_with_the_constant_and_then_a_line_or_a_wave(basis):
    times = grid(basis)
    shares = (times - times[0]) / (times[-1] - times[0])
    second = (
        np.sqrt(12) * (shares - 0.5)
        if isinstance(basis, BSplines)
        else np.sqrt(2) * np.sin(2 * np.pi * shares)
    )
    found = frame(basis).design(times)
    assert found[:, 0] == pytest.approx(np.ones(len(times)), abs=1e-7)
    assert found[:, 1] == pytest.approx(second, abs=1e-7)


def test_the_roughness_of_smooth_functions_is_that_of_a_free_beam_and_of_waves():
    beam = np.array([4.730040744862704, 7.853204624095838, 10.995607838001671]) ** 4
    assert frame(BSplines(size=60)).roughness[2:5] == pytest.approx(beam, rel=1e-5)
    assert frame(Fourier(size=5)).roughness == pytest.approx(np.array([0, 1, 1, 16, 16]) * (2 * np.pi) ** 4)


@settings(max_examples=30)
@given(ENDS, st.sampled_from([BSplines, Fourier]))
def test_a_frame_is_the_same_on_every_domain(domain, kind):
    there, here = frame(kind(size=9, domain=domain)), frame(kind(size=9))
    shares = np.linspace(0, 1, 50)
    assert there.roughness == pytest.approx(here.roughness, rel=1e-8, abs=1e-8)
    assert there.design(np.linspace(*domain, 50)) == pytest.approx(here.design(shares), abs=1e-6)


@settings(max_examples=30)
@given(ENDS, st.floats(-100, 100))
def test_the_coordinates_of_a_constant_are_as_long_as_it_is_high(domain, height):
    found = frame(BSplines(size=10, domain=domain))
    coordinates = np.linalg.solve(found.mixing, np.full(10, height))
    assert np.linalg.norm(coordinates) == pytest.approx(abs(height), abs=1e-9)


@pytest.mark.parametrize("basis", BASES, ids=named)
def test_coordinates_are_as_long_as_the_root_mean_square(basis):
    found = frame(basis)
    coordinates = np.random.default_rng(3).normal(size=found.size)
    edges, (nodes, weights) = np.linspace(*basis.domain, 1401), np.polynomial.legendre.leggauss(4)
    halves = np.diff(edges)[:, None] / 2
    values = found.design((edges[:-1, None] + halves * (nodes + 1)).ravel()) @ coordinates
    mean_square = values**2 @ (halves * weights).ravel() / (edges[-1] - edges[0])
    assert np.sqrt(mean_square) == pytest.approx(np.linalg.norm(coordinates), rel=1e-5)


def test_components_keep_the_smoothest_and_frames_are_made_once():
    whole, some = frame(BSplines(size=15)), frame(BSplines(size=15), 6)
    assert some.size == 6
    assert np.array_equal(some.roughness, whole.roughness[:6])
    assert np.array_equal(some.design([0.1, 0.9]), whole.design([0.1, 0.9])[:, :6])
    assert frame(BSplines(size=15), 6) is some
    assert frame(BSplines(size=15), 15) is whole
    with pytest.raises(ValueError, match="read-only"):
        some.mixing[0, 0] = 1.0


def test_whitening_gives_the_symmetric_root_and_its_inverse():
    gram = BSplines(size=20, domain=(0, 100)).gram()
    root, inverse_root = whitening(gram)
    assert np.allclose(root, root.T)
    assert np.allclose(root @ root, gram, atol=1e-12)
    assert np.allclose(root @ inverse_root, np.eye(20), atol=1e-12)
    with pytest.raises(InvalidValue, match=r"^gram = .* positive definite$"):
        whitening(np.ones((2, 2)))
    with pytest.raises(InvalidValue, match="a symmetric matrix"):
        whitening(np.array([[1.0, 2.0], [0.0, 1.0]]))


def test_equal_bases_are_one_however_they_were_written():
    one, other = BSplines(domain=[0, 3], knots=[1, 2]), BSplines(domain=(0.0, 3.0), knots=(1.0, 2.0), size=6)
    assert one == other
    assert hash(one) == hash(other)
    assert one.size == 6


@pytest.mark.parametrize(
    ("made", "told"),
    [
        (lambda: BSplines(size=3), "size = 3 is not allowed: it must be from 4, the order, to 400"),
        (lambda: BSplines(size=0), "size = 0 is not allowed: it must be a whole number of at least 1"),
        (lambda: BSplines(order=2), "order = 2 is not allowed: it must be a whole number from 3 to 10"),
        (lambda: BSplines(domain=(1, 1)), r"domain = \(1, 1\) is not allowed: it must be two finite numbers"),
        (lambda: BSplines(domain=(0, np.inf)), "domain = .* is not allowed"),
        (lambda: BSplines(domain=("a", "b")), "domain = .* is not allowed"),
        (lambda: BSplines(knots=(0.5, 0.2)), "knots = .* it must be increasing, inside"),
        (lambda: BSplines(knots=(0.5, 1.5)), "knots = .* it must be increasing, inside"),
        (lambda: BSplines(knots=("x",)), "knots in the basis does not hold numbers"),
        (lambda: BSplines(knots=(0.5,), size=9), "size = 9 is not allowed: it must be left out, or 5"),
        (lambda: Fourier(size=4), "size = 4 is not allowed: it must be an odd number from 3 to 400"),
        (lambda: BSplines().design([0.5, 1.5]), r"times = 1.5 is not allowed: it must be inside the domain"),
        (lambda: Fourier().design([np.nan]), "times = nan is not allowed"),
        (lambda: BSplines().design([[0.5]]), "times = .* it must be a list of times"),
        (
            lambda: BSplines().penalty(4),
            "derivative = 4 is not allowed: it must be a whole number from 0 to 3",
        ),
        (lambda: frame(BSplines(), 21), "components = 21 is not allowed: it must be at most 20"),
        (lambda: frame(BSplines(), 0), "components = 0 is not allowed"),
    ],
)
def test_what_is_no_basis_is_refused_in_one_sentence(made, told):
    with pytest.raises(InvalidValue, match=f"^{told}"):
        made()
