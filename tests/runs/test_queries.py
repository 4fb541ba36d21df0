"""Queries: charged once, and saved for good."""

import json
from collections import Counter
from contextlib import suppress
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest

import tacit
from tacit import Federation, Open, Privacy, fit
from tacit.engines.base import Engine
from tacit.errors import InvalidValue, Refused, TacitError
from tacit.learning.task import as_task
from tacit.privacy import accounting
from tacit.privacy.accounting.release import from_dict
from tacit.privacy.ledger.store import Ledger, verify
from tacit.privacy.policy import Provenance
from tacit.runs.directory import LEDGER, OPENED, SECRET, STATE, SUMMARY
from tacit.runs.queries import final_query_of, initial_query_of, queries_of
from tacit.runs.setup import prepare
from tacit.runs.spec import PublicFacts, RunSpec
from tacit.sites.table import Table, from_arrays
from tacit.survival import CoxPH, CoxTime, DeepHit, DeepSurv, LogisticHazard, PoissonPH

SITES = ("oslo", "bergen", "voss")
GROUPS = {"steps": 2, "sample": 0.3, "groups_per_site": 8, "lr": 0.1}
DRAWN = {"steps": 2, "sample": 0.3, "lr": 0.1}
RECORD = Privacy(unit="record", epsilon=8.0, delta=1e-4, clip=1.0)
# Whole sites are few: only little noise lets them say when events happen.
SITE = Privacy(unit="site", epsilon=500.0, delta=1e-4, clip=1.0)
TASKS = {
    "closing": CoxPH(cuts=4, horizon=3.0, **GROUPS),
    "opening": PoissonPH(cuts=4, **DRAWN),
    "opening and closing": CoxTime(cuts=4, hidden=(3,), **GROUPS),
    "neither": LogisticHazard(cuts=4, horizon=3.0, hidden=(), **DRAWN),
}
ASKED = {
    "closing": {"baseline hazard"},
    "opening": {"time grid"},
    "opening and closing": {"time grid", "baseline hazard"},
    "neither": set(),
}


def records(size: int, seed: int) -> Table:
    draw = np.random.default_rng(seed)
    features = draw.normal(size=(size, 2))
    time = draw.exponential(size=size) * np.exp(-features[:, 0]) + 0.01
    return from_arrays(features, time=time, event=(draw.random(size) < 0.8).astype(float))


def federation(**options) -> Federation:
    chosen = {"held_out": records(50, 9), "held_out_public": True, **options}
    return Federation({name: records(120, seed) for seed, name in enumerate(SITES)}, **chosen)


DATA = federation()


def releases(folder: Path) -> list[tacit.Release]:
    """Everything that was paid for, one by one, as the ledger has it."""
    known = {entry.name for entry in fields(tacit.Release)}
    with Ledger(folder / LEDGER, mode="read") as ledger:
        rows = [entry for entry in ledger.entries() if entry["kind"] == "release"]
    return [from_dict({name: value for name, value in row.items() if name in known}) for row in rows]


def paid(folder: Path) -> Counter:
    """Count each charge."""
    return Counter((release.purpose, release.party) for release in releases(folder))


# What is asked


def test_what_a_task_asks_depends_on_what_it_knows():
    assert {name: {part.kind for part in queries_of(task)} for name, task in TASKS.items()} == {
        **ASKED,
        "closing": {"time grid", "baseline hazard"},
        "neither": {"time grid"},
    }, "a horizon is turned into ends when a task is settled"
    known = LogisticHazard(cuts=(1.0, 2.0))
    assert queries_of(known) == []
    assert initial_query_of(replace(known, cuts=3)).kind == "time grid"
    assert final_query_of(known) is None
    assert queries_of(as_task(object())) == [], "a task of somebody else need not know of questions"


# What it costs


@pytest.mark.parametrize("asks", TASKS)
@pytest.mark.parametrize("promise", [RECORD, SITE], ids=["record", "site"])
def test_questions_are_charged_beside_the_rounds_and_all_of_it_is_the_promise(asks, promise, tmp_path):
    run = fit(TASKS[asks], DATA, privacy=promise, rounds=3, out=tmp_path / "run")
    found = paid(tmp_path / "run")
    parties = SITES if promise.unit == "record" else ("each site",)
    rounds = {f"round {number}" for number in (1, 2, 3)}
    # Sums over records drawn one by one are divided by their number, which is bought as well.
    bought = {"number of records"} if promise.unit == "record" and asks in ("opening", "neither") else set()
    assert found == Counter((what, who) for what in rounds | ASKED[asks] | bought for who in parties)
    spent = accounting.epsilon(releases(tmp_path / "run"), promise.delta)
    assert 0.97 * promise.epsilon < spent <= promise.epsilon
    assert run.privacy.epsilon == pytest.approx(spent)
    assert verify(tmp_path / "run" / LEDGER).valid


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
def test_every_question_has_no_more_than_its_share(mechanism, tmp_path):
    promise = replace(RECORD, mechanism=mechanism, epsilon=20.0)
    fit(TASKS["opening and closing"], DATA, privacy=promise, rounds=2, out=tmp_path / "run")
    told = releases(tmp_path / "run")
    for purpose, share in (("time grid", 0.2), ("baseline hazard", 0.2)):
        price = accounting.epsilon([release for release in told if release.purpose == purpose], promise.delta)
        assert 0.95 * share * promise.epsilon < price <= share * promise.epsilon * (1 + 1e-9)
    assert accounting.epsilon(told, promise.delta) <= promise.epsilon


