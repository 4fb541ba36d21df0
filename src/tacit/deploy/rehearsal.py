"""A whole federation on this machine: separate processes, real certificates; then the same in one process.

What is rehearsed is what is deployed. Whether it comes to the same as a run in one process is not taken for
granted: both are run, and compared.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit.deploy import folders
from tacit.deploy.coordinator.run import default_place, launch
from tacit.deploy.deployable import split_data
from tacit.deploy.processes import free_port, start_processes
from tacit.deploy.site.config import SiteLimits
from tacit.errors import InvalidValue, Refused, require_count, require_extra
from tacit.experiments.experiment import Experiment, read
from tacit.privacy.policy import Open
from tacit.runtime.tables import Table
from tacit.sites.names import COORDINATOR
from tacit.sites.splits import SplitByCount

if TYPE_CHECKING:
    from tacit.learning.record import Callback
    from tacit.runs.run import Run
    from tacit.sites.federation import Federation

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
        """For people."""
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
