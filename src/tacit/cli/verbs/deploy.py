"""What the verbs `deploy` and `site` do, and `run` where the sites are elsewhere."""

import shutil
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit.cli import output
from tacit.errors import escape

if TYPE_CHECKING:
    from tacit.deploy.folders import DeployedFolders
    from tacit.deploy.rehearsal import RehearsalResult
    from tacit.deploy.site.preflight import CheckResult
    from tacit.runs.run import Run


def deploy(
    file: Path,
    *,
    changes: Sequence[str],
    sites: Sequence[str],
    host: str,
    port: int,
    days: int,
    out: Path | None,
) -> "DeployedFolders":
    """Write the folders of a federation."""
    from tacit.deploy import folders
    from tacit.deploy.deployable import to_deployment
    from tacit.errors import InvalidValue

    found = to_deployment(file, changes, sites)
    place = out or Path(f"{found.document.get('name', 'experiment')}-deployment")
    tables: dict[str, dict[str, Any]] = {name: {} for name in found.names}
    try:
        # It is closed to everybody else: that is nothing to do to a folder that was there.
        if place.exists() and any(place.iterdir()):
            raise InvalidValue(f"{place} is there already: choose another folder, nothing is overwritten")
        made = folders.write(found.document, tables, place, host=host, port=port, days=days)
        for name, path in found.public.items():
            target = made.coordinator / name
            target.parent.mkdir(exist_ok=True)
            _ = shutil.copytree(path, target) if path.is_dir() else shutil.copy(path, target)
    except OSError as error:
        raise InvalidValue(f"{place} cannot be written: {error.strerror}") from error
    return made


def show_deployment(made: "DeployedFolders") -> None:
    """Where the folders are, and what comes next, for people."""
    output.print_rows([
        ("coordinator", f"{made.coordinator}: begin with its README.md"),
        *((name, f"{folder}: for the site, and nobody else") for name, folder in made.sites.items()),
        ("authority", f"{made.authority}: keep it offline"),
    ])  # fmt: skip


def deployment_warnings(made: "DeployedFolders", host: str) -> list[str]:
    """What whoever has made folders may want to reconsider."""
    from tacit.deploy.certificates import is_this_machine
    from tacit.experiments import experiment
    from tacit.privacy.policy import Open

    chosen = experiment.read(made.coordinator / "experiment.toml")
    found = chosen.warnings()
    if is_this_machine(host):
        found.append(f"{host} is this machine alone: give --host, the name under which sites reach it")
    if isinstance(chosen.privacy, Open) or chosen.privacy.rehearsal:
        what = "promises nothing" if isinstance(chosen.privacy, Open) else "is a rehearsal"
        found.append(
            f"the experiment {what}: sites refuse it unless they set epsilon = inf in their [limits]"
        )
    return found


def deployment(made: "DeployedFolders") -> dict[str, Any]:
    """The same as plain data."""
    return {
        "coordinator": str(made.coordinator),
        "sites": {name: str(folder) for name, folder in made.sites.items()},
        "authority": str(made.authority),
    }


def rehearse(
    file: Path, *, changes: Sequence[str], sites: Sequence[str], out: Path | None, quiet: bool
) -> "RehearsalResult":
    """Start a whole federation on this machine, run an experiment on it, and stop it."""
    from tacit.deploy import rehearsal
    from tacit.errors import InvalidValue
    from tacit.experiments import experiment
    from tacit.reports.text import progress
    from tacit.runs.directory import place_for

    count = sites[0] if len(sites) == 1 else None
    if sites and (count is None or not count.isdecimal()):
        raise InvalidValue(f"--sites {','.join(sites)} is not allowed: a rehearsal takes a number of sites")
    name = experiment.read(file, changes).name
    place = out or place_for(Path("runs") / f"{name}-rehearsal", resume=False)
    with progress(quiet=quiet) as watcher:
        return rehearsal.rehearse(
            file,
            out=place,
            changes=changes,
            sites=None if count is None else int(count),
            told=lambda line: output.log(line, quiet=quiet),
            callbacks=[watcher],
        )


def run(folder: Path, *, out: Path | None, resume: bool, quiet: bool) -> "Run":
    """Run the experiment of a coordinator's folder on its federation."""
    from tacit.deploy.coordinator.run import default_place, launch
    from tacit.reports.text import progress

    place = out or default_place(folder, resume=resume)
    with progress(quiet=quiet) as watcher:
        return launch(
            folder,
            place,
            resume=resume,
            callbacks=[watcher],
            told=lambda line: output.log(line, quiet=quiet),
        )


def coordinator_folder(file: Path) -> Path | None:
    """The coordinator's folder that a path is, or is the experiment of; None if it is neither."""
    from tacit.deploy.site.config import COORDINATOR_FILE

    folder = file if file.is_dir() else file.parent
    ours = file.is_dir() or file.name == "experiment.toml"
    return folder if ours and (folder / COORDINATOR_FILE).is_file() else None


def check(folder: Path, file: Path | None) -> "list[CheckResult]":
    """Whether a site is ready, and what it would release."""
    from tacit.deploy.site import preflight

    return preflight.check(folder, file)


def show_check(findings: "Sequence[CheckResult]") -> None:
    """What was found, for people."""
    for finding in findings:
        output.say(f"{'ok' if finding.ok else 'NO':3} {escape(finding.what)}")
        if finding.mend:
            output.say(f"    {escape(finding.mend)}")


def serve(folder: Path) -> None:
    """Answer for a site until somebody ends it."""
    from tacit.deploy.site.config import DOOR
    from tacit.deploy.site.guard import Guard, log
    from tacit.engines.flower import socket

    guard = Guard(folder)
    # What every answer needs is loaded before the first question.
    _ = import_module("torch")
    log(f"{guard.file.name} is guarded; questions come through {folder / DOOR}")
    socket.serve(str(folder / DOOR), guard.answer)


def accept(folder: Path, file: Path) -> dict[str, Any]:
    """Accept what an experiment says of a site's data."""
    from tacit.deploy.site import config

    return config.accept(folder, file)


def renew(folder: Path) -> str:
    """New keys for a site, made where it lives; the line that others must have."""
    from tacit.deploy import folders

    return folders.renew_keys(folder)
