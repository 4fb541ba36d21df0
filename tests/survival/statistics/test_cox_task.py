"""Cox regression through the one loop: the fit of all records in one place, one stratum for each site."""

import contextlib
import warnings
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import pytest

from tacit import Federation, Key, Open, Privacy, fit
from tacit.aggregation.robust.coordinatewise import Median
from tacit.aggregation.server import Momentum
from tacit.engines.base import Engine, run_at_site
from tacit.errors import InvalidValue, Refused
from tacit.experiments import experiment
from tacit.learning.task import Updates
from tacit.privacy.policy import Provenance
from tacit.sites.remote import RemoteRowFederation, blank_tables
from tacit.sites.splits import Dirichlet, Iid, TimeNonIid
from tacit.sites.table import from_arrays, from_frame
from tacit.survival.data import simulate
from tacit.survival.statistics import cox, cox_newton
from tacit.survival.tasks import Cox

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from lifelines import CoxPHFitter

SPLITS = {
    "iid": Iid(count=3),
    "time-non-iid": TimeNonIid(count=3),
    "dirichlet": Dirichlet(count=4, alpha=0.4),
}
OPTIONS = {
    "efron": {},
    "breslow": {"ties": "breslow"},
    "ridge": {"ridge": 5.0, "level": 0.9},
    "grid": {"grid": (0.2, 0.5, 1.0, 1.5, 2.5)},
    "columns": {"columns": ("x3", "x1")},
}
PROMISES = {
    "record": Privacy(unit="record", epsilon=1.0, delta=1e-5, clip=1.0),
    "site": Privacy(unit="site", epsilon=1.0, delta=1e-5, clip=1.0, noise="server"),
    "rehearsal": Privacy(unit="record", epsilon=1.0, delta=1e-5, clip=1.0, rehearsal=True),
}


def records(size: int, seed: int, targets: str = "plain", effect: float = 0.8):
    draw = np.random.default_rng(seed)
    features = draw.normal(size=(size, 3))
    time = np.ceil(draw.exponential(size=size) * np.exp(-effect * features[:, 0]) * 16) / 16
    more = {}
    if targets == "late and weighed":
        more["entry"] = np.where(draw.random(size) < 0.4, time * draw.random(size) * 0.9, 0.0)
        more["weight"] = draw.uniform(0.2, 3, size)
    return from_arrays(features, time=time, event=(draw.random(size) < 0.7).astype(float), **more)


def federation(targets: str = "plain", effect: float = 0.8, **options) -> Federation:
    tables = {f"site-{n}": records(100 + 30 * n, n, targets, effect) for n in range(3)}
    return Federation(tables, **options)


@contextlib.contextmanager
def lifelines_at_work():
    """It warns, and switches numpy's own warnings off for good, unless somebody puts them back."""
    with warnings.catch_warnings(), np.errstate():
        warnings.simplefilter("ignore")
        yield