def test_with_noise_that_is_given_everything_has_that_noise(tmp_path):
    promise = Privacy(unit="record", noise_multiplier=0.8, delta=1e-4, clip=0.5)
    run = fit(TASKS["opening and closing"], DATA, privacy=promise, rounds=2, out=tmp_path / "run")
    told = releases(tmp_path / "run")
    assert {release.scale / release.bound for release in told} == {0.8}
    assert run.privacy.epsilon == pytest.approx(accounting.epsilon(told, 1e-4))


@pytest.mark.parametrize("noise", ["site", "server"])
def test_a_site_pays_for_a_question_as_for_a_round(noise, tmp_path):
    promise = replace(SITE, noise=noise, participation=0.9 if noise == "server" else 1.0)
    fit(TASKS["closing"], DATA, privacy=promise, rounds=3, out=tmp_path / "run")
    alone = TASKS["closing"].bind(DATA, Provenance(promise, public=False))
    longer = promise.solve(alone, SITES, tacit.Mean(), 4).release(1, SITES)[0]
    found = releases(tmp_path / "run")
    assert len(found) == 4
    assert {replace(release, purpose="") for release in found} == {replace(longer, purpose="")}
    assert sorted(release.purpose for release in found)[0] == "baseline hazard"


def test_a_plan_has_the_price_of_the_run(tmp_path):
    task = TASKS["opening and closing"]
    spec = RunSpec(task=task, privacy=RECORD, rounds=3)
    planned = prepare(spec, PublicFacts(names=tuple(SITES))).plan()
    run = fit(task, DATA, privacy=RECORD, rounds=3, out=tmp_path / "run")
    assert planned.statement.epsilon == pytest.approx(run.privacy.epsilon)
    assert planned.spends[3] == pytest.approx(run.privacy.epsilon)


@pytest.mark.parametrize("asks", ["closing", "opening"])
def test_a_budget_that_does_not_suffice_is_refused_before_anything_is_charged(asks, tmp_path):
    (tmp_path / "run").mkdir()
    with Ledger(tmp_path / "run" / LEDGER) as ledger:
        # Enough for the rounds, not for the question.
        ledger.allow(epsilon=0.98 * RECORD.epsilon, delta=RECORD.delta)
    with pytest.raises(TacitError, match="budget"):
        fit(TASKS[asks], DATA, privacy=RECORD, rounds=3, out=tmp_path / "run")
    assert paid(tmp_path / "run") == Counter()
    assert not (tmp_path / "run" / OPENED).exists()
    assert not (tmp_path / "run" / STATE).exists()


def test_an_open_run_asks_for_nothing_that_is_charged(tmp_path):
    run = fit(TASKS["opening and closing"], DATA, rounds=2, out=tmp_path / "run")
    assert paid(tmp_path / "run") == Counter()
    assert not (tmp_path / "run" / OPENED).exists()
    assert any("time grid" in entry for entry in run.privacy.bare)
    assert run.model.survival(DATA.store.features, [1.0]).shape == (360, 1)


@pytest.mark.parametrize("asks", ["closing", "opening"])
@pytest.mark.parametrize("seed", range(6))
def test_where_nobody_is_drawn_to_answer_noise_answers(asks, seed):
    """That nobody came is as secret as who did: the answer has its usual shape, and the run its usual end."""
    promise = replace(SITE, noise="server", participation=0.15)
    # Of a time grid there may be too little left to see, which is an error of its own.
    with suppress(InvalidValue):
        run = fit(TASKS[asks], DATA, privacy=promise, rounds=1, seed=seed)
        assert bool(np.isfinite(run.state).all())
        assert run.model.survival(DATA.store.features, run.model.ends[:2]).shape == (360, 2)


# What is seen of it


