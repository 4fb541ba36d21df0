"""A model for each site, and several models after rounds with one for all, from first round to report."""

import json
from dataclasses import dataclass, field, replace
from functools import cache

import numpy as np
import pytest
import torch

import tacit
from tacit import Federation, Open, Privacy, Stopping, fit
from tacit.aggregation.attacks import Scaling
from tacit.aggregation.defence.clustering import ClusterChoice, Clusters, agreement
from tacit.aggregation.robust.coordinatewise import TrimmedMean
from tacit.aggregation.robust.krum import Bulyan
from tacit.aggregation.server import Adam, Momentum
from tacit.engines.base import Local
from tacit.errors import InvalidValue, Refused, TooFewSites
from tacit.experiments import experiment
from tacit.learning.supervised import Supervised
from tacit.learning.task import as_task
from tacit.privacy.mechanisms.base import NoPrivacy
from tacit.privacy.policy import Provenance
from tacit.runs.clusters import own_records, score_clusters
from tacit.runs.directory import Directory
from tacit.runs.fit import train_safely
from tacit.runtime.keys import Key
from tacit.sites.federation import Cohort
from tacit.sites.sampling import Fixed
from tacit.sites.table import from_arrays
from tacit.survival import CoxPH, LogisticHazard

HAZARD = LogisticHazard(hidden=(), cuts=5, horizon=3.0, steps=8, sample=0.5, lr=0.3)
COX = CoxPH(steps=8, sample=0.5, lr=0.3, horizon=3.0, cuts=5)
RECORDS = Privacy(unit="record", epsilon=3.0, delta=1e-5, clip=1.0, rehearsal=True)
SITES = Privacy(unit="site", noise_multiplier=0.2, delta=1e-5, clip=1.0, noise="site", rehearsal=True)
EFFECTS = ((1.2, 0, 0), (0, 1.2, 0), (0, 0, 1.2))
NAMES = tuple(f"site {letter}" for letter in "abcdefghijkl")
ALONE = Clusters(by="site")
WARM = Clusters(count=3, by="direction", warm=3)


def patients(effects, seed, number):
    generator = np.random.default_rng(seed)
    features = generator.normal(size=(number, len(effects)))
    event, censored = (generator.exponential(size=number) for _ in range(2))
    event, censored = event * np.exp(-features @ np.array(effects)) + 0.01, 3 * censored
    return from_arrays(features, time=np.minimum(event, censored), event=(event <= censored).astype(float))


@cache
def hospitals(sites=9, number=80, *, known=False):
    """Sites of three groups, no two of one size, and held-out patients of every site."""
    places = range(sites)
    tables = {NAMES[place]: patients(EFFECTS[place % 3], place, number + place) for place in places}
    held = [patients(EFFECTS[place % 3], 100 + place, 20) for place in places]
    together = from_arrays(
        np.concatenate([part.features for part in held]),
        **{name: np.concatenate([part.targets[name] for part in held]) for name in ("time", "event")},
    )
    return Federation(
        tables,
        held_out=together,
        held_out_sites=[name for name in tables for _ in range(20)],
        public=True,
        records=sum(len(table) for table in tables.values()) if known else None,
    )


def truth(federation):
    return {name: place % 3 for place, name in enumerate(federation)}


class Cut(Exception):
    """The power is cut."""


def cut_off(monkeypatch, calls):
    """Let the power be cut when the sites are sent to work once more than so often."""
    left, train = [None] * calls, Local.train

    def failing(*arguments):
        if not left:
            raise Cut
        left.pop()
        return train(*arguments)

    monkeypatch.setattr(Local, "train", failing)


# A model for each site.


@pytest.mark.parametrize("known", [False, True], ids=["sizes", "public"])
@pytest.mark.parametrize("task", [HAZARD, COX], ids=["hazard", "cox"])
def test_a_model_for_each_site_is_that_of_the_site_alone_to_the_last_bit(task, known):
    federation = hospitals(known=known)
    run = fit(task, federation, clusters=ALONE, rounds=4, seed=5)
    assert run.clusters == {name: place for place, name in enumerate(federation)}
    settled = task.bind(federation, Provenance(Open(), public=True))
    key = Key(5, rehearsal=True)
    start = settled.start(federation, key / "start")
    alone, _ = train_safely(settled, start, federation.cohort(list(federation)), 4, key)
    assert np.array_equal(run.state, alone)


