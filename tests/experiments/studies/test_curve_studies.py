"""Replicates, parties, folds and promises, from one file."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import tacit
from browsing import opened, require_readable, size
from tacit.cli.app import app
from tacit.errors import InvalidFile, Refused, RunUnusable
from tacit.experiments import experiment, studies
from tacit.experiments.studies import curves
from tacit.experiments.studies.curves import CurveStudyResult
from tacit.functional.data import simulate
from tacit.functional.tasks import Boosting
from tacit.reports.page import document as document_of
from tacit.reports.page import write
from tacit.reports.page.blocks import Figure, Grid
from tacit.reports.page.markdown import markdown
from tacit.sites.vertical import Subjects, VerticalFederation

FILE = """
name = "parties"
seed = 3
[data]
kind = "simulated-curves"
design = "smooth"
records = 90
[task]
kind = "functional-boosting"
size = 8
components = 4
steps = 12
smooth_s = 0.01
smooth_t = 0.0
ridge = 1.0
[study]
replicates = 2
folds = 3
parties = [2, 4]
workers = 1
"""
PROMISE = """
[privacy]
unit = "record"
delta = 1e-5
clip = 1.5
rehearsal = true
"""
LEVELS = """epsilons = ["open", 40, 4]
releases = ["local", "moments"]
"""
TASK = FILE.partition("[task]\n")[2].partition("\n[study]")[0]
SAME = [*curves.SCORES, "spent", "selected", "steps", "bytes"]


def written(folder: Path, text: str = FILE) -> Path:
    path = folder / "study.toml"
    path.write_text(text)
    return path


def priced(folder: Path, *changes: str) -> studies.Study:
    return studies.read(written(folder, FILE + LEVELS + PROMISE), ["study.folds=2", *changes])


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> CurveStudyResult:
    return priced(tmp_path_factory.mktemp("whole")).run()


def told(*words: object) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, list(map(str, words)))
    return done.exit_code, done.stdout, done.stderr


def test_every_combination_is_one_row(tmp_path):
    frame = studies.read(written(tmp_path)).run().frame
    assert len(frame) == 2 * 3 * 2
    assert set(frame["replicate"]) == {0, 1}
    assert set(frame["fold"]) == {0, 1, 2}
    assert frame["failed"].isna().all()
    assert np.isinf(frame["epsilon"]).all()
    assert frame["spent"].isna().all()
    for name in (*curves.SCORES, "seconds", "bytes", "floor"):
        assert np.isfinite(frame[name]).all(), name
    assert (frame["ril2"] < 0.4).all()
    assert (frame["sensitivity"] == 1).all()


def test_a_cell_is_a_fit_that_can_be_made_by_hand(tmp_path):
    frame = studies.read(written(tmp_path)).run().frame
    (row,) = frame.query("replicate == 1 and fold == 2 and parties == 2").to_dict("records")
    made = simulate("smooth", records=90, seed=3, replicate=1)
    train, test = made.take(slice(0, 60)), made.take(slice(60, 90))
    x = train.predictors
    run = tacit.fit(
        Boosting(size=8, components=4, steps=12, smooth_s=0.01, smooth_t=0.0, ridge=1.0),
        VerticalFederation(
            {"party-1": {"x1": x["x1"], "x3": x["x3"], "y": train.response},
             "party-2": {"x2": x["x2"], "x4": x["x4"]}},
            held_out=Subjects({**test.predictors, "y": test.response}), held_out_public=True, public=True,
            order=["x1", "x2", "x3", "x4", "y"],
        ),
    )  # fmt: skip
    found = run.model.score(test.predictors, test.response)
    assert row["ril2"] == pytest.approx(found["ril2"], rel=1e-9)
    assert row["wmape"] == pytest.approx(found["wmape"], rel=1e-9)
    assert tuple(row["selected"]) == run.model.selected


def test_folds_are_contiguous_disjoint_and_the_same_for_any_number_of_parties(tmp_path):
    study = studies.read(written(tmp_path), ["data.records=92"])
    data, made = study.experiment.data, curves.subjects(study.experiment.data, 3)
    seen: list[int] = []
    for fold in range(3):
        held = [
            curves.hold_out_fold(
                made, data, curves.experiment_for(study.experiment, cell).sites, fold, 3
            ).held_out
            for cell in study.cells[:2]
        ]
        rows = np.array_split(np.arange(92), 3)[fold]
        for found in held:
            np.testing.assert_array_equal(found["y"].values, made.response.values[rows])
        seen += rows.tolist()
    assert seen == list(range(92))


def test_without_a_promise_the_number_of_parties_changes_nothing(tmp_path):
    frame = studies.read(written(tmp_path)).run().frame
    two, four = (frame.query(f"parties == {count}").reset_index(drop=True) for count in (2, 4))
    assert two["ril2"].tolist() == pytest.approx(four["ril2"].tolist(), rel=1e-6)
    assert two["selected"].tolist() == four["selected"].tolist()


def test_epsilon_is_for_all_parties_together_however_many(whole):
    private = whole.frame[np.isfinite(whole.frame["epsilon"])]
    assert set(private["release"]) == {"local", "moments"}
    for (_, epsilon), group in private.groupby(["release", "epsilon"]):
        assert set(group["parties"]) == {2, 4}
        assert group["spent"].nunique() == 1
        assert 0.999 * epsilon < group["spent"].iloc[0] <= epsilon


def test_noise_differs_from_cell_to_cell_and_repeats_with_its_name(whole, tmp_path):
    every = whole.batch.cells
    assert len({cell.seed(3) for cell in every}) == len(every)
    noisy = whole.frame.query("release == 'moments' and epsilon == 40")
    assert noisy["ril2"].nunique() == len(noisy) == 8
    # What else is studied, and in which order, is nobody's business.
    part = priced(tmp_path, "study.epsilons=[4]", "study.parties=[4, 3]", "study.replicates=1").run().frame
    keys = ["release", "epsilon", "parties", "replicate", "fold"]
    both = part.merge(whole.frame, on=keys, suffixes=("", "_before"))
    assert len(both) == 2 * 2
    for name in curves.SCORES:
        assert both[name].tolist() == both[f"{name}_before"].tolist()


def test_replicates_go_on_where_the_data_say(tmp_path):
    study = studies.read(written(tmp_path), ["data.replicate=5"])
    assert study.replicates == (5, 6)
    later = study.run().frame.query("replicate == 6")
    alone = studies.read(written(tmp_path), ["data.replicate=6", "study.replicates=1"]).run().frame
    assert later["ril2"].tolist() == alone["ril2"].tolist()


@pytest.mark.slow
def test_a_study_that_was_cut_off_goes_on_with_fewer_processes_to_the_same_end(whole, tmp_path):
    place, seen = tmp_path / "run", []

    def stop(line):
        seen.append(line)
        if len(seen) == 20:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        priced(tmp_path, "study.workers=2").run(place, announce=stop)
    with (place / "cells.jsonl").open("a") as file:
        file.write('{"release": "loc')
    partly = studies.load(place)
    assert len(partly.rows) == 20
    assert "20 of 48: 2 replicates x 2 folds" in partly.summary()
    again = []
    resumed = studies.read(place, ["study.workers=1"]).run(place, resume=True, announce=again.append)
    assert len(again) == 48 - 20
    assert again[-1].startswith("48 of 48: ")
    for done in (resumed, studies.load(place)):
        for name in SAME:
            assert done.frame[name].astype(str).tolist() == whole.frame[name].astype(str).tolist(), name
    nothing = []
    studies.read(place).run(place, resume=True, announce=nothing.append)
    assert nothing == []


def test_another_study_does_not_go_on_with_this_one(tmp_path):
    study = studies.read(written(tmp_path), ["study.replicates=1", "study.parties=[2]"])
    study.run(tmp_path / "run")
    with pytest.raises(RunUnusable, match="exists already"):
        study.run(tmp_path / "run")
    with pytest.raises(RunUnusable, match="another experiment"):
        studies.read(written(tmp_path)).run(tmp_path / "run", resume=True)


def test_a_cell_that_fails_says_why_stops_nobody_and_is_tried_again(tmp_path, monkeypatch):
    scored = curves._score

    def broken(experiment, cell, folds):
        if cell.fold == 1 and cell.parties == 4:
            raise Refused("not today")
        if cell.fold == 2 and cell.parties == 4:
            raise ZeroDivisionError("no")
        return scored(experiment, cell, folds)

    monkeypatch.setattr(curves, "_score", broken)
    study, lines = studies.read(written(tmp_path)), []
    done = study.run(tmp_path / "run", announce=lines.append)
    assert done.table()["n"].tolist() == [6, 2]
    assert list(done.failures) == ["not today", "a bug of ours, ZeroDivisionError: no"]
    assert "failed, 2 runs, such as local, open, 4 parties, replicate 0, fold 1: not today" in done.summary()
    assert sum("failed: not today" in line for line in lines) == 2
    monkeypatch.undo()
    again = []
    mended = study.run(tmp_path / "run", resume=True, announce=again.append)
    assert len(again) == 4
    assert mended.table()["n"].tolist() == [6, 6]
    assert mended.failures == {}


def test_a_study_of_which_nothing_worked_still_says_so(tmp_path, monkeypatch):
    def broken(experiment, cell, folds):
        raise Refused("not today")

    monkeypatch.setattr(curves, "_score", broken)
    done = studies.read(written(tmp_path)).run()
    assert "No run has a score." in done.summary()
    assert done.as_dict()["table"] == []
    assert done.figures(tmp_path / "figures") == {}


def test_the_table_has_means_and_standard_errors_over_replicates_and_folds(whole):
    table = whole.table()
    assert len(table) == 2 * 3 * 2
    assert (table["n"] == 4).all()
    own = whole.frame.query("release == 'moments' and epsilon == 4 and parties == 2")["ril2"]
    row = table.loc[("moments", 4.0, 2)]
    assert row["ril2"] == pytest.approx(own.mean())
    assert row["ril2_error"] == pytest.approx(own.std(ddof=1) / 2)


def test_the_figures_are_drawn(whole, tmp_path):
    drawn = whole.figures(tmp_path / "figures")
    names = ["parties-local", "selection-local", "parties-moments", "selection-moments"]
    assert list(drawn) == [*names, "privacy-utility", "selection-epsilon"]
    for path in drawn.values():
        assert path.read_bytes().startswith(b"\x89PNG")


def test_a_single_number_of_parties_and_a_single_promise_leave_nothing_to_draw(tmp_path):
    done = studies.read(written(tmp_path), ["study.parties=[2]", "study.replicates=1"]).run()
    assert done.figures(tmp_path / "figures") == {}
    assert not (tmp_path / "figures").exists()


def test_the_mean_curve_stands_beside_every_score_and_what_is_no_better_says_so_first(whole):
    simplest = whole.verdicts[0].simplest
    assert simplest.name == "mean curve"
    rows = [row for row in whole.rows.values() if row["epsilon"] == "open" and row["release"] == "local"]
    rows = [row for row in rows if row["parties"] == 2]
    assert simplest.scores["ril2"] == pytest.approx(
        np.mean([row["simplest"]["scores"]["ril2"] for row in rows])
    )
    # At epsilon 4 and 60 subjects local releases drown; without a promise nothing does.
    useless = [verdict.label for verdict in whole.verdicts if verdict.useless]
    assert any("local, epsilon 4" in label for label in useless)
    assert not any("open" in label for label in useless)
    assert whole.summary().startswith("verdict  ")
    assert re.search(r"(?m)^mean curve +- +- +- +0\.0\d\d +\d\.\d{3} ", whole.summary())
    assert re.search(r"(?m)^true regression +- +- +- +- +0\.\d{3} ", whole.summary())


def test_a_report_has_the_figures_of_papers_the_verdict_and_the_promise(chromium, whole, tmp_path):
    page = whole.page()
    assert "not better than mean curve, the simplest baseline" in page.lead
    assert page.alerts[0].tone == "stop"
    sections = {section.title: section.blocks for section in page.sections}
    assert list(sections) == ["Result", "The promise", "Runs", "Reproduce"]
    drawn = [block.name for block in sections["Result"] if isinstance(block, Figure)]
    names = ["parties-local", "selection-local", "parties-moments", "selection-moments"]
    assert drawn == ["conditions", *names, "privacy-utility", "selection-epsilon"]
    prices = next(block for block in sections["The promise"] if isinstance(block, Grid))
    assert ("local, open, 2 parties", "open", "-") in prices.rows
    document = json.loads(document_of(page))
    assert [one["condition"] for one in document["verdicts"]] == [one.label for one in whole.verdicts]
    assert document["reproduce"]["command"] == "tacit run parties.toml"
    assert "# parties: a study of curves" in markdown(page)
    place = write(page, tmp_path / "study.html")
    with opened(chromium, place.as_uri(), color_scheme="dark", **size(390)) as tab:
        require_readable(tab, 390)


def test_what_is_not_varied_is_as_in_the_file(tmp_path):
    text = (
        FILE.replace("parties = [2, 4]\n", "")
        + PROMISE
        + 'epsilon = 7\nnoise = "secure"\n[sites]\nkind = "columns"\ncount = 3\n'
    )
    study = studies.read(written(tmp_path, text))
    assert (study.parties, study.epsilons, study.releases) == ((3,), (7.0,), ("moments",))
    assert study.example.privacy.noise == "secure"
    named = text.replace("count = 3", 'parties = { a = ["x1", "y"], b = ["x2", "x3", "x4"] }')
    assert studies.read(written(tmp_path, named)).example.sites.names == ("a", "b")


def test_who_adds_the_noise_follows_from_what_is_released(tmp_path):
    study = priced(tmp_path)
    chosen = {
        cell.release: curves.experiment_for(study.experiment, cell)
        for cell in study.cells
        if cell.epsilon == 4
    }
    assert {name: each.privacy.noise for name, each in chosen.items()} == {
        "local": "site",
        "moments": "server",
    }
    secret = priced(tmp_path, "privacy.noise=secure")
    chosen = {
        cell.release: curves.experiment_for(secret.experiment, cell)
        for cell in secret.cells
        if cell.epsilon == 4
    }
    assert {name: each.privacy.noise for name, each in chosen.items()} == {
        "local": "site",
        "moments": "secure",
    }


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("replicates = 2", "replicate = 2", r'\[study\] replicate is not known \(did you mean "replicates"'),
        ("replicates = 2", "replicates = 0", r"\[study\] replicates = 0 .* at least 1"),
        ("folds = 3", "folds = 1", r"\[study\] folds = 1 .* at least 2"),
        ("folds = 3", "folds = 91", r"\[study\] folds = 91 .* at most 90, as there are subjects"),
        ("folds = 3", 'folds = "three"', r"\[study\] folds = 'three' .* a whole number"),
        ("[2, 4]", "[]", r"\[study\] parties = \[\] .* at least one, or left out"),
        ("[2, 4]", "[2, 5]", r"\[study\] parties = 5 .* at most 4, as there are predictors"),
        ("[2, 4]", "[0]", r"\[study\] parties = 0 .* at least 1"),
        ("[2, 4]", "[2, 2]", r"\[study\] parties = \[2, 2\] .* different ones"),
        ("[2, 4]", "2", r"\[study\] parties = 2 .* a list"),
        ("workers = 1", "workers = 0", r"\[study\] workers = 0"),
        ("workers = 1", "epsilons = []", r"\[study\] epsilons = \[\] .* at least one, or left out"),
        ("workers = 1", 'epsilons = ["opne"]', r"epsilons = 'opne' .* \"open\" \(did you mean"),
        ("workers = 1", "epsilons = [0]", r"\[study\] epsilons = 0.0 .* above 0"),
        ("workers = 1", "epsilons = [1]", r"\[privacy\] is missing: epsilons = \[1.0\] need its delta"),
        ("workers = 1", 'releases = ["moment"]', r'releases = \'moment\' .* \(did you mean "moments"'),
        ("workers = 1", "releases = []", r"\[study\] releases = \[\]"),
        ("records = 90", "records = 90\nheld_out = 0.2", r"held_out is given twice: .* \[study\] folds"),
        ("[task]", "[sites]\ncount = 3\n[task]", r"\[sites\] count is given twice: .* \[study\] parties"),
        ("steps = 12", "stepps = 12", r'\[task\] stepps is not known \(did you mean "steps"'),
        ("[study]", "[attack]\nliars = 1\n[study]", r"\[attack\]"),
        ("[study]", "[studdy]", r"\[study\] is missing"),
        (TASK, 'kind = "cox-ph"', r"\[task\] cox-ph on \[data\] simulated cannot be studied"),
    ],
)  # fmt: skip
def test_a_bad_table_is_refused_by_name(old, new, said, tmp_path):
    text = FILE.replace(old, new)
    if "cox-ph" in new:
        text = text.replace('kind = "simulated-curves"\ndesign = "smooth"\n', "")
    assert text != FILE
    with pytest.raises(InvalidFile, match=f"(?s){said}"):
        studies.read(written(tmp_path, text))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (["privacy.epsilon=3"], r"\[privacy\] epsilon is given twice: .* \[study\] epsilons"),
        (["privacy.noise_multiplier=3"], r"noise_multiplier does not go with \[study\]"),
        (["task.release=local"], r"\[task\] release is given twice: .* \[study\] releases"),
    ],
)
def test_a_promise_that_is_given_twice_is_refused(changes, said, tmp_path):
    with pytest.raises(InvalidFile, match=said):
        priced(tmp_path, *changes)


def test_what_no_run_could_have_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(Refused, match='unit = "site"'):
        priced(tmp_path, "privacy.unit=site").run(tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_the_command_plans_runs_and_shows_a_study(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = written(tmp_path, FILE + LEVELS + PROMISE)
    small = ("--set", "study.replicates=1", "--set", "study.releases=['moments']")
    code, out, _ = told("plan", path, *small)
    assert code == 0
    assert "18 runs: 3 folds x 3 promises x 2 numbers of parties; this is one of them" in out
    code, out, err = told("run", path, *small, "--out", "kept")
    assert code == 0, err
    assert re.search(r"(?m)^release +epsilon +parties +n +R2 +RIL2 ", out)
    assert re.search(r"(?m)^moments +4 +2 +3 +-?\d\.\d{3} ± \d\.\d{3} ", out)
    assert "18 of 18: moments, epsilon 4, 4 parties, replicate 0, fold 2: RIL2" in err
    assert (tmp_path / "kept" / "figures" / "privacy-utility.png").exists()
    assert told("show", "kept")[1] == out
    code, out, err = told("run", "kept", "--resume", "--json", "-q")
    assert (code, err) == (0, "")
    document = json.loads(out)
    assert (document["runs"], document["of"], len(document["table"])) == (18, 18, 6)
    assert document["table"][0]["epsilon"] == "open"


def test_a_new_functional_file_reads_and_promises(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert told("new", "functional")[:2] == (0, "functional.toml\n")
    example = Path(__file__).parents[3] / "examples" / "functional.toml"
    assert (tmp_path / "functional.toml").read_text() == example.read_text()
    read = experiment.read("functional.toml")
    assert read.plan().statement.epsilon == pytest.approx(1.0, rel=1e-3)
