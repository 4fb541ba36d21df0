"""A run is killed at any instant and resumed: it ends as if nothing had happened, and pays a round once."""

import hashlib
import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from processes import forked

from tacit import Federation, Privacy, Stopping, fit
from tacit.aggregation.server import Adam, Momentum
from tacit.engines.base import Local
from tacit.errors import LedgerUnusable
from tacit.privacy import accounting, policy
from tacit.privacy.ledger.store import Ledger, verify
from tacit.runs import stopping
from tacit.runs.directory import LEDGER, ROUNDS, SECRET, STATE, SUMMARY
from tacit.sites.table import from_arrays
from tacit.survival import LogisticHazard

SITES = ("oslo", "bergen", "voss")
TASK = LogisticHazard(hidden=(4,), cuts=5, horizon=3.0, steps=2, sample=0.3, lr=0.3)
PRIVATE = Privacy(unit="record", epsilon=3.0, delta=1e-4, clip=1.0)
REHEARSAL = replace(PRIVATE, rehearsal=True)
KEPT_SECRET = bytes(range(32))


def patients(number, seed):
    generator = np.random.default_rng(seed)
    features, time_of_event = generator.normal(size=(number, 3)), generator.exponential(size=number) + 0.01
    return from_arrays(features, time=time_of_event, event=(generator.random(number) < 0.8).astype(float))


def federation():
    tables = {name: patients(30, seed) for seed, name in enumerate(SITES)}
    return Federation(tables, held_out=patients(60, 9), held_out_public=True)


FEDERATION = federation()
SOLVED = cache(accounting.calibrate)


class Witness(Local):
    """The local engine; it notes on disk that a round begins, and then what the round let out.

    Where it notes that is no choice of the run: two runs in two folders have the same tickets.
    """

    def __init__(self, *, book: Path, tell: Callable[[], object]) -> None:
        super().__init__()
        vars(self).update(book=book, tell=tell)

    def train(self, *given):
        _, _, _, names, mechanism, key = given
        number = key.path[0]
        counting = number == "count"
        prices = mechanism.count_releases(names) if counting else mechanism.release(number, names)
        note(self.book, "owed", *((price.purpose, price.party) for price in prices))
        # Whoever listens counts rounds.
        _ = None if counting else self.tell()
        updates = super().train(*given)
        note(self.book, "let out", number, hashlib.sha256(updates.matrix.tobytes()).hexdigest())
        return updates


def note(book, *words):
    file = os.open(book, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, json.dumps(words).encode() + b"\n")
    os.fsync(file)
    os.close(file)


def nothing():
    """Nobody listens."""


@dataclass(frozen=True)
class Trial:
    """A run in a directory of its own, and the book of what its engine did."""

    out: Path
    choices: dict[str, Any]
    book: Path = field(init=False)

    def __post_init__(self):
        object.__setattr__(self, "book", self.out.with_name(f"{self.out.name}.book"))
        self.out.mkdir()
        # What a run would draw for itself; with it, private noise repeats and results can be compared.
        (self.out / SECRET).write_bytes(KEPT_SECRET)

    def go(self, tell=nothing):
        choices = {"privacy": REHEARSAL, "rounds": 8, **self.choices}
        engine = Witness(book=self.book, tell=tell)
        return fit(TASK, FEDERATION, engine=engine, out=self.out, resume=True, seed=3, **choices)

    def noted(self, what):
        rows = [json.loads(line) for line in self.book.read_text().splitlines()] if self.book.exists() else []
        return [tuple(row[1:]) for row in rows if row[0] == what]

    def paid(self):
        """Count each charge."""
        try:
            with Ledger(self.out / LEDGER, mode="read") as ledger:
                rows = [entry for entry in ledger.entries() if entry["kind"] == "release"]
        except LedgerUnusable:
            return Counter()
        return Counter((row["purpose"], row["party"]) for row in rows)

    def stage(self):
        """Return the number of reported rounds, if the run has come so far."""
        rounds = self.out / ROUNDS
        return rounds.read_bytes().count(b"\n") if rounds.exists() else None


def assert_paid_before_it_was_let_out(trial):
    """And paid once: a round done again with the same inputs lets out the same bytes."""
    paid = trial.paid()
    owed = {tuple(price) for prices in trial.noted("owed") for price in prices}
    assert owed <= set(paid), "something was let out that was not paid for"
    assert set(paid.values()) <= {1}, "something was paid for twice"
    seen = set(trial.noted("let out"))
    assert len(seen) == len({number for number, _ in seen}), "two noises were let out for one price"


