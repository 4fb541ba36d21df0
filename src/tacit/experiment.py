"""Experiment files: TOML in which every table is a constructor call.

The schema is the signatures, so a key that no constructor knows is refused. Reading a file touches no data.
"""

import dataclasses
import re
import sys
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast, get_args, get_type_hints

import msgspec

from tacit.aggregation.averaging import Mean
from tacit.aggregation.server import Adam, Momentum, Plain
from tacit.engines.local import Local
from tacit.errors import InvalidFile, TacitError, choices, hint, require, require_count
from tacit.privacy.plan import Plan, plan
from tacit.privacy.policy import Open, Privacy
from tacit.privacy.release import Release
from tacit.questions import Augmentation, closing_of, opened, opening_of
from tacit.sites.sampling import Fixed, Poisson
from tacit.sites.splits import SPLITS
from tacit.stopping import Stopping
from tacit.survival.augment import AUGMENTATIONS
from tacit.survival.sources import SOURCES
from tacit.survival.tasks import TASKS
from tacit.task import Asked

if TYPE_CHECKING:
    from tacit.loop import Callback
    from tacit.run import Run

Table = dict[str, Any]
Made = TypeVar("Made")

# The types of values, for people.
WORDS = {
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "bool": "true or false",
    "array": "a list",
    "object": "a table",
}

# The constructors that a table may call, by their kind; the first one is meant if no kind is given.
KINDS: Mapping[str, Mapping[str, type[Any]]] = {
    "data": SOURCES,
    "sites": SPLITS,
    "task": TASKS,
    "privacy": {promise.kind: promise for promise in (Privacy, Open)},
    "aggregation": {Mean.kind: Mean},
    "server": {step.kind: step for step in (Plain, Momentum, Adam)},
    "sampling": {draw.kind: draw for draw in (Poisson, Fixed)},
    "stop": {Stopping.kind: Stopping},
    "augment": AUGMENTATIONS,
    "engine": {Local.kind: Local},
}


@dataclass(frozen=True, kw_only=True)
class Header:
    """What a file says outside its tables.

    Args:
        name: What to call the experiment.
        seed: What repeats.
        rounds: How many rounds.
        baselines: Whether to train each site alone and on pooled records too, where that may be known.
    """

    name: str = "experiment"
    seed: int = 0
    rounds: int = 10
    baselines: bool = True

    def __post_init__(self) -> None:
        require_count("rounds", self.rounds)
        plain = re.fullmatch(r"[\w.+-]+( [\w.+-]+)*", self.name) is not None and self.name.strip(".") != ""
        require(plain, "name", self.name, "letters, digits and . _ + - alone: it names a directory")


@dataclass(frozen=True, kw_only=True)
class Experiment(Header):
    """An experiment, as its file says it: one object for each table."""

    data: Any
    sites: Any
    task: Any
    privacy: Privacy | Open
    aggregation: Any
    server: Any
    sampling: Any
    stop: Stopping | None
    augment: Augmentation | None
    engine: Any

    def plan(self) -> Plan:
        """What it promises and costs; touches no data."""
        self.check()
        # One name stands for all where the data decide.
        names = self.sites.names or ("site-1",)
        stop, watched = self.stop or Stopping(), list[Release]()
        training = stop.reserve(self.privacy if self.augment is None else self.augment.reserve(self.privacy))
        if isinstance(self.privacy, Privacy) and stop.epsilon is not None:
            noise = stop.noise(self.privacy, self.rounds)
            watched = [stop.release(self.privacy, noise, name, 1) for name in names]
        added = () if self.augment is None else self.augment.release(self.privacy, names)
        return plan(
            self.privacy,
            self.task,
            names,
            self.aggregation,
            self.rounds,
            sampling=self.sampling.kind,
            records=self.data.public_records,
            training=training,
            also=watched,
            once=added,
            questions=self._questions(),
        )

    def _questions(self) -> list[Asked]:
        """What is asked of the sites once; data that are public, or may be looked at, need not be opened."""
        opening, closing = opening_of(self.task), closing_of(self.task)
        public = self._may_look or getattr(self.data, "public", False)
        known = public or getattr(self.task, "horizon", None) is not None
        return [part for part in (None if known else opening, closing) if part is not None]

    def check(self) -> None:
        """Refuse data that cannot be given to these sites under this promise, before anything is read."""
        if hasattr(self.data, "check"):
            self.data.check(self.sites, may_look=self._may_look)

    @property
    def _may_look(self) -> bool:
        return isinstance(self.privacy, Open) or self.privacy.rehearsal

    def run(
        self, out: str | Path | None, *, resume: bool = False, callbacks: "Sequence[Callback]" = ()
    ) -> "Run":
        """Open the data and run."""
        from tacit.loop import fit

        self.check()
        federation = self.data.open(self.sites, self.seed, may_look=self._may_look)
        return fit(
            self.task,
            federation,
            privacy=self.privacy,
            aggregation=self.aggregation,
            server=self.server,
            sampling=self.sampling,
            stop=self.stop,
            augment=self.augment,
            engine=self.engine,
            rounds=self.rounds,
            seed=self.seed,
            baselines=self.baselines,
            name=self.name,
            out=out,
            resume=resume,
            callbacks=callbacks,
        )


