"""Starting a run from the coordinator's folder, and following it to its end.

Flower starts the run in a process of its own; what it comes to is in the run's folder, and that is where it
is followed. Whoever stops watching does not stop the run.
"""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit import errors
from tacit.deploy.coordinator.run import FAILED, FOLDER, OUT, RESUME
from tacit.deploy.processes import LINK, NotRunning, flwr
from tacit.errors import TacitError
from tacit.experiments.experiment import load
from tacit.runs.directory import SUMMARY, Directory

if TYPE_CHECKING:
    from tacit.runs.run import Run
    from tacit.runs.trainer import Callback

# How often to look into the run's folder, and how often to ask Flower, which is slow to answer, in seconds.
GLANCE, ASK = 0.2, 15.0
# How long Flower's command line may take for an answer, in seconds.
PATIENCE = 120.0
# How long the superlink may be away, in seconds: one that is started again goes on with its runs.
AWAY = 600.0
# What Flower says of a run that goes on.
ALIVE = ("pending", "starting", "running")


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
        out: Where the run is kept.
        resume: Whether to go on with the run there.
        callbacks: Called after every round.
        told: Where remarks go.

    Raises:
        TacitError: Why the run has ended before its time; it can be resumed.
    """
    errors.require_extra("flwr", "flower", "a federation of processes")
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
            raise NotRunning(str(listed.get("error-message", "it does not say why")))
    except NotRunning as error:
        if time.monotonic() - heard < AWAY:
            return heard
        raise NotRunning(
            f"the superlink has not answered for {AWAY:g} seconds: start it again, then go on with --resume. "
            f"Its last answer: {error}"
        ) from error
    status = next((str(run.get("status")) for run in listed.get("runs", [])), "gone")
    alive = status.partition(":")[0] in ALIVE or directory.read(SUMMARY) is not None
    if not alive and directory.read(FAILED) is None:
        raise NotRunning(
            f"the coordinator's process has ended without a word (Flower says: {status}). Nothing is lost: "
            "go on with --resume"
        )
    return time.monotonic()


def _failure(told: dict[str, Any]) -> TacitError:
    """The error that ended a run, as it was raised there."""
    kind: Any = getattr(errors, str(told.get("kind")), TacitError)
    known = isinstance(kind, type) and issubclass(kind, TacitError)
    return (kind if known else TacitError)(str(told.get("message")))
