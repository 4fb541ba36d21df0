"""A run ends when nothing improves, keeps its best round, and is scored on records that did not choose it."""

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit import Federation, Key, Open, Privacy, Run, Stopping, fit
from tacit.errors import InvalidValue, Refused, TacitError
from tacit.learning.task import Updates
from tacit.privacy.policy import Provenance
from tacit.runtime.arrays import Array
from tacit.sites.federation import Cohort
from tacit.sites.table import Table, from_arrays

RECORDS = 41


@dataclass(frozen=True, kw_only=True)
class Scripted:
    """A task whose state counts the rounds, and whose score after each round is written down beforehand.

    Args:
        script: The score before the first round, after it, and so on.
        direction: The good one.
        seen: The records behind each score that was asked for, by the round.
    """

    script: list[float]
    direction: str = "max"
    seen: list[tuple[int, list[float]]] = field(default_factory=list)
    kind: ClassVar[str] = "scripted"
    separable: ClassVar[bool] = True
    groups: ClassVar[str] = "none"
    steps: ClassVar[int] = 1
    sample: ClassVar[float] = 1.0
    batch: ClassVar[int] = 10
    shuffled: ClassVar[bool] = False

    @property
    def goal(self) -> tuple[str, str]:
        return ("quality", self.direction)

    def bind(self, federation: Federation, provenance: Provenance) -> "Scripted":
        return self

    def start(self, federation: Federation, key: Key) -> Array:
        return np.zeros(1)

    def train(self, state: Array, cohort: Cohort, mechanism: object, key: Key) -> Updates:
        return Updates(cohort.names, np.ones((len(cohort), 1)))

    def advance(self, state: Array, step: Array) -> Array:
        return state + step

    def score(self, state: Array, held_out: Table) -> dict[str, float]:
        number = round(float(state[0]))
        self.seen.append((number, held_out.features[:, 0].tolist()))
        return {"other": 0.5, "quality": self.script[number]}

    def model(self, state: Array) -> float:
        return float(state[0])


def federation(held_out: int | None = RECORDS, **options: object) -> Federation:
    numbers = np.arange(1000.0)
    apart = None if held_out is None else from_arrays(numbers[:held_out], y=numbers[:held_out])
    tables = {name: from_arrays(numbers[:5], y=numbers[:5]) for name in ("oslo", "bergen")}
    return Federation(tables, held_out=apart, **options)


def run(script: list[float], patience: int | None, **options: object) -> Run:
    """A run over all scripted rounds; the score before the first is left out of the script."""
    stop = None if patience is None else Stopping(patience=patience)
    task = Scripted(script=[float("nan"), *script], **options)
    return fit(task, federation(), stop=stop, rounds=len(script))


def by_hand(script: list[float], patience: int) -> tuple[int, int]:
    """Return the number of rounds and the kept one, by the rules of the documentation."""
    best, waited = 0, 0
    for number, value in enumerate(script, start=1):
        if best == 0 or value > script[best - 1]:
            best, waited = number, 0
        else:
            waited += 1
        if waited == patience:
            return number, best
    return len(script), best


def test_a_run_ends_when_nothing_improves_and_keeps_the_best_round():
    done = run([0.5, 0.7, 0.6, 0.65, 0.9, 0.9], patience=2)
    assert len(done.record.rounds) == 4
    assert done.record.chosen == 2
    assert done.model == 2
    assert done.scores["quality"] == 0.7
    assert "quality has not improved for 2 rounds" in done.record.stopped


def test_an_improvement_starts_the_waiting_anew():
    done = run([0.5, 0.4, 0.6, 0.5, 0.7, 0.6, 0.5], patience=2)
    assert (len(done.record.rounds), done.record.chosen) == (7, 5)


def test_an_equal_score_is_no_improvement_and_the_first_is_kept():
    done = run([0.5, 0.5, 0.5, 0.5], patience=2)
    assert (len(done.record.rounds), done.record.chosen, done.model) == (3, 1, 1)


def test_a_loss_is_better_the_smaller_it_is():
    done = run([3.0, 1.0, 2.0, 1.5, 0.0], patience=2, direction="min")
    assert (len(done.record.rounds), done.record.chosen, done.scores["quality"]) == (4, 2, 1.0)


