"""Options that several verbs take."""

from typing import Annotated

import typer

Changes = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="TABLE.KEY=VALUE", help="Change a value of the file; may be repeated."),
]
Trust = Annotated[
    bool, typer.Option("--trust", help="Import code that a run's own folder names; that executes it.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print results only, no remarks.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show where an error came from.")]
