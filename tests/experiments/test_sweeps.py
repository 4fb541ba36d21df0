"""One experiment at several values: what is run, what is kept, what is told, and what is refused."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from tacit import Open
from tacit.errors import InvalidFile, InvalidValue, Refused, RunUnusable, TacitError
from tacit.experiments import experiment, sweeps
from tacit.experiments.batch import CELLS
from tacit.experiments.sweep_results import SweepResult
from tacit.experiments.sweeps import SweepCell
from tacit.reports.page.blocks import Figure, Folded, Grid, Page

FILE = """
name = "small"
seed = 3
rounds = 2
[data]
kind = "simulated"
design = "weibull"
records = 150
features = 3
[sites]
kind = "iid"
count = 3
[task]
kind = "poisson-ph"
cuts = 3
sample = 1.0
[privacy]
unit = "record"
epsilon = 3.0
delta = 1e-4
clip = 1.0
participation = 0.9
rehearsal = true
"""
EPSILONS = "privacy.epsilon=2,20,inf"


def written(folder: Path, text: str = FILE) -> Path:
    path = folder / "small.toml"
    path.write_text(text)
    return path


def read(folder: Path, *changes: str, text: str = FILE, seeds: int = 2) -> sweeps.Sweep:
    return sweeps.read(written(folder, text), changes, seeds=seeds, workers=1)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sweep")


@pytest.fixture(scope="module")
def done(place: Path) -> SweepResult:
    return read(place, EPSILONS).run(place / "run")


def at(epsilon: str, seed: int) -> SweepCell:
    return SweepCell(changes=(("privacy.epsilon", epsilon),), seed=seed)


def supposed(sweep: sweeps.Sweep, scores: dict[str, Any], **fields: object) -> SweepResult:
    """A sweep with made-up scores, by the words of its cells."""
    rows = {
        cell: {
            **cell.row, "unit": "record", "delta": 1e-4, "spent": 1.0, "rounds": 2, "seconds": 1.0,
            "scores": {"c_index": scores[str(cell)]}, "baselines": {}, "failed": None, **fields,
        }
        for cell in sweep.cells
        if str(cell) in scores
    }  # fmt: skip
    return sweep.result(rows, None)


def test_every_value_is_run_with_every_seed(done):
    frame = done.frame
    assert frame["privacy.epsilon"].tolist() == [2.0, 2.0, 20.0, 20.0, math.inf, math.inf]
    assert frame["seed"].tolist() == [3, 4] * 3
    assert frame["failed"].isna().all()
    assert frame["c_index"].between(0, 1).all()


def test_a_cell_is_a_run_that_can_be_made_by_hand(done, tmp_path):
    run = experiment.read(written(tmp_path), ["privacy.epsilon=20", "seed=4", "baselines=false"]).run(None)
    row = done.rows[at("20", 4)]
    assert row["scores"] == run.scores
    assert row["spent"] == run.privacy.epsilon


def test_an_infinite_epsilon_is_an_open_run_of_the_same_kind(done, tmp_path):
    sweep = read(tmp_path, EPSILONS)
    assert sweep.at(at("inf", 3).changes).privacy == Open(participation=0.9, clip=1.0)
    text = FILE.partition("[privacy]")[0] + '[privacy]\nkind = "open"\nparticipation = 0.9\nclip = 1.0\n'
    run = experiment.read(written(tmp_path, text), ["baselines=false"]).run(None)
    row = done.rows[at("inf", 3)]
    assert row["scores"] == run.scores
    assert (row["unit"], row["spent"]) == (None, None)


def test_an_infinite_epsilon_keeps_the_clip(tmp_path):
    states = {}
    for clip in ("1e-6", "1e6"):
        sweep = read(tmp_path, EPSILONS, f"privacy.clip={clip}")
        chosen = sweep.at(at("inf", 3).changes)
        run = chosen.run(None)
        assert run.privacy.epsilon is None
        assert run.privacy.sentences()[0].startswith("No promise")
        states[clip] = run.state
    free = replace(chosen, privacy=Open(participation=0.9)).run(None).state
    np.testing.assert_allclose(states["1e6"], free, rtol=1e-9)
    assert np.abs(states["1e-6"] - free).max() > 0.01, "clipped gradients hardly move"


def test_an_infinite_epsilon_is_the_same_model_where_nothing_is_clipped(tmp_path):
    text = FILE.replace('kind = "poisson-ph"\ncuts = 3\nsample = 1.0', 'kind = "cox-ph"\nhorizon = 3.0')
    text = text.replace("clip = 1.0\nparticipation = 0.9\n", "")
    sweep = read(tmp_path, EPSILONS, text=text)
    kinds = [sweep.at(at(epsilon, 3).changes).task.kind for epsilon in ("2", "inf")]
    assert kinds == ["newton-ph"] * 2
    run = sweep.at(at("inf", 3).changes).run(None)
    assert run.privacy.epsilon is None
    # As good as without noise: epsilon so large that noise changes nothing that counts.
    near = sweep.at(at("2", 3).changes)
    near = replace(near, privacy=replace(near.privacy, epsilon=1e5)).run(None)
    assert near.scores["c_index"] == pytest.approx(run.scores["c_index"], abs=0.02)


def test_a_sweep_shows_also_where_noise_hides_everything(tmp_path):
    text = FILE.replace('kind = "poisson-ph"\ncuts = 3\nsample = 1.0', 'kind = "cox-ph"\nhorizon = 3.0')
    text = text.replace("clip = 1.0\nparticipation = 0.9\nrehearsal = true\n", "")
    read(tmp_path, "privacy.epsilon=0.1,inf", text=text).check()


def test_what_is_spent_is_what_statements_say_and_never_more_than_was_asked_for(done):
    spent = done.table()["spent"]
    assert spent[2.0] == pytest.approx(2, rel=1e-3)
    assert spent[20.0] == pytest.approx(20, rel=1e-3)
    assert math.isnan(spent[math.inf])
    assert (done.frame["spent"].dropna() <= done.frame["privacy.epsilon"][:4] * (1 + 1e-9)).all()


def test_what_has_no_promise_is_trained_once_for_each_seed(done):
    with_baselines = [str(cell) for cell, row in done.rows.items() if row["baselines"]]
    assert sorted(with_baselines) == ["epsilon 2, seed 3", "epsilon 2, seed 4"]
    found = {one["name"]: one for one in done.baselines()}
    assert set(found) == {"alone", "pooled", "simplest"}
    assert found["pooled"]["n"] == 2
    own = [done.rows[at("2", seed)]["baselines"]["pooled"]["c_index"] for seed in (3, 4)]
    assert found["pooled"]["scores"]["c_index"]["mean"] == pytest.approx(np.mean(own))


def test_baselines_are_trained_again_where_they_depend_on_what_is_swept(tmp_path):
    sweep = read(tmp_path, "task.lr=0.1,0.2", EPSILONS, "aggregation.kind=mean,median", seeds=1)
    own = [cell for cell in sweep.cells if sweep._chosen(cell).baselines]
    assert [dict(cell.changes)["task.lr"] for cell in own] == ["0.1", "0.2"]
    without = read(tmp_path, EPSILONS, "baselines=false")
    assert not any(without._chosen(cell).baselines for cell in without.cells)


def test_time_is_kept_where_it_is_no_secret(done, tmp_path):
    assert (done.frame["seconds"] > 0).all()
    sweep = read(tmp_path, "privacy.epsilon=2,inf", "privacy.rehearsal=false", seeds=1)
    frame = sweep.run().frame
    assert frame["seconds"].isna().tolist() == [True, False]


def test_two_seeds_have_their_range_and_three_have_student_s_interval(tmp_path):
    two = read(tmp_path, "task.lr=1,2", seeds=2)
    scores = {"lr 1, seed 3": 0.5, "lr 1, seed 4": 0.7, "lr 2, seed 3": 0.6}
    table = supposed(two, scores).table()
    assert table.loc[1.0, ["c_index", "c_index_low", "c_index_high"]].tolist() == [0.6, 0.5, 0.7]
    assert table["interval"].tolist() == ["range", None]
    assert math.isnan(table.loc[2.0, "c_index_low"])
    assert table["n"].tolist() == [2, 1]
    three = read(tmp_path, "task.lr=1,2", seeds=3)
    values = {3: 0.5, 4: 0.7, 5: 0.66}
    table = supposed(three, {f"lr 1, seed {seed}": value for seed, value in values.items()}).table()
    known = list(values.values())
    low, high = stats.t.interval(0.95, 2, loc=np.mean(known), scale=stats.sem(known))
    assert table.loc[1.0, ["c_index_low", "c_index_high"]].tolist() == pytest.approx([low, high])
    assert table["interval"].tolist() == ["t"]


def test_what_intervals_are_is_said(done, tmp_path):
    assert done.interval == "the smaller and the larger of two seeds"
    assert "Intervals: the smaller and the larger of two seeds." in done.summary()
    one = supposed(read(tmp_path, "task.lr=1,2", seeds=1), {"lr 1, seed 3": 0.5})
    assert one.interval == ""
    assert "1 seed: there are no intervals." in one.summary()
    many = read(tmp_path, "task.lr=1,2", seeds=3)
    assert "Student's t" in supposed(many, {str(cell): 0.5 for cell in many.cells}).summary()


def test_the_summary_fits_eighty_columns(done, tmp_path):
    lists = ["task.lr=0.125,0.25", "aggregation.kind=geometric-median,covariance-filter", "task.cuts=3,4"]
    sweep = read(tmp_path, *lists, "privacy.clip=0.5,1.25")
    wide = supposed(sweep, {str(cell): 0.5 for cell in sweep.cells})
    for summary in (done.summary(), wide.summary()):
        assert max(map(len, summary.splitlines())) <= 80
    assert "C-index 0." in done.summary()
    assert "without a promise" in done.summary()


def test_a_sweep_is_remembered_and_gone_on_with_and_not_run_twice(done, place, monkeypatch):
    again = sweeps.load(place / "run")
    assert again is not None
    assert again.summary() == done.summary()
    assert again.as_dict() == done.as_dict()
    monkeypatch.setattr(sweeps, "run_experiment", lambda experiment: pytest.fail("was run again"))
    assert read(place, EPSILONS).run(place / "run").as_dict() == done.as_dict()
    # The directory keeps all that is needed to go on.
    assert sweeps.read(place / "run").run(place / "run").as_dict() == done.as_dict()


def test_only_the_rest_is_run_after_a_crash(done, place, tmp_path, monkeypatch):
    counted: list[tuple[object, int]] = []
    held = (place / "run" / CELLS).read_bytes().splitlines(keepends=True)
    for name in ("experiment.toml", "environment.json"):
        (tmp_path / name).write_bytes((place / "run" / name).read_bytes())
    # The third row was cut off while it was written.
    (tmp_path / CELLS).write_bytes(b"".join(held[:2]) + held[2][:20])
    real = sweeps.run_experiment

    def counting(experiment):
        counted.append((experiment.privacy.epsilon, experiment.seed))
        return real(experiment)

    monkeypatch.setattr(sweeps, "run_experiment", counting)
    again = read(place, EPSILONS).run(tmp_path)
    assert counted == [(None, 3), (2.0, 4), (20.0, 4), (None, 4)]
    assert (tmp_path / CELLS).read_bytes().splitlines(keepends=True)[:2] == held[:2]
    scores = ["c_index", "ibs"]
    assert again.frame[scores].equals(done.frame[scores])


def test_a_run_that_fails_stops_no_other_and_is_tried_again(place, tmp_path, monkeypatch):
    real = sweeps.run_experiment

    def failing(experiment):
        if getattr(experiment.privacy, "epsilon", None) == 20:
            raise InvalidValue("training diverged")
        return real(experiment)

    monkeypatch.setattr(sweeps, "run_experiment", failing)
    sweep = read(place, EPSILONS)
    broken = sweep.run(tmp_path)
    assert list(broken.failures) == ["training diverged"]
    assert broken.frame["failed"].notna().sum() == 2
    assert not broken.futile
    assert any(alert["words"].startswith("2 of 6 runs failed.") for alert in broken.alerts())
    assert "training diverged" in broken.summary()
    assert "Failures" in [section.title for section in broken.page().sections]
    monkeypatch.undo()
    lines: list[str] = []
    mended = sweep.run(tmp_path, announce=lines.append)
    assert [line.split(":")[1].strip() for line in lines] == ["epsilon 20, seed 3", "epsilon 20, seed 4"]
    assert not mended.failures


def test_another_sweep_in_the_same_place_is_refused(done, place):
    with pytest.raises(RunUnusable, match="it belongs to another experiment"):
        read(place, "privacy.epsilon=2,20").run(place / "run")
    with pytest.raises(RunUnusable, match="it belongs to another experiment"):
        read(place, EPSILONS, seeds=3).run(place / "run")


def test_the_number_of_workers_does_not_make_another_sweep(done, place):
    assert sweeps.read(written(place), [EPSILONS], seeds=2, workers=7).document == done.batch.document
    assert 1 <= sweeps.read(written(place), [EPSILONS]).workers <= 2


def test_other_directories_hold_no_sweep(tmp_path):
    assert sweeps.load(tmp_path) is None
    assert sweeps.load(tmp_path / "nowhere") is None


def test_two_lists_make_a_grid_and_single_values_are_plain_changes(tmp_path):
    sweep = read(tmp_path, EPSILONS, "task.lr=0.1,0.2", "rounds=4", seeds=3)
    assert len(sweep.cells) == 3 * 2 * 3
    assert sweep.experiment.rounds == 4
    assert sweep.size == "3 of privacy.epsilon x 2 of task.lr x 3 seeds"
    assert [cell.seed for cell in sweep.cells[::6]] == [3, 4, 5]
    chosen = sweep.at((("privacy.epsilon", "20"), ("task.lr", "0.2")))
    assert (chosen.privacy.epsilon, chosen.task.lr) == (20, 0.2)


def test_lists_and_tables_are_values_too(tmp_path):
    text = FILE.replace('"poisson-ph"', '"logistic-hazard"')
    sweep = read(tmp_path, "task.hidden=[4],[4,4]", text=text)
    assert [list(sweep.at(own).task.hidden) for own in sweep.combinations] == [[4], [4, 4]]


@pytest.mark.parametrize(
    ("changes", "kind", "words"),
    [
        (["rounds=3"], InvalidFile, "there is nothing to sweep"),
        (["privacy.epsilom=1,2"], InvalidFile, r'epsilom is not known \(did you mean "epsilon"\?\)'),
        (["privcy.epsilon=1,2"], InvalidFile, r'privcy is not known \(did you mean "privacy"\?\)'),
        (["privacy.epsilon=-1,2"], InvalidFile, r"with epsilon -1: \[privacy\] epsilon = -1"),
        (["seed=1,2"], InvalidFile, r"--set seed cannot be swept: give the number of seeds"),
        (["name=a,b"], InvalidFile, "--set name cannot be swept"),
        (["task.lr=0.1,0.2", "task.lr=0.3"], InvalidFile, r"--set task\.lr is given twice"),
        (["data.kind=held-records,simulated"], TacitError, "held-records"),
    ],
)
def test_what_cannot_be_swept_is_refused_when_it_is_read(tmp_path, changes, kind, words):
    with pytest.raises(kind, match=words):
        read(tmp_path, *changes)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (["privacy.epsilon=2,0"], r"with epsilon 0: \[privacy\] epsilon = 0\.0 is not allowed"),
        (["privacy.epsilon=2,lots"], r"with epsilon lots: \[privacy\] epsilon = 'lots' is not allowed"),
        (["aggregation.kind=mean,krum"], r"with aggregation krum: "),
    ],
)
def test_a_value_that_is_refused_refuses_the_whole_sweep_by_its_name(tmp_path, monkeypatch, changes, words):
    monkeypatch.setattr(sweeps, "run_experiment", lambda experiment: pytest.fail("something was run"))
    sweep = read(tmp_path, *changes)
    with pytest.raises(TacitError, match=words):
        sweep.run(tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("seeds", [0, -1, 1.5])
def test_seeds_are_counted_from_one(tmp_path, seeds):
    with pytest.raises(InvalidFile, match="seeds"):
        read(tmp_path, EPSILONS, seeds=seeds)


def test_too_many_runs_are_refused(tmp_path):
    many = ",".join(str(number) for number in range(1, 502))
    with pytest.raises(InvalidFile, match=r"the number of runs = 1002 is not allowed: .* at most 1,000"):
        read(tmp_path, f"privacy.epsilon={many}")


@pytest.mark.parametrize("workers", [0, -2])
def test_there_is_at_least_one_worker(tmp_path, workers):
    with pytest.raises(InvalidValue, match="workers"):
        sweeps.read(written(tmp_path), [EPSILONS], workers=workers)


@pytest.fixture
def records(tmp_path: Path) -> str:
    """A file about records that are somebody's."""
    generator = np.random.default_rng(1)
    rows = [f"{x:.3f},{t:.3f},1" for x, t in generator.exponential(size=(60, 2)) + 0.01]
    (tmp_path / "own.csv").write_text("\n".join(["age,time,event", *rows]) + "\n")
    data = '[data]\nkind = "csv"\npath = "own.csv"\ntime = "time"\nevent = "event"\n'
    head, rest = FILE.partition("[data]")[0], FILE.partition("[sites]")[2]
    return f"{head}{data}[sites]{rest}"


