"""Convert an experiment file to a deployed one: the agreement among sites, without their data or paths.

`to_deployment` is for sites that hold their records: a file whose data are held by sites is such a contract
already; one that names a table of records gives nearly all of it, and no record goes into it. `split_data` is
for rehearsals: data in one place are divided among the sites' folders. The deployed experiment gives the same
numbers as the original.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from tacit.aggregation.base import user_choice
from tacit.control.sources import RemoteWorlds
from tacit.deploy.site.agreement import set_up
from tacit.engines.base import Local
from tacit.errors import MOST_ROUNDS, InvalidFile, InvalidValue, Refused, require
from tacit.experiments.experiment import Experiment, construct_experiment, read
from tacit.functional.data.remote import RemoteCurves
from tacit.learning.record import describe
from tacit.privacy.policy import Provenance
from tacit.runs.spec import OPTIONS
from tacit.runtime.arrays import Array
from tacit.runtime.contracts import bound_fields, fields_of
from tacit.runtime.tables import load, override_value
from tacit.sites.encoding import Encoding
from tacit.sites.environments import EnvFederation, Scenes, World
from tacit.sites.federation import Federation, RowFederation, require_rows
from tacit.sites.names import COORDINATOR, require_site_name
from tacit.sites.splits import ByColumn
from tacit.sites.table import Table
from tacit.sites.table_files import read as read_table
from tacit.sites.vertical import Subjects, VerticalFederation
from tacit.survival.data.remote import RemoteRecords
from tacit.survival.data.sources import Csv
from tacit.survival.models.learner import SurvivalLearner

if TYPE_CHECKING:
    import pandas as pd

    from tacit.functional.curves import Curves

Document = dict[str, Any]
# Maps the name of a party to its folder.
Place = Callable[[str], Path]
# Folders for a site's data, and for public files.
DATA, PUBLIC = "data", "public"
# Folders and services are named after sites, and the path to a socket has to be short.
LONGEST_NAME = 60
# Keys of [data] that sites agree on.
RULES = ("time", "event", "outcome", "entry", "weight", "cause", "levels", "fill", "center", "scale", "test")


@dataclass(frozen=True)
class DeployableExperiment:
    """Deployed experiment and its participants.

    Args:
        document: The document of the deployed experiment.
        names: The participating sites.
        public: Public records for the coordinator, files or folders, by their key in the document.
    """

    document: Document
    names: tuple[str, ...]
    public: dict[str, Path]


def to_deployment(file: Path, changes: Sequence[str], sites: Sequence[str]) -> DeployableExperiment:
    """Convert an experiment file to a deployed experiment for sites on machines of their own.

    Args:
        file: The experiment file.
        changes: Changes to the file.
        sites: The sites, where the file does not name them.

    Raises:
        InvalidFile: The file is no experiment.
        Refused: Sites could not hold such data (the message says what to write instead), or the experiment
            could not be run at all.
    """
    experiment = read(file, changes)
    file = file / "experiment.toml" if file.is_dir() else file
    document = load(file)
    for change in changes:
        override_value(document, change)
    document = {**document, **_remote_tables(experiment, sites)}
    engine = cast(Document, document.get("engine", {}))
    document |= {"baselines": False, "engine": {**engine, "kind": "flower"}}
    _refuse_own(document)
    table = cast(Document, document["sites"])
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
    document["data"] = {**cast(Document, document["data"]), **called}
    return DeployableExperiment(document, names, {called[key]: path for key, path in files.items()})


def _files(experiment: Experiment) -> dict[str, Path]:
    """Return the coordinator's own files, by their key in [data]."""
    found = {key: Path(path) for key, path in experiment.data.public_files.items()}
    curves = experiment.data.layout == "columns"
    for key, path in found.items():
        if not (path.is_dir() if curves else path.is_file()):
            what = "a folder with a file for each curve" if curves else "a file of public records"
            raise InvalidFile(f"[data] {key} = {str(path)!r} is not there: it must be {what}")
    return found


def _require_possible(experiment: Experiment) -> None:
    """Refuse an experiment that could not be run, before any folder is written; asks no site."""
    require(experiment.rounds <= MOST_ROUNDS, "rounds", experiment.rounds, f"at most {MOST_ROUNDS:,}")
    _ = set_up(experiment, stop=experiment.stop)


