"""SQLite file of a ledger: opening, append-only triggers, and error messages.

The only door to `sqlite3`. It knows rows, not releases.
"""

import os
import sqlite3
from collections.abc import Generator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Literal

from tacit.errors import LedgerError, LedgerTampered, LedgerUnusable, TacitError
from tacit.runtime import files

# Marks the file as ours in the SQLite header: the letters TACT.
APPLICATION = 0x54414354
WAIT_SECONDS = 60

SCHEMA = (
    f"PRAGMA application_id = {APPLICATION}",
    "CREATE TABLE entries (number INTEGER PRIMARY KEY, body TEXT NOT NULL, hash BLOB NOT NULL)"
    " STRICT, WITHOUT ROWID",
    "CREATE TRIGGER stay BEFORE UPDATE ON entries BEGIN SELECT RAISE(ABORT, 'append-only'); END",
    "CREATE TRIGGER remain BEFORE DELETE ON entries BEGIN SELECT RAISE(ABORT, 'append-only'); END",
    "CREATE TRIGGER follow BEFORE INSERT ON entries"
    " WHEN NEW.number <= (SELECT coalesce(max(number), 0) FROM entries)"
    " BEGIN SELECT RAISE(ABORT, 'append-only'); END",
)


def connect(path: Path | None, mode: Literal["write", "read"]) -> sqlite3.Connection:
    """Open the file of a ledger, or one in memory, without reading it."""
    if path is None:
        return _as_written(sqlite3.connect(":memory:", isolation_level=None))
    # Of links that lead nowhere it makes a path, where `resolve` ends with an error of its own.
    path = Path(os.path.realpath(path))
    files.require_regular(path, "-journal", "-wal", "-shm")  # SQLite would wait for a named pipe.
    if mode == "read" and not path.is_file():
        raise LedgerUnusable("there is no such file")
    if mode == "write" and not path.parent.is_dir():
        raise LedgerUnusable(f"the folder {path.parent} does not exist")
    if mode == "read" and path.with_name(path.name + "-journal").exists():
        # A writer was killed: only a connection that may write can undo its unfinished charge.
        with suppress(sqlite3.Error), closing(sqlite3.connect(path, timeout=WAIT_SECONDS)) as connection:
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    address = f"{path.absolute().as_uri()}?mode={'ro' if mode == 'read' else 'rwc'}"
    connection = sqlite3.connect(address, uri=True, timeout=WAIT_SECONDS, isolation_level=None)
    try:
        # Durable before `charge` returns: the file, and the folder that holds its journal.
        connection.execute("PRAGMA synchronous = EXTRA")
    except BaseException:
        connection.close()
        raise
    return _as_written(connection)


def _as_written(connection: sqlite3.Connection) -> sqlite3.Connection:
    # Bytes as they lie in the file: a damaged row is judged by its hash, not by whether it decodes.
    connection.text_factory = bytes
    return connection


def damage(connection: sqlite3.Connection, path: Path | None) -> list[str]:
    """Return the damage of a file beyond its hashes: inconsistent pages, changed or missing triggers."""
    checked = [row[0].decode() for row in connection.execute("PRAGMA integrity_check")]
    found = {row[0].decode() for row in connection.execute("SELECT sql FROM sqlite_master")}
    guards = [] if found == set(SCHEMA[1:]) else ["the table and its guards were changed"]
    return [problem for problem in checked if problem != "ok"] + guards + _missing(connection, path)


def _missing(connection: sqlite3.Connection, path: Path | None) -> list[str]:
    """Return the bytes missing after the file's end: SQLite reads zeros there, which may fit."""
    if path is None:
        return []
    (pages,), (size,) = (
        connection.execute(f"PRAGMA {name}").fetchone() for name in ("page_count", "page_size")
    )
    short = pages * size - path.stat().st_size
    return [f"the file ends {short} bytes early"] if short > 0 else []


@contextmanager
def explain_errors(path: Path | None, verb: str) -> Generator[None]:
    """Translate SQLite errors: name the ledger, and whether it is damaged."""
    name = str(path) if path is not None else "in memory"
    try:
        yield
    except LedgerError as error:
        raise type(error)(f"ledger {name} cannot be {verb}: {error}") from error
    except (OSError, UnicodeError, ValueError) as error:
        if isinstance(error, TacitError):
            raise
        # SQLite cannot even say what is wrong with a damaged schema when the damage is in its text.
        kind = LedgerTampered if isinstance(error, UnicodeError) else LedgerUnusable
        raise kind(f"ledger {name} cannot be {verb}: {error}") from error
    except sqlite3.Error as error:
        damaged = getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_CORRUPT
        kind = LedgerTampered if damaged else LedgerUnusable
        raise kind(f"ledger {name} cannot be {verb}: {error}") from error
