"""Three sites and their coordinator as real processes on this machine, for tests that kill them.

Every wait has an end, and when it is over no process is left.
"""

import os
import signal
import subprocess
import threading
import time
import tomllib
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w

from tacit.deploy import folders
from tacit.deploy.coordinator.run import ANYTHING, charges, default_place, launch
from tacit.deploy.deployable import split_data
from tacit.deploy.folders import commands
from tacit.deploy.processes import ProcessGroup, free_port, online_nodes, start_processes
from tacit.deploy.site.config import DOOR, LEDGER
from tacit.engines.flower.socket import is_listening
from tacit.experiments import experiment
from tacit.learning.record import Round
from tacit.privacy.ledger.store import Ledger
from tacit.runs.run import Run

SURVIVAL = Path(__file__).parents[2] / "examples" / "network.toml"
SMALL = [
    "sites.count=3", "rounds=5", "data.records=300", "task.cuts=5", "task.hidden=[4]", "baselines=false"
]  # fmt: skip
# How long to wait for what takes a round or two, and for what takes a whole run, in seconds.
SOON, LONG = 600.0, 1200.0
QUIET = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1", "COLUMNS": "1000"}


def patiently(found: Callable[[], object], seconds: float = SOON, *, what: str = "it") -> float:
    """Wait until something comes about; how long that took."""
    begun = time.monotonic()
    while not found():
        assert time.monotonic() < begun + seconds, f"{what} did not come about in {seconds:g} seconds"
        time.sleep(0.05)
    return time.monotonic() - begun


class Watched:
    """A run, followed as `tacit run` follows it."""

    def __init__(self, folder: Path, out: Path, *, resume: bool = False) -> None:
        self.folder, self.out = folder, out
        self.rounds: list[Round] = []
        self.remarks: list[str] = []
        self._run: Run | None = None
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._follow, args=(folder, resume), daemon=True)
        self._thread.start()

    def _follow(self, folder: Path, resume: bool) -> None:
        try:
            self._run = launch(
                folder, self.out, resume=resume, callbacks=[self.rounds.append], told=self.remarks.append
            )
        except Exception as error:
            self._error = error

    def told(self, number: int, seconds: float = SOON) -> Round:
        """A round, once it is over: the next one is under way then."""
        found = lambda: self.rounds and self.rounds[-1].number >= number  # noqa: E731
        patiently(lambda: found() or not self._thread.is_alive(), seconds, what=f"round {number}")
        if not found():
            raise AssertionError(f"the run ended before round {number}: {self._error}")
        return next(entry for entry in self.rounds if entry.number == number)

    def run(self, seconds: float = LONG) -> Run:
        """Results of it, or why it failed."""
        patiently(lambda: not self._thread.is_alive(), seconds, what="the end of the run")
        if self._error is not None:
            raise self._error
        assert self._run is not None
        return self._run

    def log(self) -> str:
        """Return the output of the coordinator in this run, which only `flwr log` prints."""
        number = self.remarks[0].rpartition(" ")[2]
        given = commands(self.folder)["run"]
        env = {**os.environ, **given.env, **QUIET, "FLWR_HOME": str(self.folder / "home")}
        words = ["flwr", "log", number, "tacit", "--show"]
        return subprocess.run(words, env=env, capture_output=True, text=True, timeout=SOON).stdout


