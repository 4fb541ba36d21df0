"""The book of the data as a person meets it: `tacit run`, `plan` and `tune` charge and obey it."""

import json
import subprocess
import sys
from contextlib import chdir
from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

from patients_and_books import borne, patients
from tacit.cli.app import app
from tacit.privacy.ledger.data_index import state_directory

EXPERIMENT = """
name = "{name}"
rounds = 1
[data]
kind = "csv"
path = "{path}"
[sites]
kind = "by-column"
[task]
kind = "poisson-ph"
horizon = 4.0
steps = 1
[privacy]
unit = "record"
epsilon = 0.95
delta = 1e-5
clip = 1.0
"""


def tacit(folder, *words):
    with chdir(folder):
        done = CliRunner().invoke(app, [str(word) for word in words])
    return subprocess.CompletedProcess(words, done.exit_code, done.stdout, done.stderr)


def written(folder, *, name="trial", path="patients.csv"):
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.toml").write_text(EXPERIMENT.format(name=name, path=path))
    return folder / f"{name}.toml"


@pytest.fixture
def folder(tmp_path):
    patients().to_csv(tmp_path / "patients.csv", index=False)
    written(tmp_path)
    return tmp_path


def test_two_runs_from_two_folders_under_two_names_state_the_sum_and_a_lifetime_refuses_it(folder):
    first = tacit(folder, "run", "trial.toml")
    assert first.returncode == 0, first.stderr
    # Advice on their columns is for the owner of the records.
    assert first.stderr.count("warning") == first.stderr.count("warning: advice about the records is in ")
    assert "Tacit knows of no earlier run on these records" in first.stdout
    other = folder / "other"
    written(other, name="another", path="people.csv")
    frame = patients()
    frame[frame.columns[::-1]].to_csv(other / "people.csv", index=False, float_format="%.8g")
    # A lifetime of 1 bears the first run, and not both.
    assert tacit(folder, "ledger", "patients.csv", "--lifetime", "1").returncode == 0
    books = [*folder.rglob("*.ledger"), *state_directory().rglob("*.ledger")]
    before = {place: place.read_bytes() for place in books}
    refused = tacit(other, "run", "another.toml", "--out", "elsewhere")
    assert refused.returncode == 3
    assert "budget of records exhausted" in refused.stderr
    assert "and 1 is allowed; nothing was charged" in refused.stderr
    assert {place.name for place in other.iterdir()} <= {
        "another.toml",
        "people.csv",
        "people.csv.advice.txt",
    }
    assert {place: place.read_bytes() for place in books} == before
    assert tacit(folder, "ledger", "patients.csv", "--lifetime", "5").returncode == 0
    second = tacit(other, "run", "another.toml", "--out", "elsewhere", "--json")
    assert second.returncode == 0, second.stderr
    assert "warning: 1 run on these data has cost any one record epsilon 0.9" in second.stderr
    privacy = json.loads(second.stdout)["privacy"]
    assert privacy["all_runs"]["runs"] == 2
    assert privacy["all_runs"]["epsilon"] > 1.15 * privacy["epsilon"]
    statement = json.loads((other / "elsewhere" / "statement.json").read_text())
    assert statement["all_runs"] == privacy["all_runs"]
    assert statement["all_runs"]["lifetime"] == [5.0, 1e-5]
    assert borne(folder / "patients.csv.ledger") == borne(other / "people.csv.ledger")


