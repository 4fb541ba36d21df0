"""Curves of subjects: on a common grid, with holes, or each observed at times of its own.

Curves are checked once, when they are made, and stay where they live: what leaves a party is made from their
coordinates in a frame, which depend on one curve each.
"""

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit.errors import InvalidValue, is_between, require, require_positive
from tacit.functional.curves import basis, forms, smoothing
from tacit.functional.curves.basis import ROUNDING, Domain, Frame, interval
from tacit.runtime.arrays import Array
from tacit.runtime.fingerprints import digest_observations, digest_table
from tacit.runtime.silence import suppress_warnings
from tacit.runtime.sketches import Digests
from tacit.sites import table_files
from tacit.sites.encoding import numbers

if TYPE_CHECKING:
    import pandas as pd
Rows = NDArray[np.int64]

# Values of one time that differ by less than this, as a share of the largest value, are the same.
ALIKE = 1e-12
# Squares of squares of values are taken; beyond this they are no longer numbers.
LARGEST = 1e50


@dataclass(frozen=True, eq=False, kw_only=True)
class Curves:
    """One curve for each subject.

    Args:
        times: Of the common grid, increasing; or of every observation, increasing within each subject.
        values: On the grid, NaN where nothing was observed (subjects, times); or of every observation.
        owners: The subject of every observation, 0, 1, ... in order; None on a common grid.
        domain: The interval on which curves are defined: a public choice.
        place: Their name in errors.
        subjects: The subjects' names, if they have any, which identify them.
        guessed: True if the domain was taken from the observed times, because none was given.
    """

    times: Array = field(repr=False)
    values: Array = field(repr=False)
    domain: Domain
    owners: Rows | None = field(default=None, repr=False)
    place: str = "curves"
    subjects: tuple[str, ...] | None = field(default=None, repr=False)
    guessed: bool = field(default=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "domain", interval(f"domain of {self.place}", self.domain))
        require_shapes(self.times, self.values, self.owners, self.place)
        require_times(self.times, self.owners, self.domain, self.place, self.subjects)
        require_observations(self.values, self.owners, self.place, self.subjects)
        if self.subjects is not None:
            given = f"{len(self.subjects)} names for {self.count} subjects"
            require(len(self.subjects) == self.count, f"subjects of {self.place}", given, "one for each")

    def __len__(self) -> int:
        return self.count

    @property
    def count(self) -> int:
        """Number of subjects."""
        if self.owners is None:
            return len(self.values)
        return int(self.owners[-1]) + 1 if len(self.owners) else 0

    def take(self, rows: ArrayLike | slice, place: str | None = None) -> "Curves":
        """The curves of the subjects at these positions, in this order."""
        chosen = _positions(rows, self.count)
        times, values, owners = self.times, self.values, self.owners
        if owners is None:
            values = values[chosen]
        else:
            counts = np.bincount(owners, minlength=self.count)
            ends, many = np.cumsum(counts), counts[chosen]
            shift = (ends - counts)[chosen] - (np.cumsum(many) - many)
            slots = np.repeat(shift, many) + np.arange(int(many.sum()))
            times, values, owners = times[slots], values[slots], np.repeat(np.arange(len(chosen)), many)
        known = self.subjects
        subjects = None if known is None else tuple(known[int(row)] for row in chosen)
        place = place or self.place
        return self._replace(times=times, values=values, owners=owners, subjects=subjects, place=place)

    def reorder(self, subjects: Sequence[object], place: str | None = None) -> "Curves":
        """The curves of the subjects of these names, in this order."""
        known = self.subjects
        if known is None:
            raise InvalidValue(
                f"subjects of {self.place} are not known: name them in a column {forms.SUBJECT}"
            )
        rows = {name: row for row, name in enumerate(known)}
        names = [str(name) for name in subjects]
        missing = [name for name in names if name not in rows]
        if missing:
            raise InvalidValue(
                f"{self.place} is not allowed: subject {missing[0]} has no observation",
                rule=f"{self.place} is not allowed: each subject needs at least one observation",
            )
        return self.take([rows[name] for name in names], place)

    def coordinates(self, frame: Frame, smooth: float = 0.0) -> Array:
        """Each curve in a frame (subjects, functions), by penalized least squares on its own observations.

        The mean square of residuals, plus roughness times `smooth` over that of the smoothest function that
        bends, is made least in all functions of the basis; the frame's are kept. What observations leave
        open, such as between few of them, is settled by a tiny ridge on roughness: as smooth as can be.

        Args:
            frame: On a domain that holds that of the curves.
            smooth: A public number without unit: a function r times as rough as the smoothest that bends is
                multiplied by 1 / (1 + smooth r) where observations are dense. So 1 leaves hardly more than
                lines, 1e-4 halves a wave that the domain holds about 8 times, and 0 is plain least squares.
        """
        not_negative = smooth == 0 or is_between(smooth, 0, math.inf)
        require(not_negative, "smooth", smooth, "a finite number of at least 0")
        low, high = frame.domain
        inside = low <= self.domain[0] and self.domain[1] <= high
        require(inside, f"domain of {self.place}", self.domain, f"inside {frame.domain}, that of the basis")
        whole = basis.frame(frame.basis)
        found = smoothing.smooth_curves(self.times, self.values, self.owners, whole, float(smooth))
        return found[:, : frame.size]

    def interpolate(self, times: ArrayLike) -> Array:
        """The curves at these times (subjects, times), straight between those of their common grid."""
        if self.owners is not None:
            raise InvalidValue(f"{self.place} has no common grid: each subject was observed at its own times")
        wanted = numbers("times", times, self.place)
        low, high = float(self.times[0]), float(self.times[-1])
        inside = wanted.ndim == 1 and bool(((wanted >= low) & (wanted <= high)).all())
        require(inside, f"times for {self.place}", wanted.tolist(), f"inside its grid, {low:g} to {high:g}")
        if len(self.times) == 1:
            return np.repeat(self.values, len(wanted), axis=1)
        left = (np.searchsorted(self.times, wanted, side="right") - 1).clip(0, len(self.times) - 2)
        share = (wanted - self.times[left]) / (self.times[left + 1] - self.times[left])
        between_both = (1 - share) * self.values[:, left] + share * self.values[:, left + 1]
        # At a time of the grid, a hole beside it does not matter.
        exact = np.where(share == 1, self.values[:, left + 1], between_both)
        return np.where(share == 0, self.values[:, left], exact)

    def standardise(self, center: float, scale: float) -> "Curves":
        """Every value less `center`, then divided by `scale`: public numbers both."""
        require(is_between(center, -math.inf, math.inf), f"center of {self.place}", center, "a finite number")
        require_positive(f"scale of {self.place}", scale)
        # Overflow makes a curve invalid; protected curves are then clipped to zero.
        with np.errstate(over="ignore", invalid="ignore"):
            return self._replace(values=(self.values - center) / scale)

    def digest(self) -> bytes:
        """A fingerprint of every number; as private as the curves, so it stays with them."""
        found = hashlib.sha256(repr((self.domain, self.count, self.subjects)).encode())
        for values in (self.times, self.values, *(() if self.owners is None else (self.owners,))):
            found.update(repr(values.shape).encode() + np.ascontiguousarray(values).tobytes())
        return found.digest()

    def digest_rows(self) -> Digests:
        """Digest each subject, so that the same people are recognized in other data (subjects,)."""
        if self.owners is None:
            return digest_table(self.values, ())
        return digest_observations(self.values, self.owners, self.count)

    def require_varying(self) -> None:
        """Refuse curves that are the same for all subjects: nothing can be learned from them.

        It looks at every curve, and so needs permission to look.
        """
        seen = ~np.isnan(self.values)
        values = self.values[seen]
        within = ALIKE * np.abs(values).max()
        if self.owners is None and bool(seen.all()):
            compared = self.count >= 2 and np.ptp(self.values, axis=0).max() <= within
        else:
            compared = self._alike(seen, within)
        if compared or np.ptp(values) <= within:
            must = "it must differ between subjects, or be left out"
            raise InvalidValue(
                f"{self.place} is not allowed: all {self.count} subjects have the same curve; {must}",
                rule=f"{self.place} is not allowed: {must}",
            )

    def _alike(self, seen: NDArray[np.bool_], within: float) -> bool:
        """Return True if subjects observed at the same time have the same value, at all times of several."""
        when = np.broadcast_to(self.times, self.values.shape)[seen]
        order = np.argsort(when, kind="stable")
        sorted_times, values = when[order], self.values[seen][order]
        starts = np.flatnonzero(np.diff(sorted_times, prepend=np.nan) != 0)
        spread = np.maximum.reduceat(values, starts) - np.minimum.reduceat(values, starts)
        return bool(np.diff(starts, append=len(values)).min() >= 2 and spread.max() <= within)

    def _replace(self, **changes: Any) -> "Curves":
        """Replace fields that were checked already: what is valid together is valid apart."""
        made = object.__new__(Curves)
        vars(made).update({**vars(self), **changes})
        return made


