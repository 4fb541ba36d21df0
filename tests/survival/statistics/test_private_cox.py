"""A private Cox regression: no record moves a sum by more than is charged, and intervals hold the truth."""

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit import Federation, Key, Ledger
from tacit.errors import BudgetExhausted, InvalidValue, NotSeparable, Refused
from tacit.privacy import accounting
from tacit.privacy.mechanisms import noise
from tacit.privacy.mechanisms.base import ROUNDED
from tacit.sites.encoding import Encoding
from tacit.sites.table import from_arrays
from tacit.survival.life_table import exit_cells
from tacit.survival.statistics import cox, kaplan_meier, proportional_hazards
from tacit.survival.statistics.bounded_score import (
    FeatureLimits,
    InformationRows,
    MomentLayout,
    MomentRows,
    RegressionRecords,
    Regressors,
    ScoreRows,
    mark_exits,
    outer_products,
    symmetric_matrix,
)
from tacit.survival.statistics.curves import CoxFit
from tacit.survival.statistics.private_cox import ROUNDS, feature_limits, round_shares
from tacit.survival.statistics.score_path import Information

GRID = np.linspace(0, 3, 11)[1:]
TRUTH = np.array([0.5, -0.3, 0.0])
BOUND = 3.0


def hospitals(seed, *, records=3000, sites=5, truth=TRUTH, unit=1.0, late=False, shift=0.2):
    """Patients of sites that differ in their features and in their hazards."""
    draw = np.random.default_rng(seed)
    where = np.arange(records) % sites
    x = draw.normal(size=(records, len(truth))) + shift * (where[:, None] - (sites - 1) / 2)
    rate = 0.7 * (1 + 0.1 * (where - (sites - 1) / 2)) * np.exp(x @ truth)
    event, censored = (draw.exponential(size=records) / rate) ** (1 / 1.2), draw.uniform(0.3, 4, records)
    time = np.minimum(event, censored)
    targets = {"time": time, "event": event <= censored}
    there = np.ones(records, dtype=bool)
    if late:
        targets["entry"] = np.where(draw.random(records) < 0.3, draw.uniform(0, 0.5, records), 0.0)
        there = targets["entry"] < time
    return Federation(
        {
            f"site-{site}": from_arrays(
                x[there & (where == site)] * unit,
                **{name: values[there & (where == site)] for name, values in targets.items()},
            )
            for site in range(sites)
        }
    )


def fitted(federation, *, epsilon=1.0, delta=1e-5, seed=1, **options):
    given = {"grid": GRID, "bound": BOUND, "ledger": Ledger(), "key": Key(seed, rehearsal=True), **options}
    return cox(federation, epsilon=epsilon, delta=delta, **given)


# Sensitivity

numbers = st.floats(-1.7e308, 1.7e308)
ends = [float(side) for end in GRID for side in (end, np.nextafter(end, 0), np.nextafter(end, 9))]
instants = st.one_of(st.sampled_from(ends), st.floats(5e-324, 1.7e308), st.floats(0.01, 4))
person = st.tuples(
    st.tuples(numbers, numbers), instants, st.one_of(st.just(0.0), instants), st.integers(0, 1)
)
publics = st.tuples(
    st.lists(st.floats(-50, 50), min_size=10, max_size=10),
    st.integers(0, 2**32 - 1),
    st.floats(1e-3, 1e3),
    st.floats(1e-2, 1e2),
)


def table_of(people):
    x = np.array([one[0] for one in people])
    time = np.array([max(one[1], one[2]) for one in people])
    entry = np.array([min(one[1], one[2]) for one in people])
    event = [one[3] for one in people]
    return from_arrays(x, time=time, event=event, entry=np.where(entry < time, entry, 0.0))


def limits(ranged=False, cut=2.0):
    known = {"x1": (-1.0, 2.0), "x2": (-1e-9, 1e300)} if ranged else {}
    return feature_limits(("x1", "x2"), Encoding(), known, cut)


def regressors_of(public):
    levels, seed, size, bound = public
    draw = np.random.default_rng(seed)
    return Regressors(
        ends=GRID,
        log_rates=np.array([levels, levels[::-1]]),
        trends=draw.normal(size=(10, 3)) * 2,
        center=draw.normal(size=2),
        whitening=draw.normal(size=(2, 2)) * size,
        bound=bound,
        information_bound=bound**2,
    )