def test_a_network_of_the_users_own_is_trained_alone_as_well():
    generator, tables = np.random.default_rng(0), {}
    for name in NAMES[:4]:
        features = generator.normal(size=(30, 2))
        tables[name] = from_arrays(features, y=features @ generator.normal(size=2))
    task = Supervised(module=torch.nn.Linear(2, 1), loss="squared", steps=6, sample=0.5, lr=0.05)
    federation = Federation(tables, public=True)
    run = fit(task, federation, clusters=ALONE, rounds=3)
    settled, key = task.bind(federation, Provenance(Open(), public=True)), Key(0, rehearsal=True)
    start = settled.start(federation, key / "start")
    assert np.array_equal(run.state, train_safely(settled, start, federation.cohort(NAMES[:4]), 3, key)[0])


def test_nobody_learns_from_anybody():
    federation = hospitals()
    run = fit(HAZARD, federation, clusters=ALONE, rounds=3)
    others = {name: federation[name].table for name in federation} | {"site b": patients((9, 9, 9), 7, 50)}
    again = fit(HAZARD, Federation(others, public=True), clusters=ALONE, rounds=3)
    same = [np.array_equal(run.state[place], again.state[place]) for place in range(9)]
    assert same == [name != "site b" for name in federation]


def test_each_site_is_scored_on_its_own_records_and_predicted_for_by_its_own_model():
    federation = hospitals()
    run = fit(HAZARD, federation, clusters=ALONE, rounds=3, baselines=True)
    held, features = federation.held_out, federation.held_out.features[:4]
    scores = [
        run.task.score(run.state[place], held.take(np.flatnonzero(held.sites == name)))
        for place, name in enumerate(federation)
    ]
    assert run.scores["c_index"] == pytest.approx(np.mean([each["c_index"] for each in scores]), rel=1e-12)
    assert run.baselines["alone"]["c_index"] == pytest.approx(run.scores["c_index"], abs=0.05)
    for place, name in enumerate(federation):
        assert np.array_equal(run.model_of(name).risk(features), run.models[place].risk(features))


def test_a_site_that_does_not_come_keeps_its_model_and_one_that_never_came_has_the_first():
    federation = hospitals()
    run = fit(HAZARD, federation, clusters=ALONE, sampling=Fixed(count=2), rounds=3, seed=1)
    settled = HAZARD.bind(federation, Provenance(Open(), public=True))
    start = settled.start(federation, Key(1, rehearsal=True) / "start")
    untouched = sum(np.array_equal(state, start) for state in run.state)
    assert 3 <= untouched < 9
    assert set(run.clusters) == set(federation)
    assert run.record.notes == ()


def test_a_server_with_a_memory_remembers_for_each_site():
    federation = hospitals()
    whole = fit(HAZARD, federation, clusters=ALONE, server=Adam(lr=0.2), rounds=3)
    others = {name: federation[name].table for name in NAMES[:3]}
    part = fit(HAZARD, Federation(others, public=True), clusters=ALONE, server=Adam(lr=0.2), rounds=3)
    assert np.array_equal(whole.state[:3], part.state)


@pytest.mark.parametrize("promise", [RECORDS, SITES], ids=["records", "sites"])
def test_models_of_single_sites_cost_what_one_model_costs(promise):
    federation = hospitals(known=True)
    several, one = (
        fit(HAZARD, federation, privacy=promise, clusters=clusters, rounds=2) for clusters in (ALONE, None)
    )
    assert several.privacy.epsilon == one.privacy.epsilon
    assert len({tuple(state.tolist()) for state in several.state}) == 9


@pytest.mark.parametrize("noise", ["server", "secure"])
def test_models_of_single_sites_are_refused_where_nobody_may_look_at_single_updates(noise):
    promise = replace(SITES, noise=noise)
    with pytest.raises(Refused, match=f'clusters. does not go with noise = "{noise}"'):
        fit(HAZARD, hospitals(), privacy=promise, clusters=ALONE)


def test_a_rule_that_needs_several_sites_is_refused_for_models_of_one():
    with pytest.raises(TooFewSites, match=r'\[clusters\] by = "site" leaves 1 of 9 sites to a model: '):
        fit(HAZARD, hospitals(), clusters=ALONE, aggregation=Bulyan(f=1))


def test_a_count_other_than_that_of_the_sites_is_refused():
    with pytest.raises(InvalidValue, match=r"\[clusters\] count = 3 .* 9, the number of sites, or left out"):
        fit(HAZARD, hospitals(), clusters=Clusters(by="site", count=3))


