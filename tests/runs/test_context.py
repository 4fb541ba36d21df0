"""One choice has one ticket: from Python, from its file, and from the directory of its run."""

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tacit.aggregation.mean import Mean
from tacit.errors import TacitError
from tacit.experiments import experiment
from tacit.experiments.experiment import KINDS, Experiment
from tacit.learning.record import describe, identity_of
from tacit.privacy.policy import Open
from tacit.runs.context import RunContext, choices_of
from tacit.runs.directory import EXPERIMENT, Checkpoint, Directory
from tacit.runs.queries import final_query_of, initial_query_of
from tacit.runs.setup import prepare
from tacit.runtime.keys import Key
from tacit.runtime.tables import Unwritable, canonical, plain
from tacit.sites.sampling import Poisson
from tacit.survival.data import simulate

BESIDE = ("stop", "augment", "quarantine", "attack", "clusters")
SECRET = bytes(range(32))
HEAD = {"name": "x", "seed": 3, "rounds": 4, "baselines": False}

reals = st.one_of(st.floats(0.01, 1.0), st.sampled_from([0.1, 0.25, 0.5, 1.0, 2.0, 3.0]))
pulls = st.one_of(st.just(0.0), reals)
widths = st.lists(st.integers(1, 5), max_size=3)
ends = st.lists(st.integers(1, 40), min_size=2, max_size=5, unique=True).map(
    lambda found: [value / 4 for value in sorted(found)]
)


