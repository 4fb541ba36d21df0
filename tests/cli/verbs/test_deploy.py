"""Deploying by the command line, as a statistician and a hospital's administrator meet it."""

import json
import shutil
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import tomli_w
from typer.testing import CliRunner

from tacit.cli.app import app

ROOT = Path(__file__).parents[3]
HOSPITALS = str(ROOT / "examples" / "hospitals.toml")
RECORDS = 60
TASK: dict[str, Any] = {"kind": "poisson-ph", "horizon": 50.0, "cuts": 4, "steps": 2, "sample": 0.2}
PRIVACY: dict[str, Any] = {"unit": "record", "epsilon": 1.0, "delta": 1e-5, "clip": 1.0}
TABLE: dict[str, Any] = {
    "name": "trial",
    "rounds": 2,
    "data": {"kind": "csv", "path": "records.csv", "leave": ["patient"], "levels": {"grade": ["I", "II"]}},
    "sites": {"kind": "by-column", "column": "hospital"},
    "task": TASK,
    "privacy": PRIVACY,
}
CURVES: dict[str, Any] = {
    "name": "gait",
    "data": {
        "kind": "held-curves",
        "domains": {"knee": [0.0, 1.0], "y": [0.0, 1.0]},
        "records": 40,
        "test": "held-out",
    },
    "sites": {"kind": "columns", "parties": {"lab": ["knee"], "clinic": ["y"]}},
    "task": {"kind": "functional-boosting", "protect": "all"},
    "privacy": PRIVACY,
}


def tacit(*words: object) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert "a bug of ours" not in done.stderr
    return done.exit_code, done.stdout, done.stderr


def records() -> pd.DataFrame:
    draw = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "hospital": draw.choice(["oslo", "bergen"], RECORDS),
            "patient": [f"Patient{number}" for number in range(RECORDS)],
            "age": draw.normal(60, 10, RECORDS),
            "grade": draw.choice(["I", "II"], RECORDS),
            "time": 0.1 + draw.exponential(20, RECORDS),
            "event": draw.integers(0, 2, RECORDS),
        }
    )


def written(folder: Path, document: dict[str, Any], **tables: dict[str, Any] | None) -> Path:
    """An experiment file, with some of its tables changed; beside it are the records."""
    changed = {name: {**document.get(name, {}), **(table or {})} for name, table in tables.items()}
    (folder / "trial.toml").write_text(tomli_w.dumps({**document, **changed}))
    records().to_csv(folder / "records.csv", index=False)
    return folder / "trial.toml"


@pytest.fixture(scope="module")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders that `tacit deploy` writes, with the records of Oslo in place."""
    folder = tmp_path_factory.mktemp("deployed")
    file = written(folder, TABLE)
    code, out, _ = tacit("deploy", file, "--sites", "oslo,bergen", "--host", "a.org", "--out", folder / "out")
    assert (code, out.count("for this site only")) == (0, 2)
    oslo = folder / "out" / "sites" / "oslo"
    records().to_csv(oslo / "data" / "records.csv", index=False)
    text = (oslo / "site.toml").read_text()
    (oslo / "site.toml").write_text(text.replace("# [data]\n# path", "[data]\npath"))
    return folder / "out"


@pytest.fixture
def oslo(deployed: Path, tmp_path: Path) -> Path:
    """A site's folder that a test may spoil."""
    return Path(shutil.copytree(deployed / "sites" / "oslo", tmp_path / "oslo"))


def experiment(deployed: Path) -> Path:
    return deployed / "coordinator" / "experiment.toml"


def edited(site: Path, old: str, new: str) -> None:
    text = (site / "site.toml").read_text()
    assert old in text
    (site / "site.toml").write_text(text.replace(old, new))


def wrong(site: Path, *more: object) -> list[str]:
    """List the failed checks of `tacit site check`, without those that a single user cannot pass."""
    code, out, said = tacit("site", "check", site, *more, "--json")
    told = json.loads(out)
    found = [entry for entry in told["findings"] if not entry["ok"]]
    assert (code, said.strip()) == (
        (0, "the site is ready") if told["ready"] else (2, "the site is not ready")
    )
    assert all(entry["mend"] for entry in found)
    return [entry["what"] for entry in found if "the same user" not in entry["what"]]


