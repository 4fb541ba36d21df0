"""Boosting as a task: what leaves the parties, what is made of it, what is refused before it is paid."""

import json
from dataclasses import replace

import numpy as np
import pytest

import tacit
from tacit.errors import InvalidValue, Refused, TacitError
from tacit.experiments import attacks
from tacit.functional import Boosting
from tacit.functional.boosting.moments import products
from tacit.functional.config import Blocks
from tacit.functional.curves import curves
from tacit.functional.data import simulate
from tacit.functional.data.sources import CurveFiles, SimulatedCurves, vertical_federation
from tacit.privacy.mechanisms.base import NoPrivacy
from tacit.privacy.mechanisms.secure_gram import from_upper_triangle
from tacit.privacy.policy import Open, Provenance
from tacit.reports.page.blocks import Figure
from tacit.runs.fit import fit
from tacit.runtime.keys import Key
from tacit.sites.table import from_arrays
from tacit.sites.vertical import ByParty, VerticalFederation

QUICK = {"size": 8, "steps": 30, "smooth_s": 0.0, "smooth_t": 0.0, "ridge": 1.0}
SMOOTH = SimulatedCurves(design="smooth", records=900, held_out=1 / 3, points=31)


def promise(**changes):
    return tacit.Privacy(
        **{"unit": "record", "epsilon": 8.0, "delta": 1e-5, "clip": 1.5, "rehearsal": True} | changes
    )


def federation(count=2, records=None, **changes):
    made = SMOOTH if records is None else replace(SMOOTH, records=records)
    return replace(made, **changes).open(ByParty(count=count), 4)


def test_an_open_run_finds_the_predictors_that_matter():
    run = fit(Boosting(**QUICK), federation(), seed=1, baselines=True)
    assert run.model.selected == ("x1", "x2")
    assert set(run.model.path) == {"x1", "x2"}
    assert run.scores["ril2"] < 0.12
    assert run.scores["r2"] == pytest.approx(run.baselines["pooled"]["r2"], abs=1e-9)
    assert run.baselines["alone"]["r2"] < 0.7
    assert "selected x1, x2 (2 of 4 predictors)" in run.summary()


def test_the_same_curves_give_the_same_model_however_many_parties_hold_them():
    runs = [fit(Boosting(**QUICK), federation(count), seed=1) for count in (1, 2, 4)]
    for run in runs[1:]:
        assert run.model.path == runs[0].model.path
        assert run.model.surface("x1") == pytest.approx(runs[0].model.surface("x1"), abs=1e-9)


def test_moments_without_noise_are_as_good_as_rows():
    rows, moments = (
        fit(Boosting(release=release, **QUICK), federation(), seed=1) for release in ("local", "moments")
    )
    assert moments.scores["ril2"] == pytest.approx(rows.scores["ril2"], abs=0.01)
    assert moments.state.size < rows.state.size


@pytest.mark.parametrize(
    ("changes", "task"),
    [
        ({"noise": "site"}, {}),
        ({"noise": "site"}, {"protect": "all"}),
        ({"noise": "server"}, {}),
        ({"noise": "secure"}, {}),
        ({"noise": "server"}, {"radius": "private"}),
        ({"noise": "site"}, {"radius": "private"}),
        ({"noise": "secure"}, {"radius": "private"}),
        ({"noise": "server"}, {"radius": {"x1": 2.0, "x2": 2.0, "x3": 1.0, "x4": 1.0, "y": 3.0}}),
    ],
)
def test_every_release_costs_what_was_promised_and_is_on_the_ledger(tmp_path, changes, task):
    run = fit(
        Boosting(**QUICK, **task), federation(3), privacy=promise(**changes), seed=1, out=tmp_path / "run"
    )
    assert 7.9 < run.privacy.epsilon <= 8.0
    assert run.privacy.relation == "replace"
    with tacit.Ledger(tmp_path / "run" / "ledger.db", mode="read") as ledger:
        releases = ledger.releases()
    asked = [release for release in releases if release.purpose == "clip radii"]
    protected = 5 if changes["noise"] != "site" or task.get("protect") == "all" else 4
    assert sum(release.count for release in asked) == (protected if task.get("radius") == "private" else 0)
    assert len(releases) - len(asked) == (protected if changes["noise"] == "site" else 1)
    assert {release.subject for release in releases} == {"records"}
    again = tacit.load(tmp_path / "run")
    assert again.model.surface("x1") == pytest.approx(run.model.surface("x1"))
    assert again.model.path == run.model.path


