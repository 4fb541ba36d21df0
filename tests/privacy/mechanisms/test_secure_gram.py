"""Noise in shares on products: what one record moves, what noise there is, and what the server gets."""

import math
from dataclasses import replace
from decimal import Decimal, localcontext

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.aggregation.secure.products import multiply_locally
from tacit.errors import InvalidValue, Refused
from tacit.learning.task import Updates
from tacit.privacy.accounting import calibrate, epsilon
from tacit.privacy.accounting.release import Release
from tacit.privacy.mechanisms.lattice import DEVIATIONS
from tacit.privacy.mechanisms.secure_gram import SecureGram, from_upper_triangle, shares_of, triangle_index
from tacit.runtime.keys import Key

NAMES = ("party-1", "party-10", "party-2", "party-3")
WIDTHS = ((2,), (3, 1), (2,), (1, 2))


def blind(**fields) -> SecureGram:
    usual = {"multiplier": 1.0, "widths": WIDTHS, "records": 40, "rehearsal": True}
    return SecureGram(**{**usual, **fields})


def rows_for(mechanism: SecureGram, seed: int = 0, spread: float = 0.5) -> list[np.ndarray]:
    """Rows whose blocks are at most 1 long; many are exactly that."""
    draws, found = np.random.default_rng(seed), list[np.ndarray]()
    for blocks in mechanism.widths:
        parts = [draws.normal(0, spread, (mechanism.records, width)) for width in blocks]
        lengths = [np.maximum(np.linalg.norm(part, axis=1, keepdims=True), 1) for part in parts]
        found.append(np.hstack([part / length for part, length in zip(parts, lengths, strict=True)]))
    return found


def sent(mechanism: SecureGram, rows: list[np.ndarray], key=None, noise: bool = True) -> Updates:
    key = Key(1, rehearsal=True) if key is None else key
    length, matrix = mechanism.records * max(mechanism.columns), []
    for name, own in zip(NAMES, rows, strict=False):
        padded = np.zeros(length)
        padded[: own.size] = own.ravel()
        steps = mechanism.at_site(padded, key / name)
        if not noise:
            steps[length:] = 0
        matrix.append(steps)
    return Updates(NAMES[: len(rows)], np.stack(matrix), round=3)


def steps_of(mechanism: SecureGram, updates: Updates) -> np.ndarray:
    """The rows that products are taken of, side by side, with the constant first."""
    brought = [mechanism.secure_input(party, row)[0] for party, row in enumerate(updates.matrix)]
    return np.hstack([np.full((mechanism.records, 1), 2**mechanism.bits), *brought])


def vector_of(mechanism: SecureGram, products: np.ndarray) -> np.ndarray:
    """The vector that is added up, without noise, by another way than the mechanism's."""
    products = products.astype(np.float64)
    np.fill_diagonal(products, np.rint(np.diag(products) / math.sqrt(2)))
    return products[np.triu_indices(mechanism.order)][1:]


# --- the total -------------------------------------------------------------------------------------------


