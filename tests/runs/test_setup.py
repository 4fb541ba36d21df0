"""A plan is the price of the run: one function decides both, and the guard of a site comes to the same."""

import inspect
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, fields, make_dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st

import tacit
from tacit.deploy.site.agreement import set_up
from tacit.errors import Refused, TacitError
from tacit.experiments.experiment import KINDS, Experiment, construct_experiment, read
from tacit.privacy.accounting.release import Release
from tacit.runs import spec as specs
from tacit.runs.directory import LEDGER
from tacit.runs.fit import fit, run_spec
from tacit.runs.setup import prepare
from tacit.runs.spec import PublicFacts, RunSpec
from tacit.survival import LogisticHazard

EXAMPLES = Path(__file__).parents[2] / "examples"
RECORDS = {"data": {"kind": "simulated", "records": 200, "features": 2}, "sites": {"kind": "iid", "count": 4}}
CURVES = {
    "data": {"kind": "simulated-curves", "records": 60, "predictors": 2, "points": 11},
    "sites": {"kind": "columns"},
}
CARTS = {"data": {"kind": "gymnasium", "env": "CartPole-v1"}, "sites": {"kind": "variants", "copies": 4}}
# No clip bound goes with regressions; rounds of newton-ph and private-cox differ (their own tests).
BOUNDED = ("cox", "newton-ph", "private-cox", "linear", "logistic", "poisson")
PRIVATE = [kind for kind in KINDS["task"] if kind not in BOUNDED]
ROWS = [kind for kind in KINDS["task"] if kind not in ("functional-boosting", "ppo")]
ONCE = ("kaplan-meier", "functional-boosting")
RECORD = {"unit": "record", "delta": 1e-5, "clip": 1.0, "rehearsal": True}
SITE = {**RECORD, "unit": "site"}
PRICED = st.sampled_from([{"epsilon": 2.0}, {"epsilon": 0.4}, {"noise_multiplier": 1.3}])
PROMISES = st.one_of(
    st.sampled_from(
        [RECORD, {**RECORD, "mechanism": "laplace", "delta": 0.0}, {**RECORD, "participation": 0.5}]
    ),
    st.sampled_from([SITE, {**SITE, "clip_quantile": 0.5}, {**SITE, "participation": 0.5}]),
    st.sampled_from([{**SITE, "noise": noise} for noise in ("server", "secure")]),
    st.just({**SITE, "noise": "server", "participation": 0.5}),
)
TABLES = st.fixed_dictionaries({}, optional={
    "stop": st.sampled_from([{"patience": 2}, {"patience": 2, "epsilon": 0.2}]),
    "augment": st.just({"kind": "mvaec", "epsilon": 0.1, "steps": 3, "span": [0.1, 9.0]}),
    "quarantine": st.just({"mode": "observe"}),
    "clusters": st.sampled_from([
        {"count": 2, "by": "direction"}, {"count": 2, "by": "weights", "warm": 1}, {"by": "site"},
    ]),
    "sampling": st.just({"kind": "fixed", "count": 3}),
    "aggregation": st.sampled_from([
        {"kind": "median"}, {"kind": "trimmed-mean", "f": 1}, {"kind": "centered-clip", "radius": 1.0},
    ]),
    "server": st.just({"kind": "adam"}),
    "attack": st.just({"kind": "sign-flip", "liars": 1}),
})  # fmt: skip


def drawn(data: st.DataObject, kind: str) -> Experiment:
    """An experiment about this task under a promise, with whatever else there is."""
    own = CURVES if kind == "functional-boosting" else CARTS if kind == "ppo" else RECORDS
    options = {entry.name for entry in fields(KINDS["task"][kind])}
    task: dict[str, Any] = {"kind": kind}
    task |= {"horizon": 5.0} if "horizon" in options and (kind in ONCE or data.draw(st.booleans())) else {}
    task |= {"groups_per_site": 3} if "groups_per_site" in options and data.draw(st.booleans()) else {}
    task |= {"size": 6} if kind == "functional-boosting" else {}
    privacy = {"kind": "private", **data.draw(PROMISES), **data.draw(PRICED)}
    rounds = 1 if kind in ONCE else data.draw(st.integers(2, 6))
    beside = data.draw(TABLES) if kind in ROWS else {}
    document = {"rounds": rounds, "task": task, "privacy": privacy, **own, **beside}
    return construct_experiment(document, EXAMPLES)