@suppress_warnings()
def curves(
    given: object,
    *,
    name: str,
    times: ArrayLike | None = None,
    domain: Sequence[float] | None = None,
    least: int = 2,
) -> Curves:
    """Make `Curves` from any supported form.

    Args:
        given: An array or tensor (subjects, times), NaN where nothing was observed; `(times, array)`; a list
            with a pair of times and values for each subject; a DataFrame whose columns are times, and
            optionally `subject`; a `FDataGrid`, `FDataBasis` or `FDataIrregular` of scikit-fda; `Curves`.
        name: Their name in errors.
        times: The grid, if `given` has none; by default equally spaced over the domain.
        domain: The interval of definition; by default from the first time to the last, and [0, 1] without
            times. Give it for curves to protect: the first and the last time are some subject's own data.
        least: The smallest number of subjects; 1 is enough to predict for.

    Raises:
        InvalidValue: They are no curves; the message gives the reason, and the first subject to blame.
    """
    ends = None if domain is None else interval(f"domain of {name}", domain)
    if isinstance(given, Curves):
        require(times is None, f"times of {name}", "some", "left out: curves have theirs")
        return given if ends is None else replace(given, domain=ends, guessed=False)
    found = forms.parse(given, name)
    if times is not None:
        require(found.owners is None, f"times of {name}", "some", "left out: each subject has its own")
        found = replace(found, times=numbers(f"times of {name}", times, "data"))
    return _build(found, name, ends, least)


