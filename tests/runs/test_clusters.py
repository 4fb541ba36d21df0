"""Several models for one federation, from the first round to the report."""

import json
import math
import re
import sys
import tomllib
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import tacit
from tacit import Federation, Open, Privacy, Stopping, fit
from tacit.aggregation.attacks import Scaling, SignFlip
from tacit.aggregation.defence.clustering import Clusters, adjusted_rand, kmeans, robust_kmeans
from tacit.aggregation.defence.quarantine import Quarantine
from tacit.aggregation.robust.coordinatewise import Median, TrimmedMean
from tacit.aggregation.server import Adam
from tacit.cli.app import main
from tacit.engines.base import Local
from tacit.errors import InvalidFile, InvalidValue, Refused, TooFewSites
from tacit.experiments import experiment
from tacit.privacy.ledger.store import Ledger
from tacit.privacy.policy import Provenance
from tacit.runs.clusters import own_records, score_clusters
from tacit.runs.directory import SUMMARY
from tacit.runtime.keys import Key
from tacit.sites.sampling import Fixed
from tacit.sites.splits import ByColumn
from tacit.sites.table import from_arrays
from tacit.survival import CoxPH, LogisticHazard
from tacit.survival.data.sources import Csv

WAYS = ("loss", "direction", "weights")
HAZARD = LogisticHazard(hidden=(), cuts=5, horizon=3.0, steps=8, sample=0.5, lr=0.3)
NOISY = replace(HAZARD, steps=1, lr=2.0)
COX = CoxPH(steps=8, sample=0.5, lr=0.3, horizon=3.0, cuts=5)
RECORDS = Privacy(unit="record", epsilon=3.0, delta=1e-5, clip=1.0, rehearsal=True)
SITES = Privacy(unit="site", noise_multiplier=0.1, delta=1e-5, clip=1.0, noise="site", rehearsal=True)
# Effects that tell groups apart: opposites, or each its own.
OPPOSITE = ((0.8, -0.8, 0.4), (-0.8, 0.8, -0.4))
OTHERS = ((1.2, 0, 0), (0, 1.2, 0), (0, 0, 1.2))
NAMES = tuple(f"site {letter}" for letter in "abcdefghijkl")


def patients(effects, seed, number=80):
    generator = np.random.default_rng(seed)
    features = generator.normal(size=(number, len(effects)))
    event, censored = (generator.exponential(size=number) for _ in range(2))
    event, censored = event * np.exp(-features @ np.array(effects)) + 0.01, 3 * censored
    return from_arrays(features, time=np.minimum(event, censored), event=(event <= censored).astype(float))


@cache
def hospitals(effects=OPPOSITE, sites=9, number=80, *, known=True, held_out=20):
    """Sites whose patients are of one group after the other, and held-out patients of every site."""
    places = range(sites)
    tables = {NAMES[place]: patients(effects[place % len(effects)], place, number) for place in places}
    held = [patients(effects[place % len(effects)], 100 + place, held_out) for place in places]
    together = from_arrays(
        np.concatenate([part.features for part in held]),
        **{name: np.concatenate([part.targets[name] for part in held]) for name in ("time", "event")},
    )
    whose = [name for name in tables for _ in range(held_out)]
    return Federation(
        tables,
        held_out=together,
        held_out_sites=whose if known else None,
        public=True,
        records=sites * number,
    )


def groups(federation, count):
    return {name: place % count for place, name in enumerate(federation)}


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


# Groups that are there are found.


@pytest.mark.parametrize("by", WAYS)
@pytest.mark.parametrize("effects", [OPPOSITE, OTHERS], ids=["opposite", "others"])
def test_a_run_finds_the_groups_that_are_there(by, effects):
    federation = hospitals(effects)
    run = fit(HAZARD, federation, clusters=Clusters(count=len(effects), by=by), rounds=4)
    assert adjusted_rand(run.clusters, groups(federation, len(effects))) == 1.0
    assert run.clusters == run.record.rounds[-1].clusters
    assert run.state.shape[0] == len(run.models) == len(effects)