def _remote_tables(experiment: Experiment, sites: Sequence[str]) -> dict[str, Document]:
    """Return the tables [data] and [sites] of a deployment; unchanged if sites hold the data already."""
    data = experiment.data
    named: Document = {"kind": "named", "names": list(sites)}
    if data.distant:
        return {}
    if isinstance(data, Csv):
        column = experiment.sites.column if isinstance(experiment.sites, ByColumn) else data.site
        return {"data": _remote_records(data, column), "sites": named}
    raise Refused(
        f"[data] kind = {data.kind!r} is on one machine, and in a deployment the sites hold their data: "
        'describe these data (kind = "held-records", "held-curves" or "held-worlds"), or rehearse it '
        "here (--rehearse)"
    )


def _remote_records(data: Csv, column: str | None) -> Document:
    """Return the part of a local table's description that remote tables share: columns and rules alone."""
    from pandas.api.types import is_numeric_dtype

    if data.standardize:
        raise Refused(
            "standardize = true needs means and standard deviations of all records, which no party holds: "
            "give public ones as `center` and `scale` in [data]"
        )
    targets = {data.time, data.event} if data.outcome is None else {data.outcome}
    beside = {*targets, data.entry, data.weight, column, *data.leave}
    table = read_table(data.path)
    columns = [str(name) for name in table.columns if name not in beside]
    for name in columns:
        if name not in data.levels and not is_numeric_dtype(table[name]):
            raise InvalidValue(
                f"column {name!r} holds words: name them in [data.levels], or leave it out (`leave`)"
            )
    rules = fields_of(data, RULES)
    return {"kind": "held-records", "columns": columns, **{key: rule for key, rule in rules.items() if rule}}


def _refuse_own(document: Document) -> None:
    """Refuse experiments that sites do not run: those with own code, and several runs at once."""
    for name in ("tune", "study", "attack"):
        if name in document:
            raise InvalidFile(f"it has a table [{name}], which asks for many runs in one process: remove it")
    _refuse_code(document, "")


def _refuse_code(table: Document, place: str) -> None:
    kind = table.get("kind")
    if isinstance(kind, str) and ":" in kind:
        raise Refused(f"[{place}] kind = {kind!r} is your own code, which no site loads: use a built-in kind")
    for name, value in table.items():
        if isinstance(value, dict):
            _refuse_code(cast(Document, value), f"{place}.{name}".strip("."))


@dataclass(frozen=True)
class DataSplit:
    """Data of an experiment, divided among sites.

    Args:
        data: The table with the agreement about them.
        sites: The table that names the sites.
        held: The table [data] of each site's own configuration.
    """

    data: Document
    sites: Document
    held: dict[str, Document]


def split_data(
    experiment: Experiment, federation: Federation, out: Place
) -> tuple[Document, dict[str, Document]]:
    """Give each site its part of the data, and describe the deployed experiment.

    Args:
        experiment: An experiment whose data are in one place.
        federation: Its sites, opened.
        out: The folder of each site, and of the coordinator, by the name.

    Returns:
        The document of the deployed experiment, whose files are relative to the coordinator's folder, and
        the table [data] of each site's own settings, relative to the site's folder.

    Raises:
        Refused: The experiment has code of the user in it, which no site would run, or its data are at sites
            already.
    """
    if federation.distant:
        raise Refused(
            f"[data] {experiment.data.kind} is at the sites already: there are no data to hand over"
        )
    tables = _tables(experiment)
    for name in federation:
        require_site_name("site", name, of="machine")
    if isinstance(federation, VerticalFederation):
        handed = _curves(federation, tables["task"], out)
    elif isinstance(federation, EnvFederation):
        handed = _worlds(federation, experiment.data)
    else:
        handed = _records(require_rows(federation), experiment.data, out)
    if isinstance(experiment.task, SurvivalLearner):
        tables["task"]["cuts"] = _cuts(experiment.task, experiment, federation)
    head = {"name": experiment.name, "seed": experiment.seed, "rounds": experiment.rounds}
    # Baselines would need the records of all sites.
    told = {**head, "baselines": False, "data": handed.data, "sites": handed.sites, **tables}
    return cast(Document, _plain(told)), handed.held


