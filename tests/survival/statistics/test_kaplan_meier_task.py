"""Survival curves through the one loop: those of all records in one place, at the price on the ledger."""

import contextlib
import json
import math
import warnings
from dataclasses import dataclass, fields, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit import Federation, Key, Open, Privacy, fit
from tacit.aggregation.mean import Mean
from tacit.aggregation.robust.coordinatewise import Median
from tacit.aggregation.server import Momentum
from tacit.engines.base import Engine, run_at_site
from tacit.errors import InvalidFile, InvalidValue, Refused
from tacit.experiments import experiment
from tacit.learning.task import Updates
from tacit.privacy import accounting
from tacit.privacy.accounting.release import Release, from_dict
from tacit.privacy.ledger.store import Ledger, verify
from tacit.privacy.mechanisms.base import NoPrivacy
from tacit.privacy.mechanisms.discrete import discrete_laplace_variance
from tacit.privacy.policy import Provenance
from tacit.runs.directory import LEDGER, SUMMARY
from tacit.sites.remote import RemoteRowFederation, blank_tables
from tacit.sites.splits import Dirichlet, Iid, TimeNonIid
from tacit.sites.table import from_arrays, from_frame
from tacit.survival.data import simulate
from tacit.survival.statistics import aalen_johansen, kaplan_meier, nelson_aalen, restricted_mean
from tacit.survival.statistics.federated import life_table
from tacit.survival.statistics.sum_task import coarsen
from tacit.survival.tasks import KaplanMeier

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from lifelines import KaplanMeierFitter

GRID = (0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0)
RECORD = Privacy(unit="record", epsilon=1.0, delta=1e-5, clip=1.0)
SITE = Privacy(unit="site", epsilon=400.0, delta=1e-5, clip=60.0, rehearsal=True)
SPLITS = {
    "iid": Iid(count=3),
    "time-non-iid": TimeNonIid(count=3),
    "dirichlet": Dirichlet(count=4, alpha=0.4),
}
TARGETS = ("plain", "late", "late and weighed")


def records(size: int, seed: int, targets: str = "plain", causes: int = 1):
    draw = np.random.default_rng(seed)
    time = np.ceil(draw.exponential(size=size) * 16) / 16
    more = {}
    if targets != "plain":
        more["entry"] = np.where(draw.random(size) < 0.4, time * draw.random(size) * 0.9, 0.0)
    if targets == "late and weighed":
        more["weight"] = draw.uniform(0.2, 3, size)
    return from_arrays(
        draw.normal(size=(size, 2)), time=time, event=draw.integers(0, causes + 1, size), **more
    )


def federation(
    count: int = 3, targets: str = "plain", causes: int = 1, size: int = 150, **options
) -> Federation:
    tables = {f"site-{n}": records(size + 20 * n, n, targets, causes) for n in range(count)}
    return Federation(tables, **options)


@contextlib.contextmanager
def lifelines_at_work():
    """It warns, and switches numpy's own warnings off for good, unless somebody puts them back."""
    with warnings.catch_warnings(), np.errstate():
        warnings.simplefilter("ignore")
        yield


def released(folder):
    """Everything that was paid for, one by one, as the ledger has it."""
    known = {entry.name for entry in fields(Release)}
    with Ledger(folder / LEDGER, mode="read") as ledger:
        rows = [entry for entry in ledger.entries() if entry["kind"] == "release"]
    return [from_dict({name: value for name, value in row.items() if name in known}) for row in rows]


def counts(run) -> np.ndarray:
    """Return the counts of all sites together, before intervals are joined."""
    task = run.task
    return run.state[task._prefix_size :] * len(task.known.sites) / task.known.record_unit


# In the open