@pytest.mark.parametrize("by", ["direction", "weights"])
@pytest.mark.parametrize(("promise", "task"), [(SITES, HAZARD), (RECORDS, NOISY)], ids=["sites", "records"])
def test_a_run_finds_the_groups_through_moderate_noise(by, promise, task):
    federation, clusters = hospitals(number=200, held_out=4), Clusters(count=2, by=by)
    alone = fit(task, federation, privacy=promise, rounds=5)
    for seed in range(3):
        run = fit(task, federation, privacy=promise, clusters=clusters, rounds=5, seed=seed)
        assert adjusted_rand(run.clusters, groups(federation, 2)) == 1.0
        # What the server finds in updates that have left is free: the price is that of one model.
        assert run.privacy.epsilon == alone.privacy.epsilon


def test_several_models_serve_opposite_groups_better_than_one():
    federation = hospitals()
    several = fit(HAZARD, federation, clusters=Clusters(count=2), rounds=6)
    one = fit(HAZARD, federation, rounds=6)
    assert several.scores["c_index"] > one.scores["c_index"] + 0.15
    assert several.scores["ibs"] < one.scores["ibs"] - 0.03


@pytest.mark.parametrize("by", WAYS)
def test_groups_are_found_where_only_some_come_to_each_round(by):
    federation, promise = hospitals(), Open(participation=0.5)
    run = fit(HAZARD, federation, privacy=promise, clusters=Clusters(count=2, by=by), rounds=12, seed=1)
    assert {entry.sites for entry in run.record.rounds} != {9}
    assert adjusted_rand(run.clusters, groups(federation, 2)) == 1.0


def test_a_site_that_never_came_has_no_model_and_is_asked_nothing():
    federation = hospitals()
    run = fit(COX, federation, sampling=Fixed(count=2), clusters=Clusters(count=2, by="weights"), rounds=2)
    absent = set(federation) - set(run.clusters)
    assert absent
    assert math.isfinite(run.scores["ibs"])
    with pytest.raises(InvalidValue, match="site = "):
        run.model_of(min(absent))


def test_a_server_with_a_memory_remembers_for_each_model():
    federation, clusters = hospitals(), Clusters(count=2, by="weights")
    run = fit(HAZARD, federation, clusters=clusters, server=Adam(lr=0.2), rounds=5)
    assert adjusted_rand(run.clusters, groups(federation, 2)) == 1.0


# The face of a run.


def test_each_site_is_predicted_for_by_its_own_model():
    federation = hospitals()
    run = fit(HAZARD, federation, clusters=Clusters(count=2), rounds=3)
    features = federation.held_out.features[:5]
    for name in federation:
        own = run.models[run.clusters[name]].risk(features)
        assert np.array_equal(run.model_of(name).risk(features), own)
    assert not np.allclose(run.models[0].risk(features), run.models[1].risk(features))


def test_one_model_for_all_is_refused_where_there_are_several_and_the_way_out_is_named():
    run = fit(HAZARD, hospitals(), clusters=Clusters(count=2), rounds=1, name="trial")
    with pytest.raises(InvalidValue, match=r"trial has 2 models.*run\.model_of\(site\), or run\.models"):
        _ = run.model


def test_a_site_that_is_unknown_is_refused_with_the_nearest_name():
    run = fit(HAZARD, hospitals(), clusters=Clusters(count=2), rounds=1)
    with pytest.raises(InvalidValue, match=r"site = 'site aa'.*did you mean \"site a\""):
        run.model_of("site aa")


def test_where_there_is_one_model_it_is_that_of_every_site():
    run = fit(HAZARD, hospitals(), rounds=1)
    assert (run.clusters, run.models) == ({}, (run.model,))
    assert run.model_of("site a") is run.model
    assert "clusters" not in run.as_dict()


