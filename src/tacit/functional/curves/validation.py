"""What numbers must be to make curves; what is broken is named, and the first subject it is broken for."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tacit.errors import InvalidValue, require
from tacit.functional.curves.basis import ROUNDING, Domain

Array = NDArray[np.float64]
Rows = NDArray[np.int64]

# Squares of squares of values are taken; beyond this they are no longer numbers.
LARGEST = 1e50


def require_shapes(times: Array, values: Array, owners: Rows | None, place: str) -> None:
    """Refuse arrays that do not belong together."""
    require(times.ndim == 1, f"times of {place}", f"shape {times.shape}", "one list of times")
    if owners is None:
        given = f"shape {values.shape} for {len(times)} times"
        require(values.ndim == 2 and values.shape[1] == len(times), place, given, "subjects by times")
        return
    given = f"{values.shape} values, {owners.shape} owners for {len(times)} times"
    require(values.shape == owners.shape == times.shape, place, given, "one value and owner for each time")
    steps = np.diff(owners, prepend=-1)
    in_order = bool(np.isin(steps, (0, 1)).all() and steps[:1].all())
    require(in_order, f"owners of {place}", owners[:10].tolist(), "0, 1, ... in order, none left out")


def require_times(
    times: Array, owners: Rows | None, domain: Domain, place: str, subjects: Sequence[str] | None
) -> None:
    """Refuse times outside the domain, and such that do not increase."""
    low, high = domain
    near = ROUNDING * (high - low)
    outside = ~((times >= low - near) & (times <= high + near))
    if outside.any():
        first = float(times[outside][0])
        raise InvalidValue(
            f"times of {place} are not allowed: {first:g} is outside the domain, {low:g} to {high:g}",
            rule=f"times of {place} are not allowed: they must lie in the domain, {low:g} to {high:g}",
        )
    back = np.diff(times) <= 0
    if owners is not None:
        back &= owners[1:] == owners[:-1]
    if back.any():
        at = int(np.argmax(back))
        whose = "" if owners is None else f" for {_label(int(owners[at]), subjects)}"
        raise InvalidValue(
            f"times of {place} are not allowed: {float(times[at + 1]):g} comes after {float(times[at]):g}"
            f"{whose}; they must increase, each of them once",
            rule=f"times of {place} are not allowed: they must increase, each of them once",
        )


def require_observations(
    values: Array, owners: Rows | None, place: str, subjects: Sequence[str] | None
) -> None:
    """Refuse infinite values and such as good as infinite, and on a common grid subjects without any."""
    infinite = np.abs(values) > LARGEST
    if owners is not None:
        infinite |= np.isnan(values)
    if infinite.any():
        at = int(
            owners[infinite][0] if owners is not None else np.flatnonzero(infinite)[0] // values.shape[1]
        )
        must = f"finite, or NaN where nothing was observed, and at most {LARGEST:g}"
        raise InvalidValue(
            f"{place} is not allowed: {_label(at, subjects)} has an infinite value; it must be {must}",
            rule=f"{place} is not allowed: every value must be {must}",
            rows=[at + 1],
        )
    if owners is None:
        require_each(np.isnan(values).sum(axis=1) < values.shape[1], place, subjects)


def require_each(seen: NDArray[np.bool_], place: str, subjects: Sequence[str] | None) -> None:
    """Refuse subjects of whom nothing was observed."""
    if not seen.all():
        unseen = _label(int(np.argmin(seen)), subjects)
        raise InvalidValue(
            f"{place} is not allowed: {unseen} has no observation; each needs at least one",
            rule=f"{place} is not allowed: each subject needs at least one observation",
            rows=np.flatnonzero(~seen) + 1,
        )


def _label(row: int, subjects: Sequence[str] | None) -> str:
    return f"the subject in row {row}" if subjects is None else f"subject {subjects[row]}"
