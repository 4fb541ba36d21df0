"""A Cox regression with noise: no record moves a sum by more than is charged for, nothing but noisy sums is
used, and its intervals hold the truth as often as they say."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit import Federation, Key, Ledger
from tacit.errors import BudgetExhausted, InvalidValue, NotSeparable, Refused
from tacit.privacy import accounting
from tacit.privacy.mechanisms import noise
from tacit.privacy.mechanisms.base import ROUNDED
from tacit.sites.table import from_arrays
from tacit.survival.statistics import cox, cox_regression, kaplan_meier, proportional_hazards
from tacit.survival.statistics.cox_regression import (
    ROUNDS,
    feature_bounds,
    follow_up,
    record_vectors,
    vector_size,
)
from tacit.survival.statistics.curves import CoxFit

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
places = st.tuples(
    st.lists(st.floats(-50, 50), min_size=10, max_size=10),
    st.lists(st.floats(-1, 1), min_size=10, max_size=10),
    st.tuples(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6)),
)


def table_of(people):
    x = np.array([one[0] for one in people])
    time = np.array([max(one[1], one[2]) for one in people])
    entry = np.array([min(one[1], one[2]) for one in people])
    event = [one[3] for one in people]
    return from_arrays(x, time=time, event=event, entry=np.where(entry < time, entry, 0.0))


def told(people, place, limit):
    table = table_of(people)
    level, trend, slopes = (np.array(part) for part in place)
    return cox_regression._site_sum(
        follow_up(table, GRID, limit.scale_to_unit(table.features)), level, trend, slopes
    )


@settings(max_examples=60)
@given(st.lists(person, min_size=2, max_size=6), person, places, st.floats(1e-3, 1e3))
def test_one_record_more_moves_a_sum_by_one_at_most(some, one, place, bound):
    limit = feature_bounds({"a": table_of(some)}, bound, None)
    moved = told([*some, one], place, limit) - told(some, place, limit)
    assert np.linalg.norm(moved) <= 1 + 1e-9


@settings(max_examples=60)
@given(st.lists(person, min_size=2, max_size=6), places, st.floats(1e-3, 1e3), st.booleans())
def test_no_record_is_longer_than_one(people, place, bound, ranged):
    table = table_of(people)
    ranges = {"x1": (-1.0, 2.0), "x2": (-1e-9, 1e300)} if ranged else None
    features = feature_bounds({"a": table}, bound, ranges).scale_to_unit(table.features)
    assert np.isfinite(features).all()
    assert np.linalg.norm(features, axis=1).max() <= 1 + 1e-12
    level, trend, slopes = (np.array(part) for part in place)
    rows = record_vectors(follow_up(table, GRID, features), level, trend, slopes)
    assert rows.shape == (len(people), vector_size(2))
    assert np.linalg.norm(rows, axis=1).max() <= 1


def test_a_record_can_be_that_long_so_no_noise_is_wasted():
    # Somebody at the bound who has no event while one was expected, all of it late.
    table = from_arrays([[0.0, 1.0], [0.0, 1.0]], time=[3.0, 3.0], event=[0, 0])
    level, trend = np.append(np.full(9, -50.0), 0.0), np.append(np.zeros(9), 1.0)
    rows = record_vectors(follow_up(table, GRID, table.features), level, trend, np.zeros(2))
    assert np.linalg.norm(rows[0]) == pytest.approx(1.0, abs=1e-9)


def test_what_a_record_says_is_the_slope_of_the_likelihood_while_it_is_followed():
    draw = np.random.default_rng(3)
    x = draw.normal(size=(6, 2)) / 4
    table = from_arrays(x, time=draw.uniform(0.1, 2.5, 6), event=[1, 0, 1, 1, 0, 1])
    records, trend = follow_up(table, GRID, x), np.linspace(-1, 1, 10)

    def likelihood(point):
        level = np.full(10, -2.5) + point[0] / 3 + point[1] / 3 * trend
        expected = records.shares * np.exp(level + (x @ point[2:])[:, None])
        seen = records.own[:, None] == np.arange(10)
        return (seen * (level + (x @ point[2:])[:, None]) - expected).sum()

    point, h = np.array([0.1, 0.2, 0.3, -0.4]), 1e-5
    level = np.full(10, -2.5) + point[0] / 3 + point[1] / 3 * trend
    found = record_vectors(records, level, trend, point[2:]).sum(axis=0) * math.sqrt(2 * (1 + 2 / 9))
    slope = [(likelihood(point + d) - likelihood(point - d)) / (2 * h) for d in h * np.eye(4)]
    assert found[:4] == pytest.approx(slope, abs=1e-7)
    rows, others = np.triu_indices(4)
    steps = 1e-3 * np.eye(4)
    for value, row, other in zip(found[4:], rows, others, strict=True):
        up, down = ([likelihood(point + a * steps[row] + b * steps[other]) for b in (1, -1)] for a in (1, -1))
        curve = -(up[0] - up[1] - down[0] + down[1]) / 4e-6
        weight = (1 if row == other else math.sqrt(2)) / math.sqrt(1 + 2 / 9)
        assert value == pytest.approx(curve * weight, abs=1e-4)


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
    assert {count for count, _, _ in seen} == {len(charged)} == {10}
    assert {release.subject for release in charged} == {f"records@site-{site}" for site in range(5)}
    assert {(r.unit, r.relation, r.law) for r in charged} == {("record", "add-remove", "gaussian")}
    histogram, step = charged[0], charged[1]
    assert (histogram.count, step.count) == (1, ROUNDS)
    assert histogram.sensitivity == pytest.approx(math.sqrt(2) if late else 1.0)
    assert step.sensitivity == 1.0
    # As many draws of each scale as were paid for, at every site.
    scales = [scale for _, scale, _ in seen]
    # Sums of vectors are rounded, which counts are not: they carry a little more noise than is charged.
    assert scales == [histogram.scale] * 5 + [step.scale * (1 + ROUNDED)] * 5 * ROUNDS
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
    assert one.signal == other.signal
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
    open_fit, fit = cox(data, strata=strata), fitted(data, epsilon=200.0, strata=strata)
    assert fit.coefficients == pytest.approx(open_fit.coefficients, abs=0.04)
    assert fit.standard_errors == pytest.approx(open_fit.standard_errors, rel=0.25)
    assert (fit.standard_errors >= open_fit.standard_errors).all()


@pytest.mark.slow
@pytest.mark.parametrize(("epsilon", "late"), [(1.0, False), (3.0, False), (2.0, True)])
def test_intervals_hold_the_truth_as_often_as_they_say(epsilon, late):
    off, inside = [], []
    for seed in range(25):
        fit = fitted(hospitals(seed, late=late), epsilon=epsilon, seed=seed)
        assert fit.usable
        table = fit.summary()
        off.append(fit.coefficients - TRUTH)
        inside.append((table["coef lower 95%"] <= TRUTH) & (table["coef upper 95%"] >= TRUTH))
    assert np.mean(inside) >= 0.9
    # A third of the spread of one estimate at most.
    assert abs(np.mean(off, axis=0)).max() <= np.std(off, axis=0).max() / 3 + 0.01
    assert np.std(off, axis=0).max() <= 0.07


def test_noise_is_counted_into_the_errors():
    data = hospitals(0)
    errors = [fitted(data, epsilon=epsilon).standard_errors.mean() for epsilon in (1.0, 3.0, 100.0)]
    assert errors[0] > 1.2 * errors[1] > 1.2 * errors[2]
    fit = fitted(data)
    assert fit.covariance == pytest.approx(fit.model_covariance + fit.noise_covariance)


def test_ranges_bring_features_of_any_unit_to_one_scale():
    data = hospitals(0, unit=10.0, shift=0.0)
    ranges = dict.fromkeys(("x1", "x2", "x3"), (-30.0, 30.0))
    fit = fitted(data, epsilon=100.0, bound=None, ranges=ranges)
    assert fit.coefficients * 10 == pytest.approx(TRUTH, abs=0.1)
    # Age is counted from the middle of its range, which a bound on its length would not know.
    tables = {
        name: from_arrays(site.table.features + 500.0, **site.table.targets) for name, site in data.items()
    }
    moved = dict.fromkeys(ranges, (470.0, 530.0))
    again = fitted(Federation(tables), epsilon=100.0, bound=None, ranges=moved)
    assert again.coefficients == pytest.approx(fit.coefficients, abs=1e-3)


def test_some_of_the_columns_may_be_chosen():
    fit = fitted(hospitals(0), columns=["x2", "x1"], epsilon=50.0)
    assert fit.columns == ("x2", "x1")
    assert fit.coefficients == pytest.approx([-0.3, 0.5], abs=0.1)


# What is shown


def test_the_summary_is_the_table_of_the_open_fit_and_says_what_it_is():
    data = hospitals(0)
    fit = fitted(data)
    assert isinstance(fit, CoxFit)
    assert list(fit.summary().columns) == list(cox(data).summary().columns)
    assert list(fit.tests().index) == ["Wald"]
    printed = str(fit)
    for part in ("DP, noise-adjusted", "about 2,", "Wald test", "of a standard error", "released: epsilon 1"):
        assert part in printed
    for part in ("concordance", "log-likelihood", " nan", "NaN", "TOO NOISY"):
        assert part not in printed


def test_a_fit_that_is_all_noise_shows_no_numbers():
    fit = fitted(hospitals(0, records=100), epsilon=0.5)
    assert not fit.usable
    assert fit.signal < cox_regression.USABLE
    assert np.isnan(fit.summary()[["coef", "se(coef)", "p"]].to_numpy()).all()
    assert np.isnan(fit.tests()["p"]).all()
    assert "TOO NOISY" in fit.text()
    assert "larger epsilon, fewer columns" in " ".join(fit.text().split())


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
        ({"ranges": {"x1": (0, 1)}}, InvalidValue, "ranges of"),
        ({"ranges": {"x1": (0, 1), "x2": (1, 0), "x3": (0, 1)}}, InvalidValue, "ranges of x2"),
        ({"level": 95}, InvalidValue, "level"),
    ],
)
def test_what_cannot_be_private_is_refused_before_anything_is_paid(options, error, message):
    ledger = Ledger()
    with pytest.raises(error, match=message):
        fitted(hospitals(0, records=100), **{"ledger": ledger, **options})
    assert ledger.releases() == []


@pytest.mark.parametrize("option", [{"bound": 1.0}, {"ranges": {"x1": (0, 1)}}, {"delta": 1e-5}])
def test_nobody_believes_to_be_private_without_epsilon(option):
    with pytest.raises(InvalidValue, match="epsilon"):
        cox(hospitals(0, records=100), **option)


def test_residuals_of_a_private_fit_stay_where_they_are():
    data = hospitals(0)
    with pytest.raises(Refused, match="no private version"):
        proportional_hazards(data, fitted(data))
