"""Regimes, promises and seeds in worlds, from one file."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from browsing import opened, require_readable, size
from tacit import Open, Privacy
from tacit.aggregation.defence.clustering import Clusters
from tacit.aggregation.mean import Mean
from tacit.aggregation.server import Plain
from tacit.cli.app import app
from tacit.control.figures import maps
from tacit.control.history import History
from tacit.control.tasks import PPO
from tacit.errors import InvalidFile, InvalidValue, Refused, RunUnusable, TooFewSites
from tacit.experiments import experiment, report, studies
from tacit.experiments.studies import environments, figures
from tacit.experiments.studies.environment_results import WorldStudyResult
from tacit.experiments.studies.environments import WorldCell
from tacit.experiments.studies.regimes import merge
from tacit.reports.page import write
from tacit.reports.page.blocks import Figure, Grid, Page, Section, Text
from tacit.reports.page.html import fragment, html
from tacit.reports.plots.style import picture, save_figure
from tacit.runtime.keys import Key

FILE = """
name = "poles"
seed = 3
rounds = 2
[data]
env = "CartPole-v1"
episodes = 2
watch = 1
[data.unseen.odd]
sutton_barto_reward = true
[sites]
copies = 2
[sites.light]
[sites.heavy]
sutton_barto_reward = true
[task]
kind = "ppo"
hidden = [4]
steps = 256
epochs = 1
[study]
films = false
workers = 1
"""
PROMISE = """
[privacy]
unit = "site"
delta = 1e-2
clip = 0.5
rehearsal = true
"""
LAPLACE = """
[study.laplace]
rounds = 1
[study.laplace.privacy]
unit = "site"
mechanism = "laplace"
clip = 15.0
noise_multiplier = 0.1
delta = 0.0
rehearsal = true
"""
EVERY = 'regimes = ["alone", "federated", "clustered", "private", "laplace"]\nepsilons = [50, 5]\n'
KINDS = "[sites.light]\n[sites.heavy]\nsutton_barto_reward = true\n"
WHOLE = FILE + EVERY + "replicates = 2\n" + LAPLACE + PROMISE
LABELS = ["untrained", "alone", "federated", "clustered", "private 50", "private 5", "laplace"]
FIGURES = ["learning-curves", "overlay", "side-by-side", "scenarios", "privacy-return", "clusters-clustered"]


def written(folder: Path, text: str = FILE) -> Path:
    path = folder / "study.toml"
    path.write_text(text)
    return path


def read(folder: Path, text: str, *changes: str) -> studies.Study:
    return studies.read(written(folder, text), changes)


def regimes(study: studies.Study) -> dict[str, experiment.Experiment]:
    return {regime.label: regime.experiment for regime in study.regimes}


def told(*words: object) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, list(map(str, words)))
    return done.exit_code, done.stdout, done.stderr


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> WorldStudyResult:
    folder = tmp_path_factory.mktemp("whole")
    return read(folder, WHOLE).run(folder / "run")


def test_every_regime_is_run_with_every_seed_and_untrained_policies_beside_them(whole):
    frame = whole.frame
    assert frame["failed"].isna().all()
    assert len(frame) == 7 * 2
    assert set(frame["seed"]) == {3, 4}
    assert whole.table()["label"].tolist() == LABELS
    assert (whole.table()["n"] == 2).all()
    for name in ("return", "iqm", "return@light", "return@heavy", "return@odd", "return_unseen", "solved"):
        assert np.isfinite(frame[name]).all(), name
    assert frame.query("regime != 'untrained'")["return"].nunique() > 2


def test_a_cell_is_a_run_that_can_be_made_by_hand(whole, tmp_path):
    text = FILE.partition("[study]")[0]
    run = experiment.read(written(tmp_path, text), ["seed=4", "baselines=false"]).run(None)
    row = whole.rows[WorldCell(regime="federated", epsilon=None, seed=4)]
    assert row["scores"] == run.scores


def test_untrained_policies_act_by_chance(whole):
    # A pole that is pushed by chance falls after some twenty steps.
    untrained = whole.frame.query("regime == 'untrained'")
    assert untrained["return@light"].between(10, 50).all()
    assert (untrained["steps_in_all"] == 0).all()


def test_what_is_spent_is_what_the_statement_says(whole):
    table = whole.table().set_index("label")
    assert table.loc["private 50", "spent"] == pytest.approx(50, rel=1e-3)
    assert table.loc["private 5", "spent"] == pytest.approx(5, rel=1e-3)
    # One round of Laplace noise: two clip bounds between neighbors, over the noise.
    assert table.loc["laplace", "spent"] == pytest.approx(20)
    assert table.loc["laplace", "delta"] == 0
    assert table.loc[["untrained", "alone", "federated", "clustered"], "spent"].isna().all()


def test_steps_are_counted_for_one_site_and_for_all(whole):
    table = whole.table().set_index("label")
    assert table["steps"].to_dict() == dict.fromkeys(LABELS, 512.0) | {"untrained": 0.0, "laplace": 256.0}
    assert table.loc["federated", "steps_in_all"] == 4 * 512


def test_clusters_are_compared_with_worlds(whole):
    table = whole.table().set_index("label")
    assert -1 <= table.loc["clustered", "agreement"] <= 1
    assert table.drop(index="clustered")["agreement"].isna().all()


def test_intervals_are_over_seeds_or_else_those_of_the_run(whole, tmp_path):
    own = whole.frame.query("regime == 'federated'")["return"]
    row = whole.table().set_index("label").loc["federated"]
    # Student's t with one degree of freedom.
    half = 12.7062 * own.std(ddof=1) / np.sqrt(2)
    assert row["return"] == pytest.approx(own.mean())
    assert row["return_high"] - row["return"] == pytest.approx(half, rel=1e-4)
    one = whole.batch.result({cell: row for cell, row in whole.rows.items() if cell.seed == 3}, None)
    run = one.rows[WorldCell(regime="federated", epsilon=None, seed=3)]["scores"]
    row = one.table().set_index("label").loc["federated"]
    assert (row["return_low"], row["return_high"]) == (run["return_low"], run["return_high"])
    assert np.isnan(row["return@light_low"])
    assert "One seed: intervals are by bootstrap" in one.summary()


def test_the_summary_says_what_regimes_promise_return_and_took(whole):
    text = whole.summary()
    assert "task     ppo in CartPole-v1\nsites    4: 2 each of light, heavy\n" in text
    assert "runs 14: alone, federated, clustered, private 50, private 5 and laplace, beside" in " ".join(
        text.split()
    )
    assert re.search(r"(?m)^regime +promise +n +return +95 % +IQM +95 % +steps a site +steps in all$", text)
    assert re.search(r"(?m)^private 5 +epsilon 5 at delta 0.01 +2 +\d+\.\d +-?\d+ to \d+ .* 512 +2048$", text)
    assert re.search(r"(?m)^laplace +epsilon 20 at delta 0 +2 .* 256 +1024$", text)
    assert re.search(r"(?m)^return in +light +heavy +odd \(unseen\) +solved % +agreement$", text)
    assert "Means over 2 seeds" in text


def changed(whole: WorldStudyResult, **returns: float) -> WorldStudyResult:
    """The same study with other returns, in every world, by regime."""
    rows = {}
    for cell, row in whole.rows.items():
        value = returns.get(cell.regime)
        scores = dict.fromkeys(row["scores"], value) if value is not None else row["scores"]
        rows[cell] = {**row, "scores": scores}
    return replace(whole, rows=rows)


def test_the_summary_says_who_is_above_agents_alone_and_who_has_learnt_nothing(whole):
    known = {"untrained": 9.0, "alone": 50.0, "federated": 90.0, "clustered": 80.0, "private": 60.0}
    done = changed(whole, **known, laplace=8.0)
    assert done.above_alone() == ["federated", "clustered", "private 50", "private 5"]
    assert done.learnt_nothing() == ["laplace"]
    text = done.summary()
    assert (
        "federated, clustered, private 50 and private 5 are above agents alone in every world, at as many "
        "steps a site." in text
    )
    assert "laplace has learned nothing: not above an untrained policy (9.0)." in text
    assert done.as_dict()["learnt_nothing"] == ["laplace"]
    worse = changed(whole, **{**known, "alone": 100.0}, laplace=8.0)
    assert "No regime is above agents alone in every world." in worse.summary()


@pytest.mark.slow
def test_the_figures_are_drawn(whole, tmp_path):
    lines: list[str] = []
    drawn = whole.draw(tmp_path, announce=lines.append)
    assert list(drawn) == FIGURES
    assert lines == []
    for name, path in drawn.items():
        assert path == tmp_path / "figures" / f"{name}.png"
        assert path.read_bytes().startswith(b"\x89PNG")


def test_a_figure_that_cannot_be_drawn_is_told_of_and_left_out(whole, tmp_path, monkeypatch):
    def wanted(studied):
        return {"good": Path.touch, "bad": lambda place: maps.weight_map([], [], [], [], key=Key(0))}

    monkeypatch.setattr(figures, "drawings", wanted)
    lines: list[str] = []
    assert list(whole.figures(tmp_path / "figures", announce=lines.append)) == ["good"]
    (line,) = lines
    assert line.startswith("left out bad: weights = ")


def test_weights_that_were_kept_are_drawn_as_maps(whole, tmp_path, monkeypatch):
    sites = ["light-1", "light-2", "heavy-1", "heavy-2", "global"]
    place = whole.path / "runs" / "federated-seed-3" / "history.npz"
    before = place.read_bytes()
    numbers = np.repeat([1, 2], 5)
    History(
        *(np.array([]) for _ in range(5)),
        np.random.default_rng(0).normal(size=(10, 7)).astype(np.float32),
        np.array(sites * 2),
        256 * numbers,
        numbers,
    ).save(place)
    wanted = figures.drawings(whole)
    place.write_bytes(before)
    assert list(wanted) == [*FIGURES, "weights-t-sne-federated", "weights-umap-federated"]
    wanted["weights-t-sne-federated"](tmp_path / "map.png")
    assert (tmp_path / "map.png").read_bytes().startswith(b"\x89PNG")
    monkeypatch.setitem(maps.HOMES, "umap", "nowhere")
    with pytest.raises(InvalidValue, match="nowhere, which is not installed"):
        wanted["weights-umap-federated"](tmp_path / "map.png")


def test_films_are_of_the_federated_agents_once_in_each_kind_of_world(whole, tmp_path):
    films = whole.films(tmp_path / "films")
    assert list(films) == ["federated-light", "federated-heavy", "federated-odd"]
    for name, path in films.items():
        assert path == tmp_path / "films" / f"{name}.gif"
        assert path.read_bytes().startswith(b"GIF")


def test_of_regimes_without_a_federated_one_the_best_is_filmed(whole, tmp_path):
    chosen = {cell: row for cell, row in whole.rows.items() if cell.regime != "federated"}
    films = changed(replace(whole, rows=chosen), alone=900.0).films(tmp_path)
    # In a world that is nobody's, no site's own model has more to say than another's.
    assert list(films) == ["alone-light", "alone-heavy"]


def test_without_a_directory_there_are_means_but_no_rounds_to_draw(tmp_path):
    done = read(tmp_path, FILE, "study.regimes=['federated']").run()
    assert list(done.figures(tmp_path / "figures")) == ["scenarios"]
    assert done.films(tmp_path / "films") == {}


def few_drawings(studied: WorldStudyResult) -> dict[str, object]:
    """One figure of each part, and one that cannot be drawn."""
    wanted = figures.drawings(studied)
    kept = {name: wanted[name] for name in ("scenarios", "overlay", "clusters-clustered")}
    return {**kept, "weights-none": lambda place: maps.weight_map([], [], [], [], key=Key(0))}


@pytest.fixture(scope="module")
def page(whole: WorldStudyResult) -> Page:
    """The report of a study in which one regime has learned nothing, with its films."""
    known = {"untrained": 9.0, "alone": 50.0, "federated": 90.0, "clustered": 80.0, "private": 60.0}
    whole.films(whole.path / "films")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(report, "drawings", few_drawings)
        return changed(whole, **known, laplace=8.0).page()


def test_a_report_has_the_verdict_first_then_figures_films_and_the_promise(page):
    assert page.lead.startswith(
        "1 of 6 results is not better than an untrained policy, the simplest baseline: laplace."
    )
    assert page.lead.endswith("Mean return 90.0 by federated, the best of 6 regimes.")
    assert page.alerts[0].tone == "stop"
    assert page.alerts[0].words == (
        "Laplace: not better than an untrained policy, the simplest baseline: return 8.0 against 9.0."
    )
    sections = {section.title: section.blocks for section in page.sections}
    assert list(sections) == ["Result", "Learning", "Clusters", "Films", "The promise", "Runs", "Reproduce"]
    assert [block.name for block in sections["Result"] if isinstance(block, Figure)] == ["scenarios"]
    left_out = [block.words for block in sections["Result"] if isinstance(block, Text)]
    assert any(words.startswith("The figure weights-none is left out") for words in left_out)
    films = sections["Films"]
    assert [film.path for film in films] == [
        "films/federated-heavy.gif", "films/federated-light.gif", "films/federated-odd.gif",
    ]  # fmt: skip
    assert films[0].words == "An agent of the regime federated in heavy: one episode."
    prices = next(block for block in sections["The promise"] if isinstance(block, Grid))
    assert ("private 5", "5", "5") in prices.rows
    assert page.document["verdicts"][-1]["verdict"] == [
        "not better than an untrained policy, the simplest baseline: return 8.0 against 9.0"
    ]


def test_a_report_is_the_same_in_every_form_and_the_film_is_inside(page, tmp_path):
    shown = {kind: write(page, tmp_path / f"study{kind}").read_text() for kind in (".html", ".md", ".json")}
    assert shown[".html"].count('src="data:image/gif;base64,') == 3
    assert (
        "*Film (films/federated-odd.gif): An agent of the regime federated in odd: one episode.*"
        in shown[".md"]
    )
    assert "data:image/gif" not in fragment(page)
    assert json.loads(shown[".json"])["kind"] == "worldstudyresult"
    assert json.loads(shown[".json"])["alerts"][0]["tone"] == "stop"


@pytest.mark.parametrize(("width", "scheme"), [(1280, "dark"), (390, "light")])
def test_a_report_is_whole_on_a_desk_and_on_a_phone(chromium, page, tmp_path, width, scheme):
    place = write(page, tmp_path / "study.html")
    with opened(chromium, place.as_uri(), color_scheme=scheme, **size(width)) as tab:
        # A film inside the page is no request.
        tab.asked = [address for address in tab.asked if not address.startswith("data:")]
        require_readable(tab, width)
        for film in tab.locator(".film img").all():
            assert film.evaluate("film => film.naturalWidth") > 100
            assert film.bounding_box()["x"] + film.bounding_box()["width"] <= width
        assert tab.locator(".film .enlarge").count() == 0


def test_films_beyond_what_a_report_can_carry_are_named(whole, monkeypatch):
    whole.films(whole.path / "films")
    monkeypatch.setattr(report, "LARGEST", 0)
    films = list(report._films(whole))
    assert [film.content for film in films] == [b"", b"", b""]
    shown = html(Page(title="t", lead="", sections=(Section("Films", tuple(films)),)))
    assert "It lies in films/federated-odd.gif." in shown
    assert "data:image/gif" not in shown


class Killed(BaseException):
    """The machine went down."""


@pytest.mark.slow
def test_a_study_that_dies_in_the_middle_of_a_run_goes_on_there_to_the_same_end(whole, tmp_path, monkeypatch):
    trained, rounds = PPO.train, []

    def dying(self, *given):
        rounds.append(1)
        # The first cell that trains is alone, with two rounds; the fourth round is the last of the next.
        if len(rounds) == 4:
            raise Killed
        return trained(self, *given)

    study, place = read(tmp_path, WHOLE), tmp_path / "run"
    monkeypatch.setattr(PPO, "train", dying)
    with pytest.raises(Killed):
        study.run(place)
    monkeypatch.undo()
    begun = (place / "runs" / "federated-seed-3" / "rounds.jsonl").read_text()
    assert begun.count("\n") == 1
    partly = studies.load(place)
    assert len(partly.rows) == 2
    assert "2 of 14: alone" in partly.summary()
    again: list[str] = []
    done = studies.read(place, ["study.workers=1"]).run(place, resume=True, announce=again.append)
    assert again[0].startswith("3 of 14: federated, seed 3: return ")
    assert len(again) == 12
    finished = (place / "runs" / "federated-seed-3" / "rounds.jsonl").read_text().splitlines()
    assert json.loads(finished[0]) == json.loads(begun)
    for cell, row in whole.rows.items():
        assert done.rows[cell]["scores"] == row["scores"], cell
        assert done.rows[cell]["spent"] == row["spent"], cell


@pytest.mark.slow
def test_several_processes_come_to_the_same(whole, tmp_path):
    done = read(tmp_path, FILE, "study.regimes=['federated']", "study.workers=2").run(tmp_path / "run")
    assert len(done.rows) == 2
    for cell, row in done.rows.items():
        assert row["scores"] == whole.rows[cell]["scores"], cell


def test_a_cell_that_fails_says_why_and_is_tried_again(tmp_path, monkeypatch):
    trained = environments._train

    def broken(chosen, place):
        if chosen.clusters is not None:
            raise Refused("not today")
        return trained(chosen, place)

    monkeypatch.setattr(environments, "_train", broken)
    study, lines = read(tmp_path, FILE), []
    done = study.run(tmp_path / "run", announce=lines.append)
    assert list(done.failures) == ["not today"]
    assert "failed, 1 runs, such as alone, seed 3: not today" in done.summary()
    assert "2 of 3: alone, seed 3: failed: not today" in lines
    monkeypatch.undo()
    mended = study.run(tmp_path / "run", resume=True)
    assert mended.failures == {}
    with pytest.raises(RunUnusable, match="exists already"):
        study.run(tmp_path / "run")


def test_a_study_of_which_nothing_worked_still_says_so(tmp_path, monkeypatch):
    def broken(*given):
        raise Refused("not today")

    monkeypatch.setattr(environments, "_train", broken)
    monkeypatch.setattr(environments, "_untrained_row", broken)
    done = read(tmp_path, FILE).run()
    assert done.futile
    assert "No run has a score." in done.summary()
    assert done.as_dict()["table"] == []
    assert done.draw(tmp_path) == {}


def test_all_regimes_that_the_file_has_what_they_need_for_are_run_if_none_is_named(tmp_path):
    assert list(regimes(read(tmp_path, FILE))) == ["alone", "federated"]
    more = LAPLACE + PROMISE + 'epsilon = 3\n[clusters]\nby = "weights"\ncount = 2\n'
    found = regimes(read(tmp_path, FILE + more))
    assert list(found) == ["alone", "federated", "clustered", "private", "laplace"]
    assert found["clustered"].clusters == Clusters(by="weights", count=2)


def test_the_promise_is_for_the_private_regime_and_clusters_for_the_clustered_one(tmp_path):
    found = regimes(read(tmp_path, WHOLE, "rounds=9"))
    assert {name: type(each.privacy) for name, each in found.items()} == {
        "alone": Open, "federated": Open, "clustered": Open, "private 50": Privacy, "private 5": Privacy,
        "laplace": Privacy,
    }  # fmt: skip
    assert found["private 5"].privacy == Privacy(
        unit="site", delta=1e-2, clip=0.5, epsilon=5.0, rehearsal=True
    )
    assert found["laplace"].privacy.noise_multiplier == 0.1
    assert found["laplace"].rounds == 1
    assert found["clustered"].clusters == Clusters(by="direction", count=2, warm=2)
    assert [name for name, each in found.items() if each.clusters is not None] == ["alone", "clustered"]


def test_alone_has_as_many_steps_a_site_and_few_copies_and_nothing_of_the_servers(tmp_path):
    text = (
        FILE
        + PROMISE
        + 'epsilon = 3\nparticipation = 0.25\n[server]\nlr = 2.0\n[aggregation]\nkind = "median"\n'
    )
    study = read(tmp_path, text, "sites.copies=40", "rounds=10")
    found = regimes(study)
    assert found["alone"].rounds == 2
    assert found["alone"].sites.names == ("light-1", "light-2", "light-3", "heavy-1", "heavy-2", "heavy-3")
    assert found["alone"].privacy == Open()
    assert (found["alone"].server, found["alone"].aggregation) == (Plain(), Mean())
    assert found["federated"].privacy == Open(participation=0.25)
    assert found["federated"].server == Plain(lr=2.0)
    more = regimes(read(tmp_path, text, "sites.copies=40", "study.alone_copies=5"))
    assert len(more["alone"].sites.names) == 10
    with pytest.raises(InvalidFile, match=r"alone_copies = 2 .* at least 3: agents are evaluated in"):
        read(tmp_path, text, "sites.copies=40", "study.alone_copies=2")


def test_fewer_lonely_sites_are_told_of(whole):
    rows = {cell: {**row, "sites": 2 if cell.regime == "alone" else 4} for cell, row in whole.rows.items()}
    text = replace(whole, rows=rows).summary()
    assert "Alone, 2 of 4 sites train: those in which agents are evaluated." in text


def test_steps_of_a_secret_draw_are_those_to_be_expected(tmp_path):
    text = FILE + PROMISE + 'epsilon = 50\nnoise = "server"\nparticipation = 0.5\n'
    study = read(tmp_path, text, "study.regimes=['private']", "rounds=3")
    row = study.run_cell(study.cells[1], None)
    assert row["failed"] is None
    assert (row["steps"], row["steps_in_all"]) == (0.5 * 3 * 256, 4 * 0.5 * 3 * 256)


def test_a_regime_of_ones_own_changes_tables_key_by_key(tmp_path):
    own = """[study.wide]