def agree(found, wanted) -> None:
    """Two fits are the same in all that is told of them."""
    np.testing.assert_allclose(found.coefficients, wanted.coefficients, rtol=0, atol=1e-8)
    np.testing.assert_allclose(found.covariance, wanted.covariance, rtol=1e-8)
    np.testing.assert_allclose(found.summary(), wanted.summary(), rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(found.tests(), wanted.tests(), rtol=1e-6)
    assert list(found.summary().index) == list(wanted.summary().index)
    for name in ("log_likelihood", "null_log_likelihood", "concordance", "concordance_error"):
        assert getattr(found, name) == pytest.approx(getattr(wanted, name), rel=1e-10)
    for name in ("records", "events", "iterations", "strata", "ties", "provenance"):
        assert getattr(found, name) == getattr(wanted, name)


# The fit


@pytest.mark.parametrize("split", SPLITS)
def test_whoever_has_which_records_the_fit_is_that_of_the_statistics(split):
    table = from_frame(simulate("SDGM1", records=400, features=4, seed=3), targets=("time", "event"))
    data = Federation({name: table.take(rows) for name, rows in SPLITS[split](table, Key(2)).items()})
    run = fit(Cox(), data, rounds=10)
    agree(run.model, cox(data))
    assert run.model.text() == cox(data).text()
    assert run.record.findings[-1].startswith("converged in ")


@pytest.mark.parametrize("targets", ["plain", "late and weighed"])
@pytest.mark.parametrize("options", OPTIONS)
def test_whatever_is_asked_for_the_fit_is_that_of_the_statistics(options, targets):
    data = federation(targets)
    agree(fit(Cox(**OPTIONS[options]), data, rounds=10).model, cox(data, **OPTIONS[options]))


def test_with_one_stratum_for_each_site_the_fit_is_that_of_lifelines():
    data = federation()
    frame = pd.DataFrame(data.store.features, columns=list(data.store.columns)).assign(**data.store.targets)
    frame["site"] = np.concatenate([[name] * len(data.records_of(name)) for name in data])
    found = fit(Cox(), data, rounds=10).model.summary()
    with lifelines_at_work():
        wanted = CoxPHFitter().fit(frame, "time", "event", strata=["site"]).summary
    for column in ("coef", "se(coef)", "exp(coef)", "z"):
        np.testing.assert_allclose(found[column], wanted[column], rtol=1e-4, atol=1e-4)


def test_steps_that_lead_down_are_halved_as_often_as_in_the_statistics(monkeypatch):
    """The likelihood is far from a parabola here; longer steps are sure to decrease it."""
    monkeypatch.setattr(cox_newton, "_solve", _too_far(cox_newton._solve))
    data = federation(effect=1.5)
    wanted = cox(data)
    run = fit(Cox(), data, rounds=wanted.iterations)
    assert run.record.findings[-1] == f"converged in {wanted.iterations} rounds"
    assert wanted.iterations > 10, "some were halved"
    agree(run.model, wanted)


def _too_far(solved):
    def step(matrix, values):
        found = solved(matrix, values)
        return found * (3.5 if np.abs(found).max() > 1e-3 else 1.0)

    return step


def test_numbers_that_overflow_are_said_and_not_sent(monkeypatch):
    """A step beyond all numbers is halved; nobody is taken for broken."""
    solved, steps = cox_newton._solve, []

    def far(matrix, values):
        steps.append(1)
        return solved(matrix, values) * (3000.0 if len(steps) == 1 else 1.0)

    monkeypatch.setattr(cox_newton, "_solve", far)
    run = fit(Cox(), federation(), rounds=25)
    assert all(not entry.faults for entry in run.record.rounds)
    assert run.model.iterations > 10
    np.testing.assert_allclose(run.model.coefficients, fit(Cox(), federation(), rounds=9).model.coefficients)


def test_a_fit_that_needs_more_rounds_says_so():
    run = fit(Cox(), federation(), rounds=2)
    assert run.record.notes[-1].startswith("NOT CONVERGED after 2 rounds")
    full = fit(Cox(), federation(), rounds=10).model
    assert 1e-8 < np.abs(run.model.coefficients - full.coefficients).max() < 1


def test_a_site_without_events_adds_its_records_alone():
    tables = {name: site.table for name, site in federation().items()}
    quiet = records(40, 8)
    tables["quiet"] = replace(quiet, targets={**quiet.targets, "event": np.zeros(40)})
    data = Federation(tables)
    agree(fit(Cox(), data, rounds=10).model, cox(data))


def test_held_out_records_score_the_fit_and_losses_fall():
    data = federation(held_out=records(100, 9), held_out_public=True)
    run = fit(Cox(), data, rounds=8)
    assert run.scores["c_index"] > 0.6
    assert run.history["c_index"].iloc[0] == 0.5, "nothing is known before the first answers"
    start = run.task.start(data, Key(0))
    assert run.task.losses(run.state, data.store)[0] < run.task.losses(start, data.store)[0]


# What is refused


@pytest.mark.parametrize("promise", PROMISES)
def test_under_a_promise_it_is_refused_with_the_way_out(promise, tmp_path):
    for public in (False, True):
        with pytest.raises(
            Refused,
            match=r"cox cannot keep a promise: .*unprotected: use cox-ph with groups_per_site, or poisson-ph",
        ):
            fit(Cox(), federation(public=public), privacy=PROMISES[promise], out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_what_leaves_bare_is_said():
    run = fit(Cox(), federation(), rounds=1)
    assert any("a gradient and an information matrix" in line for line in run.privacy.bare)
    with pytest.raises(Refused, match="would leave the sites unprotected"):
        Cox().bind(federation(), Provenance(PROMISES["record"], public=False))


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"ties": "exact"}, "ties"),
        ({"ridge": -1.0}, "ridge"),
        ({"level": 0.0}, "level"),
        ({"grid": (2.0, 1.0)}, "ascending"),
    ],
)
def test_choices_that_mean_nothing_are_refused_by_name(options, told):
    with pytest.raises(InvalidValue, match=told):
        Cox(**options)


def test_data_without_an_answer_are_refused_as_in_the_statistics():
    data = federation()
    constant, doubled, eventless = ({name: site.table for name, site in data.items()} for _ in range(3))
    for name, table in constant.items():
        features = table.features.copy()
        features[:, 1] = 4.0
        constant[name] = replace(table, features=features)
        twice = np.column_stack([table.features[:, :2], table.features[:, 0] * 2])
        doubled[name] = replace(table, features=twice)
        eventless[name] = replace(table, targets={**table.targets, "event": np.zeros(len(table))})
    for tables in (constant, doubled, eventless):
        with pytest.raises(InvalidValue) as wanted:
            cox(Federation(tables))
        with pytest.raises(InvalidValue) as found:
            fit(Cox(), Federation(tables), rounds=3)
        assert str(found.value) == str(wanted.value)


def test_a_column_that_separates_is_refused():
    tables = {}
    for name, site in federation().items():
        table = site.table
        features = table.features.copy()
        features[:, 2] = table.targets["event"]
        tables[name] = replace(table, features=features)
    with pytest.raises(InvalidValue, match="column x3 cannot be fitted"):
        fit(Cox(), Federation(tables), rounds=60)


