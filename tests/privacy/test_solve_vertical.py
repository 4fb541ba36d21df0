"""Columns of the same records: clip, noise and price, and what no promise can be kept for."""

import math
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.aggregation.mean import Mean
from tacit.errors import Refused
from tacit.privacy.accounting import epsilon, gaussian
from tacit.privacy.mechanisms.vertical import (
    GramMatrix,
    LocalColumns,
    NoisyHistograms,
    allocate_noise,
    clip_to_bound,
    clip_to_radius,
    solve,
    solve_query,
)
from tacit.privacy.plan import PlannedPrice, plan
from tacit.privacy.policy import Privacy
from tacit.runtime.keys import Key

KEY = Key(1, rehearsal=True)


@dataclass(frozen=True)
class Work:
    """Columns to be protected."""

    release_moments: bool = False
    holdings: dict = field(default_factory=lambda: {"a": ("x1", "y"), "b": ("x2",)})
    protected: tuple = ("x1", "x2", "y")
    lengths: dict | None = None
    records: int | None = 50
    kind = "work"
    layout, exempt, width = "columns", (), None
    steps, sample, batch, shuffled, separable, groups = 1, 1.0, None, False, True, "none"

    @property
    def holders(self):
        return {
            name: party for party, names in self.holdings.items() for name in names if name in self.protected
        }

    @property
    def widths(self):
        return {name: 3 for names in self.holdings.values() for name in names}


@dataclass(frozen=True)
class Ask:
    """A question about columns."""

    columns: dict = field(default_factory=lambda: {"x1": "a", "x2": "b", "y": "a"})
    kind = "clip radii"
    share = 0.05
    layout = "columns"


def promise(**changes):
    return Privacy(
        **{"unit": "record", "epsilon": 2.0, "delta": 1e-5, "clip": 1.5, "rehearsal": True} | changes
    )


def test_all_columns_together_cost_what_was_promised_however_they_are_divided():
    for holdings in ({"a": ("x1", "y"), "b": ("x2",)}, {"a": ("x1",), "b": ("x2",), "c": ("y",)}):
        found = solve(promise(), Work(holdings=holdings), list(holdings), 1, [])
        price = epsilon(found.release(1, list(holdings)), 1e-5)
        assert price == pytest.approx(2.0, rel=1e-3)
        assert price <= 2.0
        assert {release.subject for release in found.release(1, list(holdings))} == {"records"}
        assert {release.relation for release in found.release(1, list(holdings))} == {"replace"}


def test_moments_cost_what_was_promised():
    found = solve(promise(noise="server"), Work(release_moments=True), ["a", "b"], 1, [])
    (release,) = found.release(1, ["a", "b"])
    assert release.sensitivity == pytest.approx(math.sqrt(2) * 4)
    assert 1.99 < gaussian.epsilon_of(release.scale / release.sensitivity, 1e-5) <= 2.0


def test_a_question_is_paid_from_the_same_promise():
    asked = Ask()
    found = solve(promise(noise="server"), Work(release_moments=True), ["a", "b"], 1, [asked])
    both = [*found.release(1, ["a", "b"]), *solve_query(promise(), asked).release(0, ["a", "b"])]
    assert len(both) == 4
    assert 1.99 < epsilon(both, 1e-5) <= 2.0
    assert epsilon(both[1:], 1e-5) <= 0.05 * 2.0 + 1e-9


@given(
    radii=st.lists(st.floats(0.01, 100), min_size=1, max_size=6),
    widths=st.lists(st.integers(1, 30), min_size=6, max_size=6),
    other=st.lists(st.floats(0.2, 5), min_size=6, max_size=6),
)
def test_the_split_keeps_the_price_and_no_other_split_has_less_noise(radii, widths, other):
    names = [str(place) for place in range(len(radii))]
    sizes, bounds = dict(zip(names, widths, strict=False)), dict(zip(names, radii, strict=True))
    found = allocate_noise(bounds, {name: sizes[name] for name in names}, 2.0)
    price = sum((bounds[name] / found[name]) ** 2 for name in names)
    assert price == pytest.approx(1 / 4)
    stretched = {name: found[name] * factor for name, factor in zip(names, other, strict=False)}
    fair = math.sqrt(sum((bounds[name] / stretched[name]) ** 2 for name in names) * 4)
    rival = sum(sizes[name] * (stretched[name] * fair) ** 2 for name in names)
    assert sum(sizes[name] * found[name] ** 2 for name in names) <= rival * (1 + 1e-9)


def test_rows_are_clipped_and_noised_and_what_is_exempt_stays():
    found = LocalColumns(
        multiplier=1.0, radii={"x": 2.0}, widths={"x": 2, "y": 1}, holders={"x": "a"}, rehearsal=True
    )
    rows = np.array([[3.0, 4.0], [0.3, 0.4], [np.nan, 1.0], [np.inf, 0.0]])
    many = np.tile(rows, (2000, 1))
    noisy = found.noisy_rows(many, "x", KEY).reshape(2000, 4, 2)
    assert noisy.mean(axis=0) == pytest.approx(
        np.array([[1.2, 1.6], [0.3, 0.4], [0.0, 0.0], [0.0, 0.0]]), abs=0.2
    )
    assert noisy.std(axis=0) == pytest.approx(np.full((4, 2), 2.0), rel=0.1)
    assert found.noisy_rows(rows, "y", KEY) is rows