@pytest.mark.parametrize("split", SPLITS)
def test_in_the_open_the_curve_is_that_of_the_statistics_to_the_last_letter(split):
    table = from_frame(simulate("SDGM1", records=300, features=3, seed=1), targets=("time", "event"))
    data = Federation({name: table.take(rows) for name, rows in SPLITS[split](table, Key(2)).items()})
    run = fit(KaplanMeier(grid=GRID, level=0.9), data)
    wanted = kaplan_meier(data, grid=GRID, level=0.9)
    assert run.model.survival.table.equals(wanted.table)
    assert run.model.summary() == str(run.model) == wanted.summary()


@pytest.mark.parametrize("targets", TARGETS)
@pytest.mark.parametrize("causes", [1, 2])
def test_whatever_records_know_every_estimate_is_that_of_the_statistics(targets, causes):
    data = federation(targets=targets, causes=causes)
    model = fit(KaplanMeier(grid=GRID, causes=causes), data).model
    table = life_table(data, grid=GRID, causes=causes)
    pairs = [
        (model.survival, kaplan_meier(table)),
        (model.hazard, nelson_aalen(table)),
        (model.incidence, aalen_johansen(table)),
    ]
    for found, wanted in pairs:
        np.testing.assert_allclose(found.table, wanted.table, rtol=1e-12, atol=1e-12)
        assert (found.until, found.provenance) == (wanted.until, wanted.provenance)
    found, wanted = model.restricted_mean(2.0), restricted_mean(table, until=2.0)
    np.testing.assert_allclose(found.table, wanted.table, rtol=1e-12)


def test_at_every_exit_time_and_on_a_grid_of_rounded_times_the_curve_is_that_of_lifelines():
    data = federation()
    store = data.store.targets
    for task, time in (
        (KaplanMeier(), store["time"]),
        (KaplanMeier(grid=np.arange(1, 60) / 8), np.ceil(store["time"] * 8) / 8),
    ):
        found = fit(task, data).model.survival
        with lifelines_at_work():
            fitted = KaplanMeierFitter().fit(time, store["event"])
            wanted = fitted.survival_function_at_times(found.table.index)
            band = fitted.confidence_interval_.reindex(found.table.index, method="ffill")
        np.testing.assert_allclose(found.table["survival"], wanted, rtol=1e-10)
        inner = (wanted.to_numpy() > 0) & (wanted.to_numpy() < 1)
        np.testing.assert_allclose(found.table[["lower", "upper"]][inner], band[inner], rtol=1e-8)


def test_equally_long_intervals_end_at_the_horizon():
    run = fit(KaplanMeier(cuts=4, horizon=2.0), federation())
    assert run.task.grid == (0.5, 1.0, 1.5, 2.0)
    assert run.task.horizon is None, "said once"
    assert run.model.survival.until == 2.0


def test_what_leaves_bare_is_said():
    run = fit(KaplanMeier(), federation())
    assert "every exit time" in run.privacy.bare
    assert fit(KaplanMeier(grid=GRID), federation(public=True)).model.survival.provenance.startswith("public")


def test_held_out_records_score_the_curve_beside_those_of_each_site_and_of_all():
    data = federation(held_out=records(80, 9), held_out_public=True)
    run = fit(KaplanMeier(grid=GRID), data, baselines=True)
    assert 0 < run.scores["ibs"] < 0.25
    assert run.baselines["pooled"]["ibs"] == pytest.approx(run.scores["ibs"], rel=1e-12)
    assert run.baselines["alone"]["ibs"] > 0


def test_losses_are_those_of_one_hazard_for_everybody():
    data = federation()
    run = fit(KaplanMeier(grid=GRID), data)
    fair = run.task.losses(run.state, data.store).sum()
    for factor in (0.5, 1.6):
        # A curve of other events fits worse.
        other = run.state.copy()
        cells = other[run.task._prefix_size :][:-1].reshape(-1, 2)
        moved = cells[:, 1] * (factor - 1)
        cells[:, 1] += moved
        cells[:, 0] -= moved
        assert run.task.losses(other, data.store).sum() > fair


# Under a promise to records