def test_what_a_local_release_does_not_protect_is_said_first():
    told = fit(Boosting(**QUICK), federation(), privacy=promise(), seed=1).privacy
    assert "Protected: any one record, except for its response (y)" in "\n".join(told.sentences())
    assert told.not_protected[0].startswith("its response (y)")
    whole = fit(Boosting(protect="all", **QUICK), federation(), privacy=promise(), seed=1).privacy
    assert "record, except for" not in "\n".join(whole.sentences())


def test_the_total_epsilon_is_what_is_stated_whatever_the_number_of_parties():
    spent = {
        fit(Boosting(**QUICK), federation(count), privacy=promise(), seed=1).privacy.epsilon
        for count in (1, 2, 4)
    }
    assert len({round(epsilon, 9) for epsilon in spent}) == 1


def test_secret_products_are_the_products_that_a_trusted_server_sees():
    privacy = promise(epsilon=None, noise_multiplier=1e-4)
    trusted, secret = (
        fit(Boosting(**QUICK), federation(3), privacy=replace(privacy, noise=noise), seed=1)
        for noise in ("server", "secure")
    )
    assert secret.state == pytest.approx(trusted.state, abs=0.5)
    assert secret.scores["ril2"] == pytest.approx(trusted.scores["ril2"], abs=0.02)


def test_noise_lowers_what_is_found_and_more_epsilon_brings_it_back():
    found = [
        fit(
            Boosting(**QUICK),
            federation(records=3000),
            privacy=promise(noise="server", epsilon=epsilon),
            seed=1,
        )
        for epsilon in (0.3, 30.0)
    ]
    assert found[1].scores["ril2"] < 0.2 < found[0].scores["ril2"] + 0.1


@pytest.mark.parametrize("noise", ["site", "server", "secure"])
def test_a_run_that_is_cut_off_pays_once_and_ends_the_same(tmp_path, monkeypatch, noise):
    class Cut(Exception):
        pass

    def cut(*_):
        raise Cut

    privacy = promise(noise=noise)
    task = Boosting(radius="private", **QUICK)
    whole = fit(task, federation(3), privacy=privacy, seed=1, out=tmp_path / "whole")
    with monkeypatch.context() as patched:
        # After it was paid and sent, before it was written down.
        patched.setattr(Boosting, "advance", cut)
        with pytest.raises(Cut):
            fit(task, federation(3), privacy=privacy, seed=1, out=tmp_path / "cut")
    resumed = fit(task, federation(3), privacy=privacy, seed=1, out=tmp_path / "cut", resume=True)
    assert np.array_equal(resumed.state, whole.state)
    assert resumed.privacy.epsilon == whole.privacy.epsilon
    assert resumed.model.path == whole.model.path


def test_attacks_on_updates_are_refused_where_there_are_none(tmp_path):
    file = tmp_path / "f.toml"
    file.write_text('[task]\nkind = "functional-boosting"\n[attack]\nkind = "sign-flip"\nliars = 1\n')
    with pytest.raises(TacitError, match=r"\[attack\] does not go with functional-boosting"):
        attacks.read(file)


def test_words_that_no_choice_has_are_answered_with_those_it_has(tmp_path):
    file = tmp_path / "f.toml"
    for line, allowed in (
        ('release = "all"', 'it must be "local" or "moments"'),
        ('radius = "nan"', 'it must be "private", or a number, or a table'),
        ('stop = "never"', 'it must be "cv", "aic", "aicc" or "mv", or a whole number'),
    ):
        file.write_text(f'[task]\nkind = "functional-boosting"\n{line}\n')
        with pytest.raises(TacitError, match=allowed):
            tacit.experiments.experiment.read(file)