@pytest.mark.parametrize("kind", [CoxPH, DeepSurv, CoxTime], ids=lambda kind: kind.kind)
def test_open_runs_show_curves_after_every_round(kind):
    run = fit(kind(cuts=4, steps=2, sample=0.5), federation(held_out_public=False), rounds=3)
    assert len(run.history) == 3
    assert run.history[["c_index", "ibs"]].notna().all().all()
    # What is shown last is what the run ends with.
    assert run.history["ibs"].iloc[-1] == pytest.approx(run.scores["ibs"], abs=1e-12)
    assert run.history["c_index"].iloc[-1] == pytest.approx(run.scores["c_index"], abs=1e-12)


def test_private_runs_show_risks_after_every_round_and_curves_at_the_end():
    run = fit(TASKS["closing"], DATA, privacy=RECORD, rounds=3)
    assert "ibs" not in run.history
    assert run.history["c_index"].notna().all()
    assert set(run.scores) == {"c_index", "ibs"}


def test_private_runs_show_no_scores_on_records_that_are_not_public():
    with pytest.raises(Refused, match="held-out"):
        fit(TASKS["closing"], federation(held_out_public=False), privacy=RECORD, rounds=1)
    run = fit(TASKS["closing"], federation(held_out=None), privacy=RECORD, rounds=2)
    assert run.scores == {}
    assert run.model.survival(DATA.store.features, [1.0]).shape == (360, 1)


def test_a_bought_grid_is_that_of_the_task_from_then_on(tmp_path):
    run = fit(TASKS["opening"], DATA, privacy=RECORD, rounds=2, out=tmp_path / "run")
    cuts = list(run.task.cuts)
    assert 1 <= len(cuts) <= 4
    assert cuts == sorted(cuts)
    assert run.model.ends.tolist() == cuts
    assert initial_query_of(run.task) is None
    # It is nobody's to repeat: another run buys another one.
    assert list(fit(TASKS["opening"], DATA, privacy=RECORD, rounds=2).task.cuts) != cuts


@pytest.mark.parametrize("asks", TASKS)
@pytest.mark.parametrize("privacy", [RECORD, Open()], ids=["private", "open"])
def test_what_is_loaded_predicts_what_was_trained(asks, privacy, tmp_path):
    run = fit(TASKS[asks], DATA, privacy=privacy, rounds=2, out=tmp_path / "run")
    for again in (
        tacit.load(tmp_path / "run"),
        fit(TASKS[asks], DATA, privacy=privacy, rounds=2, out=tmp_path / "run", resume=True),
    ):
        assert np.array_equal(again.state, run.state)
        assert again.model.ends.tolist() == run.model.ends.tolist()
        assert np.array_equal(again.model.risk(DATA.store.features), run.model.risk(DATA.store.features))
        times = np.minimum([0.1, 0.7, 2.0, 9.0], run.model.ends[-1])
        assert np.array_equal(
            again.model.survival(DATA.store.features, times), run.model.survival(DATA.store.features, times)
        )
        assert again.privacy == run.privacy
        assert again.scores == run.scores


def test_several_causes_may_buy_their_grid_too(tmp_path):
    draw = np.random.default_rng(0)
    tables = {}
    for name in SITES:
        plain = records(80, int(draw.integers(99)))
        event = plain.targets["event"] * draw.integers(1, 3, 80)
        tables[name] = Table(plain.features, {**plain.targets, "event": event}, plain.columns)
    task = DeepHit(causes=2, ranking=0.0, cuts=3, hidden=(), **DRAWN)
    fit(task, Federation(tables), privacy=RECORD, rounds=1, out=tmp_path / "run")
    model = tacit.load(tmp_path / "run").model
    assert model.incidence(np.zeros((1, 2)), [1.0], 2).shape == (1, 1)


# Crashes


class Cut(Exception):
    """The power is cut."""


class Cutting(Engine):
    """The local engine, which loses its power before or after it carries a question or a round."""

    kind = "local"

    def __init__(self, at: str | int | None = None, *, after: bool = True) -> None:
        self.at, self.after, self.carried = at, after, 0
        self.engine = tacit.Local()

    def train(self, task, *arguments):
        asks = task.kind in ("time grid", "baseline hazard")
        self.carried += not asks
        here = self.at == (task.kind if asks else self.carried)
        if here and not self.after:
            raise Cut
        updates = self.engine.train(task, *arguments)
        if here:
            raise Cut
        return updates


def begun(folder: Path) -> Path:
    """A directory with the secret that a run would draw: with it, private noise can be compared."""
    folder.mkdir()
    (folder / SECRET).write_bytes(bytes(range(32)))
    return folder


TASK = TASKS["opening and closing"]


def go(folder: Path, engine: Cutting, promise: Privacy = RECORD):
    return fit(TASK, DATA, privacy=promise, rounds=2, out=folder, resume=True, engine=engine, seed=4)


PROMISES = {"record": RECORD, "rehearsal": replace(RECORD, rehearsal=True), "site": SITE}
PLACES = ("time grid", 1, 2, "baseline hazard")
# A rehearsal may look, and buys no grid.
CUTS = [(name, at) for name in PROMISES for at in PLACES if (name, at) != ("rehearsal", "time grid")]


