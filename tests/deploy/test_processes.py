"""Programs of a federation on one machine: up together, and gone together whatever happens."""

import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tacit.deploy import processes
from tacit.deploy.folders import Command
from tacit.deploy.processes import NotRunning, ProcessGroup, flwr, free_port, start_processes
from tacit.engines.flower.socket import request
from tacit.errors import InvalidValue

# A bound for what hangs: a slow machine needs seconds.
SOON = 120.0
# Programs as a federation has them, without what they do.
STAYS = "import time; print('up', flush=True); time.sleep(1000)"
LISTENS = "import socket, time; line = socket.create_server(('127.0.0.1', {port})); time.sleep(1000)"
GUARDS = "from tacit.engines.flower.socket import serve; serve('run/door.sock', lambda asked: asked)"
HAS_CHILD = (
    "import signal, subprocess, sys, time; "
    "child = 'import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(1000)'; "
    "started = subprocess.Popen([sys.executable, '-c', child]); "
    "open('child.pid', 'w').write(str(started.pid)); time.sleep(1000)"
)


class Federation:
    """Folders whose commands are small programs."""

    def __init__(self, place: Path) -> None:
        self.port = free_port()
        self.coordinator = place / "c"
        self.sites = {name: place / name for name in ("oslo", "bergen")}
        for folder in (self.coordinator, *self.sites.values()):
            (folder / "run").mkdir(parents=True)
        self.programs = {
            "superlink": LISTENS.format(port=self.port),
            "superexec": STAYS,
            "register": "print('registered')",
            "run": "",
            "guard": GUARDS,
            "node": HAS_CHILD,
        }

    def commands(self, folder: Path) -> dict[str, Command]:
        ours = ("superlink", "superexec", "register", "run")
        roles = ours if folder == self.coordinator else ("guard", "node")
        tools = {"PATH": os.pathsep.join((str(self.coordinator), os.environ["PATH"]))}
        return {role: Command([sys.executable, "-c", self.programs[role]], tools, folder) for role in roles}

    def online(self, coordinator: Path, until: float) -> list[str]:
        return [name for name, folder in self.sites.items() if (folder / "child.pid").exists()]

    def children(self) -> list[int]:
        return [int((folder / "child.pid").read_text()) for folder in self.sites.values()]

    def running(self, seconds: float = SOON) -> AbstractContextManager[ProcessGroup]:
        return start_processes(self.coordinator, self.sites, self.port, seconds=seconds)


@dataclass
class Clock:
    """The clock of this machine, put forward."""

    ahead: float = 0.0

    def monotonic(self) -> float:
        return time.monotonic() + self.ahead

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


@pytest.fixture
def federation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Federation:
    made = Federation(tmp_path)
    monkeypatch.setattr(processes, "commands", made.commands)
    monkeypatch.setattr(processes, "online_nodes", made.online)
    monkeypatch.setattr(processes, "GRACE", 0.3)
    monkeypatch.setattr(processes, "_LOOK", 0.05)
    monkeypatch.setattr(processes, "_GLANCE", 0.02)
    return made


def lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def soon(happens: Callable[[], bool]) -> bool:
    until = time.monotonic() + SOON
    while not happens():
        if time.monotonic() > until:
            return False
        time.sleep(0.01)
    return True


@pytest.fixture(autouse=True)
def nothing_stays(monkeypatch: pytest.MonkeyPatch) -> Generator[None]:
    """Whatever a test started through the module is gone when it is over."""
    begun: list[int] = []
    start = ProcessGroup.start

    def noted(self: ProcessGroup, role: str) -> int:
        begun.append(start(self, role))
        return begun[-1]

    monkeypatch.setattr(ProcessGroup, "start", noted)
    yield
    assert all(soon(lambda pid=pid: not lives(pid)) for pid in begun)


def test_everything_is_up_inside_and_gone_outside(federation: Federation) -> None:
    with federation.running() as up:
        assert set(up.pids) == {
            "superlink", "superexec", "guard:oslo", "guard:bergen", "node:oslo", "node:bergen"
        }  # fmt: skip
        assert all(map(lives, up.pids.values()))
        assert request(str(federation.sites["oslo"] / "run" / "door.sock"), b"abc", SOON) == b"abc"
        started = [*up.pids.values(), *federation.children()]
    assert all(soon(lambda pid=pid: not lives(pid)) for pid in started)


def test_a_failure_inside_leaves_nothing_behind(federation: Federation) -> None:
    started: list[int] = []

    def fails() -> None:
        with federation.running() as up:
            started.extend([*up.pids.values(), *federation.children()])
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    assert len(started) == 8
    assert all(soon(lambda pid=pid: not lives(pid)) for pid in started)


def test_a_request_to_terminate_leaves_nothing_behind(federation: Federation) -> None:
    before = signal.getsignal(signal.SIGTERM)
    started: list[int] = []

    def is_terminated() -> None:
        with federation.running() as up:
            started.extend(up.pids.values())
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(SOON)

    with pytest.raises(KeyboardInterrupt):
        is_terminated()
    assert len(started) == 6
    assert all(soon(lambda pid=pid: not lives(pid)) for pid in started)
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_program_that_ends_by_itself_is_named_with_its_last_words(federation: Federation) -> None:
    federation.programs["superlink"] = "import sys; print('the disk is full', flush=True); sys.exit(3)"
    words = r"superlink has ended \(exit status 3\); its last output: the disk is full"
    with pytest.raises(NotRunning, match=words), federation.running():
        pytest.fail("it is not up")


