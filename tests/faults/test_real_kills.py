"""Programs of a real federation are killed in the middle of a run: it goes on, or is resumed, and pays once.

Everything runs on this machine. What each fault costs in time is printed (`pytest -m slow -s`).
"""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from pathlib import Path

import msgspec
import numpy as np
import pytest
from real_town import (
    LONG,
    SOON,
    Town,
    Watched,
    descendants,
    paid_once,
    patiently,
    remaining,
    same,
    standing,
)

from tacit.deploy.coordinator import run as coordinator
from tacit.deploy.coordinator.run import default_place
from tacit.deploy.folders import commands
from tacit.deploy.processes import NotRunning
from tacit.deploy.site.config import DOOR, identity
from tacit.deploy.site.guard import Guard
from tacit.deploy.texts import BACK_OFF
from tacit.engines.flower.socket import serve
from tacit.engines.messages import COORDINATOR, Envelope, SignedMessage, digest, encode_arrays, sign_message
from tacit.experiments.experiment import load
from tacit.runs.directory import Directory
from tacit.runtime.arrays import Array

pytest.importorskip("flwr")
pytestmark = pytest.mark.slow
SITE = "site-2"
# A SuperLink takes a node or a run for gone that has not reported for so long, in seconds.
ABSENT = 60.0


@pytest.fixture(scope="module")
def standing_town(tmp_path_factory: pytest.TempPathFactory) -> Generator[Town]:
    with standing(tmp_path_factory.mktemp("kills")) as found:
        yield found
    assert not remaining(found.place)


@pytest.fixture
def town(standing_town: Town) -> Town:
    """The one town of all tests, whatever the test before has left of it."""
    standing_town.mend()
    return standing_town


def note(fault: str, what: str, since: float) -> None:
    print(f"\n{fault}: {what} after {time.monotonic() - since:.1f} s", flush=True)


def faults(watched: Watched, number: int, seconds: float = SOON) -> dict[str, str]:
    return {fault.site: fault.reason for fault in watched.told(number, seconds).faults}


def back(watched: Watched, number: int) -> int:
    """The first round from this one on in which everybody takes part."""
    while faults(watched, number):
        number += 1
    return number