def test_the_summary_lists_the_sites_of_each_model():
    federation = hospitals()
    run = fit(HAZARD, federation, clusters=Clusters(count=2, by="weights"), rounds=2)
    lines = run.summary().splitlines()
    for model in (0, 1):
        members = ", ".join(name for name in federation if run.clusters[name] == model)
        assert f"model {model}  {members}" in lines
    assert run.as_dict()["clusters"] == run.clusters


def test_a_clustered_run_is_loaded_as_it_was(tmp_path):
    run = fit(HAZARD, hospitals(), clusters=Clusters(count=2), rounds=2, out=tmp_path / "run")
    again = tacit.load(tmp_path / "run")
    assert np.array_equal(again.state, run.state)
    assert (again.clusters, again.scores, again.summary()) == (run.clusters, run.scores, run.summary())
    features = hospitals().held_out.features[:3]
    assert np.array_equal(again.model_of("site b").risk(features), run.model_of("site b").risk(features))
    assert experiment.read(tmp_path / "run").clusters == Clusters(count=2)


# A run that is cut off.


@pytest.mark.parametrize(
    ("by", "task", "promise"),
    [
        ("loss", HAZARD, Open(participation=0.6)),
        ("weights", COX, Open()),
        ("direction", NOISY, RECORDS),
    ],
    ids=["loss", "weights", "direction"],
)
def test_a_run_that_is_cut_off_ends_as_if_nothing_had_happened(tmp_path, monkeypatch, by, task, promise):
    federation = hospitals()
    choices = {"privacy": promise, "clusters": Clusters(count=2, by=by), "rounds": 4, "seed": 2}
    whole = fit(task, federation, **choices, out=tmp_path / "whole")
    with monkeypatch.context() as power:
        cut_off(power, calls=7 if task is COX else 2)
        with pytest.raises(Cut):
            fit(task, federation, **choices, out=tmp_path / "cut")
    assert not (tmp_path / "cut" / SUMMARY).exists()
    resumed = fit(task, federation, **choices, out=tmp_path / "cut", resume=True)
    assert np.array_equal(resumed.state, whole.state)
    told = [[(entry.clusters, entry.scores) for entry in run.record.rounds] for run in (resumed, whole)]
    assert told[0] == told[1]
    assert resumed.scores == whole.scores
    assert resumed.privacy.epsilon == whole.privacy.epsilon


# What is asked after the last round.


def test_the_baseline_hazard_is_that_of_the_sites_of_each_model():
    """The baseline hazard of a model is that of its own sites."""
    federation = hospitals()
    run = fit(COX, federation, clusters=Clusters(count=2, by="weights"), rounds=4)
    assert adjusted_rand(run.clusters, groups(federation, 2)) == 1.0
    task = COX.bind(federation, Provenance(Open(), public=True))
    question, trained = task.final_query, task.program(3).size
    for model, state in enumerate(run.state):
        names = [name for name in federation if run.clusters[name] == model]
        rows = [question.contributions(state, federation.records_of(name)).sum(axis=0) for name in names]
        expected = question.apply(state[:trained], np.mean(rows, axis=0))
        assert np.allclose(state, expected, rtol=1e-10)
    assert not np.allclose(run.state[0][trained:], run.state[1][trained:])


def test_a_model_without_a_site_has_a_baseline_hazard_and_is_named():
    alike = {name: patients(OPPOSITE[0], 1) for name in NAMES[:4]}
    federation = Federation(alike, held_out=patients(OPPOSITE[0], 2), public=True)
    # Everybody takes the same steps, and sends the same.
    run = fit(replace(COX, sample=1.0), federation, clusters=Clusters(count=2, by="weights"), rounds=2)
    assert set(run.clusters.values()) == {0}
    assert bool(np.isfinite(run.state).all())
    curves = run.models[1].survival(federation.held_out.features, times=[1.0])
    assert 0 < curves.min() < curves.max() < 1
    assert run.record.notes == ("model 1 is unchanged: it has no site",)