def some(**options: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Any of these options, each with any of its values."""
    return st.fixed_dictionaries({}, optional=options)


WORK = {
    "steps": st.integers(1, 4), "sample": st.floats(0.05, 1.0), "batch": st.integers(1, 9), "lr": reals,
    "optimizer": st.sampled_from(["sgd", "momentum", "adam"]), "proximal": pulls, "decay": pulls,
}  # fmt: skip
NETWORK = {**WORK, "hidden": widths, "activation": st.sampled_from(["relu", "tanh", "gelu"]), "cuts": ends}
GROUPED = {**NETWORK, "groups_per_site": st.integers(2, 9)}
PRICES = st.one_of(pulls, st.lists(pulls, min_size=1, max_size=3))
BY_NAME = st.dictionaries(st.sampled_from(["x1", "x2", "y"]), reals, max_size=3)
TASKS: dict[str, st.SearchStrategy[dict[str, Any]]] = {
    "logistic-hazard": some(**NETWORK),
    "pc-hazard": some(**NETWORK),
    "poisson-ph": some(**NETWORK),
    "deep-hit": some(**GROUPED, ranking=pulls, spread=reals),
    "deep-surv": some(**GROUPED),
    "cox-ph": some(**GROUPED),
    "cox-cc": some(**GROUPED),
    "cox-time": some(**GROUPED),
    "newton-ph": some(
        effects=st.sampled_from(["linear", "hinge"]), horizon=reals, cuts=st.integers(1, 9),
        ranges=st.fixed_dictionaries({"x1": st.just([-3.0, 4.0]), "x2": st.just([-2.0, 3.0])}),
    ),
    "kaplan-meier": some(grid=ends, level=st.floats(0.5, 0.99)),
    "cox": some(ties=st.sampled_from(["efron", "breslow"]), ridge=pulls, level=st.floats(0.5, 0.99)),
    "private-cox": some(
        followed=st.floats(1.5, 9.0), level=st.floats(0.5, 0.99), by_site=st.booleans(), horizon=reals,
    ),
    "linear": some(ridge=pulls, level=st.floats(0.5, 0.99)),
    "logistic": some(ridge=pulls, level=st.floats(0.5, 0.99)),
    "poisson": some(ridge=pulls, level=st.floats(0.5, 0.99)),
    "functional-boosting": some(
        rate=st.floats(0.05, 1.0), steps=st.integers(1, 9), stop=st.sampled_from(["cv", "aic", 3]),
        margin=reals.map(lambda value: 1 + value), smooth_s=PRICES, smooth_t=PRICES, smooth_st=PRICES,
        size=st.integers(5, 7), knots=st.lists(st.sampled_from([0.25, 0.5, 0.75]), unique=True).map(sorted),
        components=st.integers(1, 4), smooth=pulls, folds=st.integers(2, 4), center=BY_NAME, scale=BY_NAME,
        release=st.sampled_from(["local", "moments"]), protect=st.sampled_from(["predictors", "all"]),
        radius=st.one_of(reals, st.fixed_dictionaries({"y": reals, "x2": reals, "x1": reals})),
    ),
    "ppo": some(
        lr=reals, epochs=st.integers(1, 3), batch=st.sampled_from([8, 16]), gamma=st.floats(0.5, 1.0),
        clip_range=reals, value_clip=reals, grad_norm=reals, hidden=widths, envs=st.sampled_from([1, 2]),
        rollout=st.sampled_from([4, 8]), anneal=st.booleans(), limit=reals, snapshots=st.integers(1, 3),
        center=st.lists(pulls, min_size=4, max_size=4), scale=st.lists(reals, min_size=4, max_size=4),
        share=st.sampled_from(["all", "actor"]), normalise=st.sampled_from(["given", "sites"]),
    ),
}  # fmt: skip
RECORDS = {"data": {"kind": "simulated", "records": 120, "features": 3}, "sites": {"kind": "iid", "count": 3}}
CURVES = {
    "data": {"kind": "simulated-curves", "records": 40, "predictors": 2, "points": 21},
    "sites": {"kind": "columns"},
}
WORLDS = {"data": {"kind": "gymnasium", "env": "CartPole-v1"}, "sites": {"kind": "variants", "copies": 2}}
DATA: dict[str, dict[str, Any]] = {"functional-boosting": CURVES, "ppo": WORLDS}
NORMED = {"x1": [-3.0, 4.0], "x2": [-2.0, 3.0], "x3": [-2.0, 3.0]}
FIXED = {
    "ppo": {"steps": 16}, "functional-boosting": {"size": 6},
    "private-cox": {"horizon": 4.0, "ranges": NORMED},
    "linear": {"outcome": "x1"}, "logistic": {"outcome": "event"}, "poisson": {"outcome": "event"},
}  # fmt: skip
RECORD = {"unit": "record", "delta": 1e-5}
SITE = {"unit": "site", "delta": 1e-5, "noise": "server"}
PROMISES: dict[str, list[dict[str, Any]]] = {
    "functional-boosting": [{"kind": "open"}, {**RECORD, "clip": 3.0, "epsilon": 4.0}],
    "ppo": [{"kind": "open"}, {**SITE, "clip": 1.0, "noise_multiplier": 2.0, "clip_quantile": 0.5}],
    "kaplan-meier": [{"kind": "open"}],
    "newton-ph": [{"kind": "open"}, {**RECORD, "epsilon": 2.0, "rehearsal": True}],
    **{key: [{"kind": "open"}] for key in ("cox", "linear", "logistic", "poisson")},
    "private-cox": [{"kind": "open"}, {**RECORD, "epsilon": 2.0, "rehearsal": True}],
}
PRIVATE = [
    {"kind": "open"},
    {**RECORD, "clip": 2.0, "noise_multiplier": 1.5, "rehearsal": True},
    {**SITE, "clip": 1.0, "noise_multiplier": 2.0, "participation": 0.5},
]
TABLES = st.fixed_dictionaries({}, optional={
    "server": st.sampled_from([{"kind": "momentum", "lr": 1.0}, {"kind": "adam", "lr": 2.0, "first": 0.5}]),
    "aggregation": st.sampled_from([
        {"kind": "mean", "weights": {"site-2": 3.0, "site-3": 1.0, "site-1": 2.0}},
        {"kind": "mixing", "then": {"kind": "trimmed-mean", "f": 1}},
        {"kind": "centered-clip", "radius": 2.0},
    ]),
    "quarantine": st.just({"drift": 4.0}),
    "stop": st.just({"patience": 2, "bound": 3.0}),
})  # fmt: skip


def spelled(draw: st.DrawFn, value: Any) -> Any:
    """The same choice, written as somebody else would: other sequences, numbers and orders."""
    if isinstance(value, Mapping):
        names = draw(st.permutations(list(value)))
        return {name: spelled(draw, value[name]) for name in names}
    if isinstance(value, list):
        return draw(st.sampled_from([list, tuple]))(spelled(draw, entry) for entry in value)
    if isinstance(value, float):
        whole = [int(value)] if value.is_integer() else []
        return draw(st.sampled_from([value, np.float64(value), *whole]))
    return value


def listed(value: Any) -> Any:
    """The same with lists and numbers that a file can hold."""
    if isinstance(value, Mapping):
        return {name: listed(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [listed(entry) for entry in value]
    return float(value) if isinstance(value, float) else value


def part(table: str, choices: dict[str, Any]) -> Any:
    """The object that a table stands for, made in Python."""
    kinds, options = KINDS[table], dict(choices)
    kind = kinds[options.pop("kind", next(iter(kinds)))]
    if "then" in options:
        options["then"] = part(table, options["then"])
    return kind(**options)


def in_python(document: dict[str, Any]) -> Experiment:
    """The experiment of a document, made in Python."""
    usual = {"privacy": Open(), "aggregation": Mean(), "server": {}, "sampling": Poisson(), "engine": {}}
    absent = {**usual, **dict.fromkeys(BESIDE)}
    made = {name: part(name, document[name]) for name in KINDS if name in document}
    made |= {
        name: part(name, value) if value == {} else value
        for name, value in absent.items()
        if name not in made
    }
    head = {name: document[name] for name in ("name", "seed", "rounds", "baselines")}
    return Experiment(**head, **made)


def prepared(asked: Experiment) -> tuple[RunContext, dict[str, Any]]:
    """Everything that a run of it is made of, and what its directory keeps."""
    ready = prepare(asked, asked.open_federation())
    assert ready.federation is not None
    head = {"name": asked.name, "seed": asked.seed, "rounds": asked.rounds, "baselines": asked.baselines}
    context = RunContext(prepared=ready, federation=ready.federation)
    return context, {**head, **ready.describe(ready.federation)}


def tickets(setting: RunContext) -> dict[str, str]:
    """The tickets of a round and of everything that is asked once."""
    state = np.arange(5)
    point = Checkpoint(1, state, state[:0], state, 1, "head", "data", kept={"bounds": state[:2]})
    key = Key(setting.spec.rounds, rehearsal=False, entropy=SECRET)
    asked = [
        question.kind
        for question in (initial_query_of(setting.task), final_query_of(setting.task))
        if question
    ]
    return {str(name): setting.ticket(point, key / name) for name in (2, "count", "closing", *asked)}


@st.composite
def documents(draw: st.DrawFn, kind: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """A document with a task of this kind, and the same in another spelling."""
    task = {"kind": kind, **FIXED.get(kind, {}), **draw(TASKS[kind])}
    privacy = draw(st.sampled_from(PROMISES.get(kind, PRIVATE)))
    beside = draw(TABLES) if kind in TASKS and kind not in (*PROMISES,) else {}
    own = DATA.get(kind, RECORDS)
    rounds = 1 if kind in ("functional-boosting", "kaplan-meier") else 4
    document = {**HEAD, "rounds": rounds, **own, "task": task, "privacy": privacy, **beside}
    return document, spelled(draw, document)


def test_every_task_that_a_file_can_name_is_compared_here():
    assert set(TASKS) == set(KINDS["task"])


@pytest.mark.parametrize("kind", TASKS)
@settings(max_examples=6, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_python_file_and_directory_of_one_choice_have_the_same_tickets(kind, data):
    document, other = data.draw(documents(kind))
    with tempfile.TemporaryDirectory() as folder:
        file, kept = Path(folder) / "e.toml", Directory(Path(folder) / "run")
        file.write_text(tomli_w.dumps(listed(other)))
        try:
            setting, told = prepared(in_python(spelled(data.draw, document)))
        except TacitError:
            # What does not go together is refused, however it is written.
            with pytest.raises(TacitError):
                prepared(experiment.read(file))
            assume(False)
        assert setting.nonce not in setting._work, "some of the work could not be written"
        with kept.claim(told, resume=False):
            text = kept.read(EXPERIMENT)
        read, told_of_file = prepared(experiment.read(file))
        again, told_of_directory = prepared(experiment.read(Path(folder) / "run"))
        assert tickets(setting) == tickets(read)
        assert tickets(setting) == tickets(again)
        for found in (told, told_of_file, told_of_directory):
            with kept.claim(found, resume=True):
                assert kept.read(EXPERIMENT) == text


@pytest.mark.parametrize("kind", TASKS)
@settings(max_examples=5, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_choices_that_differ_have_tickets_that_differ(kind, data):
    found = []
    for _ in range(2):
        try:
            found.append(prepared(in_python(data.draw(documents(kind))[0])))
        except TacitError:
            assume(False)
    (one, told), (other, told_of_other) = found
    same = canonical(told) == canonical(told_of_other)
    assert (tickets(one)["2"] == tickets(other)["2"]) == same


@pytest.mark.parametrize(
    ("given", "same"),
    [
        ((1, 2.5, ("a",)), [1, 2.5, ["a"]]),
        (np.array([1.0, 2.0]), [1.0, 2.0]),
        (np.array([[1, 2]]), [[1, 2]]),
        (range(3), [0, 1, 2]),
        (np.float64(0.1), 0.1),
        (np.int64(3), 3),
        (np.bool_(True), True),
        (np.str_("word"), "word"),
        (Path("a") / "b.csv", "a/b.csv"),
        ({"b": 1, "a": (2,)}, {"a": [2], "b": 1}),
    ],
)
def test_one_value_has_one_text_however_it_is_written(given, same):
    assert plain(given) == same
    assert canonical(given) == canonical(same)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, 1.0),
        (1, True),
        (1, "1"),
        ([1, 2], [12]),
        ([[1], 2], [1, [2]]),
        (0.1, np.nextafter(0.1, 1)),
        (0.0, -0.0),
        ("a,b", ["a", "b"]),
        ({"a": {}}, {"a": []}),
        (2**53, 2**53 + 1),
        ('"', "'"),
    ],
)
def test_values_that_differ_have_texts_that_differ(one, other):
    assert canonical(one) != canonical(other)


@pytest.mark.parametrize("value", [print, object(), b"bytes", {1: 2}, [None], {"a": {print}}])
def test_what_no_file_can_hold_has_no_text(value):
    with pytest.raises(Unwritable):
        canonical(value)


def test_a_choice_of_which_some_cannot_be_written_has_no_identity():
    assert identity_of(Mean(weights={"b": 2, "a": 1})) == identity_of(Mean(weights={"a": 1.0, "b": 2.0}))
    assert identity_of(OwnAugmentation()) is not None
    assert identity_of(OwnAugmentation(print)) is None


def test_numbers_of_numpy_are_written_down_and_not_left_out():
    task = KINDS["task"]["logistic-hazard"]
    cuts = np.array([1.0, 2.0])
    assert describe(task(cuts=cuts, lr=np.float64(0.1)))["cuts"] == [1.0, 2.0]
    assert task(cuts=cuts).identity == task(cuts=[1, 2]).identity
    assert task(cuts=cuts).identity != task(cuts=cuts + 1).identity


def test_a_relative_path_from_python_is_kept_so_that_it_is_found_from_anywhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    simulate("SDGM1", records=60, features=2, seed=1).to_csv("patients.csv", index=False)
    document = {**HEAD, "data": {"kind": "csv", "path": "patients.csv"}, "sites": {"kind": "iid", "count": 2}}
    document |= {"task": {"kind": "cox-ph"}, "privacy": {"kind": "open"}}
    setting, told = prepared(in_python(document))
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / EXPERIMENT).write_text(tomli_w.dumps(told))
    monkeypatch.chdir("/")
    assert tickets(prepared(experiment.read(tmp_path / "run"))[0]) == tickets(setting)


@dataclass(frozen=True)
class OwnAugmentation:
    """Synthetic records by a user's own code."""

    share: object = 0.5


def test_synthetic_records_of_ones_own_code_are_paid_for_each_time():
    assert choices_of({"augment": describe(OwnAugmentation())}, OwnAugmentation()) is None
    assert choices_of({"data": {"kind": "csv"}}, None) == '{"data":{"kind":"csv"}}'
    assert choices_of({"data": {"kind": print}}, None) is None
