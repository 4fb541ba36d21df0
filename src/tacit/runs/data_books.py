"""The book of the data that a run charges: found by its sites, by their files, or by one file alone."""

from collections.abc import Iterable
from pathlib import Path

from tacit.privacy.ledger.data_book import DataBook
from tacit.privacy.policy import Open, Privacy
from tacit.runtime.fingerprints import People, sketch_frame
from tacit.sites.federation import Federation
from tacit.sites.table import read


class _Withheld:
    """The mark of sites whose results stay here."""


def withhold_results(federation: Federation) -> Federation:
    """The same sites, for an audit: nothing that depends on a record leaves it, and no book is charged."""
    return federation.carry(_Withheld())


def book_of(federation: Federation, privacy: Privacy | Open) -> DataBook | None:
    """The book that a run on these sites charges; None where nothing private is promised here."""
    if isinstance(privacy, Open) or privacy.rehearsal or federation.public or federation.distant:
        return None
    if isinstance(federation.receipt, _Withheld):
        return None
    return DataBook(federation.people())


def book_by_path(files: Iterable[str | Path]) -> DataBook:
    """The book of data that are in these files, as far as it is known without reading them."""
    return DataBook(People(tuple(map(Path, files)), (), b""))


def book_of_file(file: Path) -> DataBook:
    """The book of the records in a file, which is read to recognise them.

    Raises:
        InvalidFile: It is not there, or is neither CSV nor Parquet.
    """
    return DataBook(People((file,), sketch_frame(read(file)), b""))
