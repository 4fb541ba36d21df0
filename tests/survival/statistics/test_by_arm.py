"""Curves, log-rank test and restricted means by arm come from one table, at one price."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from tacit import Federation, Open, Privacy, fit
from tacit.errors import InvalidValue
from tacit.privacy.accounting.release import Release
from tacit.privacy.mechanisms.discrete import discrete_laplace_variance
from tacit.survival import signed_table as signed
from tacit.survival.figures.report import pictures
from tacit.survival.signed_table import CellNoise
from tacit.survival.statistics import aalen_johansen, kaplan_meier, life_table, logrank, restricted_mean
from tacit.survival.tasks import KaplanMeier

GRID = tuple(np.linspace(0, 2.5, 9)[1:])
PURE = Privacy(unit="record", mechanism="laplace", epsilon=1.0, delta=0.0, rehearsal=True)
SECURE = replace(PURE, noise="secure")


def patients(records=1500, effect=0.5, seed=1, causes=1, arms=2):
    draw = np.random.default_rng(seed)
    arm = np.arange(records) % arms
    time, last = draw.exponential(np.exp(effect * arm)), draw.exponential(6.0, records)
    event = np.where(time <= last, draw.integers(1, causes + 1, records), 0)
    return pd.DataFrame({
        "arm": arm, "age": draw.normal(size=records), "time": np.minimum(time, last), "event": event,
        "site": draw.integers(0, 4, records),
    })  # fmt: skip


def sites(frame):
    return Federation.from_frame(frame, site="site", targets=["time", "event"])


def test_an_open_run_by_arm_is_what_the_statistics_give():
    data = sites(patients(causes=2))
    run = fit(KaplanMeier(grid=GRID, causes=2, by="arm"), data, privacy=Open())
    fitted, table = run.model, life_table(data, grid=GRID, by="arm", causes=2)
    assert fitted.logrank.statistic == pytest.approx(logrank(table, by="arm").statistic)
    wanted = restricted_mean(table, until=2.0, by="arm").table
    assert np.allclose(fitted.restricted_mean(2.0).table, wanted, equal_nan=True)
    assert list(fitted.survival_by) == list(fitted.incidence_by) == ["0", "1"]
    for label, part in enumerate(("0", "1")):
        frame = patients(causes=2)
        own = life_table(sites(frame[frame["arm"] == label]), grid=GRID, causes=2)
        assert np.allclose(fitted.survival_by[part].table, kaplan_meier(own).table)
        assert np.allclose(fitted.incidence_by[part].table, aalen_johansen(own).table)
    everybody = life_table(data, grid=GRID, causes=2)
    assert np.allclose(fitted.survival.table, kaplan_meier(everybody).table)
    told = " ".join(run.task.findings(run.state))
    assert "log-rank test by arm" in told
    assert "mean time without an event up to 2.5 by arm: 0 " in told
    assert "log-rank, by arm" in fitted.summary()


@pytest.mark.parametrize("promise", [PURE, SECURE, replace(PURE, mechanism="gaussian", delta=1e-5)])
def test_a_private_run_by_arm_costs_one_table_and_finds_the_effect(promise, tmp_path):
    data = sites(patients())
    run = fit(KaplanMeier(grid=GRID, by="arm"), data, privacy=promise, out=tmp_path / "run")
    assert [(part.count, part.sensitivity) for part in run.charged] == [(1, 1.0)] * 4
    assert 0.99 < run.privacy.epsilon <= 1.0
    assert run.model.logrank.p < 1e-3
    mean, exact = (
        part.restricted_mean(2.0).table.loc["difference"]
        for part in (run.model, fit(KaplanMeier(grid=GRID, by="arm"), data).model)
    )
    assert abs(mean["mean"] - exact["mean"]) < 4 * mean["se(mean)"]
    assert mean["se(mean)"] > exact["se(mean)"]
    names = [figure.name for figure in pictures(run.task, run.state, [], lambda name: None)]
    assert names == ["kaplan-meier-by-arm", "kaplan-meier"]


def test_redraws_have_the_law_of_the_noise_in_each_cell():
    data, task = sites(patients()), KaplanMeier(grid=GRID, by="arm")
    for promise, times in ((PURE, 4), (SECURE, 4 / 2)):
        run = fit(task, data, privacy=promise)
        law = run.task.counted(run.state).noise
        assert law.law == "discrete-laplace"
        assert law.times == pytest.approx(times)
        assert law.variance == pytest.approx(times * discrete_laplace_variance(law.scale))
        drawn = law.redraw((40_000,))
        assert np.array_equal(drawn, np.rint(drawn))
        assert drawn.var() == pytest.approx(law.variance, rel=0.05)
        assert np.array_equal(drawn, law.redraw((40_000,)))
    gaussian = CellNoise.of_release(Release(scale=3.0, sensitivity=1.0))
    assert gaussian.redraw((40_000,)).std() == pytest.approx(3.0, rel=0.02)


def test_counts_without_noise_give_mantels_terms_and_greenwoods_error():
    frame = patients(400)
    exact = life_table(sites(frame), grid=GRID, by="arm")
    cells = exact.cells.sum(axis=0)
    counts = signed.read_cells(cells, len(GRID), late=False)
    events, still = exact.exits("group").happened, exact.exits("group").at_risk
    assert np.array_equal(counts.events, events)
    assert np.allclose(counts.exposed, np.maximum(still - counts.censored / 2, 4.0))
    terms = signed.logrank_of(counts)
    shares = counts.exposed[1] / counts.exposed.sum(axis=0)
    both, everybody = events.sum(axis=0), counts.exposed.sum(axis=0)
    assert terms.lead[1] == pytest.approx(float((events[1] - shares * both).sum()))
    factor = both * (everybody - both) / (everybody - 1)
    assert terms.covariance[1, 1] == pytest.approx(float((shares * (1 - shares) * factor).sum()))
    assert np.allclose(terms.covariance.sum(axis=0), 0.0)
    # The derivative of the area by a hazard, numerically.
    weights = np.full(9, 2.5 / 8)
    weights[[0, -1]] /= 2
    area, variance = signed.restricted_mean_of(counts, weights)
    hazard = events / counts.exposed
    numeric = np.zeros(2)
    for place in range(8):
        moved = hazard.copy()
        moved[:, place] += 1e-6
        curve = np.cumprod(1 - moved, axis=1)
        slope = (weights[0] + curve @ weights[1:] - area) / 1e-6
        numeric += slope**2 * (hazard * (1 - hazard) / counts.exposed)[:, place]
    assert np.allclose(variance, numeric, rtol=1e-3)


def test_signs_are_kept_and_empty_tables_do_not_explode():
    cells = np.full((2, 17), -3.0)
    counts = signed.read_cells(cells, 8, late=False)
    assert (counts.exposed == signed.FLOOR).all()
    terms = signed.logrank_of(counts)
    assert terms.observed.tolist() == [-24.0, -24.0]
    assert np.isfinite(terms.lead).all()
    area, variance = signed.restricted_mean_of(counts, np.full(9, 0.3))
    assert np.isfinite(area).all()
    assert (variance >= 0).all()


def test_more_than_two_arms_have_means_and_one_test(tmp_path):
    data = sites(patients(arms=3).assign(arm=lambda frame: frame["arm"] + 1))
    run = fit(KaplanMeier(grid=GRID, by="arm", values=[1, 2, 3], until=2.0), data, privacy=SECURE)
    assert run.model.logrank.degrees == 2
    mean = run.model.restricted_mean()
    assert (mean.until, mean.table.index.tolist()) == (2.0, ["1", "2", "3"])


def test_arms_that_are_not_public_or_not_there_are_refused():
    data = sites(patients())
    with pytest.raises(InvalidValue, match="there is no such column"):
        fit(KaplanMeier(grid=GRID, by="treatment"), data, privacy=PURE)
    with pytest.raises(InvalidValue, match=r"other values than 0 or 1; give .*, as in values = \[1, 2, 3\]"):
        fit(KaplanMeier(grid=GRID, by="age"), data, privacy=PURE)
    with pytest.raises(InvalidValue, match="left out without by"):
        KaplanMeier(grid=GRID, values=[0, 1])
    fitted = fit(KaplanMeier(grid=GRID), data).model
    with pytest.raises(InvalidValue, match="records were not counted by arm"):
        _ = fitted.logrank
