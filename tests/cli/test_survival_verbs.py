"""Survival experiments through the command: every model is planned and run, what is asked once is told."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from tacit.cli.app import app
from tacit.survival.tasks import LEARNERS

PRIVATE = '[privacy]\nunit = "record"\nepsilon = 8.0\ndelta = 1e-5\nclip = 1.0\n'
SIMULATED = '[data]\nkind = "simulated"\nrecords = 400\nfeatures = 4\n[sites]\ncount = 3\n'


def tacit(*words: str) -> tuple[int, str, str]:
    found = CliRunner().invoke(app, list(words))
    return found.exit_code, found.stdout, found.stderr


def task(kind: str) -> str:
    groups = (
        "" if kind in ("logistic-hazard", "pc-hazard", "poisson-ph", "deep-hit") else "groups_per_site = 20\n"
    )
    return f'[task]\nkind = "{kind}"\nsteps = 2\n{groups}' + ("ranking = 0.0\n" if kind == "deep-hit" else "")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("kind", LEARNERS)
def test_every_model_costs_what_was_planned_and_is_scored(folder: Path, kind: str):
    (folder / "trial.toml").write_text("rounds = 2\n" + SIMULATED + task(kind) + PRIVATE)
    code, out, err = tacit("plan", "trial.toml", "--json")
    assert code == 0, err
    planned = json.loads(out)["promise"]["epsilon"]
    code, out, err = tacit("run", "trial.toml", "--json")
    assert code == 0, err
    done = json.loads(out)
    assert done["privacy"]["epsilon"] == pytest.approx(planned, rel=1e-6)
    assert 7.5 < planned <= 8
    assert {"c_index", "ibs"} <= set(done["scores"])
    assert {"alone", "pooled"} == set(done["baselines"])


def test_what_is_asked_once_is_planned_charged_and_said(folder: Path):
    draw = np.random.default_rng(0)
    table = {
        "age": draw.normal(size=900),
        "time": draw.exponential(size=900) + 0.01,
        "site": ["a", "b", "c"] * 300,
    }
    pd.DataFrame(table | {"event": draw.integers(0, 2, 900)}).to_csv("patients.csv", index=False)
    data = '[data]\nkind = "csv"\npath = "patients.csv"\n[sites]\nkind = "by-column"\n'
    (folder / "trial.toml").write_text("rounds = 2\n" + data + task("cox-ph") + PRIVATE)
    code, said, err = tacit("plan", "trial.toml")
    assert code == 0, err
    assert "1 noisy sum, for the time grid, over" in said
    assert "1 noisy sum, for the baseline hazard, over" in said
    planned = json.loads(tacit("plan", "trial.toml", "--json")[1])["promise"]["epsilon"]
    code, out, err = tacit("run", "trial.toml", "--out", "run", "--json")
    assert code == 0, err
    assert json.loads(out)["privacy"]["epsilon"] == pytest.approx(planned, rel=1e-6)
    assert json.loads(out)["scores"] == {}
    assert any(
        "for the time grid" in line for line in json.loads(Path("run/statement.json").read_text())["released"]
    )
    shown = tacit("ledger", "run/ledger.db")[1]
    assert shown.count("time grid") == shown.count("baseline hazard") == 3


def test_a_published_set_runs_with_its_own_sites(folder: Path):
    data = '[data]\nkind = "rotterdam-gbsg"\n[sites]\nkind = "by-column"\n'
    (folder / "trial.toml").write_text("rounds = 2\n" + data + task("poisson-ph") + PRIVATE)
    assert tacit("plan", "trial.toml")[0] == 0
    code, out, err = tacit("run", "trial.toml", "--json")
    assert code == 0, err
    assert json.loads(out)["scores"]["c_index"] > 0.5
    assert "time grid" not in json.loads(out)["privacy"]


def test_coupled_losses_say_how_single_records_can_be_protected(folder: Path):
    (folder / "trial.toml").write_text(SIMULATED + '[task]\nkind = "deep-surv"\n' + PRIVATE)
    code, _, err = tacit("plan", "trial.toml")
    assert code == 2
    assert "deep-surv cannot protect single records" in err
    assert "groups_per_site" in err


def test_statistics_are_listed_planned_and_run_like_any_task(folder: Path):
    listed = json.loads(tacit("list", "tasks", "--json")[1])
    assert {"kaplan-meier", "cox"} <= set(listed)
    (folder / "curve.toml").write_text(SIMULATED + '[task]\nkind = "kaplan-meier"\nhorizon = 3.0\n' + PRIVATE)
    (folder / "cox.toml").write_text(SIMULATED + '[task]\nkind = "cox"\n')
    for name, score, rounds in (("curve", "ibs", 1), ("cox", "c_index", 4)):
        code, out, err = tacit("plan", f"{name}.toml", "--json")
        assert code == 0, err
        planned = json.loads(out)["promise"]["epsilon"]
        code, out, err = tacit("run", f"{name}.toml", "--json")
        assert code == 0, err
        done = json.loads(out)
        assert done["privacy"]["epsilon"] == (
            planned if planned is None else pytest.approx(planned, rel=1e-6)
        )
        assert (done["rounds"], set(done["scores"]), done["baselines"]) == (rounds, {score}, {})
    (folder / "cox.toml").write_text(SIMULATED + '[task]\nkind = "cox"\n' + PRIVATE)
    code, _, err = tacit("plan", "cox.toml")
    assert code == 2
    assert "cox cannot keep a promise" in err
