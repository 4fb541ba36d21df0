"""Encoding of raw columns as numbers by public rules, agreed on before any record is looked at.

One-hot columns for all levels except the first, fixed values for missing ones, shift and scale for numbers.
An encoding looks at no records; `infer_encoding` and `with_scaling` do, and are for public ones.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit.errors import InvalidValue, choices, hint, is_between, require, require_positive, require_word
from tacit.runtime.arrays import Array
from tacit.runtime.contracts import fields_of

if TYPE_CHECKING:
    import pandas as pd

Value = str | float | bool

# Spellings of a missing value, unless one is a level.
MISSING = frozenset(("", "NA", "N/A", "n/a", "<NA>", "#N/A", "NaN", "nan", "null", "NULL", "None"))
# The largest number of levels that an error spells out.
SHOWN = 12
# The number that stands in a message for a usual value, which its reader knows.
USUAL = 50.0
# Values that are dates, and numbers with a comma for the point.
DATE = re.compile(r"\s*(\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4})\b.*")
COMMA = re.compile(r"\s*[+-]?\d+,\d+\s*")
# Words for an observation that ended without an event: they come first among the levels of events.
CENSORED = frozenset(("0", "alive", "censored", "false", "living", "lost", "n", "no", "none"))


@dataclass(frozen=True, kw_only=True)
class Encoding:
    """Public rules that encode raw columns as numbers; plain data, so that a file can hold it.

    Levels and values of a column are compared as they read: 1, 1.0 and "1" are one level, true is "true".

    Args:
        levels: The levels of each column of words, or of codes that are no amounts. Each but the first gets
            a column of 0 and 1, named `column=level`.
        fill: The replacement of a missing value in a column: a number, or a level.
        center: The number subtracted from a numeric column.
        scale: The number that it is divided by then.
    """

    levels: Mapping[str, Sequence[Value]] = field(default_factory=dict[str, Sequence[Value]])
    fill: Mapping[str, Value] = field(default_factory=dict[str, Value])
    center: Mapping[str, float] = field(default_factory=dict[str, float])
    scale: Mapping[str, float] = field(default_factory=dict[str, float])

    def __post_init__(self) -> None:
        words = {column: _levels(column, given) for column, given in self.levels.items()}
        for name, rules in (("center", self.center), ("scale", self.scale)):
            for column, given in rules.items():
                where = f"{name} of {column}"
                require(column not in words, where, given, "left out: the column has levels")
                require(is_between(given, -math.inf, math.inf), where, given, "a finite number")
        for column, given in self.scale.items():
            require_positive(f"scale of {column}", given)
        fill = {column: _fill(column, given, words.get(column)) for column, given in self.fill.items()}
        # As plain as a file holds it, and equal where it means the same.
        object.__setattr__(self, "levels", words)
        object.__setattr__(self, "fill", fill)
        object.__setattr__(self, "center", {column: float(given) for column, given in self.center.items()})
        object.__setattr__(self, "scale", {column: float(given) for column, given in self.scale.items()})

    def apply(self, frame: "pd.DataFrame", place: str = "data") -> "pd.DataFrame":
        """Every column as numbers, in the same order.

        Raises:
            InvalidValue: A value is missing that no rule stands for, a word is none of the levels, a column
                without levels does not hold numbers, or a column that has a rule is not there.
        """
        import pandas as pd

        for column in self.mentioned:
            require_column(frame, column, place)
        made: dict[str, Array] = {}
        for name, values in named_columns(frame, place).items():
            columns = self._indicators if name in self.levels else self._amounts
            for column, found in columns(name, values, place).items():
                require(column not in made, f"columns in {place}", column, "different names")
                made[column] = found
        return pd.DataFrame(made, index=frame.index)

    def part(self, targets: Iterable[str]) -> "tuple[Encoding, Encoding]":
        """Split these rules into those of the features and those of the targets."""
        told = set(targets)
        if told.isdisjoint(self.mentioned):
            return self, Encoding()

        def only(there: bool) -> Encoding:
            kept = fields_of(self, ("levels", "fill", "center", "scale"))
            return Encoding(**{
                rule: {column: value for column, value in given.items() if (column in told) == there}
                for rule, given in kept.items()
            })  # fmt: skip

        return only(False), only(True)

    def codes(self, name: str, values: "pd.Series[Any]", place: str, *, coded: bool = True) -> Array:
        """A target as numbers: one with levels gets their positions, so the first one is 0 (censored).

        Args:
            name: The target.
            values: Its values.
            place: The name of the records in errors.
            coded: False for an amount, such as a time: words are no codes of it.

        Raises:
            InvalidValue: It holds a word that is none of its levels, or something that is no number.
        """
        if name in self.levels:
            return self._ranks(name, values, place).astype(np.float64)
        return numbers(name, values, place, role="event" if coded else "amount")

    def names(self, columns: Iterable[str]) -> tuple[str, ...]:
        """Return the names of the encoded columns."""
        return tuple(name for column in columns for name in self._encode_column(column))

    def raw(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return the raw columns of encoded ones, each once: the inverse of `names`."""
        origin = {name: column for column in self.levels for name in self._encode_column(column)}
        found = [origin.get(name, name) for name in names]
        # A column of one level gives no number, but its words are checked all the same.
        return tuple(dict.fromkeys([*found, *self.mentioned]))

    def features(self, frame: "pd.DataFrame", names: Sequence[str], place: str = "data") -> Array:
        """These columns as a matrix (records, names), from raw records.

        Args:
            frame: Raw records; their columns in any order, others beside them.
            names: Columns as `names` calls them.
            place: The name of the records in errors.
        """
        columns = self.raw(names)
        for column in columns:
            require_column(frame, column, place)
        return self.apply(frame.loc[:, list(columns)], place).loc[:, list(names)].to_numpy(dtype=np.float64)

    @property
    def mentioned(self) -> tuple[str, ...]:
        """The columns that a rule is about, each once."""
        return tuple(dict.fromkeys([*self.levels, *self.fill, *self.center, *self.scale]))

    def _encode_column(self, column: str) -> list[str]:
        return (
            [f"{column}={level}" for level in self.levels[column][1:]] if column in self.levels else [column]
        )

    def _amounts(self, name: str, values: "pd.Series[Any]", place: str) -> dict[str, Array]:
        missing = values.isna().to_numpy()
        if missing.any() and name not in self.fill:
            raise _missing(
                name, missing, place, f"{self.center.get(name, USUAL):.1f}", name not in self.center
            )
        if values.dtype.kind in "biuf":
            found = values.to_numpy(dtype=np.float64, na_value=np.nan)
        else:
            found = numbers(name, values.to_numpy(dtype=object, na_value=np.nan), place)
        if missing.any():
            found = np.where(missing, float(self.fill[name]), found)
        return {name: (found - self.center.get(name, 0.0)) / self.scale.get(name, 1.0)}

    def _indicators(self, name: str, values: "pd.Series[Any]", place: str) -> dict[str, Array]:
        ranks = self._ranks(name, values, place)
        return {
            column: (ranks == rank).astype(np.float64)
            for rank, column in enumerate(self._encode_column(name), start=1)
        }

    def _ranks(self, name: str, values: "pd.Series[Any]", place: str) -> NDArray[np.int64]:
        """Return the position of each value among the levels of its column."""
        import pandas as pd

        levels = cast("Sequence[str]", self.levels[name])
        codes, found = pd.factorize(values)
        words = [_word(value) for value in found]
        unseen = [word for word in words if word not in levels and word not in MISSING]
        if unseen:
            known, mend = _all(levels), "add what is new to its levels, or leave those records out"
            strange = np.isin(codes, [at for at, word in enumerate(words) if word in unseen])
            raise InvalidValue(
                f"{name} in {place} is not allowed: it holds {choices(unseen[:SHOWN])}, its levels are "
                f"{known}; {mend}",
                rule=f"{name} is not allowed: its levels are {known}, and it must hold no other; {mend}",
                rows=np.flatnonzero(strange) + 1,
            )
        # The last entry is where the code of a missing value, -1, points to.
        ranks = np.array([*(levels.index(word) if word in levels else -1 for word in words), -1])[codes]
        missing = ranks < 0
        if missing.any():
            if name not in self.fill:
                raise _missing(name, missing, place, f'"{levels[0]}"')
            ranks = np.where(missing, levels.index(str(self.fill[name])), ranks)
        return ranks


