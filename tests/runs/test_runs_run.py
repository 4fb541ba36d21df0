"""A run and its face: what it says of itself, and that a directory remembers all of it."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

import tacit
from tacit import Federation, Open, Privacy, Run, Stopping, Supervised, fit
from tacit.errors import RunUnusable, TacitError
from tacit.runs.directory import STATEMENT, SUMMARY, Directory
from tacit.runs.run import is_over, read
from tacit.sites.splits import SPLITS
from tacit.sites.table import from_arrays
from tacit.survival import LogisticHazard
from tacit.survival.data.sources import Simulated

TASK = LogisticHazard(hidden=(4,), cuts=5, steps=2, sample=0.3, lr=0.3)
REHEARSAL = Privacy(unit="record", epsilon=3.0, delta=1e-4, clip=1.0, rehearsal=True)
FILES = {"environment.json", "experiment.toml", "ledger.db", "rounds.jsonl", "state.safetensors"} | {
    "provenance.json",
    "statement.json",
    "summary.json",
}


@pytest.fixture(scope="module")
def patients():
    return Simulated(records=150, features=3).open(SPLITS["iid"](count=3), 0)


@pytest.fixture(scope="module")
def run(patients, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "run"
    return fit(TASK, patients, privacy=REHEARSAL, rounds=4, baselines=True, name="trial", out=out)


@pytest.fixture(scope="module")
def open_run(patients):
    return fit(TASK, patients, rounds=2)


def test_the_history_has_one_row_for_each_round(run):
    history = run.history
    assert isinstance(history, pd.DataFrame)
    assert history.index.name == "round"
    assert history.index.tolist() == [1, 2, 3, 4]
    assert history.columns.tolist() == ["sites", "c_index", "ibs", "epsilon", "seconds"]
    assert history["sites"].tolist() == [3] * 4
    assert history["epsilon"].is_monotonic_increasing
    assert history["epsilon"].iloc[-1] == run.privacy.epsilon
    assert (history["seconds"] > 0).all()


def test_an_open_run_has_a_history_without_prices(open_run):
    assert open_run.history["epsilon"].isna().all()
    assert open_run.privacy.epsilon is None


def test_the_scores_of_a_run_are_those_of_its_last_round_unless_it_chose_another(run):
    assert run.scores == run.history[["c_index", "ibs"]].iloc[-1].to_dict()
    assert run.record.chosen == 4


def test_scores_and_baselines_cannot_be_changed_from_outside(run):
    run.scores["c_index"] = 2.0
    run.baselines["alone"] = {}
    assert run.scores["c_index"] < 1
    assert set(run.baselines) == {"alone", "pooled"}
    assert set(run.baselines["alone"]) == {"c_index", "ibs"}


def test_a_run_is_shown_in_one_line(run, open_run):
    found = f"c_index {run.scores['c_index']:.4f}, ibs {run.scores['ibs']:.4f}"
    assert repr(run) == f"<Run trial: logistic-hazard, 4 rounds, {found}, epsilon {run.privacy.epsilon:.4g}>"
    assert repr(open_run).endswith(", open>")


def test_a_run_without_held_out_records_has_no_score(patients):
    blind = Federation({name: site.table for name, site in patients.items()})
    run = fit(replace(TASK, horizon=2.0), blind, rounds=1)
    assert run.scores == run.baselines == {}
    assert ", no score, open>" in repr(run)
    assert "No score" in run.summary()
    assert run.history.columns.tolist() == ["sites", "epsilon", "seconds"]


def test_the_summary_says_the_promise_the_scores_and_the_statement(run):
    assert max(map(len, run.summary().splitlines())) <= 80
    said = " ".join(run.summary().split())
    for part in (
        "trial",
        "logistic-hazard",
        "federated",
        "each site alone",
        "pooled",
        "REHEARSAL",
        "C-index",
    ):
        assert part in said
    assert f"epsilon {run.privacy.epsilon:.4g} at delta 0.0001 for any one record" in said
    for sentence in run.privacy.sentences():
        assert sentence in said


def test_the_document_of_a_run_is_plain_data(run):
    found = json.loads(json.dumps(run.as_dict(), allow_nan=False))
    assert found["run"] == str(run.path)
    assert (found["rounds"], found["chosen"], found["stopped"]) == (4, 4, None)
    assert found["scores"] == run.scores
    assert found["baselines"] == run.baselines
    assert found["privacy"] == {
        "epsilon": run.privacy.epsilon,
        "delta": 1e-4,
        "unit": "record",
        "relation": "add-remove",
        "rehearsal": True,
    }


def test_a_run_that_is_over_has_these_files_and_no_other(run):
    assert {path.name for path in run.path.iterdir()} == FILES


def test_a_loaded_run_is_the_run(run):
    loaded = tacit.load(run.path)
    assert isinstance(loaded, Run)
    assert np.array_equal(loaded.state, run.state)
    assert loaded.history.equals(run.history)
    assert loaded.record == run.record
    assert loaded.privacy == run.privacy
    assert loaded.as_dict() == run.as_dict()
    assert loaded.summary() == run.summary()
    assert repr(loaded) == repr(run)


def test_a_loaded_run_predicts_what_the_run_predicts(run, patients):
    loaded, features = tacit.load(str(run.path)), patients.held_out.features
    times = np.linspace(0, loaded.model.ends[-1], 20)
    assert np.array_equal(loaded.model.risk(features), run.model.risk(features))
    assert np.array_equal(loaded.model.survival(features, times), run.model.survival(features, times))
    assert np.ptp(run.model.risk(features)) > 0


def test_an_open_run_is_loaded_as_well(patients, tmp_path):
    run = fit(TASK, patients, rounds=2, out=tmp_path / "run")
    loaded = tacit.load(tmp_path / "run")
    assert np.array_equal(loaded.state, run.state)
    assert loaded.privacy == run.privacy
    assert loaded.summary() == run.summary()
    assert "No promise" in loaded.summary()


def test_a_run_is_loaded_from_where_it_was_moved_to(run, tmp_path):
    moved = tmp_path / "moved"
    shutil.copytree(run.path, moved)
    loaded = tacit.load(moved)
    assert loaded.path == moved
    assert loaded.as_dict()["run"] == str(moved)


def test_a_run_that_stopped_early_keeps_its_best_round_and_loads_it(patients, tmp_path):
    out = tmp_path / "run"
    run = fit(TASK, patients, privacy=REHEARSAL, rounds=30, stop=Stopping(patience=2), out=out)
    assert run.record.stopped is not None
    assert run.record.chosen == len(run.record.rounds) - 2 < 28
    loaded = tacit.load(out)
    assert np.array_equal(loaded.state, run.state)
    assert not np.array_equal(loaded.state, Directory(out).checkpoint().state)
    assert loaded.record == run.record
    assert f"of round {run.record.chosen}" in loaded.summary()


def test_a_run_of_ones_own_network_is_loaded_with_its_task(tmp_path):
    generator = np.random.default_rng(0)
    tables = {name: from_arrays(generator.normal(size=(30, 2)), y=generator.normal(size=30)) for name in "ab"}
    task = Supervised(module=nn.Linear(2, 1), loss="squared", steps=2, lr=0.01)
    run = fit(task, Federation(tables), rounds=2, out=tmp_path / "run")
    loaded = tacit.load(tmp_path / "run", task)
    rows = torch.ones(3, 2)
    assert torch.equal(loaded.model(rows), run.model(rows))
    assert not torch.equal(run.model(rows), task.module(rows))


def test_a_directory_that_is_no_run_is_not_loaded(tmp_path):
    with pytest.raises(TacitError, match=r"is not a run: it has no experiment\.toml"):
        tacit.load(tmp_path)


class Cut(Exception):
    """The end of a run that is to be resumed."""


def cut_at(number):
    def callback(entry):
        if entry.number == number:
            raise Cut

    return callback


def test_a_run_that_is_not_over_says_how_far_it_got(patients, tmp_path):
    out = tmp_path / "run"
    with pytest.raises(Cut):
        fit(TASK, patients, privacy=REHEARSAL, rounds=4, out=out, callbacks=[cut_at(3)])
    assert not is_over(Directory(out))
    with pytest.raises(
        RunUnusable, match=r"is not over: 3 rounds are in rounds\.jsonl; resume it with --resume"
    ):
        tacit.load(out)


PARTS = [(SUMMARY, key) for key in ("name", "chosen", "stopped", "scores", "baselines")]
PARTS += [(STATEMENT, key) for key in ("unit", "epsilon", "released", "subjects", "rehearsal")]


@pytest.mark.parametrize(("name", "key"), PARTS)
def test_a_result_without_one_of_its_parts_is_damaged(run, tmp_path, name, key):
    out = tmp_path / "run"
    shutil.copytree(run.path, out)
    held = json.loads((out / name).read_text())
    del held[key]
    (out / name).write_text(json.dumps(held))
    with pytest.raises(RunUnusable, match="damaged or incomplete"):
        read(Directory(out), run.task)


def test_callbacks_are_called_once_for_each_round_in_order_after_it_is_kept(patients, tmp_path):
    out, seen = tmp_path / "run", []

    def first(entry):
        seen.append(("first", entry.number, Directory(out).checkpoint().finished))

    def second(entry):
        seen.append(("second", entry.number, len(Directory(out).rounds())))

    run = fit(TASK, patients, privacy=REHEARSAL, rounds=3, out=out, callbacks=[first, second])
    assert seen == [(name, number, number) for number in (1, 2, 3) for name in ("first", "second")]
    assert tuple(Directory(out).rounds()) == run.record.rounds


def test_callbacks_of_a_resumed_run_are_called_for_its_new_rounds_alone(patients, tmp_path):
    out, seen = tmp_path / "run", []
    with pytest.raises(Cut):
        fit(TASK, patients, privacy=REHEARSAL, rounds=4, out=out, callbacks=[cut_at(2)])
    choices = {"privacy": REHEARSAL, "rounds": 4, "out": out, "resume": True}
    fit(TASK, patients, callbacks=[lambda entry: seen.append(entry.number)], **choices)
    assert seen == [3, 4]
    fit(TASK, patients, callbacks=[lambda entry: seen.append(entry.number)], **choices)
    assert seen == [3, 4]


def test_a_run_that_keeps_nothing_equals_one_that_does(patients, run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    bare = fit(TASK, patients, privacy=REHEARSAL, rounds=4, baselines=True, name="trial")
    assert np.array_equal(bare.state, run.state)
    assert bare.path is None
    assert bare.as_dict() == run.as_dict() | {"run": None}
    assert list(tmp_path.iterdir()) == []


def test_a_private_run_has_other_noise_each_time_and_a_rehearsal_the_same(patients):
    private = [fit(TASK, patients, privacy=replace(REHEARSAL, rehearsal=False), rounds=1) for _ in range(2)]
    rehearsals = [fit(TASK, patients, privacy=REHEARSAL, rounds=1) for _ in range(2)]
    assert not np.array_equal(private[0].state, private[1].state)
    assert np.array_equal(rehearsals[0].state, rehearsals[1].state)


def test_rounds_that_are_no_count_are_refused(patients):
    for rounds in (0, -1, 1.5, True):
        with pytest.raises(TacitError, match="rounds"):
            fit(TASK, patients, privacy=Open(), rounds=rounds)
