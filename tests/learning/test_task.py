"""Bases with every hook: what a user's class may leave out, and what is refused of one that misspells one."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pytest

from tacit import Federation, fit
from tacit.errors import InvalidValue, Refused
from tacit.learning.task import TaskBase, Updates, as_task
from tacit.privacy.policy import Open
from tacit.runtime.contracts import user_object
from tacit.runtime.keys import Key
from tacit.sites.source import SourceBase, as_source
from tacit.sites.splits import Iid, as_split
from tacit.sites.table import from_arrays


class Counting(TaskBase):
    """The least that a task of one's own has to be."""

    kind = "counting"
    goal = ("rounds", "max")

    def start(self, federation, key):
        return np.zeros(1)

    def train(self, state, cohort, mechanism, key):
        return Updates(cohort.names, np.ones((len(cohort), 1)))

    def score(self, state, held_out):
        return {"rounds": float(state[0])}

    def model(self, state):
        return round(float(state[0]))


@dataclass(frozen=True)
class Structural:
    """The members of `Task` and one hook, without the base."""

    limit: int = 2
    kind = "structural"
    separable, groups, steps, sample, batch, shuffled = True, "none", 1, 1.0, None, False
    identity = initial_query = final_query = None
    goal = ("rounds", "max")
    start, train, score, model = Counting.start, Counting.train, Counting.score, Counting.model

    def bind(self, federation, provenance):
        return self

    def advance(self, state, step):
        return state + step

    def losses(self, state, table):
        return np.zeros(len(table))

    def stop_reason(self, state):
        return f"{self.limit} rounds are enough" if state[0] >= self.limit else None


def federation() -> Federation:
    records = from_arrays(np.ones((4, 1)), y=np.ones(4))
    return Federation({"oslo": records, "bergen": records}, held_out=records, public=True)


def test_a_task_of_ones_own_inherits_what_it_does_not_say():
    run = fit(Counting(), federation(), rounds=3)
    assert (run.model, run.scores, run.record.findings) == (3, {"rounds": 3.0}, ())
    with pytest.raises(Refused, match="counting has no losses of single records"):
        Counting().losses(np.zeros(1), federation().records_of("oslo"))


def test_a_task_without_the_base_keeps_its_own_hooks_and_has_the_other_defaults():
    task = as_task(Structural(limit=2))
    assert isinstance(task, TaskBase)
    assert (task.layout, task.once, task.exempt, task.findings(np.zeros(1))) == ("rows", False, (), [])
    assert (task.kind, task.goal, task.limit) == ("structural", ("rounds", "max"), 2)
    assert (task.ends_itself, task.scores_clusters) == (True, False)
    assert (as_task(Counting()).ends_itself, as_task(Counting()).scores_clusters) == (False, False)
    assert task.with_privacy(Open()).at_round(1, 2) == task
    assert as_task(task) is task
    assert user_object(task) == Structural(limit=2)
    run = fit(Structural(limit=2), federation(), rounds=5)
    assert (run.model, run.record.stopped) == (2, "2 rounds are enough")


@pytest.mark.parametrize(
    ("name", "hook"),
    [("finding", "findings"), ("stop_reasons", "stop_reason"), ("with_privcy", "with_privacy")],
)
def test_a_misspelt_hook_is_refused_with_the_name_that_was_meant(name, hook):
    with pytest.raises(
        InvalidValue, match=rf'Own.{name} is not a hook of a task \(did you mean "{hook}"\?\)'
    ):
        type("Own", (Counting,), {name: lambda self, state: None})


def test_names_of_ones_own_are_no_misspelt_hooks():
    class Own(Counting):
        def _finding(self):
            return None

        def shrink(self):
            return None

        @cached_property
        def learning_rate(self):
            return 0.1

    class Further(Own):
        def shrink(self):
            return 1

    assert Further().shrink() == 1


def test_a_source_and_a_split_of_ones_own_have_the_defaults():
    class Own:
        kind, path = "own:Own", "patients.csv"

        def open(self, split, seed, *, may_look=False):
            return federation()

    source = as_source(Own())
    assert isinstance(source, SourceBase)
    assert (source.public, source.distant, source.layout, source.paths) == (False, False, "rows", ())
    assert (source.place, source.public_records, dict(source.public_files)) == ("patients.csv", None, {})
    assert source.size_task("task", None) == "task"
    assert list(source.open(None, 0)) == ["oslo", "bergen"]
    with pytest.raises(Refused, match="is in one place"):
        source.at_site("oslo", {}, None)

    class Halves:
        kind, names = "own:Halves", ("a", "b")

        def __call__(self, table, key):
            return {"a": np.arange(2), "b": np.arange(2, len(table))}

    split = as_split(Halves())
    assert (split.layout, split.names) == ("rows", ("a", "b"))
    assert list(split(federation().store, Key(0))) == ["a", "b"]
    assert as_split(Iid(count=2)) == Iid(count=2)