def test_models_of_single_sites_go_on_where_they_were_cut_off(tmp_path, monkeypatch):
    choices = {"clusters": ALONE, "rounds": 4, "seed": 2}
    whole = fit(COX, hospitals(), **choices, out=tmp_path / "whole")
    with monkeypatch.context() as power:
        cut_off(power, calls=12)
        with pytest.raises(Cut):
            fit(COX, hospitals(), **choices, out=tmp_path / "cut")
    resumed = fit(COX, hospitals(), **choices, out=tmp_path / "cut", resume=True)
    assert np.array_equal(resumed.state, whole.state)
    assert resumed.scores == whole.scores
    assert experiment.read(tmp_path / "whole").clusters == Clusters(by="site", count=9)
    again = tacit.load(tmp_path / "whole")
    assert (again.clusters, np.array_equal(again.state, whole.state)) == (whole.clusters, True)


# One model for all first.


def test_while_there_is_one_model_for_all_a_run_is_one_without_clusters():
    federation = hospitals()
    warm = Clusters(count=3, by="direction", warm=4)
    several = fit(HAZARD, federation, clusters=warm, server=Momentum(), rounds=5)
    one = fit(HAZARD, federation, server=Momentum(), rounds=4)
    for entry, plain in zip(several.record.rounds[:3], one.record.rounds, strict=False):
        assert entry.scores == pytest.approx(plain.scores, rel=1e-12)
    assert [set(entry.clusters.values()) for entry in several.record.rounds[:3]] == [{0}] * 3
    # The groups of the last of these rounds begin with the model that all have made.
    assert set(several.record.rounds[3].clusters.values()) == {0, 1, 2}
    assert several.record.rounds[4].clusters == several.record.rounds[3].clusters


@pytest.mark.parametrize("by", ["direction", "weights"])
def test_after_the_rounds_with_one_model_groups_are_found_and_kept(by):
    federation = hospitals()
    run = fit(HAZARD, federation, clusters=replace(WARM, by=by), rounds=7)
    assert agreement(run.clusters, truth(federation)) == 1.0
    assert all(entry.clusters == run.clusters for entry in run.record.rounds[2:])
    one = fit(HAZARD, federation, rounds=7)
    assert run.scores["c_index"] > one.scores["c_index"] + 0.03


def test_each_group_goes_on_alone_from_the_common_model():
    federation = hospitals()
    run = fit(HAZARD, federation, clusters=WARM, rounds=4, seed=3)
    common = fit(HAZARD, federation, rounds=3, seed=3).state
    settled, key = HAZARD.bind(federation, Provenance(Open(), public=True)), Key(3, rehearsal=True)
    for model, state in enumerate(run.state):
        names = [name for name in federation if run.clusters[name] == model]
        updates = settled.train(common, federation.cohort(names), NoPrivacy(), key / 4)
        assert np.allclose(state, common + updates.matrix.mean(axis=0), rtol=1e-12, atol=1e-14)


def test_noise_that_hides_groups_from_one_round_does_not_hide_them_from_many():
    """Post-processing: the price is that of a run with one model."""
    federation, found = hospitals(sites=12, number=200, known=True), {}
    for warm in (0, 6):
        clusters = Clusters(count=3, by="direction", warm=warm)
        runs = [fit(HAZARD, federation, privacy=SITES, clusters=clusters, rounds=7, seed=s) for s in range(6)]
        found[warm] = np.mean([agreement(run.clusters, truth(federation)) for run in runs])
        plain = fit(HAZARD, federation, privacy=SITES, rounds=7)
        assert runs[0].privacy.epsilon == plain.privacy.epsilon
    assert found[6] == 1.0 > found[0] + 0.2


def test_a_site_that_comes_late_joins_the_group_it_belongs_to():
    federation = hospitals()
    late = [
        fit(HAZARD, federation, privacy=Open(participation=0.4), clusters=WARM, rounds=14, seed=seed)
        for seed in range(3)
    ]
    told = [run.record.rounds[2].clusters for run in late]
    assert any(len(clusters) < 9 for clusters in told)
    for run, clusters in zip(late, told, strict=True):
        assert set(run.clusters) == set(federation)
        assert {name: run.clusters[name] for name in clusters} == clusters
        joined = {name: run.clusters[name] for name in federation}
        assert agreement(joined, truth(federation)) > 0.6


