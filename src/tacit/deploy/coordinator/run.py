"""The coordinator of a federation: it reads its folder, asks every site to agree, and runs the round loop.

Flower starts this as a ServerApp, in a process of its own (`launch` asks it to, and follows the run in its
folder: closing the terminal does not stop it). The whole state of a run is in that folder, so that a run that
was killed, with its machine or without, resumes there.

A rehearsal starts a whole federation on this machine: separate processes, real certificates; then the same
in one process. What is rehearsed is what is deployed. Whether it comes to the same as a run in one process is
not taken for granted: both are run, and compared.
"""

import hashlib
import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit import errors
from tacit.deploy import folders
from tacit.deploy.deployable import split_data
from tacit.deploy.processes import LINK, NotRunning, flwr, free_port, start_processes
from tacit.deploy.site.agreement import set_up
from tacit.deploy.site.config import COORDINATOR_FILE, CoordinatorFile, SiteLimits, identity
from tacit.engines.flower.nodes import Flower, Meet
from tacit.engines.messages import (
    COORDINATOR,
    SignedMessage,
    Unreadable,
    digest,
    open_message,
    run_digest,
    sign_message,
)
from tacit.engines.remote import Remote
from tacit.errors import (
    LONGEST_FILE,
    InvalidFile,
    InvalidValue,
    Refused,
    RunUnusable,
    SitesUnreachable,
    TacitError,
    require_count,
    require_extra,
)
from tacit.experiments.experiment import Experiment, load, read
from tacit.privacy.policy import Open
from tacit.runs.directory import OPENED, STATE, SUMMARY, Directory, place_for
from tacit.runs.run import is_over, require_sound
from tacit.runtime import files
from tacit.runtime.tables import Table
from tacit.sites.splits import SplitByCount

if TYPE_CHECKING:
    from tacit.aggregation.secure.sealing import Roster
    from tacit.learning.record import Callback, Round
    from tacit.runs.run import Run
    from tacit.sites.federation import Federation

# Keys of a run's configuration in Flower.
FOLDER, OUT, RESUME = "tacit-folder", "tacit-out", "tacit-resume"
EXPERIMENT, FAILED, LOG = "experiment.toml", "failed.json", "log.txt"
# Polling intervals of the run's folder, and of Flower, which is slow to answer, in seconds.
GLANCE, ASK = 0.2, 15.0
# Timeout of Flower's command line, in seconds.
PATIENCE = 120.0
# Longest outage of the superlink, in seconds: a restarted one resumes its runs.
AWAY = 600.0
# Flower's statuses of a live run.
ALIVE = ("pending", "starting", "running")


def coordinate(meet: Meet, settings: Mapping[str, Any]) -> None:
    """Run the experiment of a folder; the run's own folder has the result, or the error."""
    folder, resume = Path(str(settings[FOLDER])), bool(settings[RESUME])
    out = Path(str(settings[OUT])) if settings[OUT] else default_place(folder, resume=resume)
    out.mkdir(parents=True, exist_ok=True)
    told = log_to(out / LOG, folder)
    try:
        run = run_federation(
            meet, folder, out, resume=resume, told=told, shown=lambda entry: told(in_words(entry))
        )
        told(run.summary())
    except TacitError as error:
        # Flower does not report why a run failed: the waiting command reads it here.
        Directory(out).write_json(FAILED, {"kind": type(error).__name__, "message": str(error)})
        told(f"stopped: {error}")
        raise


def log_to(file: Path, folder: Path) -> Callable[[str], None]:
    """Return a function that logs lines of a run: to the standard error, and to a file with the time.

    Where the server adds the noise, the price may count on a secret sample of sites: then every line has the
    time at which the run began, and a site that did not answer a round is not named.
    """
    secret, began, names = False, _now(), tuple[str, ...]()
    with suppress(TacitError):
        # An unreadable experiment is refused by the run itself.
        experiment = read(folder / EXPERIMENT)
        secret = experiment.privacy.noise == "server"
        names = tuple(experiment.sites.names or ())

    def log(message: str) -> None:
        # Flower shows this output only to those who ask for its log.
        print(message, file=sys.stderr, flush=True)
        name, _, rest = message.partition(": ")
        line = f"a site: {rest}" if secret and name in names else message
        with file.open("a", encoding="utf-8") as stream:
            stream.write(f"{began if secret else _now()} {line}\n")

    return log


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def default_place(folder: Path, *, resume: bool = False) -> Path:
    """Return the default directory of a run."""
    return place_for(folder / "runs" / read(folder / EXPERIMENT).name, resume=resume)