def infer_encoding(frame: "pd.DataFrame") -> Encoding:
    """Infer the encoding from public records: all levels, and the usual value for missing entries.

    That is the median of numbers, and the most frequent word.
    """
    levels: dict[str, list[str]] = {}
    fill: dict[str, Value] = {}
    for name, values in named_columns(frame, "data").items():
        present = values.dropna()
        if values.dtype.kind not in "biuf":
            words = [_word(value) for value in present]
            levels[name] = sorted(set(words))
            usual: Value = max(levels[name], key=words.count)
        else:
            usual = float(present.median())
        if len(present) < len(values):
            fill[name] = usual
    return Encoding(levels=levels, fill=fill)


def with_scaling(frame: "pd.DataFrame", given: Encoding, place: str = "data") -> Encoding:
    """Return the encoding with mean and spread of each numeric column for which it has none.

    Columns of 0 and 1, and such of one value, stay as they are. Ask who may look before you call it.
    """
    center, scale = dict(given.center), dict(given.scale)
    for name, values in given.apply(frame, place).items():
        column, found = str(name), values.to_numpy(dtype=np.float64)
        told = column in center or column in scale or column not in frame.columns
        if not told and not np.isin(found, (0, 1)).all() and found.std() > 0:
            center[column], scale[column] = float(found.mean()), float(found.std())
    return replace(given, center=center, scale=scale)


