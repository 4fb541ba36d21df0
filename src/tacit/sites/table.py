"""Records as numbers: a matrix of features and the targets beside it.

A table is checked once, when it is made: every column named, every number finite. It stays where it lives.
"""

import hashlib
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit.errors import MOST_SITES, InvalidValue, choices, require
from tacit.runtime.arrays import Array
from tacit.runtime.silence import suppress_warnings
from tacit.sites.encoding import Encoding, named_columns, numbers, require_column

if TYPE_CHECKING:
    import pandas as pd

# Names of columns that number records or name persons, in small letters and without signs between words.
IDENTIFIERS = frozenset((
    "id", "index", "mrn", "participant", "participantid", "patid", "patient", "patientid", "patientno",
    "patientnumber", "patno", "personid", "pid", "recordid", "rowid", "rowname", "rownames", "rownumber",
    "studyid", "subject", "subjectid", "subjectno", "subjid", "uuid",
))  # fmt: skip
# Records from which on whole numbers in steps of 1 are row numbers, and whole numbers in any order of size.
FEW_IN_ORDER, MANY_IN_ORDER = 10, 50
# Equal pairs that measurements of so many records in such a range would have, from which on none is no chance
# (it has a probability below e^-12); and the fewest records that show it.
PAIRS_EXPECTED, FEW_DISTINCT = 12.0, 20
# Names of targets that are amounts: words are no codes of them.
AMOUNTS = ("time", "entry", "weight")


class Records(Protocol):
    """Protocol of several records of any kind: enough to set some apart."""

    @property
    def sites(self) -> NDArray[np.str_] | None:
        """The site that each is of, where that is known."""
        ...

    @property
    def at_a_glance(self) -> "Records | None":
        """Return a sample of the records to monitor a run, if scoring is free; None otherwise."""
        ...

    def __len__(self) -> int: ...

    def take(self, rows: ArrayLike | slice, place: str | None = None) -> Self:
        """The records at these positions."""
        ...

    def digest(self) -> bytes:
        """A fingerprint of every number; as private as the records."""
        ...


@dataclass(frozen=True, eq=False)
class Table:
    """Records of one kind: features (records, columns) and, for each target, one value or row per record.

    `sites` says which site each record is of, where records of several are together and that is known.
    """

    features: Array
    targets: Mapping[str, Array]
    columns: tuple[str, ...]
    place: str = field(default="data", repr=False)
    sites: NDArray[np.str_] | None = field(default=None, repr=False)

    @property
    def at_a_glance(self) -> None:
        """A choice by scores of records uses them up."""

    def __post_init__(self) -> None:
        shape = self.features.shape
        given = f"shape {shape} for {len(self.columns)} columns"
        require(len(shape) == 2 and shape[1] == len(self.columns), "features", given, "records by columns")
        for index, column in enumerate(self.columns):
            _require_finite(column, self.features[:, index], self.place)
        for name, values in self.targets.items():
            fits = values.ndim >= 1 and len(values) == shape[0]
            require(
                fits, name, f"shape {values.shape} for {shape[0]} records", "as long as there are records"
            )
            _require_finite(name, values, self.place)
        if self.sites is not None:
            given = f"shape {self.sites.shape} for {shape[0]} records"
            require(self.sites.shape == (shape[0],), "sites", given, "one name for each record")

    def __len__(self) -> int:
        return len(self.features)

    def take(self, rows: ArrayLike | slice, place: str | None = None) -> "Table":
        """The records at these positions."""
        chosen: Any = rows if isinstance(rows, slice) else np.asarray(rows)
        if not isinstance(rows, slice) and chosen.size == 0:
            chosen = chosen.astype(np.int64)
        taken = object.__new__(Table)
        # Checked already: what is valid together is valid apart.
        vars(taken).update(
            features=self.features[chosen],
            targets={name: values[chosen] for name, values in self.targets.items()},
            columns=self.columns,
            place=place or self.place,
            sites=None if self.sites is None else self.sites[chosen],
        )
        return taken

    def digest(self) -> bytes:
        """A fingerprint of every number; as private as the records, so it stays with them."""
        found = hashlib.sha256(repr((self.columns, sorted(self.targets))).encode())
        for values in (self.features, *(self.targets[name] for name in sorted(self.targets))):
            found.update(repr(values.shape).encode() + np.ascontiguousarray(values).tobytes())
        found.update(b"" if self.sites is None else repr(self.sites.tolist()).encode())
        return found.digest()


@suppress_warnings()
def from_arrays(
    features: ArrayLike, *, columns: Sequence[str] | None = None, place: str = "data", **targets: ArrayLike
) -> Table:
    """A table from arrays or tensors: `from_arrays(x, y=y)`, `from_arrays(x, time=t, event=d)`."""
    matrix = numbers("features", features, place)
    if matrix.ndim == 1:
        matrix = matrix[:, None]
    names = tuple(columns) if columns is not None else tuple(f"x{i}" for i in range(1, matrix.shape[-1] + 1))
    found = {
        name: numbers(name, values, place, role="amount" if name in AMOUNTS else "event")
        for name, values in targets.items()
    }
    return Table(matrix, found, names, place)


