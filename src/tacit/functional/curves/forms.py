"""The forms in which curves are given: arrays, pairs of times and values, tables, objects of scikit-fda.

A form is recognized by what it has, so that no library has to be there to be understood. What comes out is
numbers as they were given; whether they make curves is checked where curves are made.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from tacit.errors import require
from tacit.functional.curves.basis import Domain
from tacit.runtime.arrays import Array
from tacit.runtime.contracts import Shaped
from tacit.sites.encoding import named_columns, numbers, require_column

if TYPE_CHECKING:
    import pandas as pd

Rows = NDArray[np.int64]

# The column of a table that names subjects.
SUBJECT = "subject"
# On how many points a curve of scikit-fda that is known everywhere is read, for each function it is made of.
DENSE = 10


@dataclass(frozen=True, eq=False, kw_only=True)
class RawCurves:
    """Curves as they were given: on a grid (subjects, times), or one observation after the other.

    Args:
        values: On the grid, NaN where nothing was observed, or of every observation.
        times: Of the grid, or of every observation; None if not given.
        owners: The subject of every observation; None on a grid.
        count: The number of subjects, for single observations.
        domain: The interval of definition, if the form has one.
        subjects: Their names, if it has any.
    """

    values: Array
    times: Array | None = None
    owners: Rows | None = None
    count: int = 0
    domain: Domain | None = None
    subjects: tuple[str, ...] | None = None


def parse(given: object, name: str) -> RawCurves:
    """Parse any supported form of curves.

    Raises:
        InvalidValue: It is no form of curves, or does not hold numbers.
    """
    if _has(given, "columns", "iloc"):
        return wide(cast("pd.DataFrame", given), name)
    for attributes, form in _OBJECTS.items():
        if _has(given, *attributes):
            return form(given, name)
    if isinstance(given, list | tuple):
        entries = cast("Sequence[object]", given)
        if len(entries) > 0 and all(_is_pair(entry) for entry in entries):
            return _pairs(cast("Sequence[tuple[object, object]]", entries), name)
        if isinstance(entries, tuple) and len(entries) == 2:
            found = parse(entries[1], name)
            require(found.owners is None, f"times of {name}", "some", "left out: each subject has its own")
            return replace(found, times=_numbers(f"times of {name}", entries[0]))
    return RawCurves(values=_numbers(name, cast(object, given)))


def wide(frame: "pd.DataFrame", name: str) -> RawCurves:
    """One row for each subject, one column for each time; a column `subject` may name them."""
    known = named_columns(frame, name)
    names = known.pop(SUBJECT, None)
    times = _headings(list(known), name)
    columns = [_column(column, found, name) for column, found in known.items()]
    values = np.column_stack(columns) if columns else np.empty((len(frame), 0))
    subjects = _index(frame) if names is None else _names(names.to_numpy(dtype=object), name)
    return RawCurves(values=values, times=times, subjects=subjects)


def observations(
    frame: "pd.DataFrame", subject: str, time: str, value: str, name: str, subjects: Sequence[object] | None
) -> RawCurves:
    """One row for each observation, in any order."""
    import pandas as pd

    for column in (subject, time, value):
        require_column(frame, column, name)
    known = named_columns(frame, name)
    codes, found = pd.factorize(known[subject], sort=True)
    nameless = int((codes < 0).sum())
    given = f"{nameless} observations without"
    require(nameless == 0, f"{subject} in {name}", given, "that of each one", about_records=True)
    order = [str(entry) for entry in (found if subjects is None else subjects)]
    _require_once(order, name)
    place = {entry: position for position, entry in enumerate(order)}
    # Others than were asked for are left out.
    owners = np.array([place.get(str(entry), -1) for entry in found], dtype=np.int64)[codes]
    times, values = _column(time, known[time], name), _column(value, known[value], name)
    rows = np.lexsort((times, owners))
    kept = rows[owners[rows] >= 0]
    return RawCurves(
        values=values[kept],
        times=times[kept],
        owners=owners[kept],
        count=len(order),
        subjects=tuple(order),
    )


def _on_grid(given: object, name: str) -> RawCurves:
    """Read a `FDataGrid` of scikit-fda."""
    found: Any = given
    values, grids = _numbers(name, found.data_matrix), list(found.grid_points)
    plain = len(grids) == 1 and values.ndim == 3 and values.shape[2] == 1
    require(
        plain, name, f"{len(grids)} arguments, shape {values.shape}", "curves of one number over one time"
    )
    return RawCurves(
        values=values[:, :, 0], times=_numbers(f"times of {name}", grids[0]), domain=_range(given, name)
    )


def _irregular(given: object, name: str) -> RawCurves:
    """Read a `FDataIrregular` of scikit-fda."""
    found: Any = given
    values, times = _numbers(name, found.values), _numbers(f"times of {name}", found.points)
    plain = values.size == times.size == len(values)
    require(plain, name, f"values of shape {values.shape}", "curves of one number over one time")
    counts = np.diff(np.append(np.asarray(found.start_indices, dtype=np.int64), len(values)))
    owners = np.repeat(np.arange(len(counts), dtype=np.int64), counts)
    rows = np.lexsort((times.ravel(), owners))
    return RawCurves(
        values=values.ravel()[rows],
        times=times.ravel()[rows],
        owners=owners,
        count=len(counts),
        domain=_range(given, name),
    )


def _everywhere(given: object, name: str) -> RawCurves:
    """Read a `FDataBasis` of scikit-fda on a grid that is dense against its basis functions."""
    found: Any = given
    domain = _range(given, name)
    points = DENSE * int(np.shape(found.coefficients)[-1]) + 1
    times = np.linspace(*domain, points)
    values = _numbers(name, found(times))
    plain = values.ndim == 3 and values.shape[1:] == (points, 1)
    require(plain, name, f"shape {values.shape}", "curves of one number over one time")
    return RawCurves(values=values[:, :, 0], times=times, domain=domain)


def _range(given: Any, name: str) -> Domain:  # noqa: ANN401
    ends = _numbers(f"domain of {name}", given.domain_range)
    require(ends.shape == (1, 2), name, f"{len(ends)} arguments", "curves over one time")
    return float(ends[0, 0]), float(ends[0, 1])


def _pairs(given: Sequence[tuple[object, object]], name: str) -> RawCurves:
    """Return one pair of times and values for each subject."""
    times: list[Array] = []
    values: list[Array] = []
    for row, (when, what) in enumerate(given):
        times.append(_numbers(f"times of {name}, row {row},", when))
        values.append(_numbers(f"{name}, row {row},", what))
        alike = times[-1].ndim == 1 and times[-1].shape == values[-1].shape
        shapes = f"times of shape {times[-1].shape}, values of shape {values[-1].shape}"
        require(alike, f"{name}, row {row},", shapes, "one value for each time", about_records=True)
    counts = [len(found) for found in values]
    owners = np.repeat(np.arange(len(counts), dtype=np.int64), counts)
    return RawCurves(
        values=np.concatenate(values), times=np.concatenate(times), owners=owners, count=len(counts)
    )


def _is_pair(given: object) -> bool:
    """Return True for a pair of times and values, each a list."""
    if not isinstance(given, list | tuple):
        return False
    entries = cast("Sequence[object]", given)
    return len(entries) == 2 and _is_row(entries[0]) and _is_row(entries[1])


def _is_row(given: Any) -> bool:  # noqa: ANN401
    return len(given.shape) == 1 if isinstance(given, Shaped) else isinstance(given, list | tuple)


def _headings(columns: Sequence[str], name: str) -> Array | None:
    """Return the times that columns are named after; None if their names are words, all of them."""
    found = {column: time for column in columns if (time := _time(column)) is not None}
    if len(found) == len(columns):
        return np.array(list(found.values()))
    word = next(column for column in columns if column not in found)
    require(not found, f"column of {name}", word, f"a time, as every other name of a column but {SUBJECT}")
    return None


def _time(column: str) -> float | None:
    try:
        return float(column)
    except ValueError:
        return None


def _column(column: str, values: "pd.Series[Any]", name: str) -> Array:
    if values.dtype.kind in "biuf":
        return values.to_numpy(dtype=np.float64, na_value=np.nan)
    return numbers(column, values.to_numpy(dtype=object, na_value=np.nan), name)


def _index(frame: "pd.DataFrame") -> tuple[str, ...] | None:
    """Return the names of rows; numbers from 0 on are none."""
    import pandas as pd

    names = tuple(str(entry) for entry in cast("Sequence[Hashable]", frame.index))
    plain = isinstance(frame.index, pd.RangeIndex) or len(set(names)) < len(names)
    return None if plain else names


def _names(given: NDArray[np.object_], name: str) -> tuple[str, ...]:
    names = tuple("" if entry is None or entry != entry else str(entry) for entry in given)
    allowed = "the name of each one"
    require("" not in names, f"{SUBJECT} in {name}", "a row without", allowed, about_records=True)
    _require_once(names, name)
    return names


def _require_once(names: Sequence[str], name: str) -> None:
    twice = [entry for entry, times in _occurrences(names).items() if times > 1]
    given = f"{twice[0]} twice" if twice else ""
    require(not twice, f"subjects of {name}", given, "each of them once", about_records=True)


def _occurrences(names: Sequence[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for entry in names:
        found[entry] = found.get(entry, 0) + 1
    return found


def _numbers(name: str, given: Any) -> Array:  # noqa: ANN401
    """Copy values as numbers; masked ones were not observed."""
    if isinstance(given, np.ma.MaskedArray):
        # Doubles, since whole numbers have no NaN.
        masked = cast("np.ma.MaskedArray[Any, np.dtype[np.float64]]", given)
        given = np.ma.filled(masked.astype(np.float64), np.nan)
    return numbers(name, given, "data")


def _has(given: object, *names: str) -> bool:
    # scikit-fda need not be there, so its classes cannot be named.
    return all(hasattr(given, name) for name in names)


# The objects of scikit-fda, by what each of them has.
_OBJECTS: dict[tuple[str, ...], Callable[[object, str], RawCurves]] = {
    ("data_matrix", "grid_points"): _on_grid,
    ("start_indices", "points", "values"): _irregular,
    ("coefficients", "basis", "domain_range"): _everywhere,
}
