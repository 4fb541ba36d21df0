"""Partial effects of a survival model's features, without any record, one feature at a time.

The typical person is made up from public facts about the features: the center of centered ones, the fill for
a missing value, the first of several levels; 0 without any of these.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tacit.reports.plots.style import shorten_label
from tacit.runtime.arrays import Array
from tacit.survival.models.losses import PoissonLoss
from tacit.survival.models.prediction import GridModel, HazardModel, RelativeModel

if TYPE_CHECKING:
    from tacit.sites.encoding import Encoding

# Number of features to try, and of people at once: a report has no time for more.
TRIED, AT_ONCE = 400, 256
# Letters of a feature's name, and number of levels that are spelled out.
LETTERS, SPELLED = 22, 4
# Differences of log hazards beyond this are as good as infinite.
FAR = 20.0


@dataclass(frozen=True, eq=False)
class Person:
    """A person like the typical one, except for one feature.

    Args:
        words: The difference.
        inputs: The features as a model takes them (columns,).
    """

    words: str
    inputs: Array


@dataclass(frozen=True, eq=False)
class Change:
    """A feature, and the people who differ in it.

    Args:
        name: The feature, or a level of it.
        step: Size of the step, in its own unit; None where it becomes another level.
        people: The person one step up, or at the other level; and the one a step down, where that makes
            sense.
    """

    name: str
    step: float | None
    people: tuple[Person, ...]

    def words(self, sides: int = 2) -> str:
        """Return the feature and its step, to one or two sides, in words."""
        if self.step is None:
            return self.name
        sign = "\N{PLUS-MINUS SIGN}" if min(sides, len(self.people)) > 1 else "+"
        return f"{self.name} {sign} {self.step:.3g}"


@dataclass(frozen=True, eq=False)
class Effects:
    """Effects of changes to a typical person.

    Args:
        changes: Each change.
        found: Effect on each of its people: the difference from the typical person, of the model's log hazard
            or of the probability of an event until `when`.
        when: The time of the probabilities; None for log hazards whose differences stay the same over time.
        chance: The probability of the typical person.
    """

    changes: tuple[Change, ...]
    found: tuple[tuple[float, ...], ...]
    when: float | None = None
    chance: float = math.nan

    @property
    def strengths(self) -> Array:
        """Largest effect of each change, to either side (changes,)."""
        return np.array([np.abs(row).max() for row in self.found])


def typical(columns: Sequence[str], encoding: "Encoding") -> Array:
    """The typical person's features as a model takes them (columns,)."""
    levels = _levels(encoding)
    return np.array([_usual(name, encoding, levels) for name in columns], dtype=np.float64)


def changes(columns: Sequence[str], encoding: "Encoding") -> list[Change]:
    """Return a change of every feature; of very many features the first ones."""
    usual, levels, found = typical(columns, encoding), _levels(encoding), list[Change]()
    for place, name in enumerate(columns[:TRIED]):
        if name not in levels:
            found.append(_shift_number(name, place, usual, encoding))
            continue
        column, level = levels[name]
        # A person usually at this level changes to the first one, which has no column of its own.
        other = str(encoding.levels[column][0]) if usual[place] else level
        found.append(_switch_level(column, other, columns, usual, levels))
    return found


def describe_typical(columns: Sequence[str], encoding: "Encoding") -> str:
    """Describe the typical person in words."""
    levels = _levels(encoding)
    raw = dict.fromkeys(levels[name][0] for name in columns if name in levels)
    spelled = [
        f"{shorten_label(name, LETTERS)} = {shorten_label(_level(name, encoding), LETTERS)}" for name in raw
    ]
    more = [f"{len(spelled) - SPELLED} more at their first level"] * (len(spelled) > SPELLED)
    plain = [name for name in columns if name not in levels]
    counts = {
        "at their center": sum(name in encoding.center for name in plain),
        "at the fill value of missing entries": sum(
            name in encoding.fill and name not in encoding.center for name in plain
        ),
    }
    zero = len(plain) - sum(counts.values())
    counts["at 0, because no public value is typical"] = zero
    parts = [f"{count} feature{'s' * (count != 1)} {where}" for where, count in counts.items() if count]
    return f"Typical person: {'; '.join([*parts, *spelled[:SPELLED], *more])}"


