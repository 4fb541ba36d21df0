"""A choice among candidates finds the better one, and all of it together keeps the promise of the file."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tomli_w
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit import Ledger, Privacy
from tacit.errors import BudgetExhausted, InvalidFile, InvalidValue, Refused, RunUnusable, TacitError
from tacit.experiments import experiment, tuning
from tacit.experiments.tuning import prepare_tuning
from tacit.experiments.tuning.selection import ByReservedRecords, TrainedCandidate, Tuning, comparisons
from tacit.privacy import accounting
from tacit.privacy.mechanisms.clip import clip_rows
from tacit.runtime.keys import Key
from tacit.survival.data import simulate

SIMULATED = """
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
sample = 1.0
"""
CSV = """
name = "trial"
rounds = 3
[data]
kind = "csv"
path = "patients.csv"
[sites]
kind = "by-column"
[task]
kind = "logistic-hazard"
hidden = []
cuts = 4
horizon = 3.0
steps = 5
sample = 1.0
"""
PRIVATE = """
[privacy]
unit = "record"
epsilon = 8.0
delta = 1e-5
clip = 1.0
"""
REHEARSAL = PRIVATE + "rehearsal = true\n"
GRID = """
[tune]
"task.lr" = [1e-6, 0.5]
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Private patients of two hospitals, and public ones to score on."""
    folder = tmp_path_factory.mktemp("patients")
    patients = simulate("SDGM1", records=900, features=3, seed=1)
    patients.assign(site=["oslo", "bergen", "oslo"] * 300).to_csv(folder / "patients.csv", index=False)
    simulate("SDGM1", records=200, features=3, seed=2).to_csv(folder / "public.csv", index=False)
    return folder


def grid(folder: Path, text: str, *changes: str) -> tuning.TuningGrid:
    path = folder / "trial.toml"
    path.write_text(text)
    return tuning.read(path, changes)


def charged(place: Path) -> list[dict[str, object]]:
    with Ledger(place / "ledger.db", mode="read") as ledger:
        return [entry for entry in ledger.entries() if entry["kind"] == "release"]


@pytest.mark.parametrize("promise", ["", REHEARSAL, PRIVATE], ids=["open", "rehearsal", "private"])
def test_the_evidently_better_candidate_is_chosen_by_held_out_records(tmp_path: Path, promise: str):
    done = tuning.tune(grid(tmp_path, SIMULATED + promise + GRID), tmp_path / "out")
    assert done.chosen == "candidate-2"
    assert [trial.changes for trial in done.trials] == [{"task.lr": 1e-6}, {"task.lr": 0.5}]
    assert done.by == ("c_index", "max")
    assert done.noise is None
    assert done.trials[0].score < done.trials[1].score
    assert set(done.run.scores) == {"c_index", "ibs"}


def test_one_half_of_the_held_out_records_decides_and_the_other_scores(tmp_path: Path):
    given = grid(tmp_path, SIMULATED + GRID)
    stage = prepare_tuning(given)
    whole = given.common.data.open(given.common.sites, 0, may_look=True)
    decides, scored = stage.choice.records, stage.federation.held_out
    rows = {tuple(row) for row in decides.features.tolist()}, {tuple(row) for row in scored.features.tolist()}
    assert not rows[0] & rows[1]
    assert rows[0] | rows[1] == {tuple(row) for row in whole.held_out.features.tolist()}
    done = tuning.tune(given, tmp_path / "out")
    run = done.run
    assert run.scores == run.task.score(run.state, scored)
    assert done.trials[1].score == run.task.score(run.state, decides)["c_index"]


def test_a_private_tuning_on_private_records_pays_for_its_choice_and_keeps_the_promise(folder: Path):
    done = tuning.tune(grid(folder, CSV + PRIVATE + GRID), folder / "paid")
    assert done.chosen == "candidate-2"
    assert done.by == ("noisy_loss", "min")
    rows = charged(folder / "paid")
    # Two candidates, of which each counts records and takes three rounds, and the choice, at two sites.
    assert len(rows) == 2 * (2 * (1 + 3) + 1)
    assert sum(row["purpose"] == "choice among candidates" for row in rows) == 2
    with Ledger(folder / "paid" / "ledger.db", mode="read") as ledger:
        assert ledger.budgets()["*"].epsilon == 8.0
        assert 0.99 * 8 < ledger.spent(1e-5) <= 8
        assert done.run.privacy.epsilon == ledger.spent(1e-5)
    assert done.run.privacy.bare == ()


def test_nothing_is_shown_that_may_not_be_shown(folder: Path):
    place = folder / "shown"
    done = tuning.tune(grid(folder, CSV + PRIVATE + GRID), place)
    assert done.run.scores == {}
    assert all("c_index" not in path.read_text() for path in place.rglob("*.json*"))
    assert not (place / "secret.key").exists()
    # What was told of the candidates is the noisy sum, which was paid for; it adds up to noise alone.
    told = [trial.score for trial in done.trials]
    assert abs(sum(told)) < 6 * done.noise * len(told) ** 0.5


def test_every_candidate_is_a_run_that_states_the_whole_price(folder: Path):
    done = tuning.tune(grid(folder, CSV + PRIVATE + GRID), folder / "runs")
    for trial in done.trials:
        run = experiment.load(folder / "runs" / trial.candidate)
        assert run.privacy.epsilon == done.run.privacy.epsilon
        assert run.task.lr == trial.changes["task.lr"]
        assert charged(folder / "runs" / trial.candidate) == charged(folder / "runs")
    assert experiment.load(done.run.path).as_dict() == done.run.as_dict()


@pytest.mark.parametrize(
    ("promise", "changes"),
    [
        (PRIVATE, ["tune.epsilon=1"]),
        (PRIVATE, ["tune.epsilon=7.5", "tune.rounds=[2,5]"]),
        (PRIVATE, ["tune.task.sample=[0.1,1.0]", "privacy.epsilon=0.5"]),
        (PRIVATE, ["stop.epsilon=1.0"]),
        (PRIVATE, ["privacy.mechanism=laplace", "privacy.delta=0"]),
        (PRIVATE, ["privacy.unit=site", "data.test=public.csv"]),
        (PRIVATE, ["privacy.unit=site", "data.test=public.csv", "privacy.noise=server"]),
    ],
)
def test_the_plan_of_all_candidates_and_the_choice_meets_the_promise(
    folder: Path, promise: str, changes: list[str]
):
    given = grid(folder, CSV + promise + GRID, *changes)
    privacy = given.common.privacy
    assert isinstance(privacy, Privacy)
    cost = accounting.epsilon(prepare_tuning(given).planned_releases(), privacy.delta)
    assert 0.99 * privacy.epsilon < cost <= privacy.epsilon


def test_what_is_charged_is_what_was_planned(folder: Path):
    given = grid(folder, CSV + PRIVATE + GRID, "tune.rounds=[2,3]", "stop.epsilon=1.0", "stop.patience=9")
    planned = prepare_tuning(given).planned_releases()
    done = tuning.tune(given, folder / "planned")
    assert done.run.privacy.epsilon == pytest.approx(accounting.epsilon(planned, 1e-5), rel=1e-9)


def test_gaussian_prices_add_like_squares_not_like_numbers(folder: Path):
    given = grid(folder, CSV + PRIVATE + GRID, "tune.task.lr=[0.1,0.2,0.3,0.4]", "task.batch=100")
    shares = {c.experiment.privacy.epsilon / 8.0 for c in prepare_tuning(given).candidates}
    assert len(shares) == 1
    # A quarter for the choice, a quarter of the rest for each would be 0.19.
    assert 0.35 < shares.pop() < 0.5


def test_with_a_noise_multiplier_the_noise_is_as_said_and_the_choice_needs_a_price(folder: Path):
    said = ["privacy.noise_multiplier=2.0", "task.batch=100"]
    text = CSV + PRIVATE.replace("epsilon = 8.0\n", "") + GRID
    with pytest.raises(InvalidValue, match=r"\[tune\] epsilon is missing"):
        tuning.tune(grid(folder, text, *said), folder / "multiplier")
    tuning.tune(grid(folder, text, *said, "tune.epsilon=3"), folder / "multiplier")
    rounds = [row for row in charged(folder / "multiplier") if str(row["purpose"]).startswith("round")]
    assert {row["scale"] for row in rounds} == {2.0}


def test_public_records_decide_for_nothing_even_where_sites_are_protected(folder: Path):
    given = grid(folder, CSV + PRIVATE + GRID, "privacy.unit=site", "data.test=public.csv")
    done = tuning.tune(given, folder / "sites")
    assert done.by == ("c_index", "max")
    assert len(charged(folder / "sites")) == 2 * 3
    assert done.run.privacy.unit == "site"
    assert done.run.privacy.epsilon <= 8


@pytest.mark.parametrize(
    ("text", "changes", "said"),
    [
        (CSV + PRIVATE, ["privacy.unit=site"], "Choose by public records"),
        (CSV + PRIVATE, ["privacy.unit=site", "tune.epsilon=1"], "Choose by public records"),
        (CSV + PRIVATE, ["data.held_out=0.2"], "pay with [tune] epsilon"),
        (CSV + PRIVATE, ["tune.epsilon=8"], "[tune] epsilon = 8.0 is not allowed: it must be below"),
        (CSV, ["tune.epsilon=1"], "this run makes no promise"),
        (SIMULATED, ["data.held_out=0.0"], "no held-out records to choose by"),
        (SIMULATED, ["data.records=12", "sites.count=2"], "the held-out records (2) are too few"),
        (CSV + PRIVATE, ["task.epochs=2"], "epochs of shuffled batches"),
    ],
)
def test_what_cannot_be_chosen_is_refused_and_leaves_nothing_behind(
    folder: Path, text: str, changes: list[str], said: str
):
    with pytest.raises(TacitError) as error:
        tuning.tune(grid(folder, text + GRID, *changes), folder / "nothing")
    assert said in str(error.value)
    assert not (folder / "nothing").exists()


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ("", "[tune] varies nothing"),
        ('"task.lr" = []', "[tune] task.lr = [] is not allowed: it must be a list of one or more different"),
        ('"task.lr" = 0.1', "[tune] task.lr = 0.1 is not allowed: it must be a list"),
        ('"task.lr" = [0.1, 0.1]', "different values"),
        ('"task.lr" = [0.1]', "[tune] candidates = 1 is not allowed: it must be from 2 to 64"),
        (f'"task.lr" = {list(range(1, 66))}', "[tune] candidates = 65 is not allowed"),
        ('"task.lrr" = [0.1, 1.0]', '[task] lrr is not known (did you mean "lr"?)'),
        ('"task.lr" = [0.1, -1.0]', "candidate 2 (task.lr = -1.0): [task] lr = -1.0 is not allowed"),
        ('"task.hidden" = [[], "wide"]', "[task] hidden = 'wide' is not allowed: it must be a list"),
        ('"tusk.lr" = [0.1, 1.0]', "tusk.lr may not vary: only [task], [server], [aggregation] and rounds"),
        ('"tusk.lr" = [0.1, 1.0]', '(did you mean "task"?)'),
        ('"privacy.clip" = [0.1, 1.0]', "privacy.clip may not vary: the promise is made once"),
        ("seed = [1, 2]", "seed may not vary: a chosen seed is luck"),
        ('"data.records" = [100, 200]', "candidates are compared on the same records"),
        ('"stop.patience" = [1, 2]', "may not vary"),
        ('"task.lr" = [0.1, 1.0]\napart = 1.5', "apart = 1.5 is not allowed"),
        ('"task.lr" = [0.1, 1.0]\nepsilon = "much"', "[tune] epsilon = 'much' is not allowed"),
        ('"task.lr" = [0.1, 1.0]\nepsilom = 1.0', '(did you mean "epsilon"?)'),
    ],
)
def test_a_bad_grid_is_refused_by_name_before_anything_is_read(tmp_path: Path, table: str, said: str):
    with pytest.raises(InvalidFile) as error:
        grid(tmp_path, SIMULATED + "[tune]\n" + table)
    assert said in str(error.value)


def test_keys_may_be_written_with_dots_or_as_tables(tmp_path: Path):
    dotted = grid(tmp_path, SIMULATED + '[tune]\n"task.lr" = [1.0, 2.0]\nserver.kind = ["plain", "adam"]')
    tables = grid(
        tmp_path, SIMULATED + '[tune.task]\nlr = [1.0, 2.0]\n[tune.server]\nkind = ["plain", "adam"]'
    )
    assert [c.changes for c in dotted.candidates] == [c.changes for c in tables.candidates]
    assert [(c.experiment.task.lr, c.experiment.server.kind) for c in dotted.candidates] == [
        (1.0, "plain"),
        (1.0, "adam"),
        (2.0, "plain"),
        (2.0, "adam"),
    ]


@pytest.mark.parametrize(
    "table",
    [
        "[tune]\ntask.lr = [1.0, 2.0]\nrounds = [1, 2]\n",
        "[tune]\nserver.lr = [1.0, 0.5]\nepsilon = 0.5\ntask.lr = [1.0, 2.0]\n",
        '[tune]\ntask.lr = [1.0, 2.0]\naggregation = [{kind = "mean"}, {kind = "median"}]\nrounds = [2, 1]\n',
    ],
)
def test_candidates_read_from_the_directory_of_a_tuning_have_the_numbers_they_had(tmp_path: Path, table: str):
    found = grid(tmp_path, SIMULATED + table)
    place = tmp_path / "tuning"
    place.mkdir()
    (place / "experiment.toml").write_text(tomli_w.dumps(found.document))
    again = tuning.read(place)
    assert [c.changes for c in again.candidates] == [c.changes for c in found.candidates]
    assert again.document == found.document


def test_whole_tables_make_candidates_whose_options_differ(tmp_path: Path):
    tables = '[[tune.task]]\nkind = "logistic-hazard"\nhidden = [8]\n[[tune.task]]\nkind = "poisson-ph"\n'
    found = grid(tmp_path, SIMULATED + tables, "tune.server.lr=[0.5,1.0]")
    assert [c.changes for c in found.candidates] == [
        {"task.kind": "logistic-hazard", "task.hidden": [8], "server.lr": 0.5},
        {"task.kind": "logistic-hazard", "task.hidden": [8], "server.lr": 1.0},
        {"task.kind": "poisson-ph", "server.lr": 0.5},
        {"task.kind": "poisson-ph", "server.lr": 1.0},
    ]
    # What a table does not say is as in the file.
    assert {c.experiment.task.cuts for c in found.candidates} == {4}


def test_a_ledger_that_came_with_a_budget_keeps_it(folder: Path):
    place = folder / "budget"
    place.mkdir()
    with Ledger(place / "ledger.db") as ledger:
        ledger.allow(epsilon=4.0, delta=1e-5, subject="records@oslo")
    with pytest.raises(BudgetExhausted, match="budget of records@oslo exhausted"):
        tuning.tune(grid(folder, CSV + PRIVATE + GRID), place)
    assert charged(place) == []
    assert not (place / "candidate-1").exists()


@pytest.mark.parametrize(
    "promise", [PRIVATE, REHEARSAL + "[stop]\nepsilon = 1.0\n"], ids=["private", "rehearsal"]
)
def test_a_tuning_that_was_cut_off_goes_on_and_pays_nothing_twice(folder: Path, promise: str):
    given = grid(folder, CSV + promise + GRID, "tune.epsilon=2.0", "data.held_out=0.0")
    place = folder / f"cut-{len(promise)}"
    rounds = []

    def cut(entry: object) -> None:
        rounds.append(entry)
        if len(rounds) == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tuning.tune(given, place, callbacks=[cut])
    with pytest.raises(RunUnusable, match="exists already"):
        tuning.tune(given, place)
    done = tuning.tune(tuning.read(place), place, resume=True)
    whole = tuning.tune(given, folder / f"whole-{len(promise)}")
    assert len(charged(place)) == len(charged(whole.path))
    assert done.run.privacy.epsilon == whole.run.privacy.epsilon
    assert done.chosen == "candidate-2"
    if given.common.privacy.rehearsal:
        assert done.trials == whole.trials
        assert np.array_equal(done.run.state, whole.run.state)
    # Once it is over, it is only read.
    again = tuning.tune(given, place, resume=True)
    assert again.as_dict() == done.as_dict()
    assert np.array_equal(again.run.state, done.run.state)


def test_a_candidate_that_diverges_is_passed_over(tmp_path: Path):
    given = grid(tmp_path, SIMULATED + GRID, "tune.server.lr=[1e308,1.0]", "tune.task.lr=[1e3]")
    done = tuning.tune(given, tmp_path / "out")
    assert done.chosen == "candidate-2"
    assert done.trials[0].score is None
    assert "diverged in round 1" in done.trials[0].failed
    with pytest.raises(InvalidValue, match="no candidate could be trained: training diverged"):
        tuning.tune(
            grid(tmp_path, SIMULATED + GRID, "tune.task.lr=[1e3,2e3]", "server.lr=1e308"), tmp_path / "none"
        )


def test_what_a_diverged_candidate_was_to_cost_is_paid(folder: Path):
    given = grid(folder, CSV + PRIVATE + GRID, "tune.server.lr=[1e308,1.0]", "tune.task.lr=[1e3]")
    planned = accounting.epsilon(prepare_tuning(given).planned_releases(), 1e-5)
    done = tuning.tune(given, folder / "diverged")
    assert "diverged in round 1" in done.trials[0].failed
    assert done.run.privacy.epsilon == pytest.approx(planned, rel=1e-9)
    assert sum(row["purpose"] == "rounds not taken" for row in charged(folder / "diverged")) == 2


def test_models_of_every_kind_are_compared_by_one_yardstick(folder: Path):
    given = grid(folder, CSV + PRIVATE + GRID, 'tune.task.kind=["logistic-hazard","pc-hazard","poisson-ph"]')
    done = tuning.tune(given, folder / "kinds")
    best = {trial.changes["task.lr"] for trial in done.trials if trial.score < 0}
    assert best == {0.5}


def test_on_its_own_grid_the_yardstick_is_the_likelihood_of_discrete_hazards(folder: Path):
    given = grid(folder, CSV + PRIVATE + GRID)
    stage = prepare_tuning(given)
    task = stage.tasks["candidate-1"]
    states = [task.start(stage.federation, Key(number)) for number in range(3)]
    table = stage.federation.records_of("oslo")
    losses = np.stack([task.losses(state, table) for state in states], axis=1)
    found = comparisons([TrainedCandidate(task, state) for state in states], table)
    np.testing.assert_allclose(found, losses - losses.mean(axis=1, keepdims=True), atol=1e-9)


@given(st.integers(0, 10_000), st.integers(2, 5), st.sampled_from([1.0, 30.0, 1e5, np.inf, np.nan]))
@settings(max_examples=60)
def test_one_record_moves_what_a_site_tells_by_at_most_the_bound(seed: int, many: int, size: float):
    """Any models, any neighbor, however wild: its comparison is its own, and clipped."""
    generator = np.random.default_rng(seed)
    stage = STAGE
    task, table = stage.tasks["candidate-1"], stage.federation.records_of("site-1")
    start = task.start(stage.federation, Key(0))
    wild = [start + size * generator.standard_normal(len(start)) for _ in range(many)]
    trained = [TrainedCandidate(task, state) for state in wild]
    with np.errstate(all="ignore"):
        whole = comparisons(trained, table)
        less = comparisons(trained, table.take(np.arange(1, len(table))))
    np.testing.assert_array_equal(whole[1:], less)
    for norm, order in (("l2", 2), ("l1", 1)):
        rows = clip_rows(whole, 1.0, norm=norm)
        moved = rows.sum(axis=0) - clip_rows(less, 1.0, norm=norm).sum(axis=0)
        assert float(np.linalg.norm(moved, ord=order)) <= 1 + 1e-9


@pytest.fixture(scope="module", autouse=True)
def _stage(tmp_path_factory: pytest.TempPathFactory) -> None:
    global STAGE
    STAGE = prepare_tuning(grid(tmp_path_factory.mktemp("stage"), SIMULATED + GRID, "data.records=60"))


def test_the_choice_is_charged_before_its_noise_is_drawn_and_once(folder: Path):
    stage = prepare_tuning(grid(folder, CSV + PRIVATE + GRID)).reserve_records(Key(0))
    task = stage.tasks["candidate-1"]
    states = {name: task.start(stage.federation, Key(at)) for at, name in enumerate(("one", "two"))}
    trained = {name: TrainedCandidate(task, state) for name, state in states.items()}
    choice = stage.choice
    assert isinstance(choice, ByReservedRecords)
    with Ledger() as ledger:
        ledger.allow(epsilon=1.0, delta=1e-5)
        with pytest.raises(BudgetExhausted):
            choice.scores(trained, ledger, Key(0))
    key = Key(0)
    with Ledger() as ledger:
        first, again = choice.scores(trained, ledger, key), choice.scores(trained, ledger, key)
        assert first == again
        assert len(ledger.releases()) == 2
        other = choice.scores({**trained, "two": trained["one"]}, ledger, key)
        assert other != first
        assert sum(release.count for release in ledger.releases()) == 4
    with Ledger() as ledger, pytest.raises(Refused, match="rehearsal"):
        choice.scores(trained, ledger, Key(0, rehearsal=True))


def test_the_records_kept_apart_are_drawn_in_secret_and_nobody_trains_on_them(folder: Path):
    stage = prepare_tuning(grid(folder, CSV + PRIVATE + GRID, "tune.apart=0.3"))
    whole = {tuple(row) for row in stage.federation.store.features.tolist()}
    parts = [stage.reserve_records(Key(0)) for _ in range(2)]
    for part in parts:
        trained = {tuple(row) for row in part.federation.store.features.tolist()}
        apart = {tuple(row) for row in part.choice.apart.store.features.tolist()}
        assert not trained & apart
        assert trained | apart == whole
        assert 0.2 < len(apart) / len(whole) < 0.4
    # The same seed, and other records: the seed does not tell who was drawn.
    assert parts[0].federation.store.digest() != parts[1].federation.store.digest()


def test_a_quarter_is_what_a_choice_costs_if_nobody_says():
    privacy = Privacy(unit="record", epsilon=2.0, delta=1e-5, clip=1.0)
    assert Tuning().price(privacy) == 0.5
    assert Tuning(epsilon=0.1).price(privacy) == 0.1
    assert Tuning(epsilon=0.1).price(replace(privacy, epsilon=None, noise_multiplier=1.0)) == 0.1


def test_a_damaged_result_is_said_to_be_damaged(tmp_path: Path):
    given = grid(tmp_path, SIMULATED + GRID)
    tuning.tune(given, tmp_path / "out")
    said = json.loads((tmp_path / "out" / "tuning.json").read_text())
    (tmp_path / "out" / "tuning.json").write_text(json.dumps({**said, "trials": [1]}))
    with pytest.raises(RunUnusable, match=r"tuning\.json is damaged"):
        tuning.tune(given, tmp_path / "out", resume=True)


NEWTON = CSV.replace('kind = "logistic-hazard"\nhidden = []\ncuts = 4\n', 'kind = "newton-ph"\n').replace(
    "steps = 5\nsample = 1.0\n", ""
)
UNCLIPPED = PRIVATE.replace("clip = 1.0\n", "")


@pytest.mark.parametrize(
    "varied", ["rounds = [2, 5]", '"task.effects" = ["linear", "hinge"]', '"task.cuts" = [5, 20]']
)
def test_models_without_a_clip_bound_are_tuned_within_the_promise(folder: Path, varied: str):
    given = grid(folder, f"{NEWTON}{UNCLIPPED}[tune]\n{varied}\n")
    planned = prepare_tuning(given).planned_releases()
    assert 0.99 * 8 < accounting.epsilon(planned, 1e-5) <= 8
    place = folder / f"newton-{len(varied)}"
    done = tuning.tune(given, place)
    assert [trial.failed for trial in done.trials] == [None, None]
    with Ledger(place / "ledger.db", mode="read") as ledger:
        assert 0.99 * 8 < ledger.spent(1e-5) <= 8
        assert sum(row["count"] for row in charged(place)) == sum(row.count for row in planned)


def test_models_of_different_horizons_are_compared_until_the_first_ends(folder: Path):
    given = grid(folder, f'{CSV}{PRIVATE}[tune]\n"task.horizon" = [2.0, 3.0]\n')
    stage = prepare_tuning(given)
    trained = [TrainedCandidate(task, task.start(stage.federation, Key(1))) for task in stage.tasks.values()]
    assert [task.cuts[-1] for task in stage.tasks.values()] == [2.0, 3.0]
    found = comparisons(trained, stage.federation.records_of("oslo"))
    # A missing prediction would count as the worst loss there is, 1e6.
    assert 0 < np.abs(found).max() < 10


@pytest.mark.parametrize(
    ("kind", "varied", "said"),
    [
        ("cox-ph", '"task.lr" = [0.1, 1.0]', r"cox-ph would train by gradients, and clip is missing"),
        ("cox-ph", '"task.effects" = ["linear", "hinge"]', r"effects is not known"),
        ("poisson-ph", '"task.steps" = [5, 10]', r"to vary task.steps"),
        ("deep-surv", '"task.hidden" = [[8], [32]]', r"candidates 1 and 2 are the same model, newton-ph"),
        ("cox-ph", '"task.kind" = ["cox-ph", "deep-surv", "cox-time"]', r"candidates 2 and 3 are the same"),
    ],
)
def test_options_that_need_a_clip_bound_and_equal_models_are_refused_with_a_way_out(
    folder: Path, kind: str, varied: str, said: str
):
    text = NEWTON.replace("newton-ph", kind) + UNCLIPPED
    with pytest.raises(InvalidFile, match=said) as refused:
        grid(folder, f"{text}[tune]\n{varied}\n")
    # The advice works: what is quoted in it makes candidates.
    assert '[task] kind = "newton-ph"' in str(refused.value)
    assert (
        len(grid(folder, f'{NEWTON}{UNCLIPPED}[tune]\n"task.effects" = ["linear", "hinge"]\n').candidates)
        == 2
    )
    assert len(grid(folder, f"{text}[tune]\nrounds = [3, 6]\n").candidates) == 2
    clipped = NEWTON.replace("newton-ph", "poisson-ph") + PRIVATE
    assert len(grid(folder, f'{clipped}[tune]\n"task.lr" = [0.1, 1.0]\n').candidates) == 2