def test_people_of_whom_all_but_one_are_written_thrice_do_not_escape_their_book(tmp_path):
    frame, first, second = patients(200), tmp_path / "first", tmp_path / "second"
    written(first)
    frame.to_csv(first / "patients.csv", index=False)
    assert tacit(first, "run", "trial.toml").returncode == 0
    written(second, name="another", path="people.csv")
    thrice = pd.concat([*[frame[frame.columns[::-1]].iloc[1:]] * 3, frame.iloc[:1]]).sample(
        frac=1, random_state=1
    )
    thrice.to_csv(second / "people.csv", index=False, float_format="%.8g")
    # A promise about single records is refused, before a charge and without a number of records.
    refused = tacit(second, "run", "another.toml")
    assert refused.returncode == 2
    assert "no record may be there twice" in refused.stderr
    assert not any(number in refused.stderr for number in ("597", "598", "199"))
    assert "597 of 598 are equal to another one" in (second / "people.csv.refused.txt").read_text()
    assert not (second / "people.csv.ledger").exists()
    # Both ways out work, and lead to the book of these people.
    file = second / "another.toml"
    file.write_text(file.read_text().replace('unit = "record"', 'unit = "site"\nnoise = "server"'))
    whole = tacit(second, "run", "another.toml", "--json")
    assert json.loads(whole.stdout)["privacy"]["all_runs"]["runs"] == 2
    written(second, name="once", path="once.csv")
    thrice.drop_duplicates().to_csv(second / "once.csv", index=False)
    once = tacit(second, "run", "once.toml", "--json")
    assert json.loads(once.stdout)["privacy"]["all_runs"]["runs"] == 3


def test_the_same_path_is_one_book_from_wherever_it_is_run(folder, tmp_path_factory):
    away = tmp_path_factory.mktemp("away")
    assert tacit(folder, "run", "trial.toml").returncode == 0
    written(away, name="away", path=f"{folder}/../{folder.name}/patients.csv")
    done = tacit(away, "run", "away.toml", "--set", "rounds=2", "--json")
    assert json.loads(done.stdout)["privacy"]["all_runs"]["runs"] == 2


@pytest.mark.slow
def test_the_warning_does_not_end_with_the_tenth_run(folder):
    for _ in range(11):
        done = tacit(folder, "run", "trial.toml")
        assert done.returncode == 0
    assert "warning: 10 runs on these data have cost" in done.stderr


def test_a_total_that_no_lifetime_binds_says_so_wherever_it_is_stated(folder):
    for name in ("one", "two"):
        assert tacit(folder, "run", "trial.toml", "--out", name).returncode == 0
    assert tacit(folder, "report", "two", "-o", "report.md").returncode == 0
    assert tacit(folder, "report", "two", "--dpia", "-o", "dpia.md").returncode == 0
    told = [
        *((folder / name).read_text() for name in ("report.md", "dpia.md")),
        *(tacit(folder, *words).stdout for words in (("show", "two"), ("plan", "trial.toml"))),
        tacit(folder, "ledger", "patients.csv").stdout,
    ]
    for text in told:
        plain = " ".join(text.split())
        assert "fixed in advance" in plain
        assert "delta may be larger (set a budget: tacit ledger FILE --lifetime E)" in plain
    # The way out works, and from then on the total is stated as what a budget binds.
    assert tacit(folder, "ledger", "patients.csv", "--lifetime", "4").returncode == 0
    shown = tacit(folder, "ledger", "patients.csv").stdout
    assert "delta may be larger" not in shown
    assert "budget of every subject" in shown
    third = " ".join(tacit(folder, "run", "trial.toml", "--out", "three").stdout.split())
    assert "the 3 runs on these data cost any one record epsilon" in third
    assert "delta may be larger" not in third


def test_the_book_prices_a_site_level_run_for_single_records(folder):
    text = (folder / "trial.toml").read_text().replace('unit = "record"', 'unit = "site"\nnoise = "server"')
    (folder / "site.toml").write_text(text)
    done = tacit(folder, "run", "site.toml", "--json")
    assert done.returncode == 0, done.stderr
    own = json.loads(done.stdout)["privacy"]
    assert own["unit"] == "site"
    told = json.loads(tacit(folder, "ledger", "patients.csv", "--json").stdout)
    assert told["subjects"]["sites"] == pytest.approx(own["epsilon"])
    # A record that joins a site turns its clipped update into another one, twice the bound away.
    assert told["epsilon"] == told["subjects"]["records"] > 2 * own["epsilon"]
    assert tacit(folder, "ledger", "patients.csv", "--lifetime", str(1.5 * own["epsilon"])).returncode == 0
    assert tacit(folder, "plan", "site.toml").returncode == 3


