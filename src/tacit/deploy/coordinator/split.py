"""From an experiment in one process to the same one on many machines: who gets what, and what all are told.

Every site gets its own part of the data, the coordinator what everybody may see, and all of them a document
that says what is agreed and not where anything is. It is for rehearsals: whoever has all data in one place
can hand them out. The deployed experiment gives the same numbers as the one that it comes from.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from tacit.aggregation.base import user_choice
from tacit.control.remote import RemoteWorlds
from tacit.engines.local import Local
from tacit.errors import InvalidValue, Refused, require
from tacit.functional.data.remote import RemoteCurves
from tacit.learning.record import describe
from tacit.privacy.provenance import Provenance
from tacit.sites.encoding import Encoding
from tacit.sites.environments import Scenes, World, Worlds
from tacit.sites.federation import Federation
from tacit.sites.splits import COORDINATOR, require_remote_name
from tacit.sites.table import Table
from tacit.sites.vertical import Columns, Subjects
from tacit.survival.data.remote import RemoteRecords
from tacit.survival.models.learner import SurvivalLearner

if TYPE_CHECKING:
    import pandas as pd

    from tacit.experiments.experiment import Experiment
    from tacit.functional.curves import Curves

Array = NDArray[np.float64]
Document = dict[str, Any]
# Where the folder of somebody is, by the name.
Place = Callable[[str], Path]
# Folders for a site's data, and for what everybody may see.
DATA, PUBLIC = "data", "public"
# What an experiment is made of beside its data and its sites.
PARTS = (
    "task", "privacy", "aggregation", "server", "sampling", "stop", "augment", "quarantine", "attack",
    "clusters", "engine",
)  # fmt: skip


@dataclass(frozen=True)
class DataSplit:
    """What becomes of the data of an experiment.

    Args:
        data: The table that says what is agreed about them.
        sites: The table that names the sites.
        held: The table [data] of each site's own settings.
    """

    data: Document
    sites: Document
    held: dict[str, Document]


def split_data(
    experiment: "Experiment", federation: Federation, out: Place
) -> tuple[Document, dict[str, Document]]:
    """Hand every site its part of the data, and say what the deployed experiment is.

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
        raise Refused(f"[data] {experiment.data.kind} is at the sites already: nothing is to be handed over")
    tables = _tables(experiment)
    for name in federation:
        require_remote_name("site", name)
    if isinstance(federation, Columns):
        handed = _curves(federation, tables["task"], out)
    elif isinstance(federation, Worlds):
        handed = _worlds(federation, experiment.data)
    else:
        handed = _records(federation, experiment.data, out)
    if isinstance(experiment.task, SurvivalLearner):
        tables["task"]["cuts"] = _cuts(experiment.task, experiment, federation)
    head = {"name": experiment.name, "seed": experiment.seed, "rounds": experiment.rounds}
    # Nobody has the records of others to compare with.
    told = {**head, "baselines": False, "data": handed.data, "sites": handed.sites, **tables}
    return cast(Document, _plain(told)), handed.held


def _tables(experiment: "Experiment") -> dict[str, Document]:
    """The tables of an experiment beside its data and sites, none of which names code of the user."""
    parts = {name: getattr(experiment, name) for name in PARTS}
    parts["aggregation"] = user_choice(parts["aggregation"])
    # Where the work is done is decided where it is started.
    parts["engine"] = None if parts["engine"] == Local() else parts["engine"]
    whole = {"data": experiment.data, "sites": experiment.sites, **parts}
    tables = {name: describe(part) for name, part in whole.items() if part is not None}
    for name, table in tables.items():
        for kind in _kinds(table):
            if ":" in kind:
                raise Refused(
                    f"[{name}] kind = {kind!r} is code of your own: a site takes data and runs no code that "
                    "comes with them. Use a kind of ours"
                )
    return {name: tables[name] for name in PARTS if name in tables}


def _kinds(table: Mapping[str, Any]) -> list[str]:
    """What a table, and all tables in it, call for."""
    own = [table["kind"]] if isinstance(table.get("kind"), str) else []
    inner = [cast("Document", entry) for entry in table.values() if isinstance(entry, dict)]
    return own + [kind for entry in inner for kind in _kinds(entry)]


def _cuts(task: SurvivalLearner, experiment: "Experiment", federation: Federation) -> object:
    """The grid of time as this run settles it; as it was said where it is still to be bought."""
    return task.bind(federation, Provenance(experiment.privacy, public=federation.public)).cuts


def _records(federation: Federation, data: object, out: Place) -> DataSplit:
    """Records as raw tables, from which the encoding makes the very same numbers."""
    encoding, columns = federation.encoding, federation.encoding.raw(federation.store.columns)
    targets = {name: getattr(data, name, None) or name for name in federation.store.targets}
    held = {name: {"path": f"{DATA}/records.parquet"} for name in federation}
    for name in federation:
        _write(out(name) / DATA / "records.parquet", _raw(federation.records_of(name), encoding, targets))
    rules = {part: getattr(encoding, part) for part in ("levels", "fill", "center", "scale")}
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
    """Records as they might have been before they became numbers: the encoding makes the same of them."""
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
    """Numbers that become these very ones when the center is taken from them and they are divided."""
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


def _curves(federation: Columns, task: Mapping[str, Any], out: Place) -> DataSplit:
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
    """A curve's name, if a file can bear it."""
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


def _worlds(federation: Worlds, data: Any) -> DataSplit:  # noqa: ANN401
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
    """Write a table, every number as it is, for nobody but its owner."""
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
