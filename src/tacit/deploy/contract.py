"""From an experiment file to what sites on machines of their own are asked for: what is agreed, not where.

A file whose data are held by sites is such a contract already. One that names a table of
records says nearly all of it: only where they are is left to the sites. No record goes into it.
"""

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from tacit.errors import InvalidFile, InvalidValue, Refused
from tacit.experiment import Experiment, read
from tacit.reading import Table, set_value
from tacit.sites.splits import ByColumn
from tacit.sites.tables import read as read_table
from tacit.survival.sources import Csv

# Where the coordinator has files that everybody may see.
PUBLIC = "public"
# What a table of records says that is agreed among sites.
RULES = ("time", "event", "entry", "weight", "cause", "levels", "fill", "center", "scale", "test")


@dataclass(frozen=True)
class Contract:
    """What sites are asked for.

    Args:
        document: The document of the deployed experiment.
        names: Who takes part.
        public: Files of public records for the coordinator, by what the document calls them.
    """

    document: Table
    names: tuple[str, ...]
    public: dict[str, Path]


def contracted(file: Path, changes: Sequence[str], sites: Sequence[str]) -> Contract:
    """What sites on machines of their own are asked for by an experiment file.

    Args:
        file: The experiment file.
        changes: What to change in it.
        sites: The sites, where the file does not name them.

    Raises:
        InvalidFile: The file is no experiment.
        Refused: Sites could not hold such data, and what to write instead.
    """
    experiment = read(file, changes)
    document = tomllib.loads(file.read_text(encoding="utf-8"))
    for change in changes:
        set_value(document, change)
    document = {**document, **_agreed(experiment, sites)}
    engine = cast(Table, document.get("engine", {}))
    document |= {"baselines": False, "engine": {**engine, "kind": "flower"}}
    _refuse_own(document)
    names = tuple(document["sites"].get("names") or document["sites"].get("parties") or ())
    if sites and sorted(sites) != sorted(names):
        raise InvalidValue(f"--sites {','.join(sites)} is not allowed: the file names {', '.join(names)}")
    if not names:
        raise InvalidValue("--sites is missing: name the sites that take part, separated by commas")
    public = {f"{PUBLIC}/{path.name}": path for path in _files(experiment)}
    held = cast(Table, document["data"])
    for name, path in public.items():
        document["data"] = held = {
            key: name if _is(value, path, file) else value for key, value in held.items()
        }
    return Contract(document, names, public)


def _files(experiment: Experiment) -> list[Path]:
    """The files that the coordinator has for itself."""
    given = [getattr(experiment.data, name, None) for name in ("test", "reference")]
    return [Path(path) for path in given if isinstance(path, str)]


def _is(value: object, path: Path, file: Path) -> bool:
    """Whether a value of the document names a file."""
    return isinstance(value, str) and (file.resolve().parent / value).resolve() == path.resolve()


def _agreed(experiment: Experiment, sites: Sequence[str]) -> dict[str, Table]:
    """The tables [data] and [sites], where they are not such that sites hold the data already."""
    data = experiment.data
    named: Table = {"kind": "named", "names": list(sites)}
    if getattr(data, "distant", False):
        return {}
    if isinstance(data, Csv):
        column = experiment.sites.column if isinstance(experiment.sites, ByColumn) else data.site
        return {"data": _held_records(data, column), "sites": named}
    raise Refused(
        f"[data] kind = {data.kind!r} is in one place, and sites hold theirs: write what is agreed about "
        'them (kind = "held-records", "held-curves" or "held-worlds"), or try it out here (--rehearse)'
    )


def _held_records(data: Csv, column: str | None) -> Table:
    """What a table of one's own says of tables that sites hold: its columns and rules, no record of it."""
    if data.standardize:
        raise Refused(
            "standardize = true takes means and spreads from all records, which nobody has: give public ones "
            "as `center` and `scale` in [data]"
        )
    beside = {data.time, data.event, data.entry, data.weight, column, *data.leave}
    columns = [str(name) for name in read_table(data.path).columns if name not in beside]
    rules: dict[str, Any] = {name: getattr(data, name) for name in RULES}
    return {"kind": "held-records", "columns": columns, **{key: rule for key, rule in rules.items() if rule}}


def _refuse_own(document: Table) -> None:
    for name, table in document.items():
        kind = cast(Table, table).get("kind") if isinstance(table, dict) else None
        if isinstance(kind, str) and ":" in kind:
            raise Refused(
                f"[{name}] kind = {kind!r} is code of your own, which no site loads: use one of ours"
            )
    for name in ("tune", "study", "attack"):
        if name in document:
            raise InvalidFile(
                f"it has a table [{name}], which asks for many runs in one process: leave it out"
            )
