"""Record of a run, as plain data: nothing here is private, all of it can be published.

Progress callbacks: called after every round and, if they have `stage`, between rounds.

Watching changes nothing about a run. Plain functions hear of rounds alone.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, is_dataclass, replace
from functools import cache
from typing import Any, Literal, Protocol, cast, get_type_hints, runtime_checkable

import msgspec

from tacit.runtime.contracts import fields_of, user_object
from tacit.runtime.tables import Unwritable, canonical, plain

Reason = Literal[
    "schema", "not-finite", "too-long", "late", "replay", "duplicate", "equivocation", "unknown", "failed",
    "refused", "absent",
]  # fmt: skip
Status = Literal["active", "watch", "quarantined", "probation"]
# Fields of a record that are left out if empty.
ALSO = (
    "findings", "notes", "intervals", "sites", "left_out", "simplest", "verdict", "sizes", "evaluation",
)  # fmt: skip
# Reason for leaving out a part of a plan.
OVERSPENT = (
    "the budget does not cover it, because interrupted work could not be repeated and was charged twice"
)
TROUBLED: dict[Status, str] = {"quarantined": "suspected", "probation": "on trial", "watch": "watched"}


@dataclass(frozen=True, kw_only=True)
class Fault:
    """An update that was not aggregated, and why.

    Args:
        site: The site; empty where participation is secret.
        reason: The reason, as a word that programs can count.
        detail: The reason, for people.
    """

    site: str
    reason: Reason
    detail: str


@dataclass(frozen=True, kw_only=True)
class Standing:
    """Standing of a site with the server after some rounds, from its updates alone.

    Args:
        status: Whether it takes part like any other, is watched, is left out, or is back on trial.
        suspicion: Suspicion accumulated against it.
        seen: Number of rounds in which it was judged.
        left: Remaining rounds of a trial.
    """

    status: Status = "active"
    suspicion: float = 0.0
    seen: int = 0
    left: int = 0


@dataclass(frozen=True, kw_only=True)
class Decision:
    """A change of a site's status, and its reason."""

    site: str
    was: Status
    now: Status
    reason: str


@dataclass(frozen=True, kw_only=True)
class Round:
    """One round.

    Args:
        number: Its number, from 1.
        rounds: Number of planned rounds.
        sites: Number of participating sites; None where the draw is secret.
        scores: Scores of the state after the round, on held-out records; empty where there are none.
        epsilon: Cost of everything so far; None in an open run.
        budget: The budget, if there is one.
        seconds: Duration of the round; None where that would disclose how many took part.
        skipped: The reason, if nothing was learned in it.
        faults: Updates that were not aggregated, and why.
        shares: Share of each update in the aggregate, where the rule gives it and it may be published.
        standings: Standing of each site, under a quarantine.
        decisions: Changes of standings, and why.
        clusters: The model of each site, where there are several.
        diary: Metrics of each site beside its update, where they may be published: lists of numbers by their
            names.
    """

    number: int
    rounds: int
    sites: int | None
    scores: dict[str, float]
    epsilon: float | None
    budget: float | None
    seconds: float | None
    skipped: str | None = None
    faults: tuple[Fault, ...] = ()
    shares: dict[str, float] = field(default_factory=dict[str, float])
    standings: dict[str, Standing] = field(default_factory=dict[str, Standing])
    decisions: tuple[Decision, ...] = ()
    clusters: dict[str, int] = field(default_factory=dict[str, int])
    diary: dict[str, dict[str, list[float]]] = field(default_factory=dict[str, dict[str, list[float]]])

    def as_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class Simplest:
    """Simplest baseline of a task: its scores without features, or without training.

    Args:
        name: Its name, such as `Kaplan-Meier`.
        how: How it was computed, in a sentence.
        scores: Its scores, on the records that the model is scored on.
        lower: Names of the scores of which lower is better.
        gain: Interval of the difference between the model's score and this one, better being positive, over
            other held-out records.
    """

    name: str
    how: str
    scores: dict[str, float]
    lower: tuple[str, ...] = ()
    gain: dict[str, tuple[float, float]] = field(default_factory=dict[str, tuple[float, float]])

    def gains(self, scores: Mapping[str, float]) -> dict[str, float]:
        """Return how much better than this each score is, negative if it is worse; NaN is worse."""
        found = {
            name: (value - scores[name]) if name in self.lower else (scores[name] - value)
            for name, value in self.scores.items()
            if name in scores
        }
        return {name: -math.inf if math.isnan(value) else value for name, value in found.items()}