def effects(model: GridModel, usual: Array, changed: Sequence[Change], when: float | None = None) -> Effects:
    """Compute the effects of changes to a typical person, by a model.

    Args:
        model: The model.
        usual: The typical person (columns,).
        changed: The changes to try.
        when: The time of probabilities, where hazards are not proportional; by default the typical person's
            median, or the end of the grid.
    """
    people = np.array([usual, *(person.inputs for change in changed for person in change.people)])
    chance, ratios = math.nan, _log_hazards(model, people)
    if ratios is not None:
        values, when = np.clip(np.nan_to_num(ratios), -FAR, FAR), None
    else:
        when = float(min(model.median(usual)[0], model.ends[-1])) if when is None else when
        chances = 1 - np.concatenate([model.survival(part, [when])[:, 0] for part in _parts(people)])
        chance, values = float(chances[0]), chances - chances[0]
    ends = np.cumsum([len(change.people) for change in changed])[:-1]
    found = tuple(tuple(own.tolist()) for own in np.split(values[1:], ends))
    return Effects(tuple(changed), found, when, chance)


def _log_hazards(model: GridModel, people: Array) -> Array | None:
    """Return log hazards less that of the first person, if the difference is constant over time."""
    if isinstance(model, RelativeModel):
        found = np.concatenate([model.log_risk(part) for part in _parts(people)])
        if found.shape[1] > 1:
            return None
        return found[:, 0] - found[0, 0]
    if isinstance(model, HazardModel) and isinstance(model.loss, PoissonLoss):
        found = np.concatenate([model.outputs(part)[:, 0] for part in _parts(people)])
        return found - found[0]
    return None


def _parts(people: Array) -> list[Array]:
    return np.split(people, range(AT_ONCE, len(people), AT_ONCE))


def _levels(encoding: "Encoding") -> dict[str, tuple[str, str]]:
    """Return column and level of each 0-1 column, by its name."""
    return {
        f"{column}={level}": (column, str(level))
        for column, levels in encoding.levels.items()
        for level in levels[1:]
    }


def _level(column: str, encoding: "Encoding") -> str:
    """Return the usual level of a column."""
    return str(encoding.fill.get(column, encoding.levels[column][0]))


def _usual(name: str, encoding: "Encoding", levels: dict[str, tuple[str, str]]) -> float:
    """Return the usual value of a column, encoded."""
    if name in levels:
        column, level = levels[name]
        return float(_level(column, encoding) == level)
    if name in encoding.center or name not in encoding.fill:
        return 0.0
    return float(encoding.fill[name]) / encoding.scale.get(name, 1.0)


def _shift_number(name: str, place: int, usual: Array, encoding: "Encoding") -> Change:
    """Return a number that is one step larger; and smaller, where it has a center to be smaller than."""
    step, centre = encoding.scale.get(name, 1.0), encoding.center.get(name, 0.0)
    shown, people = shorten_label(name, LETTERS), list[Person]()
    # A column positive on average, but not one step below, is likely to be an amount, which cannot be
    # negative.
    both = name in encoding.center and not centre > 0 > centre - step
    for side in (1.0, -1.0) if both else (1.0,):
        inputs = usual.copy()
        inputs[place] += side
        people.append(Person(f"{shown} = {centre + step * inputs[place]:.3g}", inputs))
    return Change(shown, step, tuple(people))


def _switch_level(
    column: str, level: str, columns: Sequence[str], usual: Array, levels: dict[str, tuple[str, str]]
) -> Change:
    """Another level of a column of words."""
    inputs = usual.copy()
    for place, name in enumerate(columns):
        if levels.get(name, ("", ""))[0] == column and name in levels:
            inputs[place] = float(levels[name][1] == level)
    shown = shorten_label(f"{column}={level}", LETTERS)
    return Change(shown, None, (Person(shown, inputs),))