def _tables(experiment: Experiment) -> dict[str, Document]:
    """Return the tables of an experiment other than data and sites; none names a user's code."""
    chosen = experiment.choices()
    parts = {name: chosen[name] for name in OPTIONS}
    parts["aggregation"] = user_choice(parts["aggregation"])
    # The engine is chosen at launch.
    parts["engine"] = None if parts["engine"] == Local() else parts["engine"]
    whole: dict[str, Any] = {"data": experiment.data, "sites": experiment.sites, **parts}
    tables = {
        # Each site binds the task to its own data: results of `bind` are no keys.
        name: {key: value for key, value in describe(part).items() if key not in bound_fields(part)}
        for name, part in whole.items()
        if part is not None
    }
    for name, table in tables.items():
        for kind in _kinds(table):
            if ":" in kind:
                raise Refused(
                    f"[{name}] kind = {kind!r} is your own code: a site receives data and never code. Use a "
                    "built-in kind"
                )
    return {name: tables[name] for name in OPTIONS if name in tables}


def _kinds(table: Mapping[str, Any]) -> list[str]:
    """Return the kinds named by a table and by all tables in it."""
    own = [table["kind"]] if isinstance(table.get("kind"), str) else []
    inner = [cast("Document", entry) for entry in table.values() if isinstance(entry, dict)]
    return own + [kind for entry in inner for kind in _kinds(entry)]


def _cuts(task: SurvivalLearner, experiment: Experiment, federation: Federation) -> object:
    """Return the time grid of the run; the given one if it is bought later."""
    return task.bind(federation, Provenance(experiment.privacy, public=federation.public)).cuts


def _records(federation: RowFederation, data: object, out: Place) -> DataSplit:
    """Records as raw tables, from which the encoding makes the very same numbers."""
    encoding = federation.encoding or Encoding()
    columns = encoding.raw(federation.store.columns)
    targets = {name: vars(data).get(name) or name for name in federation.store.targets}
    held = {name: {"path": f"{DATA}/records.parquet"} for name in federation}
    for name in federation:
        _write(out(name) / DATA / "records.parquet", _raw(federation.records_of(name), encoding, targets))
    rules: dict[str, Any] = {
        "levels": encoding.levels, "fill": encoding.fill, "center": encoding.center, "scale": encoding.scale,
    }  # fmt: skip
    told = RemoteRecords(
        columns=columns, records=federation.records, public=federation.public, **targets, **rules
    )
    test = federation.held_out
    if isinstance(test, Table):
        frame = _raw(test, encoding, targets)
        if test.sites is not None:
            told = replace(told, site=_unused_name("site", frame))
            frame[told.site] = test.sites.astype(object)
        _write(out(COORDINATOR) / PUBLIC / "test.parquet", frame)
        told = replace(told, test=f"{PUBLIC}/test.parquet", test_public=federation.held_out_public)
    if federation.reference is not None:
        _write(out(COORDINATOR) / PUBLIC / "reference.parquet", _raw(federation.reference, encoding, targets))
        told = replace(told, reference=f"{PUBLIC}/reference.parquet")
    return DataSplit(describe(told), {"kind": "named", "names": list(federation)}, held)


def _unused_name(name: str, frame: "pd.DataFrame") -> str:
    """A name that no column has."""
    return name if name not in frame.columns else _unused_name(f"{name}_", frame)


def _raw(table: Table, encoding: Encoding, targets: Mapping[str, str]) -> "pd.DataFrame":
    """Decode records to raw values: the encoding makes the same of them."""
    import pandas as pd

    found: dict[str, object] = {}
    known = dict(zip(table.columns, table.features.T, strict=True))
    for column in encoding.raw(table.columns):
        levels = encoding.levels.get(column)
        if levels is None:
            center, scale = encoding.center.get(column, 0.0), encoding.scale.get(column, 1.0)
            found[column] = _unscale(known[column], center, scale, column)
        else:
            ranks = np.zeros(len(table), dtype=np.int64)
            for rank, name in enumerate(encoding.names([column]), start=1):
                ranks[known[name] > 0] = rank
            found[column] = np.array([str(level) for level in levels], dtype=object)[ranks]
    return pd.DataFrame({**found, **{targets[name]: values for name, values in table.targets.items()}})