@given(st.integers(0, 1000), st.integers(3, 4))
@settings(max_examples=10)
def test_without_noise_the_total_is_the_plain_product_exactly(seed, parties):
    mechanism = blind(widths=WIDTHS[:parties], records=17)
    updates = sent(mechanism, rows_for(mechanism, seed), noise=False)
    seen = multiply_locally(updates, mechanism)
    assert (seen.names, seen.round) == (("all parties",), 3)
    assert seen.matrix.shape == (1, mechanism.order * (mechanism.order + 1) // 2)
    found, steps = from_upper_triangle(seen.matrix[0]), steps_of(mechanism, updates)
    plain = steps.T @ steps / mechanism.unit
    beside = ~np.eye(mechanism.order, dtype=bool)
    assert (found[beside] == plain[beside]).all()
    assert found[0, 0] == mechanism.records
    # The diagonal was divided by sqrt(2) and rounded once.
    assert np.abs(found - plain).max() * mechanism.unit <= math.sqrt(2) / 2 + 1e-6


def test_what_is_decoded_is_about_the_products_of_the_rows_as_they_were():
    mechanism = blind(records=400)
    rows = rows_for(mechanism)
    found = from_upper_triangle(multiply_locally(sent(mechanism, rows, noise=False), mechanism).matrix[0])
    whole = np.hstack([np.ones((400, 1)), *rows])
    assert np.abs(found - whole.T @ whole).max() < 400 * 2.0**-mechanism.bits


def test_the_server_gets_the_noise_of_all_shares_and_knows_how_much_that_is():
    mechanism = blind(widths=((30,), (30, 10), (30,), (20,)), multiplier=0.5, records=5)
    nothing = [np.zeros((5, columns)) for columns in mechanism.columns]
    errors = from_upper_triangle(multiply_locally(sent(mechanism, nothing), mechanism).matrix[0])
    errors[0, 0] -= 5
    diagonal, beside = np.diag(errors)[1:], errors[np.triu_indices(mechanism.order, 1)]
    assert beside.std() == pytest.approx(mechanism.sigma / math.sqrt(2), rel=0.04)
    assert diagonal.std() == pytest.approx(mechanism.sigma, rel=0.25)
    assert mechanism.deviation(4) == mechanism.sigma / math.sqrt(2)
    # Four shares are added, and three are counted on.
    promised = 0.5 * math.sqrt(2) * mechanism.blocks
    assert mechanism.sigma == pytest.approx(promised * math.sqrt(4 / 3), rel=1e-4)


def test_a_share_has_the_variance_that_is_charged():
    mechanism = blind(widths=((40,), (40,), (40,)), records=3)
    updates = sent(mechanism, [np.zeros((3, 40))] * 3)
    shares = updates.matrix[:, 3 * 40 :]
    assert shares.shape == (3, mechanism.entries)
    spread = shares.std(axis=1)
    assert np.allclose(spread, mechanism.share, rtol=0.04)
    assert mechanism.share * math.sqrt(2) >= mechanism.scale
    assert abs(np.corrcoef(shares)[0, 1]) < 5 / math.sqrt(mechanism.entries)


def test_the_same_rows_get_the_same_noise_and_others_get_others():
    mechanism, key = blind(rehearsal=False), Key(3)
    rows = rows_for(mechanism)
    one, again = (multiply_locally(sent(mechanism, rows, key), mechanism).matrix for _ in range(2))
    assert np.array_equal(one, again)
    moved = [part.copy() for part in rows]
    moved[0][0, 0] *= 0.999
    apart = sent(mechanism, rows, key).matrix[0] - sent(mechanism, moved, key).matrix[0]
    assert float(apart[-mechanism.entries :].std()) > mechanism.share


def test_a_rehearsal_key_is_refused_where_none_was_declared():
    mechanism = blind(rehearsal=False)
    with pytest.raises(Refused, match="rehearsal"):
        sent(mechanism, rows_for(mechanism))


# --- what one record moves -------------------------------------------------------------------------------


def nasty_rows(mechanism: SecureGram, kind: str) -> list[np.ndarray]:
    """Records with blocks as long as they may be, or in nasty directions, party by party."""
    draws, found, count = np.random.default_rng(7), list[np.ndarray](), mechanism.records
    for blocks in mechanism.widths:
        parts = []
        for width in blocks:
            part = draws.normal(size=(count, width))
            if kind == "axis":
                part = np.eye(width)[draws.integers(width, size=count)] * draws.choice(
                    [-1.0, 1.0], (count, 1)
                )
            elif kind == "flat":
                part = draws.choice([-1.0, 1.0], (count, width))
            length = draws.uniform(size=(count, 1)) if kind == "short" else 1.0
            parts.append(part / np.linalg.norm(part, axis=1, keepdims=True) * length)
        found.append(np.hstack(parts))
    return found


@pytest.mark.parametrize("kind", ["any", "axis", "flat", "short"])
@pytest.mark.parametrize("widths", [WIDTHS, ((1,), (1,), (1,)), ((12,), (1, 1, 1), (7,))])
@pytest.mark.parametrize("multiplier", [1.0, 1e4])
def test_no_record_moves_the_sum_by_more_than_is_charged(kind, widths, multiplier):
    # Much noise leaves coarse steps.
    mechanism = blind(widths=widths, records=400, multiplier=multiplier)
    assert mechanism.bits > 9 if multiplier == 1 else mechanism.bits < 7
    steps = steps_of(mechanism, sent(mechanism, nasty_rows(mechanism, kind), noise=False))
    everybody, worst = steps.T @ steps, 0.0
    for one, other in zip(steps[:200], steps[200:], strict=True):
        # The records that stay decide where the diagonal is rounded.
        exchanged = everybody - np.outer(other, other) + np.outer(one, one)
        moved = vector_of(mechanism, exchanged) - vector_of(mechanism, everybody)
        worst = max(worst, float(np.linalg.norm(moved)))
    assert 0.3 * mechanism.sensitivity < worst <= mechanism.sensitivity


def test_the_bound_is_met_by_records_that_stand_at_right_angles():
    mechanism = blind(widths=((2,), (2,), (2,)), records=1)
    angles = np.arccos(-1 / 3)
    one = np.hstack([[2**mechanism.bits], np.tile([2**mechanism.bits, 0], 3)]).astype(np.int64)
    turned = np.trunc(2**mechanism.bits * np.array([np.cos(angles), np.sin(angles)]))
    other = np.hstack([[2**mechanism.bits], np.tile(turned, 3)]).astype(np.int64)
    moved = vector_of(mechanism, np.outer(one, one)) - vector_of(mechanism, np.outer(other, other))
    assert 0.999 * mechanism.sensitivity < np.linalg.norm(moved) <= mechanism.sensitivity


@given(st.integers(0, 2**32), st.floats(0.01, 1e6))
@settings(max_examples=40)
def test_no_block_is_longer_than_one_whatever_is_given(seed, spread):
    mechanism = blind(records=30)
    draws = np.random.default_rng(seed)
    rows = [draws.normal(0, spread, (30, columns)) for columns in mechanism.columns]
    rows[0][0, 0], rows[1][0, 1], rows[1][1, 2] = np.nan, np.inf, -np.inf
    steps = steps_of(mechanism, sent(mechanism, rows))[:, 1:]
    start = 0
    for width in (width for blocks in mechanism.widths for width in blocks):
        assert ((steps[:, start : start + width] ** 2).sum(axis=1) <= 4**mechanism.bits).all()
        start += width


def test_steps_of_any_size_are_brought_back_to_the_bound():
    mechanism = blind(records=2)
    wild = np.array([[2**62, -(2**62)], [3, 4]], dtype=np.int64)
    bounded = mechanism.clip_blocks(0, wild)
    assert (bounded[0].astype(object) ** 2).sum() <= 4**mechanism.bits
    assert bounded[1].tolist() == [3, 4]


def test_rounding_has_no_bias_inside_the_bound():
    mechanism = blind(widths=((2,), (2,), (2,)), records=20_000)
    inside = np.full((20_000, 2), 0.3 + 0.3 * 2.0**-mechanism.bits)
    steps = mechanism.at_site(inside.ravel(), Key(5, rehearsal=True))[:40_000]
    exact = inside[0, 0] * 2**mechanism.bits
    assert set(steps) == {math.floor(exact), math.ceil(exact)}
    assert steps.mean() == pytest.approx(exact, abs=5 * 0.5 / 200)


# --- the price -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("records", [10, 5000, 1_000_000])
def test_the_sensitivity_is_the_exact_bound_and_hardly_more(records):
    for columns in range(1, 40):
        mechanism = blind(records=records, widths=((columns,), (1,), (1,), (1,)))
        with localcontext() as context:
            context.prec = 60
            rounding = Decimal(mechanism.order - 1).sqrt() * (1 + Decimal(2) ** -20)
            exact = mechanism.blocks * Decimal(4) ** mechanism.bits + rounding
            (release,) = mechanism.release(1, NAMES)
            assert exact <= Decimal(release.sensitivity) <= exact * (1 + Decimal(2) ** -48)


@pytest.mark.parametrize("records", [10, 5000, 1_000_000])
@pytest.mark.parametrize("multiplier", [0.05, 1.0, 12.0])
def test_noise_keeps_the_multiplier_on_every_lattice(records, multiplier):
    mechanism = blind(records=records, multiplier=multiplier)
    (release,) = mechanism.release(1, NAMES)
    assert release.as_gaussian().multiplier >= multiplier
    assert release.multiplier < multiplier * 1.001
    # It is the shares that count that are charged: all but one.
    assert mechanism.share**2 * 3 >= release.scale**2
    assert mechanism.blocks * mechanism.unit <= release.sensitivity
    noise = DEVIATIONS * mechanism.share * math.sqrt(4)
    assert records * mechanism.unit + noise < 2**31
    assert mechanism.bits == 15 or 4 * (records * mechanism.unit + noise) > 2**31 * 0.99


def test_what_is_charged_is_what_was_solved_for():
    for law in ("gaussian", "discrete"):
        plain = calibrate(epsilon=2.0, delta=1e-5, mechanism=law)
        (release,) = blind(multiplier=plain, purpose="moments").release(0, NAMES)
        assert 1.99 < epsilon([release], 1e-5) <= 2.0
    assert release == Release(
        law="discrete",
        scale=release.scale,
        sensitivity=release.sensitivity,
        relation="replace",
        unit="record",
        subject="records",
        view="server",
        party="every party",
        purpose="moments",
        rehearsal=True,
    )
    assert blind().release(4, NAMES)[0].purpose == "round 4"


# --- what is refused -------------------------------------------------------------------------------------


def test_sums_that_would_leave_the_ring_are_refused():
    with pytest.raises(
        InvalidValue, match=r"2,200,000 records and 6 curves.*do not fit into 32 bits.*fewer records"
    ):
        blind(records=2_200_000)
    with pytest.raises(InvalidValue, match="do not fit into 32 bits"):
        blind(multiplier=1e5)


def test_the_largest_sums_do_not_wrap():
    mechanism = blind(widths=((1,), (1,), (1,)), records=3000)
    for sign in (1.0, -1.0):
        rows = [np.ones((3000, 1)), np.full((3000, 1), sign), np.ones((3000, 1))]
        found = from_upper_triangle(multiply_locally(sent(mechanism, rows, noise=False), mechanism).matrix[0])
        assert found[1, 2] == sign * 3000
        assert found[2, 2] == pytest.approx(3000, abs=1e-4)
        assert found[0, 2] == sign * 3000


@pytest.mark.parametrize("parties", [0, 1, 2, 101])
def test_too_few_or_too_many_parties_are_refused(parties):
    with pytest.raises(Refused, match=f"{parties} part(y|ies) cannot use secure products: from 3 to 100 can"):
        blind(widths=((1,),) * parties)


def test_all_but_one_share_counts_and_two_colluders_are_refused():
    assert [shares_of(parties, 1) for parties in (3, 4, 10, 100)] == [2, 3, 9, 99]
    with pytest.raises(Refused, match=r"colluders = 2 .*the server and any one party"):
        blind(colluders=2)


def test_everybody_is_one_group_and_has_to_stay():
    assert blind().groups(NAMES) == (NAMES,)
    with pytest.raises(Refused, match="3 parties cannot use secure products that were set up for 4"):
        blind().groups(NAMES[:3])


@pytest.mark.parametrize(
    "fields",
    [
        {"multiplier": 0.0},
        {"multiplier": math.nan},
        {"multiplier": 1e-9},
        {"records": 0},
        {"colluders": 0},
        {"widths": ((1,), (), (1,))},
        {"widths": ((1,), (0,), (1,))},
    ],
)
def test_what_has_no_price_is_refused(fields):
    with pytest.raises(InvalidValue):
        blind(**fields)


def test_rows_of_another_width_are_refused():
    mechanism = blind()
    with pytest.raises(
        InvalidValue, match=r"update = 'shape \(7,\)' .*160 numbers: 40 rows of the 4 columns"
    ):
        mechanism.at_site(np.zeros(7), Key(1, rehearsal=True))
    updates = sent(mechanism, rows_for(mechanism))
    with pytest.raises(InvalidValue, match="zeros behind them"):
        multiply_locally(replace(updates, matrix=updates.matrix[[1, 0, 2, 3]]), mechanism)
    with pytest.raises(InvalidValue, match="rows in steps, and noise"):
        multiply_locally(replace(updates, matrix=updates.matrix[:, 1:]), mechanism)


def test_the_triangle_is_counted_row_by_row():
    order = 6
    rows, columns = np.triu_indices(order)
    assert (triangle_index(rows[1:], columns[1:], order) == np.arange(order * (order + 1) // 2 - 1)).all()
    matrix = np.arange(36.0).reshape(6, 6)
    matrix += matrix.T
    assert (from_upper_triangle(matrix[rows, columns]) == matrix).all()
    with pytest.raises(InvalidValue, match="upper triangle"):
        from_upper_triangle(np.zeros(5))
