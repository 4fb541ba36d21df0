"""Reports say no more than what is proven, whatever became of a ledger, and wherever a run was cut off."""

import json
import shutil
import sqlite3
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tacit.cli import reporting
from tacit.compat.export import export
from tacit.experiments import experiment, sweeps
from tacit.privacy.ledger.store import Ledger
from tacit.reports.page.markdown import markdown
from tacit.runs.directory import STATEMENT

FILE = """name = "patients"
rounds = 3
[data]
kind = "csv"
path = "patients.csv"
time = "days"
event = "death"
[sites]
kind = "by-column"
column = "hospital"
[task]
kind = "poisson-ph"
horizon = 4.0
steps = 1
[privacy]
unit = "record"
epsilon = 2.0
delta = 1e-5
clip = 1.0
"""


class Stopped(BaseException):
    """The machine went down."""


@pytest.fixture
def folder(tmp_path) -> Path:
    draws = np.random.default_rng(1)
    frame = pd.DataFrame(draws.normal(size=(90, 2)), columns=["a", "b"])
    frame["days"], frame["death"] = draws.exponential(2, 90), draws.integers(0, 2, 90)
    frame["hospital"] = [f"h{place % 3}" for place in range(90)]
    frame.to_csv(tmp_path / "patients.csv", index=False)
    (tmp_path / "patients.toml").write_text(FILE)
    return tmp_path


def ran(folder: Path, name: str, *changes: str) -> Path:
    experiment.read(folder / "patients.toml", changes).run(folder / name)
    return folder / name


def told(run: Path) -> dict:
    return dict(reporting.page([run]).document)


def words(run: Path) -> str:
    return markdown(reporting.page([run])) + markdown(reporting.data_protection(run))


def stops(run: Path) -> str:
    return " ".join(alert["words"] for alert in told(run)["alerts"] if alert["tone"] == "stop")


def test_a_private_run_needs_no_alert_and_says_what_running_it_again_costs(folder):
    run = ran(folder, "run")
    assert told(run)["alerts"] == []
    assert "its epsilon adds to the price" in told(run)["reproduce"]["caution"]
    assert str(folder) not in json.dumps(told(run)["reproduce"]["experiment"])
    assert 'path = "patients.csv"' in told(run)["reproduce"]["experiment"]


def test_whoever_held_all_records_on_one_machine_is_not_called_blind(folder):
    found = markdown(reporting.data_protection(ran(folder, "run")))
    assert "all on one machine" in found
    assert "everything: all data were on its machine" in found
    assert "Sites sent no raw data" not in found


def damaged(run: Path) -> None:
    with sqlite3.connect(run / "ledger.db") as file:
        file.execute("DROP TRIGGER stay")
        file.execute("UPDATE entries SET body = replace(body, '1e-05', '2e-05') WHERE number = 2")
        file.execute("UPDATE entries SET body = replace(body, 'round 1', 'round 9') WHERE number = 4")


def missing(run: Path) -> None:
    (run / "ledger.db").unlink()


def foreign(run: Path) -> None:
    shutil.copy(ran(run.parent, "other", "rounds=2") / "ledger.db", run / "ledger.db")


@pytest.mark.parametrize("harm", [damaged, missing, foreign])
def test_without_its_ledger_nothing_is_proven_of_a_run(folder, harm):
    run = ran(folder, "run")
    harm(run)
    assert "The ledger does not verify" in stops(run)
    assert told(run)["promise"]["epsilon"] is None
    said = words(run)
    assert "Nothing was charged" not in said
    assert "The ledger was charged before every release" not in said
    assert "it does not show what was charged" in said
    assert reporting.data_protection(run).document["protects"] is False
    export(experiment.load(run), folder / "export")
    card = json.loads((folder / "export" / "card.json").read_text())
    assert card["privacy"]["epsilon"] is None
    assert any("does not verify" in alert for alert in card["alerts"])


def test_a_price_that_somebody_wrote_smaller_is_that_of_the_ledger(folder):
    run = ran(folder, "run")
    true = told(run)["promise"]["epsilon"]
    said = json.loads((run / STATEMENT).read_text())
    (run / STATEMENT).write_text(json.dumps({**said, "epsilon": 0.1}))
    assert told(run)["promise"]["epsilon"] == true
    assert "it states epsilon 0.1 at delta 1e-05" in stops(run)
    (run / STATEMENT).write_text(json.dumps({**said, "epsilon": 5.0}))
    assert "it states epsilon 5 at delta 1e-05" in stops(run)


def test_a_ledger_that_others_were_charged_on_tells_what_all_of_it_cost(folder):
    run = ran(folder, "run")
    before = told(run)["promise"]["epsilon"]
    with Ledger(run / "ledger.db") as ledger:
        ledger.allow(epsilon=10.0, delta=1e-5)
        ledger.charge([release for release in ledger.releases() if release.subject == "records@h1"])
    found = told(run)
    assert found["promise"]["epsilon"] > 1.1 * before
    assert "charged for more" in found["alerts"][0]["words"]
    assert "The run had a budget" not in words(run)


def test_a_run_that_was_cut_off_tells_what_left_so_far_and_not_what_was_planned(folder):
    def stop(entry):
        if entry.number == 2:
            raise Stopped

    asked = experiment.read(folder / "patients.toml")
    with pytest.raises(Stopped):
        asked.run(folder / "run", callbacks=[stop])
    found = told(folder / "run")
    assert found["left"]["released"][-1].startswith("2 noisy sums over the records of each of 3 sites")
    assert any(alert["words"].endswith("the state after 2 rounds.") for alert in found["alerts"])
    spent = found["ledger"]["epsilon"]
    assert f"epsilon {spent:.3g} of {found['promise']['planned']:.3g} spent" in words(folder / "run")


def test_what_left_bare_is_known_before_a_run_is_over(folder):
    def stop(entry):
        raise Stopped

    changes = ["privacy.rehearsal=true", "data.held_out=0.3"]
    with pytest.raises(Stopped):
        experiment.read(folder / "patients.toml", changes).run(folder / "run", callbacks=[stop])
    assert "held-out records" in " ".join(told(folder / "run")["left"]["bare"])


def test_a_resumed_run_has_the_statement_of_an_undisturbed_one(folder):
    def stop(entry):
        raise Stopped

    path = folder / "simulated.toml"
    path.write_text(
        'rounds = 2\n[data]\nrecords = 200\nfeatures = 2\n[task]\nkind = "logistic-hazard"\ncuts = 4\n'
    )
    whole = experiment.read(path).run(folder / "whole")
    with pytest.raises(Stopped):
        experiment.read(path).run(folder / "cut", callbacks=[stop])
    again = experiment.read(folder / "cut").run(folder / "cut", resume=True)
    assert again.privacy == whole.privacy


def test_a_sweep_in_the_open_says_what_it_let_out(folder):
    changes = ["task.lr=0.1,0.5", "rounds=1", "data.held_out=0.3"]
    open_file = folder / "open.toml"
    open_file.write_text(FILE.partition("[privacy]")[0])
    done = sweeps.read(open_file, changes, seeds=1).run(folder / "sweep")
    assert done.alerts()[0]["tone"] == "stop"
    assert "each site's model update" in done.alerts()[0]["words"]