def _unscale(values: Array, center: float, scale: float, column: str) -> Array:
    """Invert centering and scaling, exactly to the bit."""
    near = values * scale
    found = near + center
    # Rounding twice may miss the number that these came from by a few units in the last place.
    for step in range(-3, 4):
        middle = near + step * np.spacing(np.abs(near)) + center
        for tried in (middle, np.nextafter(middle, np.inf), np.nextafter(middle, -np.inf)):
            better = ((found - center) / scale != values) & ((tried - center) / scale == values)
            found = np.where(better, tried, found)
    lost = int(((found - center) / scale != values).sum())
    require(lost == 0, f"column {column}", f"{lost} numbers", "such that scaling can be undone")
    return found


def _curves(federation: VerticalFederation, task: Mapping[str, Any], out: Place) -> DataSplit:
    """Curves as tables, a row for each subject and a column for each time."""
    columns = cast("Mapping[str, Curves]", federation.subjects.columns)
    held: dict[str, Document] = {}
    for party, own in federation.holdings.items():
        files = {name: f"{_file(name, list(columns))}.parquet" for name in own}
        for name, file in files.items():
            _write(out(party) / DATA / file, _wide(columns[name]))
        held[party] = {"path": DATA, "files": files}
    told = RemoteCurves(
        domains={name: found.domain for name, found in columns.items()},
        records=len(federation.subjects),
        response=str(task["response"]),
        public=federation.public,
    )
    test = federation.held_out
    if isinstance(test, Subjects):
        for name, found in cast("Mapping[str, Curves]", test.columns).items():
            _write(out(COORDINATOR) / PUBLIC / "test" / f"{_file(name, list(columns))}.parquet", _wide(found))
        told = replace(told, test=f"{PUBLIC}/test", test_public=federation.held_out_public)
    parties = {party: list(own) for party, own in federation.holdings.items()}
    return DataSplit(describe(told), {"kind": "columns", "parties": parties}, held)


def _file(name: str, known: list[str]) -> str:
    """Return the file name of a curve; refuse names that no file can have."""
    plain = name == name.strip() and name.strip(".") != "" and not set(name) & set("/\\\0")
    alone = sum(name.lower() == other.lower() for other in known) == 1
    require(plain and alone, "curve", name, "a name that a file can have, and no other curve")
    return name


def _wide(found: "Curves") -> "pd.DataFrame":
    import pandas as pd

    if found.owners is not None:
        raise InvalidValue(
            f"{found.place} cannot be handed over: each subject was observed at times of its own, and files "
            "of curves have a common grid"
        )
    # Times are written so that they are read as the same numbers.
    frame = pd.DataFrame(found.values, columns=[repr(float(time)) for time in found.times])
    if found.subjects is not None:
        frame.insert(0, "subject", list(found.subjects))
    return frame


def _worlds(federation: EnvFederation, data: Any) -> DataSplit:  # noqa: ANN401
    """Worlds in the settings of the sites themselves; where agents are judged is known to all."""
    options: Mapping[str, Any] = data.options
    held: dict[str, Document] = {
        name: {"worlds": [{"env": world.name, **_variant(world)} for world in worlds]}
        for name, worlds in federation.holdings.items()
    }
    judged = federation.held_out if isinstance(federation.held_out, Scenes) else None
    pairs = [] if judged is None else list(zip(judged.sites.tolist(), judged.worlds, strict=True))
    told = RemoteWorlds(
        env=data.env,
        world=data.world,
        options=options,
        scenes={name: _variant(world) for name, world in pairs if name},
        unseen={world.label: dict(world.options) for name, world in pairs if not name},
        episodes=data.episodes,
        watch=data.watch,
        public=federation.public,
    )
    return DataSplit(describe(told), {"kind": "named", "names": list(federation)}, held)


def _variant(world: World) -> Document:
    told: Document = {"options": dict(world.options), "label": world.label}
    return {key: value for key, value in told.items() if value}


def _write(file: Path, frame: "pd.DataFrame") -> None:
    """Write a table with exact numbers, readable by its owner alone."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as stream:
        frame.to_parquet(stream, index=False)


def _plain(value: object) -> object:
    """A document as a file holds it."""
    if isinstance(value, Mapping):
        entries = cast("Mapping[str, object]", value)
        return {key: _plain(entry) for key, entry in entries.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in cast("list[object]", value)]
    return value