@given(st.lists(st.lists(st.floats(-1e300, 1e300), min_size=3, max_size=3), min_size=1, max_size=5))
def test_no_row_is_ever_longer_than_its_bound(rows):
    given_rows = np.array(rows)
    assert np.linalg.norm(clip_to_bound(given_rows, 0.7), axis=1).max() <= 0.7
    assert np.linalg.norm(clip_to_radius(given_rows, 3.0), axis=1).max() <= 1.0


def test_no_exchange_moves_products_farther_than_their_sensitivity():
    generator = np.random.default_rng(0)
    found = GramMatrix(multiplier=1.0, radii={"x": 2.0, "z": 0.5, "y": 1.0}, holders={}, rehearsal=True)
    worst = 0.0
    for _ in range(3000):
        pair = []
        for _ in range(2):
            blocks = [
                found.noisy_rows(generator.normal(size=(1, 2)) * 10 ** generator.uniform(-2, 2), name, KEY)
                for name in found.radii
            ]
            pair.append(np.concatenate([[1.0], *(block[0] for block in blocks)]))
        worst = max(worst, np.linalg.norm(np.outer(pair[0], pair[0]) - np.outer(pair[1], pair[1])))
    assert 0.8 * found.sensitivity < worst <= found.sensitivity


def test_noise_on_products_is_that_of_a_symmetric_matrix_and_their_number_is_exact():
    found = GramMatrix(multiplier=2.0, radii={"x": 1.0}, holders={"x": "a"}, rehearsal=True)
    draws = np.stack([found.at_server(np.full((6,), 7.0), KEY / n) for n in range(4000)])
    assert (draws[:, 0] == 7).all()
    spread = draws.std(axis=0)
    diagonal, beside = [3, 5], [1, 2, 4]
    assert spread[diagonal] == pytest.approx(np.full(2, found.sigma), rel=0.05)
    assert spread[beside] == pytest.approx(np.full(3, found.sigma / math.sqrt(2)), rel=0.05)
    assert found.sigma / found.sensitivity == pytest.approx(1.0)


def test_counts_move_by_no_more_than_was_charged():
    found = NoisyHistograms(multiplier=1.0, holders={"x": "a"}, purpose="clip radii", rehearsal=True)
    (release,) = found.release(0, ["a"])
    assert release.sensitivity == pytest.approx(math.sqrt(2))
    assert release.scale == pytest.approx(found.deviation(1))
    # Rows that are no counts are made such that an exchange still moves them by no more than that.
    one = found.noisy_sum(np.array([[5.0, 0.0]]), KEY) - found.noisy_sum(np.array([[0.0, -9.0]]), KEY)
    assert np.linalg.norm(one) <= math.sqrt(2)
    assert one[0] == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("changes", "work", "rounds", "message"),
    [
        ({"unit": "site"}, {}, 1, 'unit = "site" does not go with columns'),
        ({"mechanism": "laplace"}, {}, 1, 'mechanism = "laplace" is not priced for columns'),
        ({"participation": 0.5}, {}, 1, "participation = 0.5 does not go with columns"),
        ({}, {}, 2, "rounds = 2 is not allowed"),
        ({}, {"release_moments": True}, 1, 'release = "moments" does not go with noise = "site"'),
        ({"noise": "server"}, {}, 1, 'release = "local" does not go with noise = "server"'),
        ({"noise": "secure"}, {"release_moments": True}, 1, "2 parties cannot use secure products"),
    ],
)
def test_what_nobody_has_priced_is_refused(changes, work, rounds, message):
    with pytest.raises(Refused, match=message):
        solve(promise(**changes), Work(**work), ["a", "b"], rounds, [])


def test_a_plan_needs_no_columns():
    for noise, parties in (("site", 2), ("server", 2), ("secure", 3)):
        work = Work(release_moments=noise != "site", holdings={}, records=None)
        names = [f"party-{n}" for n in range(parties)]
        mechanism = promise(noise=noise).solve(work, names, Mean(), 1)
        price = PlannedPrice((), (mechanism.release(1, names),), 1)
        made = plan(promise(noise=noise), work, mechanism, price, sites=parties)
        assert 1.98 < made.statement.epsilon <= 2.0


def test_columns_and_records_that_are_not_known_yet_count_once():
    @dataclass(frozen=True)
    class Unread(Work):
        widths = None

    unread = Unread(records=None, holdings={"a": ("x1", "y"), "b": ("x2",), "c": ("x3",)})
    assert solve(promise(), unread, ["a", "b", "c"], 1, []).widths == {"x1": 1, "x2": 1, "y": 1}
    secret = solve(
        promise(noise="secure"), replace(unread, holdings={}, release_moments=True), ["a", "b", "c"], 1, []
    )
    assert secret.widths == ((1,), (1,), (1,))
    assert secret.records == 1