@pytest.mark.parametrize("changes", [[EPSILONS], ["privacy.epsilon=inf", "task.lr=0.1,0.2"]])
def test_private_records_are_not_swept_under_a_promise(tmp_path, records, changes):
    real = records.replace("rehearsal = true", "rehearsal = false")
    with pytest.raises(
        Refused, match=r"private records: it compares the scores of all runs.*rehearsal = true"
    ):
        read(tmp_path, *changes, text=real).run()


def test_private_records_may_be_rehearsed_with_or_swept_openly(tmp_path, records):
    read(tmp_path, EPSILONS, text=records).check()
    opened = records.partition("[privacy]")[0]
    read(tmp_path, "task.lr=0.1,0.2", text=opened).check()


def test_data_at_the_sites_are_not_swept(tmp_path):
    held = (Path(__file__).parents[2] / "examples" / "hospitals.toml").read_text()
    sweep = read(tmp_path, "privacy.epsilon=1,2", "privacy.rehearsal=true", text=held)
    with pytest.raises(Refused, match=r"\[data\] held-records, whose data are at the sites"):
        sweep.run()


@pytest.mark.parametrize("table", ["[tune]", "[study]", '[attack]\nkinds = ["sign-flip"]'])
def test_files_that_ask_for_many_runs_themselves_are_refused(tmp_path, table):
    with pytest.raises(InvalidFile, match=table[1:5]):
        read(tmp_path, EPSILONS, text=f"{FILE}{table}\n")