@suppress_warnings()
def long(
    frame: "pd.DataFrame",
    *,
    subject: str = forms.SUBJECT,
    time: str = "time",
    value: str = "value",
    subjects: Sequence[object] | None = None,
    name: str | None = None,
    domain: Sequence[float] | None = None,
    least: int = 2,
) -> Curves:
    """Make curves from a long table with one row for each observation, in any order.

    Args:
        frame: The observations; one without a value counts as none.
        subject: The column that says whose it is.
        time: The column that says when it was made.
        value: The column that holds it.
        subjects: Those to take, in this order; if not said, all of them, sorted.
        name: Their name in errors; by default the column of values.
        domain: From when to when (`curves`).
        least: The smallest number of subjects.
    """
    place = name or value
    found = forms.observations(frame, subject, time, value, place, subjects)
    return _build(found, place, None if domain is None else interval(f"domain of {place}", domain), least)


@suppress_warnings()
def read(
    path: str | Path,
    name: str,
    *,
    subjects: Sequence[object] | None = None,
    domain: Sequence[float] | None = None,
    least: int = 2,
) -> Curves:
    """Read curves from a CSV or Parquet file: one row per subject, one column per time, named after it.

    A column `subject` may name subjects; nothing stands where nothing was observed.

    Args:
        path: The file.
        name: Their name in errors.
        subjects: Those to take, in this order; if not said, all of them as the file has them.
        domain: From when to when (`curves`).
        least: The smallest number of subjects.
    """
    found = forms.wide(table_files.read(path, words=(forms.SUBJECT,)), name)
    words = found.times is None
    require(not words, f"columns of {name}", "words", f"times, as 0, 0.5, 1, beside {forms.SUBJECT}")
    made = _build(found, name, None if domain is None else interval(f"domain of {name}", domain), least)
    return made if subjects is None else made.reorder(subjects)