def named_columns(frame: "pd.DataFrame", place: str) -> "dict[str, pd.Series[Any]]":
    """The columns of a table by their names, no two of which read the same."""
    known = {str(name): frame.loc[:, name] for name in frame.columns}
    require(len(known) == frame.shape[1], f"columns in {place}", "two of one name", "different names")
    return known


def require_column(frame: "pd.DataFrame", name: str, place: str) -> None:
    """Refuse a table without this column; suggest the nearest."""
    known = [str(column) for column in frame.columns]
    if name not in known:
        near = hint(name, known) or f": it has {choices(known) if known else 'none'}"
        told = f"column {name} is missing in {place}{near}"
        # Column names are not private.
        raise InvalidValue(told, rule=told)


Role = Literal["feature", "event", "amount"]


def numbers(name: str, values: ArrayLike, place: str, *, role: Role = "feature") -> Array:
    """Copy columns as numbers; refuse others by name, with the remedy for their role."""
    try:
        found = np.asarray(values)
        if found.dtype.kind in "mMc":
            raise TypeError(f"it holds {found.dtype}")
        # A copy: what was checked must not change behind our back.
        return np.array(found, dtype=np.float64)
    except (ValueError, TypeError, RuntimeError) as error:
        mend = _mend_feature(name, values) if role == "feature" else _mend_target(name, values, role)
        raise InvalidValue(
            f"{name} in {place} does not hold numbers ({error}); {mend}",
            rule=_feature_rule(name) if role == "feature" else _target_rule(name, role),
            rows=_wordy(values),
        ) from error


def _feature_rule(name: str) -> str:
    return (
        f"{name} must hold numbers, with a point for decimals; encode words by all levels that it may have, "
        f"{_levels_to_give(name, ['no', 'yes'])}, or leave it out"
    )


def _target_rule(name: str, role: Role) -> str:
    must = f"{name} must hold numbers, with a point for decimals"
    if role == "amount":
        return f"{must}: of two dates give the days between them"
    return (
        f"{must}: 0 for censored, 1 for an event; give words as its levels, first the word for censored, "
        f"{_levels_to_give(name, ['alive', 'dead'])}"
    )


def _mend_feature(name: str, values: ArrayLike) -> str:
    """Advise about a feature that does not hold numbers."""
    if _all_like(values, DATE):
        return f"it holds dates: {_days(name)}, or leave it out"
    if _all_like(values, COMMA):
        return _mend_commas(name)
    words = _words_of(values)
    shown = f" by all levels that it may have, {_levels_to_give(name, words)}" if words else ""
    return f"encode it{shown}, or leave it out"


def _mend_target(name: str, values: ArrayLike, role: Role) -> str:
    """Advise about a target that does not hold numbers."""
    if _dtype_kind(values) == "m":
        return f'it holds durations: give numbers, as in frame["{name}"] = frame["{name}"].dt.days'
    if _all_like(values, DATE):
        return f"it holds dates: {_days(name)}"
    if _all_like(values, COMMA):
        return _mend_commas(name)
    words = sorted(_words_of(values), key=lambda word: (word.lower() not in CENSORED, word))
    if not words or role == "amount":
        return "correct those records, or leave them out"
    return f"give its words as levels, first the one for censored, {_levels_to_give(name, words)}"