def test_a_promise_about_public_records_need_not_be_a_rehearsal(tmp_path):
    read(tmp_path, EPSILONS, "privacy.rehearsal=false").check()


def test_the_document_is_json_and_says_it_all(done):
    told = json.loads(json.dumps(done.as_dict(), allow_nan=False))
    assert (told["schema"], told["kind"]) == (1, "sweep")
    assert told["goal"] == ["c_index", "max"]
    assert told["swept"] == {"privacy.epsilon": ["2", "20", "inf"]}
    assert (told["runs"], told["of"], told["seeds"]) == (6, 6, [3, 4])
    assert [row["changes"]["privacy.epsilon"] for row in told["table"]] == ["2", "20", "inf"]
    assert told["table"][2]["spent"] is None
    assert len(told["rows"]) == 6


def test_a_report_leads_with_the_curve_and_ends_with_how_to_do_it_again(done):
    page = done.page()
    assert isinstance(page, Page)
    assert [section.title for section in page.sections] == ["Result", "What runs cost", "Reproduce"]
    assert page.lead.startswith(
        "None of 3 results is better than Kaplan-Meier, the simplest baseline. C-index 0."
    )
    figure, table = page.sections[0].blocks[:2]
    assert isinstance(figure, Figure)
    assert isinstance(table, Grid)
    assert [row[0] for row in table.rows] == [
        "2", "20", "inf", "each site alone", "pooled", "Kaplan-Meier",
    ]  # fmt: skip
    words = [alert.words for alert in page.alerts]
    assert any(line.startswith("2 seeds") for line in words)
    assert any(line.startswith("REHEARSAL") for line in words)
    again = page.document["reproduce"]
    assert again["command"] == "tacit sweep small.toml"
    folded = [block for block in page.sections[2].blocks if isinstance(block, Folded)]
    assert folded[0].blocks[0].text == again["experiment"]