def test_a_mean_that_is_all_noise_is_not_believed():
    run = fit(Boosting(**QUICK), federation(), privacy=promise(noise="server", epsilon=0.001), seed=1)
    assert run.scores["r2"] > -2


def test_a_secret_run_has_other_noise_each_time():
    open_data = federation()
    secret = VerticalFederation(
        {party: dict(columns) for party, columns in open_data.holdings.items()},
        order=["x1", "x2", "x3", "x4", "y"],
    )
    runs = [
        fit(Boosting(**QUICK), secret, privacy=promise(rehearsal=False, noise="server")) for _ in range(2)
    ]
    assert not np.array_equal(runs[0].state, runs[1].state)
    assert runs[0].scores == {}
    assert not runs[0].privacy.rehearsal


def test_predictions_are_sums_of_what_each_party_works_out():
    run, test = fit(Boosting(**QUICK), federation(), seed=1), federation().held_out
    parts = [run.model.contribution(name, test[name]) for name in run.model.selected]
    whole = run.model.coordinates(test.columns)
    assert run.model.mean_y + sum(parts) == pytest.approx(whole)
    times = np.linspace(0, 1, 7)
    assert run.model.predict(test.columns, times).shape == (len(test), 7)
    # What does not count need not be there.
    fewer = {name: test[name] for name in run.model.selected}
    assert run.model.predict(fewer, times) == pytest.approx(run.model.predict(test.columns, times))


def test_a_surface_says_what_a_change_of_a_predictor_does_in_the_units_of_the_curves():
    made = simulate("smooth", records=300, seed=4, points=101, domain=(0.0, 5.0))
    rows, columns = np.arange(300), {**made.predictors, "y": made.response}
    plain = vertical_federation(columns, "y", ByParty(count=2), rows, rows[:0], origin={}, public=True)
    task = Boosting(**QUICK | {"size": 20, "components": 5}, scale={"x1": 3.0, "y": 0.5}, center={"x1": 1.0})
    model = fit(task, plain, seed=1).model
    grid = np.linspace(0, 5, 101)
    change = np.sin(grid)
    moved = {**columns, "x1": replace(columns["x1"], values=columns["x1"].values + change)}
    seen = model.predict(moved, grid) - model.predict(columns, grid)
    wanted = np.trapezoid(change[:, None] * model.surface("x1", grid, grid), grid, axis=0)
    assert seen[7] == pytest.approx(wanted, abs=2e-3 * np.abs(wanted).max())
    assert not model.surface("x3").any()


def test_centre_and_scale_change_nothing_but_units():
    plain = fit(Boosting(**QUICK), federation(), seed=1)
    moved = fit(
        Boosting(center={"x1": 2.0, "y": -1.0}, scale={"x1": 4.0, "y": 3.0}, **QUICK), federation(), seed=1
    )
    test = federation().held_out
    assert moved.model.predict(test.columns) == pytest.approx(plain.model.predict(test.columns), abs=0.05)


def bad(**changes):
    made = simulate("smooth", records=40, seed=1, points=11)
    columns = {**made.predictors, "y": made.response} | changes
    return VerticalFederation(
        {"a": {name: columns[name] for name in ("x1", "y")}, "b": {"x2": columns["x2"]}}
    )


@pytest.mark.parametrize(
    ("task", "data", "message"),
    [
        ({"response": "z"}, {}, "response = 'z' is not allowed"),
        (
            {},
            {"x2": curves(np.ones((40, 11)), name="x2")},
            "x2 is not allowed: all 40 subjects have the same curve",
        ),
        ({"size": 60}, {}, "x1 has 40 subjects, fewer than its 60 basis functions"),
        ({"center": {"z": 1.0}}, {}, "center = 'z' is not allowed"),
        ({"radius": {"x1": 1.0}}, {}, "radius = "),
    ],
)
def test_curves_that_nothing_can_be_learnt_from_are_refused_before_anything_is_paid(
    tmp_path, task, data, message
):
    with pytest.raises(InvalidValue, match=message):
        fit(Boosting(**{"size": 8} | task), bad(**data), privacy=promise(), out=tmp_path / "run")
    assert not (tmp_path / "run" / "ledger.db").exists()


