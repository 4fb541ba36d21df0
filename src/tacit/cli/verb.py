"""The frame of every verb: options that all of them take, and what turns errors into exit codes."""

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Concatenate, Literal, ParamSpec, cast

import typer

from tacit.cli import output

Options = ParamSpec("Options")
Changes = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="TABLE.KEY=VALUE", help="Change a value of the file; may be repeated."),
]
# Options that `verb` adds to each verb, in this order.
SHARED: Mapping[str, Any] = {
    "trust": Annotated[
        bool, typer.Option("--trust", help="Import code that a run's own folder names; that executes it.")
    ],
    "json": Annotated[bool, typer.Option("--json", help="Print one JSON document.")],
    "quiet": Annotated[bool, typer.Option("--quiet", "-q", help="Print results only, no remarks.")],
    "debug": Annotated[bool, typer.Option("--debug", help="Show where an error came from.")],
}


@dataclass(frozen=True)
class Console:
    """Output of a verb: results on stdout, as one document or for people, remarks on stderr.

    Args:
        json: Print the result as a document.
        quiet: Leave out remarks.
    """

    json: bool
    quiet: bool

    def answer(self, document: Callable[[], Mapping[str, Any]], show: Callable[[], None]) -> None:
        """Print the document of a result, or show the result to people."""
        output.print_document(document()) if self.json else show()

    def log(self, message: str) -> None:
        """Say something that is not a result."""
        output.log(message, quiet=self.quiet)


def verb(
    *, trust: Literal["never", "always", "if asked"] = "never", talks: bool = True
) -> Callable[[Callable[Concatenate[Console, Options], None]], Callable[..., None]]:
    """Make a verb of a function: pass it a console, and turn its errors into a sentence and an exit code.

    Args:
        trust: Import code that the directory of a run names; "if asked" adds `--trust`.
        talks: True if it takes `--json` and `--quiet`; every verb takes `--debug`.
    """
    shared = ["trust"] * (trust == "if asked") + ["json", "quiet"] * talks + ["debug"]

    def decorate(function: Callable[Concatenate[Console, Options], None]) -> Callable[..., None]:
        # Click knows which options it has read.
        work = cast(Callable[..., None], function)

        @functools.wraps(function)
        def command(**given: Any) -> None:
            asked: dict[str, bool] = {name: given.pop(name, False) for name in SHARED}
            trusted = trust == "always" or asked["trust"]
            with output.handle_errors(json=asked["json"], debug=asked["debug"], trust=trusted):
                work(Console(asked["json"], asked["quiet"]), **given)

        # Typer reads the options of a verb from its signature.
        _, *own = inspect.signature(function).parameters.values()
        more = [
            inspect.Parameter(
                name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=False, annotation=SHARED[name]
            )
            for name in shared
        ]
        command.__annotations__ = {one.name: one.annotation for one in (*own, *more)}
        vars(command)["__signature__"] = inspect.Signature([*own, *more])
        return command

    return decorate