def test_a_run_in_which_nobody_came_yet_is_scored_and_closed():
    federation, promise = hospitals(), Open(participation=0.01)
    run = fit(COX, federation, privacy=promise, clusters=Clusters(count=2), rounds=2, seed=3)
    assert [entry.sites for entry in run.record.rounds] == [0, 0]
    assert (run.clusters, set(run.scores)) == ({}, {"c_index", "ibs"})
    assert np.array_equal(run.state[0], run.state[1])


@pytest.mark.parametrize("promise", [RECORDS, SITES], ids=["records", "sites"])
def test_a_private_closing_question_is_paid_once_whatever_the_number_of_models(promise):
    task = replace(COX, groups_per_site=16) if promise is RECORDS else COX
    federation = hospitals()
    several = fit(task, federation, privacy=promise, clusters=Clusters(count=2, by="weights"), rounds=2)
    one = fit(task, federation, privacy=promise, rounds=2)
    assert several.privacy.epsilon == one.privacy.epsilon
    assert bool(np.isfinite(several.state).all())


# Liars.


@pytest.mark.parametrize("by", WAYS)
def test_liars_who_agree_take_no_model_from_a_rule_that_stands_them(by):
    federation = hospitals(OTHERS[:2], sites=12)
    attack, true = SignFlip(liars=2, scale=4.0), groups(federation, 2)
    liars = attack.draw_liars(list(federation), Key(4))
    honest = {name: true[name] for name in federation if name not in liars}
    choices = {"clusters": Clusters(count=2, by=by), "rounds": 5, "seed": 4, "attack": attack}
    stood = fit(HAZARD, federation, **choices, aggregation=TrimmedMean(f=2))
    believed = fit(HAZARD, federation, **choices)
    assert adjusted_rand({name: stood.clusters[name] for name in honest}, honest) == 1.0
    assert adjusted_rand({name: believed.clusters[name] for name in honest}, honest) < 0.5
    assert stood.scores["c_index"] > believed.scores["c_index"] + 0.05


def test_few_points_are_no_group_where_there_are_others():
    points = np.array([[0.0], [0.1], [0.2], [5.0], [5.1], [5.2], [60.0], [61.0]])
    assert kmeans(points, 2, Key(0)).tolist() == [0, 0, 0, 0, 0, 0, 1, 1]
    assert robust_kmeans(points, 2, Key(0), 0).tolist() == [0, 0, 0, 0, 0, 0, 1, 1]
    assert robust_kmeans(points, 2, Key(0), 1).tolist() == [0, 0, 0, 0, 0, 0, 1, 1]
    assert robust_kmeans(points, 2, Key(0), 2).tolist() == [0, 0, 0, 1, 1, 1, 1, 1]
    # Of eight points, three in each of three groups cannot be had: they stay as they are found.
    assert robust_kmeans(points, 3, Key(0), 2).tolist() == kmeans(points, 3, Key(0)).tolist()


def test_a_rule_is_settled_for_the_sites_of_one_model():
    federation = hospitals(held_out=4)
    found = fit(HAZARD, federation, clusters=Clusters(count=2), aggregation=Median(), rounds=3)
    (finding,) = found.record.findings
    assert finding == "the server combines updates by median, which tolerates 1 of 9 sites being dishonest"
    assert {entry.skipped for entry in found.record.rounds} == {None}
    assert not np.array_equal(*found.state)


def test_more_liars_than_a_model_of_its_share_of_sites_can_stand_are_refused(tmp_path):
    refused = r"\[clusters\] count = 2 leaves 4 of 9 sites to a model: f = 2 is not allowed with 4 sites"
    with pytest.raises(TooFewSites, match=refused):
        fit(
            HAZARD, hospitals(), clusters=Clusters(count=2), aggregation=TrimmedMean(f=2),
            out=tmp_path / "run",
        )  # fmt: skip
    assert not (tmp_path / "run").exists()


