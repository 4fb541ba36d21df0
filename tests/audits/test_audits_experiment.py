"""The whole audit: what it finds, what it says, where it is kept, and what it refuses to look at."""

import json
from dataclasses import replace

import pytest

from small_study import FILE
from tacit import audits
from tacit.audits import Audit, audit, audit_run, mechanisms
from tacit.cli import reporting
from tacit.errors import InvalidValue
from tacit.experiments import experiment
from tacit.privacy.policy import Open
from tacit.reports.audit import HEADING, verdict
from tacit.runs.directory import AUDIT
from tacit.runs.run import Run
from tacit.sites.federation import RowFederation
from tacit.survival.data import simulate

QUICK = {"canaries": 1000, "shadows": 3}


@pytest.fixture(scope="module")
def read(tmp_path_factory):
    place = tmp_path_factory.mktemp("asked") / "study.toml"
    place.write_text(FILE)
    return experiment.read(place)


@pytest.fixture(scope="module")
def done(read) -> Audit:
    return audit(read, **QUICK, skip=["mechanisms"])


def test_an_audit_attacks_the_run_and_its_models(done):
    found = done.as_dict()
    assert found["run"]["claim"] == pytest.approx(4.0, rel=1e-3)
    assert 1.0 < found["run"]["fitted"] < 4.0
    assert found["run"]["confidence"] == pytest.approx(0.975)
    assert found["run"]["canaries"] == 1002
    assert [each["name"] for each in found["membership"]["settings"]] == ["open", "private"]
    assert found["inversion"]["settings"][0]["exact"] == found["inversion"]["patients"]
    assert found["kept"]
    assert found["notes"] == ["mechanisms, as was asked"]


def test_what_was_found_is_plain_data_and_sentences(done):
    assert json.loads(json.dumps(done.as_dict())) == done.as_dict()
    text = done.summary(80)
    assert "epsilon 4 at delta 1e-05" in text
    assert "by family fit" in text
    assert "would identify" in text
    assert "reconstructed exactly" in text
    assert "not tried" in text
    assert max(len(line) for line in text.splitlines()) <= 80
    assert HEADING in done._repr_html_()


def test_in_the_directory_of_a_run_it_is_a_part_of_its_report(read, done, tmp_path):
    read.run(tmp_path / "run")
    before = reporting.page([tmp_path / "run"])
    assert "tacit audit" in words(before)
    done.write(tmp_path / "run")
    assert isinstance(reporting.load_directory(tmp_path / "run"), Run)
    after = reporting.page([tmp_path / "run"])
    assert after.document["audit"]["run"] == done.found["run"]
    assert "As far as attacks can show" in words(after)
    assert [section.title for section in after.sections].count(HEADING) == 1


def test_beside_another_run_it_is_left_out_and_that_is_said(read, done, tmp_path):
    done.write(tmp_path / "empty")
    replace(read, rounds=1).run(tmp_path / "run")
    alien = json.loads((tmp_path / "empty" / AUDIT).read_text())
    (tmp_path / "run" / AUDIT).write_text(json.dumps({**alien, "experiment": "of another"}))
    page = reporting.page([tmp_path / "run"])
    assert page.document["audit"] is None
    assert any("another experiment" in alert.words for alert in page.alerts)


def test_a_run_that_was_found_out_says_so_before_anything_else(read, done, tmp_path):
    read.run(tmp_path / "run")
    false = {**done.found, "run": {**done.found["run"], "fitted": 9.0, "kept": False}}
    Audit(false).write(tmp_path / "run")
    page = reporting.page([tmp_path / "run"])
    assert any(alert.tone == "stop" and "at least 9" in alert.words for alert in page.alerts)


def test_it_is_not_kept_with_the_run_of_another_experiment(read, done, tmp_path):
    replace(read, rounds=1).run(tmp_path / "run")
    with pytest.raises(InvalidValue, match="another experiment"):
        done.write(tmp_path / "run")
    assert not (tmp_path / "run" / AUDIT).exists()


def test_a_run_that_is_not_over_shows_its_audit(read, done, tmp_path):
    read.run(tmp_path / "run")
    done.write(tmp_path / "run")
    (tmp_path / "run" / "summary.json").unlink()
    page = reporting.unfinished_page(read, tmp_path / "run")
    assert HEADING in [section.title for section in page.sections]