def test_the_simplest_baseline_stands_beside_every_score_and_what_is_no_better_says_so_first(done):
    row = next(one for one in done.baselines() if one["name"] == "simplest")
    assert (row["label"], row["changes"], row["n"]) == ("Kaplan-Meier", {}, 2)
    own = [done.rows[at("20", seed)]["simplest"]["scores"]["ibs"] for seed in (3, 4)]
    assert row["scores"]["ibs"]["mean"] == pytest.approx(np.mean(own))
    # This model has few rounds: its error is above that of one curve for all.
    mean = done.table().loc[20.0, "ibs"]
    assert mean > np.mean(own)
    said = f"Epsilon 20: not better than Kaplan-Meier, the simplest baseline: IBS {mean:.4f} against"
    first = done.page().alerts[1]
    assert first.tone == "stop"
    assert first.words.startswith(said)
    assert done.summary().startswith("verdict  Epsilon 2: not better than Kaplan-Meier")
    told = json.loads(json.dumps(done.as_dict()))["verdicts"][1]
    assert told["condition"] == "epsilon 20"
    assert told["verdict"][0].startswith("not better than Kaplan-Meier")
    assert told["simplest"]["scores"]["ibs"] == pytest.approx(np.mean(own))


def test_rows_of_an_earlier_version_have_no_verdict(done):
    rows = {cell: {k: v for k, v in row.items() if k != "simplest"} for cell, row in done.rows.items()}
    before = done.batch.result(rows, None)
    assert [verdict.words for verdict in before.verdicts] == [(), (), ()]
    assert before.page().lead.startswith("C-index 0.")