@dataclass(frozen=True, kw_only=True)
class Evaluated:
    """Scores on private held-out records, computed from one noisy table that was paid for.

    Args:
        epsilon: Price of the table for any one held-out record; None in an open run.
        share: Probability with which a record was held out.
        records: Number of held-out records, as the noisy table has it.
        scores: The scores.
        intervals: 95 % intervals, which cover the draw of the held-out records and the noise.
        hidden: Scores that the noise hides, and why.
        simplest: The simplest baseline, from the same table.
        curves: Calibration and risk groups, in lists of numbers by their names, for figures; None
            stands for numbers that the noise hides.
    """

    epsilon: float | None = None
    share: float = 0.0
    records: float = 0.0
    scores: dict[str, float] = field(default_factory=dict[str, float])
    intervals: dict[str, tuple[float, float]] = field(default_factory=dict[str, tuple[float, float]])
    hidden: dict[str, str] = field(default_factory=dict[str, str])
    simplest: Simplest | None = None
    curves: dict[str, list[list[float | None]]] = field(default_factory=dict[str, list[list[float | None]]])


@dataclass(frozen=True, kw_only=True)
class Record:
    """A run from its first round to its last.

    Args:
        rounds: Every round, in order.
        chosen: The round whose state is the model; 0 before the first.
        stopped: The reason why the run ended before the last planned round, if it did.
        scores: Scores of the model.
        baselines: Scores of models that were trained by each site `alone` and on `pooled` records; empty
            where they may not be computed.
        findings: Helpful facts about the result.
        notes: Notes on how to read all this.
        intervals: Spread of scores over other held-out records, by model (`federated`, `alone`, `pooled`) and
            by their names.
        sites: All sites that could take part.
        left_out: Planned parts that the budget did not bear any more.
        simplest: The simplest baseline; None where the task has none, or nothing is scored.
        sizes: Numbers of records and events that the model was `trained` and `scored` on, if known.
        verdict: Sentences on scores that are not better than the simplest baseline; none if all are.
        evaluation: Scores that were bought on private held-out records; None without [evaluate].
    """

    rounds: tuple[Round, ...] = ()
    chosen: int = 0
    stopped: str | None = None
    scores: dict[str, float] = field(default_factory=dict[str, float])
    baselines: dict[str, dict[str, float]] = field(default_factory=dict[str, dict[str, float]])
    findings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    intervals: dict[str, dict[str, tuple[float, float]]] = field(
        default_factory=dict[str, dict[str, tuple[float, float]]]
    )
    sites: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    simplest: Simplest | None = None
    verdict: tuple[str, ...] = ()
    sizes: dict[str, dict[str, int]] = field(default_factory=dict[str, dict[str, int]])
    evaluation: Evaluated | None = None

    def with_evaluation(self, found: Evaluated) -> "Record":
        """Return the record with bought scores; they are the scores of the run where it has no others."""
        added = replace(self, evaluation=found)
        if self.scores:
            return added
        return replace(
            added, scores=found.scores, intervals={"federated": found.intervals}, simplest=found.simplest
        )

    def warnings(self) -> list[str]:
        """Return warnings about updates and sites, in words; empty if there were no faults."""
        faults = Counter((fault.site, fault.reason) for entry in self.rounds for fault in entry.faults)
        skipped = Counter(entry.skipped for entry in self.rounds if entry.skipped)
        last = self.rounds[-1].standings if self.rounds else {}
        now = {
            word: [name for name in last if last[name].status == status] for status, word in TROUBLED.items()
        }
        found = [f"{_many(many, 'round')} skipped: {why}" for why, many in skipped.items()]
        found += [
            f"{site or 'sites'}: {_many(many, 'update')} left out ({reason})"
            for (site, reason), many in faults.items()
        ]
        return found + [f"{word} at the end: {', '.join(names)}" for word, names in now.items() if names]

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON, without the rounds, which have a file of their own."""
        known = fields_of(self, ("chosen", "stopped", "scores", "baselines"))
        ends = {
            model: {name: list(pair) for name, pair in own.items()} for model, own in self.intervals.items()
        }
        words = {"findings": list(self.findings), "notes": list(self.notes)}
        told: dict[str, Any] = {
            **words,
            "intervals": ends,
            "sites": list(self.sites),
            "left_out": list(self.left_out),
            "simplest": None if self.simplest is None else plain_table(self.simplest),
            "verdict": list(self.verdict),
            "sizes": dict(self.sizes),
            "evaluation": None if self.evaluation is None else plain_table(self.evaluation),
        }
        return {
            "rounds": len(self.rounds),
            **known,
            **{name: told[name] for name in ALSO if told[name]},
        }


def sizes_in_words(sizes: Mapping[str, Mapping[str, int]]) -> str:
    """Return the numbers of records and events that a model was trained and scored on, in words."""
    return "; ".join(
        f"{use} on {counts['records']:,} records"
        + (f" with {counts['events']:,} event{'s' * (counts['events'] != 1)}" if "events" in counts else "")
        for use, counts in sizes.items()
    )


def plain_table(part: Simplest | Evaluated) -> dict[str, Any]:
    """Return a part of a record as plain data for JSON, without empty fields."""
    return {name: _as_lists(value) for name, value in msgspec.to_builtins(part).items() if value}


def _as_lists(value: Any) -> Any:  # noqa: ANN401
    """Return plain data with lists for tuples, as JSON has them."""
    if isinstance(value, dict):
        return {key: _as_lists(entry) for key, entry in cast("dict[str, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [_as_lists(entry) for entry in cast("Sequence[Any]", value)]
    return value


def describe(part: Any) -> dict[str, Any]:  # noqa: ANN401
    """Describe an object as a table of an experiment file: its kind and its fields.

    Fields that are not set, and such that no file can hold (a network, a function), are left out. Values are
    as a file is read: sequences are lists, and a whole number given for a real one is that real number,
    however deep it stands. So what is read from this table is described by this table again.
    """
    return _table(part)[0]


def identity_of(part: Any) -> str | None:  # noqa: ANN401
    """Return the canonical text of all options; None where some cannot be written."""
    table, whole = _table(part)
    return canonical(table) if whole else None


def _table(part: Any) -> tuple[dict[str, Any], bool]:  # noqa: ANN401
    """Describe a choice as a table; return it, and True if it holds every option that is set."""
    part = user_object(part)
    own = cast("type[object]", type(part))
    ours = own.__module__.partition(".")[0] == "tacit"
    kind = getattr(part, "kind", None) if ours else f"{own.__module__}:{own.__qualname__}"
    found: dict[str, Any] = {} if kind is None else {"kind": kind}
    whole = True
    for name, value in fields_of(part).items() if is_dataclass(part) else ():
        if is_dataclass(value) and not isinstance(value, type):
            # A choice inside a choice is a table of its own, unless it says nothing.
            value, complete = _table(value)
            whole = whole and complete
        elif value is not None:
            try:
                value = _as_read(plain(value), _hints(own).get(name))
            except Unwritable:
                value, whole = None, False
        found |= {} if value is None or value == {} else {name: value}
    return found, whole


def _as_read(value: Any, kind: Any) -> Any:  # noqa: ANN401
    """Convert a value to the type that it has when read from a file."""
    try:
        return value if kind is None else plain(msgspec.convert(value, type=kind))
    except (msgspec.ValidationError, Unwritable, TypeError):
        # No file is read as such a type, or the constructor lets more pass than the type says.
        return value


@cache
def _hints(own: type[object]) -> dict[str, Any]:
    """The types of a class's fields; none where some cannot be named here."""
    try:
        return get_type_hints(own)
    except (NameError, TypeError):
        return {}