def assert_same(trial, run, whole):
    """The run ended as the one that nobody killed."""
    told = [replace(entry, seconds=0) for entry in run.record.rounds]
    assert told == [replace(entry, seconds=0) for entry in whole.record.rounds]
    assert np.array_equal(run.state, whole.state)
    assert replace(run.record, rounds=()) == replace(whole.record, rounds=())
    assert run.privacy == whole.privacy
    lines = [json.loads(line)["number"] for line in (trial.out / ROUNDS).read_text().splitlines()]
    assert lines == list(range(1, len(whole.record.rounds) + 1))
    found = verify(trial.out / LEDGER)
    assert found.valid
    assert found.epsilon == whole.privacy.epsilon <= 3.0
    assert {path.name for path in trial.out.iterdir() if ".part" in path.name} == set()
    assert not (trial.out / f"{LEDGER}-journal").exists()


@contextmanager
def started(trial):
    """Run in a process of its own, which begins a round when it is let: its pid, and a way to let it.

    Who waits to be let and is not cannot run ahead of whoever wants to kill it, however slow the machine.
    """
    (told, tell), (let, go) = os.pipe(), os.pipe()

    def wait():
        os.write(tell, b".")
        os.read(let, 1)

    def work():
        os.close(told)
        os.close(go)
        trial.go(wait)

    def begin():
        begun = os.read(told, 1)
        os.write(go, b".")
        return bool(begun)

    process = forked(work)
    os.close(tell)
    try:
        yield process, begin
    finally:
        for end in (told, let, go):
            os.close(end)


