"""Output of the command: results on stdout, everything else on stderr, and meaningful exit codes.

Everything is printed through `say`: no control character of a file, a table or the command line reaches a
terminal, and a stream that cannot encode a character, or is closed, is no bug of ours.

`verb` is the frame of every verb: the options that all of them take, and errors as exit codes.
"""

import functools
import hashlib
import inspect
import os
import re
import shutil
import sys
import traceback
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Concatenate, Literal, ParamSpec, TextIO, cast

import typer

from tacit.errors import BudgetExhausted, InvalidValue, LedgerTampered, TacitError, escape, shorten
from tacit.reports.page.blocks import finite
from tacit.reports.text import align_table, format_rows, wrap_paragraph
from tacit.runtime import imports
from tacit.runtime.refusals import keep_traceback

DONE, BUG, BAD_USAGE, BUDGET_REFUSED, VERIFICATION_FAILED, INTERRUPTED = 0, 1, 2, 3, 4, 130
# Replacements of our non-ASCII characters, for terminals without them.
PLAIN = str.maketrans({"·": "-", "\u2013": "-", "\u2014": "-", "…": "...", "\xd7": "x", "≤": "<=", "≥": ">="})
# Characters that JSON does not escape and a terminal would obey.
_UNSEEN = re.compile("[\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


# Packages that are not installed with us, and what to install for them.
EXTRAS = {
    "gymnasium": "control", "Box2D": "control", "flwr": "flower", "onnx": "onnx", "sklearn": "maps",
    "umap": "maps", "mlflow": "mlflow", "tensorboard": "tensorboard", "torch": "torch", "pyarrow": "parquet",
}  # fmt: skip


class OutputLost(TacitError):
    """A result that could not be printed."""


@contextmanager
def handle_errors(*, json: bool, debug: bool, trust: bool = False) -> Generator[None]:
    """Turn an error in a verb into one sentence and an exit code; `--debug` adds the traceback.

    Args:
        json: True if the verb answers with a document.
        debug: Print the traceback.
        trust: Import code that a run's directory names; it is announced in any case.
    """
    try:
        with imports.trusting(trust), imports.announcing(lambda words: log(f"tacit: {words}", quiet=False)):
            yield
    except BrokenPipeError:
        # The reader has closed the pipe, `head` for one.
        _silence(sys.stdout)
        sys.stderr.close()
        raise SystemExit(DONE) from None
    except KeyboardInterrupt:
        _fail("Interrupted", "interrupted", INTERRUPTED, json=json, debug=debug)
    except TacitError as error:
        refused = BUDGET_REFUSED if isinstance(error, BudgetExhausted) else BAD_USAGE
        code = VERIFICATION_FAILED if isinstance(error, LedgerTampered) else refused
        _fail(type(error).__name__, str(error), code, json=json, debug=debug)
    except MemoryError:
        message = (
            "this machine does not have enough memory: reduce the size of the experiment, or use "
            "another machine"
        )
        _fail("MemoryError", message, BAD_USAGE, json=json, debug=debug)
    except OSError as error:
        # A file or a disk that does not do what it is asked for: nothing that we could mend.
        place = f"{error.filename} cannot be used: " if error.filename is not None else ""
        message = f"{place}{error.strerror or error}"
        _fail(type(error).__name__, message, BAD_USAGE, json=json, debug=debug)
    except ModuleNotFoundError as error:
        extra = EXTRAS.get((error.name or "").partition(".")[0])
        message = f"this needs {error.name}, which is not installed: pip install 'tacit[{extra}]'"
        code = BAD_USAGE if extra is not None else BUG
        _fail(type(error).__name__, message if extra else _bug(error), code, json=json, debug=debug)
    except Exception as error:
        kept = keep_traceback(error)
        # The message of a bug, and its traceback, may reveal records.
        _fail(type(error).__name__, _bug(error, kept), BUG, json=json, debug=debug and kept is None)


def print_document(content: Mapping[str, Any]) -> None:
    """Print one JSON document; numbers that are not finite become null."""
    import msgspec

    text = msgspec.json.format(msgspec.json.encode(finite(content)), indent=2).decode()
    encoding = sys.stdout.encoding or "utf-8"
    if not text.isascii() and encoding.lower().replace("-", "") != "utf8":
        # Every escape of JSON is ASCII.
        text = "".join(sign if sign.isascii() else _json_escape(sign) for sign in text)
    say(_UNSEEN.sub(lambda found: _json_escape(found[0]), text))


def print_failure(kind: str, message: str, code: int) -> None:
    """Print the document of something that went wrong."""
    print_document({"error": {"kind": kind, "message": message, "exit_code": code}})


def print_rows(rows: Sequence[tuple[str, str]]) -> None:
    """Print labeled lines, the labels in one column; folded for a terminal, one line each in a pipe."""
    shown = [(escape(label), escape(words)) for label, words in rows]
    say(format_rows(shown, width=_width() if sys.stdout.isatty() else sys.maxsize))


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print an aligned table; columns of numbers to the right."""
    say(align_table(header, [[escape(cell) for cell in row] for row in rows]))


def log(message: str, *, quiet: bool) -> None:
    """Say something that is not a result."""
    if not quiet and sys.stderr is not None:
        say(escape(message), sys.stderr)


def print_sentences(told: Iterable[str]) -> None:
    """Print sentences; folded for a terminal, one line each in a pipe."""
    for words in told:
        shown = escape(words)
        say(wrap_paragraph(shown, width=_width(), indent="  ") if sys.stdout.isatty() else shown)


def pluralise(number: int, what: str) -> str:
    """Format a number with its noun in the singular or plural."""
    return f"{number:,} {what}{'s' * (number != 1)}"


def format_price(value: float | None) -> str:
    """Format a price: three decimals, or a dash if a theorem gives no bound."""
    if value is None:
        return "-"
    return f"{value:.4f}" if 1e-3 <= value < 1e5 else f"{value:.4g}"


def say(text: str, stream: TextIO | None = None) -> None:
    """Print lines; every other character that a terminal would not show as itself is escaped.

    Args:
        text: The text to print.
        stream: The output stream; by default the standard output.

    Raises:
        BrokenPipeError: The reader has closed the pipe.
        OutputLost: It cannot be written; nothing more is tried there.
    """
    place: TextIO | None = sys.stdout if stream is None else stream
    if place is None:
        # Closed by the parent process.
        return
    shown = "\n".join(escape(line) for line in text.split("\n"))
    try:
        shown.encode(place.encoding or "utf-8")
    except UnicodeEncodeError:
        encoding = place.encoding or "utf-8"
        shown = shown.translate(PLAIN).encode(encoding, "backslashreplace").decode(encoding)
    try:
        print(shown, file=place, flush=True)
    except BrokenPipeError:
        raise
    except OSError as error:
        _silence(place)
        raise OutputLost(f"the output cannot be written: {error.strerror or error}") from error


def _silence(stream: TextIO | None) -> None:
    """Redirect a closed stream to nowhere, so that it does not fail again at exit."""
    with suppress(OSError, ValueError, AttributeError):
        assert stream is not None
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


def _json_escape(sign: str) -> str:
    """Escape a character as JSON does."""
    pair = sign.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{pair[place : place + 2].hex()}" for place in range(0, len(pair), 2))


def _bug(error: Exception, kept: str | None = None) -> str:
    words = f"{error}; run again with --debug, and report it" if kept is None else f"{kept}; tell us"
    return f"a bug of ours, {type(error).__name__}: {words}"


def _fail(kind: str, message: str, code: int, *, json: bool, debug: bool) -> None:
    message = shorten(message)
    if debug:
        traceback.print_exc()
    if json:
        with suppress(OSError, OutputLost):
            print_failure(kind, message, code)
    # The way to resume was printed before.
    if kind != "Interrupted" or json:
        said = f"tacit: {message}"
        with suppress(OSError, OutputLost):
            say(wrap_paragraph(said, width=_width(), whole=True) if sys.stderr.isatty() else said, sys.stderr)
    raise SystemExit(code)


def _width() -> int:
    return shutil.get_terminal_size().columns


Options = ParamSpec("Options")
Changes = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="TABLE.KEY=VALUE", help="Change a value of the file; may be repeated."),
]
# Options that `verb` adds to each verb, in this order.
SHARED: Mapping[str, Any] = {
    "trust": Annotated[
        bool,
        typer.Option("--trust", help="Import code that a run's own folder names; importing executes it."),
    ],
    "json": Annotated[bool, typer.Option("--json", help="Print one JSON document.")],
    "quiet": Annotated[bool, typer.Option("--quiet", "-q", help="Print results only, no messages.")],
    "debug": Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")],
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
        print_document(document()) if self.json else show()

    def log(self, message: str) -> None:
        """Say something that is not a result."""
        log(message, quiet=self.quiet)


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
            with handle_errors(json=asked["json"], debug=asked["debug"], trust=trusted):
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


def under_runs(file: Path, name: str, read: str, *, resume: bool) -> Path:
    """Return the directory of a run under `runs`, by its name and a fingerprint of its options.

    The same experiment twice gives two directories; resuming takes the last one.
    """
    from tacit.runs.directory import place_for

    if file.is_dir():
        return file
    choices = hashlib.sha256(read.encode()).hexdigest()[:6]
    place = place_for(Path("runs") / f"{name}-{choices}", resume=resume)
    if resume and not place.is_dir():
        raise InvalidValue(
            "--resume is not allowed here: there is no run of this experiment yet; leave it out"
        )
    return place
