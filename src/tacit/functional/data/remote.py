"""Curves that parties hold on machines of their own: the public agreement about them.

The parties have agreed on the subjects and their order, their number, and the domain of each curve. Nothing
here reveals any value of a curve.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from tacit.errors import InvalidFile, InvalidValue, Refused, TacitError, require, require_count, require_word
from tacit.learning.record import describe
from tacit.privacy.contracts import Layout
from tacit.runtime.sketches import Digests
from tacit.runtime.tables import construct, refuse_unknown
from tacit.sites.names import require_site_name
from tacit.sites.remote import RemoteVerticalFederation, read_site_file
from tacit.sites.source import SourceBase
from tacit.sites.vertical import ByParty, Subjects, VerticalFederation

if TYPE_CHECKING:
    from tacit.functional.curves import Curves

# The required form of a curve's file, for messages.
FORM = "a row for each subject and a column for each time, named after it, finite numbers or nothing in them"


@dataclass(frozen=True)
class Agreed:
    """Agreement about a curve on another machine (`tacit.sites.vertical.Column`).

    Args:
        place: The name of the curve.
        domain: The interval on which it is defined.
        count: The number of subjects.
    """

    place: str
    domain: tuple[float, float]
    count: int

    def __len__(self) -> int:
        return self.count

    def take(self, rows: ArrayLike | slice, place: str | None = None) -> Self:
        """Refuse: the values are at the party that holds them."""
        raise Refused(
            f"the curves {self.place} are at the party that holds them: no other party can read them"
        )

    def digest(self) -> bytes:
        """Return a digest of the agreement; it does not depend on the values."""
        return hashlib.sha256(repr(self).encode()).digest()

    def digest_rows(self) -> Digests:
        """Return no digests: the subjects are not known here."""
        return np.zeros(0, dtype=np.uint64)


@dataclass(frozen=True, kw_only=True)
class SiteCurvesConfig:
    """Curves in a party's own configuration.

    Args:
        files: The file of each curve, CSV or Parquet, by the name of the curve.
        path: The folder of those files, relative to that of the configuration.
    """

    files: Mapping[str, str]
    path: str = "."


@dataclass(frozen=True, kw_only=True)
class RemoteCurves(SourceBase):
    """Curves that parties hold on machines of their own: the public agreement about them.

    Args:
        domains: The interval of each curve, by its name, in the order of the model.
        records: The number of subjects; every party has all of them, in the same order.
        response: The predicted curve.
        test: A folder with a file for each curve, `x1.csv` or `x1.parquet`, of subjects to score models on;
            for the coordinator, ignored where it does not exist.
        test_public: True if those subjects are public; if not, only a rehearsal may use them.
        public: True if the curves of the parties are public.
    """

    domains: Mapping[str, tuple[float, float]]
    records: int
    response: str = "y"
    test: str | None = None
    test_public: bool = True
    public: bool = False
    kind: ClassVar[str] = "held-curves"
    layout: ClassVar[Layout] = "columns"
    distant: ClassVar[bool] = True

    def __post_init__(self) -> None:
        from tacit.functional.curves.basis import interval

        require(
            len(self.domains) > 1, "domains", dict(self.domains), "at least two curves, each with its own"
        )
        require_word("response", self.response, self.domains)
        require_count("records", self.records)
        known = {name: interval(f"domains.{name}", ends) for name, ends in self.domains.items()}
        object.__setattr__(self, "domains", known)

    @property
    def public_records(self) -> int | None:
        """Number of subjects, from the file."""
        return self.records

    @property
    def public_files(self) -> Mapping[str, str]:
        """The folder of subjects to score models on, if there is one."""
        return {} if self.test is None else {"test": self.test}

    def check(self, split: ByParty, *, may_look: bool = False) -> None:
        """Refuse names that no machine can have, and curves without a holder."""
        for name in split.names:
            require_site_name("parties", name, of="machine")
        _ = self._assign_curves(split)

    def open(self, split: ByParty, seed: int, *, may_look: bool = False) -> RemoteVerticalFederation:
        """The parties, without their curves."""
        agreed = {name: Agreed(name, ends, self.records) for name, ends in self.domains.items()}
        held = {
            party: {name: agreed[name] for name in names}
            for party, names in self._assign_curves(split).items()
        }
        return RemoteVerticalFederation(
            held,
            held_out=self._test(),
            held_out_public=self.test_public,
            public=self.public,
            origin={"data": describe(self), "sites": describe(split)},
            order=list(self.domains),
        )

    def at_site(
        self,
        name: str,
        holding: Mapping[str, Any],
        folder: Path,
        *,
        sites: ByParty | None = None,
        task: object = None,
    ) -> VerticalFederation:
        """Open the federation of one party, with its curves from the files in its configuration.

        Args:
            name: The party.
            holding: The table [data] of its settings.
            folder: The folder that these are relative to.
            sites: The assignment of curves to parties, if it should be checked; otherwise that of the
                configuration.
            task: The task.

        Raises:
            TacitError: A mistake that its administrator can mend, by the names of fields and curves; neither
                a value of a curve nor the name of a subject is in it.
        """
        held = construct(SiteCurvesConfig, "data", dict(holding))
        known = list(self.domains) if sites is None else self._held_by(name, sites)
        refuse_unknown("[data.files] ", held.files, known)
        missing = [] if sites is None else [curve for curve in known if curve not in held.files]
        if missing:
            raise InvalidFile(f"[data.files] {missing[0]} is missing: {name} holds that curve, as agreed")
        require(bool(held.files), "[data.files]", dict(held.files), "the file of each curve of this party")
        columns = {
            curve: self._own(curve, held.files[curve], folder / held.path)
            for curve in known
            if curve in held.files
        }
        return VerticalFederation({name: _same(columns)}, public=self.public)

    def _assign_curves(self, split: ByParty) -> dict[str, tuple[str, ...]]:
        """Return the curves of each party."""
        return split.deal([name for name in self.domains if name != self.response], self.response)

    def _held_by(self, name: str, sites: ByParty) -> list[str]:
        require_word("name", name, sites.names)
        return list(self._assign_curves(sites)[name])

    def _test(self) -> Subjects | None:
        """Read the subjects to score on; None where the folder does not exist, as at the sites."""
        from tacit.functional.curves import read

        if self.test is None or not Path(self.test).is_dir():
            return None
        found: dict[str, Curves] = {}
        for name, domain in self.domains.items():
            files = [Path(self.test) / f"{name}{suffix}" for suffix in (".parquet", ".csv")]
            file = next((file for file in files if file.is_file()), files[0])
            found[name] = read(file, name, domain=domain)
        return Subjects(found)

    def _own(self, name: str, file: str, folder: Path) -> "Curves":
        """Read the curves in a file of a party; errors name the field of its settings, never content."""
        from tacit.functional.curves import curves
        from tacit.functional.curves.forms import SUBJECT, wide

        where = f"[data.files] {name}"
        frame = read_site_file(where, file, folder, words=(SUBJECT,))
        if len(frame) != self.records:
            raise InvalidValue(
                f'{where} = "{file}" has {len(frame):,} subjects, and {self.records:,} are agreed: every '
                "party must hold the same ones, in the same order",
                rule=f'{where} = "{file}" must have {self.records:,} subjects, as agreed: every party holds '
                "the same ones, in the same order",
            )
        try:
            # Words would be taken for a grid of equal steps.
            require(wide(frame, name).times is not None, where, file, "a file whose columns are times")
            found = curves(frame, name=name, domain=self.domains[name])
            found.require_varying()
        except TacitError:
            low, high = self.domains[name]
            told = (
                f'{where} = "{file}" does not match the agreement: it must have {FORM}; times lie between '
                f"{low:g} and {high:g} and ascend, every subject has an observation, and not all have the "
                "same curve"
            )
            raise InvalidValue(told, rule=told) from None
        return found


def _same(columns: "Mapping[str, Curves]") -> "Mapping[str, Curves]":
    """Check that the files of a party name the same subjects in one order, and return its curves."""
    named = {name: found.subjects for name, found in columns.items() if found.subjects is not None}
    first, names = next(iter(named.items()), ("", ()))
    for name, found in named.items():
        apart = sum(ours != theirs for ours, theirs in zip(names, found, strict=True))
        if apart:
            raise InvalidValue(
                f"[data.files] {name} and {first} are of different subjects in {apart:,} of {len(names):,} "
                "rows: they must have the same ones, in the order that all parties agreed on",
                rule=f"[data.files] {name} and {first} must have the same subjects, in the order that all "
                "parties agreed on",
            )
    return columns


SOURCES: Mapping[str, type[RemoteCurves]] = {RemoteCurves.kind: RemoteCurves}