def killed(trial, *, steps, delay):
    """Kill the run in its round number `steps` from here, a little later; return whether it was alive."""
    with started(trial) as (process, begin):
        try:
            for _ in range(steps):
                begin()
            time.sleep(delay)
        finally:
            os.kill(process, signal.SIGKILL)
            _, status = os.waitpid(process, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, "the run failed before it was killed"
    return os.WIFSIGNALED(status)


@dataclass(frozen=True)
class Pace:
    """Seconds that the parts of a run take here."""

    start: float
    round: float
    end: float
    rounds: int

    def instant(self, share):
        """An instant of the run as (steps, delay): 0 is the first, 1 is the last.

        The start, every round and the end get equal shares, however long the clock says that they take.
        """
        part, rest = divmod(share * (self.rounds + 2), 1)
        if part == 0:
            return 0, rest * self.start
        if part <= self.rounds:
            return int(part), rest * self.round
        return self.rounds, self.round + rest * self.end


def paced(trial):
    """Let a run end in a process of its own, and look at the clock."""
    moments = [time.perf_counter()]
    with started(trial) as (process, begin):
        while begin():
            moments.append(time.perf_counter())
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 0
    first, last, rounds = moments[1], moments[-1], len(moments) - 1
    return Pace(first - moments[0], (last - first) / max(rounds - 1, 1), time.perf_counter() - last, rounds)


@pytest.fixture(autouse=True)
def solved_once(monkeypatch):
    """Solve for the noise once, not in every process: what is tested here comes after that."""
    for module in (policy, stopping):
        monkeypatch.setattr(module, "calibrate", SOLVED)


@pytest.fixture
def trials(tmp_path):
    """New trials, each in a place of its own, of one set of choices."""

    def make(**choices):
        return (Trial(tmp_path / f"run-{number}", choices) for number in count())

    return make


def killed_once(made, *, kills, seed):
    """Kill each of several runs once, at instants spread over the whole run; resume each, and compare."""
    whole, pace, chance = next(made).go(), paced(next(made)), random.Random(seed)
    stages = set()
    for number in range(kills):
        trial = next(made)
        steps, delay = pace.instant((number + chance.random()) / kills)
        killed(trial, steps=steps, delay=delay)
        stages.add("over" if (trial.out / SUMMARY).exists() else trial.stage())
        assert_paid_before_it_was_let_out(trial)
        assert_same(trial, trial.go(), whole)
        assert_paid_before_it_was_let_out(trial)
    return whole, stages


def killed_again_and_again(made, *, kills, seed):
    """Kill a run over and over, before, in or after its next round; once it ends, compare, and take another.

    Returns:
        For each run how far it had got at each of its kills.
    """
    whole, pace, chance = next(made).go(), paced(next(made)), random.Random(seed)
    chains = []
    while sum(map(len, chains)) < kills:
        trial, stages = next(made), []
        chains.append(stages)
        while len(stages) < kills:
            # In the second round from here at least one more is done than before.
            steps = chance.choice([0, 1, 2, 2])
            if not killed(
                trial, steps=steps, delay=chance.uniform(0, pace.round / 2 if steps else pace.start)
            ):
                break
            stages.append(trial.stage() or 0)
            assert_paid_before_it_was_let_out(trial)
        assert_same(trial, trial.go(), whole)
        assert_paid_before_it_was_let_out(trial)
        assert trial.paid() == planned(pace.rounds)
    return chains


def planned(rounds):
    """Return the charges of a run of a number of rounds, each once."""
    purposes = ["number of records", *(f"round {number}" for number in range(1, rounds + 1))]
    return {(purpose, name): 1 for purpose in purposes for name in SITES}


def test_a_rehearsal_killed_at_any_instant_is_resumed_to_the_same_bits(trials):
    whole, stages = killed_once(trials(), kills=12, seed=1)
    assert [entry.number for entry in whole.record.rounds] == list(range(1, 9))
    # A run killed in its round k has told k - 1 or k: of the start and every second round no two agree.
    assert len(stages) >= 5, "the kills were not spread over the run"


@pytest.mark.slow
def test_a_rehearsal_killed_again_and_again_is_resumed_to_the_same_bits(trials):
    chains = killed_again_and_again(trials(rounds=16), kills=26, seed=2)
    assert max(map(len, chains)) >= 4, "no run was killed often"
    assert len({stage for stages in chains for stage in stages}) >= 4, "no run got on between the kills"


def test_a_private_run_killed_at_any_instant_pays_for_its_plan_and_nothing_else(trials):
    whole, stages = killed_once(trials(privacy=PRIVATE), kills=7, seed=3)
    # At the start, in the middle and at the end, that is; see above.
    assert len(stages) >= 3, "the kills were not spread over the run"
    assert not whole.privacy.rehearsal
    assert 2.9 < whole.privacy.epsilon <= 3.0


def test_a_private_run_killed_again_and_again_pays_for_its_plan_and_nothing_else(trials):
    chains = killed_again_and_again(trials(privacy=PRIVATE), kills=8, seed=4)
    assert max(map(len, chains)) >= 3, "no run was killed often"


def test_a_private_run_with_a_secret_of_its_own_pays_for_its_plan_after_kills(trials):
    """As users run it: nobody knows the noise, so only the books can be compared."""
    made, chance = trials(privacy=PRIVATE), random.Random(5)
    trial = next(made)
    (trial.out / SECRET).unlink()
    pace = paced(next(made))
    for steps in (0, 1, 2, 2):
        assert killed(trial, steps=steps, delay=chance.uniform(0, pace.round / 2))
        assert_paid_before_it_was_let_out(trial)
    run = trial.go()
    assert_paid_before_it_was_let_out(trial)
    assert trial.paid() == planned(8)
    assert run.privacy.epsilon == verify(trial.out / LEDGER).epsilon <= 3.0
    assert [entry.number for entry in run.record.rounds] == list(range(1, 9))


@pytest.mark.parametrize(
    ("choices", "seed"),
    [
        ({"server": Momentum(lr=0.5, momentum=0.9)}, 10),
        ({"server": Adam(lr=0.05)}, 11),
        ({"stop": Stopping(patience=2)}, 12),
        ({"stop": Stopping(patience=2, epsilon=0.5), "privacy": PRIVATE}, 13),
        ({"privacy": replace(PRIVATE, participation=0.6)}, 14),
        ({"privacy": replace(PRIVATE, unit="site", noise="server", participation=0.6, epsilon=3.0)}, 15),
    ],
    ids=["momentum", "adam", "early stopping", "paid early stopping", "participation", "sites"],
)
def test_what_a_run_remembers_between_rounds_survives_kills(trials, choices, seed):
    """The server's memory, the best round so far, who is drawn: all of it is found again."""
    whole, _ = killed_once(trials(**choices), kills=3, seed=seed)
    if "stop" in choices:
        assert whole.record.stopped is not None
        assert 0 < whole.record.chosen < len(whole.record.rounds) < 8


def dying(trial, at):
    """Die just before the step number `at` of those that change what is on disk."""
    steps = count(1)

    def counted(real):
        def call(*given, **named):
            if next(steps) == at:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*given, **named)

        return call

    def work():
        for name in ("mkdir", "fdopen", "fsync", "replace", "unlink"):
            setattr(os, name, counted(getattr(os, name)))
        for name in ("allow", "charge"):
            setattr(Ledger, name, counted(getattr(Ledger, name)))
        trial.go()

    _, status = os.waitpid(forked(work), 0)
    return os.WIFSIGNALED(status)


@pytest.mark.slow
def test_a_run_killed_before_any_step_that_changes_the_disk_is_resumed_to_the_same_bits(trials):
    made = trials(privacy=PRIVATE, rounds=2)
    whole, stages = next(made).go(), []
    for at in count(1):
        trial = next(made)
        if not dying(trial, at):
            break
        stages.append(tuple((trial.out / name).exists() for name in (LEDGER, STATE, SUMMARY)))
        assert_paid_before_it_was_let_out(trial)
        assert_same(trial, trial.go(), whole)
        assert_paid_before_it_was_let_out(trial)
        assert trial.paid() == planned(2)
    # Before the ledger, before the first checkpoint, between rounds, and after the summary.
    assert set(stages) == {(False,) * 3, (True, False, False), (True, True, False), (True,) * 3}
    assert len(stages) > 25