def in_words(entry: "Round") -> str:
    """A line of the log for a round."""
    scores = ", ".join(f"{name} {value:.3f}" for name, value in entry.scores.items())
    spent = "" if entry.epsilon is None else f", epsilon {entry.epsilon:.3f}"
    faults = "".join(f"; {fault.site or 'a site'}: {fault.reason}" for fault in entry.faults)
    sites = "" if entry.sites is None else f", {entry.sites - len(entry.faults)} of {entry.sites} sites"
    return f"round {entry.number}/{entry.rounds}{sites}{spent}{', ' * bool(scores)}{scores}{faults}"


def run_federation(
    meet: Meet,
    folder: Path,
    out: Path,
    *,
    resume: bool = False,
    told: Callable[[str], None] = print,
    shown: "Callable[[Round], None] | None" = None,
) -> "Run":
    """Run the experiment of a coordinator's folder with the sites that are connected.

    Args:
        meet: Connects to sites.
        folder: The coordinator's folder.
        out: The run's directory.
        resume: Continue the run there.
        told: Receives lines of the log.
        shown: Called after every round.

    Raises:
        TacitError: A site refuses or is missing, or a reason that would stop a run in one process as well.
    """
    roster, experiment = CoordinatorFile.read(folder).roster, read(folder / EXPERIMENT)
    directory = Directory(out)
    if is_over(directory) and resume:
        require_sound(out)
        return load(out)
    if directory.read(EXPERIMENT) is not None and not resume:
        raise RunUnusable(f"run {out} exists already: resume it (--resume), or choose another directory")
    # Refuse the impossible before any site is asked, and pays.
    prepared = set_up(experiment, stop=experiment.stop)
    names = list(prepared.names)
    strangers = [name for name in names if name not in roster]
    if strangers:
        raise InvalidFile(f"{COORDINATOR_FILE} has no key of {', '.join(strangers)}: deploy them as well")
    own = identity(folder)
    hello = sign_message(SignedMessage(writer=COORDINATOR, reader="", about="hello"), own)
    nodes = meet(hello, lambda answer: _recognise(answer, roster, digest(hello), told))
    begun = resume and directory.read(STATE) is not None
    chosen = experiment.engine if isinstance(experiment.engine, Flower) else Flower()
    _wait_for(nodes.wait_for_sites, names, chosen.wait, begun=begun, layout=experiment.task.layout)
    out.mkdir(parents=True, exist_ok=True)
    text, run = files.read_text(folder / EXPERIMENT, LONGEST_FILE), run_of(directory)
    engine = Remote(
        deadline=chosen.deadline,
        wait=chosen.wait,
        exchange=nodes,
        identity=own,
        roster=roster,
        run=run,
        run_digest=run_digest(text, run.hex()),
        found=lambda: directory.read_json(OPENED) or {},
        log=told,
    )
    engine.agree(text, names, fewest=1 if begun else None)
    callbacks = () if shown is None else (shown,)
    return replace(experiment, engine=engine).run(out, resume=resume, callbacks=callbacks)


def run_of(directory: Directory) -> bytes:
    """Return the identifier of a run at its sites: unique, and the same when it is resumed."""
    return hashlib.sha256(b"run\0" + directory.secret()).digest()[:16]


def launch(
    folder: Path,
    out: Path,
    *,
    resume: bool = False,
    callbacks: "Sequence[Callback]" = (),
    told: Callable[[str], None] = lambda line: None,
) -> "Run":
    """Run the experiment of a coordinator's folder on its federation, and wait for its end.

    Args:
        folder: The coordinator's folder; its superlink and superexec are up.
        out: The run's directory.
        resume: Continue the run there.
        callbacks: Called after every round.
        told: Receives remarks.

    Raises:
        TacitError: The run has ended early; it can be resumed.
    """
    require_extra("flwr", "flower", "a federation of processes")
    out = out.resolve()
    (out / FAILED).unlink(missing_ok=True)
    given = f"{FOLDER}='{folder.resolve()}' {OUT}='{out}' {RESUME}={str(resume).lower()}"
    answer = flwr(
        folder, "run", str(folder.resolve() / "app"), LINK, "--run-config", given,
        until=time.monotonic() + PATIENCE,
    )  # fmt: skip
    number = answer.get("run-id")
    if not isinstance(number, str):
        raise NotRunning(
            f"Flower did not accept the run: {answer.get('error-message', 'it does not say why')} (are "
            "superlink and superexec up?)"
        )
    told(f"Flower accepted the run as number {number}")
    return _follow(folder, out, number, callbacks)


