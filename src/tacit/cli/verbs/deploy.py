"""Verbs of federations on several machines: `deploy` for the coordinator, `site` for each site.

Heavy imports happen in the verbs, after one was chosen.
"""

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit.cli import output
from tacit.cli.output import Changes, Console, verb
from tacit.errors import InvalidValue, escape

if TYPE_CHECKING:
    from tacit.deploy.coordinator.run import RehearsalResult
    from tacit.deploy.deployable import DeployableExperiment
    from tacit.deploy.folders import DeployedFolders
    from tacit.deploy.site.preflight import CheckResult

site = typer.Typer(
    help="Run the guard of a site on its own machine.", no_args_is_help=True, rich_markup_mode=None
)
Folder = Annotated[Path, typer.Argument(help="Folder of the site.")]


@verb()
def deploy(
    console: Console,
    file: Annotated[Path, typer.Argument(help="An experiment file.")],
    changes: Changes = None,
    sites: Annotated[
        str, typer.Option(help="Names of the sites, separated by commas; their number for a rehearsal.")
    ] = "",
    host: Annotated[
        str, typer.Option(help="Host name under which sites reach the coordinator.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port of the coordinator.")] = 8443,
    days: Annotated[int, typer.Option(help="Validity of the coordinator's certificate in days.")] = 365,
    out: Annotated[Path | None, typer.Option(help="New folder to write to.")] = None,
    rehearse: Annotated[
        bool, typer.Option("--rehearse", help="Run the whole federation on this machine, then stop it.")
    ] = False,
) -> None:
    """Prepare a federation on several machines.

    Writes a folder for the coordinator, and one for each site.
    """
    names = [name.strip() for name in sites.split(",") if name.strip()]
    if rehearse:
        done = _rehearse(console, file, changes or [], names, out)
        console.answer(done.as_dict, lambda: output.say(done.summary()))
        console.log(f"saved {done.folder}")
        if not done.same:
            raise SystemExit(output.VERIFICATION_FAILED)
        return
    from tacit.deploy.deployable import to_deployment

    found = to_deployment(file, changes or [], names)
    place = out or Path(f"{found.document.get('name', 'experiment')}-deployment")
    try:
        made = _write_folders(found, place, host=host, port=port, days=days)
    except OSError as error:
        raise InvalidValue(f"{place} cannot be written: {error.strerror}") from error
    console.answer(lambda: _as_dict(made), lambda: _show_folders(made))
    for caution in _warnings(made, host):
        console.log(f"warning: {caution}")


def _write_folders(
    found: "DeployableExperiment", place: Path, *, host: str, port: int, days: int
) -> "DeployedFolders":
    """Write the folders of a federation, and the public records that the coordinator has."""
    from tacit.deploy import folders

    # The folder is closed to all other users, so an existing one is not used.
    if place.exists() and any(place.iterdir()):
        raise InvalidValue(f"{place} exists already: choose another folder, nothing is overwritten")
    tables: dict[str, dict[str, Any]] = {name: {} for name in found.names}
    made = folders.write(found.document, tables, place, host=host, port=port, days=days)
    for name, path in found.public.items():
        target = made.coordinator / name
        target.parent.mkdir(exist_ok=True)
        _ = shutil.copytree(path, target) if path.is_dir() else shutil.copy(path, target)
    return made


def _show_folders(made: "DeployedFolders") -> None:
    output.print_rows([
        ("coordinator", f"{made.coordinator}: start with its README.md"),
        *((name, f"{folder}: for this site only") for name, folder in made.sites.items()),
        ("authority", f"{made.authority}: keep it offline"),
    ])  # fmt: skip


def _as_dict(made: "DeployedFolders") -> dict[str, Any]:
    return {
        "coordinator": str(made.coordinator),
        "sites": {name: str(folder) for name, folder in made.sites.items()},
        "authority": str(made.authority),
    }


