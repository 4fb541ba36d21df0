"""Worlds that break while agents train, runs that are killed, full disks: nothing is lost, or left open."""

import errno
import os
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.classic_control.cartpole import CartPoleEnv
from processes import forked
from test_ledger_disk import ended
from test_run_kill import KEPT_SECRET, dying

from tacit import Open, Privacy, World, Worlds, fit
from tacit.aggregation.defence.clustering import Clusters
from tacit.control import PPO
from tacit.control.history import History
from tacit.errors import BudgetExhausted, InvalidValue, LedgerUnusable, RunUnusable, TacitError
from tacit.privacy.ledger.store import Ledger, verify
from tacit.runs.directory import LEDGER, SECRET, STATE, SUMMARY, Directory
from tacit.sites.environments import Scenes

PRIVATE = Privacy(unit="site", epsilon=8.0, delta=1e-5, clip=1.0, clip_quantile=0.5, noise="server")
REHEARSAL = replace(PRIVATE, rehearsal=True)
TASK = PPO(hidden=(4,), envs=2, steps=32, epochs=1, snapshots=1)
SITES = ("oslo", "bergen", "voss")
ROUNDS = 3


class Carts:
    """Every cart there is: how many are open, and what broken ones do at their fifth step."""

    open: ClassVar[int] = 0
    fault: ClassVar[Callable[[tuple[Any, ...]], Any] | None] = None


@pytest.fixture(autouse=True)
def carts(monkeypatch):
    """Gymnasium's own carts, since their episodes are known to repeat; those with other rewards may break."""
    real, made = (CartPoleEnv.__init__, CartPoleEnv.step, CartPoleEnv.close), Counter[int]()

    def begin(cart: CartPoleEnv, **options: Any) -> None:
        real[0](cart, **options)
        made[id(cart)] = 0
        Carts.open += 1

    def step(cart: CartPoleEnv, action: Any) -> Any:
        answer = real[1](cart, action)
        made[id(cart)] += 1
        breaks = cart._sutton_barto_reward and made[id(cart)] == 5
        return Carts.fault(answer) if breaks and Carts.fault is not None else answer

    def close(cart: CartPoleEnv) -> None:
        Carts.open -= 1
        real[2](cart)

    for name, patch in {"__init__": begin, "step": step, "close": close}.items():
        monkeypatch.setattr(CartPoleEnv, name, patch)
    monkeypatch.setattr(Carts, "open", 0)
    monkeypatch.setattr(Carts, "fault", None)
    yield
    assert Carts.open == 0, "a world was left open"


def shows(value: float) -> Callable[[tuple[Any, ...]], Any]:
    return lambda answer: (np.array([0.0, 0.0, value, 0.0], dtype=np.float32), *answer[1:])


def brings(reward: Any) -> Callable[[tuple[Any, ...]], Any]:
    return lambda answer: (answer[0], reward, *answer[2:])


def raises(error: BaseException) -> Callable[[tuple[Any, ...]], Any]:
    def fault(answer: tuple[Any, ...]) -> Any:
        raise error

    return fault


CART = World("CartPole-v1")
BROKEN = World("CartPole-v1", {"sutton_barto_reward": True})


def federation(**worlds: World) -> Worlds:
    held = dict.fromkeys(SITES, CART) | worlds
    return Worlds(held, scenes=Scenes((CART,), np.array([""]), episodes=2), public=True)


def broken() -> Worlds:
    return federation(bergen=BROKEN)


@dataclass(frozen=True)
class Trial:
    """A run in a directory of its own, whose secret is known, so that noise can be compared."""

    out: Path
    data: Worlds = field(default_factory=federation)
    privacy: Privacy | Open = PRIVATE
    choices: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self):
        self.out.mkdir(exist_ok=True)
        (self.out / SECRET).write_bytes(KEPT_SECRET)

    def go(self, **more: Any):
        chosen = {"rounds": ROUNDS, "resume": True, **self.choices, **more}
        return fit(chosen.pop("task", TASK), self.data, privacy=self.privacy, seed=3, out=self.out, **chosen)

    def paid(self) -> Counter[str]:
        try:
            with Ledger(self.out / LEDGER, mode="read") as ledger:
                rows = [entry for entry in ledger.entries() if entry["kind"] == "release"]
            return Counter(row["purpose"] for row in rows)
        except LedgerUnusable:
            return Counter()