def _wait_for(
    met: Callable[[list[str], float], frozenset[str]],
    names: list[str],
    seconds: float,
    *,
    begun: bool,
    layout: str,
) -> None:
    """Wait for sites: a run begins with all of them, and resumes without the missing ones if it can."""
    there = met(names, seconds)
    absent = [name for name in names if name not in there]
    if absent and (not begun or layout == "columns" or not there):
        raise SitesUnreachable(
            f"{', '.join(absent)} {'is' if len(absent) == 1 else 'are'} not there after {seconds:g} seconds: "
            "start their guards and nodes, or remove them from [sites]"
        )


def _recognise(answer: bytes, roster: "Roster", asked: bytes, told: Callable[[str], None]) -> str | None:
    """Return the site that has answered a greeting; None if it is none of ours."""
    try:
        return open_message(answer, roster, reader=COORDINATOR, answers=asked).writer
    except Unreadable as error:
        told(f"an unknown node answered: {error}")
        return None


def _follow(folder: Path, out: Path, number: str, callbacks: "Sequence[Callback]") -> "Run":
    directory, shown = Directory(out), len(Directory(out).rounds())
    asked = heard = time.monotonic()
    while True:
        failed = directory.read_json(FAILED)
        rounds = directory.rounds()
        for entry in rounds[shown:]:
            for callback in callbacks:
                callback(entry)
        shown = len(rounds)
        if failed is not None:
            raise _failure(failed)
        if directory.read(SUMMARY) is not None:
            return load(out)
        if time.monotonic() - asked > ASK:
            heard = _require_alive(folder, number, directory, heard)
            asked = time.monotonic()
        time.sleep(GLANCE)


def _require_alive(folder: Path, number: str, directory: Directory, heard: float) -> float:
    """Refuse to wait for a run that Flower has given up; when Flower was last heard of."""
    try:
        listed = flwr(folder, "list", LINK, "--run-id", number, until=time.monotonic() + PATIENCE)
        if listed.get("success") is False:
            raise NotRunning(str(listed.get("error-message", "it gives no reason")))
    except NotRunning as error:
        if time.monotonic() - heard < AWAY:
            return heard
        raise NotRunning(
            f"the superlink has not answered for {AWAY:g} seconds: start it again, then resume with "
            "--resume. "
            f"Its last answer: {error}"
        ) from error
    status = next((str(run.get("status")) for run in listed.get("runs", [])), "gone")
    alive = status.partition(":")[0] in ALIVE or directory.read(SUMMARY) is not None
    if not alive and directory.read(FAILED) is None:
        raise NotRunning(
            f"the coordinator's process ended without a message (status in Flower: {status}). Nothing is "
            "lost: resume with --resume"
        )
    return time.monotonic()


def _failure(told: dict[str, Any]) -> TacitError:
    """Return the error that ended a run, as it was raised there."""
    kind: Any = vars(errors).get(str(told.get("kind")), TacitError)
    known = isinstance(kind, type) and issubclass(kind, TacitError)
    return (kind if known else TacitError)(str(told.get("message")))


HERE = "127.0.0.1"
# The default number of sites: each is two processes with all their libraries.
USUAL_SITES = 3
# Two results whose weights differ by no more are the same.
CLOSE = 1e-6
# Nothing is at stake: the records are simulated, published, or on this machine anyway.
ANYTHING = SiteLimits(epsilon=math.inf, lifetime=math.inf, fewest=1, trusted=True)


@dataclass(frozen=True, eq=False)
class RehearsalResult:
    """Result of a rehearsal.

    Args:
        run: The run over the federation.
        alone: The same in one process.
        folder: The folder with all folders, logs and runs.
    """

    run: "Run"
    alone: "Run"
    folder: Path

    @property
    def difference(self) -> float:
        """Largest difference between the weights of the two runs; NaN for different shapes."""
        mine, other = self.run.state, self.alone.state
        return float(np.abs(mine - other).max()) if mine.shape == other.shape else math.nan

    @property
    def same_ledger(self) -> bool:
        """True if both have charged the same releases in the same order."""
        return charges(self.run.path) == charges(self.alone.path)

    @property
    def same(self) -> bool:
        """True if both runs have the same weights, up to rounding, and the same ledger."""
        return self.difference <= CLOSE and self.same_ledger

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "folder": str(self.folder),
            "same": self.same,
            "difference": self.difference,
            "same_ledger": self.same_ledger,
            "seconds_per_round": seconds_per_round(self.run),
            "run": self.run.as_dict(),
        }

    def summary(self) -> str:
        """Summarize the rehearsal in text."""
        ledgers = "the same charges" if self.same_ledger else "OTHER charges"
        found = "equal" if self.same else "NOT equal"
        spent = seconds_per_round(self.run)
        pace = "" if spent is None else f"\nA round took {spent:.1f} seconds, most of it Flower's own."
        return (
            f"{self.run.summary()}\n\nCompared with the same experiment in one process: {found}. Weights "
            "differ by "
            f"{self.difference:.2g} at most, and the ledgers have {ledgers}.{pace}"
        )


