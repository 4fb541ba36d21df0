"""Curve data of an experiment file: simulated subjects, or tables of your own."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from tacit.errors import (
    MOST_COLUMNS,
    MOST_RECORDS,
    InvalidValue,
    require,
    require_count,
    require_positive,
    require_word,
)
from tacit.learning.record import describe
from tacit.privacy.contracts import Layout
from tacit.runtime.contracts import fields_of
from tacit.runtime.keys import Key
from tacit.sites.source import SourceBase
from tacit.sites.splits import held_out_count
from tacit.sites.vertical import ByParty, Subjects, VerticalFederation

if TYPE_CHECKING:
    from tacit.functional.curves import Curves
    from tacit.functional.data import CurveSet

RESPONSE = "y"


@dataclass(frozen=True, kw_only=True)
class SimulatedCurves(SourceBase):
    """Simulated subjects with curves x1, x2, ... and y: public data with a known truth.

    Args:
        design: The simulation design; `tacit list data` describes each.
        records: The number of subjects, held-out ones included.
        predictors: The number of predictors; by default the design's own.
        active: The number of predictors with an effect.
        snr: The variance of the signal over that of the noise.
        replicate: The number of the draw of subjects from the same truth.
        points: The number of observation times.
        held_out: The share that is held out to score models on.
    """

    design: str = "seed"
    records: int = 1000
    predictors: int | None = None
    active: int | None = None
    snr: float | None = None
    replicate: int = 0
    points: int = 101
    held_out: float = 0.25
    kind: ClassVar[str] = "simulated-curves"
    layout: ClassVar[Layout] = "columns"
    public = True

    def __post_init__(self) -> None:
        from tacit.functional.data import DESIGNS

        require_word("design", self.design, DESIGNS)
        for name, given in fields_of(self, ("records", "predictors", "active")).items():
            if given is not None:
                require_count(name, given, MOST_RECORDS if name == "records" else MOST_COLUMNS)
        if self.snr is not None:
            require_positive("snr", self.snr)
        require(self.points > 1, "points", self.points, "at least 2")
        require_count("points", self.points, MOST_COLUMNS)
        _require_share(self.held_out)

    @property
    def public_records(self) -> int | None:
        """Number of subjects that are trained on, from the file."""
        return self.records - held_out_count(self.records, self.held_out)

    def open(self, split: ByParty, seed: int, *, may_look: bool = False) -> VerticalFederation:
        """The parties with their curves; the last subjects are held out."""
        from tacit.functional.data import simulate

        made = simulate(
            self.design, records=self.records, predictors=self.predictors, active=self.active, snr=self.snr,
            seed=seed, replicate=self.replicate, points=self.points,
        )  # fmt: skip
        columns = {**made.predictors, RESPONSE: made.response}
        told = {"data": describe(self), "sites": describe(split)}
        kept = self.public_records or 0
        rows = np.arange(self.records)
        return vertical_federation(
            columns, RESPONSE, split, rows[:kept], rows[kept:], origin=told, public=True
        )


@dataclass(frozen=True, kw_only=True)
class CurveFiles(SourceBase):
    """Curves of your own, one CSV or Parquet file for each: a row for each subject, a column for each time.

    Args:
        path: The folder of the files, relative to the experiment file.
        files: The file of each curve, by the name of the curve.
        response: The curve that is predicted.
        domains: Start and end of the domain of each curve; by default its first and last time.
        held_out: The share of subjects that is held out to score models on, drawn at random. A score tells
            about them, so a private run has none unless it is a rehearsal; 0.2 elsewhere.
    """

    path: str = "."
    files: Mapping[str, str] = field(default_factory=dict[str, str])
    response: str = RESPONSE
    domains: Mapping[str, tuple[float, float]] = field(default_factory=dict[str, tuple[float, float]])
    held_out: float | None = None
    kind: ClassVar[str] = "curve-files"
    layout: ClassVar[Layout] = "columns"

    def __post_init__(self) -> None:
        require(len(self.files) > 1, "files", dict(self.files), "at least two curves, each with its file")
        require_word("response", self.response, self.files)
        for name in self.domains:
            require_word("domains", name, self.files)
        if self.held_out is not None:
            _require_share(self.held_out)

    def open(self, split: ByParty, seed: int, *, may_look: bool = False) -> VerticalFederation:
        """The parties with their curves."""
        from tacit.functional.curves import read

        columns = {
            name: read(Path(self.path) / file, name, domain=self.domains.get(name))
            for name, file in self.files.items()
        }
        first = next(iter(columns.values()))
        if all(found.subjects is not None for found in columns.values()) and first.subjects is not None:
            # Files may list the same people in different orders.
            require_same({name: found.subjects or () for name, found in columns.items()})
            columns = {name: found.reorder(first.subjects) for name, found in columns.items()}
        count = len(Subjects(columns))
        share = self.held_out if self.held_out is not None else 0.2 if may_look else 0.0
        order = (Key(seed) / "held out").generator().permutation(count)
        kept = count - held_out_count(count, share)
        told = {"data": describe(self), "sites": describe(split)}
        made = vertical_federation(
            columns, self.response, split, np.sort(order[:kept]), np.sort(order[kept:]), origin=told
        )
        made.files = self.paths
        return made

    @property
    def paths(self) -> tuple[str, ...]:
        """Files of the curves, the response first, beside which the book of the data lies."""
        names = [self.response, *(name for name in self.files if name != self.response)]
        return tuple(str(Path(self.path) / self.files[name]) for name in names)

    @property
    def place(self) -> str | None:
        """The folder of the files."""
        return self.path


def vertical_federation(
    columns: "Mapping[str, Curves]",
    response: str,
    split: ByParty,
    trained: Sequence[int] | np.ndarray,
    apart: Sequence[int] | np.ndarray,
    *,
    origin: Mapping[str, object],
    public: bool = False,
) -> VerticalFederation:
    """Curves at their parties, some subjects held out."""
    subjects = Subjects(columns)
    dealt = split.deal([name for name in columns if name != response], response)
    training = subjects.take(trained)
    return VerticalFederation(
        {party: {name: training[name] for name in names} for party, names in dealt.items()},
        held_out=subjects.take(apart) if len(apart) else None,
        held_out_public=public,
        public=public,
        origin=origin,
        order=list(columns),
    )


def hold_out_fold(
    made: "CurveSet", data: SimulatedCurves, sites: ByParty, fold: int, folds: int
) -> VerticalFederation:
    """The parties with the curves of all subjects but those of a fold, who are held out.

    Folds are runs of neighbors and the same ones however many parties there are; subjects are drawn one
    like the other, so that their order means nothing.
    """
    rows = np.arange(len(made))
    apart = np.array_split(rows, folds)[fold]
    told = {"data": describe(data), "sites": describe(sites)}
    return vertical_federation(
        {**made.predictors, RESPONSE: made.response},
        RESPONSE, sites, np.delete(rows, apart), apart, origin=told, public=True,
    )  # fmt: skip


def require_same(subjects: Mapping[str, Sequence[str]]) -> None:
    """Refuse curves of different people; the message names one that is missing."""
    (first, known), *others = subjects.items()
    for name, found in others:
        missing = [*(set(known) - set(found)), *(set(found) - set(known))]
        if missing:
            who = min(missing)
            there, absent = (first, name) if who in known else (name, first)
            raise InvalidValue(
                f"subject {who} is in {there} and not in {absent}: all files must hold the same",
                rule=f"subjects of {there} and {absent} are not allowed: all files must hold the same",
            )


def _require_share(share: float) -> None:
    require(0 <= share < 1, "held_out", share, "at least 0 and below 1")


SOURCES: Mapping[str, type[SimulatedCurves] | type[CurveFiles]] = {
    SimulatedCurves.kind: SimulatedCurves,
    CurveFiles.kind: CurveFiles,
}