def test_columns_that_separate_together_are_refused_by_name_as_well():
    draw = np.random.default_rng(7)
    level = draw.integers(1, 4, 300)
    level[0] = 0
    time, event = draw.exponential(1, 300) + 0.01, (draw.random(300) < 0.3).astype(float)
    time[0], event[0] = 2.0, 0.0
    x = np.column_stack([draw.normal(size=300), level[:, None] == np.arange(1, 4)]).astype(float)
    tables = {
        name: from_arrays(x[rows], columns=["age", "b", "c", "d"], time=time[rows], event=event[rows])
        for name, rows in {"one": slice(0, 150), "two": slice(150, 300)}.items()
    }
    with pytest.raises(InvalidValue, match=r"^columns b, c, d cannot be fitted"):
        fit(Cox(), Federation(tables), rounds=60)


@pytest.mark.parametrize(
    ("options", "choices", "told"),
    [
        ({}, {"privacy": Open(participation=0.5)}, "participation = 0.5"),
        ({}, {"server": Momentum()}, "sums the answers of the sites"),
        ({}, {"aggregation": Median()}, "sums the answers of the sites"),
        ({"columns": ("x1", "age")}, {}, "age"),
    ],
)
def test_what_does_not_go_with_it_is_refused(options, choices, told):
    with pytest.raises((InvalidValue, Refused), match=told):
        fit(Cox(**options), federation(), rounds=3, **choices)


def test_baselines_are_refused():
    data = federation(held_out=records(50, 9), public=True)
    with pytest.raises(Refused, match="remove baselines"):
        fit(Cox(), data, rounds=2, baselines=True)


# Who comes, and from where


@dataclass
class Scattered(Engine):
    """Sites that work alone, each with its own records, as on machines of their own; some miss rounds."""

    own: Federation
    lost: tuple[tuple[str, int], ...] = ()
    kind = "scattered"

    def train(self, task, federation, state, names, mechanism, key):
        number = next(part for part in key.path if isinstance(part, int))
        there = [name for name in names if (name, number) not in self.lost]
        rows = [
            run_at_site(
                task, state, Federation({name: self.own[name].table}).cohort([name]), mechanism, key
            ).matrix
            for name in there
        ]
        return Updates(tuple(there), np.concatenate(rows))


@pytest.mark.parametrize("targets", ["plain", "late and weighed"])
def test_records_that_are_elsewhere_give_the_same_fit(targets):
    data = federation(targets)
    afar = RemoteRowFederation(blank_tables(list(data), data.store.columns, tuple(data.store.targets)))
    run = fit(Cox(), afar, engine=Scattered(data), rounds=8)
    agree(run.model, cox(data))
    np.testing.assert_allclose(run.state, fit(Cox(), data, rounds=8).state, rtol=1e-12, atol=1e-12)


def test_a_round_that_somebody_missed_changes_nothing():
    data = federation()
    run = fit(Cox(), data, engine=Scattered(data, lost=(("site-1", 1), ("site-0", 3))), rounds=10)
    agree(run.model, cox(data))
    assert run.record.notes[-1] == "2 rounds were skipped: a site was missing"


def test_without_a_single_whole_round_there_is_no_fit():
    data = federation(held_out=records(50, 9), held_out_public=True)
    run = fit(Cox(), data, engine=Scattered(data, lost=(("site-1", 1), ("site-1", 2))), rounds=2)
    assert run.scores == {"c_index": 0.5}
    with pytest.raises(InvalidValue, match="no round had all sites"):
        _ = run.model


# From a file, and back

FILE = """
name = "regression"

[data]
kind = "simulated"
records = 400
features = 4

[sites]
count = 3

[task]
kind = "cox"
ties = "breslow"
"""


class CutOff(Exception):
    """The power is gone."""


def test_a_file_runs_is_cut_off_goes_on_and_is_loaded(tmp_path):
    (tmp_path / "cox.toml").write_text(FILE)
    asked = experiment.read(tmp_path / "cox.toml")
    assert (asked.rounds, asked.baselines) == (12, False)
    asked.plan()
    whole = asked.run(tmp_path / "whole")
    agree(whole.model, cox(asked.open_federation(), ties="breslow"))

    def cut_off(entry):
        if entry.number == 3:
            raise CutOff

    with pytest.raises(CutOff):
        asked.run(tmp_path / "run", callbacks=[cut_off])
    run = asked.run(tmp_path / "run", resume=True)
    assert np.array_equal(run.state, whole.state)
    assert run.model.text() == whole.model.text()
    assert experiment.load(tmp_path / "run").model.text() == whole.model.text()
    assert experiment.read(tmp_path / "run").run(tmp_path / "run", resume=True).summary() == run.summary()


def test_a_file_with_a_promise_is_refused_before_data_are_touched(tmp_path):
    promise = '[privacy]\nunit = "record"\nepsilon = 1.0\ndelta = 1e-5\nclip = 1.0\n'
    (tmp_path / "cox.toml").write_text(FILE + promise)
    with pytest.raises(Refused, match="cox cannot keep a promise"):
        experiment.read(tmp_path / "cox.toml").plan()