@pytest.mark.parametrize("clip", [0.3, 1.0])
@pytest.mark.parametrize(("law", "delta"), [("gaussian", 1e-5), ("laplace", 0.0)])
@pytest.mark.parametrize("targets", ["plain", "late"])
def test_the_ledger_has_the_price_and_the_counts_have_the_noise(clip, law, delta, targets, tmp_path):
    data = federation(targets=targets, size=400)
    promise = replace(RECORD, mechanism=law, delta=delta, clip=clip)
    task = KaplanMeier(cuts=200, horizon=4.0)
    run = fit(task, data, privacy=promise, out=tmp_path / "run")
    assert verify(tmp_path / "run" / LEDGER).valid
    told = released(tmp_path / "run")
    assert [(release.party, release.purpose) for release in told] == [(name, "round 1") for name in data]
    # Counts with discrete noise are whole; others are sent in units of the clip.
    one = 1 + (targets == "late")
    moved = one if law == "laplace" else clip
    assert all(release.sensitivity == moved and release.rate == 1 and release.count == 1 for release in told)
    assert {release.law for release in told} == {"discrete-laplace" if law == "laplace" else law}
    spent = accounting.epsilon([release for release in told if release.party == "site-0"], delta)
    assert 0.99 < spent <= 1.0
    assert run.privacy.epsilon == pytest.approx(spent)
    # The noise is what was charged, and what the band counts with.
    exact = counts(fit(task, data))
    noise = counts(run) - exact
    if law == "laplace":
        deviation = math.sqrt(discrete_laplace_variance(told[0].scale) * len(data))
        assert told[0].scale == pytest.approx(one, rel=1e-6)
        assert np.array_equal(noise, np.rint(noise))
    else:
        deviation = one**0.5 * told[0].scale / clip * len(data) ** 0.5
    assert run.task.known.noise == pytest.approx(deviation, rel=1e-12)
    assert noise.std() == pytest.approx(deviation, rel=0.2)


@settings(max_examples=40)
@given(st.data())
def test_one_record_moves_what_a_site_sends_by_no_more_than_the_bound(draw):
    targets = draw.draw(st.sampled_from(["plain", "late"]))
    law = draw.draw(st.sampled_from(["gaussian", "laplace"]))
    causes = draw.draw(st.integers(1, 3))
    clip = draw.draw(st.floats(0.1, 10))
    table = records(12, draw.draw(st.integers(0, 1000)), targets, causes)
    fewer = table.take(np.arange(1, 12))
    promise = replace(RECORD, mechanism=law, delta=0.0 if law == "laplace" else 1e-5, clip=clip)
    task = KaplanMeier(grid=GRID, causes=causes).with_privacy(promise)
    sent = []
    for part in (table, fewer):
        data = Federation({"a": part})
        settled = task.bind(data, Provenance(promise, public=False))
        state = settled.start(data, Key(0))
        sent.append(settled.train(state, data.cohort(["a"]), NoPrivacy(), Key(0)).matrix[0])
    moved = np.linalg.norm(sent[0] - sent[1], ord=1 if law == "laplace" else 2)
    assert 0 < moved <= (1 + (targets == "late") if law == "laplace" else clip * (1 + 1e-12))


def test_the_band_allows_for_the_noise():
    data, task = federation(size=800), KaplanMeier(cuts=20, horizon=2.0)
    exact = kaplan_meier(data).curve
    inside, wide = [], []
    for seed in range(60):
        run = fit(task, data, privacy=replace(RECORD, epsilon=0.5, rehearsal=True), seed=seed)
        table = run.model.survival.table.iloc[1:]
        truth = exact(table.index + 1e-9)
        inside.append(np.mean((table["lower"] <= truth) & (truth <= table["upper"])))
        wide.append((table["upper"] - table["lower"]).mean())
    assert np.mean(inside) > 0.93
    open_band = fit(task, data).model.survival.table
    assert np.mean(wide) > 1.5 * (open_band["upper"] - open_band["lower"]).mean()


