"""Scores on private held-out records: drawn by secret coins, counted once, at the larger price."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tacit
from tacit import Key, Ledger, Open, Privacy
from tacit.errors import InvalidValue, Refused
from tacit.learning.noisy_scores import EXACT
from tacit.learning.query import Updates
from tacit.privacy.accounting import epsilon as price_of
from tacit.privacy.ledger.data_book import envelope
from tacit.privacy.mechanisms.base import NoPrivacy
from tacit.runs.context import RunContext
from tacit.runs.directory import EVALUATED, LEDGER
from tacit.runs.evaluation import Evaluation
from tacit.runs.run import require_sound
from tacit.runs.setup import prepare
from tacit.runs.spec import RunSpec
from tacit.sites.splits import Iid
from tacit.sites.table import from_arrays
from tacit.survival import CoxPH, DeepHit, LogisticHazard
from tacit.survival.data.sources import Simulated
from tacit.survival.evaluation import cells_of, simulate_features
from tacit.survival.models.newton_ph import NewtonPH
from tacit.survival.statistics.cox_task import Cox
from tacit.survival.statistics.kaplan_meier_task import KaplanMeier

PROMISE = Privacy(unit="record", epsilon=3.0, delta=1e-5)
CLIPPED = replace(PROMISE, clip=1.0)


def sites(records: int = 2400, count: int = 3, seed: int = 1, **options: object) -> tacit.Federation:
    """Simulated patients that count as private: none is held out for all to see."""
    found = Simulated(design="SDGM1", records=records, features=20, held_out=0.0).open(Iid(count=count), seed)
    assert isinstance(found, tacit.Federation)
    return found.revise(public=False, records=None, **options)


def private_run(out, privacy=PROMISE, **options):
    return tacit.fit(
        CoxPH(hidden=[]), sites(), privacy=privacy, evaluate=Evaluation(), seed=1, out=out, **options
    )


@pytest.fixture(scope="module")
def run(tmp_path_factory, monkeypatch_module):
    return private_run(tmp_path_factory.mktemp("evaluated") / "run")


@pytest.fixture(scope="module")
def monkeypatch_module(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield patch


def test_a_private_run_on_private_records_has_scores_with_intervals(run):
    found = run.record.evaluation
    assert run.scores == found.scores
    assert 0.5 < run.scores["c_index"] < 0.8
    low, high = run.record.intervals["federated"]["c_index"]
    assert low < run.scores["c_index"] < high
    assert found.simplest.scores["c_index"] == 0.5
    assert found.simplest.scores["ibs"] > run.scores["ibs"]
    assert 380 < found.records < 580
    assert "No score" not in run.summary()
    assert "private records, each held out of training with probability 0.2" in " ".join(
        run.summary().split()
    )


def test_a_record_costs_the_larger_of_training_and_evaluation(run):
    subjects = run.privacy.subjects
    assert run.privacy.epsilon == pytest.approx(3.0, rel=1e-3)
    assert {name.partition("@")[0] for name in subjects} == {"records", "held-out records"}
    apart = [row for row in run.charged if row.subject.startswith("held-out records@")]
    assert len(apart) == 3
    assert price_of(apart[:1], 0.0) == pytest.approx(3.0)
    assert any("held-out records of each of 3 sites" in words for words in run.privacy.released)
    assert any("the larger of training and evaluation" in words for words in run.privacy.public)
    require_sound(run.path)


def test_the_book_of_the_data_adds_both_prices_up(run):
    # The next run draws other records to hold out.
    rows = envelope(run.charged)
    assert {row.subject for row in rows} == {"records"}
    assert price_of(rows, 1e-5) > run.privacy.epsilon + 0.5
    assert run.privacy.all_runs.epsilon > run.privacy.epsilon + 0.5
    assert "in a lifetime the prices of training and scores add up" in run.privacy.all_runs.sentence()


def test_a_report_shows_the_price_of_the_scores(run, tmp_path):
    text = run.report(tmp_path / "run.md").read_text()
    assert "one noisy table of counts of private held-out records" in text
    assert "epsilon 3 for any one of them" in text
    again = tacit.load(run.path)
    assert again.record.evaluation == run.record.evaluation


def test_open_runs_are_scored_by_exact_counts(tmp_path):
    federation = sites().revise(public=True)
    one = tacit.fit(
        CoxPH(hidden=[], steps=20, lr=0.2), federation, privacy=Open(), evaluate=Evaluation(), rounds=5
    )
    found = one.record.evaluation
    assert found.epsilon is None
    assert found.records == round(found.records)
    assert 0.5 < found.scores["c_index"] < 0.8
    assert "counts with no noise" in " ".join(one.summary().split())


@pytest.mark.parametrize(
    ("task", "privacy", "asked", "message"),
    [
        (KaplanMeier(horizon=3.0), PROMISE, Evaluation(), "does not go with kaplan-meier"),
        (Cox(), Open(), Evaluation(), "does not go with cox"),
        (LogisticHazard(), replace(CLIPPED, unit="site"), Evaluation(), 'this one has unit = "site"'),
        (CoxPH(), PROMISE, Evaluation(epsilon=3.5), "epsilon = 3.5 is not allowed: it must be at most 3"),
        (
            LogisticHazard(), Privacy(unit="record", noise_multiplier=1.0, delta=1e-5, clip=1.0),
            Evaluation(), "a number above 0, as the promise is given by its noise_multiplier",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_scored_is_refused_before_anything_is_read(task, privacy, asked, message):
    with pytest.raises((Refused, InvalidValue), match=message):
        prepare(RunSpec(task=task, privacy=privacy, evaluate=asked), None)


def test_records_that_enter_late_are_refused():
    federation = sites(300)
    late = replace(
        federation.store, targets={**federation.store.targets, "entry": np.full(len(federation.store), 1e-9)}
    )
    federation = federation.with_store(late, [size for _, size in federation.places.values()])
    spec = RunSpec(task=LogisticHazard(horizon=3.0), privacy=CLIPPED, evaluate=Evaluation())
    with pytest.raises(Refused, match="a record that enters late is in two cells"):
        prepare(spec, federation)


@pytest.mark.parametrize("given", [{"epsilon": 0.0}, {"share": 0.0}, {"share": 0.6}])
def test_options_are_checked(given):
    with pytest.raises(InvalidValue):
        Evaluation(**given)


def test_no_record_is_both_trained_on_and_scored_and_coins_depend_on_no_other_record():
    federation, key, asked = sites(900), Key(3, entropy=b"e" * 32), Evaluation(share=0.3)
    trained, scored = asked.split(federation, key)
    rows = {row.tobytes() for row in trained.store.features}
    assert not rows & {row.tobytes() for row in scored.store.features}
    assert len(trained.store) + len(scored.store) == 900
    assert 0.2 < len(scored.store) / 900 < 0.4
    sizes = {name: size for name, (_, size) in federation.places.items()}
    marks = asked.draw(sizes, key)
    # One record more at the last site is one coin more.
    last = list(sizes)[-1]
    assert np.array_equal(asked.draw({**sizes, last: sizes[last] + 1}, key)[:-1], marks)
    assert not np.array_equal(asked.draw(sizes, Key(3, entropy=b"f" * 32)), marks)
    # A remote site has the same coins by itself.
    name = list(federation)[1]
    alone = tacit.Federation({name: federation.records_of(name)})
    assert np.array_equal(
        asked.at_site(alone, name, key, held_out=True).store.features, scored.records_of(name).features
    )


def test_an_evaluation_cut_off_after_the_charge_is_not_paid_twice(tmp_path, monkeypatch_module, monkeypatch):
    whole = private_run(tmp_path / "whole", privacy=replace(PROMISE, rehearsal=True))
    asked = RunContext._collect

    def broken(self, question, *given):
        if question.kind == "evaluation":
            raise KeyboardInterrupt
        return asked(self, question, *given)

    monkeypatch.setattr(RunContext, "_collect", broken)
    cut = tmp_path / "cut"
    with pytest.raises(KeyboardInterrupt):
        private_run(cut, privacy=replace(PROMISE, rehearsal=True))
    with Ledger(cut / LEDGER, mode="read") as ledger:
        paid = len(ledger.entries())
    monkeypatch.undo()
    again = private_run(cut, privacy=replace(PROMISE, rehearsal=True), resume=True)
    with Ledger(cut / LEDGER, mode="read") as ledger:
        assert len(ledger.entries()) == paid
    assert again.record.evaluation == whole.record.evaluation
    assert (cut / EVALUATED).read_bytes() == (tmp_path / "whole" / EVALUATED).read_bytes()


TASKS = [
    LogisticHazard(hidden=[4], horizon=3.0, cuts=6, columns=("x1", "x2")),
    CoxPH(hidden=[], horizon=3.0, cuts=6, columns=("x1", "x2")),
    DeepHit(hidden=[4], horizon=3.0, cuts=6, columns=("x1", "x2")),
]


def state_of(task, seed):
    """Some released model, with a baseline where the task has one."""
    table = federation_of(np.zeros((4, 2)), np.ones(4), np.ones(4))
    start = task.start(table, Key(seed))
    closing = task.final_query
    return start if closing is None else closing.apply(start, np.full(closing.width, 3.0))


def federation_of(features, time, event):
    from tacit.sites.table import Table

    targets = {"time": time, "event": event}
    return tacit.Federation({"oslo": Table(np.asarray(features, dtype=np.float64), targets, ("x1", "x2"))})


def bound(task):
    ends = tuple(np.linspace(0.5, 3.0, 6))
    return replace(task, cuts=ends, horizon=None)


@settings(max_examples=25)
@given(
    st.integers(0, 2),
    st.integers(0, 20),
    st.lists(
        st.tuples(
            st.floats(-1e300, 1e300), st.floats(-5, 5), st.floats(1e-9, 1e9), st.integers(0, 1)
        ),
        min_size=3, max_size=12,
    ),
)  # fmt: skip
def test_one_record_more_moves_one_cell_by_one_whatever_it_holds(number, seed, records):
    task = bound(TASKS[number])
    question = task.evaluation(0.5, 1000)
    features, time, event = (
        np.array([record[:2] for record in records]),
        np.array([record[2] for record in records]),
        np.array([float(record[3]) for record in records]),
    )

    def counted(rows):
        federation = federation_of(features[rows], time[rows], event[rows])
        cohort = federation.cohort(["oslo"])
        return question.train(state_of(task, seed), cohort, NoPrivacy(), Key(0)).matrix[0]

    everything = np.arange(len(records))
    whole, without = counted(everything), counted(everything[:-1])
    assert np.abs(whole - without).sum() == 1
    assert whole.sum() == len(records)
    # In another order, and beside others: the same cells.
    assert np.array_equal(counted(everything[::-1]), whole)


def test_events_of_several_causes_are_scored_as_events_of_any():
    federation = sites(600)
    events = federation.store.targets["event"] * (1 + np.arange(600) % 2)
    store = replace(federation.store, targets={**federation.store.targets, "event": events})
    federation = federation.with_store(store, [size for _, size in federation.places.values()])
    task = DeepHit(hidden=[], horizon=3.0, cuts=5, causes=2, steps=2, sample=0.5, lr=0.05, groups_per_site=20)
    privacy = replace(CLIPPED, rehearsal=True)
    run = tacit.fit(task, federation.revise(public=True), privacy=privacy, evaluate=Evaluation(), rounds=1)
    assert 60 < run.record.evaluation.records < 200


def test_cells_of_the_model_are_public_and_of_its_state_alone():
    task = bound(TASKS[0])
    question = task.evaluation(1.0, 5000)
    state = state_of(task, 4)
    one, other = question.grid(task.model(state)), question.grid(task.model(state))
    assert np.array_equal(one.edges, other.edges)
    assert (np.diff(one.ends) > 0).all()
    assert ((one.predicted >= 0) & (one.predicted <= 1)).all()
    bins, intervals = question.shape
    assert one.predicted.shape == (bins, intervals)
    assert question.width == bins * (intervals + 1) * 2
    cells = cells_of(np.array([-np.inf, np.nan, np.inf]), np.ones(3), np.ones(3, dtype=bool), one)
    assert ((cells >= 0) & (cells < question.width)).all()


def test_simulated_features_follow_public_scales():
    from tacit.sites.encoding import Encoding
    from tacit.survival.models.feature_scaling import FeatureScale

    encoding = Encoding(levels={"sex": ["f", "m"]})
    scale = FeatureScale(
        np.array([-1.0, 0.0]), np.array([9.0, 1.0]), np.array([4.0, 0.25]), np.array([2.0, 0.43])
    )
    drawn = simulate_features(("age", "sex=m"), encoding, scale)
    assert drawn[:, 0].mean() == pytest.approx(4.0, abs=0.2)
    assert -1 <= drawn[:, 0].min() < drawn[:, 0].max() <= 9
    assert set(drawn[:, 1]) == {0.0, 1.0}
    assert drawn[:, 1].mean() == pytest.approx(0.25, abs=0.03)


def test_scores_of_exact_counts_are_close_to_those_of_the_records():
    federation = sites(6000, seed=5)
    run = tacit.fit(
        NewtonPH(horizon=4.0), federation.revise(public=True), privacy=Open(), evaluate=Evaluation(share=0.5)
    )
    _, apart = Evaluation(share=0.5).split(federation, Key(0, rehearsal=True))
    own = run.task.score(run.state, apart.store)
    assert run.scores["c_index"] == pytest.approx(own["c_index"], abs=0.01)
    question = run.task.evaluation(float("inf"), None)
    updates = question.train(run.state, apart.cohort(list(apart)), NoPrivacy(), Key(0))
    assert isinstance(updates, Updates)
    assert question.scores(run.state, updates.matrix.sum(axis=0), EXACT).scores == run.scores


# Classifiers


def classifier(classes: int = 2):
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    loss = "logistic" if classes == 2 else "cross-entropy"
    module = torch.nn.Sequential(torch.nn.Linear(3, 1 if classes == 2 else classes))
    return tacit.Supervised(module=module, loss=loss, steps=20, sample=0.2, lr=1.0)


def labelled(records: int, classes: int, seed: int = 0) -> tacit.Federation:
    draws = np.random.default_rng(seed)
    features = draws.normal(size=(records, 3))
    odds = 2 * features @ np.eye(3)[:, :classes] + draws.gumbel(size=(records, classes))
    label = odds.argmax(axis=1).astype(np.float64)
    label = label if classes > 2 else (odds[:, 1] > odds[:, 0]).astype(np.float64)
    half = records // 2
    tables = {
        name: from_arrays(features[rows], y=label[rows])
        for name, rows in (("oslo", slice(0, half)), ("bergen", slice(half, None)))
    }
    return tacit.Federation(tables)


@pytest.mark.parametrize("classes", [2, 3])
def test_a_classifier_is_scored_by_its_area_and_accuracy(classes):
    privacy = Privacy(unit="record", epsilon=4.0, delta=1e-5, clip=1.0, rehearsal=True)
    federation = labelled(3000, classes)
    run = tacit.fit(classifier(classes), federation, privacy=privacy, evaluate=Evaluation(), rounds=5)
    found = run.record.evaluation
    assert set(found.scores) == {"auc", "accuracy", "brier"}
    assert found.scores["auc"] > 0.75
    low, high = found.intervals["accuracy"]
    assert low < found.scores["accuracy"] < high
    assert found.scores["accuracy"] > found.simplest.scores["accuracy"]
    assert run.record.verdict == ()


def test_one_record_more_moves_one_cell_of_a_classifier_whatever_it_holds():
    task, table = classifier(), labelled(80, 2).store
    question = task.evaluation(1.0, None)
    features = np.concatenate([table.features, [[1e300, -1e300, 1e-300], [np.nan, 0.0, 0.0]]])
    labels = np.concatenate([table.targets["y"], [7.0, -3.0]])
    state = task.start(tacit.Federation({"oslo": table}), Key(0))

    def cells(rows):
        return question._cells(state, features[rows], labels[rows])

    whole = cells(np.arange(82))
    assert ((whole >= 0) & (whole < question.width)).all()
    # Each record has its own cell, in batches of any size and order.
    for size in (1, 2, 7, 33, 81):
        assert np.array_equal(cells(np.arange(size)), whole[:size])
    assert np.array_equal(cells(np.arange(82)[::-1]), whole[::-1])


def test_losses_that_are_no_classes_have_no_evaluation():
    torch = pytest.importorskip("torch")
    task = tacit.Supervised(module=torch.nn.Linear(3, 1), loss="squared", steps=1, sample=0.2, lr=0.1)
    with pytest.raises(Refused, match="its scores do not come from a table of counts"):
        prepare(RunSpec(task=task, privacy=CLIPPED, evaluate=Evaluation()), None)