def test_the_file_of_a_report_is_the_same_sweep(done, tmp_path):
    path = tmp_path / "again.toml"
    path.write_text(done.page().document["reproduce"]["experiment"])
    assert sweeps.read(path).document == done.batch.document


def test_a_sweep_of_which_nothing_is_known_still_says_so(tmp_path):
    none = read(tmp_path, EPSILONS).result({}, None)
    assert "No run has a score." in none.summary()
    assert "6 of 6 runs are still to be made." in none.summary()
    assert none.figure() is None
    assert none.page().lead == "There are no results to plot for small yet."
    assert none.table().empty


def test_a_price_that_is_not_proven_is_never_shown_as_one(tmp_path):
    sweep = read(tmp_path, "privacy.epsilon=1,2", seeds=1)
    loose = supposed(sweep, {str(cell): 0.5 for cell in sweep.cells}, spent=None)
    assert loose.figure() is None
    assert "not proven" in loose.summary()
    assert any("is not proven" in alert["words"] for alert in loose.alerts())


def test_the_dearest_run_is_what_a_value_costs(tmp_path):
    sweep = read(tmp_path, "privacy.epsilon=1,2")
    known = supposed(sweep, {str(cell): 0.5 for cell in sweep.cells})
    rows = {cell: {**row, "spent": 0.9 if cell.seed == 3 else 0.99} for cell, row in known.rows.items()}
    assert sweep.result(rows, None).table()["spent"].tolist() == [0.99, 0.99]