@pytest.fixture(scope="module")
def wholes(tmp_path_factory):
    """Runs that nobody cut off, one under each promise and each the first on its data; and what they paid."""
    found = {}
    for name, promise in PROMISES.items():
        with pytest.MonkeyPatch.context() as patched:
            place = tmp_path_factory.mktemp("whole")
            patched.setenv("XDG_STATE_HOME", str(place))
            found[name] = go(begun(place / "run"), Cutting(), promise), paid(place / "run")
    return found


@pytest.mark.parametrize("after", [True, False], ids=["after", "before"])
@pytest.mark.parametrize(("name", "at"), CUTS)
def test_a_run_that_is_cut_off_ends_as_if_nothing_had_happened(name, at, after, tmp_path, wholes):
    promise, (whole, costs) = PROMISES[name], wholes[name]
    folder = begun(tmp_path / "cut")
    with pytest.raises(Cut):
        go(folder, Cutting(at, after=after), promise)
    run = go(folder, Cutting(), promise)
    assert np.array_equal(run.state, whole.state)
    assert list(run.task.cuts) == list(whole.task.cuts)
    assert run.scores == whole.scores
    assert run.privacy == whole.privacy
    assert set(paid(folder).values()) == {1}
    assert paid(folder) == costs


@pytest.mark.parametrize("name", ["tacit.runs.fit.write", "tacit.runs.directory.Directory.forget_secret"])
def test_a_run_that_is_cut_off_after_its_last_question_does_not_ask_it_again(name, tmp_path, monkeypatch):
    whole = go(begun(tmp_path / "whole"), Cutting())
    folder = begun(tmp_path / "cut")

    def cut(*arguments):
        raise Cut

    with monkeypatch.context() as patched:
        patched.setattr(name, cut)
        with pytest.raises(Cut):
            go(folder, Cutting())
    assert (folder / SUMMARY).exists() == name.endswith("forget_secret")
    # If it asked, it would be cut off again.
    run = go(folder, Cutting("baseline hazard", after=False))
    assert np.array_equal(run.state, whole.state)
    assert run.scores == whole.scores
    assert paid(folder) == paid(tmp_path / "whole")


def test_a_grid_that_rounds_were_trained_on_stays_whatever_changes(tmp_path, monkeypatch):
    """Weights are for the intervals they were trained on: what is known is not asked again."""
    folder = begun(tmp_path / "run")
    promise = Privacy(unit="record", noise_multiplier=0.8, delta=1e-4, clip=0.5)
    with pytest.raises(Cut):
        go(folder, Cutting(2), promise)
    cuts = json.loads((folder / OPENED).read_text())["cuts"]
    monkeypatch.setattr("tacit.runs.context.machine", lambda: "another")
    run = go(folder, Cutting(), promise)
    assert list(run.task.cuts) == cuts
    assert {times for (what, _), times in paid(folder).items() if what == "time grid"} == {1}
    assert tacit.load(folder, replace(run.task, cuts=len(cuts))).model.ends.tolist() == cuts


def test_on_another_machine_the_last_question_is_asked_and_paid_again(tmp_path, monkeypatch):
    folder = begun(tmp_path / "run")
    promise = Privacy(unit="record", noise_multiplier=0.8, delta=1e-4, clip=0.5)
    with pytest.raises(Cut):
        go(folder, Cutting("baseline hazard"), promise)
    monkeypatch.setattr("tacit.runs.context.machine", lambda: "another")
    run = go(folder, Cutting(), promise)
    assert {times for (what, _), times in paid(folder).items() if what == "baseline hazard"} == {2}
    # What no plan foresaw is a plan of its own: both together cost what a filter says, which is no less.
    assert run.privacy.epsilon >= accounting.epsilon(releases(folder), 1e-4)


def test_a_run_whose_budget_bears_no_last_question_ends_without_curves(tmp_path, monkeypatch):
    """The question was paid for and could not be repeated: there is a model all the same, and it says so."""
    task, folder = TASKS["closing"], begun(tmp_path / "run")
    choices = {"privacy": RECORD, "rounds": 2, "out": folder, "resume": True, "seed": 4}
    with pytest.raises(Cut):
        fit(task, DATA, engine=Cutting("baseline hazard"), **choices)
    monkeypatch.setattr("tacit.runs.context.machine", lambda: "another")
    run = fit(task, DATA, engine=Cutting(), **choices)
    assert run.privacy.epsilon <= RECORD.epsilon
    assert run.model.risk(DATA.store.features).shape == (360,)
    with pytest.raises(Refused, match="baseline hazard"):
        run.model.survival(DATA.store.features, [1.0])