@given(
    st.lists(st.sampled_from([0.1, 0.2, 0.3, 0.4, 0.5]), min_size=1, max_size=12),
    st.integers(1, 5),
    st.sampled_from(["max", "min"]),
)
@settings(max_examples=60)
def test_any_course_of_scores_is_followed_as_the_words_say(
    script: list[float], patience: int, direction: str
):
    done = run(script, patience, direction=direction)
    sign = 1 if direction == "max" else -1
    assert (len(done.record.rounds), done.record.chosen) == by_hand([sign * s for s in script], patience)
    assert done.model == done.record.chosen
    assert done.scores["quality"] == script[done.record.chosen - 1]
    assert (done.record.stopped is None) == (len(done.record.rounds) == len(script))


def test_a_run_to_the_last_round_was_not_stopped_but_keeps_the_best():
    done = run([0.5, 0.9, 0.6, 0.7], patience=10)
    assert (len(done.record.rounds), done.record.chosen, done.record.stopped) == (4, 2, None)
    assert done.model == 2


def test_without_stopping_the_last_round_is_kept_whatever_it_is():
    done = run([0.5, 0.9, 0.6, 0.1], patience=None)
    assert (len(done.record.rounds), done.record.chosen, done.record.stopped) == (4, 4, None)
    assert done.scores["quality"] == 0.1


def test_what_is_watched_and_what_the_result_is_scored_on_are_different_halves():
    done = run([0.5, 0.7, 0.6, 0.65], patience=2)
    # Both halves are tried once before anything is paid.
    *watched, (scored, test) = done.task.seen[2:]
    assert [number for number, _ in watched] == [1, 2, 3, 4]
    assert scored == 2
    assert all(records == watched[0][1] for _, records in watched)
    assert not set(watched[0][1]) & set(test)
    assert sorted([*watched[0][1], *test]) == list(range(RECORDS))
    assert abs(len(watched[0][1]) - len(test)) <= 1


def test_the_halves_are_drawn_at_random_and_repeat_with_the_seed():
    halves = []
    for seed in (1, 1, 2):
        task = Scripted(script=[0.0, 1.0])
        fit(task, federation(), stop=Stopping(), rounds=1, seed=seed)
        halves.append(task.seen[0][1])
    assert halves[0] == halves[1]
    assert sorted(halves[0]) != sorted(halves[2])
    assert sorted(halves[0]) != list(range(RECORDS // 2))


def test_without_stopping_all_held_out_records_are_looked_at():
    done = run([0.5, 0.7], patience=None)
    # Once beforehand, after each round, and at the end.
    assert [sorted(records) for _, records in done.task.seen] == [list(range(RECORDS))] * 4


def test_rounds_tell_what_was_watched():
    done = run([0.5, 0.7, 0.6], patience=5)
    assert done.history["quality"].tolist() == [0.5, 0.7, 0.6]
    assert done.history["other"].tolist() == [0.5, 0.5, 0.5]


def test_there_is_nothing_to_watch_without_held_out_records():
    task = Scripted(script=[0.0, 1.0])
    with pytest.raises(TacitError, match="no held-out records to watch"):
        fit(task, federation(held_out=None), stop=Stopping(), rounds=1)
    assert task.seen == []
    assert fit(task, federation(held_out=None), rounds=1).scores == {}


def test_a_private_run_may_not_watch_private_records():
    privacy = Privacy(unit="record", epsilon=1.0, delta=1e-5, clip=1.0)
    task = Scripted(script=[0.0, 1.0])
    with pytest.raises(Refused, match="the scores on held-out records"):
        fit(task, federation(held_out_public=False), privacy=privacy, stop=Stopping(), rounds=1)
    assert task.seen == []


def test_an_open_run_may_and_says_so():
    done = fit(
        Scripted(script=[0.0, 1.0]),
        federation(held_out_public=False),
        privacy=Open(),
        stop=Stopping(),
        rounds=1,
    )
    assert "the scores on held-out records" in done.privacy.bare
    public = fit(Scripted(script=[0.0, 1.0]), federation(held_out_public=True), stop=Stopping(), rounds=1)
    assert "the scores on held-out records" not in public.privacy.bare


@pytest.mark.parametrize("patience", [0, -1, 1.5, True])
def test_patience_is_a_whole_number_of_at_least_one(patience: object):
    with pytest.raises(InvalidValue, match=f"^patience = {patience} is not allowed"):
        Stopping(patience=patience)