def contributions(table, public, ranged):
    """All that the records of a site may contribute to, in one place."""
    regressors, seed = regressors_of(public), public[1]
    records = RegressionRecords.of(table, GRID, limits(ranged), 1)
    point = np.random.default_rng(seed + 1).normal(size=regressors.size) * 10
    layout = MomentLayout(10, 2, 2, True, 2.0)
    return (
        MomentRows(table, records, layout, GRID),
        InformationRows(records, regressors),
        ScoreRows(records, regressors, point),
    )


@settings(max_examples=60)
@given(st.lists(person, min_size=2, max_size=6), person, publics, st.booleans())
def test_one_record_more_moves_a_sum_by_one_at_most(some, one, public, ranged):
    pairs = zip(
        contributions(table_of([*some, one]), public, ranged),
        contributions(table_of(some), public, ranged),
        strict=True,
    )
    for more, less in pairs:
        assert np.linalg.norm(more.total(None) - less.total(None)) <= 1 + 1e-9


@settings(max_examples=60)
@given(st.lists(person, min_size=2, max_size=6), publics, st.booleans())
def test_no_record_is_longer_than_one_and_its_bits_are_its_own(people, public, ranged):
    together = contributions(table_of(people), public, ranged)
    alone = contributions(table_of(people[:1]), public, ranged)
    for rows, own in zip(together, alone, strict=True):
        found = rows.rows(0)
        assert found.shape == (len(people), rows.width)
        assert np.isfinite(found).all()
        assert np.linalg.norm(found, axis=1).max() <= 1 + 1e-12
        assert np.array_equal(found[:1], own.rows(0))
        assert rows.lengths("l2").shape == (1, len(people))


def test_a_record_can_be_that_long_so_no_noise_is_wasted():
    table = from_arrays([[0.0, 1.0], [0.0, 3.0]], time=[3.0, 0.05], event=[0, 1])
    public = replace(
        regressors_of(([1.0] * 10, 0, 1.0, 2.0)), trends=np.ones((10, 3)), whitening=np.eye(2),
        center=np.zeros(2), information_bound=1.0,
    )  # fmt: skip
    records = RegressionRecords.of(table, GRID, limits(), 0)
    # Without an event, followed to the bound; with one, at the end of a short life.
    assert np.linalg.norm(ScoreRows(records, public, np.zeros(7)).rows(0)[0]) == pytest.approx(1.0, abs=1e-9)
    assert np.linalg.norm(InformationRows(records, public).rows(0)[1]) == pytest.approx(1.0, abs=1e-9)
    layout = MomentLayout(10, 2, 1, False, 2.0)
    assert np.linalg.norm(MomentRows(table, records, layout, GRID).rows(0)[1]) == pytest.approx(1.0)


def test_the_score_is_the_slope_of_the_likelihood_of_records_that_are_followed_to_their_end():
    draw = np.random.default_rng(3)
    x = draw.normal(size=(6, 2)) / 4
    table = from_arrays(x, time=draw.uniform(0.1, 2.5, 6), event=[1, 0, 1, 1, 0, 1])
    # A bound that follows everyone, with weights of 1.
    public = replace(regressors_of(([-2.5] * 10, 5, 1.0, 100.0)), log_rates=np.full((1, 10), -2.5))
    records = RegressionRecords.of(table, GRID, limits(), 0)
    features = (x - public.center) @ public.whitening.T

    def likelihood(point):
        level = -2.5 + 0.35 * (point[0] + public.trends @ point[1:4])
        rates = level + (features @ point[4:])[:, None]
        seen = records.follow_up.own[:, None] == np.arange(10)
        return (seen * rates - records.follow_up.shares * np.exp(rates)).sum()

    point, h = draw.normal(size=6) / 5, 1e-6
    found = ScoreRows(records, public, point).total(None)[0] * public.bound
    slope = [(likelihood(point + d) - likelihood(point - d)) / (2 * h) for d in h * np.eye(6)]
    assert found == pytest.approx(slope, abs=1e-6)


