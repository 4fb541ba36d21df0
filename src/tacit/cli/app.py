"""The `tacit` command: its verbs in the order of its help, and its errors for unknown words.

`tacit --help` imports neither torch nor scipy: what a verb needs is loaded once it runs.
"""

import io
import sys
from collections.abc import Callable, Mapping
from typing import Annotated, NoReturn

import click
import typer
import typer.core

from tacit.cli import output
from tacit.cli.verbs import deploy, ledger, plan, run, show
from tacit.errors import shorten

# Help is plain text: versions that find rich write its brackets as rich wants them.
typer.core.HAS_RICH = False

app = typer.Typer(
    help="Train models across sites that may not pool their data, and state the price in privacy.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
VERBS: Mapping[str, Callable[..., None]] = {
    "privacy": plan.privacy,
    "plan": plan.plan,
    "new": plan.new,
    "run": run.run,
    "tune": run.tune,
    "show": show.show,
    "list": plan.list_choices,
    "ledger": ledger.ledger,
    "report": show.report,
    "sweep": run.sweep,
    "audit": show.audit,
    "export": show.export,
    "deploy": deploy.deploy,
}
for name, function in VERBS.items():
    app.command(name)(function)
app.add_typer(deploy.site, name="site")


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
    """Train models across sites that may not pool their data, and state the price in privacy."""


def main() -> None:
    """Run the command; with `--json`, a usage error is a document as well."""
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
    """Report a usage error, and exit."""
    said = error.format_message()
    if "--json" in sys.argv:
        output.print_failure("UsageError", said, error.exit_code)
    shown = io.StringIO()
    error.show(shown)
    # Words of the command line may hold anything.
    output.say(shown.getvalue().rstrip("\n").replace(said, shorten(said)), sys.stderr)
    raise SystemExit(error.exit_code)
