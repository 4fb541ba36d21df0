"""What happened in a run, as plain data: nothing here is private, all of it can be published."""

from dataclasses import asdict, dataclass, field, fields, is_dataclass
from typing import Any, cast


@dataclass(frozen=True, kw_only=True)
class Round:
    """One round.

    Args:
        number: Which one, from 1.
        rounds: How many are planned.
        sites: How many sites took part; None where the draw is a secret.
        scores: How good the state is after the round, on held-out records; empty where there are none.
        epsilon: What everything has cost so far; None in an open run.
        budget: What it may cost, if that was said.
        seconds: How long the round took; None where that would tell how many took part.
    """

    number: int
    rounds: int
    sites: int | None
    scores: dict[str, float]
    epsilon: float | None
    budget: float | None
    seconds: float | None

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class Record:
    """A run from its first round to its last.

    Args:
        rounds: Every round, in order.
        chosen: The round whose state is the model; 0 before the first.
        stopped: Why the run ended before the last planned round, if it did.
        scores: How good the model is.
        baselines: How good models are that were trained by each site `alone` and on `pooled` records; empty
            where nobody may know.
    """

    rounds: tuple[Round, ...] = ()
    chosen: int = 0
    stopped: str | None = None
    scores: dict[str, float] = field(default_factory=dict[str, float])
    baselines: dict[str, dict[str, float]] = field(default_factory=dict[str, dict[str, float]])

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON, without the rounds, which have a file of their own."""
        fields = {name: getattr(self, name) for name in ("chosen", "stopped", "scores", "baselines")}
        return {"rounds": len(self.rounds), **fields}


def described(part: Any) -> dict[str, Any]:  # noqa: ANN401
    """The choice that an object stands for, as a table of an experiment file: its kind and its fields.

    Fields that are not set, and such that no file can hold (a network, a function), are left out.
    """
    own = cast("type[object]", type(part))
    ours = own.__module__.partition(".")[0] == "tacit"
    kind = getattr(part, "kind", None) if ours else f"{own.__module__}:{own.__qualname__}"
    parts = fields(part) if is_dataclass(part) else ()
    entries = {entry.name: getattr(part, entry.name) for entry in parts}
    # A whole number given for a real one is that real number.
    reals = {entry.name for entry in parts if "float" in str(entry.type) and "int" not in str(entry.type)}
    # A choice inside a choice is a table of its own, unless it says nothing.
    inner = {name: described(value) for name, value in entries.items() if is_dataclass(value)}
    entries |= {name: table for name, table in inner.items() if table}
    plain = {
        name: float(value) if name in reals and isinstance(value, int) else value
        for name, value in entries.items()
        if _is_plain(value) and value != {}
    }
    return ({"kind": kind} if kind is not None else {}) | plain


def _is_plain(value: object) -> bool:
    if isinstance(value, list | tuple):
        return all(_is_plain(item) for item in cast("list[object]", value))
    if isinstance(value, dict):
        return all(_is_plain(item) for item in cast("dict[str, object]", value).values())
    return isinstance(value, str | int | float | bool)
