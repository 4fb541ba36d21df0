"""`tacit tune` as a person meets it: a table, a choice, one price; and one sentence where it cannot be."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tacit import Ledger
from tacit.cli.app import app
from tacit.survival.data import simulate

OPEN = """
name = "trial"
rounds = 4
[data]
records = 1500
features = 10
[sites]
count = 2
[task]
kind = "logistic-hazard"
hidden = []
cuts = 4
steps = 5
sample = 0.5
"""
CSV = OPEN.replace("records = 1500\nfeatures = 10", 'kind = "csv"\npath = "patients.csv"')
PRIVATE = (
    CSV.replace("sample = 0.5", "sample = 1.0").replace("count = 2", 'kind = "by-column"')
    + """
horizon = 3.0
[privacy]
unit = "record"
epsilon = 10.0
delta = 1e-5
clip = 1.0
"""
)
GRID = """
[tune]
"task.lr" = [1e-6, 0.5]
"task.activation" = ["relu", "tanh"]
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    patients = simulate("SDGM1", records=800, features=3, seed=1)
    patients.assign(site=["oslo", "voss"] * 400).to_csv("patients.csv", index=False)
    Path("open.toml").write_text(OPEN + GRID)
    Path("private.toml").write_text(PRIVATE + GRID)
    return tmp_path


def tacit(*words: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, list(words))
    return done.exit_code, done.stdout, done.stderr


def test_a_tuning_prints_its_candidates_its_choice_and_the_chosen_run(folder: Path):
    code, out, err = tacit("tune", "open.toml", "--out", "tuned", "--set", 'tune.task.activation=["relu"]')
    assert code == 0
    header, _, first, second, blank, chosen, by, lies, *summary = out.splitlines()
    assert header.split() == ["candidate", "task.lr", "task.activation", "C-index"]
    assert first.split()[:3] == ["candidate-1", "1e-06", "relu"]
    assert second.split()[:3] == ["candidate-2", "0.5", "relu"]
    assert blank == ""
    assert chosen == "chosen   candidate-2: task.lr = 0.5, task.activation = relu"
    assert by.startswith("by       the best C-index on one half of the held-out records")
    assert lies == "lies in  tuned/candidate-2"
    # The chosen run is shown as any run is.
    assert tacit("show", "tuned/candidate-2") == (0, "\n".join(summary).removeprefix("\n") + "\n", "")
    assert "candidate-1 of 2: task.lr = 1e-06, task.activation = relu\nround 1/4" in err
    assert err.endswith("saved tuned\n")


def test_the_document_of_a_private_tuning_has_no_exact_number_about_anybody(folder: Path):
    code, out, err = tacit("tune", "private.toml", "--json", "-q")
    found = json.loads(out)
    assert (code, err) == (0, "")
    assert set(found) == {"tuning", "candidates", "chosen", "by", "run", "rounds", "scores", "privacy"}
    assert [entry["candidate"] for entry in found["candidates"]] == [f"candidate-{n}" for n in (1, 2, 3, 4)]
    assert found["candidates"][0]["changes"] == {"task.lr": 1e-6, "task.activation": "relu"}
    assert found["chosen"] in ("candidate-3", "candidate-4")
    assert found["run"] == f"{found['tuning']}/{found['chosen']}"
    assert found["tuning"].startswith("runs/trial-tuning-")
    assert found["scores"] == {}
    assert found["by"]["score"] == "noisy_loss"
    assert found["by"]["noise"] > 0
    assert 9.9 < found["privacy"]["epsilon"] <= 10
    code, out, _ = tacit("ledger", f"{found['run']}/ledger.db", "--verify", "--json")
    verified = json.loads(out)
    assert (code, verified["valid"]) == (0, True)
    # Two sites: in each candidate a count and four rounds, and one choice.
    assert verified["events"] == 2 * (4 * 5 + 1)
    assert verified["epsilon"] == found["privacy"]["epsilon"]


def test_people_see_how_far_noisy_losses_are_above_the_least_and_how_noisy_they_are(folder: Path):
    code, out, _ = tacit("tune", "private.toml", "-q", "--set", 'tune.task.activation=["relu"]')
    assert code == 0
    assert out.splitlines()[0].endswith("loss above")
    assert "the smallest loss on reserved records; its noise has standard deviation" in out
    assert "0.0000" in out.splitlines()[3]


@pytest.mark.parametrize("verb", ["run", "plan"])
def test_other_verbs_say_that_the_file_is_for_tuning(folder: Path, verb: str):
    code, out, err = tacit(verb, "open.toml")
    assert (code, out) == (2, "")
    assert err == "tacit: open.toml: it has a table [tune]: choose among its candidates with tacit tune\n"
    assert not (folder / "runs").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["missing.toml"], "missing.toml cannot be read"),
        (["open.toml", "--set", "tune.task.lr=[]"], "[tune] task.lr = [] is not allowed"),
        (["open.toml", "--set", "tune.privacy.epsilon=[1,2]"], "the promise is made once"),
        (["open.toml", "--set", "tune.epsilon=1"], "this run makes no promise"),
        (["private.toml", "--set", "privacy.unit=site"], "Choose by public records"),
        (["private.toml", "--set", "tune.task.lr=[-1]"], "candidate 1 (task.lr = -1"),
        (["plain.toml"], "[tune] varies nothing"),
    ],
)
def test_what_cannot_be_tuned_ends_in_one_sentence_and_nothing_is_left(
    folder: Path, words: list[str], said: str
):
    (folder / "plain.toml").write_text(OPEN)
    code, out, err = tacit("tune", *words, "--json")
    error = json.loads(out)["error"]
    assert code == error["exit_code"] == 2
    assert said in error["message"]
    assert err == f"tacit: {error['message']}\n"
    assert not (folder / "runs").exists()


def test_a_ledger_that_cannot_bear_it_all_is_told_with_exit_code_3_before_anything_is_trained(folder: Path):
    (folder / "tuned").mkdir()
    with Ledger(folder / "tuned" / "ledger.db") as ledger:
        ledger.allow(epsilon=9.0, delta=1e-5)
    code, out, _ = tacit("tune", "private.toml", "--out", "tuned", "--json")
    assert code == json.loads(out)["error"]["exit_code"] == 3
    with Ledger(folder / "tuned" / "ledger.db", mode="read") as ledger:
        assert ledger.releases() == []
        assert ledger.budgets()["*"].epsilon == 9.0


def test_a_tuning_that_is_over_is_only_shown_again(folder: Path):
    first = tacit("tune", "private.toml", "--out", "tuned", "-q")
    code, _, err = tacit("tune", "private.toml", "--out", "tuned")
    assert code == 2
    assert "exists already" in err
    assert tacit("tune", "tuned", "--resume", "-q") == first