def test_a_plan_looks_at_the_book_and_at_no_data(folder):
    assert tacit(folder, "plan", "trial.toml").returncode == 0
    assert "all runs" not in tacit(folder, "plan", "trial.toml").stdout
    tacit(folder, "run", "trial.toml")
    (folder / "patients.csv").write_text("nobody can read this")
    planned = tacit(folder, "plan", "trial.toml")
    assert "1 run on these data has cost any one record epsilon 0.9" in planned.stdout
    assert json.loads(tacit(folder, "plan", "trial.toml", "--json").stdout)["all_runs"]["runs"] == 1
    patients().to_csv(folder / "patients.csv", index=False)
    tacit(folder, "ledger", "patients.csv", "--lifetime", "0.9")
    assert tacit(folder, "plan", "trial.toml").returncode == 3
    assert tacit(folder, "plan", "trial.toml", "--set", "privacy.rehearsal=true").returncode == 0


def test_the_book_is_shown_row_by_row_and_verified(folder):
    empty = tacit(folder, "ledger", "patients.csv")
    assert empty.returncode == 0
    assert "nothing was charged" in empty.stdout
    assert not list(folder.glob("*.ledger"))
    tacit(folder, "run", "trial.toml")
    shown = tacit(folder, "ledger", "patients.csv")
    assert "trial: rounds" in shown.stdout
    assert "runs  " in shown.stdout
    told = json.loads(tacit(folder, "ledger", "patients.csv", "--json", "--verify").stdout)
    assert (told["valid"], told["runs"], told["problems"]) == (True, 1, [])
    assert told["epsilon"] == pytest.approx(0.95, rel=0.02)
    assert [Path(place).name for place in told["ledgers"]] == ["patients.csv.ledger", "book.ledger"]
    book = folder / "patients.csv.ledger"
    book.write_bytes(book.read_bytes().replace(b"trial: rounds", b"trial: Rounds", 1))
    assert tacit(folder, "ledger", "patients.csv").returncode == 4
    assert tacit(folder, "run", "trial.toml").returncode == 4


def test_the_book_is_priced_at_the_deltas_of_its_runs_until_somebody_names_another(folder):
    done = tacit(folder, "run", "trial.toml", "--set", "privacy.delta=1e-3", "--json")
    own = json.loads(done.stdout)["privacy"]
    told = json.loads(tacit(folder, "ledger", "patients.csv", "--json", "--verify").stdout)
    assert (told["delta"], told["stated"], told["valid"]) == (1e-3, [], True)
    assert told["epsilon"] == pytest.approx(own["epsilon"], rel=1e-6)
    # The smallest delta holds for every run; the price at each is listed.
    tacit(folder, "run", "trial.toml", "--set", "privacy.delta=1e-4")
    told = json.loads(tacit(folder, "ledger", "patients.csv", "--json").stdout)
    assert told["delta"] == 1e-4
    assert [row["delta"] for row in told["stated"]] == [1e-4, 1e-3]
    for row in told["stated"]:
        named = tacit(folder, "ledger", "patients.csv", "--delta", str(row["delta"]), "--json").stdout
        assert json.loads(named)["epsilon"] == row["epsilon"]
    assert told["epsilon"] == told["stated"][0]["epsilon"] > told["stated"][1]["epsilon"]
    shown = tacit(folder, "ledger", "patients.csv").stdout
    assert f"{told['stated'][1]['epsilon']:.4g}" in shown.partition("at delta 0.001")[2].splitlines()[0]
    # A lifetime budget has a delta of its own, which decides from then on.
    tacit(folder, "ledger", "patients.csv", "--lifetime", "9", "--delta", "1e-6")
    told = json.loads(tacit(folder, "ledger", "patients.csv", "--json").stdout)
    assert (told["delta"], told["stated"]) == (1e-6, [])


def test_the_ledger_of_a_run_with_a_given_noise_is_priced_at_the_delta_of_the_run(folder):
    text = (folder / "trial.toml").read_text().replace("epsilon = 0.95", "noise_multiplier = 9.0")
    (folder / "given.toml").write_text(text.replace("1e-5", "1e-3"))
    done = json.loads(tacit(folder, "run", "given.toml", "--out", "given", "--json").stdout)
    told = json.loads(tacit(folder, "ledger", "given", "--json").stdout)
    assert told["delta"] == 1e-3
    assert told["epsilon"] == pytest.approx(done["privacy"]["epsilon"], rel=1e-9)