@suppress_warnings()
def from_frame(
    frame: "pd.DataFrame",
    *,
    targets: Sequence[str],
    leave: Sequence[str] = (),
    place: str = "data",
    encoding: Encoding | None = None,
    amounts: Sequence[str] = AMOUNTS,
) -> Table:
    """A table from a DataFrame: the named targets, and as features every other column but those in `leave`.

    Args:
        frame: The records.
        targets: The columns to learn about.
        leave: Columns that are neither targets nor features.
        place: The name of the records in errors.
        encoding: The encoding of features that are not plain numbers, and of events that are words: a target
            with levels gets their positions, 0 for the first.
        amounts: The targets that are amounts, such as times, rather than codes of events.

    Raises:
        InvalidValue: A column is missing or does not hold finite numbers; the message names it.
    """
    require(bool(targets), "targets", list(targets), "at least one column")
    for name in (*targets, *leave):
        require_column(frame, name, place)
    _require_columns_once(frame, leave, place)
    rules, coded = (encoding or Encoding()).part(targets)
    known = named_columns(frame, place)
    chosen = frame.loc[:, [str(name) not in targets and str(name) not in leave for name in frame.columns]]
    _require_features(chosen, rules.levels, place)
    made = rules.apply(chosen, place)
    require(made.shape[1] > 0, "features", "no column", f"at least one column beside {choices(targets)}")
    return Table(
        made.to_numpy(dtype=np.float64),
        {name: coded.codes(name, known[name], place, coded=name not in amounts) for name in targets},
        tuple(str(name) for name in made.columns),
        place,
    )


def by_site(frame: "pd.DataFrame", column: str, place: str) -> "dict[str, pd.DataFrame]":
    """The records of each site, by the column that names it; in the order of the names.

    Raises:
        InvalidValue: A record has no site, or two names read the same.
    """
    require_column(frame, column, place)
    if bool(frame[column].isna().any()) or bool((frame[column] == "").any()):
        raise InvalidValue(
            f"column {column} in {place} is not allowed: some records have no site",
            rule=f"column {column} is not allowed: every record must have a site",
            rows=np.flatnonzero((frame[column].isna() | (frame[column] == "")).to_numpy()) + 1,
        )
    many = int(frame[column].nunique())
    require(
        many <= MOST_SITES,
        f"column {column} in {place}",
        f"{many:,} sites",
        f"at most {MOST_SITES:,}",
        about_records=True,
    )
    parts = [(str(name), part) for name, part in frame.groupby(column, observed=True)]
    names = [name for name, _ in parts]
    different = len(set(names)) == len(names)
    require(
        different, f"column {column} in {place}", names, "names that read differently", about_records=True
    )
    return dict(parts)


def concatenate(parts: Sequence[Table], place: str = "data") -> Table:
    """Tables of the same columns, one after the other."""
    if len(parts) == 1:
        return parts[0]
    targets = {name: np.concatenate([part.targets[name] for part in parts]) for name in parts[0].targets}
    return Table(np.concatenate([part.features for part in parts]), targets, parts[0].columns, place)


def _require_columns_once(frame: "pd.DataFrame", leave: Sequence[str], place: str) -> None:
    """Refuse a second column of one name, numbered by the program that read or wrote the table."""
    names = {str(name) for name in frame.columns}
    for name in names - set(leave):
        first = re.sub(r"\.\d+$", "", name)
        if first != name and first in names:
            told = (
                f"column {name} in {place} is not allowed: it is a second {first}, which programs may take "
                "for the same column; rename it, or remove it"
            )
            raise InvalidValue(told, rule=told)


def is_identifier(name: str) -> bool:
    """True for a column that by its name numbers records or names persons."""
    plain = re.sub(r"[\s_.-]+", "", name).lower()
    return plain in IDENTIFIERS or re.fullmatch(r"unnamed:\d+", plain) is not None


def _require_features(frame: "pd.DataFrame", coded: Collection[str], place: str) -> None:
    """Refuse identifiers and row numbers as features: they tell nothing of a new patient, and fit noise.

    Args:
        frame: The features as they are in the file.
        coded: The columns with levels.
        place: The name of the records in errors.
    """
    for column in frame.columns:
        name = str(column)
        mend = (
            f'leave it out, as by leave = ["{name}"] in [data], in Python by frame.drop(columns=["{name}"])'
        )
        if is_identifier(name):
            told = f"{name} in {place} is not allowed as a feature: by its name it is an identifier; {mend}"
            raise InvalidValue(told, rule=told)
        if name not in coded and _numbers_records(frame[column]):
            why = "it must not be a row number or a patient number"
            raise InvalidValue(
                f"{name} in {place} is not allowed as a feature: {why}, and it numbers the records; {mend}",
                rule=f"{name} is not allowed as a feature: {why}; {mend}",
            )


def _numbers_records(values: "pd.Series[Any]") -> bool:
    """True for whole numbers that number records, in the order of the file or in any other."""
    if values.dtype.kind not in "iuf" or len(values) < FEW_IN_ORDER:
        return False
    found = values.to_numpy(dtype=np.float64, na_value=np.nan)
    # Whole numbers only: a measurement with decimals may well be in order.
    if not bool((found == np.floor(found)).all()):
        return False
    steps = np.diff(found)
    in_order = bool((steps > 0).all() or (steps < 0).all())
    if in_order and (len(found) >= MANY_IN_ORDER or bool((np.abs(steps) == 1).all())):
        return True
    pairs = len(found) * (len(found) - 1) / 2 / (float(np.ptp(found)) + 1)
    different = len(np.unique(found)) == len(found)
    return different and len(found) >= FEW_DISTINCT and pairs >= PAIRS_EXPECTED


def _require_finite(name: str, values: Array, place: str) -> None:
    finite = np.isfinite(values).all(axis=tuple(range(1, values.ndim)))
    broken = len(values) - int(finite.sum())
    if broken:
        raise InvalidValue(
            f"{name} in {place} is not allowed: {broken} of {len(values)} records hold NaN or infinity; it "
            "must hold finite numbers; leave those records out",
            rule=f"{name} is not allowed: it must hold finite numbers; leave out records where it does not",
            rows=np.flatnonzero(~finite) + 1,
        )