def require_same_subjects(columns: Mapping[str, Curves]) -> None:
    """Refuse curves that are not of the same subjects, as far as one can tell: by number, and by name."""
    if not columns:
        return
    first, known = next(iter(columns.items()))
    for name, found in columns.items():
        if len(found) != len(known):
            raise InvalidValue(
                f"{name} has {len(found)} subjects and {first} has {len(known)}: they must have the same",
                rule=f"{name} and {first} must have the same subjects",
            )
    named = {name: found.subjects for name, found in columns.items() if found.subjects is not None}
    first, names = next(iter(named.items()), ("", ()))
    for name, found in named.items():
        if found != names:
            pairs = zip(names, found, strict=True)
            row, (ours, theirs) = next((row, both) for row, both in enumerate(pairs) if both[0] != both[1])
            raise InvalidValue(
                f"{name} and {first} are of different subjects: row {row} is {theirs} and {ours}; they must "
                "have the same, in the same order",
                rule=f"{name} and {first} must have the same subjects, in the same order",
                rows=[row + 1],
            )


def _build(found: forms.RawCurves, name: str, domain: Domain | None, least: int) -> Curves:
    """Build curves from numbers: resolve the domain, and drop what was not observed."""
    said, domain = domain, domain or found.domain
    values, times, owners = found.values, found.times, found.owners
    require(values.size > 0, name, f"shape {values.shape}", "curves with observations")
    if owners is not None:
        assert times is not None
        seen = ~np.isnan(values)
        times, values, owners = times[seen], values[seen], owners[seen]
        require_each(np.bincount(owners, minlength=found.count) > 0, name, found.subjects)
    else:
        require(values.ndim == 2, name, f"shape {values.shape}", "subjects by times")
        if times is None:
            domain = domain or (0.0, 1.0)
            times = np.linspace(*domain, values.shape[1])
    made = Curves(
        times=times,
        values=values,
        owners=owners,
        domain=domain or _span(times, name),
        place=name,
        subjects=found.subjects,
        # The ends of a common grid are public.
        guessed=owners is not None and (said is None),
    )
    allowed = f"the curves of at least {least} subjects"
    require(len(made) >= least, name, f"{len(made)} of them", allowed, about_records=True)
    return made


def _span(times: Array, name: str) -> Domain:
    """Return the first and the last time."""
    if not np.isfinite(times).all():
        told = f"times of {name} are not allowed: some are NaN or infinite"
        raise InvalidValue(told, rule=f"times of {name} are not allowed: they must be finite")
    reached = float(times.min()), float(times.max())
    spans = reached[0] < reached[1]
    require(spans, f"domain of {name}", "missing", "given: a single time does not determine it")
    return reached


def _positions(rows: ArrayLike | slice, count: int) -> Rows:
    """Positions, marks or a slice as positions."""
    chosen: Any = rows if isinstance(rows, slice) else np.asarray(rows)
    if not isinstance(rows, slice) and chosen.size == 0:
        chosen = chosen.astype(np.int64)
    return np.arange(count)[chosen]


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
    """Refuse infinite and huge values, and on a common grid subjects without any value."""
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
