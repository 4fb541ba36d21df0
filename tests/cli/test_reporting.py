"""The report of whatever a directory remembers."""

import json
from pathlib import Path

import pytest

from tacit.cli import reporting
from tacit.errors import InvalidFile, InvalidValue
from tacit.experiments import experiment
from tacit.reports.page.blocks import Page

FILE = """name = "tiny"
seed = 3
rounds = 3

[data]
kind = "simulated"
records = 400
features = 4

[sites]
kind = "iid"
count = 3

[task]
kind = "logistic-hazard"
hidden = [4]
cuts = 5

[privacy]
unit = "record"
epsilon = 3.0
delta = 1e-4
clip = 1.0
rehearsal = true
"""


class Stopped(BaseException):
    """The machine went down."""


@pytest.fixture(autouse=True)
def undrawn():
    """Nothing is left out: here reports are drawn as users see them."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    place = tmp_path_factory.mktemp("runs")
    (place / "tiny.toml").write_text(FILE)
    experiment.read(place / "tiny.toml").run(place / "one")
    experiment.read(place / "tiny.toml", ["privacy.epsilon=1.0"]).run(place / "two")
    return place


def sections(page: Page) -> list[str]:
    return [section.title for section in page.sections]


def test_a_run_on_disk_has_the_report_of_the_run_itself(folder):
    page = reporting.page([folder / "one"])
    assert page.document == experiment.load(folder / "one").document()
    assert sections(page) == [
        "The promise", "Data that left the sites", "Result", "Rounds", "Sites", "Robustness", "The model",
        "Was the promise kept?", "Ledger", "Reproduce",
    ]  # fmt: skip


def test_its_price_is_that_of_its_ledger_which_verifies(folder):
    document = reporting.page([folder / "one"]).document
    assert document["ledger"]["valid"] is True
    assert document["ledger"]["events"] == 9
    assert document["promise"]["epsilon"] == pytest.approx(document["ledger"]["epsilon"])
    assert document["promise"]["epsilon"] <= document["promise"]["budget"] == 3.0


def test_several_runs_are_compared(folder):
    page = reporting.page([folder / "one", folder / "two"])
    assert page.document["kind"] == "comparison"
    assert [run["run"] for run in page.document["runs"]] == [str(folder / "one"), str(folder / "two")]
    with pytest.raises(InvalidValue, match="name each run once"):
        reporting.page([folder / "one", folder / "one"])


def test_a_run_that_was_cut_off_is_told_as_far_as_it_came(folder):
    def stop(entry):
        if entry.number == 2:
            raise Stopped

    asked = experiment.read(folder / "tiny.toml")
    with pytest.raises(Stopped):
        asked.run(folder / "cut", callbacks=[stop])
    page = reporting.page([folder / "cut"])
    assert page.document["under_way"] is True
    assert len(page.document["rounds"]) == 2
    spent, promised = page.document["rounds"][-1]["epsilon"], page.document["promise"]["epsilon"]
    assert f"epsilon {spent:.3g} of {promised:.3g} spent" in page.lead
    assert page.document["ledger"]["events"] == 6
    with pytest.raises(InvalidValue, match="must be a single run that is over"):
        reporting.page([folder / "one", folder / "cut"])


def test_a_live_page_goes_from_nothing_to_the_report(folder):
    asked = experiment.read(folder / "tiny.toml")
    assert "0 rounds are over" in reporting.current_page(asked, folder / "never").lead
    assert reporting.current_page(asked, folder / "one").document["under_way"] is False


def test_a_data_protection_summary_is_about_one_run(folder):
    page = reporting.data_protection(folder / "one")
    assert any(alert.tone == "stop" for alert in page.alerts)
    assert "Ledger" in " ".join(sections(page)) or "annex" in " ".join(sections(page)).lower()


def test_what_is_no_run_is_refused(tmp_path):
    with pytest.raises(InvalidFile, match="is not a run"):
        reporting.page([tmp_path])


@pytest.mark.parametrize("ending", [".html", ".md", ".json"])
def test_all_three_kinds_of_file_tell_the_same_price(folder, tmp_path, ending):
    run = experiment.load(folder / "one")
    written = run.report(tmp_path / f"report{ending}")
    assert f"{run.privacy.epsilon:.4g}" in written.read_text() or ending == ".json"
    if ending == ".json":
        assert json.loads(written.read_text())["promise"]["epsilon"] == run.privacy.epsilon


def test_a_run_that_was_not_kept_has_a_report_where_one_says(folder, tmp_path):
    run = experiment.read(folder / "tiny.toml").run(None)
    with pytest.raises(InvalidValue, match="give the file of its report"):
        run.report()
    assert run.report(tmp_path / "report.html").stat().st_size < 600_000
    assert run.document()["ledger"]["epsilon"] == pytest.approx(run.privacy.epsilon)


def test_a_report_lies_in_the_run_by_default(folder):
    assert experiment.load(folder / "one").report() == folder / "one" / "report.html"
