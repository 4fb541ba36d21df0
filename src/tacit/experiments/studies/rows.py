"""The rows of a study on disk: one line each, so that what is finished is not done again."""

import os
from collections.abc import Iterable
from typing import Any

import msgspec

from tacit.errors import RunUnusable
from tacit.experiments.studies.base import CellKind, Row, Study
from tacit.runs.directory import Directory
from tacit.runtime import files

CELLS = "cells.jsonl"


def rows_of(study: Study[CellKind], directory: Directory) -> dict[CellKind, Row]:
    """What a directory knows of each cell; a line that cannot be read does not count."""
    found: dict[CellKind, Row] = {}
    for line in (directory.read(CELLS) or b"").splitlines():
        try:
            row = msgspec.json.decode(line, type=dict[str, Any])
        except msgspec.MsgspecError:
            continue
        found[study.cell_of(row)] = row
    return found


def rewrite(directory: Directory, rows: Iterable[Row]) -> None:
    """Begin the list anew with what is known: a line that was cut off is gone."""
    lines = [msgspec.json.encode(row) + b"\n" for row in rows]
    directory.write(CELLS, b"".join(lines))


def append(directory: Directory, row: Row) -> None:
    """Add a row to the list, on disk."""
    place = directory.file(CELLS)
    if place is None:
        return
    try:
        with files.open_to_append(place) as stream:
            stream.write(msgspec.json.encode(row) + b"\n")
            stream.flush()
            os.fsync(stream.fileno())
    except OSError as error:
        raise RunUnusable(
            f"run {directory.path} cannot be written: {CELLS}: {error.strerror}; what was written before is "
            "intact"
        ) from error