def test_nodes_that_do_not_connect_in_time_end_the_attempt(
    federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    federation.programs["node"], clock = STAYS, Clock()

    def online(coordinator: Path, until: float) -> list[str]:
        clock.ahead = SOON
        return []

    monkeypatch.setattr(processes, "time", clock)
    monkeypatch.setattr(processes, "online_nodes", online)
    with pytest.raises(NotRunning, match="did not all connect in time"), federation.running():
        pytest.fail("it is not up")


def test_nodes_that_cannot_be_registered_end_the_attempt(federation: Federation) -> None:
    federation.programs["register"] = "import sys; print('no such key'); sys.exit(1)"
    with pytest.raises(NotRunning, match="no such key"), federation.running():
        pytest.fail("it is not up")


def test_a_port_that_is_taken_is_named(federation: Federation) -> None:
    with socket.create_server(("127.0.0.1", federation.port)):
        taken = f"port {federation.port} of this machine is taken"
        with pytest.raises(NotRunning, match=taken), federation.running():
            pytest.fail("it is not up")


def test_a_program_is_killed_with_all_it_started_and_started_again(federation: Federation) -> None:
    with federation.running() as up:
        first, child = up.pids["node:oslo"], federation.children()[0]
        up.kill("node:oslo")
        assert soon(lambda: not lives(first) and not lives(child))
        assert "node:oslo" not in up.pids
        second = up.start("node:oslo")
        assert up.pids["node:oslo"] == second != first
        with pytest.raises(InvalidValue, match="running already"):
            up.start("node:oslo")


def test_what_a_program_that_ended_left_behind_goes_before_it_is_started_again(
    federation: Federation,
) -> None:
    with federation.running() as up:
        child = federation.children()[0]
        os.kill(up.pids["node:oslo"], signal.SIGKILL)
        assert soon(lambda: "node:oslo" not in up.pids)
        assert lives(child)
        up.start("node:oslo")
        assert soon(lambda: not lives(child))


def test_a_program_asked_gently_may_end_by_itself(
    federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    federation.programs["superexec"] = (
        "import signal, sys, time; "
        "signal.signal(signal.SIGTERM, lambda *_: (print('goodbye', flush=True), sys.exit(0))); "
        "print('hello', flush=True); time.sleep(1000)"
    )
    with federation.running() as up:
        assert soon(lambda: "hello" in up.log("superexec").read_text())
        with monkeypatch.context() as patient:
            patient.setattr(processes, "GRACE", SOON)
            up.kill("superexec", gently=True)
        assert "goodbye" in up.log("superexec").read_text()


def test_every_program_has_a_log_of_its_own_that_outlives_it(federation: Federation) -> None:
    with federation.running() as up:
        assert soon(lambda: "up" in up.log("superexec").read_text())
        up.kill("superexec")
        up.start("superexec")
        assert soon(lambda: up.log("superexec").read_text() == "up\nup\n")
    assert len({up.log(role) for role in ("superexec", "node:oslo", "node:bergen")}) == 3
    assert up.log("node:oslo").parent == federation.coordinator / "logs"


def test_nodes_on_one_machine_get_ports_of_their_own(federation: Federation) -> None:
    tell = "import os; open('port', 'w').write(os.environ['TACIT_NODE_PORT']); "
    federation.programs["node"] = tell + HAS_CHILD
    with federation.running():
        ports = {(folder / "port").read_text() for folder in federation.sites.values()}
    assert len(ports) == 2


def tool(federation: Federation, code: str) -> None:
    file = federation.coordinator / "flwr"
    file.write_text(f"#!{sys.executable}\nimport os, sys, time\n{code}\n")
    file.chmod(0o755)


def test_what_flower_answers_is_read_past_its_talk(federation: Federation) -> None:
    tool(
        federation,
        'print(\'Listing all runs...\'); print(\'{"success": true, "words": "%s"}\' % sys.argv[1:])',
    )
    answer = flwr(federation.coordinator, "ls", "tacit", until=time.monotonic() + SOON)
    assert answer == {"success": True, "words": "['ls', 'tacit', '--format', 'json']"}


def test_flower_is_asked_without_telemetry_in_the_coordinators_own_home(federation: Federation) -> None:
    tool(
        federation,
        "import json; print(json.dumps({k: v for k, v in os.environ.items() if k[:5] == 'FLWR_'}))",
    )
    told = flwr(federation.coordinator, "ls", until=time.monotonic() + SOON)
    assert told["FLWR_TELEMETRY_ENABLED"] == "0"
    assert told["FLWR_DISABLE_UPDATE_CHECK"] == "1"
    assert told["FLWR_HOME"] == str(federation.coordinator / "home")


@pytest.mark.parametrize(
    ("code", "words", "seconds"),
    [
        ("print('no superlink there'); sys.exit(1)", "failed: no superlink there", SOON),
        ("print('something else')", "said: something else", SOON),
        ("time.sleep(1000)", "did not end in time", 0.2),
    ],
    ids=["an error", "no JSON", "no end"],
)
def test_flower_that_does_not_answer_is_told_in_words(
    federation: Federation, code: str, words: str, seconds: float
) -> None:
    tool(federation, code)
    with pytest.raises(NotRunning, match=words):
        flwr(federation.coordinator, "ls", until=time.monotonic() + seconds)
