"""Find the book of the data, the lifetime ledger of a data set: by its sites, by paths, or by one file."""

from collections.abc import Iterable
from pathlib import Path

from tacit.privacy.ledger.data_book import DataBook
from tacit.privacy.policy import Open, Privacy
from tacit.runtime.fingerprints import People, sketch_frame
from tacit.sites.federation import Federation
from tacit.sites.table import read


class _Withheld:
    """Mark of a federation in an audit, whose results are not released."""


def withhold_results(federation: Federation) -> Federation:
    """Mark a federation for an audit: no release leaves the process, so no book is charged."""
    return federation.carry(_Withheld())


def book_of(federation: Federation, privacy: Privacy | Open) -> DataBook | None:
    """Find the book that a run on these sites charges.

    None for open runs, rehearsals, public records and remote sites, which keep ledgers of their own.
    """
    if isinstance(privacy, Open) or privacy.rehearsal or federation.public or federation.distant:
        return None
    if isinstance(federation.receipt, _Withheld):
        return None
    return DataBook(federation.people())


def book_by_path(files: Iterable[str | Path]) -> DataBook:
    """Find the book of these files by their paths alone; no record is read."""
    return DataBook(People(tuple(map(Path, files)), (), b""))


def book_of_file(file: Path) -> DataBook:
    """Find the book of a file by its path and by sketches of its records, which are read.

    Raises:
        InvalidFile: It is not there, or is neither CSV nor Parquet.
    """
    return DataBook(People((file,), sketch_frame(read(file)), b""))
