"""Races of two sides: compare their answers, then time both in turns.

A side is a function that is given plain values and gets some work ready. Each side runs in a process of its
own, with one thread, in the environment that has what it needs: ours in `.venv`, peers in `.venv-peers`.
Since both import this file, it needs nothing but numpy.
"""

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from typing import Any, Literal

import numpy as np

from bench.sides import Process, Spent, ours_python, peers_python

Answer = Any
By = Literal["cpu", "peak"]
# A repetition calls short work so often that it takes at least this long.
SHORTEST = 0.06
# Shorter work than this is called once more before the clock runs: whoever waits for a turn while others work
# loses its place in caches, which long work hardly notices.
BRIEF = 0.5
# One side takes about so many seconds in a race, if a single repetition does not take longer.
PATIENCE = 1.0
# What took longer than this when it was compared is not done again: what it took to get warm, to compile for
# instance, does not count beside it.
LONG = 10.0
REPEATS = 5


@dataclass(frozen=True)
class Work:
    """Prepared work of one side.

    Args:
        run: What is timed, again and again; always the same work.
        check: What is compared, if that is not what `run` answers: without its noise, for instance. It warms
            up whatever `run` needs.
        seconds: CPU and wall seconds of one repetition, for work that has to look at the clock itself.
    """

    run: Callable[[], Answer]
    check: Callable[[], Answer] | None = None
    seconds: Callable[[], tuple[float, float]] | None = None


Side = Callable[..., Work]


@dataclass(frozen=True)
class Recorded:
    """Time that was measured elsewhere, because the peer is not available here; tables mark it.

    Args:
        seconds: CPU seconds.
        source: Of what, by whom, on what machine.
    """

    seconds: float
    source: str


@dataclass(frozen=True)
class Race:
    """The same work by us and by others.

    Args:
        name: What is computed.
        group: The line of the README that it belongs to.
        ours: Our side.
        theirs: The sides of peers, by name and version.
        same: How far answers may be apart, for each name in them if they have names; relative to the largest
            number of the peer's answer where that is above 1.
        given: What all sides are given.
        goal: How many times faster we mean to be; for each peer, if they differ.
        by: What is compared: CPU seconds, or the most memory that a process of its own took.
        repeats: How often, at most.
    """

    name: str
    group: str
    ours: Side
    theirs: Mapping[str, "Side | Recorded"]
    same: float | Mapping[str, float]
    given: Mapping[str, Any] = field(default_factory=dict)
    goal: float | Mapping[str, float] | None = None
    by: By = "cpu"
    repeats: int = REPEATS

    def goal_against(self, peer: str) -> float | None:
        """Return the ratio to a peer that we aim for."""
        return self.goal.get(peer) if isinstance(self.goal, Mapping) else self.goal


@dataclass(frozen=True)
class Growth:
    """Growth of the cost of some work in one of its sizes.

    Args:
        name: What is computed.
        over: The thing that grows: a name among what sides are given.
        values: What it is, from small to large.
        sides: Ours, and others for comparison.
        most: The largest value for a side that would take too long beyond it.
    """

    name: str
    over: str
    values: Sequence[int]
    sides: Mapping[str, Side]
    most: Mapping[str, int] = field(default_factory=dict)


def run(race: Race, stable: "Stable") -> Iterator[dict[str, Any]]:
    """Check and time a race; one result for each peer."""
    recorded = {peer: side for peer, side in race.theirs.items() if isinstance(side, Recorded)}
    running = {peer: side for peer, side in race.theirs.items() if not isinstance(side, Recorded)}
    with stable.opened({"ours": race.ours, **running}, race.given, alone=race.by == "peak") as sides:
        answers = {who: side.answer() for who, side in sides.items()}
        mine = answers["ours"][0]
        apart = {peer: difference(race, mine, answers[peer][0], peer) for peer in running}
        spent = timed(sides, race.repeats, {who: known for who, (_, known) in answers.items()})
        peaks = {who: side.peak() for who, side in sides.items()}
    for peer in race.theirs:
        if peer in recorded:
            theirs = [Spent(recorded[peer].seconds, recorded[peer].seconds)]
            yield result(race, peer, spent["ours"], theirs, source=recorded[peer].source)
            continue
        memory = {"ours": peaks["ours"], "theirs": peaks[peer]}
        yield result(race, peer, spent["ours"], spent[peer], peak=memory, apart=apart[peer])


def timed(
    sides: Mapping[str, Process], repeats: int, known: Mapping[str, Spent | None]
) -> dict[str, list[Spent]]:
    """Repetitions of all sides in turns, each side first as often as the others.

    Args:
        sides: Whose work is ready.
        repeats: How often, at most.
        known: What the work took when it was compared; where that is long, it is not done again.
    """
    spent: dict[str, list[Spent]] = {}
    calls, times, brief = dict.fromkeys(sides, 1), dict.fromkeys(sides, repeats), dict.fromkeys(sides, False)
    for who, side in sides.items():
        # The first of short work says how often to call it, that of long work counts.
        before = known.get(who)
        first = before if before is not None and before.wall > LONG else side.timed(1)
        calls[who] = 1 if first.wall >= SHORTEST else math.ceil(SHORTEST / max(first.wall, 1e-7))
        brief[who] = first.wall < BRIEF
        spent[who] = [] if brief[who] else [first]
        times[who] = min(repeats, max(1, round(PATIENCE / max(first.wall, SHORTEST))))
    for turn in range(repeats):
        order = list(sides)[turn % len(sides) :] + list(sides)[: turn % len(sides)]
        for who in order:
            if len(spent[who]) < times[who]:
                spent[who].append(sides[who].timed(calls[who], warm=brief[who]))
    return spent