rounds = 3
task = { hidden = [6] }
server = { kind = "momentum" }
clusters = { by = "site" }
"""
    found = regimes(read(tmp_path, FILE + own))["wide"]
    assert (found.rounds, found.task.hidden, found.task.steps) == (3, (6,), 256)
    assert found.server.kind == "momentum"
    assert found.clusters == Clusters(by="site")
    assert found.privacy == Open()


def test_a_table_of_another_kind_and_a_promise_take_the_place_of_the_first():
    document = {"server": {"kind": "plain", "lr": 2.0}, "privacy": {"epsilon": 3}, "rounds": 4}
    assert merge(document, {"server": {"lr": 1.0}})["server"] == {"kind": "plain", "lr": 1.0}
    assert merge(document, {"server": {"kind": "adam"}})["server"] == {"kind": "adam"}
    assert merge(document, {"privacy": {"clip": 1}})["privacy"] == {"clip": 1}
    assert merge(document, {"rounds": 2})["rounds"] == 2
    assert document["server"] == {"kind": "plain", "lr": 2.0}


def test_compiled_worlds_keep_all_cores_busy_so_that_one_run_goes_at_a_time(tmp_path):
    text = FILE.replace("CartPole-v1", "LunarLander-v3").replace(
        "sutton_barto_reward = true", "gravity = -3.0"
    )
    text = text.replace("workers = 1\n", "")
    assert read(tmp_path, text, "data.world=fast-lander").workers == 1
    assert read(tmp_path, text, "study.workers=5").workers == 5


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"federated"', '"federatd"', r'regimes = \'federatd\' .*\(did you mean "federated"\?\), or'),
        ('"federated"', '"alone"', r"\[study\] regimes = \['alone', 'alone'.* different ones"),
        (EVERY, "regimes = []\n", r"\[study\] regimes = \[\] .* at least one"),
        (', "laplace"', "", r"\[study.laplace\] is not used: add 'laplace' to regimes"),
        ("[50, 5]", "[5, 5]", r"\[study\] epsilons = \[5.0, 5.0\] .* different ones"),
        ("[50, 5]", "[0]", r"\[study\] epsilons = 0.0 .* above 0"),
        ('"private", ', "", r'\[study\] epsilons = \[50.0, 5.0\] are for the regime "private"'),
        ("clip = 0.5", "clip = 0.5\nepsilon = 2", r"\[privacy\] epsilon is given twice: remove it"),
        ("clip = 0.5", "clip = 0.5\nnoise_multiplier = 2", r"noise_multiplier is given twice"),
        (PROMISE, "", r'regimes has "private", and \[privacy\] is missing: give a promise, or remove'),
        ("clip = 0.5", "clop = 0.5", r'\[privacy\] clop is not known \(did you mean "clip"'),
        (KINDS, "", r'has "clustered", and the number of models is missing: give a table'),
        ("films = false", "film = false", r'\[study\] film is not known \(did you mean "films"'),
        ("replicates = 2", "replicates = 0", r"\[study\] replicates = 0 .* at least 1"),
        ("workers = 1", "workers = 0", r"\[study\] workers = 0"),
        ("[study.laplace]", "[study.laplace]\nseed = 3", r"\[study.laplace\] seed is not allowed"),
        ("[study.laplace]", "[study.laplace]\nround = 3", r'\[study.laplace\] round is not known'),
        ("clip = 15.0", "clop = 15.0", r'\[study.laplace\] \[privacy\] clop is not known'),
        ("[study.laplace]", "[study.alone]\n[study.laplace]", r"\[study.alone\] has a name that is taken"),
        ("[study.laplace]", "[study.untrained]\n[study.laplace]", r"has a name that is taken"),
        ("[study.laplace]", '[study."a/b"]\n[study.laplace]', r"regime = 'a/b' .* it names a directory"),
        ("[study]", "[attack]\nliars = 1\n[study]", r"\[attack\], which would attack every regime"),
        ("steps = 256", "stepps = 256", r'\[task\] stepps is not known \(did you mean "steps"'),
    ],
)  # fmt: skip
def test_a_bad_file_is_refused_by_name_before_anything_runs(old, new, said, tmp_path):
    text = WHOLE.replace(old, new, 1).replace(
        "replicates = 2\n", "" if "replicates" in new else "replicates = 2\n"
    )
    assert text != WHOLE
    with pytest.raises(InvalidFile, match=f"(?s){said}"):
        read(tmp_path, text)


@pytest.mark.parametrize(
    ("changes", "error", "said"),
    [
        (["privacy.unit=record"], Refused, 'regime private 50: unit = "record" does not go with ppo'),
        (["clusters.count=5"], Exception, r"regime clustered: \[clusters\] count = 5"),
        (["aggregation.kind=trimmed-mean", "aggregation.f=1"], TooFewSites, "regime clustered: "),
        (["data.env=CartPole-v7"], Exception, "CartPole-v7"),
    ],
)
def test_what_a_regime_cannot_have_is_refused_before_anything_is_written(changes, error, said, tmp_path):
    study = read(tmp_path, WHOLE, *changes)
    with pytest.raises(error, match=said):
        study.run(tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_the_command_plans_runs_and_shows_a_study(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    few = {"learning-curves": lambda place: save_figure(picture(1.0, "Two curves", ""), place)}
    monkeypatch.setattr(figures, "drawings", lambda studied: few)
    monkeypatch.setattr(report, "drawings", lambda studied: few)
    path = written(tmp_path, WHOLE)
    small = ("--set", "study.replicates=1")
    code, out, _ = told("plan", path, *small)
    assert code == 0
    assert "any one site · epsilon 50.0000 · delta 0.01" in out
    assert "study    7 runs: alone, federated, clustered, private 50, private 5 and laplace, beside" in out
    code, out, err = told("run", path, *small, "--out", "kept")
    assert code == 0, err
    assert "7 of 7: laplace, seed 3: return " in err
    drawn = f"drawn {Path('kept', 'figures', 'learning-curves.png')}"
    assert err.endswith(f"{drawn}\nsaved kept\nreport {Path('kept', 'report.html')}\n")
    page = Path("kept", "report.html").read_text()
    assert "Two curves" in page
    assert told("show", "kept")[1] == out
    inner = Path("kept", "runs", "private-epsilon-50-seed-3")
    assert (inner / "ledger.db").exists()
    assert "run      private-epsilon-50-seed-3\n" in told("show", inner)[1]
    code, out, err = told("run", "kept", "--resume", "--json", "-q")
    assert (code, err) == (0, "")
    document = json.loads(out)
    assert (document["runs"], document["of"]) == (7, 7)
    assert [row["label"] for row in document["table"]] == LABELS
