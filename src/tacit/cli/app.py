"""The verbs of the `tacit` command: options and nothing else.

`tacit --help` imports neither torch nor scipy; what a verb needs is loaded in `commands` once it runs.
"""

import io
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, NoReturn

import click
import typer
import typer.core

from tacit.cli import app_deploy, app_report, output
from tacit.cli.options import Changes, Debug, Json, Quiet, Trust
from tacit.errors import shorten

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


class ListTopic(StrEnum):
    """What there is to choose from."""

    TASKS = "tasks"
    DATA = "data"
    SPLITS = "splits"
    AGGREGATORS = "aggregators"
    ATTACKS = "attacks"


def _print_version(wanted: bool) -> None:
    if wanted:
        import tacit

        output.say(f"tacit {tacit.__version__}")
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
    """Noise from epsilon, or epsilon from noise.

    Beside it stands what other composition theorems would say.
    """
    with output.handle_errors(json=json, debug=debug):
        from tacit.cli.verbs import tools

        answer = tools.price(
            epsilon=epsilon,
            noise_multiplier=noise_multiplier,
            delta=delta,
            steps=steps,
            rate=rate,
            relation=relation.value,
            mechanism=mechanism.value,
        )
        output.print_document(answer) if json else tools.show_price(answer)


@app.command()
def plan(
    file: Annotated[Path, typer.Argument(help="An experiment file.")],
    changes: Changes = None,
    trust: Trust = False,
    json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """What an experiment promises and costs.

    And why it would be refused. Touches no data.
    """
    with output.handle_errors(json=json, debug=debug, trust=trust):
        from tacit.cli.verbs import plan as planning

        name, made, sentences = planning.plan(file, changes or [])
        output.log(f"plan of {name}", quiet=quiet)
        output.print_document(made) if json else planning.show_plan(made, sentences)


@app.command()
def new(
    workload: Annotated[Workload, typer.Argument(help="What for.")],
    json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Write a commented file that runs as it is.

    Never overwrites.
    """
    with output.handle_errors(json=json, debug=debug):
        from tacit.cli.verbs import tools

        written = tools.new(workload.value)
        output.print_document({"file": str(written)}) if json else output.say(str(written))
        output.log(f"next: tacit plan {written}, then tacit run {written}", quiet=quiet)


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
    watch: Annotated[
        bool, typer.Option("--watch", help="Serve the report on this machine while the run goes on.")
    ] = False,
    port: Annotated[int, typer.Option(help="Where to serve it; 0 for any port that is free.")] = 0,
    json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Run an experiment; never spends past its budget."""
    with output.handle_errors(json=json, debug=debug, trust=True):
        from tacit.cli.verbs import run as running

        chosen = [*(changes or []), *([] if engine is None else [f"engine.kind={engine}"])]
        page = port if watch else None
        done = running.run(file, changes=chosen, out=out, resume=resume, quiet=quiet, watch=page)
        output.print_document(done.as_dict()) if json else output.say(done.summary())
        output.log(f"saved {done.path}", quiet=quiet)
        if done.path is not None and (report := done.path / "report.html").is_file():
            output.log(f"report {report}", quiet=quiet)
        if getattr(done, "futile", False):
            raise SystemExit(output.BAD_USAGE)


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
    """Choose among candidates within one promise.

    All of them, and the choice, are paid for together.
    """
    with output.handle_errors(json=json, debug=debug, trust=True):
        from tacit.cli.verbs import run as running

        done = running.tune(file, changes=changes or [], out=out, resume=resume, quiet=quiet)
        output.print_document(done.as_dict()) if json else running.show_tuning(done)
        output.log(f"saved {done.path}", quiet=quiet)


@app.command()
def show(
    runs: Annotated[list[Path], typer.Argument(help="Directories of runs.")],
    trust: Trust = False,
    json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """The summary of a run; several side by side."""
    with output.handle_errors(json=json, debug=debug, trust=trust):
        from tacit.cli.verbs import tools

        found, text = tools.show(runs)
        output.print_document({"runs": found}) if json else output.say(text)
        tools.require_sound(runs)


@app.command("list")
def list_choices(
    what: Annotated[ListTopic, typer.Argument(help="Of what.")],
    json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """What there is to choose from, each with one line."""
    with output.handle_errors(json=json, debug=debug):
        from tacit.cli.verbs import tools

        found = tools.listing(what.value)
        output.print_document(found) if json else tools.show_listing(found)


@app.command()
def ledger(
    path: Annotated[
        Path, typer.Argument(help="A ledger file, the directory of a run, or a file of data for its book.")
    ],
    verify: Annotated[
        bool, typer.Option("--verify", help="Check the file, every hash and the price.")
    ] = False,
    delta: Annotated[
        float | None, typer.Option(help="Price it at this delta instead of its budget's.")
    ] = None,
    lifetime: Annotated[
        float | None,
        typer.Option(help="Of a file of data: the epsilon, at --delta, that all runs on it may cost."),
    ] = None,
    json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Every release on a ledger and what it cost up to there."""
    with output.handle_errors(json=json, debug=debug):
        from tacit.cli.verbs import data_ledger, tools

        if data_ledger.is_data(path):
            data_ledger.show(path, lifetime=lifetime, delta=delta, verify=verify, json=json)
            return
        data_ledger.require_no_lifetime(path, lifetime)
        path = path / "ledger.db" if path.is_dir() else path
        if not verify:
            from tacit.privacy.ledger.view import account

            found = account(path, delta)
            output.print_document(found) if json else tools.show_account(found)
            tools.require_sound_ledger(path)
            return
        found = tools.verify(path, delta)
        output.print_document(found) if json else tools.show_verification(found)
        if not found["valid"]:
            output.log(f"tacit: ledger {path} does not verify", quiet=quiet)
            raise SystemExit(output.VERIFICATION_FAILED)


app.command()(app_report.report)
app.command()(app_report.sweep)
app.command()(app_report.audit)
app.command()(app_report.export)
app.command()(app_deploy.deploy)
app.add_typer(app_deploy.site, name="site")


def main() -> None:
    """Run the command; with `--json`, a wrong word is answered by a document as well."""
    for stream in (sys.stdout, sys.stderr):
        # Whatever a terminal cannot show is written by its escape.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    with output.handle_errors(json="--json" in sys.argv, debug=False):
        try:
            raise SystemExit(app(standalone_mode=False))
        except click.ClickException as error:
            _show_usage(error)
        except click.Abort:
            raise SystemExit(output.INTERRUPTED) from None


def _show_usage(error: click.ClickException) -> NoReturn:
    """Say what is wrong with the words of a command, and end."""
    said = error.format_message()
    if "--json" in sys.argv:
        output.print_failure("UsageError", said, error.exit_code)
    shown = io.StringIO()
    error.show(shown)
    # Words of the command line may hold anything.
    output.say(shown.getvalue().rstrip("\n").replace(said, shorten(said)), sys.stderr)
    raise SystemExit(error.exit_code)