def difference(
    race: Race, ours: Mapping[str, np.ndarray], theirs: Mapping[str, np.ndarray], peer: str
) -> float:
    """Return the difference of two answers; refuse more than is allowed."""
    allowed = race.same if isinstance(race.same, Mapping) else dict.fromkeys(theirs, race.same)
    if not allowed.keys() == theirs.keys() == ours.keys():
        raise Different(
            f"{race.name}: we answer {sorted(ours)}, {peer} {sorted(theirs)}, not {sorted(allowed)}"
        )
    worst = 0.0
    for name, limit in allowed.items():
        mine, other = np.asarray(ours[name], dtype=float), np.asarray(theirs[name], dtype=float)
        if mine.shape != other.shape:
            raise Different(f"{race.name}: {name} has the shape {mine.shape}, that of {peer} {other.shape}")
        apart = float(np.abs(mine - other).max() / max(1.0, float(np.abs(other).max()))) if mine.size else 0.0
        # Written so that a NaN is refused.
        if not apart <= limit:
            raise Different(f"{race.name}: {name} differs from {peer} by {apart:.2g}, allowed is {limit:g}")
        worst = max(worst, apart)
    return worst


class Different(Exception):
    """Two sides did not compute the same: there is nothing to time."""


def result(
    race: Race,
    peer: str,
    ours: Sequence[Spent],
    theirs: Sequence[Spent],
    *,
    peak: Mapping[str, float] | None = None,
    apart: float | None = None,
    source: str | None = None,
) -> dict[str, Any]:
    """A race against one peer as plain data."""
    medians = {who: _medians(spent) for who, spent in (("ours", ours), ("theirs", theirs))}
    if race.by == "peak":
        assert peak is not None, "memory is measured, never recorded"
        ratios = [peak["theirs"] / peak["ours"]]
    else:
        pairs = (
            zip(cycle(theirs), ours, strict=False) if len(theirs) < len(ours) else zip(theirs, cycle(ours))
        )
        ratios = [other.cpu / mine.cpu for other, mine in pairs]
    return {
        "race": race.name,
        "group": race.group,
        "peer": peer,
        "by": race.by,
        "ratio": statistics.median(ratios),
        "lowest": min(ratios),
        "highest": max(ratios),
        "goal": race.goal_against(peer),
        "apart": apart,
        "recorded": source,
        "repeats": {"ours": len(ours), "theirs": len(theirs)},
        "cpu_seconds": {who: found["cpu"] for who, found in medians.items()},
        "wall_seconds": {who: found["wall"] for who, found in medians.items()},
        "peak_megabytes": None if peak is None else dict(peak),
    }


def _medians(spent: Sequence[Spent]) -> dict[str, float]:
    return {what: statistics.median(getattr(one, what) for one in spent) for what in ("cpu", "wall")}


def grown(growth: Growth, stable: "Stable") -> dict[str, Any]:
    """The CPU seconds of each side for each value, and their slopes on logarithmic axes."""
    costs: dict[str, list[float]] = {who: [] for who in growth.sides}
    for value in growth.values:
        able = {who: side for who, side in growth.sides.items() if value <= growth.most.get(who, value)}
        with stable.opened(able, {growth.over: value}) as sides:
            known = {who: side.answer()[1] for who, side in sides.items()}
            for who, spent in timed(sides, 2, known).items():
                costs[who].append(min(one.cpu for one in spent))
    found = {who: (growth.values[: len(cost)], cost) for who, cost in costs.items()}
    return {
        "growth": growth.name,
        "over": growth.over,
        "values": list(growth.values),
        "cpu_seconds": costs,
        "slope": {who: slope(values, cost) for who, (values, cost) in found.items()},
        "last_slope": {who: slope(values[-2:], cost[-2:]) for who, (values, cost) in found.items()},
    }


def slope(values: Sequence[float], costs: Sequence[float]) -> float:
    """The least-squares slope on logarithmic axes: 1 where twice as much costs twice as much."""
    return float(np.polyfit(np.log(values), np.log(costs), 1)[0])


class Stable:
    """The processes of the sides of one file, kept from race to race: to import a peer can take seconds."""

    def __init__(self, module: str) -> None:
        self._module = module
        self._kept: dict[str, Process] = {}
        self._stack = ExitStack()

    def __enter__(self) -> "Stable":
        """Nothing runs yet."""
        return self

    def __exit__(self, *_: object) -> None:
        """All processes end."""
        self._stack.close()

    @contextmanager
    def opened(
        self, sides: Mapping[str, Side], given: Mapping[str, Any], *, alone: bool = False
    ) -> Iterator[dict[str, Process]]:
        """The processes of these sides, with their work ready; new ones, if they have to be alone."""
        with ExitStack() as brief:
            found: dict[str, Process] = {}
            for who, side in sides.items():
                python = ours_python() if who == "ours" else peers_python()
                process = self._new(python, brief) if alone else self._kept.get(who)
                if process is None:
                    process = self._kept[who] = self._new(python, self._stack)
                process.prepare(side.__name__, dict(given))
                found[who] = process
            for process in found.values():
                process.ready()
            yield found

    def _new(self, python: Path, stack: ExitStack) -> Process:
        return stack.enter_context(Process(python, self._module))