def test_a_last_round_with_one_model_to_which_nobody_came_tells_sites_apart_all_the_same(monkeypatch):
    federation, draw = hospitals(), Fixed.__call__
    monkeypatch.setattr(
        Fixed,
        "__call__",
        lambda self, names, share, key: [] if 3 in key.path else draw(self, names, share, key),
    )
    run = fit(HAZARD, federation, clusters=WARM, sampling=Fixed(count=9), rounds=5)
    assert [entry.sites for entry in run.record.rounds] == [9, 9, 0, 9, 9]
    assert agreement(run.record.rounds[2].clusters, truth(federation)) == 1.0


def test_where_nobody_came_in_time_whoever_comes_is_told_apart_then(monkeypatch):
    federation, draw = hospitals(), Fixed.__call__
    early = lambda key: any(number in key.path for number in (1, 2, 3))  # noqa: E731
    monkeypatch.setattr(
        Fixed, "__call__", lambda self, names, share, key: [] if early(key) else draw(self, names, share, key)
    )
    run = fit(HAZARD, federation, clusters=WARM, sampling=Fixed(count=9), rounds=6)
    assert run.record.rounds[2].clusters == {}
    assert agreement(run.clusters, truth(federation)) == 1.0


def test_liars_who_are_stood_take_no_model_after_rounds_with_one():
    federation = hospitals(sites=12, number=120)
    attack = Scaling(liars=1, factor=-100.0)
    liars = attack.draw_liars(list(federation), Key(4))
    choices = {"clusters": WARM, "rounds": 5, "seed": 4, "attack": attack}
    stood = fit(HAZARD, federation, **choices, aggregation=TrimmedMean(f=1))
    honest = {name: model for name, model in stood.clusters.items() if name not in liars}
    assert agreement(honest, truth(federation)) == 1.0


def test_a_run_that_stops_while_there_is_one_model_has_one_for_every_site():
    federation = hospitals()
    task, clusters = replace(HAZARD, lr=30.0), Clusters(count=2, by="direction", warm=8)
    run = fit(task, federation, clusters=clusters, stop=Stopping(patience=2), rounds=9)
    assert run.record.chosen < len(run.record.rounds) < 8
    assert set(run.clusters.values()) == {0}
    assert run.model_of("site c") is run.models[0]
    assert run.record.notes == ()