def test_exits_are_those_of_a_life_table_and_products_those_of_a_matrix():
    federation = hospitals(2, records=60, sites=1, late=True)
    table = federation["site-0"].table
    assert mark_exits(table.targets, GRID).sum(axis=0).tolist() == exit_cells(table, GRID, 2, None).tolist()
    rows = np.random.default_rng(0).normal(size=(9, 4))
    assert symmetric_matrix(outer_products(rows).sum(axis=0), 4) == pytest.approx(rows.T @ rows)
    assert np.linalg.norm(outer_products(rows), axis=1) == pytest.approx((rows**2).sum(axis=1))


def test_broken_values_become_the_center_and_huge_ones_stay_finite():
    wide = FeatureLimits(np.full(2, -np.inf), np.full(2, np.inf), np.array([1.0, 0.0]), np.ones(2), 2.0)
    found = wide.scaled(np.array([[np.nan, 1e300], [-np.inf, 2.0]]))
    assert found.tolist() == [[0.0, 1e6], [0.0, 2.0]]
    again = FeatureLimits.of(wide.as_dict())
    assert again.scaled(np.array([[2.0, 3.0]])).tolist() == [[1.0, 3.0]]


@pytest.mark.parametrize("rounds", [3, 8, 12])
def test_shares_of_rounds_and_of_moments_are_one_promise(rounds):
    shares = round_shares(rounds)
    assert len(shares) == rounds
    assert sum(shares) + 0.18 == pytest.approx(1.0, abs=1e-12)
    assert shares[0] == 0.12
    assert all(late > early for early, late in pairwise(shares[1:]))


def test_differences_of_scores_teach_the_information_and_lower_its_error():
    draw = np.random.default_rng(0)
    truth = np.eye(3) + 0.3 * np.array([[0, 1, 0], [1, 0.5, -1], [0, -1, 0.8]])
    known = Information(np.eye(3), np.eye(3), np.eye(3), np.full((3, 3), 0.3))
    for _ in range(6):
        step = draw.normal(size=3)
        known = known.with_difference(step, truth @ step, 1e-6)
    assert known.matrix == pytest.approx(truth, abs=0.02)
    assert known.doubt.max() < 0.1
    same = known.with_difference(np.zeros(3), np.zeros(3), 1.0)
    assert same is known


# What is charged, and what leaves


@pytest.mark.parametrize("late", [False, True])
def test_everything_is_charged_before_any_noise_is_drawn(monkeypatch, late):
    ledger, seen, draw = Ledger(), [], noise.gaussian

    def watched(values, scale, key):
        seen.append((len(ledger.releases()), scale, values.shape))
        return draw(values, scale, key)

    monkeypatch.setattr(noise, "gaussian", watched)
    fit = fitted(hospitals(0, records=500, late=late), ledger=ledger)
    charged = ledger.releases()
    assert {count for count, _, _ in seen} == {len(charged)} == {5 * (ROUNDS + 1)}
    assert {release.subject for release in charged} == {f"records@site-{site}" for site in range(5)}
    assert {(r.unit, r.relation, r.law) for r in charged} == {("record", "add-remove", "gaussian")}
    assert {(r.count, r.sensitivity) for r in charged} == {(1, 1.0)}
    # One draw for each release of each site, with a little more noise than is charged, for roundings.
    own = [release.scale * (1 + ROUNDED) for release in charged if release.subject == "records@site-0"]
    assert sorted(scale for _, scale, _ in seen) == pytest.approx(sorted(own * 5))
    assert fit.iterations == ROUNDS


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 4.0])
def test_all_of_it_costs_what_was_asked(epsilon):
    ledger = Ledger()
    fitted(hospitals(0, records=300), epsilon=epsilon, ledger=ledger)
    assert accounting.epsilon(ledger.releases(), 1e-5) <= epsilon
    assert ledger.spent(1e-5) == pytest.approx(epsilon, rel=1e-3)


def test_nothing_but_noisy_sums_is_used(monkeypatch):
    def deaf(values, scale, key):
        return Key(7).generator().normal(scale=scale, size=values.shape) + 40.0

    monkeypatch.setattr(noise, "gaussian", deaf)
    one, other = fitted(hospitals(0)), fitted(hospitals(1, records=400, truth=-TRUTH))
    assert one.covariance.tolist() == other.covariance.tolist()
    assert one.text() == other.text()


