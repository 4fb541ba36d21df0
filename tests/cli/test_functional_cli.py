"""Curves through the command: each release is planned, run and shown; what cannot be is one sentence."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from tacit import Ledger
from tacit.cli.app import app
from tacit.experiments import experiment
from tacit.functional.data import simulate

TACIT = str(Path(sys.executable).with_name("tacit"))
KEYS = {"run", "rounds", "scores", "baselines", "privacy"}
TRIAL = """
name = "trial"
seed = 7
[data]
kind = "simulated-curves"
design = "smooth"
records = 160
points = 21
[sites]
kind = "columns"
count = 3
[task]
kind = "functional-boosting"
size = 8
components = 4
smooth_s = 0.0
smooth_t = 0.0
ridge = 1.0
[privacy]
unit = "record"
epsilon = 10.0
delta = 1e-5
clip = 1.5
noise = "server"
rehearsal = true
"""
FILES = TRIAL.replace(
    TRIAL[TRIAL.index("[data]") : TRIAL.index("[sites]")],
    '[data]\nkind = "curve-files"\npath = "curves"\n'
    'files = {x1 = "x1.csv", x2 = "x2.csv", x3 = "x3.csv", y = "y.csv"}\n',
)
STUDY = """
[study]
folds = 2
parties = [2, 3]
epsilons = ["open", 10]
releases = ["moments"]
workers = 1
"""
STUDIED = TRIAL.replace('[sites]\nkind = "columns"\ncount = 3\n', "").replace("epsilon = 10.0\n", "") + STUDY


def tacit(*words: str) -> tuple[int, str, str]:
    found = CliRunner().invoke(app, list(words))
    return found.exit_code, found.stdout, found.stderr


def with_set(*changes: str) -> list[str]:
    return [word for change in changes for word in ("--set", change)]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "trial.toml").write_text(TRIAL)
    return tmp_path


@pytest.fixture
def files(folder: Path) -> Path:
    """An experiment on files of 80 subjects."""
    (folder / "files.toml").write_text(FILES)
    made = simulate("smooth", records=80, points=11, predictors=3, seed=2)
    (folder / "curves").mkdir()
    for name, found in {**made.predictors, "y": made.response}.items():
        table = pd.DataFrame(found.values, columns=[f"{time:g}" for time in found.times])
        table.insert(0, "subject", [f"s{row}" for row in range(80)])
        table.to_csv(folder / "curves" / f"{name}.csv", index=False)
    return folder


def test_the_file_that_new_writes_is_planned_and_runs(folder: Path):
    assert tacit("new", "functional", "-q")[:2] == (0, "functional.toml\n")
    planned = json.loads(tacit("plan", "functional.toml", "--json")[1])
    # In a process of its own, as a person starts it.
    words = [TACIT, "run", "functional.toml", "--set", "data.records=800", "--json", "-q"]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert found["privacy"]["epsilon"] == pytest.approx(planned["promise"]["epsilon"], rel=1e-6)
    assert 0.99 < found["privacy"]["epsilon"] <= 1
    assert tacit("new", "functional")[0] == 2


@pytest.mark.parametrize("changes", [
    ('privacy.noise="site"',),
    ('privacy.noise="site"', 'task.protect="all"'),
    ('privacy.noise="site"', 'task.radius="private"'),
    ('privacy.noise="server"',),
    ('privacy.noise="server"', "task.radius={x1=1.0,x2=1.0,x3=2.0,x4=2.0,y=1.5}"),
    ('privacy.noise="secure"',),
    ('privacy.noise="secure"', 'task.radius="private"'),
])  # fmt: skip
def test_every_release_costs_what_was_planned_and_is_scored_beside_its_baselines(folder: Path, changes):
    code, out, err = tacit("plan", "trial.toml", *with_set(*changes), "--json")
    assert code == 0, err
    planned = json.loads(out)["promise"]
    code, out, err = tacit("run", "trial.toml", *with_set(*changes), "--out", "run", "--json", "-q")
    assert (code, err) == (0, "")
    done = json.loads(out)
    assert set(done) >= KEYS
    assert done["rounds"] == 1
    assert done["privacy"]["epsilon"] == pytest.approx(planned["epsilon"], rel=1e-3)
    assert 9.9 < done["privacy"].pop("epsilon") <= 10
    promised = {"delta": 1e-5, "unit": "record", "relation": "replace", "rehearsal": True}
    assert promised.items() <= done["privacy"].items()
    assert set(done["baselines"]) == {"alone", "pooled"}
    for scores in (done["scores"], *done["baselines"].values()):
        assert set(scores) == {"r2", "ril2"}
    assert done["baselines"]["pooled"]["r2"] > max(done["scores"]["r2"], 0.85)
    assert done["baselines"]["alone"]["r2"] < 0.7
    verified = json.loads(tacit("ledger", "run/ledger.db", "--verify", "--json")[1])
    assert verified["valid"]
    assert verified["epsilon"] == pytest.approx(planned["epsilon"], rel=1e-3)


@pytest.mark.parametrize("changes", [
    ('task.basis="fourier"', "task.size=9"),
    ('task.stop="aic"',),
    ('task.stop="aicc"',),
    ('task.stop="mv"',),
    ("task.stop=3",),
    ('task.selection="all"',),
    ("task.components_y=1",),
    ("task.knots=[0.2, 0.5, 0.7, 0.8]",),
    ("task.smooth=1e-4", "task.order=5"),
    ("sites.count=1",),
    ("sites.count=4",),
    ('sites.active="party-2"',),
    ("data.held_out=0",),
    ('data.design="bumps"', "data.active=1"),
    ("privacy.epsilon=1e6",),
    ("privacy.epsilon=0.01",),
])  # fmt: skip
def test_whatever_may_be_chosen_runs(folder: Path, changes):
    code, out, err = tacit("run", "trial.toml", *with_set(*changes, "baselines=false"), "--json", "-q")
    assert (code, err) == (0, "")
    done = json.loads(out)
    assert set(done) >= KEYS
    assert set(done["scores"]) == (set() if "data.held_out=0" in changes else {"r2", "ril2"})


def test_named_parties_hold_what_the_file_says(folder: Path):
    text = TRIAL.replace("count = 3", 'parties = {utility = ["y"], kent = ["x1", "x2"], east = ["x3", "x4"]}')
    (folder / "trial.toml").write_text(text)
    code, out, err = tacit("run", "trial.toml", "--out", "run", "--json", "-q")
    assert (code, err) == (0, "")
    found = json.loads(out)["baselines"]
    # Whoever has the response alone has nothing to predict it from.
    assert found["alone"]["r2"] < 0.05
    assert found["pooled"]["r2"] > 0.85
    assert list(experiment.load("run").task.parties["utility"]) == ["y"]


@pytest.mark.parametrize(("change", "message"), [
    ('task.release="local"', 'release = "local" does not go with noise = "server"'),
    ("task.radius=0", "[task] radius = 0.0 is not allowed: it must be a number above"),
    ("task.radius=-1", "[task] radius = -1.0 is not allowed"),
    ("task.radius=nan", "[task] radius = nan is not allowed"),
    ("task.radius=1e300", "[task] radius = 1e+300 is not allowed"),
    ("task.radius={x1=1.0}", "radius = {'x1': 1.0} is not allowed: it must be one for each of x1, x2"),
    ("task.radius={x1=1.0,x2=1,x3=1,x4=1,y=1,z=1}", "radius = 'z' is not allowed: it must be"),
    ("privacy.clip=1e300", "clip = 1e+300 is not allowed: it must be a number above"),
    ("task.center={x1=1e308}", "[task] center of x1 = 1e+308 is not allowed"),
    ("task.center={q=1}", "center = 'q' is not allowed"),
    ("task.scale={x1=0}", "[task] scale of x1 = 0.0 is not allowed"),
    ("task.smooth=-1", "[task] smooth = -1.0 is not allowed"),
    ("task.components=9", "[task] components = 9 is not allowed: it must be at most 8"),
    ("task.size=3", "[task] size = 3 is not allowed"),
    ("task.order=1", "[task] order = 1 is not allowed"),
    ("task.knots=[0.9, 0.5]", "[task] knots = (0.9, 0.5) is not allowed"),
    ('task.basis="fourier"', "[task] size = 8 is not allowed: it must be an odd number"),
    ("task.stop=0", '[task] stop = 0 is not allowed: it must be "cv", "aic"'),
    ("task.folds=1", "[task] folds = 1 is not allowed"),
    ("task.folds=61", "x1 has 120 subjects, fewer than 2 for each of 61 folds"),
    ('task.response="z"', "response = 'z' is not allowed"),
    ("task.steps_per_round=1", "[task] steps_per_round is not known"),
    ("rounds=2", "rounds = 2 is not allowed"),
    ("privacy.delta=0", "[privacy] delta = 0.0 is not allowed"),
    ('privacy.unit="site"', 'unit = "site" does not go with columns'),
    ('privacy.mechanism="laplace"', 'mechanism = "laplace" is not priced for columns'),
    ("privacy.participation=0.5", "participation = 0.5 does not go with columns"),
    ("privacy.noise_multiplier=2.0", "epsilon = 10.0 and noise_multiplier = 2.0 is not allowed"),
    ("sites.count=5", "5 parties for 4 predictors is not allowed: party-5 would hold no column"),
    ("sites.count=20", "party-5 and 15 more would hold no column"),
    ('sites.kind="iid"', "data, sites and task do not go together"),
    ('sites.active="party-9"', "[sites] active = 'party-9' is not allowed"),
    ('sites.parties={a=["x1"]}', "[sites] count = 3 is not allowed: it must be left out"),
    ('data.design="moon"', "[data] design = 'moon' is not allowed"),
    ("data.predictors=0", "[data] predictors = 0 is not allowed"),
    ("data.active=5", "active = 5 is not allowed: it must be at most 4"),
    ("data.snr=0", "[data] snr = 0.0 is not allowed"),
    ("data.points=1", "[data] points = 1 is not allowed: it must be at least 2"),
    ("data.records=8", "x1 has 6 subjects, fewer than its 8 basis functions"),
    ("data.held_out=0.005", "the held-out records (1) cannot be scored: hold out more, or none"),
    ('aggregation.kind="median"', "[aggregation] median does not go with functional-boosting"),
    ("clusters.count=2", "does not go with"),
    ("stop.patience=2", "does not go with functional-boosting"),
    ('server.kind="adam"', "does not go with functional-boosting"),
])  # fmt: skip
def test_what_cannot_be_is_refused_in_one_sentence_before_anything_is_paid(folder: Path, change, message):
    code, out, err = tacit("run", "trial.toml", "--set", change, "--out", "run", "--json")
    error = json.loads(out)["error"]
    assert code == error["exit_code"] == 2
    assert message in error["message"]
    assert err == f"tacit: {error['message']}\n"
    assert not paid(folder / "run")


def paid(run: Path) -> list[object]:
    if not (run / "ledger.db").exists():
        return []
    with Ledger(run / "ledger.db", mode="read") as ledger:
        return list(ledger.releases())


def test_two_parties_cannot_multiply_in_secret(folder: Path):
    changes = with_set("sites.count=2", 'privacy.noise="secure"')
    for verb in ("plan", "run"):
        code, _, err = tacit(verb, "trial.toml", *changes)
        assert code == 2
        assert "2 parties cannot use secure products: from 3 to 100 can" in err


def test_tuning_a_fit_of_one_round_is_refused(folder: Path):
    (folder / "trial.toml").write_text(TRIAL + '[tune]\n"task.components" = [2, 4]\n')
    assert tacit("run", "trial.toml")[0] == 2
    code, _, err = tacit("tune", "trial.toml")
    assert code == 2
    assert "[tune] is for rounds of updates" in err


def test_a_summary_speaks_of_the_active_party_and_of_one_round(folder: Path):
    said = tacit("plan", "trial.toml")[1]
    assert "for the one round" in said
    code, out, err = tacit("run", "trial.toml", "--out", "run")
    assert code == 0, err
    assert "active party alone" in out
    assert "predictors) in " in out
    assert "parties sent " in out
    assert "REHEARSAL" in out
    assert "\nreleased" not in err
    assert tacit("show", "run")[1] == out
    assert tacit("run", "run", "--resume", "-q")[1] == out
    assert tacit("run", "trial.toml", "--out", "run")[0] == 2
    code, _, err = tacit("run", "trial.toml", "--set", "task.components=3", "--out", "run", "--resume")
    assert code == 2
    assert "components = 4 before, components = 3 now" in err


def test_runs_of_curves_are_shown_beside_runs_of_patients(folder: Path):
    survival = 'rounds = 1\n[data]\nrecords = 120\nfeatures = 2\n[task]\nkind = "poisson-ph"\nsteps = 1\n'
    (folder / "patients.toml").write_text(survival)
    assert tacit("run", "trial.toml", "--out", "curves", "-q")[0] == 0
    assert tacit("run", "patients.toml", "--out", "patients", "-q")[0] == 0
    code, out, _ = tacit("show", "curves", "patients")
    assert code == 0
    rows = {line.split()[0]: line.split()[1:] for line in out.splitlines() if line}
    assert rows["run"] == ["curves", "patients"]
    assert [rows[name][1] for name in ("R2", "RIL2")] == [rows[name][0] for name in ("C-index", "IBS")]
    assert rows["R2"][1] == "-" != rows["R2"][0]
    found = json.loads(tacit("show", "curves", "patients", "--json")[1])["runs"]
    assert [set(run["scores"]) for run in found] == [{"r2", "ril2"}, {"c_index", "ibs"}]


def test_a_ledger_that_cannot_bear_it_ends_with_3(folder: Path):
    (folder / "run").mkdir()
    with Ledger(folder / "run" / "ledger.db") as ledger:
        ledger.allow(epsilon=1.0, delta=1e-5, subject="records")
    code, out, _ = tacit("run", "trial.toml", "--out", "run", "--json")
    assert code == json.loads(out)["error"]["exit_code"] == 3
    assert "budget of records exhausted" in json.loads(out)["error"]["message"]
    assert not paid(folder / "run")


def test_what_there_is_to_choose_from_names_curves():
    assert "functional-boosting" in json.loads(tacit("list", "tasks", "--json")[1])
    assert {"simulated-curves", "curve-files"} <= set(json.loads(tacit("list", "data", "--json")[1]))
    assert "columns" in json.loads(tacit("list", "splits", "--json")[1])


def test_a_private_run_on_files_shows_no_score_and_predicts(files: Path):
    code, out, err = tacit(
        "run", "files.toml", *with_set("privacy.rehearsal=false"), "--out", "run", "--json"
    )
    assert code == 0, err
    done = json.loads(out)
    assert done["scores"] == done["baselines"] == {}
    statement = json.loads((files / "run" / "statement.json").read_text())
    assert statement["bare"] == []
    assert any("80" in line for line in statement["public"])
    assert any("products of all columns" in line for line in statement["released"])
    assert "No score" in tacit("show", "run")[1]
    model = experiment.load("run").model
    new = {name: np.zeros((2, 11)) for name in ("x1", "x2", "x3")}
    assert model.predict(new).shape == (2, 101)
    parts = sum(model.contribution(name, new[name]) for name in model.selected)
    np.testing.assert_allclose(model.coordinates(new), model.mean_y + parts)


def test_a_private_run_does_not_look_at_held_out_people(files: Path):
    changes = with_set("privacy.rehearsal=false", "data.held_out=0.2")
    code, _, err = tacit("run", "files.toml", *changes, "--out", "run")
    assert code == 2
    assert "scores on held-out records would leave" in err
    assert not paid(files / "run")


def test_a_rehearsal_on_files_is_scored_on_people_held_out(files: Path):
    code, out, err = tacit("run", "files.toml", "--json", "-q")
    assert (code, err) == (0, "")
    assert set(json.loads(out)["scores"]) == {"r2", "ril2"}


def test_people_are_told_apart_by_name_and_not_by_row(files: Path):
    before = json.loads(tacit("run", "files.toml", "--json", "-q")[1])["scores"]
    table = pd.read_csv(files / "curves" / "x2.csv")
    table.iloc[::-1].to_csv(files / "curves" / "x2.csv", index=False)
    code, out, _ = tacit("run", "files.toml", "--json", "-q")
    # They are put in order, or refused; what must not be is a fit of one person's curve on another's.
    assert code == 2 or json.loads(out)["scores"] == before
    table.assign(subject=[f"t{row}" for row in range(80)]).to_csv(files / "curves" / "x2.csv", index=False)
    assert tacit("run", "files.toml", "-q")[0] == 2


@pytest.mark.parametrize(("change", "message"), [
    ('data.files={y="y.csv"}', "[data] files = {'y': 'y.csv'} is not allowed: it must be at least"),
    ('data.files={x1="x1.csv",x2="x2.csv"}', "[data] response = 'y' is not allowed"),
    ('data.files={x1="nowhere.csv",y="y.csv"}', "nowhere.csv cannot be read: No such file or directory"),
    ('data.files={x1="x1.txt",y="y.csv"}', 'x1.txt is not allowed: it must end in ".csv", '),
    ("data.domains={q=[0.0,1.0]}", "[data] domains = 'q' is not allowed"),
    ("data.domains={x1=[0.5,1.0]}", "times of x1 are not allowed: 0 is outside the domain, 0.5 to 1"),
    ("data.domains={x1=[1.0,0.0]}", "domain of x1 = (1.0, 0.0) is not allowed"),
    ("data.held_out=1.0", "[data] held_out = 1.0 is not allowed"),
    ("task.size=65", "x1 has 64 subjects, fewer than its 65 basis functions"),
])  # fmt: skip
def test_files_that_do_not_do_are_refused_in_one_sentence(files: Path, change, message):
    code, _, err = tacit("run", "files.toml", "--set", change, "--out", "run")
    assert code == 2
    assert message in err
    assert err.count("\n") == 1
    assert not paid(files / "run")


def test_a_study_is_planned_run_shown_and_resumed(folder: Path):
    (folder / "study.toml").write_text(STUDIED)
    code, said, err = tacit("plan", "study.toml")
    assert code == 0, err
    assert "study    8 runs: 2 folds x 2 promises x 2 numbers of parties" in said
    code, out, err = tacit("run", "study.toml", "--out", "run", "--json")
    assert code == 0, err
    assert "8 of 8: moments, epsilon 10, 3 parties, replicate 0, fold 1: RIL2" in err
    done = json.loads(out)
    assert (done["runs"], done["of"]) == (8, 8)
    assert [(row["epsilon"], row["parties"], row["n"]) for row in done["table"]] == [
        ("open", 2, 2), ("open", 3, 2), (10, 2, 2), (10, 3, 2),
    ]  # fmt: skip
    assert all({"r2", "ril2", "sensitivity", "specificity"} <= set(row) for row in done["table"])
    shown = tacit("show", "run")[1]
    assert "promise  epsilon for all parties in total" in shown
    assert tacit("run", "run", "--resume", "-q")[1].strip() == shown.strip()
    assert tacit("run", "study.toml", "--out", "run")[0] == 2
    assert sorted(os.listdir("run/figures"))


@pytest.mark.parametrize(("change", "message"), [
    ("study.folds=1", "[study] folds = 1 is not allowed: it must be at least 2"),
    ("study.folds=161", "[study] folds = 161 is not allowed: it must be at most 160"),
    ("study.parties=[]", "[study] parties = [] is not allowed"),
    ("study.parties=[2, 2]", "[study] parties = [2, 2] is not allowed: it must be a list of different ones"),
    ("study.parties=[9]", "[study] parties = 9 is not allowed: it must be at most 4"),
    ("study.parties=2", "[study] parties = 2 is not allowed: it must be a list"),
    ('study.epsilons=["closed"]', "[study] epsilons = 'closed' is not allowed: it must be \"open\""),
    ("study.epsilons=[0]", "[study] epsilons = 0.0 is not allowed"),
    ('study.releases=["both"]', "[study] releases = 'both' is not allowed"),
    ("study.workers=0", "[study] workers = 0 is not allowed"),
    ("study.replicate=2", '[study] replicate is not known (did you mean "replicates"?)'),
    ("study=3", "study = 3 is not allowed: it must be a table"),
    ("sites.count=2", "[sites] count is given twice"),
    ("privacy.epsilon=2", "[privacy] epsilon is given twice"),
    ("data.held_out=0.2", "[data] held_out is given twice"),
    ('privacy.unit="site"', 'unit = "site" does not go with columns'),
    ('task.kind="cox-ph"', "is not known"),
])  # fmt: skip
def test_studies_that_cannot_be_are_refused_in_one_sentence(folder: Path, change, message):
    (folder / "study.toml").write_text(STUDIED)
    code, _, err = tacit("run", "study.toml", "--set", change)
    assert code == 2
    assert message in err
    assert err.count("\n") == 1