@pytest.mark.parametrize(
    ("task", "message"),
    [
        ({"radius": 0}, "radius = 0 is not allowed"),
        ({"radius": {"x1": 0.0}}, "radius of x1"),
        ({"radius": "public"}, "radius"),
        ({"components": 30}, "components = 30 is not allowed: it must be at most 20"),
        ({"folds": 1}, "folds"),
        ({"basis": "wavelets"}, "basis"),
        ({"release": "raw"}, "release"),
        ({"scale": {"x1": 0.0}}, "scale of x1"),
        ({"quantile": 1.0}, "quantile"),
        ({"order": 1}, "order"),
    ],
)
def test_choices_that_cannot_be_made_are_refused(task, message):
    with pytest.raises(InvalidValue, match=message):
        Boosting(**task)


@pytest.mark.parametrize(
    ("also", "message"),
    [
        ({"rounds": 3}, "rounds = 3 is not allowed"),
        ({"stop": tacit.Stopping()}, r"\[stop\] does not go with functional-boosting"),
        ({"aggregation": tacit.aggregation.Median()}, r"\[aggregation\] median does not go with functional"),
        ({"privacy": promise(unit="site")}, 'unit = "site" does not go with columns'),
        ({"privacy": promise(participation=0.5)}, "participation = 0.5"),
    ],
)
def test_what_is_for_rounds_of_updates_is_refused(also, message):
    with pytest.raises(TacitError, match=message):
        fit(Boosting(**QUICK), federation(), **also)


def test_a_task_for_columns_and_a_federation_of_rows_do_not_go_together():
    rows = tacit.Federation({"a": from_arrays(np.ones((3, 2)), y=np.ones(3))})
    with pytest.raises(InvalidValue, match="functional-boosting learns from parties that hold columns"):
        fit(Boosting(), rows)
    with pytest.raises(InvalidValue, match="logistic-hazard learns from sites that hold records"):
        fit(tacit.survival.LogisticHazard(), federation())


def test_a_party_that_sends_nothing_ends_the_round_and_says_who():
    task = Boosting(**QUICK).with_privacy(Open()).bind(federation(), Provenance(Open(), public=True))
    sent = task.train(np.zeros(1), federation().cohort(["party-1"]), NoPrivacy(), Key(1))
    with pytest.raises(TacitError, match="party-2 sent no usable answer"):
        task.join_columns(sent)


def test_blocks_put_columns_where_they_belong():
    blocks = Blocks(
        parties={"a": ("x2", "y"), "b": ("x1",)},
        order=("x1", "x2"),
        response="y",
        width=2,
        width_y=1,
        records=2,
    )
    rows = {"a": np.array([1.0, 2, 3, 4, 5, 6]), "b": np.array([7.0, 8, 9, 10, 0, 0])}
    whole = blocks.assemble(rows)
    assert whole.tolist() == [[7, 8, 1, 2, 3], [9, 10, 4, 5, 6]]
    order = blocks.by_party()
    beside = np.array([[1.0, 2, 3, 7, 8], [4, 5, 6, 9, 10]])
    assert beside[:, order].tolist() == whole.tolist()
    square = from_upper_triangle(products(whole))
    assert square[0, 0] == 2
    assert square[1:, 1:] == pytest.approx(whole.T @ whole)


def test_files_of_curves_become_parties(tmp_path):
    made = simulate("smooth", records=60, seed=1, points=11)
    for name, found in {**made.predictors, "y": made.response}.items():
        header = ",".join(f"{time:g}" for time in found.times)
        np.savetxt(tmp_path / f"{name}.csv", found.values, delimiter=",", header=header, comments="")
    source = CurveFiles(path=str(tmp_path), files={name: f"{name}.csv" for name in ("x1", "x2", "y")})
    opened = source.open(ByParty(parties={"a": ["x1", "y"], "b": ["x2"]}), 1, may_look=True)
    assert (len(opened.subjects), len(opened.held_out)) == (48, 12)
    assert source.open(ByParty(count=2), 1).held_out is None
    run = fit(Boosting(**QUICK), opened, seed=1)
    assert run.scores["r2"] > 0.5
    with pytest.raises(Refused, match="the scores on held-out records"):
        fit(Boosting(**QUICK), opened, privacy=promise(rehearsal=False), seed=1)


