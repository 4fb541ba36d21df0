"""The loop refuses before it pays, and tells what it did."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import tacit
from tacit.errors import InvalidFile, InvalidValue, Refused
from tacit.experiments import experiment
from tacit.runs.directory import Directory
from tacit.sites.sampling import Fixed
from tacit.sites.splits import ByColumn, Iid
from tacit.survival import LogisticHazard
from tacit.survival.data import simulate
from tacit.survival.data.sources import Csv, Simulated

PROMISE = tacit.Privacy(unit="record", epsilon=3, delta=1e-5, clip=1.0)
TASK = LogisticHazard(hidden=[3], steps=1, sample=0.5, lr=0.5, horizon=4.0)


def simulated(records: int = 200, **options) -> tacit.Federation:
    return Simulated(records=records, features=4, **options).open(Iid(count=3), 1)


def patients(folder: Path, **columns) -> Path:
    frame = simulate(records=90, features=3, seed=2).assign(**columns)
    path = folder / "patients.csv"
    frame.to_csv(path, index=False)
    return path


def test_a_run_that_stops_early_pays_for_every_round_of_its_plan(tmp_path):
    # Steps so short that no score ever improves; when to stop was decided by looking at results.
    task = LogisticHazard(hidden=[3], steps=1, sample=0.5, lr=1e-14, horizon=4.0)
    federation = simulated(held_out=0.4)
    run = tacit.fit(
        task, federation, privacy=PROMISE, stop=tacit.Stopping(patience=1), rounds=7, out=tmp_path / "run"
    )
    assert len(run.record.rounds) < 7
    with tacit.Ledger(tmp_path / "run" / "ledger.db", mode="read") as ledger:
        rows = [row for row in ledger.entries() if str(row.get("purpose", "")).startswith("round")]
    plan = [(name, f"round {number}") for name in federation for number in range(1, 8)]
    assert sorted((row["party"], row["purpose"]) for row in rows) == sorted(plan)
    assert run.privacy.epsilon == pytest.approx(3.0, rel=0.01)


def nothing_is_left(folder: Path) -> bool:
    return not (folder / "run").exists()


def test_held_out_records_that_cannot_be_scored_are_refused_before_anything_is_paid(tmp_path):
    federation = simulated(records=40, held_out=0.025)
    with pytest.raises(InvalidValue, match=r"the held-out records .* hold out more, or none"):
        tacit.fit(TASK, federation, privacy=PROMISE, rounds=2, out=tmp_path / "run")
    assert nothing_is_left(tmp_path)


def test_more_sites_than_there_are_cannot_be_drawn(tmp_path):
    with pytest.raises(InvalidValue, match="count = 20 is not allowed: it must be at most 3"):
        tacit.fit(TASK, simulated(), sampling=Fixed(count=20), out=tmp_path / "run")
    assert nothing_is_left(tmp_path)


def test_training_that_diverges_says_so():
    task = LogisticHazard(hidden=[3], steps=3, sample=0.5, lr=1e300, horizon=4.0)
    with pytest.raises(InvalidValue, match=r"training diverged in round 1.*lower the lr"):
        tacit.fit(task, simulated(), rounds=2)


def test_an_open_run_can_be_loaded_and_resumed(tmp_path):
    made = experiment.read(_file(tmp_path))
    run = made.run(tmp_path / "run")
    again = tacit.load(tmp_path / "run")
    assert again.scores == run.scores
    assert experiment.read(tmp_path / "run").run(tmp_path / "run", resume=True).scores == run.scores


def test_a_private_run_on_private_records_shows_no_score_and_no_baseline(tmp_path):
    federation = Csv(path=str(patients(tmp_path, site=["a", "b", "c"] * 30))).open(ByColumn(), 1)
    run = tacit.fit(TASK, federation, privacy=PROMISE, rounds=1, baselines=True)
    assert (run.scores, run.baselines, run.privacy.bare) == ({}, {}, ())


def test_scores_on_private_records_are_refused_in_a_private_run(tmp_path):
    named = patients(tmp_path, site=["a", "b", "c"] * 30)
    federation = Csv(path=str(named), held_out=0.2).open(ByColumn(), 1)
    with pytest.raises(Refused, match="the scores on held-out records would leave the sites unprotected"):
        tacit.fit(TASK, federation, privacy=PROMISE)


def test_a_rehearsal_lists_what_leaves_bare(tmp_path):
    source = Csv(path=str(patients(tmp_path)), held_out=0.2, standardize=True)
    federation = source.open(Iid(count=3), 1, may_look=True)
    promise = tacit.Privacy(unit="record", epsilon=3, delta=1e-5, clip=1.0, rehearsal=True)
    run = tacit.fit(TASK, federation, privacy=promise, rounds=1, baselines=True)
    assert set(run.privacy.bare) == {
        "the scores on held-out records",
        "the scores of models trained alone and on pooled records",
        "the site of each record: all records are divided together",
        "means and standard deviations of all records, to standardize features",
    }


def test_what_was_taken_from_all_records_together_is_refused_under_a_promise(tmp_path):
    path = str(patients(tmp_path, site=["a", "b", "c"] * 30))
    with pytest.raises(Refused, match="the site of each record"):
        tacit.fit(TASK, Csv(path=path, leave=["site"]).open(Iid(count=3), 1), privacy=PROMISE)
    standardized = Csv(path=path, standardize=True, held_out=0.0).open(ByColumn(), 1, may_look=True)
    with pytest.raises(Refused, match="means and standard deviations of all records"):
        tacit.fit(TASK, standardized, privacy=PROMISE)


def test_site_names_are_taken_as_they_are_written(tmp_path):
    names = ["007", "7", "NA"] * 30
    path = patients(tmp_path, site=names)
    split = experiment.KINDS["sites"]["by-column"](column="site")
    federation = Csv(path=str(path)).open(split, 1)
    assert sorted(federation) == ["007", "7", "NA"]
    assert sum(len(site.table) for site in federation.values()) == 90


def test_records_without_a_site_are_refused(tmp_path):
    path = patients(tmp_path, site=["oslo", "bergen", ""] * 30)
    split = experiment.KINDS["sites"]["by-column"](column="site")
    with pytest.raises(InvalidValue, match="some records have no site"):
        Csv(path=str(path)).open(split, 1)
    frame = pd.read_csv(path)
    with pytest.raises(InvalidValue, match="some records have no site"):
        tacit.Federation.from_frame(frame, site="site", targets=["time", "event"])


def test_columns_called_time_and_event_may_be_features(tmp_path):
    path = patients(tmp_path, days=np.arange(1.0, 91.0), dead=[0, 1] * 45)
    federation = Csv(path=str(path), time="days", event="dead").open(Iid(count=2), 1)
    assert {"time", "event"} <= set(federation.store.columns)
    assert federation.store.targets["time"].max() == 90


def test_a_misspelt_site_column_is_refused(tmp_path):
    path = patients(tmp_path, site=["a", "b"] * 45)
    with pytest.raises(InvalidValue, match=r"column sites is missing .*did you mean"):
        Csv(path=str(path), site="sites").open(Iid(count=2), 1)


def test_public_records_may_have_their_columns_in_any_order_and_others_beside_them(tmp_path):
    path = patients(tmp_path, site=["a", "b"] * 45)
    frame = pd.read_csv(path)
    frame[frame.columns[::-1]].to_csv(tmp_path / "test.csv", index=False)
    split = experiment.KINDS["sites"]["by-column"](column="site")
    federation = Csv(path=str(path), test=str(tmp_path / "test.csv")).open(split, 1)
    assert federation.held_out_public
    assert federation.held_out.columns == federation.store.columns
    assert np.allclose(federation.held_out.features, frame[["x1", "x2", "x3"]].to_numpy())


def test_a_file_without_records_says_so(tmp_path):
    (tmp_path / "patients.csv").write_text("x1,time,event\n")
    with pytest.raises(InvalidFile, match="holds no records"):
        Csv(path=str(tmp_path / "patients.csv")).open(Iid(count=2), 1)


def test_dates_are_not_numbers(tmp_path):
    frame = simulate(records=90, features=2, seed=2).assign(born=pd.date_range("1950-01-01", periods=90))
    frame.to_parquet(tmp_path / "patients.parquet")
    with pytest.raises(InvalidValue, match=r"born in patients\.parquet does not hold numbers"):
        Csv(path=str(tmp_path / "patients.parquet")).open(Iid(count=2), 1)


@pytest.mark.parametrize("name", ["/tmp/x", "a/b", "", "..", "a\u0000"])
def test_a_name_is_no_path(tmp_path, name):
    with pytest.raises(InvalidFile, match=r"name = .* is not allowed"):
        experiment.read(_file(tmp_path), [f"name={name!r}"])


def test_what_a_module_of_ones_own_raises_is_told(tmp_path):
    (tmp_path / "own_broken.py").write_text("1 / 0\n")
    with pytest.raises(InvalidFile, match="cannot be loaded: division by zero"):
        experiment.read(_file(tmp_path), ["task.kind=own_broken:Task"])


@pytest.mark.parametrize("records", [40, 99, 100, 101, 257])
@pytest.mark.parametrize("share", [0.0, 0.1, 0.29, 0.57, 0.58])
def test_a_plan_knows_how_many_records_are_trained_on(records, share):
    source = Simulated(records=records, features=3, held_out=share)
    assert source.open(Iid(count=2), 1).records == source.public_records


def _file(folder: Path) -> Path:
    path = folder / "open.toml"
    path.write_text(
        "rounds = 2\n[data]\nrecords = 120\nfeatures = 3\n[sites]\ncount = 2\n"
        '[task]\nkind = "logistic-hazard"\nhidden = [3]\n'
    )
    return path


def test_the_seed_is_0_if_none_is_said():
    told = [tacit.fit(TASK, simulated(), rounds=1, **seed).scores for seed in ({}, {"seed": 0}, {"seed": 1})]
    assert told[0] == told[1] != told[2]


@dataclass(frozen=True, kw_only=True)
class Watched(LogisticHazard):
    """A task that keeps its weights."""

    snapshots: int = 1


def test_weights_are_kept_under_the_name_of_their_model_and_of_every_site(monkeypatch, tmp_path):
    kept = {}
    monkeypatch.setattr(
        Directory, "write_weights", lambda self, number, known: kept.update({number: set(known)})
    )
    task = Watched(hidden=[3], steps=1, sample=0.5, lr=0.5, horizon=4.0)
    federation = simulated()
    tacit.fit(task, federation, rounds=2, out=tmp_path / "run")
    assert kept == {number: {"global", *federation} for number in (1, 2)}