def test_intervals_that_noise_drowns_are_taken_together():
    data, apart = federation(size=300), list[float]()
    for seed in range(8):
        task = KaplanMeier(cuts=120, horizon=2.4)
        run = fit(task, data, privacy=replace(RECORD, rehearsal=True), seed=seed)
        ends = run.model.table.grid
        assert len(ends) < 40
        assert ends[-1] == pytest.approx(2.4)
        assert set(ends) <= set(run.task.grid)
        assert "intervals are merged" in run.model.survival.provenance
        assert run.model.table.cells.sum() == pytest.approx(counts(run).sum())
        exact = kaplan_meier(data).curve
        known = run.model.survival.table.iloc[1:]
        apart.append(float(np.abs(known["survival"] - exact(known.index)).max()))
    # Of so few intervals one may be a quarter of everybody's life.
    assert max(apart) < 0.25
    assert np.mean(apart) < 0.12


def test_joined_intervals_keep_everybody_who_comes_and_leaves():
    data = federation(targets="late", causes=2)
    table = life_table(data, grid=GRID, causes=2)
    whole = replace(table, cells=table.cells.sum(axis=0, keepdims=True), sites=("all",), variance=400.0)
    joined = coarsen(whole)
    assert len(joined.grid) < len(GRID)
    assert joined.causes == 2
    for found, wanted in (("happened", "happened"), ("censored", "censored"), ("entered", "entered")):
        one, other = getattr(replace(joined, variance=0).exits(), found), getattr(table.exits(), wanted)
        assert one.sum() == other.sum()
    coarse = life_table(data, grid=joined.grid, causes=2)
    np.testing.assert_allclose(replace(joined, variance=0).exits().at_risk, coarse.exits().at_risk)


def test_alone_and_pooled_are_worked_out_without_noise():
    data = federation(public=True, held_out=records(80, 9), size=60)
    run = fit(KaplanMeier(grid=GRID), data, privacy=replace(RECORD, rehearsal=True), baselines=True)
    openly = fit(KaplanMeier(grid=GRID), data, baselines=True)
    for name in ("alone", "pooled"):
        assert run.baselines[name]["ibs"] == pytest.approx(openly.baselines[name]["ibs"], rel=1e-9)


# Under a promise to sites


@pytest.mark.parametrize("noise", ["site", "server", "secure"])
def test_whole_sites_are_protected_whoever_adds_the_noise(noise, tmp_path):
    data = federation(6, size=60)
    run = fit(KaplanMeier(grid=GRID), data, privacy=replace(SITE, noise=noise), out=tmp_path / "run")
    assert run.privacy.epsilon == pytest.approx(accounting.epsilon(released(tmp_path / "run"), 1e-5))
    assert run.privacy.epsilon <= 400
    exact = counts(fit(KaplanMeier(grid=GRID), data))
    assert np.abs(counts(run) - exact).max() < 6 * run.task.known.noise
    assert 0 < run.task.known.noise < 20
    found, wanted = run.model.survival.table, kaplan_meier(data, grid=GRID).table
    assert np.abs(found["survival"] - wanted["survival"].reindex(found.index)).max() < 0.1
    assert "are clipped" in run.model.survival.provenance


# What is refused


@pytest.mark.parametrize(
    ("options", "promise", "told"),
    [
        ({}, RECORD, "needs public intervals"),
        ({}, replace(RECORD, rehearsal=True), "needs public intervals"),
        ({"grid": GRID}, replace(RECORD, participation=0.5), "participation = 0.5"),
        ({"grid": GRID}, Open(participation=0.5), "participation = 0.5"),
        ({"grid": GRID}, replace(SITE, clip_quantile=0.5), "clip_quantile"),
    ],
)
def test_what_cannot_be_kept_is_refused_before_anything_is_paid(options, promise, told, tmp_path):
    with pytest.raises((Refused, InvalidValue), match=told):
        fit(KaplanMeier(**options), federation(), privacy=promise, out=tmp_path / "run")
    assert not (tmp_path / "run" / LEDGER).exists()


