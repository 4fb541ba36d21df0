"""The verbs of real federations: what a coordinator does once, and what a site does on its own machine."""

from pathlib import Path
from typing import Annotated

import typer

from tacit.cli import output
from tacit.cli.options import Changes, Debug, Json, Quiet

site = typer.Typer(help="What a site does on its own machine.", no_args_is_help=True, rich_markup_mode=None)
Folder = Annotated[Path, typer.Argument(help="The site's own folder.")]


def deploy(
    file: Annotated[Path, typer.Argument(help="An experiment file.")],
    changes: Changes = None,
    sites: Annotated[
        str, typer.Option(help="The sites, separated by commas; for a rehearsal how many there are.")
    ] = "",
    host: Annotated[str, typer.Option(help="Where sites reach the coordinator.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="At which port.")] = 8443,
    days: Annotated[int, typer.Option(help="How long the coordinator's certificate is valid.")] = 365,
    out: Annotated[Path | None, typer.Option(help="Where to write; must not be there yet.")] = None,
    rehearse: Annotated[
        bool, typer.Option("--rehearse", help="Start all of it on this machine, run it, and stop it.")
    ] = False,
    json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Make a real federation of an experiment.

    A folder for the coordinator, and one for each site.
    """
    with output.handle_errors(json=json, debug=debug):
        from tacit.cli.verbs import deploy as deploying

        names = [name.strip() for name in sites.split(",") if name.strip()]
        if rehearse:
            done = deploying.rehearse(file, changes=changes or [], sites=names, out=out, quiet=quiet)
            output.print_document(done.as_dict()) if json else output.say(done.summary())
            output.log(f"saved {done.folder}", quiet=quiet)
            if not done.same:
                raise SystemExit(output.VERIFICATION_FAILED)
            return
        made = deploying.deploy(
            file, changes=changes or [], sites=names, host=host, port=port, days=days, out=out
        )
        output.print_document(deploying.deployment(made)) if json else deploying.show_deployment(made)
        for caution in deploying.deployment_warnings(made, host):
            output.log(f"warning: {caution}", quiet=quiet)


@site.command()
def check(
    folder: Folder,
    experiment: Annotated[Path | None, typer.Option(help="An experiment that the site is asked for.")] = None,
    json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Whether the site is ready, and what it would release; touches the data, lets nothing out."""
    with output.handle_errors(json=json, debug=debug):
        from tacit.cli.verbs import deploy as deploying

        found = deploying.check(folder, experiment)
        ready = all(finding.ok for finding in found)
        plain = {"ready": ready, "findings": [vars(finding) for finding in found]}
        output.print_document(plain) if json else deploying.show_check(found)
        output.log("the site is ready" if ready else "the site is not ready", quiet=quiet)
        if not ready:
            raise SystemExit(output.BAD_USAGE)


@site.command()
def serve(folder: Folder, debug: Debug = False) -> None:
    """Be the guard of a site: answer what its limits let through, until ended."""
    with output.handle_errors(json=False, debug=debug):
        from tacit.cli.verbs import deploy as deploying

        deploying.serve(folder)


@site.command()
def accept(
    folder: Folder,
    experiment: Annotated[Path, typer.Argument(help="An experiment that the site is asked for.")],
    json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Accept what an experiment says of the data: by these rules alone the records are read."""
    with output.handle_errors(json=json, debug=debug):
        from tacit.cli.verbs import deploy as deploying

        taken = deploying.accept(folder, experiment)
        shown = [(name, str(value)) for name, value in taken.items()]
        output.print_document({"agreed": taken}) if json else output.print_rows(shown)
        output.log(f"written to {folder / 'site.toml'}; restart the guard", quiet=quiet)


@site.command()
def renew(folder: Folder, debug: Debug = False) -> None:
    """Make new keys where the site lives, and print the line that others must have of them."""
    with output.handle_errors(json=False, debug=debug):
        from tacit.cli.verbs import deploy as deploying

        output.say(deploying.renew(folder))