def read(path: str | Path, changes: Sequence[str] = ()) -> Experiment:
    """Read an experiment file.

    Args:
        path: The file, or the directory of a run, which keeps its own.
        changes: What to change in it: `privacy.epsilon=1`, values written as in TOML.

    Raises:
        InvalidFile: The file, the table and the key at fault, and what is allowed instead.
    """
    return read_as(construct_experiment, path, changes)


def read_as(made: Callable[[Table, Path], Made], path: str | Path, changes: Sequence[str]) -> Made:
    """What a file, or the one in a directory, stands for, made from its document and its folder."""
    file = Path(path) / "experiment.toml" if Path(path).is_dir() else Path(path)
    try:
        document = tomllib.loads(file.read_text(encoding="utf-8"))
        for change in changes:
            set_value(document, change)
        return made(document, file.resolve().parent)
    except OSError as error:
        raise InvalidFile(f"{file} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidFile(f"{file} is not TOML: {error}") from error
    except TacitError as error:
        raise InvalidFile(f"{file}: {error}") from error


def load(path: str | Path, task: Any = None) -> "Run":  # noqa: ANN401
    """The run that a directory remembers.

    Args:
        path: The directory.
        task: What was learnt, for runs of your own network, which no file can hold.
    """
    from tacit.directory import Directory
    from tacit.run import read as read_run

    if not (Path(path) / "experiment.toml").is_file():
        raise InvalidFile(f"{path} is not a run: it has no experiment.toml")
    directory, known = Directory(path), task if task is not None else read(path).task
    return read_run(directory, opened(known, directory))


def set_value(document: Table, change: str) -> None:
    """Change one value of a document: `table.key=value`, written as in TOML."""
    name, sign, text = change.partition("=")
    if not sign or not name.strip():
        raise InvalidFile(f"--set {change} is not allowed: it must be table.key=value")
    *tables, key = name.strip().split(".")
    if not all((*tables, key)):
        raise InvalidFile(f"--set {change} is not allowed: it must be table.key=value")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        # A word on the command line need not be quoted.
        value = text.strip()
    place: Table = document
    for table in tables:
        inner = place.setdefault(table, {})
        if not isinstance(inner, dict):
            raise InvalidFile(f"--set {change} is not allowed: {table} is not a table")
        place = cast(Table, inner)
    place[key] = value


def construct_experiment(document: Table, folder: Path) -> Experiment:
    """The experiment that a document says, its files beside `folder`."""
    if "tune" in document:
        raise InvalidFile("it has a table [tune]: choose among its candidates with tacit tune")
    header = [entry.name for entry in dataclasses.fields(Header)]
    _refuse_unknown("", document, [*header, *KINDS])
    if "task" not in document:
        raise InvalidFile('[task] is missing: an experiment needs one, at least kind = "logistic-hazard"')
    head = construct(Header, "", {key: value for key, value in document.items() if key in header})
    absent = {"privacy": Open(), "stop": None, "augment": None}
    parts: dict[str, Any] = {
        name: absent[name] if name in absent and name not in document else _made(name, document, folder)
        for name in KINDS
    }
    return Experiment(**vars(head), **parts)


def _made(name: str, document: Table, folder: Path) -> Any:  # noqa: ANN401
    """The object that a table stands for."""
    table = _table(name, document.get(name, {}))
    kind = table.pop("kind", next(iter(KINDS[name])))
    for key in ("path", "test"):
        # Relative paths are relative to the file that names them.
        if name == "data" and isinstance(table.get(key), str):
            table[key] = str(folder / table[key])
    return construct(_constructor(name, kind, folder), name, table)


def _constructor(name: str, kind: object, folder: Path) -> type[Any]:
    if isinstance(kind, str) and ":" in kind:
        return _own(name, kind, folder)
    known = KINDS[name]
    if not isinstance(kind, str) or kind not in known:
        raise InvalidFile(
            f"[{name}] kind = {kind!r} is not allowed: it must be {choices(known)}, or package.module:Class"
            f"{hint(kind, known)}"
        )
    return known[kind]


def _own(name: str, kind: str, folder: Path) -> type[Any]:
    """The user's own class; its module may lie beside the experiment file, or where the command is given."""
    module, _, attribute = kind.partition(":")
    places = [str(folder), str(Path.cwd())]
    sys.path[:0] = places
    try:
        found = getattr(import_module(module), attribute)
    except Exception as error:
        # The module is the user's: whatever it raises is theirs to mend.
        raise InvalidFile(f"[{name}] kind = {kind!r} cannot be loaded: {error}") from error
    finally:
        del sys.path[: len(places)]
    if not dataclasses.is_dataclass(found):
        raise InvalidFile(f"[{name}] kind = {kind!r} is not allowed: it must be a dataclass")
    return cast("type[Any]", found)


def construct(kind: type[Made], name: str, table: object) -> Made:
    """Call a constructor with the keys of a table; wrong keys and types are refused by name."""
    fields, place = _table(name, table), f"[{name}] " if name else ""
    try:
        known = get_type_hints(kind)
    except NameError as error:
        raise InvalidFile(
            f"{place}{kind.__name__} needs objects that no file can hold: use Python"
        ) from error
    hints = {entry.name: known[entry.name] for entry in dataclasses.fields(cast(Any, kind))}
    _refuse_unknown(place, fields, list(hints))
    try:
        return msgspec.convert(fields, type=kind)
    except msgspec.ValidationError as error:
        raise InvalidFile(place + _explained(str(error), fields, hints)) from error
    except TacitError as error:
        raise InvalidFile(f"{place}{error}") from error


def _explained(message: str, fields: Table, hints: Mapping[str, Any]) -> str:
    """What msgspec found, as our sentence: the key, what was given, what is allowed."""
    found = re.fullmatch(r"(.+) - at `\$\.(\w+)(.*)`", message)
    if found is None or found[2] not in hints:
        return message[0].lower() + message[1:] if message.startswith("Object missing") else message
    key, words = found[2], [word for word in get_args(hints[found[2]]) if isinstance(word, str)]
    allowed = f"{choices(words)}{hint(fields[key], words)}" if words else _in_words(found[1])
    if found[3].startswith("[") and not words:
        allowed = f"a list, each entry {allowed}"
    return f"{key} = {fields[key]!r} is not allowed: it must be {allowed}"


def _in_words(expected: str) -> str:
    """What msgspec expected, for people."""
    found = re.search(r"`([^`]+)`", expected)
    types = [expected] if found is None else str(found[1]).split(" | ")
    return " or ".join(WORDS.get(word, word) for word in types if word != "null")


def _table(name: str, table: object) -> Table:
    if not isinstance(table, dict):
        raise InvalidFile(f"{name} = {table!r} is not allowed: it must be a table, [{name}]")
    return dict(cast(Table, table))


def _refuse_unknown(place: str, fields: Mapping[str, Any], known: list[str]) -> None:
    for key in fields:
        if key not in known:
            near = hint(key, known)
            raise InvalidFile(f"{place}{key} is not known{near or ': it must be ' + choices(sorted(known))}")