def test_weights_are_refused_where_records_are_protected():
    data = federation(targets="late and weighed")
    with pytest.raises(Refused, match="weight is not private"):
        fit(KaplanMeier(grid=GRID), data, privacy=RECORD)
    fit(KaplanMeier(grid=GRID), data, privacy=SITE)


def test_a_second_round_is_refused():
    with pytest.raises(InvalidValue, match="rounds = 2 is not allowed: it must be 1"):
        fit(KaplanMeier(grid=GRID), federation(), rounds=2)


@pytest.mark.parametrize("rule", [{"server": Momentum(lr=0.5)}, {"aggregation": Median()}])
def test_what_is_no_plain_mean_is_refused(rule):
    with pytest.raises(Refused, match="sums the answers of the sites"):
        fit(KaplanMeier(grid=GRID), federation(), **rule)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"grid": (1.0, 0.5)}, "ascending"),
        ({"grid": (1.0,), "horizon": 2.0}, "horizon"),
        ({"horizon": -1.0}, "horizon"),
        ({"cuts": 0, "horizon": 1.0}, "cuts"),
        ({"causes": 0}, "causes"),
        ({"level": 1.0}, "level"),
    ],
)
def test_choices_that_mean_nothing_are_refused_by_name(options, told):
    with pytest.raises(InvalidValue, match=told):
        KaplanMeier(**options)


def test_records_that_are_not_valid_are_named():
    data = federation(causes=2)
    with pytest.raises(InvalidValue, match="event in site site-0"):
        fit(KaplanMeier(grid=GRID), data)
    with pytest.raises(InvalidValue, match="held-out"):
        fit(KaplanMeier(grid=GRID), federation(held_out=records(40, 1, causes=2)))


# Who comes, and from where


@dataclass(frozen=True)
class Scattered(Engine):
    """Sites that work alone, each with its own records, as on machines of their own; some never answer."""

    own: Federation
    lost: tuple[str, ...] = ()
    kind = "scattered"

    def train(self, task, federation, state, names, mechanism, key):
        there = [name for name in names if name not in self.lost]
        rows = []
        for name in there:
            alone = Federation({name: self.own[name].table})
            rows.append(run_at_site(task, state, alone.cohort([name]), mechanism, key).matrix)
        return Updates(tuple(there), np.concatenate(rows))


@pytest.mark.parametrize(
    "promise", [Open(), replace(RECORD, rehearsal=True), SITE], ids=["open", "record", "site"]
)
@pytest.mark.parametrize("targets", ["plain", "late"])
def test_records_that_are_elsewhere_give_the_same_curve(promise, targets):
    data = federation(targets=targets)
    names = tuple(data.store.targets)
    afar = RemoteRowFederation(blank_tables(list(data), data.store.columns, names))
    task = KaplanMeier(cuts=10, horizon=2.0)
    found = fit(task, afar, privacy=promise, engine=Scattered(data))
    wanted = fit(task, data, privacy=promise)
    np.testing.assert_allclose(found.state, wanted.state, rtol=0, atol=1e-12)
    assert found.model.summary() == wanted.model.summary()


def test_intervals_have_to_be_said_where_records_are_elsewhere():
    data = federation()
    afar = RemoteRowFederation(blank_tables(list(data), data.store.columns, ("time", "event")))
    with pytest.raises(Refused, match="public intervals where the records are at the sites"):
        fit(KaplanMeier(), afar, engine=Scattered(data))


def test_records_that_nobody_has_looked_at_are_checked_where_they_are():
    data = federation(causes=2)
    afar = RemoteRowFederation(blank_tables(list(data), data.store.columns, ("time", "event")))
    with pytest.raises(InvalidValue, match="event in site site-0"):
        fit(KaplanMeier(grid=GRID), afar, engine=Scattered(data))