def alike(releases: Iterable[Release]) -> Counter[Release]:
    """Releases counted, whichever round they are of, and whoever let them out."""
    found = Counter[Release]()
    for release in releases:
        found[replace(release, count=1, party="", purpose="")] += release.count
    return found


def assert_planned(asked: Experiment, releases: list[Release], epsilon: float | None = None) -> None:
    """These releases are those that the plan knows of, at its price to the bit."""
    planned = asked.plan()
    if planned.statement.epsilon is None:
        assert releases == []
        return
    told = tacit.privacy.statement.state(asked.privacy, releases).epsilon if epsilon is None else epsilon
    if asked.task.kind == "functional-boosting":
        # Before the columns are known one stands for all, at the same price but for roundings.
        assert told == pytest.approx(planned.statement.epsilon, rel=1e-6)
        return
    assert alike(planned.releases) == alike(releases)
    assert told == planned.statement.epsilon


@pytest.mark.parametrize("kind", PRIVATE)
@settings(max_examples=6, suppress_health_check=list(HealthCheck), phases=[Phase.generate])
@given(data=st.data())
def test_a_plan_and_the_run_it_is_of_have_one_price(kind, data):
    asked = drawn(data, kind)
    try:
        prepared = prepare(asked, asked.open_federation())
    except TacitError:
        assume(False)
    assert prepared.federation is not None
    assert_planned(asked, prepared.price())
    # To compare, a release is taken out of its round: they differ in nothing else.
    each = [alike(prepared.releases_of_round(number)) for number in range(1, asked.rounds + 1)]
    assert all(found == each[0] for found in each)
    assert prepared.plan().releases == prepare(asked, prepared.federation).plan().releases


@pytest.mark.parametrize("kind", KINDS["task"])
@settings(max_examples=6, suppress_health_check=list(HealthCheck), phases=[Phase.generate])
@given(data=st.data())
def test_what_a_plan_refuses_a_run_refuses_with_the_same_words(kind, data):
    asked = drawn(data, kind)
    try:
        asked.plan()
    except TacitError as error:
        with pytest.raises(type(error), match=re.escape(str(error))):
            prepare(asked, asked.open_federation())


# Examples of many runs, which have no one price.
MANY_RUNS = {"attacks", "control", "control-laplace", "control-thousand", "parties"}
ONE_RUN = [path for path in sorted(EXAMPLES.glob("*.toml")) if path.stem not in MANY_RUNS]


@pytest.mark.parametrize("path", ONE_RUN, ids=lambda path: path.stem)
def test_the_plan_of_an_example_is_the_price_of_its_run(path):
    asked = read(path)
    assert_planned(asked, prepare(asked, asked.open_federation()).price())


SMALL = {"records": 80, "features": 2, "held_out": 0.25}
TASK = {"kind": "logistic-hazard", "hidden": [], "steps": 2, "cuts": 3}
WHOLE = {
    "records": {},
    "sites": {"privacy": {**SITE, "epsilon": 2.0}},
    "trusted server": {"privacy": {**SITE, "epsilon": 2.0, "noise": "server", "participation": 0.5}},
    "secure": {"privacy": {**SITE, "epsilon": 2.0, "noise": "secure"}},
    "following bounds": {"privacy": {**SITE, "epsilon": 2.0, "clip_quantile": 0.5}},
    "watched loss": {"stop": {"patience": 9, "epsilon": 0.3}},
    "augmented": {"augment": {"kind": "mvaec", "epsilon": 0.5, "steps": 3, "span": [0.1, 9.0], "hidden": 3}},
    "quarantine": {"quarantine": {}},
    "clusters": {"clusters": {"count": 2, "by": "direction"}},
    "fixed draw": {"sampling": {"kind": "fixed", "count": 4}},
    "cox": {"task": {"kind": "deep-surv", "hidden": [], "steps": 2, "groups_per_site": 3}},
    "poisson": {"task": {"kind": "poisson-ph", "steps": 2, "cuts": 3}},
    "curves": {**CURVES, "task": {"kind": "functional-boosting", "size": 6}, "rounds": 1,
               "privacy": {**RECORD, "epsilon": 4.0, "clip": 3.0}},
    "survival curve": {"task": {"kind": "kaplan-meier", "horizon": 5.0}, "rounds": 1},
}  # fmt: skip