def test_notebooks_show_it(done):
    html = done._repr_html_()
    assert "small: a sweep of epsilon" in html
    assert "<script" not in html


CURVES = """name = "curves"
[data]
kind = "simulated-curves"
design = "smooth"
records = 400
points = 21
held_out = 0.5
[sites]
kind = "columns"
count = 2
[task]
kind = "functional-boosting"
size = 6
steps = 15
smooth_s = 0.0
smooth_t = 0.0
[privacy]
unit = "record"
epsilon = 1.0
delta = 1e-5
clip = 0.8
rehearsal = true
"""


@pytest.mark.parametrize("noise", ["site", "server"])
@pytest.mark.parametrize(
    "radius", ["task.kind=functional-boosting", "task.radius=private", "task.radius=0.5"]
)
def test_curves_without_a_promise_keep_release_coordinates_and_clipping(tmp_path, noise, radius):
    place = tmp_path / "curves.toml"
    place.write_text(CURVES)
    changes = [f"privacy.noise={noise}", radius, "privacy.epsilon=1e8,inf"]
    sweep = sweeps.read(place, changes, seeds=1)
    nearly, without = (sweep.at(changes) for changes in sweep.combinations)
    assert without.privacy == Open(clip=0.8)
    assert without.task.release == {"site": "local", "server": "moments"}[noise]
    promised = nearly.task.with_privacy(nearly.privacy)
    assert (without.task.components, without.task.folds) == (promised.components, promised.folds)
    ours, theirs = without.run(None), nearly.run(None)
    # The difference is noise alone, and at this price there is next to none.
    assert ours.scores["ril2"] == pytest.approx(theirs.scores["ril2"], abs=2e-3)
    assert ours.privacy.epsilon is None
    opened = replace(without, privacy=Open(), task=replace(nearly.task, release=without.task.release)).run(
        None
    )
    assert abs(opened.scores["ril2"] - theirs.scores["ril2"]) > 5e-3
