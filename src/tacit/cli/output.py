"""How the command talks: results on stdout, everything else on stderr, and exit codes that mean something."""

import shutil
import sys
import traceback
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tacit.errors import BudgetExhausted, LedgerTampered, TacitError
from tacit.reports.lines import folded
from tacit.reports.plain import finite
from tacit.reports.text import aligned, labelled

DONE, BUG, BAD_USAGE, BUDGET_REFUSED, VERIFICATION_FAILED, INTERRUPTED = 0, 1, 2, 3, 4, 130


@contextmanager
def guarded(*, json: bool, debug: bool) -> Generator[None]:
    """Turn what goes wrong in a verb into one sentence and an exit code; `--debug` adds the traceback."""
    try:
        yield
    except BrokenPipeError:
        # Whoever read our output has had enough, `head` for one.
        sys.stderr.close()
        raise SystemExit(DONE) from None
    except KeyboardInterrupt:
        _fail("Interrupted", "interrupted", INTERRUPTED, json=json, debug=debug)
    except TacitError as error:
        refused = BUDGET_REFUSED if isinstance(error, BudgetExhausted) else BAD_USAGE
        code = VERIFICATION_FAILED if isinstance(error, LedgerTampered) else refused
        _fail(type(error).__name__, str(error), code, json=json, debug=debug)
    except Exception as error:
        message = f"a bug of ours, {type(error).__name__}: {error}; run again with --debug and tell us"
        _fail(type(error).__name__, message, BUG, json=json, debug=debug)


def document(content: dict[str, Any]) -> None:
    """Print one JSON document; what is not finite becomes null."""
    import msgspec

    print(msgspec.json.format(msgspec.json.encode(finite(content)), indent=2).decode())


def failure(kind: str, message: str, code: int) -> None:
    """Print the document of something that went wrong."""
    document({"error": {"kind": kind, "message": message, "exit_code": code}})


def lines(rows: Sequence[tuple[str, str]]) -> None:
    """Print labelled lines, the labels in one column; folded for a terminal, one line each in a pipe."""
    print(labelled(rows, width=_width() if sys.stdout.isatty() else sys.maxsize))


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print an aligned table; columns of numbers to the right."""
    print(aligned(header, rows))


def paths(written: Iterable[Path]) -> None:
    """Print files, one on a line."""
    print("\n".join(str(path) for path in written))


def talk(message: str, *, quiet: bool) -> None:
    """Say something that is not a result."""
    if not quiet:
        print(message, file=sys.stderr)


def sentences(told: Iterable[str]) -> None:
    """Print sentences; folded for a terminal, one line each in a pipe."""
    for words in told:
        print(folded(words, width=_width(), indent="  ") if sys.stdout.isatty() else words)


def counted(number: int, what: str) -> str:
    """So many of something."""
    return f"{number:,} {what}{'s' * (number != 1)}"


def number(value: float | None) -> str:
    """A price for people: three decimals, or a dash where a theorem is silent."""
    if value is None:
        return "-"
    return f"{value:.4f}" if 1e-3 <= value < 1e5 else f"{value:.4g}"


def _fail(kind: str, message: str, code: int, *, json: bool, debug: bool) -> None:
    if debug:
        traceback.print_exc()
    if json:
        failure(kind, message, code)
    # Where to go on was said before.
    if kind != "Interrupted" or json:
        said = f"tacit: {message}"
        print(folded(said, width=_width(), whole=True) if sys.stderr.isatty() else said, file=sys.stderr)
    raise SystemExit(code)


def _width() -> int:
    return shutil.get_terminal_size().columns