def _days(name: str) -> str:
    return (
        "give the days between two dates, as in "
        f'frame["{name}"] = (pandas.to_datetime(frame[END]) - pandas.to_datetime(frame[START])).dt.days'
    )


def _mend_commas(name: str) -> str:
    return (
        "its decimals have commas: write points, as by "
        f'frame["{name}"] = frame["{name}"].str.replace(",", ".").astype(float)'
    )


def _all_like(values: ArrayLike, pattern: re.Pattern[str]) -> bool:
    """True if every value that is no number is written like this."""
    if _dtype_kind(values) == "M":
        return pattern is DATE
    strange = [value for value in _objects(values) if not _reads(value)]
    return bool(strange) and all(pattern.fullmatch(str(value)) is not None for value in strange)


def _words_of(values: ArrayLike) -> list[str]:
    """Return the different words of a column, if they are few."""
    found = sorted({value for value in _objects(values) if isinstance(value, str)})
    return found if len(found) <= SHOWN else []


def _levels_to_give(name: str, words: Sequence[str]) -> str:
    """Write the levels of a column as a file and as Python has them."""
    shown = ", ".join(f'"{word}"' for word in words)
    in_file = f"as in levels = {{ {_key(name)} = [{shown}] }}"
    return f'{in_file}, in Python encoding=tacit.sites.encoding.Encoding(levels={{"{name}": [{shown}]}})'


def _wordy(values: ArrayLike) -> list[int]:
    """Return the positions, from 1, of values that are no numbers."""
    return [row for row, value in enumerate(_objects(values), 1) if not _reads(value)]


def _objects(values: ArrayLike) -> list[Any]:
    """List single values; rows of different lengths stay rows, and what makes no array has none."""
    try:
        return list(np.asarray(values, dtype=object).ravel())
    except (ValueError, TypeError, RuntimeError):
        return []


def _dtype_kind(values: ArrayLike) -> str:
    """Return numpy's letter for the kind of values; `O` for what makes no array."""
    try:
        return np.asarray(values).dtype.kind
    except (ValueError, TypeError, RuntimeError):
        return "O"


def _reads(value: Any) -> bool:  # noqa: ANN401
    try:
        _ = float(value)
    except (ValueError, TypeError, OverflowError):
        return False
    return True


def _missing(
    name: str, missing: NDArray[np.bool_], place: str, example: str, usual: bool = False
) -> InvalidValue:
    broken = f"{int(missing.sum())} of {len(missing)} records hold NaN or nothing"
    mend = f"give a value for them, as in fill = {{ {_key(name)} = {example} }}"
    mend += f", with a usual value of {name} that is known in public instead of {example}" * usual
    mend += ", or leave the column out"
    return InvalidValue(
        f"{name} in {place} is not allowed: {broken}; {mend}",
        rule=f"{name} is not allowed: nothing may be missing; {mend}",
        rows=np.flatnonzero(missing) + 1,
    )


def _levels(column: str, given: Sequence[Value]) -> list[str]:
    require(not isinstance(given, str), f"levels of {column}", given, 'a list, as ["no", "yes"]')
    words = [_word(level) for level in given]
    require(len(words) > 0, f"levels of {column}", given, "at least one level")
    require(len(set(words)) == len(words), f"levels of {column}", given, "levels that read differently")
    return words


def _fill(column: str, given: Value, levels: Sequence[str] | None) -> Value:
    if levels is not None:
        require_word(f"fill of {column}", _word(given), levels)
        return _word(given)
    require(is_between(given, -math.inf, math.inf), f"fill of {column}", given, "a finite number")
    return float(given)


def _word(value: object) -> str:
    """Return a level as it reads: "2" for 2, 2.0 and "2.0", "true" for True."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Integral):
        return str(int(value))
    if isinstance(value, Real):
        number = float(value)
        require(math.isfinite(number), "level", number, "a word or a finite number", about_records=True)
        return str(int(number)) if number.is_integer() else repr(number)
    text = str(value)
    # Not 007, which is an identifier rather than a number.
    if re.fullmatch(r"-?(0|[1-9]\d*)\.\d+", text):
        return _word(float(text))
    return text.lower() if text.lower() in ("true", "false") else text


def _key(name: str) -> str:
    return name if re.fullmatch(r"[\w-]+", name) else f'"{name}"'


def _all(levels: Sequence[str]) -> str:
    shown = choices(levels[:SHOWN])
    return shown if len(levels) <= SHOWN else f"{shown} and {len(levels) - SHOWN} more"