def test_a_budget_that_does_not_bear_it_leaves_nothing(monkeypatch):
    def forbidden(*_):
        raise AssertionError("noise was drawn")

    ledger = Ledger()
    ledger.allow(epsilon=0.5, delta=1e-5, subject="records@site-3")
    monkeypatch.setattr(noise, "gaussian", forbidden)
    with pytest.raises(BudgetExhausted, match="nothing was charged"):
        fitted(hospitals(0, records=300), ledger=ledger)
    assert ledger.releases() == []


def test_without_a_key_nobody_can_draw_the_noise_again():
    data = hospitals(0)
    one, other = (fitted(data, epsilon=3.0, key=None) for _ in range(2))
    assert (one.coefficients != other.coefficients).all()
    same = [fitted(data, seed=4).coefficients.tolist() for _ in range(2)]
    assert same[0] == same[1]
    assert "REHEARSAL" in fitted(data).provenance
    assert "REHEARSAL" not in one.provenance


# Whether it is right


@pytest.mark.parametrize("strata", ["site", None])
def test_with_hardly_any_noise_it_is_the_open_fit(strata):
    data = hospitals(3, shift=0.2 * (strata is not None))
    open_fit, fit = cox(data, strata=strata), fitted(data, epsilon=1e6, strata=strata)
    assert fit.coefficients == pytest.approx(open_fit.coefficients, abs=0.02)
    assert fit.standard_errors == pytest.approx(open_fit.standard_errors, rel=0.1)


@pytest.mark.slow
@pytest.mark.parametrize(("epsilon", "late"), [(1.0, False), (3.0, False), (2.0, True)])
def test_intervals_hold_the_truth_as_often_as_they_say(epsilon, late):
    off, inside = [], []
    for seed in range(25):
        fit = fitted(hospitals(seed, late=late), epsilon=epsilon, seed=seed)
        assert fit.shown.all()
        table = fit.summary()
        off.append(fit.coefficients - TRUTH)
        inside.append((table["coef lower 95%"] <= TRUTH) & (table["coef upper 95%"] >= TRUTH))
    assert np.mean(inside) >= 0.9
    # A third of the spread of one estimate at most.
    assert abs(np.mean(off, axis=0)).max() <= np.std(off, axis=0).max() / 3 + 0.01


def test_noise_is_counted_into_the_errors():
    data = hospitals(0)
    errors = [fitted(data, epsilon=epsilon).standard_errors.mean() for epsilon in (0.5, 3.0, 1000.0)]
    assert errors[0] > 1.2 * errors[1] > 1.2 * errors[2]
    fit = fitted(data)
    assert fit.covariance == pytest.approx(fit.model_covariance + fit.noise_covariance)


def test_more_follow_up_is_more_noise():
    data = hospitals(0)
    short, long = (fitted(data, epsilon=3.0, followed=followed) for followed in (1.5, 6.0))
    assert short.followed == pytest.approx(1.5)
    assert long.followed == pytest.approx(6.0)
    assert long.noise_ratios.mean() > 2 * short.noise_ratios.mean()
    assert "WARNING: a typical record was followed up to 1.5 expected events" in short.text()
    assert "WARNING" not in long.text()


def test_ranges_bring_features_of_any_unit_to_one_scale():
    data = hospitals(0, unit=10.0, shift=0.0)
    ranges = dict.fromkeys(("x1", "x2", "x3"), (-30.0, 30.0))
    fit = fitted(data, epsilon=100.0, bound=None, ranges=ranges)
    assert fit.coefficients * 10 == pytest.approx(TRUTH, abs=0.1)
    tables = {
        name: from_arrays(site.table.features + 500.0, **site.table.targets) for name, site in data.items()
    }
    moved = dict.fromkeys(ranges, (470.0, 530.0))
    again = fitted(Federation(tables), epsilon=100.0, bound=None, ranges=moved)
    assert again.coefficients == pytest.approx(fit.coefficients, abs=1e-3)


def test_some_of_the_columns_may_be_chosen():
    fit = fitted(hospitals(0), columns=["x2", "x1"], epsilon=50.0)
    assert fit.columns == ("x2", "x1")
    assert fit.coefficients == pytest.approx([-0.3, 0.5], abs=0.15)


# What is shown


