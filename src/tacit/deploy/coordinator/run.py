"""The coordinator of a federation: it reads its folder, asks every site to agree, and runs the round loop.

Flower starts this as a ServerApp, in a process of its own (`launch` asks it to, and follows the run in its
folder: closing the terminal does not stop it). The whole state of a run is in that folder, so that a run that
was killed, with its machine or without, resumes there.
"""

import hashlib
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit import errors
from tacit.deploy.processes import LINK, NotRunning, flwr
from tacit.deploy.site.agreement import set_up
from tacit.deploy.site.config import COORDINATOR_FILE, CoordinatorFile, identity
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
from tacit.errors import LONGEST_FILE, InvalidFile, RunUnusable, SitesUnreachable, TacitError, require_extra
from tacit.experiments.experiment import load, read
from tacit.runs.directory import OPENED, STATE, SUMMARY, Directory, place_for
from tacit.runs.run import is_over, require_sound
from tacit.runtime import files

if TYPE_CHECKING:
    from tacit.aggregation.secure.sealing import Roster
    from tacit.learning.record import Callback, Round
    from tacit.runs.run import Run

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
    """Run the experiment of a folder; what comes of it is in the run's own folder, errors included."""
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
            f"Flower has not taken the run: {answer.get('error-message', 'it does not say why')} (are "
            "superlink and superexec up?)"
        )
    told(f"Flower has taken the run under the number {number}")
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
    """The site that has answered a greeting; None if it is none of ours."""
    try:
        return open_message(answer, roster, reader=COORDINATOR, answers=asked).writer
    except Unreadable as error:
        told(f"a node that is none of our sites answered: {error}")
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
    """The error that ended a run, as it was raised there."""
    kind: Any = vars(errors).get(str(told.get("kind")), TacitError)
    known = isinstance(kind, type) and issubclass(kind, TacitError)
    return (kind if known else TacitError)(str(told.get("message")))
