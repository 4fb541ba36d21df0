"""A whole federation on this machine, started from the folders that would be carried to others.

What is rehearsed is what is deployed: every program is started by the command of its folder. Each is a
process group of its own, and when it is over, however it ends, none is left.
"""

import json
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

from tacit.deploy.folders import Command, commands
from tacit.deploy.site.config import DOOR
from tacit.engines.flower.socket import is_listening
from tacit.errors import InvalidValue, TacitError

# Seconds between the request to end a program and its kill.
GRACE = 10.0
# Polling interval, in seconds.
_GLANCE = 0.1
_LOOK = 1.0
# The name by which Flower's command line knows the coordinator's superlink.
LINK = "tacit"


class NotRunning(TacitError):
    """A program of a federation that did not start, or has ended."""


class ProcessGroup:
    """The programs of a federation on this machine, by role.

    The roles are `superlink`, `superexec`, `guard:NAME` and `node:NAME`.

    Args:
        coordinator: The coordinator's folder.
        sites: The folders of the sites, by name.
        logs: The folder of the programs' output, a file for each.
    """

    def __init__(self, coordinator: Path, sites: Mapping[str, Path], logs: Path) -> None:
        self.coordinator = coordinator
        self.sites = dict(sites)
        self._logs = logs
        self._programs: dict[str, subprocess.Popen[bytes]] = {}
        ours = commands(coordinator)
        self._commands = {role: ours[role] for role in ("superlink", "superexec")}
        for name, folder in sites.items():
            theirs = commands(folder)
            self._commands[f"guard:{name}"] = theirs["guard"]
            # Nodes on one machine would all want the same port.
            own = {**theirs["node"].env, "TACIT_NODE_PORT": str(free_port())}
            self._commands[f"node:{name}"] = Command(theirs["node"].argv, own, theirs["node"].cwd)

    @property
    def pids(self) -> dict[str, int]:
        """The process of each role that was started and has not ended."""
        return {role: program.pid for role, program in self._programs.items() if program.poll() is None}

    def log(self, role: str) -> Path:
        """Return the log file of a program."""
        return self._logs / f"{role.replace(':', '-')}.log"

    def start(self, role: str) -> int:
        """Start a program, and give the number of its process."""
        if role in self.pids:
            raise InvalidValue(f"{role} is running already")
        if role in self._programs:
            # One that ended by itself may have left others behind.
            _end(self._programs.pop(role))
        command = self._commands[role]
        with self.log(role).open("ab") as said:
            program = subprocess.Popen(
                command.argv,
                env={**os.environ, **command.env},
                cwd=command.cwd,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._programs[role] = program
        return program.pid

    def kill(self, role: str, *, gently: bool = False) -> None:
        """End a program and everything that it has started, at once unless gently."""
        program = self._programs.pop(role)
        if gently:
            _signal(program, signal.SIGTERM)
            _await(lambda: _is_gone(program), GRACE)
        _end(program)

    def require(self, role: str) -> None:
        """Refuse to go on when a program has ended by itself."""
        program = self._programs.get(role)
        code = None if program is None else program.poll()
        if program is None or code is not None:
            raise NotRunning(f"{role} has ended (exit status {code}); its last output: {self._last(role)}")

    def stop(self) -> None:
        """End all programs: clients first, then servers."""
        for kinds in (("node", "guard"), ("superexec",), ("superlink",)):
            programs = [
                self._programs.pop(role) for role in list(self._programs) if role.split(":")[0] in kinds
            ]
            for program in programs:
                _signal(program, signal.SIGTERM)
            _await(lambda programs=programs: all(map(_is_gone, programs)), GRACE)
            for program in programs:
                _end(program)

    def _last(self, role: str, lines: int = 20) -> str:
        if not self.log(role).exists():
            return "(none)"
        return " | ".join(self.log(role).read_text(errors="replace").splitlines()[-lines:])


@contextmanager
def start_processes(
    coordinator: Path, sites: Mapping[str, Path], port: int, *, logs: Path | None = None, seconds: float = 120
) -> Generator[ProcessGroup]:
    """Start a federation for the duration of this block, and stop it at its end.

    Args:
        coordinator: The coordinator's folder.
        sites: The folders of the sites, by name.
        port: The port of the coordinator's superlink, on this machine.
        logs: The folder of the programs' output; `logs` in the coordinator's folder by default.
        seconds: Timeout until all nodes are connected.

    Raises:
        NotRunning: A program ended, or they were not all up in time.
    """
    place = logs or coordinator / "logs"
    place.mkdir(parents=True, exist_ok=True)
    up = ProcessGroup(coordinator, sites, place)
    with _orderly():
        try:
            _bring_up(up, port, time.monotonic() + seconds)
            yield up
        finally:
            up.stop()


def _bring_up(up: ProcessGroup, port: int, until: float) -> None:
    if _open(port):
        raise NotRunning(f"port {port} of this machine is taken: stop what listens there, or use another")
    for name in up.sites:
        up.start(f"guard:{name}")
    up.start("superlink")
    _settle(up, "superlink", lambda: _open(port), until)
    up.start("superexec")
    _call(commands(up.coordinator)["register"], until)
    for name, folder in up.sites.items():
        _settle(up, f"guard:{name}", lambda folder=folder: is_listening(str(folder / DOOR)), until)
        up.start(f"node:{name}")
    while len(online_nodes(up.coordinator, until)) < len(up.sites):
        for role in up.pids:
            up.require(role)
        _require_time(until, "the nodes did not all connect in time")
        time.sleep(_LOOK)


def online_nodes(coordinator: Path, until: float) -> list[str]:
    """The numbers of the nodes that are connected, as Flower lists them."""
    listed = flwr(coordinator, "supernode", "list", LINK, until=until)
    return [node["node-id"] for node in listed.get("nodes", []) if node["status"] == "online"]


def flwr(coordinator: Path, *words: str, until: float) -> dict[str, Any]:
    """Return the answer of Flower's command line as JSON; a failure may be reported in it (`success`)."""
    given = commands(coordinator)["run"]
    command = Command(["flwr", *words, "--format", "json"], {**given.env, **_quiet(coordinator)}, given.cwd)
    said = _call(command, until)
    try:
        # It talks before it answers, whatever format it was asked for.
        return json.JSONDecoder().raw_decode(said, said.index("{"))[0]
    except ValueError as error:
        raise NotRunning(f"flwr {' '.join(words)} said: {said.strip()}") from error


def free_port() -> int:
    """Return a free port of this machine."""
    with socket.socket() as line:
        line.bind(("127.0.0.1", 0))
        return line.getsockname()[1]


def _quiet(coordinator: Path) -> dict[str, str]:
    return {
        "FLWR_HOME": str(coordinator.resolve() / "home"),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "PYTHONUNBUFFERED": "1",
    }


def _call(command: Command, until: float) -> str:
    """Run a command to its end and return its output."""
    asked = " ".join(command.argv)
    with subprocess.Popen(
        command.argv,
        env={**os.environ, **command.env},
        cwd=command.cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    ) as program:
        try:
            said, _ = program.communicate(timeout=max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired as error:
            raise NotRunning(f"{asked} did not end in time") from error
        finally:
            _end(program)
    if program.returncode:
        raise NotRunning(f"{asked} failed: {said.strip()}")
    return said


def _settle(up: ProcessGroup, role: str, ready: Callable[[], bool], until: float) -> None:
    while not ready():
        up.require(role)
        _require_time(until, f"{role} was not ready in time")
        time.sleep(_GLANCE)


def _require_time(until: float, otherwise: str) -> None:
    if time.monotonic() >= until:
        raise NotRunning(otherwise)


def _open(port: int) -> bool:
    with socket.socket() as line:
        line.settimeout(_LOOK)
        return line.connect_ex(("127.0.0.1", port)) == 0


def _await(ready: Callable[[], bool], seconds: float) -> bool:
    until = time.monotonic() + seconds
    while not (done := ready()) and time.monotonic() < until:
        time.sleep(_GLANCE)
    return done


def _signal(program: "subprocess.Popen[Any]", number: signal.Signals) -> None:
    # A program has a process group of its own, which lives as long as any of its processes.
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(program.pid, number)


def _is_gone(program: "subprocess.Popen[Any]") -> bool:
    """Return True if a program and all processes of its group have ended."""
    if program.poll() is None:
        return False
    try:
        os.killpg(program.pid, 0)
    except ProcessLookupError:
        return True
    return False


def _end(program: "subprocess.Popen[Any]") -> None:
    _signal(program, signal.SIGKILL)
    program.wait()
    _await(lambda: _is_gone(program), GRACE)


@contextmanager
def _orderly() -> Generator[None]:
    """Handle SIGTERM like an interrupt, so that started processes end too."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