def test_a_model_with_too_few_sites_stays_and_is_named_while_the_others_move_on():
    tables = {name: patients(OPPOSITE[place < 2], place) for place, name in enumerate(NAMES[:9])}
    federation = Federation(tables, public=True)
    run = fit(
        HAZARD, federation, clusters=Clusters(count=2, by="weights"), aggregation=TrimmedMean(f=1), rounds=3
    )
    small = run.clusters["site a"]
    assert [name for name in tables if run.clusters[name] == small] == ["site a", "site b"]
    task = HAZARD.bind(federation, Provenance(Open(), public=True))
    start = task.start(federation, Key(0) / "start")
    assert np.array_equal(run.state[small], start)
    assert not np.allclose(run.state[1 - small], start)
    assert {entry.skipped for entry in run.record.rounds} == {None}
    assert run.record.notes[-1] == (
        f"model {small} is unchanged: f = 1 is not allowed with 2 sites: trimmed-mean needs at least 3 to "
        "tolerate that number of dishonest ones"
    )
    assert run.record.notes[-1] in " ".join(run.summary().split())


def test_one_loud_liar_takes_a_model_for_itself_by_weights():
    """A mean stands nobody, so it lets k-means believe everybody: the guide says so."""
    federation = hospitals(sites=8, held_out=4)
    run = fit(
        HAZARD, federation, clusters=Clusters(count=2, by="weights"),
        attack=Scaling(liars=1, factor=-200.0), rounds=1,
    )  # fmt: skip
    assert sorted(list(run.clusters.values()).count(model) for model in (0, 1)) == [1, 7]


# When to stop.


def test_the_model_of_the_best_round_comes_with_the_clusters_of_that_round():
    federation = hospitals()
    # Long steps: later rounds are worse, and groups of one round are not those of another.
    task = replace(HAZARD, lr=9.0, sample=0.1, steps=2)
    run = fit(
        task, federation, clusters=Clusters(count=3, by="direction"), stop=Stopping(patience=3), rounds=12
    )
    entries, chosen = run.record.rounds, run.record.chosen
    assert entries[chosen - 1].scores["c_index"] == max(entry.scores["c_index"] for entry in entries)
    assert chosen < len(entries)
    assert run.clusters == entries[chosen - 1].clusters
    assert run.clusters != entries[-1].clusters
    assert run.summary().count("\nmodel ") == 1 + len(set(run.clusters.values()))


# What is refused, before anything is charged or written.


@pytest.mark.parametrize(
    ("choices", "sentence"),
    [
        (
            {"clusters": Clusters(count=2), "privacy": RECORDS},
            '[clusters] by = "loss" does not go with a promise: the choice of the best model for a site '
            'reveals its records. Use by = "direction" or by = "weights", which use protected updates only.',
        ),
        (
            {"clusters": Clusters(count=2, by="weights"), "privacy": replace(SITES, noise="server")},
            '[clusters] does not go with noise = "server": the server would need single updates without '
            'noise. Use noise = "site".',
        ),
        (
            {"clusters": Clusters(count=2, by="weights"), "privacy": replace(SITES, noise="secure")},
            '[clusters] does not go with noise = "secure": the server would need single updates without '
            'noise. Use noise = "site".',
        ),
        (
            {"clusters": Clusters(count=2), "quarantine": Quarantine()},
            "[clusters] does not go with [quarantine]: a site of a small cluster looks dishonest to the "
            "others. Leave one of them out.",
        ),
        (
            {
                "clusters": Clusters(count=2, by="weights"),
                "privacy": RECORDS,
                "stop": Stopping(epsilon=0.5),
            },
            "[clusters] does not go with [stop] epsilon: the loss of every model would have a price. Watch "
            "held-out records instead.",
        ),
        (
            {"clusters": Clusters(count=10)},
            "[clusters] count = 10 is not allowed: it must be at most 9, the number of sites",
        ),
    ],
    ids=["loss", "server", "secure", "quarantine", "stop", "count"],
)
def test_what_does_not_go_together_is_refused_before_anything_is_written(tmp_path, choices, sentence):
    with pytest.raises((Refused, InvalidValue)) as refused:
        fit(HAZARD, hospitals(), **choices, rounds=2, out=tmp_path / "run")
    assert str(refused.value) == sentence
    assert not (tmp_path / "run").exists()