def test_a_superlink_that_is_killed_and_started_again_costs_nothing_but_time(
    town: Town, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(coordinator, "ASK", 2.0)
    before, watched = town.tickets(), town.begun()
    watched.told(2)
    killed = time.monotonic()
    town.up.kill("superlink")
    # Long enough for whoever follows the run to ask, and to be told nothing.
    patiently(lambda: time.monotonic() > killed + 3 * coordinator.ASK)
    town.up.start("superlink")
    try:
        run = watched.run()
        note("superlink killed", "the run was over", killed)
    except NotRunning:
        # Heartbeats are up to 27 seconds apart, and 20 more after a failed one: on a busy machine that is too
        # late.
        note("superlink killed", "Flower had given the run up", killed)
        run = town.resumed(watched.out).run()
    same(run, town.alone)
    paid_once(before, town.tickets())


def test_a_superlink_that_is_away_for_a_minute_ends_the_run_which_is_resumed_to_the_same_weights(town: Town):
    before, watched = town.tickets(), town.begun()
    watched.told(2)
    killed = time.monotonic()
    town.up.kill("superlink")
    patiently(lambda: time.monotonic() > killed + ABSENT + 5)
    town.up.start("superlink")
    with pytest.raises(NotRunning, match=r"ended without a message .*Nothing is lost.*--resume"):
        watched.run()
    note("superlink away", "the end of the run was reported", killed)
    # All nodes are gone as well, until they report again.
    same(town.resumed(watched.out).run(), town.alone)
    note("superlink away", "resumed, the run was over", killed)
    paid_once(before, town.tickets())


def test_a_serverapp_that_is_killed_is_reported_and_resumed_to_the_same_weights(town: Town):
    before, watched = town.tickets(), town.begun()
    watched.told(2)
    (process,) = descendants(town.up.pids["superexec"], "flwr-serverapp")
    killed = time.monotonic()
    os.kill(process, signal.SIGKILL)
    with pytest.raises(NotRunning, match=r"ended without a message .*Nothing is lost.*--resume"):
        watched.run()
    note("ServerApp killed", "it was reported", killed)
    again = time.monotonic()
    resumed = town.resumed(watched.out)
    resumed.told(3)
    note("ServerApp killed", "resumed: the next round was over", again)
    same(resumed.run(), town.alone)
    paid_once(before, town.tickets())


def test_a_coordinator_whose_machine_dies_is_resumed_to_the_same_weights(town: Town):
    before, out = town.tickets(), default_place(town.made.coordinator)
    command = commands(town.made.coordinator)["run"]
    with (town.place / "tacit-run.log").open("wb") as said:
        shown = subprocess.Popen(
            command.argv, env={**os.environ, **command.env}, cwd=command.cwd, stdout=said,
            stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
    try:
        patiently(lambda: len(Directory(out).rounds()) >= 2, what="round 2")
        (process,) = descendants(town.up.pids["superexec"], "flwr-serverapp")
        killed = time.monotonic()
        for end in (lambda: town.up.kill("superlink"), lambda: os.kill(process, signal.SIGKILL)):
            end()
        town.up.kill("superexec")
    finally:
        os.killpg(shown.pid, signal.SIGKILL)
        shown.wait()
    assert not descendants(os.getpid(), "flwr-serverapp")
    town.up.start("superlink")
    town.up.start("superexec")
    town.mend()
    note("coordinator's machine killed", "everything was up again", killed)
    resumed = town.resumed(out)
    resumed.told(3)
    note("coordinator's machine killed", "the next round was over", killed)
    same(resumed.run(), town.alone)
    paid_once(before, town.tickets())


def test_a_guard_restarted_between_two_questions_changes_nothing(town: Town):
    before, heard = town.tickets(), len(town.up.log(f"node:{SITE}").read_text())
    watched, node = town.begun(), town.up.pids[f"node:{SITE}"]
    watched.told(1)
    # While the coordinator holds still, no question comes; while the node does, the guard is asked nothing.
    (asking,) = descendants(town.up.pids["superexec"], "flwr-serverapp")
    os.kill(asking, signal.SIGSTOP)
    while True:
        patiently(lambda: answered(town, heard), what="the answer of the relay")
        os.killpg(node, signal.SIGSTOP)
        if answered(town, heard):
            break
        os.killpg(node, signal.SIGCONT)
    os.kill(asking, signal.SIGCONT)
    killed = time.monotonic()
    town.up.kill(f"guard:{SITE}")
    town.up.start(f"guard:{SITE}")
    town.guarded(SITE)
    note("guard killed", "it was there again", killed)
    os.killpg(node, signal.SIGCONT)
    same(watched.run(), town.alone)
    paid_once(before, town.tickets())


def answered(town: Town, heard: int) -> bool:
    """Tell if the node has sent the answer to all that it has received since then."""
    log = town.up.log(f"node:{SITE}").read_text()[heard:]
    return log.count("Received successfully") <= log.count("Sent successfully") and (
        log.count("Receiving: ") <= log.count("Received successfully")
    )


def test_a_guard_that_is_gone_misses_rounds_and_is_back_without_paying_again(town: Town):
    before = town.tickets()
    with town.changed(lambda document: document.update(rounds=8)):
        watched = town.begun()
        watched.told(1)
        killed = time.monotonic()
        town.up.kill(f"guard:{SITE}")
        # The question of the round under way may have been answered already.
        missed = 2 if faults(watched, 2) else 3
        assert faults(watched, missed) == {SITE: "failed"}
        note("guard gone", "its silence was noticed", killed)
        town.up.start(f"guard:{SITE}")
        first = back(watched, missed + 1)
        note("guard gone", f"it took part again, in round {first},", killed)
        run = watched.run()
    assert town.alone.privacy.epsilon is not None
    assert run.privacy.epsilon == pytest.approx(town.alone.privacy.epsilon, rel=1e-3)
    assert run.record.rounds[-1].number == 8
    assert f"{SITE}: its node says: the guard at" in watched.log()
    paid_once(before, town.tickets())


def test_a_straggler_is_left_out_when_its_time_is_over_and_is_back_when_it_can(town: Town):
    before = town.tickets()
    with town.changed(lambda document: document.update(rounds=6, engine={"kind": "flower", "deadline": 40})):
        watched = town.begun()
        watched.told(1)
        stopped = time.monotonic()
        guard = town.up.pids[f"guard:{SITE}"]
        os.kill(guard, signal.SIGSTOP)
        late = 2 if faults(watched, 2) else 3
        assert faults(watched, late) == {SITE: "late"}
        note("guard stopped", "it was late", stopped)
        os.kill(guard, signal.SIGCONT)
        going = time.monotonic()
        first = back(watched, late + 1)
        note("guard stopped", f"it took part again, in round {first},", going)
        run = watched.run()
    assert run.record.rounds[-1].number == 6
    assert not run.record.rounds[-1].faults
    assert "no answer within 40 seconds (late)" in watched.log()
    paid_once(before, town.tickets())


@contextmanager
def behind(door: Path, answer: Callable[[bytes], bytes]) -> Generator[None]:
    """Somebody else behind the door of a site."""
    stop = threading.Event()
    thread = threading.Thread(target=serve, args=(str(door), answer), kwargs={"stop": stop}, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(SOON)


class Liar:
    """A guard that answers rounds as it likes: nonsense, an old answer, too few numbers, no numbers."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.guard, self.old = folder, Guard(folder, lambda line: None), b""

    def __call__(self, content: bytes) -> bytes:
        letter = msgspec.msgpack.decode(
            msgspec.msgpack.decode(content, type=Envelope).letter, type=SignedMessage
        )
        answer = self.guard.answer(content)
        if letter.about != "work" or letter.content["asking"] != "round":
            return answer
        number = letter.content["path"][0]
        self.old = self.old or answer
        width = len(letter.arrays["state"])
        return {
            2: lambda: b"\x00nonsense\xff" * 100,
            3: lambda: self.old,
            4: lambda: self.signed(content, np.zeros(3)),
            5: lambda: self.signed(content, np.full((width,), np.nan)),
        }.get(number, lambda: answer)()

    def signed(self, asked: bytes, row: Array) -> bytes:
        letter = SignedMessage(
            writer=self.guard.file.name, reader=COORDINATOR, about="work",
            numbers=encode_arrays({"row": row}), answers=digest(asked),
        )  # fmt: skip
        return sign_message(letter, identity(self.folder))


def test_malformed_and_replayed_replies_are_refused_with_the_reason_and_the_run_goes_on(town: Town):
    before, folder = town.tickets(), town.made.sites[SITE]
    town.up.kill(f"guard:{SITE}")
    liar = Liar(folder)
    with (
        town.changed(lambda document: document.update(rounds=6)),
        # Or it would keep the folder from the guard that comes back.
        closing(liar.guard),
        behind(folder / DOOR, liar),
    ):
        town.guarded(SITE)
        watched = town.begun()
        run = watched.run()
    found = {
        entry.number: {fault.site: fault.reason for fault in entry.faults} for entry in run.record.rounds
    }
    refused = {2: {SITE: "schema"}, 3: {SITE: "replay"}, 4: {SITE: "schema"}, 5: {SITE: "not-finite"}}
    assert found == {1: {}, **refused, 6: {}}
    assert np.isfinite(run.state).all()
    said = [line for line in watched.log().splitlines() if f"{SITE}: " in line]
    for reason in (
        "it cannot be read",
        "it answers another question (replay)",
        "doubles of shape",
        "not-finite",
    ):
        assert any(reason in line for line in said), reason
    paid_once(before, town.tickets())


def test_a_node_that_is_killed_is_left_out_and_takes_part_again_once_flower_lets_it(town: Town):
    """At once it is turned away, for Flower takes it for present: that is why units wait before a restart."""
    before, role = town.tickets(), f"node:{SITE}"
    with town.changed(lambda document: document.update(rounds=16)):
        watched = town.begun()
        watched.told(1)
        killed = time.monotonic()
        town.up.kill(role)
        town.up.start(role)
        patiently(lambda: role not in town.up.pids, what="the end of the node")
        note("node killed", "restarted at once, it had been turned away", killed)
        assert "Exit Code: 305" in town.up.log(role).read_text()
        lost = 2 if faults(watched, 2) else 3
        assert faults(watched, lost) == {SITE: "failed"}
        note("node killed", "its silence was noticed", killed)
        patiently(lambda: time.monotonic() > killed + BACK_OFF)
        town.up.start(role)
        first = back(watched, lost + 1)
        note("node killed", f"it took part again, in round {first},", killed)
        run = watched.run(LONG)
    last = run.record.rounds[-1]
    assert (last.number, last.sites, last.faults) == (16, 3, ())
    assert town.alone.privacy.epsilon is not None
    assert run.privacy.epsilon == pytest.approx(town.alone.privacy.epsilon, rel=1e-3)
    assert run.privacy.epsilon <= 3.0
    assert load(watched.out).record.rounds == run.record.rounds
    assert "Node Unavailable" in watched.log()
    paid_once(before, town.tickets())