def _many(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


Callback = Callable[[Round], None]
# Callback with the current stage, and the finished share where that is known.
Tell = Callable[[str, float | None], None]


@runtime_checkable
class StageCallback(Protocol):
    """Callback that hears of stages before, between and after rounds."""

    def stage(self, words: str, share: float | None = None) -> None:
        """Report the current stage.

        Args:
            words: The stage, such as `opening the data`.
            share: Finished share, where that is known; then the stage is reported repeatedly.
        """
        ...


@dataclass(frozen=True)
class MappedCallback:
    """Callback that passes changed rounds on to others, and stages unchanged.

    Args:
        callbacks: Callbacks that receive the changed rounds.
        change: Function that changes a round.
    """

    callbacks: Sequence[Callback]
    change: Callable[[Round], Round]

    def __call__(self, entry: Round) -> None:
        """Pass the changed round on to all callbacks."""
        changed = self.change(entry)
        for callback in self.callbacks:
            callback(changed)

    def stage(self, words: str, share: float | None = None) -> None:
        """Report the current stage to all callbacks."""
        notify(self.callbacks, words, share)


def notify(callbacks: Iterable[Callback], words: str, share: float | None = None) -> None:
    """Report a stage to all callbacks that take stages."""
    for callback in callbacks:
        if isinstance(callback, StageCallback):
            callback.stage(words, share)


def silent(words: str, share: float | None) -> None:
    """Report nothing."""