def test_runs_that_only_one_copy_of_the_book_holds_are_shown(folder, monkeypatch, tmp_path_factory):
    tacit(folder, "run", "trial.toml")
    (folder / "patients.csv.ledger").unlink()
    with monkeypatch.context() as other:
        other.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("another user")))
        tacit(folder, "run", "trial.toml", "--set", "rounds=2")
    told = json.loads(tacit(folder, "ledger", "patients.csv", "--json").stdout)
    assert (told["runs"], len({row["ticket"] for row in told["releases"]})) == (2, 2)
    assert (told["epsilon"] > 1.1, told["delta"]) == (True, 1e-5)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["nothing.csv"], 2, "there is no such file"),
        (["patients.csv", "--lifetime", "0"], 2, "budget epsilon = 0.0 is not allowed"),
        (["patients.csv", "--lifetime", "1", "--delta", "2"], 2, "delta = 2.0 is not allowed"),
        (["runs", "--lifetime", "1"], 2, "give a file of data"),
    ],
)
def test_what_cannot_be_is_one_sentence(folder, words, code, said):
    done = tacit(folder, "ledger", *words)
    assert (done.returncode, said in done.stderr) == (code, True), done.stderr
    assert not list(folder.glob("*.ledger"))


def test_a_rehearsal_leaves_no_book(folder):
    done = tacit(folder, "run", "trial.toml", "--set", "privacy.rehearsal=true")
    assert done.returncode == 0
    assert "all runs" not in done.stdout
    assert not list(folder.glob("*.ledger"))
    assert not state_directory().exists()


def test_the_officer_reads_the_total_first(folder):
    for name in ("one", "two"):
        assert tacit(folder, "run", "trial.toml", "--out", name).returncode == 0
    assert tacit(folder, "report", "two", "--dpia", "-o", "dpia.md").returncode == 0
    text = (folder / "dpia.md").read_text()
    assert "The 2 runs on these data cost any one record epsilon" in text.partition("## 1.")[0]
    assert ", as a lifetime budget fixed in advance" in text
    assert text.index("Epsilon, all runs") < text.index("Every result is")
    assert "this page does not add them up" not in text
    tacit(folder, "report", "two", "-o", "report.md")
    assert "All runs: the 2 runs on these data" in (folder / "report.md").read_text()
    assert "the 2 runs on these data" in tacit(folder, "show", "two").stdout


def test_a_tuning_pays_for_all_its_candidates_once(folder):
    text = (
        (folder / "trial.toml").read_text().replace("epsilon = 0.95", "epsilon = 3.0").replace("1e-5", "2e-5")
    )
    (folder / "tune.toml").write_text(text + '[tune]\nepsilon = 0.5\n"task.lr" = [0.1, 0.2]\n')
    done = tacit(folder, "tune", "tune.toml", "--out", "tuned", "--json")
    assert done.returncode == 0, done.stderr
    privacy = json.loads(done.stdout)["privacy"]
    assert privacy["all_runs"]["runs"] == 1
    assert privacy["all_runs"]["epsilon"] == pytest.approx(privacy["epsilon"], rel=1e-6)
    told = json.loads(tacit(folder, "ledger", "patients.csv", "--json").stdout)
    assert (told["runs"], told["delta"]) == (1, 2e-5)
    assert told["epsilon"] == pytest.approx(privacy["epsilon"], rel=1e-6)
    assert tacit(folder, "ledger", "patients.csv", "--lifetime", "3.1", "--delta", "2e-5").returncode == 0
    again = tacit(folder, "tune", "tune.toml", "--out", "again")
    assert again.returncode == 3
    assert not (folder / "again").exists()


@pytest.mark.slow
def test_the_real_command_charges_the_book_in_a_process_of_its_own(folder):
    program = str(Path(sys.executable).with_name("tacit"))
    for _ in range(2):
        subprocess.run([program, "run", "trial.toml", "-q"], cwd=folder, check=True, capture_output=True)
    shown = subprocess.run(
        [program, "ledger", "patients.csv", "--json"], cwd=folder, check=True, capture_output=True, text=True
    )
    assert json.loads(shown.stdout)["runs"] == 2