def private_federation(**changes):
    """The same curves, of which nothing is public."""
    return federation().revise(**({"public": False, "held_out_public": False} | changes))


def drawn(run):
    return [
        block.name for section in run.page().sections for block in section.blocks if isinstance(block, Figure)
    ]


def test_predictions_stand_beside_true_curves_in_the_report_where_held_out_subjects_are_public(tmp_path):
    run = fit(Boosting(**QUICK), federation(), privacy=promise(noise="server"), seed=1, out=tmp_path / "run")
    kept = json.loads((tmp_path / "run" / "predictions.json").read_text())
    assert (kept["of"], len(kept["true"]), len(kept["predicted"]), len(kept["times"])) == (300, 60, 60, 31)
    held_out = federation().held_out
    true, predicted, times = run.model.compare(held_out.columns, held_out["y"])
    np.testing.assert_allclose(kept["true"], true[:60], atol=1e-6)
    np.testing.assert_allclose(kept["predicted"], predicted[:60], atol=1e-6)
    np.testing.assert_allclose(kept["times"], times)
    assert "predictions" in drawn(run)
    assert "predictions" in drawn(tacit.load(tmp_path / "run"))
    assert not any("predictions" in words for words in run.privacy.bare)
    assert "predictions" in drawn(fit(Boosting(**QUICK), federation(), seed=1))


def test_private_held_out_subjects_are_shown_in_open_runs_alone_which_say_so(tmp_path):
    place = tmp_path / "run"
    run = fit(Boosting(**QUICK), private_federation(), privacy=promise(noise="server"), seed=1, out=place)
    assert not run.shown
    assert not (place / "predictions.json").exists()
    assert "predictions" not in drawn(run)
    opened = fit(Boosting(**QUICK), private_federation(), seed=1)
    assert "predictions" in drawn(opened)
    assert "held-out records with their predictions, in the report" in opened.privacy.bare
    public = private_federation(held_out_public=True)
    tested = fit(Boosting(**QUICK), public, privacy=promise(noise="server"), seed=1)
    assert "predictions" in drawn(tested)
    assert not any("predictions" in words for words in tested.privacy.bare)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b'{"of": 1, "times": [0, 1], "true": [[1]], "predicted": [[1, 2]]}',
        b'{"of": 1, "times": [1, 0], "true": [[1, 2]], "predicted": [[1, 2]]}',
        b'{"of": 0, "times": [], "true": [], "predicted": []}',
        b'{"of": 1, "times": [0, 1], "true": [[1, "x"]], "predicted": [[1, 2]]}',
    ],
)
def test_damaged_predictions_are_left_out_of_a_report(tmp_path, content):
    run = fit(Boosting(**QUICK), federation(), seed=1, out=tmp_path / "run")
    (tmp_path / "run" / "predictions.json").write_bytes(content)
    assert drawn(tacit.load(tmp_path / "run"))[:1] == drawn(run)[:1]
    assert "predictions" not in drawn(tacit.load(tmp_path / "run"))


@pytest.mark.parametrize("noise", ["site", "server", "secure"])
def test_a_report_states_the_megabytes_that_each_party_sent(noise):
    run = fit(Boosting(**QUICK), federation(3), privacy=promise(noise=noise), seed=1)
    sent = {site["name"]: site["bytes"] for site in run.document()["sites"]}
    assert sent == run.model.sent
    assert sum(sent.values()) == run.model.bytes_sent > 0
    sites = next(section for section in run.page().sections if section.title == "Sites")
    (grid,) = sites.blocks
    assert grid.header[-1] == "MB sent"
    assert [row[-1] for row in grid.rows] == [f"{size / 2**20:.2f}" for size in sent.values()]