def _warnings(made: "DeployedFolders", host: str) -> list[str]:
    """Return warnings for the author of the folders."""
    from tacit.deploy.certificates import is_this_machine
    from tacit.experiments import experiment
    from tacit.privacy.policy import Open

    chosen = experiment.read(made.coordinator / "experiment.toml")
    found = chosen.warnings()
    if is_this_machine(host):
        found.append(f"{host} means this machine only: give --host, the name under which sites reach it")
    if isinstance(chosen.privacy, Open) or chosen.privacy.rehearsal:
        what = "promises nothing" if isinstance(chosen.privacy, Open) else "is a rehearsal"
        found.append(
            f"the experiment {what}: sites refuse it unless they set epsilon = inf in their [limits]"
        )
    return found


def _rehearse(
    console: Console, file: Path, changes: list[str], sites: list[str], out: Path | None
) -> "RehearsalResult":
    """Start a whole federation on this machine, run an experiment on it, and stop it."""
    from tacit.deploy.coordinator.run import rehearse
    from tacit.experiments import experiment
    from tacit.reports.text import progress
    from tacit.runs.directory import place_for

    count = sites[0] if len(sites) == 1 else None
    if sites and (count is None or not count.isdecimal()):
        raise InvalidValue(f"--sites {','.join(sites)} is not allowed: a rehearsal takes a number of sites")
    name = experiment.read(file, changes).name
    place = out or place_for(Path("runs") / f"{name}-rehearsal", resume=False)
    many = None if count is None else int(count)
    with progress(quiet=console.quiet) as watcher:
        return rehearse(file, out=place, changes=changes, sites=many, told=console.log, callbacks=[watcher])


@site.command()
@verb()
def check(
    console: Console,
    folder: Folder,
    experiment: Annotated[
        Path | None, typer.Option(help="Experiment file that the coordinator proposes.")
    ] = None,
) -> None:
    """Check a site, and what an experiment would release.

    Reads the data, and releases nothing.
    """
    from tacit.deploy.site import preflight

    found = preflight.check(folder, experiment)
    ready = all(finding.ok for finding in found)
    console.answer(
        lambda: {"ready": ready, "findings": [vars(finding) for finding in found]},
        lambda: _show_findings(found),
    )
    console.log("the site is ready" if ready else "the site is not ready")
    if not ready:
        raise SystemExit(output.BAD_USAGE)


def _show_findings(findings: "list[CheckResult]") -> None:
    for finding in findings:
        output.say(f"{'ok' if finding.ok else 'NO':3} {escape(finding.what)}")
        if finding.mend:
            output.say(f"    {escape(finding.mend)}")


@site.command()
@verb(talks=False)
def serve(console: Console, folder: Folder) -> None:
    """Answer requests within the limits of the site.

    Runs the guard of the site until it is stopped.
    """
    from tacit.deploy.site.config import DOOR
    from tacit.deploy.site.guard import Guard, log
    from tacit.engines.flower import socket

    guard = Guard(folder)
    log(f"the guard of {guard.file.name} is running; it answers at {folder / DOOR}")
    socket.serve(str(folder / DOOR), guard.answer)


@site.command()
@verb()
def accept(
    console: Console,
    folder: Folder,
    experiment: Annotated[Path, typer.Argument(help="Experiment file that the coordinator proposes.")],
) -> None:
    """Accept the data rules of an experiment.

    The site reads its records by these rules only.
    """
    from tacit.deploy.site import config

    taken = config.accept(folder, experiment)
    shown = [(name, str(value)) for name, value in taken.items()]
    console.answer(lambda: {"agreed": taken}, lambda: output.print_rows(shown))
    console.log(f"written to {folder / 'site.toml'}; restart the guard")


@site.command()
@verb(talks=False)
def renew(console: Console, folder: Folder) -> None:
    """Make new keys on the site's machine.

    Prints the public line that the other sites need.
    """
    from tacit.deploy import folders

    output.say(folders.renew_keys(folder))
