"""Remote federations: the participants, and the agreement about their data.

A coordinator plans, solves and scores with one of these; whatever would need the data themselves is refused.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

import numpy as np

from tacit.errors import InvalidFile, InvalidValue, Refused, require_word
from tacit.sites.environments import EnvFederation
from tacit.sites.federation import Cohort, Federation, RowFederation, require_alike
from tacit.sites.splits import NamedSites, SplitBase
from tacit.sites.table import Table
from tacit.sites.table_files import read
from tacit.sites.vertical import VerticalFederation

if TYPE_CHECKING:
    import pandas as pd


class RemoteFederation(Federation):
    """Base of federations whose data are on other machines and inaccessible here."""

    distant: ClassVar[bool] = True

    def __contains__(self, name: object) -> bool:
        return name in tuple(self)

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401
        if name not in self:
            raise KeyError(name)
        refuse_access(self._holdings, [name])

    def cohort(self, names: Sequence[str]) -> Cohort:
        """Refuse: remote sites have no data here."""
        refuse_access(self._holdings, names)

    def records_of(self, name: str) -> Table:
        """The records of a site are there."""
        refuse_access(self._holdings, [name])

    def pool(self) -> Any:  # noqa: ANN401
        """Refuse: the data of all sites are in no one place."""
        refuse_access(self._holdings, self)

    def split(self, marks: object, share: float) -> NoReturn:
        """Refuse: the data are at the sites."""
        refuse_access(self._holdings, self)

    @property
    def _holdings(self) -> str:
        """Noun for the data of sites."""
        return {"rows": "records", "environments": "worlds"}.get(self.layout, self.layout)


class RemoteRowFederation(RemoteFederation, RowFederation):
    """Sites that hold records, each on a machine of its own; here are tables like theirs without a record."""

    def __post_init__(self, tables: Mapping[str, Table], held_out_sites: Sequence[str] | None) -> None:
        super().__post_init__(tables, held_out_sites)
        if self.reference is not None:
            require_alike(self.store, self.reference)

    def _admit(self, name: str, table: Table) -> Table:
        # The site looks at its records itself.
        return table

    def digest(self) -> bytes:
        """Hash the names and the columns; the records are not known."""
        held_out = b"" if self.held_out is None else self.held_out.digest()
        return hashlib.sha256(repr(list(self)).encode() + self.store.digest() + held_out).digest()


class RemoteVerticalFederation(RemoteFederation, VerticalFederation):
    """Parties that hold columns on machines of their own, with the public facts about them."""


class RemoteEnvFederation(RemoteFederation, EnvFederation):
    """Sites that hold worlds, each on a machine of its own; here is a public one that is like all."""


def blank_tables(names: Sequence[str], columns: Sequence[str], targets: Sequence[str]) -> dict[str, Table]:
    """Tables of no record for sites whose records all have these features and targets."""
    nothing, none = np.zeros((0, len(columns))), {name: np.zeros(0) for name in targets}
    return dict.fromkeys(names, Table(nothing, none, tuple(columns), "the sites"))


def refuse_access(held: str, names: Iterable[str]) -> NoReturn:
    """Say where the data are."""
    who = ", ".join(names)
    raise Refused(f"the {held} of {who} are at {who}: no other machine can read them")


def require_named_sites(split: SplitBase, kind: str) -> None:
    """Refuse to split data that sites hold themselves."""
    if not isinstance(split, NamedSites):
        raise InvalidValue(
            f'[sites] kind = {split.kind!r} is not allowed: with [data] kind = "{kind}" the sites hold their '
            'data themselves; it must be "named", with their names'
        )


def require_member(name: str, sites: NamedSites | None) -> None:
    """Refuse a site that an experiment does not know."""
    if sites is not None:
        require_word("name", name, sites.names)


def read_site_file(field: str, given: str, folder: Path, words: Sequence[str] = ()) -> "pd.DataFrame":
    """Read a file of a site; errors name the field of its configuration, and never the file's content.

    Args:
        field: The field of the configuration that names the file.
        given: The value of that field.
        folder: The folder that it is relative to.
        words: Columns to read as text.
    """
    try:
        return read(folder / given, words=words)
    except InvalidFile as error:
        cause = error.__cause__
        why = f" ({cause.strerror})" if isinstance(cause, OSError) and cause.strerror else ""
        raise InvalidFile(
            f'{field} = "{given}" cannot be read{why}: it must be a CSV or Parquet file with records in it'
        ) from None