def planned(rounds: int = ROUNDS) -> Counter[str]:
    return Counter(f"round {number}" for number in range(1, rounds + 1))


def assert_same(run, whole) -> None:
    assert np.array_equal(run.state, whole.state)
    assert run.scores == whole.scores
    assert run.privacy == whole.privacy
    assert [replace(entry, seconds=None) for entry in run.record.rounds] == [
        replace(entry, seconds=None) for entry in whole.record.rounds
    ]


# Worlds that break.


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (shows(np.nan), "returned an observation that is not finite at step 5 of an episode"),
        (shows(np.inf), "returned an observation that is not finite at step 5 of an episode"),
        (brings(float("nan")), "gave a reward that is not finite at step 5 of a rollout"),
        (brings(float("-inf")), "gave a reward that is not finite at step 5 of a rollout"),
    ],
    ids=["NaN", "infinity", "a reward of NaN", "a reward of -infinity"],
)
@pytest.mark.parametrize("privacy", [Open(), PRIVATE], ids=["open", "private"])
def test_what_is_no_number_ends_the_run_by_name_and_is_taken_up_once_mended(
    tmp_path, monkeypatch, fault, said, privacy
):
    trial = Trial(tmp_path / "run", broken(), privacy)
    monkeypatch.setattr(Carts, "fault", fault)
    with pytest.raises(InvalidValue) as raised:
        trial.go()
    assert str(raised.value).startswith(f"site bergen: CartPole-v1 {said}")
    price = trial.paid()
    assert price == (Counter() if privacy == Open() else planned(1))
    assert Directory(trial.out).rounds() == []
    assert not (trial.out / SUMMARY).exists()
    monkeypatch.setattr(Carts, "fault", None)
    run = trial.go()
    # What was paid for before it broke is not paid again.
    assert trial.paid() == (Counter() if privacy == Open() else planned())
    assert_same(run, Trial(tmp_path / "whole", broken(), privacy).go())


def test_a_world_that_breaks_in_a_later_round_leaves_the_rounds_before(tmp_path, monkeypatch):
    def go_bad(entry):
        if entry.number == 2:
            monkeypatch.setattr(Carts, "fault", shows(np.nan))

    trial = Trial(tmp_path / "run", broken())
    with pytest.raises(InvalidValue, match="site bergen"):
        trial.go(callbacks=[go_bad])
    assert [entry.number for entry in Directory(trial.out).rounds()] == [1, 2]
    assert trial.paid() == planned(3)
    monkeypatch.setattr(Carts, "fault", None)
    assert_same(trial.go(), Trial(tmp_path / "whole", broken()).go())
    assert trial.paid() == planned(3)


ERRORS = [
    raises(RuntimeError("the motor broke")),
    raises(OSError(errno.EMFILE, os.strerror(errno.EMFILE))),
    raises(MemoryError("no more")),
    raises(AssertionError()),
    lambda answer: answer[:4],
    lambda answer: (np.zeros(3), *answer[1:]),
    lambda answer: ("a word", *answer[1:]),
    brings(None),
]
KINDS = [
    "raises",
    "no files left",
    "no memory",
    "asserts",
    "four answers",
    "three numbers",
    "a word",
    "no reward",
]