def test_a_table_is_deployed_without_any_of_its_records(deployed: Path):
    document = tomllib.loads(experiment(deployed).read_text())
    assert document["data"] == {
        "kind": "held-records",
        "columns": ["age", "grade"],
        "time": "time",
        "event": "event",
        "levels": {"grade": ["I", "II"]},
    }
    assert document["sites"] == {"kind": "named", "names": ["oslo", "bergen"]}
    handed_out = [file for file in deployed.rglob("*") if file.is_file() and file.parent.name != "data"]
    assert not any(b"Patient7" in file.read_bytes() for file in handed_out)
    assert tacit("plan", experiment(deployed))[0] == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "--sites is missing"),
        (("--sites", ","), "--sites is missing"),
        (("--sites", "oslo,oslo"), "[sites] names = ['oslo', 'oslo'] is not allowed"),
        (("--sites", "oslo,coordinator"), "[sites] names = 'coordinator' is not allowed"),
        (("--sites", "oslo,a@b"), "[sites] names = 'a@b' is not allowed"),
        (("--sites", "../../oslo,bergen"), "[sites] names = '../../oslo' is not allowed"),
        (("--sites", "a b,a-b"), "names that differ in more than signs and case"),
        (("--sites", f"{'o' * 300},bergen"), "at most 60 characters"),
        (("--sites", "oslo,bergen", "--host", "a.org:8443"), "host = 'a.org:8443' is not allowed"),
        (("--sites", "oslo,bergen", "--port", "70000"), "port = 70000 is not allowed"),
        (("--sites", "oslo,bergen", "--days", "0"), "days = 0 is not allowed"),
        (("--sites", "oslo,bergen", "--set", "rounds=200000"), "rounds = 200000 is not allowed"),
        (("--sites", "oslo,bergen", "--set", "data.standardize=true"), "standardize = true needs means"),
        (("--sites", "oslo,bergen", "--set", "data.leave=[]"), "column 'patient' holds words"),
        (("--sites", "oslo,bergen", "--set", 'data.test="gone.csv"'), "gone.csv' is not there"),
        (("--sites", "oslo,bergen", "--set", 'privacy.noise="secure"'), "does not go with poisson-ph"),
        (("--sites", "oslo,bergen", "--set", 'task={kind="deep-surv"}'), "cannot protect single records"),
        (("--sites", "oslo,bergen", "--set", "study.seeds=3"), "it has a table [study]"),
        (("--sites", "oslo,bergen", "--set", "stop.patience=2"), "[stop] has no held-out records"),
        (("--rehearse",), "declare it, --set privacy.rehearsal=true"),
        (("--rehearse", "--sites", "oslo,bergen"), "a rehearsal takes a number of sites"),
        (("--rehearse", "--sites", "²"), "a rehearsal takes a number of sites"),
    ],
)
def test_what_cannot_be_deployed_is_refused_and_leaves_nothing_behind(
    tmp_path: Path, words: tuple[str, ...], said: str
):
    file, out = written(tmp_path, TABLE), tmp_path / "out"
    code, told, heard = tacit("deploy", file, "--out", out, *words, "--json")
    assert (code, json.loads(told)["error"]["exit_code"]) == (2, 2)
    assert said in heard
    assert not out.exists()


@pytest.mark.parametrize(
    "rule", [{"kind": "own_rule:Mine"}, {"kind": "mixing", "then": {"kind": "own_rule:Mine"}}]
)
def test_own_code_is_not_deployed(tmp_path: Path, rule: dict[str, Any]):
    (tmp_path / "own_rule.py").write_text(
        "from tacit.aggregation.robust.coordinatewise import TrimmedMean\nclass Mine(TrimmedMean): pass\n"
    )
    file = written(tmp_path, {**TABLE, "aggregation": rule})
    code, _, said = tacit("deploy", file, "--sites", "oslo,bergen", "--out", tmp_path / "out")
    assert (code, "is your own code, which no site loads" in said) == (2, True)


def test_data_at_sites_cannot_be_rehearsed(tmp_path: Path):
    code, _, said = tacit("deploy", "--rehearse", HOSPITALS, "--out", tmp_path / "out")
    assert (code, "is at the sites, and a rehearsal distributes data" in said) == (2, True)


def test_nothing_is_written_into_a_folder_that_holds_something(tmp_path: Path):
    (tmp_path / "full").mkdir(mode=0o755)
    (tmp_path / "full" / "mine.txt").write_text("mine")
    (tmp_path / "file").write_text("mine")
    for out in ("full", "file"):
        code, _, said = tacit("deploy", HOSPITALS, "--out", tmp_path / out)
        assert (code, f"{tmp_path / out}" in said) == (2, True)
        rehearsed = ("--rehearse", ROOT / "examples" / "network.toml", "--out", tmp_path / out)
        assert tacit("deploy", *rehearsed)[0] == 2
    assert [file.name for file in (tmp_path / "full").iterdir()] == ["mine.txt"]
    assert (tmp_path / "full").stat().st_mode & 0o777 == 0o755