def rehearse(
    file: str | Path,
    *,
    out: Path,
    changes: Sequence[str] = (),
    sites: int | None = None,
    told: Callable[[str], None] = lambda line: None,
    callbacks: "Sequence[Callback]" = (),
) -> RehearsalResult:
    """Deploy an experiment to this machine, run it, stop everything, and run it in one process as well.

    Args:
        file: The experiment file.
        out: A folder that is not there yet.
        changes: Changes to the file.
        sites: The number of sites, if the file divides simulated records; 3 by default.
        told: Receives remarks.
        callbacks: Called after every round of the federation.

    Raises:
        TacitError: A mistake that the user can mend. All processes have been stopped by then.
    """
    require_extra("flwr", "flower", "a federation of processes")
    experiment = fit_to_machine(read(file, changes), sites, told)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InvalidValue(f"{out} exists already: choose another folder, nothing is overwritten")
    federation = experiment.open_federation()
    document, tables = lay_out(experiment, federation, out)
    port = free_port()
    made = folders.write(document, tables, out, host=HERE, port=port, limits=dict.fromkeys(tables, ANYTHING))
    told(f"folders for the coordinator and {len(tables)} sites are in {out}; starting them here")
    with start_processes(made.coordinator, made.sites, port, logs=out / "logs") as up:
        told(f"up: {', '.join(up.pids)}")
        run = launch(made.coordinator, default_place(made.coordinator), callbacks=callbacks, told=told)
    told("stopped; now the same experiment in one process")
    alone = replace(experiment, baselines=False).run_on(federation, out / "in-one-process")
    return RehearsalResult(run, alone, out)


def lay_out(experiment: Experiment, federation: "Federation", out: Path) -> tuple[Table, dict[str, Table]]:
    """Write each party's data; return the deployed experiment, and the table [data] of each site."""

    def place(name: str) -> Path:
        return folders.coordinator_folder(out) if name == COORDINATOR else folders.site_folder(out, name)

    document, tables = split_data(experiment, federation, place)
    return {**document, "engine": {**document.get("engine", {}), "kind": "flower"}}, tables


def fit_to_machine(experiment: Experiment, sites: int | None, told: Callable[[str], None]) -> Experiment:
    """The experiment, for as many sites as are to be started here."""
    privacy = experiment.privacy
    if experiment.data.distant:
        raise Refused(
            f"[data] kind = {experiment.data.kind!r} is at the sites, and a rehearsal distributes data from "
            "this machine: rehearse with a file whose data are here, such as simulated data"
        )
    if not isinstance(privacy, Open) and not privacy.rehearsal and not experiment.data.public:
        raise Refused(
            "a rehearsal distributes records on this machine, and compares two runs with the same noise: "
            "declare it, --set privacy.rehearsal=true"
        )
    if not isinstance(experiment.sites, SplitByCount):
        if sites is not None:
            raise InvalidValue(f"--sites {sites} is not allowed: the file names its sites itself")
        return experiment
    wanted = min(experiment.sites.count, USUAL_SITES) if sites is None else sites
    require_count("sites", wanted)
    if sites is None and wanted != experiment.sites.count:
        told(
            f"{wanted} sites instead of {experiment.sites.count}, each of them two programs; --sites for more"
        )
    return replace(experiment, sites=replace(experiment.sites, count=wanted))


def charges(path: Path | None) -> list[dict[str, Any]]:
    """Return the charged releases of a run in order, without times, tickets and plans."""
    from tacit.privacy.ledger.store import Ledger
    from tacit.runs.directory import LEDGER

    if path is None:
        return []
    with Ledger(path / LEDGER, mode="read") as ledger:
        rows = [entry for entry in ledger.entries() if entry["kind"] == "release"]
    beside = ("number", "at", "ticket", "plan", "hash", "kind")
    return [{key: value for key, value in row.items() if key not in beside} for row in rows]


def seconds_per_round(run: "Run") -> float | None:
    """The middle of how long rounds took, where that may be known."""
    told = sorted(entry.seconds for entry in run.record.rounds if entry.seconds is not None)
    return told[len(told) // 2] if told else None