@pytest.mark.parametrize("promise", [Open(), replace(RECORD, rehearsal=True)], ids=["open", "record"])
def test_without_a_site_the_counts_are_those_of_the_others(promise):
    data = federation()
    others = Federation({name: data[name].table for name in ("site-0", "site-2")})
    run = fit(KaplanMeier(grid=GRID), data, privacy=promise, engine=Scattered(data, lost=("site-1",)))
    assert "not counted: site-1" in run.record.notes
    assert "from 2 of 3 sites" in run.model.survival.provenance
    wanted = fit(KaplanMeier(grid=GRID), others, privacy=promise)
    np.testing.assert_allclose(run.model.table.cells, wanted.model.table.cells, atol=1e-9)
    assert run.model.table.variance == pytest.approx(wanted.model.table.variance)


def test_a_cohort_gives_what_its_sites_give_one_by_one():
    data = federation(targets="late")
    task = KaplanMeier(grid=GRID).with_privacy(RECORD).bind(data, Provenance(RECORD, public=False))
    state, key = task.start(data, Key(1)), Key(1, rehearsal=True)
    mechanism = replace(RECORD, rehearsal=True).solve(task, list(data), Mean(), 1)
    whole = run_at_site(task, state, data.cohort(list(data)), mechanism, key)
    for place, name in enumerate(data):
        one = run_at_site(task, state, data.cohort([name]), mechanism, key)
        assert np.array_equal(one.matrix[0], whole.matrix[place])


# From a file, and back

FILE = """
name = "curve"

[data]
kind = "simulated"
records = 400
features = 4

[sites]
count = 3

[task]
kind = "kaplan-meier"
horizon = 4.0
cuts = 12

[privacy]
unit = "record"
epsilon = 2.0
delta = 1e-5
clip = 1.0
rehearsal = true
"""


def test_a_file_plans_runs_is_loaded_and_goes_on(tmp_path):
    (tmp_path / "curve.toml").write_text(FILE)
    asked = experiment.read(tmp_path / "curve.toml")
    assert (asked.rounds, asked.baselines) == (1, False)
    plan = asked.plan()
    run = asked.run(tmp_path / "run")
    assert run.privacy.epsilon == pytest.approx(plan.statement.epsilon, rel=1e-9)
    assert 1.98 < run.privacy.epsilon <= 2
    summary = run.model.summary()
    assert "REHEARSAL" in summary
    assert experiment.load(tmp_path / "run").model.summary() == summary
    for again in (asked, experiment.read(tmp_path / "run")):
        assert again.run(tmp_path / "run", resume=True).model.summary() == summary


class CutOff(Exception):
    """The power is gone."""


def cut_off(entry):
    raise CutOff


def test_a_run_that_was_cut_off_goes_on_at_no_new_price(tmp_path):
    (tmp_path / "curve.toml").write_text(FILE.replace("rehearsal = true\n", ""))
    asked = experiment.read(tmp_path / "curve.toml")
    with pytest.raises(CutOff):
        asked.run(tmp_path / "run", callbacks=[cut_off])
    paid = released(tmp_path / "run")
    run = asked.run(tmp_path / "run", resume=True)
    assert released(tmp_path / "run") == paid
    assert len(paid) == 3
    assert run.privacy.epsilon <= 2
    assert json.loads((tmp_path / "run" / SUMMARY).read_text())["task"] == "kaplan-meier"
    assert experiment.load(tmp_path / "run").model.summary() == run.model.summary()


def test_a_file_without_intervals_is_refused_before_data_are_touched(tmp_path):
    (tmp_path / "curve.toml").write_text(FILE.replace("horizon = 4.0\n", ""))
    with pytest.raises(Refused, match="needs public intervals"):
        experiment.read(tmp_path / "curve.toml").plan()
    (tmp_path / "curve.toml").write_text(FILE.replace("horizon", "horizont"))
    with pytest.raises(InvalidFile, match="horizon"):
        experiment.read(tmp_path / "curve.toml")
