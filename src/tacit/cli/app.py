"""The verbs of the `tacit` command: options and nothing else.

`tacit --help` imports neither torch nor scipy; what a verb needs is loaded in `commands` once it runs.
"""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
import typer.core

from tacit.cli import output

# Help is plain text: versions that find rich write its brackets as rich wants them.
typer.core.HAS_RICH = False

app = typer.Typer(
    help="Train models across sites that may not pool their data, and say what privacy that cost.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


class RelationWord(StrEnum):
    """What neighbouring data sets differ in."""

    ADD_REMOVE = "add-remove"
    REPLACE = "replace"


class MechanismWord(StrEnum):
    """The noise."""

    GAUSSIAN = "gaussian"
    LAPLACE = "laplace"


class Workload(StrEnum):
    """What an experiment file is for."""

    SURVIVAL = "survival"
    FUNCTIONAL = "functional"
    CONTROL = "control"


class Choices(StrEnum):
    """What there is to choose from."""

    TASKS = "tasks"
    DATA = "data"
    SPLITS = "splits"
    AGGREGATORS = "aggregators"
    ATTACKS = "attacks"


Changes = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="TABLE.KEY=VALUE", help="Change a value of the file; may be repeated."),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print results only, no remarks.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show where an error came from.")]


def _print_version(wanted: bool) -> None:
    if wanted:
        import tacit

        print(f"tacit {tacit.__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Train models across sites that may not pool their data, and say what privacy that cost."""


@app.command()
def privacy(
    epsilon: Annotated[float | None, typer.Option(help="What it may cost; the answer is the noise.")] = None,
    noise_multiplier: Annotated[
        float | None, typer.Option(help="Noise in units of the clip bound; the answer is epsilon.")
    ] = None,
    delta: Annotated[float, typer.Option(help="The probability with which the promise may fail.")] = 1e-5,
    steps: Annotated[int, typer.Option(help="How many releases.")] = 1,
    rate: Annotated[
        float, typer.Option(help="Probability of the secret draw by which each unit joins a step.")
    ] = 1.0,
    relation: Annotated[
        RelationWord, typer.Option(help="What neighbours differ in.")
    ] = RelationWord.ADD_REMOVE,
    mechanism: Annotated[MechanismWord, typer.Option(help="The noise.")] = MechanismWord.GAUSSIAN,
    json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """The calculator: noise from epsilon, or epsilon from noise, beside other composition theorems."""
    with output.guarded(json=json, debug=debug):
        from tacit.cli import commands

        answer = commands.price(
            epsilon=epsilon,
            noise_multiplier=noise_multiplier,
            delta=delta,
            steps=steps,
            rate=rate,
            relation=relation.value,
            mechanism=mechanism.value,
        )
        output.document(answer) if json else commands.show_price(answer)


@app.command()
def plan(
    file: Annotated[Path, typer.Argument(help="An experiment file.")],
    changes: Changes = None,
    json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """What an experiment promises and costs, and why it may be refused; touches no data."""
    with output.guarded(json=json, debug=debug):
        from tacit.cli import planning

        name, made, sentences = planning.plan(file, changes or [])
        output.talk(f"plan of {name}", quiet=quiet)
        output.document(made) if json else planning.show_plan(made, sentences)


@app.command()
def new(
    workload: Annotated[Workload, typer.Argument(help="What for.")],
    json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Write a commented experiment file that runs as it is; never overwrites."""
    with output.guarded(json=json, debug=debug):
        from tacit.cli import commands

        written = commands.new(workload.value)
        output.document({"file": str(written)}) if json else print(written)
        output.talk(f"next: tacit plan {written}, then tacit run {written}", quiet=quiet)


@app.command()
def run(
    file: Annotated[
        Path,
        typer.Argument(
            help="An experiment file, a coordinator's folder, or the directory of a run to resume."
        ),
    ],
    changes: Changes = None,
    out: Annotated[
        Path | None, typer.Option(help="The directory of the run; under runs/ by default.")
    ] = None,
    engine: Annotated[
        str | None, typer.Option(help="Where it runs: local, or flower from a coordinator's folder.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a run that was cut off.")] = False,
    json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Run an experiment; never spends past its budget."""
    with output.guarded(json=json, debug=debug):
        from tacit.cli import commands

        chosen = [*(changes or []), *([] if engine is None else [f"engine.kind={engine}"])]
        done = commands.run(file, changes=chosen, out=out, resume=resume, quiet=quiet)
        output.document(done.as_dict()) if json else print(done.summary())
        output.talk(f"saved {done.path}", quiet=quiet)
        if getattr(done, "futile", False):
            raise typer.Exit(2)


@app.command()
def tune(
    file: Annotated[
        Path, typer.Argument(help="An experiment file with a table [tune], or a tuning to resume.")
    ],
    changes: Changes = None,
    out: Annotated[
        Path | None, typer.Option(help="The directory of the tuning; under runs/ by default.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a tuning that was cut off.")] = False,
    json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Choose among a few candidates; all of them and the choice within one promise."""
    with output.guarded(json=json, debug=debug):
        from tacit.cli import commands

        done = commands.tune(file, changes=changes or [], out=out, resume=resume, quiet=quiet)
        output.document(done.as_dict()) if json else commands.show_tuning(done)
        output.talk(f"saved {done.path}", quiet=quiet)


@app.command()
def show(
    runs: Annotated[list[Path], typer.Argument(help="Directories of runs.")],
    json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """The summary of a run; several side by side."""
    with output.guarded(json=json, debug=debug):
        from tacit.cli import commands

        found, text = commands.show(runs)
        output.document({"runs": found}) if json else print(text)


@app.command("list")
def list_choices(
    what: Annotated[Choices, typer.Argument(help="Of what.")],
    json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """What there is to choose from, each with one line."""
    with output.guarded(json=json, debug=debug):
        from tacit.cli import commands

        found = commands.listing(what.value)
        output.document(found) if json else commands.show_listing(found)


@app.command()
def ledger(
    path: Annotated[Path, typer.Argument(help="A ledger file.")],
    verify: Annotated[
        bool, typer.Option("--verify", help="Check the file, every hash and the price.")
    ] = False,
    delta: Annotated[
        float | None, typer.Option(help="Price it at this delta instead of its budget's.")
    ] = None,
    json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Every release on a ledger and what it cost up to there."""
    with output.guarded(json=json, debug=debug):
        from tacit.cli import commands

        if not verify:
            found = commands.account(path, delta)
            output.document(found) if json else commands.show_account(found)
            return
        found = commands.verify(path, delta)
        output.document(found) if json else commands.show_verification(found)
        if not found["valid"]:
            output.talk(f"tacit: ledger {path} does not verify", quiet=quiet)
            raise SystemExit(output.VERIFICATION_FAILED)


site = typer.Typer(help="What a site does on its own machine.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(site, name="site")
Folder = Annotated[Path, typer.Argument(help="The site's own folder.")]


@app.command()
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
    """Make a real federation of an experiment: a folder for the coordinator, and one for each site."""
    with output.guarded(json=json, debug=debug):
        from tacit.cli import deploying

        names = [name.strip() for name in sites.split(",") if name.strip()]
        if rehearse:
            done = deploying.rehearse(file, changes=changes or [], sites=names, out=out, quiet=quiet)
            output.document(done.as_dict()) if json else print(done.summary())
            output.talk(f"saved {done.folder}", quiet=quiet)
            if not done.same:
                raise SystemExit(output.VERIFICATION_FAILED)
            return
        made = deploying.deploy(
            file, changes=changes or [], sites=names, host=host, port=port, days=days, out=out
        )
        output.document(deploying.deployment(made)) if json else deploying.show_deployment(made)
        for caution in deploying.cautions(made, host):
            output.talk(f"warning: {caution}", quiet=quiet)


@site.command()
def check(
    folder: Folder,
    experiment: Annotated[Path | None, typer.Option(help="An experiment that the site is asked for.")] = None,
    json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Whether the site is ready, and what it would release; touches the data, lets nothing out."""
    with output.guarded(json=json, debug=debug):
        from tacit.cli import deploying

        found = deploying.check(folder, experiment)
        ready = all(finding.ok for finding in found)
        plain = {"ready": ready, "findings": [vars(finding) for finding in found]}
        output.document(plain) if json else deploying.show_check(found)
        output.talk("the site is ready" if ready else "the site is not ready", quiet=quiet)
        if not ready:
            raise SystemExit(output.BAD_USAGE)


@site.command()
def serve(folder: Folder, debug: Debug = False) -> None:
    """Be the guard of a site: answer what its limits let through, until ended."""
    with output.guarded(json=False, debug=debug):
        from tacit.cli import deploying

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
    with output.guarded(json=json, debug=debug):
        from tacit.cli import deploying

        taken = deploying.accept(folder, experiment)
        shown = [(name, str(value)) for name, value in taken.items()]
        output.document({"agreed": taken}) if json else output.lines(shown)
        output.talk(f"written to {folder / 'site.toml'}; restart the guard", quiet=quiet)


@site.command()
def renew(folder: Folder, debug: Debug = False) -> None:
    """Make new keys where the site lives, and print the line that others must have of them."""
    with output.guarded(json=False, debug=debug):
        from tacit.cli import deploying

        print(deploying.renew(folder))


def main() -> None:
    """Run the command."""
    app()