def test_the_summary_is_the_table_of_the_open_fit_with_notes():
    data = hospitals(0)
    fit = fitted(data, epsilon=3.0)
    assert isinstance(fit, CoxFit)
    assert list(fit.summary().columns) == [*cox(data).summary().columns, "note"]
    assert set(fit.summary()["note"]) == {""}
    assert "expected events" in fit.summary().attrs["notes"][0]
    assert list(fit.tests().index) == ["Wald"]
    printed = str(fit)
    for part in ("DP, noise-adjusted", "about 2,", "Wald test", "of a standard error", "3 of 3 coefficients"):
        assert part in printed
    for part in ("concordance", "log-likelihood", " nan", "NaN", "HIDDEN"):
        assert part not in printed


def test_coefficients_that_are_noise_are_hidden_with_the_reason_and_their_intervals():
    fit = fitted(hospitals(0, records=100), epsilon=0.5)
    assert not fit.usable
    assert np.isfinite(fit.coefficients).all()
    table = fit.summary()
    assert table[["coef", "exp(coef)", "z", "p"]].isna().all(axis=None)
    assert np.isfinite(table[["se(coef)", "coef lower 95%", "coef upper 95%"]]).all(axis=None)
    assert table["note"].str.match(r"hidden by noise: \d+\.\d times the standard error").all()
    printed = " ".join(fit.text().split())
    assert "HIDDEN by noise: x1, x2, x3." in printed
    assert "larger epsilon, fewer columns" in printed
    assert "hidden" in printed


def test_shrunken_estimates_are_nearer_to_no_effect_and_named():
    fit = fitted(hospitals(0), epsilon=1.0)
    table = fit.shrunk(0.2)
    assert "shrunken coef" in table
    assert (np.abs(table["shrunken coef"]) < np.abs(fit.coefficients) + 1e-9).all()
    assert (table["posterior sd"] < fit.standard_errors).all()
    wide = fit.shrunk(1e4)["shrunken coef"].to_numpy()
    assert wide == pytest.approx(fit.coefficients, rel=1e-3, abs=1e-6)
    with pytest.raises(InvalidValue, match="deviation"):
        fit.shrunk(0.0)


def test_its_histogram_serves_curves_for_nothing():
    ledger, data = Ledger(), hospitals(0)
    fit = fitted(data, ledger=ledger, epsilon=2.0)
    head = ledger.head
    curve = kaplan_meier(fit.table)
    assert ledger.head == head
    assert curve.at([1.0])[0] == pytest.approx(kaplan_meier(data).at([1.0])[0], abs=0.05)


# Refusals


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"grid": None}, NotSeparable, "couples all records at risk"),
        ({"bound": None}, Refused, "bound = None is not private"),
        ({"delta": 0.0}, Refused, "delta = 0"),
        ({"ledger": None}, Refused, r"ledger=Ledger\(path\)"),
        ({"robust": True}, InvalidValue, "robust"),
        ({"ridge": 1.0}, InvalidValue, "ridge"),
        ({"bound": 0.0}, InvalidValue, "bound"),
        ({"bound": math.inf}, InvalidValue, "bound"),
        ({"epsilon": -1.0}, InvalidValue, "epsilon"),
        ({"ranges": {"x9": (0, 1)}}, InvalidValue, "ranges of"),
        ({"ranges": {"x1": (0, 1)}, "bound": None}, Refused, "nothing public bounds x2"),
        ({"followed": 0.5}, InvalidValue, "followed"),
        ({"ranges": {"x1": (0, 1), "x2": (1, 0), "x3": (0, 1)}}, InvalidValue, "ranges of x2"),
        ({"level": 95}, InvalidValue, "level"),
    ],
)
def test_what_cannot_be_private_is_refused_before_anything_is_paid(options, error, message):
    ledger = Ledger()
    with pytest.raises(error, match=message):
        fitted(hospitals(0, records=100), **{"ledger": ledger, **options})
    assert ledger.releases() == []


@pytest.mark.parametrize(
    "option", [{"bound": 1.0}, {"ranges": {"x1": (0, 1)}}, {"delta": 1e-5}, {"followed": 2.0}]
)
def test_nobody_believes_to_be_private_without_epsilon(option):
    with pytest.raises(InvalidValue, match="epsilon"):
        cox(hospitals(0, records=100), **option)


def test_residuals_of_a_private_fit_stay_where_they_are():
    data = hospitals(0)
    with pytest.raises(Refused, match="no private version"):
        proportional_hazards(data, fitted(data))
