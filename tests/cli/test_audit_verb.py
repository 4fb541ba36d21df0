"""The verb `audit`: what it prints, where it keeps it, and its exit code when a promise is broken."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from small_study import FILE
from tacit import Federation, Privacy, fit
from tacit.audits import mechanisms
from tacit.cli.app import app
from tacit.privacy.mechanisms import base
from tacit.privacy.mechanisms.base import add_noise
from tacit.sites.table import from_arrays
from tacit.survival import PoissonPH

QUICK = ["--canaries", "1000", "--shadows", "3"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "study.toml").write_text(FILE)
    # Every mechanism by itself is tried elsewhere.
    few = {name: mechanisms.PRIMITIVES[name] for name in ("a training step", "histogram")}
    monkeypatch.setattr(mechanisms, "PRIMITIVES", few)
    return tmp_path


def run(*words):
    return CliRunner().invoke(app, list(words))


def halve(monkeypatch):
    def quieter(values, law, scale, key, rehearsal):
        return add_noise(values, law, scale / 2, key, rehearsal)

    monkeypatch.setattr(base, "add_noise", quieter)


def test_a_file_is_audited_into_a_directory_of_its_own(folder):
    done = run("audit", "study.toml", *QUICK)
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("kept?     A rehearsal gives no protection; ")
    assert "As far as attacks can show" in " ".join(done.stdout.split())
    assert "epsilon 4 at delta 1e-05" in done.stdout
    (place,) = (folder / "runs").iterdir()
    assert place.name.startswith("study-audit-")
    assert sorted(path.name for path in place.iterdir()) == ["audit.json", "report.html"]
    assert f"report runs/{place.name}/report.html" in done.stderr
    # It is shown again, and its report made again, like anything else that a directory remembers.
    assert run("show", str(place)).stdout == done.stdout
    assert run("report", str(place)).exit_code == 0


def test_with_json_it_prints_one_document(folder):
    done = run("audit", "study.toml", *QUICK, "--json", "--skip", "attacks", "--confidence", "0.9", "-q")
    found = json.loads(done.stdout)
    assert done.stderr == ""
    assert found["kind"] == "audit"
    assert found["kept"] is True
    assert found["confidence"] == 0.9
    assert found["run"]["kept"] is True
    assert [each["name"] for each in found["mechanisms"]] == ["a training step", "histogram"]
    assert found["membership"] is None
    assert found["notes"] == ["attacks, as was asked"]


def test_the_audit_of_a_run_is_kept_with_it_and_in_its_report(folder):
    assert run("run", "study.toml", "--out", "done", "-q").exit_code == 0
    assert "No audit yet" in (folder / "done" / "report.html").read_text()
    done = run("audit", "done", *QUICK, "--skip", "attacks")
    assert done.exit_code == 0, done.output
    assert (folder / "done" / "audit.json").is_file()
    assert "As far as attacks can show" in (folder / "done" / "report.html").read_text()
    assert not (folder / "runs").exists()


def test_a_promise_that_is_broken_ends_with_4_and_everything_is_kept(folder, monkeypatch):
    halve(monkeypatch)
    done = run("audit", "study.toml", *QUICK, "--skip", "attacks", "--json")
    assert done.exit_code == 4
    found = json.loads(done.stdout)
    assert found["kept"] is False
    assert found["run"]["fitted"] > found["run"]["claim"]
    assert [each["name"] for each in found["mechanisms"] if not each["kept"]] == ["a training step"]
    (place,) = (folder / "runs").iterdir()
    assert "Do not rely on this promise" in (place / "report.html").read_text()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["study.toml", "--canaries", "3"], "canaries = 3"),
        (["study.toml", "--confidence", "1"], "confidence = 1.0"),
        (["study.toml", "--shadows", "0"], "shadows = 0"),
        (["nothing.toml"], "nothing.toml"),
        (["study.toml", "--set", "privacy.epsilon=-1"], "epsilon"),
    ],
)
def test_what_makes_no_sense_is_refused_and_nothing_is_kept(folder, words, told):
    done = run("audit", *words)
    assert done.exit_code == 2
    assert told in done.stderr
    assert not (folder / "runs").exists()


def test_what_was_found_broken_once_stays_so_and_is_shown(folder, monkeypatch):
    assert run("run", "study.toml", "--out", "done", "-q").exit_code == 0
    with monkeypatch.context() as patched:
        halve(patched)
        assert run("audit", "done", *QUICK, "--skip", "attacks", "--skip", "mechanisms").exit_code == 4
    again = run("audit", "done", *QUICK, "--skip", "attacks", "--seed", "1")
    assert again.exit_code == 4
    assert "seed 0 found it broken" in again.stdout
    assert "audit of study: An audit with seed 0" in run("show", "done").stdout
    assert "seed 0 found it broken" in (folder / "done" / "report.html").read_text()


def test_a_run_that_was_made_in_python_is_not_mistaken_for_another(folder):
    data = {name: from_arrays(np.ones((20, 2)), time=np.arange(1.0, 21), event=np.ones(20)) for name in "ab"}
    promise = Privacy(unit="record", epsilon=1.0, delta=1e-5, clip=1.0, rehearsal=True)
    task = PoissonPH(cuts=(5.0, 10.0), sample=1.0)
    fit(task, Federation(data, public=True), privacy=promise, rounds=1, out=folder / "made")
    done = run("audit", "made", *QUICK)
    assert done.exit_code == 2
    assert "made in Python" in done.stderr
    assert run("report", "made").exit_code == 0
    assert "tacit audit" not in (folder / "made" / "report.html").read_text()


@pytest.mark.parametrize("place", ["study.toml", "study.toml/x", "full"])
def test_a_place_that_cannot_be_written_is_refused_before_any_work(folder, place):
    (folder / "full" / "report.html").mkdir(parents=True)
    done = run("audit", "study.toml", *QUICK, "--out", place)
    assert done.exit_code == 2
    assert "cannot be written" in done.stderr
    assert "training" not in done.stderr


def test_a_damaged_audit_is_told_in_one_sentence(folder):
    assert run("run", "study.toml", "--out", "done", "-q").exit_code == 0
    (folder / "done" / "audit.json").write_text("{}")
    for verb in ("report", "show"):
        done = run(verb, "done")
        assert done.exit_code == 2
        assert "delete audit.json" in done.stderr
    again = run("audit", "done", *QUICK)
    assert again.exit_code == 2
    assert "delete audit.json" in again.stderr
    assert "training" not in again.stderr


def test_a_changed_experiment_is_not_the_audit_of_a_run(folder):
    assert run("run", "study.toml", "--out", "done", "-q").exit_code == 0
    done = run("audit", "done", "--set", "privacy.epsilon=1", *QUICK)
    assert done.exit_code == 2
    assert "--out" in done.stderr
    again = run("audit", "done", "--set", "privacy.epsilon=1", *QUICK, "--out", "other", "--skip", "attacks")
    assert again.exit_code == 0, again.output
    assert (folder / "other" / "audit.json").is_file()
    assert not (folder / "done" / "audit.json").exists()
    assert run("audit", "study.toml", *QUICK, "--out", "done").exit_code == 2
