"""A bad file or bad data end in one sentence and exit code 2; nothing is charged, nothing is left behind."""

import json
import os
import tomllib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from tacit.cli.app import app
from tacit.survival.data import DESIGNS, simulate

PATIENTS = simulate("SDGM1", records=60, features=3, seed=1).assign(site=["oslo", "bergen", "aker"] * 20)
BY_COLUMN = """
rounds = 2
baselines = false
[data]
kind = "csv"
path = "patients.csv"
[sites]
kind = "by-column"
[task]
kind = "logistic-hazard"
hidden = [3]
cuts = 3
horizon = 3.0
"""
DEALT = BY_COLUMN.replace('kind = "by-column"', 'kind = "iid"\ncount = 4').replace(
    'path = "patients.csv"', 'path = "patients.csv"\nsite = "site"'
)
SIMULATED = """
rounds = 2
[data]
records = 80
features = 3
[sites]
count = 3
[task]
kind = "logistic-hazard"
hidden = [3]
cuts = 3
"""
PRIVATE = """
[privacy]
unit = "record"
epsilon = 3.0
delta = 1e-5
clip = 1.0
"""
REHEARSAL = PRIVATE + "rehearsal = true\n"
Frame = Callable[[], pd.DataFrame]


def tacit(*words: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, list(words))
    return done.exit_code, done.stdout, done.stderr


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to work in, apart from where the experiment lies."""
    (tmp_path / "here").mkdir()
    (tmp_path / "trial").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "trial"


def write(folder: Path, text: str, frame: pd.DataFrame | None = None) -> str:
    path = folder / "trial.toml"
    path.write_text(text)
    if frame is not None:
        frame.to_csv(folder / "patients.csv", index=False)
    return str(path)


def files_below(folder: Path) -> dict[str, bytes]:
    # Details about private records are for their owner.
    own = (".refused.txt", ".advice.txt")
    found = [path for path in sorted(folder.rglob("*")) if not path.name.endswith(own)]
    return {str(path): path.read_bytes() for path in found if path.is_file()}


def beside_imports(err: str) -> str:
    """Filter messages: without advice for the owner, and without announcements of own code."""
    beside = ("tacit: importing", "warning: advice about the records is in ")
    return "".join(line for line in err.splitlines(keepends=True) if not line.startswith(beside))


def refused(folder: Path, *words: str) -> str:
    """The one sentence that a refused command says, after everything else about it was checked."""
    before = files_below(folder.parent)
    code, out, err = tacit(*words)
    assert code == 2, err
    assert out == ""
    err = beside_imports(err)
    assert err.startswith("tacit: ")
    assert len(err.splitlines()) == 1
    assert "Traceback" not in err
    assert "a bug of ours" not in err
    code, out, again = tacit(*words, "--json")
    told = json.loads(out)["error"]
    assert (code, told["exit_code"], beside_imports(again)) == (2, 2, err)
    assert f"tacit: {told['message']}\n" == err
    assert files_below(folder.parent) == before
    assert os.listdir(folder.parent / "here") == []
    return err


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("rounds = 2", "ruonds = 2", ['ruonds is not known (did you mean "rounds"?)']),
        ("records = 80", "recrods = 80", ['[data] recrods is not known (did you mean "records"?)']),
        ("count = 3", "alpha = 3.0", ["[sites] alpha is not known", '"count"']),
        ("cuts = 3", "cats = 3", ['[task] cats is not known (did you mean "cuts"?)']),
        ("cuts = 3", "zebra = 3", ["[task] zebra is not known: it must be ", '"cuts"', '"horizon"']),
        ("[data]", "[date]", ['date is not known (did you mean "data"?)']),
        ("rounds = 2", 'rounds = "two"', ["rounds = 'two' is not allowed", "a whole number"]),
        ("records = 80", "records = true", ["[data] records = True is not allowed", "a whole number"]),
        ("hidden = [3]", 'hidden = ["a"]', ["[task] hidden = ['a'] is not allowed", "a whole number"]),
        ("hidden = [3]", "hidden = [0]", ["[task] hidden = 0 is not allowed"]),
        ("cuts = 3", "cuts = {}", ["[task] cuts = {} is not allowed"]),
        ("cuts = 3", "cuts = 0", ["cuts = 0 is not allowed"]),
        ("cuts = 3", "cuts = [2.0, 1.0]", ["cuts = [2.0, 1.0] is not allowed", "ascending"]),
        ("cuts = 3", "horizon = -1.0", ["[task] horizon = -1.0 is not allowed"]),
        ("count = 3", "count = 0", ["[sites] count = 0 is not allowed"]),
        ("[data]", "[data]\nheld_out = 1.5", ["[data] held_out = 1.5 is not allowed"]),
        ("[data]", "[data]\nkind = 'simulate'", ["[data] kind = 'simulate'", 'did you mean "simulated"?']),
        ("[data]", "[data]\ndesign = 'SDGM9'", ["[data] design = 'SDGM9'", "did you mean"]),
        ("[sites]", "[sites]\nkind = 'non-idd'", ["[sites] kind = 'non-idd'", 'did you mean "non-iid"?']),
        ('"logistic-hazard"', '"logistic-hazrd"', ["[task] kind =", 'did you mean "logistic-hazard"?']),
        ('"logistic-hazard"', "7", ["[task] kind = 7 is not allowed"]),
        ("[task]", "[engine]\nkind = 'locl'\n[task]", ["[engine] kind = 'locl'", 'did you mean "local"?']),
        ("[task]", "[server]\nkind = 'adm'\n[task]", ["[server] kind = 'adm'", 'did you mean "adam"?']),
        ("[task]", "[sampling]\nkind = 'x'\n[task]", ["[sampling] kind = 'x'", '"poisson" or "fixed"']),
        ("[sites]", "[sites]\nkind = 'by-column'\n", ["[sites] count is not known"]),
        ("count = 3", 'kind = "by-column"', ['[sites] kind = "by-column"', "simulated"]),
        ("[task]", "[data]", ["is not TOML"]),
        ("rounds = 2", "rounds = ", ["is not TOML", "line 2"]),
        ('[task]\nkind = "logistic-hazard"\nhidden = [3]\ncuts = 3\n', "", ["[task] is missing"]),
        ("count = 3", "count = 40", ["count = 40 is not allowed: 64 records are too few"]),
        ('"logistic-hazard"', '"nowhere:Task"', ["[task] kind = 'nowhere:Task' cannot be loaded"]),
        ('"logistic-hazard"', '"json:dumps"', ["[task] kind = 'json:dumps'", "dataclass"]),
        ('"logistic-hazard"', '"json:Task"', ["[task] kind = 'json:Task' cannot be loaded"]),
    ],
)
def test_a_mistake_in_the_file_is_named(folder: Path, old: str, new: str, said: list[str]):
    assert old in SIMULATED
    err = refused(folder, "run", write(folder, SIMULATED.replace(old, new, 1)))
    for words in said:
        assert words in err


@pytest.mark.parametrize("promise", ["", PRIVATE], ids=["open", "private"])
@pytest.mark.parametrize(
    ("text", "frame", "said"),
    [
        (BY_COLUMN, lambda: PATIENTS.drop(columns="time"), ["column time is missing", "site aker"]),
        (
            BY_COLUMN,
            lambda: PATIENTS.rename(columns={"event": "evnet"}),
            ['column event is missing in site aker (did you mean "evnet"?)'],
        ),
        (
            BY_COLUMN,
            lambda: PATIENTS.rename(columns={"site": "sites"}),
            ['column site is missing in patients.csv (did you mean "sites"?)'],
        ),
        (
            DEALT,
            lambda: PATIENTS.rename(columns={"time": "tim"}),
            ['column time is missing in patients.csv (did you mean "tim"?)'],
        ),
        (BY_COLUMN, lambda: changed(4, "x2", np.nan), ["x2 in site bergen is not allowed: 1 of 20 records"]),
        (BY_COLUMN, lambda: changed(3, "time", np.inf), ["time in site oslo is not allowed: 1 of 20"]),
        (BY_COLUMN, lambda: changed(5, "event", np.nan), ["event in site aker is not allowed: 1 of 20"]),
        (DEALT, lambda: changed(5, "x1", np.nan), ["x1 in patients.csv is not allowed: 1 of 60 records"]),
        (BY_COLUMN, lambda: PATIENTS.assign(x3="high"), ["x3 in site aker does not hold numbers", "'high'"]),
        (DEALT, lambda: PATIENTS.assign(x3="high"), ["x3 in patients.csv does not hold numbers", "'high'"]),
        (BY_COLUMN, lambda: PATIENTS.assign(event="yes"), ["event in site aker does not hold numbers"]),
        (BY_COLUMN, lambda: changed(3, "time", 0.0), ["time in site oslo is not allowed: 1 of 20 records"]),
        (BY_COLUMN, lambda: changed(3, "time", -2.0), ["time in site oslo is not allowed"]),
        (BY_COLUMN, lambda: competing("bergen"), ["event in site bergen is not allowed", "1 (happened)"]),
        (BY_COLUMN, lambda: PATIENTS.iloc[:0], []),
        (BY_COLUMN, lambda: PATIENTS.iloc[[*range(0, 60, 3), 1]], ["site bergen holds one record"]),
        (BY_COLUMN, lambda: censored("bergen"), ["event in site bergen is not allowed: all "]),
        (BY_COLUMN, lambda: censored("oslo", "bergen", "aker"), ["event in site aker is not allowed: all "]),
        (DEALT, lambda: censored("oslo", "bergen", "aker"), ["event in site site-1 is not allowed: all "]),
        (BY_COLUMN, lambda: changed(7, "site", None), ["column site in patients.csv", "have no site"]),
        (BY_COLUMN, lambda: PATIENTS.assign(site=" oslo"), ["site = ' oslo' is not allowed"]),
        (BY_COLUMN, lambda: PATIENTS.assign(site="a@b"), ["site = 'a@b' is not allowed"]),
        (DEALT, lambda: PATIENTS.iloc[:7], ["count = 4 is not allowed", "records are too few"]),
        (BY_COLUMN, lambda: PATIENTS[["time", "event", "site"]], ["features = 'no column' is not allowed"]),
        (BY_COLUMN, lambda: None, ["patients.csv cannot be read: No such file or directory"]),
        (
            BY_COLUMN.replace("patients.csv", "patients.xls"),
            lambda: PATIENTS,
            ["patients.xls is not allowed", '".xlsm" or ".parquet"', "save the sheet as .xlsx or CSV"],
        ),
        (
            BY_COLUMN.replace('path = "patients.csv"', ""),
            lambda: PATIENTS,
            ["[data]", "path is missing: give text"],
        ),
        (
            BY_COLUMN.replace("[sites]", 'test = "t.csv"\n[sites]'),
            lambda: PATIENTS,
            ["t.csv cannot be read: No such file or directory"],
        ),
    ],
    ids=[
        "no time", "misspelled event", "misspelled site", "misspelled time", "NaN feature", "infinite time",
        "NaN event", "NaN in one table", "text", "text in one table", "text event", "time zero",
        "negative time", "competing event", "header only", "one record", "all censored at one site",
        "all censored everywhere", "all censored in one table", "no site", "blank name", "name with @",
        "too many sites", "no features", "no file", "spreadsheet", "no path", "no test file",
    ],
)  # fmt: skip
def test_a_mistake_in_the_data_is_named_with_its_place(
    folder: Path, text: str, frame: Frame, said: list[str], promise: str
):
    # Private records are not dealt out; a rehearsal may look at them, and finds the same mistakes.
    told = REHEARSAL if promise and text == DEALT else promise
    err = refused(folder, "run", write(folder, text + told, frame()))
    # Of private records the owner alone is told more than the column and the rule.
    details = folder / "patients.csv.refused.txt"
    assert details.exists() == ("details are in" in err)
    assert not details.exists() or told == PRIVATE
    known = details.read_text() if details.exists() else err
    for words in said:
        assert words in known


@pytest.mark.parametrize("verb", ["plan", "run"])
def test_private_records_are_not_dealt_out_to_sites_that_are_none(folder: Path, verb: str):
    err = refused(folder, verb, write(folder, DEALT + PRIVATE, PATIENTS))
    assert "[sites] count = 4 cannot keep a promise about single records of patients.csv" in err
    assert 'kind = "by-column"' in err
    assert "rehearsal" in err


def changed(row: int, column: str, value: object) -> pd.DataFrame:
    frame = PATIENTS.astype({column: object})
    frame.loc[row, column] = value
    return frame


def censored(*sites: str) -> pd.DataFrame:
    return PATIENTS.assign(event=np.where(PATIENTS["site"].isin(sites), 0, PATIENTS["event"]))


def competing(site: str) -> pd.DataFrame:
    return PATIENTS.assign(event=np.where(PATIENTS["site"] == site, 2 * PATIENTS["event"], PATIENTS["event"]))


def test_a_csv_file_that_is_none_is_named(folder: Path):
    path = write(folder, BY_COLUMN)
    for content, said in ((b"", "No columns"), (b"\xff\xfe\x00", "utf-8")):
        (folder / "patients.csv").write_bytes(content)
        err = refused(folder, "run", path)
        assert f"{folder / 'patients.csv'} cannot be read" in err
        assert said in err


def test_an_experiment_that_is_not_there_or_no_text_is_named(folder: Path):
    assert "nowhere.toml cannot be read: No such file" in refused(folder, "run", str(folder / "nowhere.toml"))
    (folder / "trial.toml").write_bytes(b"name = '\xff\xfe'")
    assert "trial.toml is not TOML" in refused(folder, "run", str(folder / "trial.toml"))
    assert "experiment.toml cannot be read" in refused(folder, "run", str(folder))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("rounds", "--set rounds is not allowed: it must be table.key=value"),
        ("=3", "--set =3 is not allowed: it must be table.key=value"),
        ("", "is not allowed: it must be table.key=value"),
        ("rounds.more=3", "--set rounds.more=3 is not allowed: rounds is not a table"),
        ("task.stepps=3", '[task] stepps is not known (did you mean "steps"?)'),
        ("tsak.steps=3", 'tsak is not known (did you mean "task"?)'),
        ("round=3", 'round is not known (did you mean "rounds"?)'),
        ("task.steps=many", "[task] steps = 'many' is not allowed"),
        ("task.steps=", "[task] steps = '' is not allowed"),
        ("task.steps=0", "[task] steps = 0 is not allowed"),
        ("task=3", "task = 3 is not allowed: it must be a table, [task]"),
        ("task.kind=deep", "[task] kind = 'deep' is not allowed"),
        ("data.records=[1", "[data] records = '[1' is not allowed"),
    ],
)
def test_a_change_that_makes_no_sense_is_named(folder: Path, change: str, said: str):
    path = write(folder, SIMULATED)
    assert said in refused(folder, "run", path, "--set", change)
    assert said in refused(folder, "plan", path, "--set", change)


def test_the_last_of_several_bad_changes_is_found_too(folder: Path):
    path = write(folder, SIMULATED)
    err = refused(folder, "run", path, "--set", "rounds=1", "--set", "seed=3", "--set", "task.lr=fast")
    assert "[task] lr = 'fast' is not allowed" in err


def test_an_unknown_engine_is_refused(folder: Path):
    assert "[engine] kind = 'flwr'" in refused(folder, "run", write(folder, SIMULATED), "--engine", "flwr")


def test_a_private_run_pays_for_its_time_grid(folder: Path):
    text = BY_COLUMN.replace("horizon = 3.0", "") + PRIVATE
    out = folder / "paid"
    code, _, err = tacit(
        "run", write(folder, text, PATIENTS), "--set", "privacy.epsilon=200", "--out", str(out)
    )
    assert code == 0, err
    assert "time grid" in tacit("ledger", str(out / "ledger.db"))[1]


def test_a_private_run_may_not_score_on_private_records(folder: Path):
    text = BY_COLUMN.replace("[sites]", "held_out = 0.2\n[sites]") + PRIVATE
    assert "the scores on held-out records" in refused(folder, "run", write(folder, text, PATIENTS))


def test_a_run_that_is_no_run_is_not_shown(folder: Path):
    path = write(folder, SIMULATED)
    for place in (str(folder / "nowhere"), str(folder), path):
        err = refused(folder, "show", place)
        assert f"{place} is not a run" in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("list nonsense", "nonsense"),
        ("new poetry", "poetry"),
        ("run", "Missing argument"),
        ("run a.toml --fast", "--fast"),
    ],
)
def test_a_word_that_the_command_does_not_know_exits_with_2(words: str, said: str):
    code, out, err = tacit(*words.split())
    assert (code, out) == (2, "")
    assert said in err
    assert os.listdir() == []


def test_a_relative_path_is_relative_to_the_experiment_file(folder: Path):
    path = write(folder, BY_COLUMN, PATIENTS)
    PATIENTS.iloc[:0].to_csv("patients.csv", index=False)
    code, out, err = tacit("run", path, "--json")
    assert code == 0, err
    assert json.loads(out)["scores"].keys() == {"c_index", "ibs"}
    kept = tomllib.loads((Path(json.loads(out)["run"]) / "experiment.toml").read_text())
    assert Path(kept["data"]["path"]) == folder / "patients.csv"


def test_an_absolute_path_stays_as_it_is(folder: Path, tmp_path: Path):
    PATIENTS.to_csv(tmp_path / "elsewhere.csv", index=False)
    code, _, err = tacit(
        "run", write(folder, BY_COLUMN.replace("patients.csv", str(tmp_path / "elsewhere.csv"))), "-q"
    )
    assert (code, err) == (0, "")


def test_to_run_twice_makes_two_directories_with_the_same_result(folder: Path):
    path = write(folder, SIMULATED + REHEARSAL)
    first, second = (json.loads(tacit("run", path, "--json")[1]) for _ in range(2))
    assert first["run"] != second["run"]
    assert sorted(os.listdir("runs")) == sorted(Path(done["run"]).name for done in (first, second))
    assert {**first, "run": None} == {**second, "run": None}
    for done in (first, second):
        assert (Path(done["run"]) / "ledger.db").is_file()
        assert not (Path(done["run"]) / "secret.key").exists()


def test_another_choice_makes_another_directory(folder: Path):
    path = write(folder, SIMULATED)
    first, second = (
        json.loads(tacit("run", path, "--json", "--set", f"seed={seed}")[1])["run"] for seed in (1, 2)
    )
    assert Path(first).name.removesuffix("-2") != Path(second).name.removesuffix("-2")


def test_a_directory_that_holds_a_run_is_not_run_over(folder: Path):
    path = write(folder, SIMULATED)
    assert tacit("run", path, "--out", "mine", "-q")[0] == 0
    before = files_below(Path("mine"))
    code, out, err = tacit("run", path, "--out", "mine")
    assert (code, out) == (2, "")
    assert "mine exists already" in err
    assert files_below(Path("mine")) == before


def test_a_new_file_can_be_planned_as_it_is_and_is_never_overwritten(folder: Path):
    assert tacit("new", "survival")[:2] == (0, "survival.toml\n")
    assert tacit("plan", "survival.toml")[0] == 0
    Path("survival.toml").write_text("mine")
    code, out, err = tacit("new", "survival")
    assert (code, out) == (2, "")
    assert "survival.toml exists already" in err
    assert Path("survival.toml").read_text() == "mine"
    assert json.loads(tacit("new", "survival", "--json")[1])["error"]["exit_code"] == 2


def test_a_run_is_shown_alone_and_several_side_by_side(folder: Path):
    path = write(folder, SIMULATED + REHEARSAL)
    runs = []
    for name, epsilon in (("first", 3), ("second", 1)):
        words = ("--set", f"name={name}", "--set", f"privacy.epsilon={epsilon}", "--json")
        runs.append(json.loads(tacit("run", path, *words)[1]))
    code, out, err = tacit("show", runs[0]["run"])
    assert (code, err) == (0, "")
    for word in ("first", "logistic-hazard", "C-index", "federated", "REHEARSAL", "Not protected"):
        assert word in out
    code, out, err = tacit("show", *(run["run"] for run in runs))
    assert (code, err) == (0, "")
    lines = [line.split() for line in out.splitlines() if line]
    (top,) = [place for place, line in enumerate(lines) if line[0] == "run"]
    rows = {name: list(cells) for name, *cells in zip(lines[top], *lines[top + 2 : top + 4], strict=True)}
    assert [Path(name).name.partition("-")[0] for name in rows["run"]] == ["first", "second"]
    assert rows["C-index"] == [f"{run['scores']['c_index']:.4f}" for run in runs]
    assert rows["epsilon"] == [f"{run['privacy']['epsilon']:.4g}" for run in runs]
    assert max(map(len, out.splitlines())) <= 80
    assert json.loads(tacit("show", *(run["run"] for run in runs), "--json")[1]) == {"runs": runs}


def test_what_a_run_prints_as_json_is_what_scripts_count_on(folder: Path):
    code, out, _ = tacit("run", write(folder, SIMULATED + REHEARSAL), "--json")
    told = json.loads(out)
    assert code == 0
    assert told["rounds"] == 2
    assert told["scores"].keys() == told["baselines"]["alone"].keys() == {"c_index", "ibs"}
    assert told["baselines"].keys() == {"alone", "pooled"}
    assert told["privacy"]["epsilon"] <= 3
    assert (told["privacy"]["unit"], told["privacy"]["delta"]) == ("record", 1e-5)
    assert (told["privacy"]["relation"], told["privacy"]["rehearsal"]) == ("add-remove", True)


@pytest.mark.parametrize(
    ("what", "names"),
    [
        ("tasks", ["logistic-hazard"]),
        ("data", ["simulated", "csv", *DESIGNS]),
        ("splits", ["iid", "non-iid", "time-non-iid", "dirichlet", "by-column"]),
        ("aggregators", ["mean"]),
    ],
)
def test_everything_there_is_to_choose_from_is_listed_with_one_line(what: str, names: list[str]):
    code, out, err = tacit("list", what)
    assert (code, err) == (0, "")
    told = json.loads(tacit("list", what, "--json")[1])
    assert len(out.splitlines()) == len(told)
    for name in names:
        line = next(line for line in out.splitlines() if line.startswith((name, f"simulated, {name}")))
        assert len(line.split()) > 3
    assert all(told.values())


OWN_TASK = '''
from dataclasses import dataclass
from tacit.survival import LogisticHazard

@dataclass(frozen=True, kw_only=True)
class Guess(LogisticHazard):
    """Scores whatever it is told to."""

    guess: float = 0.25

    def score(self, state, held_out):
        return {"c_index": self.guess, "records": float(len(held_out))}
'''


def test_a_task_of_ones_own_lies_beside_its_experiment_file(folder: Path):
    (folder / "own_guess.py").write_text(OWN_TASK)
    text = SIMULATED.replace('"logistic-hazard"', '"own_guess:Guess"\nguess = 0.75')
    code, out, err = tacit("run", write(folder, text), "--json")
    assert code == 0, err
    assert json.loads(out)["scores"] == {"c_index": 0.75, "records": 16.0}
    err = refused_beside(folder, text.replace("guess =", "gues ="))
    assert '[task] gues is not known (did you mean "guess"?)' in err
    err = refused_beside(folder, text.replace("own_guess:Guess", "own_guess:Gess"))
    assert "[task] kind = 'own_guess:Gess' cannot be loaded" in err


def refused_beside(folder: Path, text: str) -> str:
    code, out, err = tacit("run", write(folder, text))
    assert (code, out) == (2, "")
    return err