@pytest.mark.parametrize("fault", ERRORS, ids=KINDS)
def test_a_world_that_fails_leaves_nothing_open_and_is_taken_up_once_mended(tmp_path, monkeypatch, fault):
    trial = Trial(tmp_path / "run", broken())
    monkeypatch.setattr(Carts, "fault", fault)
    with pytest.raises(Exception):  # noqa: B017, PT011
        trial.go()
    assert Carts.open == 0
    assert trial.paid() == planned(1)
    monkeypatch.setattr(Carts, "fault", None)
    assert_same(trial.go(), Trial(tmp_path / "whole", broken()).go())
    assert trial.paid() == planned()


@pytest.mark.parametrize("fault", ERRORS, ids=KINDS)
def test_a_world_that_fails_is_named_with_what_it_said(tmp_path, monkeypatch, fault):
    monkeypatch.setattr(Carts, "fault", fault)
    with pytest.raises(TacitError, match=r"site bergen: CartPole-v1"):
        Trial(tmp_path / "run", broken()).go()


def test_an_interrupt_within_a_world_leaves_nothing_open(tmp_path, monkeypatch):
    trial = Trial(tmp_path / "run", broken())
    monkeypatch.setattr(Carts, "fault", raises(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        trial.go()
    assert Carts.open == 0
    monkeypatch.setattr(Carts, "fault", None)
    assert_same(trial.go(), Trial(tmp_path / "whole", broken()).go())


def test_what_is_no_number_where_agents_are_judged_is_refused_as_well(monkeypatch):
    monkeypatch.setattr(Carts, "fault", shows(np.nan))
    data = Worlds({"oslo": CART}, scenes=Scenes((BROKEN,), np.array([""]), episodes=1), public=True)
    with pytest.raises(InvalidValue, match="not finite"):
        fit(TASK, data, rounds=1, seed=3)


def test_a_world_that_begins_with_no_number_is_refused_before_anything_is_done(tmp_path, monkeypatch):
    nothing = np.full(4, np.nan, dtype=np.float32)
    monkeypatch.setattr(CartPoleEnv, "reset", lambda self, seed=None, options=None: (nothing, {}))
    trial = Trial(tmp_path / "run")
    with pytest.raises(InvalidValue, match="begins with an observation that holds NaN or infinity"):
        trial.go()
    assert trial.paid() == Counter()


def test_worlds_that_are_unlike_are_refused_before_anything_is_done(tmp_path):
    trial = Trial(tmp_path / "run", federation(voss=World("FrozenLake-v1")))
    with pytest.raises(InvalidValue, match="site voss has 16 numbers in an observation"):
        trial.go()
    assert trial.paid() == Counter()


def test_other_worlds_after_a_break_are_not_played_in_under_the_old_price(tmp_path, monkeypatch):
    monkeypatch.setattr(Carts, "fault", shows(np.nan))
    with pytest.raises(InvalidValue, match="site bergen"):
        Trial(tmp_path / "run", broken()).go()
    with pytest.raises(RunUnusable, match="the data have changed since it started"):
        Trial(tmp_path / "run", federation()).go()


def own_cart() -> gymnasium.Env[Any, Any]:
    return gymnasium.make("CartPole-v1")


def test_worlds_that_may_not_repeat_are_paid_for_again_and_never_let_out_twice_for_one_price(
    tmp_path, monkeypatch
):
    """Environments made by a function may differ the next time: the old price does not cover that."""
    trial = Trial(tmp_path / "run", federation(oslo=World(own_cart), bergen=BROKEN))
    monkeypatch.setattr(Carts, "fault", raises(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        trial.go()
    assert trial.paid() == planned(1)
    monkeypatch.setattr(Carts, "fault", None)
    with pytest.raises(BudgetExhausted, match="budget of sites exhausted"):
        trial.go()
    assert trial.paid() == Counter({"round 1": 2, "round 2": 1})


# Killed.


@pytest.mark.parametrize(
    ("privacy", "choices", "every"),
    [
        (PRIVATE, {}, 7),
        (REHEARSAL, {"task": replace(TASK, normalise="sites")}, 13),
        (Open(), {"clusters": Clusters(count=2, by="direction", warm=1)}, 13),
    ],
    ids=["private", "observations asked for", "clustered"],
)  # fmt: skip
def test_a_run_killed_before_steps_that_change_the_disk_is_resumed_to_the_same_bits(
    tmp_path, privacy, choices, every
):
    complete = Trial(tmp_path / "whole", privacy=privacy, choices=choices)
    whole, stages = complete.go(), set()
    for at in count(1, every):
        trial = Trial(tmp_path / f"run-{at}", privacy=privacy, choices=choices)
        if not dying(trial, at):
            break
        stages.add(tuple((trial.out / name).exists() for name in (LEDGER, STATE, SUMMARY)))
        assert trial.paid() <= complete.paid()
        assert_same(trial.go(), whole)
        assert trial.paid() == complete.paid()
        kept = [History.load(run.out / "history.npz") for run in (trial, complete)]
        assert sorted(kept[0].weight_labels) == sorted(kept[1].weight_labels)
        np.testing.assert_array_equal(kept[0].ep_rewards, kept[1].ep_rewards)
    # Between rounds at least.
    assert (True, True, False) in stages
    if isinstance(privacy, Privacy):
        assert verify(complete.out / LEDGER).epsilon == whole.privacy.epsilon <= 8


# The disk.


def failing_at(patch: pytest.MonkeyPatch, at: int, error: OSError) -> Callable[[], bool]:
    """Let the step number `at` of those that change what is on disk fail; whether it was reached."""
    steps, reached = count(1), []

    def counted(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            if next(steps) == at:
                reached.append(at)
                raise error
            return real(*given, **named)

        return call

    for name in ("fsync", "replace"):
        patch.setattr(os, name, counted(getattr(os, name)))
    return lambda: bool(reached)


def complaint(trial: Trial) -> str:
    """Return the message of a run that stops; empty if it ends."""
    try:
        trial.go()
    except RunUnusable as error:
        return str(error)
    return ""


def test_a_full_disk_is_one_sentence_and_what_was_written_before_is_intact(tmp_path, monkeypatch):
    whole = Trial(tmp_path / "whole").go()
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    for at in count(1, 5):
        trial = Trial(tmp_path / f"run-{at}")
        with monkeypatch.context() as patch:
            reached = failing_at(patch, at, full)
            said = complaint(trial)
            if not reached():
                break
        assert said.endswith("No space left on device; what was written before is intact")
        assert [path.name for path in trial.out.rglob("*.part")] == []
        assert_same(trial.go(), whole)
        assert trial.paid() == planned()
    assert at > 15


def test_a_place_that_nobody_may_write_to_is_refused(tmp_path):
    """Root may write anywhere, so the process becomes nobody first."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o555)
        # Modules that are imported later may be in a folder of root's.
        fit(TASK, federation(), rounds=1).model.save(tmp_path / "agent.zip")

        def work():
            if os.geteuid() == 0:
                os.setuid(65534)
            with pytest.raises(RunUnusable, match="Permission denied"):
                fit(TASK, federation(), rounds=1, out=Path(folder) / "run")
            model = fit(TASK, federation(), rounds=1).model
            for name, write in (("agent.zip", model.save), ("history.npz", no_history().save)):
                with pytest.raises(TacitError, match="Permission denied"):
                    write(Path(folder) / name)
            assert list(Path(folder).iterdir()) == []

        try:
            assert ended(forked(work)) == 0
        finally:
            Path(folder).chmod(0o755)


def no_history() -> History:
    nothing = {name: np.zeros(0, kind) for name, kind in HISTORY.items()}
    return History(**{**nothing, "weights": np.zeros((0, 1), np.float32)})


HISTORY = {
    "ep_rewards": np.float64, "ep_lengths": np.int64, "ep_labels": np.str_, "ep_steps": np.int64,
    "ep_rounds": np.int64, "weight_labels": np.str_, "weight_steps": np.int64, "weight_rounds": np.int64,
}  # fmt: skip