@pytest.mark.parametrize("rounds", [2, 3])
def test_as_many_rounds_with_one_model_as_there_are_rounds_are_refused(tmp_path, rounds):
    refused = rf"\[clusters\] warm = 3 is not allowed: it must be below {rounds}, the number of rounds"
    with pytest.raises(InvalidValue, match=refused):
        fit(HAZARD, hospitals(), clusters=WARM, rounds=rounds, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


# A run that is cut off.


@pytest.mark.parametrize(
    ("by", "promise"),
    [("direction", Open(participation=0.6)), ("weights", Open()), ("direction", SITES)],
    ids=["some come", "weights", "noise"],
)
def test_what_is_remembered_outlasts_a_crash_to_the_last_bit(tmp_path, monkeypatch, by, promise):
    federation, clusters = hospitals(), replace(WARM, by=by)
    choices = {"privacy": promise, "clusters": clusters, "rounds": 7, "seed": 2}
    whole = fit(HAZARD, federation, **choices, out=tmp_path / "whole")
    # In the first of the rounds with one model, during them, in their last, and after them.
    for calls in (1, 2, 3, 5):
        place = tmp_path / f"cut {calls}"
        with monkeypatch.context() as power:
            cut_off(power, calls)
            with pytest.raises(Cut):
                fit(HAZARD, federation, **choices, out=place)
        assert Directory(place).checkpoint().kept["trails"].shape == (9, whole.state.shape[1])
        resumed = fit(HAZARD, federation, **choices, out=place, resume=True)
        assert np.array_equal(resumed.state, whole.state)
        told = [[(entry.clusters, entry.scores) for entry in run.record.rounds] for run in (resumed, whole)]
        assert told[0] == told[1]
        assert resumed.privacy.epsilon == whole.privacy.epsilon
        kept = [Directory(path).checkpoint().kept["trails"] for path in (place, tmp_path / "whole")]
        assert np.array_equal(*kept, equal_nan=True)


def test_a_run_that_is_not_a_rehearsal_pays_no_round_twice_after_a_crash(tmp_path, monkeypatch):
    choices = {"privacy": replace(SITES, rehearsal=False), "clusters": WARM, "rounds": 4}
    with monkeypatch.context() as power:
        cut_off(power, 2)
        with pytest.raises(Cut):
            fit(HAZARD, hospitals(), **choices, out=tmp_path / "run")
    resumed = fit(HAZARD, hospitals(), **choices, out=tmp_path / "run", resume=True)
    whole = fit(HAZARD, hospitals(), **choices)
    assert resumed.privacy.epsilon == whole.privacy.epsilon


def test_a_run_without_such_rounds_remembers_nothing(tmp_path):
    fit(HAZARD, hospitals(), clusters=Clusters(count=3, by="direction"), rounds=2, out=tmp_path / "run")
    assert dict(Directory(tmp_path / "run").checkpoint().kept) == {}


# In a file.

FILE = """
seed = 3
rounds = 3
baselines = false
[data]
records = 300
features = 3
[sites]
count = 4
[task]
kind = "logistic-hazard"
hidden = []
cuts = 5
horizon = 3.0
steps = 1
[clusters]
"""


def test_a_file_asks_for_a_model_of_each_site(tmp_path):
    (tmp_path / "trial.toml").write_text(FILE + 'by = "site"')
    made = experiment.read(tmp_path / "trial.toml")
    assert made.clusters == ALONE
    made.plan()
    run = made.run(tmp_path / "run")
    assert run.clusters == {f"site-{number}": number - 1 for number in range(1, 5)}
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["clusters"] == run.clusters


def test_a_file_says_how_long_there_is_one_model(tmp_path):
    (tmp_path / "trial.toml").write_text(FILE + 'count = 2\nby = "direction"\nwarm = 2')
    run = experiment.read(tmp_path / "trial.toml").run(tmp_path / "run")
    assert [set(entry.clusters.values()) for entry in run.record.rounds] == [{0}, {0, 1}, {0, 1}]


# Worlds, and tasks that score themselves.


@dataclass(frozen=True)
class Playing:
    """A task of sites that hold something else than records; it notes what it is asked about."""

    asked: list[object] = field(default_factory=list)

    def losses(self, model, held):
        self.asked.append(held)
        return np.array([abs(float(model[0]) - held)])

    def train(self, state, cohort, mechanism, key):
        return tacit.learning.task.Updates(cohort.names, np.zeros_like(state))

    def score_each(self, states, clusters, records):
        return {"return": float(states.sum()) + len(clusters), "broken": float("nan")}


def test_a_site_without_records_picks_a_model_by_what_it_holds():
    nothing = np.zeros(3, dtype=np.int64)
    cohort = Cohort(NAMES[:3], from_arrays(np.zeros((0, 0))), nothing, nothing, None, (5.0, 0.0, 4.0))
    task, models = Playing(), np.array([[0.0], [5.0]], dtype=np.float64)
    sent = ClusterChoice(task, 2).train(models, cohort, NoPrivacy(), Key(0))
    assert sent.matrix[:, 0].tolist() == [1.0, 0.0, 1.0]
    assert task.asked == [5.0, 5.0, 0.0, 0.0, 4.0, 4.0]


def test_a_task_that_scores_several_models_itself_is_asked():
    states, records = np.ones((2, 3)), hospitals().held_out
    assert score_clusters(as_task(Playing()), states, {"site a": 1}, records) == {"return": 7.0}
    assert own_records(as_task(Playing()), states, {"site a": 1}, records) == []
    assert score_clusters(as_task(Playing()), states, {"site a": 1}, None) == {}


def test_what_is_nobodys_every_model_is_scored_on():
    federation = hospitals()
    run = fit(HAZARD, federation, clusters=ALONE, rounds=2)
    held = federation.held_out
    names = np.where(held.sites == "site i", "", held.sites)
    records = replace(held, sites=names)
    parts = own_records(run.task, run.state, {"site a": 0, "site b": 1}, records)
    assert [(own, sorted(set(table.sites)), len(table)) for own, table in parts] == [
        (("site a",), ["", "site a"], 40),
        (("site b",), ["", "site b"], 40),
    ]
    scores = [run.task.score(run.state[place], table)["c_index"] for place, (_, table) in enumerate(parts)]
    found = score_clusters(run.task, run.state, {"site a": 0, "site b": 1}, records)
    assert found["c_index"] == pytest.approx(np.mean(scores), rel=1e-12)