def test_public_records_go_to_the_coordinator_each_under_its_own_name(tmp_path: Path):
    for folder, rows in (("a", 30), ("b", 40)):
        (tmp_path / folder).mkdir()
        records().head(rows).to_csv(tmp_path / folder / "public.csv", index=False)
    held = {"kind": "held-records", "columns": ["age"], "test": "a/public.csv", "reference": "b/public.csv"}
    sites = {"kind": "named", "names": ["oslo"]}
    file = written(tmp_path, {**TABLE, "data": held, "sites": sites})
    assert tacit("deploy", file, "--out", tmp_path / "out")[0] == 0
    place = tmp_path / "out" / "coordinator"
    document = tomllib.loads((place / "experiment.toml").read_text())
    assert len(pd.read_csv(place / document["data"]["test"])) == 30
    assert len(pd.read_csv(place / document["data"]["reference"])) == 40
    assert (
        "test" not in tomllib.loads((tmp_path / "out" / "sites" / "oslo" / "site.toml").read_text())["agreed"]
    )


def test_curves_to_score_on_are_a_folder(tmp_path: Path):
    (tmp_path / "held-out").mkdir()
    for name in ("knee", "y"):
        times = {f"{time:g}": [1.0, 2.0, 4.0] for time in (0.0, 0.5, 1.0)}
        pd.DataFrame(times).to_csv(tmp_path / "held-out" / f"{name}.csv", index=False)
    assert tacit("deploy", written(tmp_path, CURVES), "--out", tmp_path / "out")[0] == 0
    place = tmp_path / "out" / "coordinator"
    assert tomllib.loads((place / "experiment.toml").read_text())["data"]["test"] == "public/test"
    assert sorted(file.name for file in (place / "public" / "test").iterdir()) == ["knee.csv", "y.csv"]


def test_a_site_is_ready_once_its_table_is_filled_in(deployed: Path, oslo: Path):
    assert wrong(oslo) == []
    assert wrong(oslo, "--experiment", experiment(deployed)) == []
    assert wrong(deployed / "sites" / "bergen") == ["site.toml does not give the place of the records"]
    edited(oslo, "epsilon = 1.0", "epsilon = inf")
    assert tacit("site", "check", oslo, "-q")[0] == 0


def test_what_is_no_site_is_said_to_be_none(deployed: Path, oslo: Path, tmp_path: Path):
    assert wrong(tmp_path / "gone") == [
        f"{tmp_path / 'gone' / 'site.toml'} cannot be read: No such file or directory"
    ]
    assert "name the folder of a site" in tacit("site", "check", deployed / "coordinator")[1]
    assert wrong(oslo, "--experiment", tmp_path / "x.toml") == [
        f"{tmp_path / 'x.toml'} cannot be read: No such file or directory"
    ]
    (tmp_path / "x.toml").write_bytes(b"\xff\xfe")
    assert wrong(oslo, "--experiment", tmp_path / "x.toml") == [
        f"{tmp_path / 'x.toml'} cannot be read: it is not text"
    ]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('path = "data/records.csv"', 'path = "data/gone.csv"', "(No such file or directory)"),
        ('path = "data/records.csv"', 'path = "data"', "it must be a CSV or Parquet file"),
        ('path = "data/records.csv"', "path = 3", "[data] path = 3 is not allowed"),
        ('path = "data/records.csv"', 'file = "x"', "[data] file is not known"),
    ],
)
def test_data_that_are_not_there_are_found_without_an_experiment(oslo: Path, old: str, new: str, said: str):
    edited(oslo, old, new)
    (found,) = wrong(oslo)
    assert said in found


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda table: table.rename(columns={"age": "alder"}), 'its file has no column "age"'),
        (lambda table: table.assign(grade="Sarcoma77"), 'it must hold "I" or "II"'),
        (lambda table: table.assign(time=-77.25), "it must be above 0 in every record"),
        (lambda table: table.assign(age="Patient77"), "it must hold finite numbers"),
        (lambda table: table.head(7), "the site holds 7 records, and its limits require 20"),
    ],
)
def test_records_that_are_not_as_agreed_are_found_and_none_is_shown(
    deployed: Path, oslo: Path, spoil: Callable[[pd.DataFrame], pd.DataFrame], said: str
):
    spoil(records()).to_csv(oslo / "data" / "records.csv", index=False)
    for more in ((), ("--experiment", experiment(deployed))):
        (found,) = wrong(oslo, *more)
        assert said in found
        assert "77" not in found