def test_why_a_training_on_private_records_failed_is_not_told(read, monkeypatch):
    def failed(self, *given, **more):
        raise InvalidValue("training diverged in round 2")

    monkeypatch.setattr(type(read), "run_on", failed)
    with pytest.raises(InvalidValue, match="diverged"):
        audit_run(read)
    private, secret = replace(read, privacy=replace(read.privacy, rehearsal=False)), read.open_federation()
    secret.public = False
    with pytest.raises(InvalidValue, match="the reason is withheld") as caught:
        audit_run(private, federation=secret)
    assert "diverged" not in str(caught.value)


def test_by_itself_it_is_loaded_and_has_a_page(done, tmp_path):
    kept = done.write(tmp_path / "audit")
    again = audits.load(tmp_path / "audit")
    assert again == kept
    assert reporting.page([tmp_path / "audit"]).title == "Audit of study"
    assert audits.load(tmp_path) is None


def test_records_that_are_promised_protection_are_not_attacked_and_nothing_is_charged(read, tmp_path):
    private = replace(read, privacy=replace(read.privacy, rehearsal=False))
    federation = private.open_federation()
    secret = RowFederation({name: federation[name].table for name in federation}, public=False, records=200)
    kept = replace(private, data=Held(secret), task=replace(private.task, cuts=(0.5, 1.0, 2.0)))
    found = audit(kept, federation=secret, canaries=1000, skip=["mechanisms"])
    assert found.kept
    assert found.found["run"] is not None
    assert found.found["membership"] is None
    assert found.found["inversion"] is None
    assert [note.partition(":")[0] for note in found.found["notes"]][:2] == [
        "membership",
        "gradient inversion",
    ]


class Held:
    """Data that are open already."""

    kind = "held"
    layout = "rows"
    public = False
    public_records = None

    def __init__(self, federation):
        self.federation = federation

    def open(self, sites, seed, *, may_look=False):
        return self.federation


def test_an_open_experiment_promises_nothing_and_its_models_are_attacked(read):
    found = audit(replace(read, privacy=Open()), **QUICK, skip=["mechanisms"])
    assert found.found["run"] is None
    assert found.found["membership"]["settings"][0]["name"] == "open"
    assert any("there is no promise to break" in note for note in found.found["notes"])
    assert verdict(found.found)[0] == "mind"
    assert found.kept is None


@pytest.mark.parametrize(
    ("wanted", "word"),
    [
        ({"canaries": 5}, "canaries = 5"),
        ({"confidence": 1.0}, "confidence = 1.0"),
        ({"skip": ["everything"]}, "skip"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_is_done(read, wanted, word):
    told = []
    with pytest.raises(InvalidValue, match=word):
        audit(read, **wanted, callbacks=[Listener(told)])
    assert told == []


class Listener:
    def __init__(self, told):
        self.told = told

    def __call__(self, entry):
        raise AssertionError("what rounds come to is told to nobody")

    def stage(self, words, share=None):
        self.told.append(words)


def test_it_tells_what_it_does(read, monkeypatch):
    told, first = [], "a training step"
    monkeypatch.setattr(mechanisms, "PRIMITIVES", {first: mechanisms.PRIMITIVES[first]})
    audit(read, **QUICK, callbacks=[Listener(told)])
    assert list(dict.fromkeys(told)) == [
        "attacking every mechanism",
        "training with canaries",
        "training open models",
        "training private models",
    ]


def words(page) -> str:
    return "\n".join(
        str(getattr(block, "words", "") or getattr(block, "text", ""))
        for section in page.sections
        for block in section.blocks
    )


def test_a_table_of_ones_own_is_the_same_experiment_in_its_file_and_in_its_run(tmp_path):
    frame = simulate("SDGM1", records=60, features=2, seed=1)
    frame.assign(town=["oslo", "bergen"] * 30).to_csv(tmp_path / "patients.csv", index=False)
    text = '[data]\nkind = "csv"\npath = "patients.csv"\n[sites]\nkind = "by-column"\ncolumn = "town"\n'
    (tmp_path / "e.toml").write_text(f'rounds = 1\n{text}[task]\nkind = "cox-ph"\nsteps = 1\n')
    asked = experiment.read(tmp_path / "e.toml")
    asked.run(tmp_path / "run")
    assert audits._identity(experiment.read(tmp_path / "run")) == audits._identity(asked)
    other = replace(asked, data=replace(asked.data, leave=("x1",)))
    assert audits._identity(other) != audits._identity(asked)