@pytest.mark.parametrize("name", WHOLE)
def test_a_whole_rehearsal_is_charged_what_was_planned(name, tmp_path):
    base = {"data": {"kind": "simulated", **SMALL}, "sites": {"kind": "iid", "count": 4}, "task": TASK}
    document = {"rounds": 3, "baselines": False, "privacy": {**RECORD, "epsilon": 2.0}, **base, **WHOLE[name]}
    asked = construct_experiment(document, EXAMPLES)
    run = asked.run(tmp_path / "run")
    with tacit.Ledger(tmp_path / "run" / LEDGER, mode="read") as ledger:
        assert_planned(asked, list(ledger.releases()), run.privacy.epsilon)


def test_only_public_facts_are_needed_and_even_those_may_be_missing():
    spec = RunSpec(task=LogisticHazard(), privacy=tacit.Privacy(unit="record", epsilon=1, delta=1e-5, clip=1))
    assert prepare(spec, None).names == ("site-1",)
    known = prepare(spec, PublicFacts(names=("oslo", "bergen"), records=200))
    assert known.federation is known.watch is known.test is None
    assert known.plan().statement.epsilon <= 1.0


def test_a_guard_prices_what_the_coordinator_does(tmp_path):
    held = {"kind": "held-records", "columns": ["x1", "x2"], "records": 100}
    sites = {"kind": "named", "names": ["oslo", "bergen"]}
    privacy = {"unit": "record", "delta": 1e-5, "clip": 1.0, "epsilon": 2.0}
    for task in (TASK, {**TASK, "horizon": 5.0}, {"kind": "poisson-ph", "horizon": 4.0}):
        document = {"rounds": 3, "data": held, "sites": sites, "task": task, "privacy": privacy}
        asked = construct_experiment(document, tmp_path)
        assert_planned(asked, set_up(asked).price())
        assert set_up(asked).price() == prepare(asked, asked.open_federation()).price()


@pytest.mark.parametrize("beside", [{"stop": {"epsilon": 0.3}}, {"augment": {"epsilon": 0.1}}])
def test_a_plan_refuses_what_needs_the_records_of_remote_sites(beside, tmp_path):
    held = {"kind": "held-records", "columns": ["x1", "x2"]}
    document = {"data": held, "sites": {"kind": "named", "names": ["oslo", "bergen"]}, "task": TASK, **beside}
    with pytest.raises(Refused, match="does not go with sites on machines of their own"):
        construct_experiment(document, tmp_path).plan()


# Options


@dataclass(frozen=True, kw_only=True)
class Echo:
    """An option that does not exist."""

    times: int = 1
    kind: ClassVar[str] = "echo"


def test_an_imaginary_option_is_one_class_and_one_field(monkeypatch, tmp_path):
    place = f"{__name__}:Echo"
    field = ("echo", Any, specs.field(default=None, metadata=specs._kinds(place)))
    wider = make_dataclass("Wider", [field], bases=(RunSpec,), frozen=True, kw_only=True)
    monkeypatch.setattr(specs, "RunSpec", wider)
    monkeypatch.setitem(specs.OPTIONS, "echo", None)
    # A file knows its table, a run's directory keeps it, and a task of columns refuses it.
    assert specs.option_kinds()["echo"] == {"echo": Echo}
    asked = wider(task=LogisticHazard(), echo=Echo(times=3))
    assert asked.describe()["echo"] == {"kind": place, "times": 3}
    assert asked.beside() == ["echo"]
    assert replace(asked, echo=None).beside() == []


def test_fit_has_a_keyword_for_every_option_and_the_same_default():
    given = {name: one.default for name, one in inspect.signature(fit).parameters.items()}
    for entry in fields(RunSpec):
        assert entry.name in given
        # Rounds are by default what the task needs.
        if entry.name not in ("task", "rounds"):
            assert given[entry.name] == entry.default


def test_a_spec_runs_as_its_keywords_do():
    federation = construct_experiment({"task": TASK, **RECORDS}, EXAMPLES).open_federation()
    task = LogisticHazard(hidden=(), steps=1, cuts=3)
    one = run_spec(RunSpec(task=task, rounds=2, seed=5), federation)
    other = fit(task, federation, rounds=2, seed=5)
    assert one.scores == other.scores
