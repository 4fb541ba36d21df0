"""The verbs of what is shown, put to the test and handed on: reports, sweeps, audits and exports."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from tacit.cli import output
from tacit.cli.options import Changes, Debug, Json, Quiet, Trust


def report(
    runs: Annotated[list[Path], typer.Argument(help="Directories of runs; several are compared.")],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Where to write: .html, .md or .json; in the run by default."),
    ] = None,
    dpia: Annotated[
        bool, typer.Option("--dpia", help="Write a data-protection summary, for an officer to file.")
    ] = False,
    trust: Trust = False,
    json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """One file to look at, to mail, to print.

    What was promised, what left the sites, what came of it.
    """
    with output.handle_errors(json=json, debug=debug, trust=trust):
        from tacit.cli.verbs import report as reporting
        from tacit.cli.verbs import tools

        written = reporting.report(runs, out=out, dpia=dpia)
        output.print_document({"report": str(written)}) if json else output.say(str(written))
        tools.require_sound(runs)


def sweep(
    file: Annotated[
        Path, typer.Argument(help="An experiment file, or the directory of a sweep to go on with.")
    ],
    changes: Changes = None,
    seeds: Annotated[
        int | None, typer.Option(help="How many seeds each value is run with; 3 if not said.")
    ] = None,
    workers: Annotated[int | None, typer.Option(help="How many processes share the work.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="The directory of the sweep; under runs/ by default.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with what was cut off, as it does anyway.")
    ] = False,
    json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """What privacy costs, at several values.

    Such as --set privacy.epsilon=1,3,inf, each with several seeds.
    """
    with output.handle_errors(json=json, debug=debug, trust=True):
        from tacit.cli.verbs import sweep as sweeping

        done = sweeping.sweep(file, changes=changes or [], seeds=seeds, workers=workers, out=out, quiet=quiet)
        output.print_document(done.as_dict()) if json else sweeping.show_sweep(done)
        output.log(f"saved {done.path}", quiet=quiet)
        if done.futile:
            raise SystemExit(output.BAD_USAGE)


class AuditPart(StrEnum):
    """What an audit consists of."""

    MECHANISMS = "mechanisms"
    RUN = "run"
    ATTACKS = "attacks"


def audit(
    file: Annotated[Path, typer.Argument(help="An experiment file, or the directory of a run.")],
    changes: Changes = None,
    canaries: Annotated[
        int | None, typer.Option(help="How many canaries are put into the run; 20,000 if not said.")
    ] = None,
    shadows: Annotated[
        int | None, typer.Option(help="How many models an attacker trains to compare with; 16 if not said.")
    ] = None,
    confidence: Annotated[float, typer.Option(help="With which all bounds together are to hold.")] = 0.95,
    skip: Annotated[list[AuditPart] | None, typer.Option(help="What to leave out; may be repeated.")] = None,
    seed: Annotated[int, typer.Option(help="What canaries and halves are drawn by.")] = 0,
    out: Annotated[
        Path | None, typer.Option(help="The directory of the audit; the run, or under runs/ by default.")
    ] = None,
    trust: Trust = False,
    json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Attack our own promise: a lower bound beside the claim.

    Exits with 4 if the promise is found broken.
    """
    with output.handle_errors(json=json, debug=debug, trust=trust):
        from tacit.cli.verbs import audit as auditing

        wanted = {"canaries": canaries, "shadows": shadows, "confidence": confidence, "seed": seed}
        chosen = {name: value for name, value in wanted.items() if value is not None}
        left_out = [part.value for part in skip or []]
        done = auditing.audit(file, changes or [], out, {**chosen, "skip": left_out}, quiet=quiet)
        output.print_document(done.as_dict()) if json else auditing.show_audit(done)
        output.log(f"report {done.path}/report.html", quiet=quiet)
        if done.kept is False:
            raise SystemExit(output.VERIFICATION_FAILED)


def export(
    run: Annotated[Path, typer.Argument(help="The directory of a run.")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The folder to write to; export in the run by default.")
    ] = None,
    onnx: Annotated[bool, typer.Option("--onnx", help="Write the network as ONNX as well.")] = False,
    trust: Trust = False,
    json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """The model for other programs.

    Its weights, a card that says what they mean, and a card for people.
    """
    with output.handle_errors(json=json, debug=debug, trust=trust):
        from tacit.cli.verbs import export as exporting
        from tacit.cli.verbs import tools

        written = exporting.export(run, out, onnx)
        output.print_document({"files": [str(path) for path in written]}) if json else output.print_paths(
            written
        )
        tools.require_sound([run])