def test_a_site_that_waits_for_its_administrator_is_not_ready_until_it_accepts(deployed: Path, oslo: Path):
    edited(oslo, "epsilon = 1.0", "epsilon = inf")
    (oslo / "state" / "unusable.txt").write_text("the reason\n")
    assert wrong(oslo) == [
        "the site answers no experiment, because its records could not be used: the reason"
    ]
    assert tacit("site", "accept", oslo, experiment(deployed))[0] == 0
    assert wrong(oslo) == []


def test_other_rules_are_refused_until_they_are_accepted(deployed: Path, oslo: Path, tmp_path: Path):
    document = tomllib.loads(experiment(deployed).read_text())
    document["data"] = {**document["data"], "columns": ["age"], "levels": {}}
    (tmp_path / "other.toml").write_text(tomli_w.dumps(document))
    (found,) = wrong(oslo, "--experiment", tmp_path / "other.toml")
    assert "[data] columns is not what this site's administrator has accepted" in found
    mode = (oslo / "site.toml").stat().st_mode
    code, out, said = tacit("site", "accept", oslo, tmp_path / "other.toml", "--json")
    assert (code, json.loads(out)["agreed"]["columns"]) == (0, ["age"])
    assert "restart the guard" in said
    assert wrong(oslo, "--experiment", tmp_path / "other.toml") == []
    assert (oslo / "site.toml").stat().st_mode == mode


def test_accepting_never_loses_what_the_administrator_has_written(deployed: Path, oslo: Path):
    edited(oslo, '[data]\npath = "data/records.csv"\n', "")
    with (oslo / "site.toml").open("a") as file:
        file.write('\n\n[data]\npath = "data/records.csv"\n')
    before = (oslo / "site.toml").read_text()
    assert wrong(oslo, "--experiment", experiment(deployed)) == []
    code, _, said = tacit("site", "accept", oslo, experiment(deployed))
    assert (code, "[agreed] must be the last table" in said) == (2, True)
    assert (oslo / "site.toml").read_text() == before


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"kind": "held-mine:Mine"}, "kind = 'held-mine:Mine' is not held by sites"),
        ({"kind": "csv", "path": "x.csv"}, "kind = 'csv' is not held by sites"),
        ({"kind": "held-records", "columns": []}, "columns = [] is not allowed"),
        ({}, "kind = None is not held by sites"),
    ],
)
def test_what_could_not_be_agreed_is_not_accepted(
    oslo: Path, tmp_path: Path, data: dict[str, Any], said: str
):
    (tmp_path / "other.toml").write_text(tomli_w.dumps({"data": data}))
    before = (oslo / "site.toml").read_text()
    code, _, told = tacit("site", "accept", oslo, tmp_path / "other.toml")
    assert (code, said in told) == (2, True)
    assert (oslo / "site.toml").read_text() == before


def test_keys_are_renewed_before_a_site_is_used_and_not_after(oslo: Path):
    code, line, _ = tacit("site", "renew", oslo)
    assert code == 0
    assert tomllib.loads(line)["oslo"] in (oslo / "site.toml").read_text()
    assert wrong(oslo) == []
    (oslo / "secret" / "entropy.key").write_bytes(bytes(32))
    (oslo / "secret" / "entropy.key").chmod(0o600)
    code, _, said = tacit("site", "renew", oslo)
    assert (code, "has been in use" in said) == (2, True)


def test_the_guard_says_why_it_does_not_start(oslo: Path, tmp_path: Path):
    assert "site.toml cannot be read" in tacit("site", "serve", tmp_path / "gone")[2]
    (oslo / "secret" / "identity.key").write_bytes(b"short")
    code, _, said = tacit("site", "serve", oslo)
    assert (code, "is not a key: it has 5 bytes" in said) == (2, True)


def test_what_sites_have_agreed_to_is_not_changed_for_a_run(deployed: Path):
    for words in (("--set", "rounds=3"), ("--engine", "local")):
        code, _, said = tacit("run", deployed / "coordinator", *words)
        assert (code, "is not allowed in a deployment" in said) == (2, True)
    assert list((deployed / "coordinator" / "runs").iterdir()) == []
