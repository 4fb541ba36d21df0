"""One person is in one cell, noise is what was charged, and it is charged before it is drawn."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from tacit import Federation, Key, Ledger
from tacit.errors import BudgetExhausted, InvalidValue, Refused
from tacit.privacy import accounting
from tacit.privacy.ledger import payment
from tacit.privacy.mechanisms import noise
from tacit.sites.table import Table, from_arrays
from tacit.survival import life_table as histograms
from tacit.survival.life_table import Groups, exit_cells, ratio
from tacit.survival.statistics import aalen_johansen, breslow, censoring, kaplan_meier, logrank, nelson_aalen
from tacit.survival.statistics.federated import life_table

GRID = np.array([0.5, 1.0, 2.0, 4.0])

times = st.floats(min_value=5e-324, max_value=1.7e308, exclude_min=False, allow_subnormal=True)
# Where intervals meet is where a record could be counted twice or not at all.
nearby = [float(side) for end in GRID for side in (end, np.nextafter(end, 0), np.nextafter(end, 9))]
edges = st.sampled_from(nearby)
record = st.tuples(st.one_of(times, edges), st.integers(0, 3), st.integers(0, 1))
records = st.lists(record, min_size=2, max_size=12)


def table_of(found, causes=3) -> Table:
    columns = np.array(found, dtype=np.float64).reshape(-1, 3)
    return from_arrays(
        columns[:, 2:], columns=["arm"], time=columns[:, 0], event=np.minimum(columns[:, 1], causes)
    )


def federation(sites=3, records=40, seed=0, **options) -> Federation:
    draw = np.random.default_rng(seed)
    return Federation(
        {
            f"site-{number}": from_arrays(
                draw.integers(0, 2, records).astype(float),
                columns=["arm"],
                time=draw.exponential(size=records),
                event=draw.integers(0, 2, records),
            )
            for number in range(1, sites + 1)
        },
        **options,
    )


# Sensitivity


@settings(max_examples=300)
@given(records, record, st.sampled_from([None, "arm"]))
def test_one_record_more_moves_one_cell_by_one(some, one, by):
    groups = by and Groups(by, ("0", "1"), (0.0, 1.0))
    before = exit_cells(table_of(some), GRID, 4, groups)
    after = exit_cells(table_of([*some, one]), GRID, 4, groups)
    moved = after - before
    assert np.count_nonzero(moved) == 1
    assert (np.abs(moved).sum(), np.square(moved).sum()) == (1, 1)
    assert before.sum() == len(some)


@settings(max_examples=100)
@given(st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=200, unique=True), record)
def test_that_holds_for_any_grid_however_fine(ends, one):
    grid = np.sort(np.array(ends))
    assert exit_cells(table_of([one]), grid, 4, None).sum() == 1


@settings(max_examples=100)
@given(records)
def test_every_record_is_counted_where_it_is(some):
    table = table_of(some)
    found = life_table(Federation({"only": table}), grid=GRID, causes=3).exits()
    for place, (low, high) in enumerate(zip([0, *GRID], GRID, strict=False)):
        inside = (table.targets["time"] > low) & (table.targets["time"] <= high)
        for state in range(4):
            count = (inside & (table.targets["event"] == state)).sum()
            seen = found.censored[0, place] if state == 0 else found.events[0, place, state - 1]
            assert seen == count
    assert found.beyond[0] == (table.targets["time"] > GRID[-1]).sum()
    assert found.at_risk[0].tolist() == [(table.targets["time"] > low).sum() for low in [0, *GRID[:-1]]]


@settings(max_examples=60)
@given(records, record, st.floats(0.1, 5), st.floats(-1e3, 1e3))
def test_one_record_more_moves_the_risks_by_no_more_than_their_bound(some, one, bound, slope):
    from tacit.survival.statistics.federated import _risk_sums

    def told(found):
        return _risk_sums(table_of(found), lambda x: slope * x[:, 0], bound, GRID)

    moved = told([*some, one]) - told(some)
    assert np.abs(moved).sum() <= math.exp(bound) * (1 + 1e-9)


# What is charged is what is drawn


@pytest.mark.parametrize(("delta", "law"), [(0.0, "discrete-laplace"), (1e-5, "gaussian")])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
def test_noise_has_the_law_and_the_scale_that_were_charged(epsilon, delta, law):
    data, grid, ledger = federation(sites=4), np.linspace(0, 3, 1001)[1:], Ledger()
    key = Key(17, rehearsal=True)
    noisy = life_table(data, grid=grid, epsilon=epsilon, delta=delta, ledger=ledger, key=key)
    draws = (noisy.cells - life_table(data, grid=grid).cells).ravel()
    charged = ledger.releases()
    assert {release.law for release in charged} == {law}
    assert {release.sensitivity for release in charged} == {1.0}
    (scale,) = {release.scale for release in charged}
    if law == "gaussian":
        wanted = stats.norm(scale=scale)
        assert stats.kstest(draws, wanted.cdf).pvalue > 0.001
        # No two cells, and no two sites, share their noise.
        assert len(np.unique(draws)) == draws.size
    else:
        wanted = stats.dlaplace(1 / scale)
        assert np.array_equal(draws, np.rint(draws))
        values, seen = np.unique(draws, return_counts=True)
        # The largest difference of the distribution functions, at level .001 or less where there are ties.
        assert abs(np.cumsum(seen) / draws.size - wanted.cdf(values)).max() < 1.95 / draws.size**0.5
        assert abs(np.corrcoef(draws.reshape(4, -1))[np.triu_indices(4, 1)]).max() < 0.12
    # 8,004 draws tell the scale to about two percent.
    assert abs(draws).mean() == pytest.approx(
        float(abs(wanted.rvs(400_000, random_state=1)).mean()), rel=0.06
    )
    assert noisy.variance == pytest.approx(wanted.var())


@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_one_release_of_each_site_costs_what_was_asked(delta):
    ledger = Ledger()
    life_table(federation(sites=3), grid=GRID, epsilon=0.7, delta=delta, ledger=ledger)
    charged = ledger.releases()
    assert {release.subject for release in charged} == {f"records@site-{number}" for number in (1, 2, 3)}
    rows = [entry for entry in ledger.entries() if entry["kind"] == "release"]
    assert [entry["party"] for entry in rows] == ["site-1", "site-2", "site-3"]
    assert {entry["purpose"] for entry in rows} == {"counts of exits by interval and state"}
    assert all(release.count == 1 for release in charged)
    assert {(release.unit, release.relation) for release in charged} == {("record", "add-remove")}
    assert not any(release.rehearsal for release in charged)
    # Different people at different sites: the largest counts, not the sum.
    assert ledger.spent(delta) == pytest.approx(0.7, rel=1e-3)
    assert ledger.spent(delta) <= 0.7
    assert accounting.epsilon(charged, delta) <= 0.7


def test_a_paid_histogram_serves_every_curve_and_test():
    ledger, data = Ledger(), federation(records=400)
    table = life_table(data, grid=GRID, by="arm", epsilon=2.0, ledger=ledger)
    head = ledger.head
    for curve in (kaplan_meier, nelson_aalen, censoring, aalen_johansen):
        assert curve(table).provenance == table.provenance
    assert logrank(table).provenance == logrank(table, by="arm", strata="site").provenance == table.provenance
    assert ledger.head == head


def test_risks_are_charged_beside_the_exits():
    ledger, data = Ledger(), federation(records=400)
    table = life_table(data, grid=GRID, epsilon=1.0, ledger=ledger)
    curve = breslow(data, lambda x: x[:, 0], table, bound=1.5, epsilon=0.5, ledger=ledger)
    assert {round(release.sensitivity, 9) for release in ledger.releases()} == {1.0, round(math.exp(1.5), 9)}
    assert ledger.spent(0.0) == pytest.approx(1.5, rel=1e-6)
    assert curve.provenance.count("released: epsilon") == 2


def test_every_site_is_charged_before_any_noise_is_drawn(monkeypatch):
    ledger, seen = Ledger(), []

    def watched(values, scale, shares, key, rehearsal):
        seen.append(({release.subject for release in ledger.releases()}, scale))
        return np.zeros_like(values)

    monkeypatch.setattr(payment, "draw_share", watched)
    life_table(federation(sites=3), grid=GRID, epsilon=0.5, ledger=ledger)
    everybody = {f"records@site-{number}" for number in (1, 2, 3)}
    assert [charged for charged, _ in seen] == [everybody] * 3
    assert {scale for _, scale in seen} == {release.scale for release in ledger.releases()}


@pytest.mark.parametrize("subject", ["*", "records@site-2"])
def test_a_budget_that_does_not_bear_it_leaves_nothing(monkeypatch, subject):
    def forbidden(*_):
        raise AssertionError("noise was drawn")

    ledger = Ledger()
    ledger.allow(epsilon=0.5, delta=0.0, subject=subject)
    head = ledger.head
    monkeypatch.setattr(payment, "draw_share", forbidden)
    monkeypatch.setattr(noise, "gaussian", forbidden)
    for statistic in (kaplan_meier, nelson_aalen, logrank, life_table):
        with pytest.raises(BudgetExhausted, match="nothing was charged"):
            statistic(federation(), grid=GRID, epsilon=0.6, ledger=ledger)
    assert ledger.head == head
    assert ledger.releases() == []


def test_what_is_wrong_with_the_data_costs_nothing():
    ledger = Ledger()
    data = Federation({"only": from_arrays([[0.5], [1.0]], columns=["arm"], time=[1.0, 2.0], event=[0, 1])})
    with pytest.raises(
        InvalidValue, match="by = 'arm' is not allowed: arm must hold 0 or 1; give all values"
    ):
        logrank(data, by="arm", grid=GRID, epsilon=1.0, ledger=ledger)
    assert ledger.releases() == []


def test_what_is_wrong_with_the_question_costs_nothing():
    ledger, alone = Ledger(), federation(sites=1)
    asked = {"grid": GRID, "epsilon": 1.0, "ledger": ledger}
    for statistic in (kaplan_meier, nelson_aalen, censoring):
        with pytest.raises(InvalidValue, match="level"):
            statistic(alone, level=95, **asked)
    with pytest.raises(InvalidValue, match="by"):
        logrank(alone, **asked)
    with pytest.raises(InvalidValue, match="strata"):
        logrank(alone, by="arm", strata="ward", **asked)
    assert ledger.releases() == []


def test_without_a_key_nobody_can_draw_the_noise_again():
    data = federation()
    first, second = (life_table(data, grid=GRID, epsilon=1.0, ledger=Ledger()).cells for _ in range(2))
    # Whole noise is equal in one cell of four.
    assert (first != second).mean() > 0.4
    key = Key(5)
    again = [life_table(data, grid=GRID, epsilon=1.0, ledger=Ledger(), key=key).cells for _ in range(2)]
    # The same run, asked again for the same, says the same.
    assert (again[0] == again[1]).all()
    other = life_table(data, grid=GRID, epsilon=1.0, ledger=Ledger(), key=Key(5)).cells
    assert (again[0] != other).mean() > 0.4


def test_other_records_get_other_noise_under_the_same_key():
    key = Key(5)
    draws = []
    for seed in (1, 2):
        data = federation(seed=seed)
        noisy = life_table(data, grid=GRID, epsilon=1.0, ledger=Ledger(), key=key)
        draws.append(noisy.cells - life_table(data, grid=GRID).cells)
    assert np.isclose(draws[0], draws[1]).mean() < 0.6


def test_a_rehearsal_repeats_and_says_so_everywhere():
    data, key, ledger = federation(), Key(3, rehearsal=True), Ledger()
    tables = [life_table(data, grid=GRID, epsilon=1.0, ledger=ledger, key=key) for _ in range(2)]
    assert (tables[0].cells == tables[1].cells).all()
    assert "REHEARSAL" in tables[0].provenance
    assert "REHEARSAL" in kaplan_meier(tables[0]).summary()
    assert all(release.rehearsal for release in ledger.releases())


# What is said


def test_the_provenance_of_counts_is_said():
    bare = life_table(federation()).provenance
    assert bare == ("bare: counts of exits by interval and state, at every exit time, from each of 3 sites")
    assert "at every exit time" not in life_table(federation(), grid=GRID).provenance
    assert life_table(federation(public=True)).provenance.startswith("public:")
    noisy = life_table(federation(public=True), grid=GRID, epsilon=0.5, delta=1e-5, ledger=Ledger())
    assert noisy.provenance.startswith("released: epsilon 0.5 at delta 1e-05 for any one record; counts of")
    assert "gaussian noise of scale" in noisy.provenance


# Refusals


@pytest.mark.parametrize("statistic", [kaplan_meier, nelson_aalen, censoring, logrank, life_table])
def test_exit_times_are_no_private_grid(statistic):
    ledger = Ledger()
    with pytest.raises(Refused, match="give the ends of public intervals"):
        statistic(federation(), epsilon=1.0, ledger=ledger)
    assert ledger.releases() == []


def test_private_causes_are_said_not_looked_for():
    with pytest.raises(Refused, match="causes"):
        aalen_johansen(federation(), grid=GRID, epsilon=1.0, ledger=Ledger())
    assert aalen_johansen(federation(), grid=GRID, causes=2, epsilon=1.0, ledger=Ledger()).curves == (
        "incidence_1",
        "incidence_2",
    )


def test_epsilon_needs_a_ledger():
    with pytest.raises(Refused, match=r"ledger=Ledger\(path\)"):
        kaplan_meier(federation(), grid=GRID, epsilon=1.0)


@pytest.mark.parametrize("option", [{"ledger": Ledger()}, {"key": Key(1)}, {"delta": 1e-5}])
def test_nobody_believes_to_be_private_without_epsilon(option):
    with pytest.raises(InvalidValue, match="they have no effect without it"):
        kaplan_meier(federation(), grid=GRID, **option)


def test_exits_and_risks_are_protected_alike():
    data = federation()
    bare = life_table(data, grid=GRID)
    paid = life_table(data, grid=GRID, epsilon=1.0, ledger=Ledger())
    ledger = Ledger()
    with pytest.raises(Refused, match="both be private or both be open"):
        breslow(data, lambda x: x[:, 0], bare, bound=1.0, epsilon=1.0, ledger=ledger)
    with pytest.raises(Refused, match="both be private or both be open"):
        breslow(data, lambda x: x[:, 0], paid, bound=1.0)
    with pytest.raises(Refused, match="bound = None"):
        breslow(data, lambda x: x[:, 0], paid, epsilon=1.0, ledger=ledger)
    with pytest.raises(InvalidValue, match="bound"):
        breslow(data, lambda x: x[:, 0], bare, bound=-1.0)
    with pytest.raises(InvalidValue, match="log_risk"):
        breslow(data, lambda x: np.full(len(x), np.nan), bare)
    assert ledger.releases() == []


def test_a_counted_table_is_not_counted_anew():
    table = life_table(federation(), grid=GRID)
    for option in ({"grid": GRID}, {"epsilon": 1.0}, {"ledger": Ledger()}, {"key": Key(1)}, {"delta": 0.1}):
        with pytest.raises(InvalidValue, match="life table"):
            kaplan_meier(table, **option)
    with pytest.raises(InvalidValue, match="by = 'arm'"):
        logrank(table, by="arm")


BROKEN = [[], [0.0, 1.0], [1.0, 1.0], [2.0, 1.0], [1.0, math.inf], [math.nan], [[1.0]], "ab"]


@pytest.mark.parametrize("grid", BROKEN)
def test_a_grid_ascends_from_above_zero(grid):
    with pytest.raises(InvalidValue, match="grid"):
        life_table(federation(), grid=grid)


def test_an_unknown_column_gets_a_hint():
    with pytest.raises(InvalidValue, match='did you mean "arm"'):
        logrank(federation(), by="arms")


# Noisy counts made to fit


@settings(max_examples=200)
@given(st.lists(st.floats(-50, 50), min_size=1, max_size=30))
def test_nearest_counts_are_not_negative_and_keep_their_sum(given_counts):
    counts = np.array(given_counts)
    found = histograms.nearest_counts(counts)
    assert (found >= 0).all()
    assert found.sum() == pytest.approx(max(counts.sum(), 0.0), abs=1e-9)
    # Who is moved by as much as all others who stay above 0 is at the nearest such point.
    kept = found > 0
    if kept.any():
        shift = (counts - found)[kept]
        assert np.ptp(shift) < 1e-9
        assert (counts[~kept] <= shift.max() + 1e-9).all()


@settings(max_examples=100)
@given(st.lists(st.floats(0, 100), min_size=1, max_size=30))
def test_counts_that_fit_stay_as_they_are(given_counts):
    counts = np.array(given_counts)
    assert histograms.nearest_counts(counts) == pytest.approx(counts, abs=1e-9)


@settings(max_examples=30)
@given(st.integers(0, 1000), st.floats(0.05, 5))
def test_noisy_numbers_at_risk_never_rise_and_curves_stay_possible(seed, epsilon):
    grid = np.linspace(0, 3, 16)[1:]
    table = life_table(
        federation(seed=seed),
        grid=grid,
        by="arm",
        epsilon=epsilon,
        ledger=Ledger(),
        key=Key(seed, rehearsal=True),
    )
    for over in ("all", "site", "group", "each"):
        exits = table.exits(over)
        assert (np.diff(exits.at_risk, axis=1) <= 1e-9).all()
        assert min(exits.events.min(), exits.censored.min(), exits.beyond.min()) >= 0
    survival = kaplan_meier(table).table
    assert survival["survival"].is_monotonic_decreasing
    assert survival["survival"].between(0, 1).all()
    assert (survival["lower"] <= survival["survival"] + 1e-12).all()
    assert (survival["survival"] <= survival["upper"] + 1e-12).all()
    test = logrank(table, by="arm")
    assert test.statistic >= -1e-9
    assert 0 <= test.p <= 1


def test_noise_drowns_what_is_too_small_to_be_seen():
    tiny = life_table(federation(sites=5, records=4), grid=GRID, epsilon=0.05, ledger=Ledger())
    curve = kaplan_meier(tiny)
    assert curve.until == 0.0
    assert np.isnan(curve.at([0.5, 3.0])).all()
    assert curve.at([0.0]).tolist() == [1.0]
    assert "known until" in curve.summary()


def test_nothing_of_nothing_is_nothing():
    assert ratio(np.array([0.0, 1.0, 2.0]), np.array([0.0, 2.0, 2.0])).tolist() == [0.0, 0.5, 1.0]
