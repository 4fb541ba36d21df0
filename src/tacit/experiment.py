"""Experiment files: TOML in which every table is a constructor call.

The schema is the signatures, so a key that no constructor knows is refused. Reading a file touches no data.
"""

import dataclasses
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, cast, get_args, get_type_hints

import msgspec

from tacit.aggregation.averaging import Mean
from tacit.errors import InvalidFile, TacitError, choices, hint, require_word
from tacit.privacy.policy import Groups, Open, Privacy
from tacit.privacy.release import require_count, require_rate

Table = dict[str, Any]
Made = TypeVar("Made")

# Whether the loss of a task is a sum over records, so that single records can be protected.
SEPARABLE = {
    "cox-ph": False,
    "deep-surv": False,
    "cox-time": False,
    "cox-cc": False,
    "logistic-hazard": True,
    "pc-hazard": True,
    "deep-hit": False,
    "poisson-ph": True,
    "ppo": False,
}


@dataclass(frozen=True, kw_only=True)
class Outline:
    """What a task's privacy depends on.

    Args:
        kind: The name of the task.
        steps: Local steps in a round.
        sample: Probability with which each record joins a step.
        options: Everything else in the table: the task's own affair.
    """

    kind: str
    steps: int = 10
    sample: float = 0.1
    options: Table = field(default_factory=dict[str, Any])

    def __post_init__(self) -> None:
        require_word("kind", self.kind, SEPARABLE)
        require_count("steps", self.steps)
        require_rate("sample", self.sample)

    @property
    def separable(self) -> bool:
        """Whether the loss is a sum over records."""
        return SEPARABLE[self.kind]

    @property
    def groups(self) -> Groups:
        """Risk groups are not formed."""
        return "none"


@dataclass(frozen=True, kw_only=True)
class Header:
    """What a file says outside the tables that become objects.

    Args:
        data: Where the data come from.
        sites: Who holds which part of it.
        name: What to call the experiment.
        seed: What repeats.
        rounds: How many rounds.
    """

    data: Table = field(default_factory=dict[str, Any])
    sites: Table = field(default_factory=dict[str, Any])
    name: str = "experiment"
    seed: int = 0
    rounds: int = 1

    def __post_init__(self) -> None:
        require_count("rounds", self.rounds)
        for table, key in ((self.sites, "count"), (self.data, "records")):
            if key in table:
                require_count(key, table[key])


@dataclass(frozen=True, kw_only=True)
class Experiment(Header):
    """An experiment, as its file says it.

    Args:
        task: What is learnt.
        privacy: What may leave a site; nothing is promised without that table.
        aggregation: How updates are combined.
    """

    task: Outline
    privacy: Privacy | Open
    aggregation: Mean

    @property
    def site_names(self) -> tuple[str, ...]:
        """Names as public as the number of sites; one stands for all where the data decide."""
        return tuple(f"site-{number}" for number in range(1, int(self.sites.get("count", 1)) + 1))

    @property
    def records(self) -> int | None:
        """How many records there are, where the file says it."""
        return self.data.get("records")


def read(path: str | Path) -> Experiment:
    """Read an experiment file.

    Raises:
        InvalidFile: The file, the table and the key at fault, and what is allowed instead.
    """
    try:
        return _experiment(tomllib.loads(Path(path).read_text(encoding="utf-8")))
    except OSError as error:
        raise InvalidFile(f"{path} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidFile(f"{path} is not TOML: {error}") from error
    except TacitError as error:
        raise InvalidFile(f"{path}: {error}") from error


def _experiment(document: Table) -> Experiment:
    made = {"task", "privacy", "aggregation"}
    _refuse_unknown("", document, [entry.name for entry in dataclasses.fields(Experiment)])
    if "task" not in document:
        raise InvalidFile('[task] is missing: an experiment needs one, at least kind = "logistic-hazard"')
    header = construct(Header, "", {key: value for key, value in document.items() if key not in made})
    aggregation = _table("aggregation", document.get("aggregation", {}))
    require_word("[aggregation] kind", aggregation.pop("kind", "mean"), ("mean",))
    return Experiment(
        **vars(header),
        task=_outline(document["task"]),
        privacy=construct(Privacy, "privacy", document["privacy"]) if "privacy" in document else Open(),
        aggregation=construct(Mean, "aggregation", aggregation),
    )


def _outline(table: object) -> Outline:
    own = ("kind", "steps", "sample")
    options = {key: value for key, value in _table("task", table).items() if key not in own}
    # A misspelt `steps` would change the price in silence.
    for key in options:
        if hint(key, own):
            raise InvalidFile(f"[task] {key} is not known{hint(key, own)}")
    given = {key: value for key, value in _table("task", table).items() if key in own}
    return construct(Outline, "task", {**given, "options": options})


def construct(kind: type[Made], name: str, table: object) -> Made:
    """Call a constructor with the keys of a table; wrong keys and types are refused by name."""
    fields, place = _table(name, table), f"[{name}] " if name else ""
    hints = get_type_hints(kind)
    _refuse_unknown(place, fields, list(hints))
    try:
        return msgspec.convert(fields, type=kind)
    except msgspec.ValidationError as error:
        raise InvalidFile(place + _explained(str(error), fields, hints)) from error


def _explained(message: str, fields: Table, hints: Mapping[str, Any]) -> str:
    """What msgspec found, as our sentence: the key, what was given, what is allowed."""
    found = re.fullmatch(r"(.+) - at `\$\.(\w+).*`", message)
    if found is None or found[2] not in hints:
        return message[0].lower() + message[1:] if message.startswith("Object missing") else message
    key, words = found[2], [word for word in get_args(hints[found[2]]) if isinstance(word, str)]
    allowed = f"it must be {choices(words)}{hint(fields[key], words)}" if words else found[1].lower()
    return f"{key} = {fields[key]!r} is not allowed: {allowed}"


def _table(name: str, table: object) -> Table:
    if not isinstance(table, dict):
        raise InvalidFile(f"{name} = {table!r} is not allowed: it must be a table, [{name}]")
    return dict(cast(Table, table))


def _refuse_unknown(place: str, fields: Mapping[str, Any], known: list[str]) -> None:
    for key in fields:
        if key not in known:
            near = hint(key, known)
            raise InvalidFile(f"{place}{key} is not known{near or ': it must be ' + choices(sorted(known))}")