@dataclass
class Town:
    """A federation, and what its experiment comes to in one process."""

    made: folders.DeployedFolders
    up: ProcessGroup
    chosen: experiment.Experiment
    federation: Any
    place: Path
    seen: set[int] = field(default_factory=set)

    @cached_property
    def alone(self) -> Run:
        return self.chosen.run_on(self.federation, self.place / "alone")

    def begun(self) -> Watched:
        return Watched(self.made.coordinator, default_place(self.made.coordinator))

    def resumed(self, out: Path) -> Watched:
        return Watched(self.made.coordinator, out, resume=True)

    @contextmanager
    def changed(self, edit: Callable[[dict[str, Any]], object]) -> Generator[None]:
        """The same experiment for a while, but for this."""
        file = self.made.coordinator / "experiment.toml"
        before = file.read_text()
        document = tomllib.loads(before)
        edit(document)
        file.write_text(tomli_w.dumps(document))
        try:
            yield
        finally:
            file.write_text(before)

    def tickets(self) -> dict[str, set[str]]:
        """Return the tickets in each site's ledger."""
        found: dict[str, set[str]] = {}
        for name, folder in self.made.sites.items():
            if not (folder / LEDGER).exists():
                found[name] = set()
                continue
            with Ledger(folder / LEDGER, mode="read") as ledger:
                found[name] = {entry["ticket"] for entry in ledger.entries() if entry["kind"] == "release"}
        return found

    def guarded(self, name: str) -> float:
        """Wait until the guard of a site is there."""
        return patiently(lambda: is_listening(str(self.made.sites[name] / DOOR)), what=f"the guard of {name}")

    def mend(self) -> None:
        """Start what a test has left dead or stopped, as systemd would."""
        self.seen.update(self.up.pids.values())
        for role in ("superlink", "superexec", *(f"guard:{name}" for name in self.made.sites)):
            if role not in self.up.pids:
                self.up.start(role)
            os.killpg(self.up.pids[role], signal.SIGCONT)
        for name in self.made.sites:
            self.guarded(name)
        until = time.monotonic() + SOON
        while True:
            for name in self.made.sites:
                if f"node:{name}" not in self.up.pids:
                    self.up.start(f"node:{name}")
                os.killpg(self.up.pids[f"node:{name}"], signal.SIGCONT)
            self.seen.update(self.up.pids.values())
            with suppress(Exception):
                if len(online_nodes(self.made.coordinator, until)) == len(self.made.sites):
                    return
            assert time.monotonic() < until, "the federation could not be mended"
            time.sleep(2)


@contextmanager
def standing(place: Path) -> Generator[Town]:
    """A town that is up; afterwards nothing of it runs any more."""
    chosen = replace(experiment.read(SURVIVAL, SMALL), baselines=False)
    federation, out = chosen.open_federation(), place / "town"
    document, tables = split_data(
        chosen,
        federation,
        lambda name: (
            folders.coordinator_folder(out) if name == "coordinator" else folders.site_folder(out, name)
        ),
    )
    document["engine"] = {"kind": "flower"}
    port = free_port()
    made = folders.write(
        document, tables, out, host="127.0.0.1", port=port, limits=dict.fromkeys(tables, ANYTHING)
    )
    with start_processes(made.coordinator, made.sites, port, logs=place / "logs") as up:
        town = Town(made, up, chosen, federation, place)
        yield town
        town.seen.update(up.pids.values())
    assert not {pid: said for pid in town.seen if (said := words(pid))}, "processes have not ended"
    assert not remaining(place), "processes were left behind"


def words(pid: int) -> str:
    """The command of a process; none once it has ended."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace").replace("\0", " ")
    return ""


def told(pid: int) -> str:
    """Describe a process: its command, its folder, and its environment."""
    found = words(pid)
    with suppress(OSError):
        found += os.readlink(f"/proc/{pid}/cwd")
    with suppress(OSError):
        found += Path(f"/proc/{pid}/environ").read_text(errors="replace")
    return found


def remaining(place: Path) -> dict[int, str]:
    """Every process that has to do with a folder."""
    pids = (int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit())
    return {pid: said for pid in pids if pid != os.getpid() and str(place) in (said := told(pid))}


def descendants(pid: int, word: str) -> list[int]:
    """The processes below one that have a word in their command and have not ended."""
    parents: dict[int, int] = {}
    for path in Path("/proc").iterdir():
        with suppress(OSError, ValueError):
            state, parent = (path / "stat").read_text().rpartition(")")[2].split()[:2]
            if state != "Z":
                parents[int(path.name)] = int(parent)

    def below(one: int) -> bool:
        return one == pid or (one in parents and below(parents[one]))

    return [one for one in parents if one != pid and below(one) and word in words(one)]


def same(run: Run, alone: Run) -> None:
    """The federation came to what one process comes to, and paid for the same."""
    assert float(np.abs(run.state - alone.state).max()) <= 1e-6
    assert charges(run.path) == charges(alone.path) != []
    assert [entry.number for entry in run.record.rounds] == [entry.number for entry in alone.record.rounds]
    assert not run.record.warnings()
    assert run.privacy.epsilon == alone.privacy.epsilon


def paid_once(before: Mapping[str, set[str]], after: Mapping[str, set[str]]) -> None:
    """Every site has paid for one more experiment, and none for two."""
    assert {name: len(after[name] - before[name]) for name in after} == dict.fromkeys(before, 1)