def test_a_refusal_charges_nothing_to_a_ledger_that_is_there(tmp_path):
    (tmp_path / "run").mkdir()
    with Ledger(tmp_path / "run" / "ledger.db") as ledger:
        before = ledger.head
    with pytest.raises(Refused):
        fit(HAZARD, hospitals(), privacy=RECORDS, clusters=Clusters(count=2), out=tmp_path / "run")
    with Ledger(tmp_path / "run" / "ledger.db", mode="read") as ledger:
        assert (ledger.head, list(ledger.releases())) == (before, [])


# In a file.

FILE = """
seed = 3
rounds = 2
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
sample = 0.5
lr = 1.0
[clusters]
count = 2
by = "direction"
"""


def test_a_file_says_how_sites_are_told_apart(tmp_path):
    (tmp_path / "trial.toml").write_text(FILE)
    made = experiment.read(tmp_path / "trial.toml")
    assert made.clusters == Clusters(count=2, by="direction")
    assert set(made.run(tmp_path / "run").clusters) == {"site-1", "site-2", "site-3", "site-4"}
    said = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert said["clusters"] == tacit.load(tmp_path / "run").clusters


def test_the_document_of_a_run_has_its_clusters(tmp_path, capsys, monkeypatch):
    (tmp_path / "trial.toml").write_text(FILE)
    words = ["tacit", "run", str(tmp_path / "trial.toml"), "--out", str(tmp_path / "run"), "--json", "-q"]
    monkeypatch.setattr(sys, "argv", words)
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    told = json.loads(capsys.readouterr().out)
    assert told["clusters"] == tacit.load(tmp_path / "run").clusters


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ("clusters.cuont=3", r"\[clusters\].*cuont.*did you mean.*count"),
        ("clusters.count=1", r"\[clusters\].*count = 1 is not allowed: .*at least 2"),
        ("clusters.count=2.5", r"\[clusters\].*count"),
        ('clusters.by="los"', r"\[clusters\].*by = 'los'.*did you mean \"loss\""),
        ('clusters.kind="kmeans"', r"\[clusters\].*kmeans"),
    ],
)
def test_what_is_wrong_in_a_file_is_refused_by_name(tmp_path, change, sentence):
    (tmp_path / "trial.toml").write_text(FILE)
    with pytest.raises(InvalidFile, match=sentence):
        experiment.read(tmp_path / "trial.toml", [change])


def test_clusters_without_a_count_are_refused(tmp_path):
    (tmp_path / "trial.toml").write_text(FILE.replace("count = 2\n", ""))
    with pytest.raises(InvalidFile, match=r"\[clusters\].*count"):
        experiment.read(tmp_path / "trial.toml")


# Whose the held-out records are.


def test_a_model_is_scored_on_the_held_out_records_of_its_own_sites():
    federation = hospitals()
    run = fit(HAZARD, federation, clusters=Clusters(count=2), rounds=4, baselines=True)
    whose, scores = federation.held_out.sites, []
    for model, state in enumerate(run.state):
        names = [name for name in federation if run.clusters[name] == model]
        own = federation.held_out.take(np.flatnonzero(np.isin(whose, names)))
        scores.append((len(own), run.task.score(state, own)))
    for name, score in run.scores.items():
        expected = sum(many * found[name] for many, found in scores) / len(federation.held_out)
        assert score == pytest.approx(expected, rel=1e-12)
    # The models that it is compared with are scored on the same records, or the comparison would flatter it.
    assert run.baselines["alone"]["c_index"] == pytest.approx(run.scores["c_index"], abs=0.06)
    assert run.baselines["pooled"]["c_index"] < run.scores["c_index"] - 0.1


