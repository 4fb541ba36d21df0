"""From an experiment file to what sites on machines of their own are asked for: what is agreed, not where.

A file whose data are held by sites is such a contract already. One that names a table of
records says nearly all of it: only where they are is left to the sites. No record goes into it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from tacit.deploy.site.agreement import set_up
from tacit.errors import InvalidFile, InvalidValue, Refused, require
from tacit.experiments.experiment import Experiment, construct_experiment, read
from tacit.runtime.limits import MOST_ROUNDS
from tacit.runtime.tables import Table, load, override_value
from tacit.sites.splits import ByColumn
from tacit.sites.table import read as read_table
from tacit.survival.data.sources import Csv

# Where the coordinator has files that everybody may see.
PUBLIC = "public"
# Folders and services are named after sites, and the path to a socket has to be short.
LONGEST_NAME = 60
# What a table of records says that is agreed among sites.
RULES = ("time", "event", "entry", "weight", "cause", "levels", "fill", "center", "scale", "test")


@dataclass(frozen=True)
class DeployableExperiment:
    """What sites are asked for.

    Args:
        document: The document of the deployed experiment.
        names: Who takes part.
        public: Public records for the coordinator, files or folders, by what the document calls them.
    """

    document: Table
    names: tuple[str, ...]
    public: dict[str, Path]


def to_deployment(file: Path, changes: Sequence[str], sites: Sequence[str]) -> DeployableExperiment:
    """What sites on machines of their own are asked for by an experiment file.

    Args:
        file: The experiment file.
        changes: What to change in it.
        sites: The sites, where the file does not name them.

    Raises:
        InvalidFile: The file is no experiment.
        Refused: Sites could not hold such data, and what to write instead; or it could not be run at all.
    """
    experiment = read(file, changes)
    file = file / "experiment.toml" if file.is_dir() else file
    document = load(file)
    for change in changes:
        override_value(document, change)
    document = {**document, **_remote_tables(experiment, sites)}
    engine = cast(Table, document.get("engine", {}))
    document |= {"baselines": False, "engine": {**engine, "kind": "flower"}}
    _refuse_own(document)
    table = cast(Table, document["sites"])
    names = tuple(str(name) for name in table.get("names") or table.get("parties") or ())
    if sites and sorted(sites) != sorted(names):
        raise InvalidValue(f"--sites {','.join(sites)} is not allowed: the file names {', '.join(names)}")
    if not names:
        raise InvalidValue("--sites is missing: name the sites that take part, separated by commas")
    for name in names:
        require(len(name) <= LONGEST_NAME, "[sites] names", name, f"of at most {LONGEST_NAME} characters")
    files = _files(experiment)
    _require_possible(construct_experiment(document, file.resolve().parent))
    called = {key: f"{PUBLIC}/{key}{path.suffix}" for key, path in files.items()}
    document["data"] = {**cast(Table, document["data"]), **called}
    return DeployableExperiment(document, names, {called[key]: path for key, path in files.items()})


def _files(experiment: Experiment) -> dict[str, Path]:
    """What the coordinator has for itself, by what it is for."""
    given = {key: getattr(experiment.data, key, None) for key in ("test", "reference")}
    found = {key: Path(path) for key, path in given.items() if isinstance(path, str)}
    curves = getattr(experiment.data, "layout", "rows") == "columns"
    for key, path in found.items():
        if not (path.is_dir() if curves else path.is_file()):
            what = "a folder with a file for each curve" if curves else "a file of public records"
            raise InvalidFile(f"[data] {key} = {str(path)!r} is not there: it must be {what}")
    return found


def _require_possible(experiment: Experiment) -> None:
    """Refuse what could not be run, before anybody has a folder of it; asks no site."""
    require(experiment.rounds <= MOST_ROUNDS, "rounds", experiment.rounds, f"at most {MOST_ROUNDS:,}")
    _ = set_up(experiment, stop=experiment.stop)


def _remote_tables(experiment: Experiment, sites: Sequence[str]) -> dict[str, Table]:
    """The tables [data] and [sites], where they are not such that sites hold the data already."""
    data = experiment.data
    named: Table = {"kind": "named", "names": list(sites)}
    if getattr(data, "distant", False):
        return {}
    if isinstance(data, Csv):
        column = experiment.sites.column if isinstance(experiment.sites, ByColumn) else data.site
        return {"data": _remote_records(data, column), "sites": named}
    raise Refused(
        f"[data] kind = {data.kind!r} is in one place, and sites hold theirs: write what is agreed about "
        'them (kind = "held-records", "held-curves" or "held-worlds"), or try it out here (--rehearse)'
    )


def _remote_records(data: Csv, column: str | None) -> Table:
    """What a table of one's own says of tables that sites hold: its columns and rules, no record of it."""
    from pandas.api.types import is_numeric_dtype

    if data.standardize:
        raise Refused(
            "standardize = true takes means and spreads from all records, which nobody has: give public ones "
            "as `center` and `scale` in [data]"
        )
    beside = {data.time, data.event, data.entry, data.weight, column, *data.leave}
    table = read_table(data.path)
    columns = [str(name) for name in table.columns if name not in beside]
    for name in columns:
        if name not in data.levels and not is_numeric_dtype(table[name]):
            raise InvalidValue(
                f"column {name!r} holds words: name them in [data.levels], or leave it out (`leave`)"
            )
    rules: dict[str, Any] = {name: getattr(data, name) for name in RULES}
    return {"kind": "held-records", "columns": columns, **{key: rule for key, rule in rules.items() if rule}}


def _refuse_own(document: Table) -> None:
    """Refuse what no site does: to load code, and to run more than one run at once."""
    for name in ("tune", "study", "attack"):
        if name in document:
            raise InvalidFile(
                f"it has a table [{name}], which asks for many runs in one process: leave it out"
            )
    _refuse_code(document, "")


def _refuse_code(table: Table, place: str) -> None:
    kind = table.get("kind")
    if isinstance(kind, str) and ":" in kind:
        raise Refused(f"[{place}] kind = {kind!r} is code of your own, which no site loads: use one of ours")
    for name, value in table.items():
        if isinstance(value, dict):
            _refuse_code(cast(Table, value), f"{place}.{name}".strip("."))