def test_where_nobody_knows_whose_they_are_opposite_groups_are_understated():
    known, unknown = (
        fit(HAZARD, hospitals(known=known), clusters=Clusters(count=2), rounds=4) for known in (True, False)
    )
    assert np.array_equal(known.state, unknown.state)
    assert unknown.scores["c_index"] < 0.6 < 0.7 < known.scores["c_index"]
    task, state = unknown.task, unknown.state
    sites = list(unknown.clusters.values())
    means = [task.score(state[model], hospitals(known=False).held_out)["c_index"] for model in sites]
    assert unknown.scores["c_index"] == pytest.approx(np.mean(means), rel=1e-12)


def test_a_model_whose_own_records_cannot_be_scored_is_left_out():
    federation = hospitals()
    run = fit(HAZARD, federation, clusters=Clusters(count=2), rounds=2)
    theirs = [place for place in range(180) if (place // 20) % 2]
    records = federation.held_out.take([0, *theirs])
    names = [name for name, model in run.clusters.items() if model == run.clusters["site b"]]
    parts = own_records(run.task, run.state, run.clusters, records)
    assert [(set(own), len(table)) for own, table in parts] == [(set(names), 80)]
    scores = score_clusters(run.task, run.state, run.clusters, records)
    expected = run.task.score(run.state[run.clusters["site b"]], federation.held_out.take(theirs))
    assert scores == pytest.approx(expected, rel=1e-12)


def test_held_out_records_of_sites_by_a_column_keep_their_site(tmp_path):
    federation = hospitals(sites=4)
    frames = []
    for name in federation:
        table = federation[name].table
        frame = dict(zip(table.columns, table.features.T, strict=True))
        frames.append({**frame, **table.targets, "site": np.full(len(table), name)})
    import pandas as pd

    pd.concat([pd.DataFrame(frame) for frame in frames]).to_csv(tmp_path / "patients.csv", index=False)
    opened = Csv(path=str(tmp_path / "patients.csv"), held_out=0.25).open(ByColumn(), 1)
    assert list(opened.held_out.sites) == [name for name in NAMES[:4] for _ in range(20)]
    for name in opened:
        own = opened.held_out.take(opened.held_out.sites == name)
        rows = np.concatenate([own.features, opened[name].table.features])
        assert np.allclose(np.sort(rows, axis=0), np.sort(federation[name].table.features, axis=0))
    run = fit(HAZARD, opened, clusters=Clusters(count=2), rounds=4, stop=Stopping(patience=4))
    assert adjusted_rand(run.clusters, groups(opened, 2)) == 1.0
    assert run.scores["c_index"] > 0.6


@pytest.mark.parametrize(
    ("whose", "sentence"),
    [
        (["site a"], "held_out_sites = .*1 names.*one for each held-out record"),
        (["site x"] * 20, "held_out_sites = 'site x'"),
    ],
)
def test_held_out_records_of_sites_that_are_not_there_are_refused(whose, sentence):
    tables = {name: patients(OPPOSITE[0], 1) for name in NAMES[:2]}
    with pytest.raises(InvalidValue, match=sentence):
        Federation(tables, held_out=patients(OPPOSITE[0], 2, 20), held_out_sites=whose)
    with pytest.raises(InvalidValue, match="held_out_sites"):
        Federation(tables, held_out_sites=whose)


def test_other_sites_are_other_data():
    tables, held_out = {name: patients(OPPOSITE[0], 1) for name in "ab"}, patients(OPPOSITE[0], 2, 4)
    prints = {
        Federation(tables, held_out=held_out, held_out_sites=whose).fingerprint
        for whose in (None, ["a", "a", "b", "b"], ["a", "b", "b", "b"])
    }
    assert len(prints) == 3


def test_the_code_of_the_guide_runs():
    guide = (Path(__file__).parents[2] / "docs" / "guides" / "clusters.md").read_text()
    names: dict = {}
    exec(re.search(r"```python\n(.*?)```", guide, re.DOTALL)[1], names)
    assert adjusted_rand(names["run"].clusters, names["effects"]) == 1.0
    table = re.search(r"```toml\n(.*?)```", guide, re.DOTALL)[1]
    assert experiment.KINDS["clusters"]["clusters"](**tomllib.loads(table)["clusters"]).by == "direction"
