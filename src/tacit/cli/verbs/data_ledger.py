"""The verb `ledger` on a file of data: the book of its people, and their lifetime budget."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit.cli import output
from tacit.cli.verbs import tools
from tacit.errors import InvalidFile, InvalidValue

if TYPE_CHECKING:
    from tacit.privacy.ledger.data_book import DataBook

# The kinds of files that runs read records from.
KINDS = (".csv", ".parquet")
# The delta of a lifetime, and of its price, if nobody says another.
USUAL_DELTA = 1e-5


def is_data(path: Path) -> bool:
    """Tell a file of data from a ledger and a directory, by its name."""
    return path.suffix.lower() in KINDS and not path.is_dir()


def require_no_lifetime(path: Path, lifetime: float | None) -> None:
    """Refuse a lifetime for what is not a file of data."""
    if lifetime is not None:
        raise InvalidValue(
            f"--lifetime = {lifetime:g} is not allowed for {path}: give a file of data, .csv or .parquet"
        )


def show(path: Path, *, lifetime: float | None, delta: float | None, verify: bool, json: bool) -> None:
    """Print the book of the data in a file, once its lifetime budget is set, if one is given."""
    from tacit.runs.data_books import book_of_file

    if not path.is_file():
        raise InvalidFile(f"{path} cannot be read: there is no such file")
    book = book_of_file(path)
    if lifetime is not None:
        book.allow(lifetime, USUAL_DELTA if delta is None else delta)
    found = _account(path, book, delta)
    found["runs"] = book.total(found["delta"], "record").runs
    if verify:
        _verify(book.ledgers(), found)
    output.print_document(found) if json else _print(found)
    if not found["valid"]:
        raise SystemExit(output.VERIFICATION_FAILED)


def _account(path: Path, book: "DataBook", delta: float | None) -> dict[str, Any]:
    """Everything that any of the ledgers holds, row by row; nothing, if there is none."""
    from tacit.privacy.ledger.chain import RECORDS
    from tacit.privacy.ledger.store import Ledger
    from tacit.privacy.ledger.view import account_of, price_rows

    ledgers, union = book.ledgers(), book.unite()
    if union is None:
        nothing: dict[str, Any] = {"path": None, "budgets": {}, "head": None, "releases": []}
        return {"data": str(path), **price_rows([], delta or USUAL_DELTA), **nothing, "ledgers": []}
    with union, Ledger(ledgers[0], mode="read") as fullest:
        own = {"path": str(ledgers[0]), "head": fullest.head}
        # Runs that protect whole sites are charged to them, and cost their records more.
        found = account_of(union, delta, also=[RECORDS])
    return {"data": str(path), **found, **own, "ledgers": [str(place) for place in ledgers]}


def _verify(ledgers: list[Path], found: dict[str, Any]) -> None:
    """Check each of the ledgers, and note what is wrong with any."""
    checked = [tools.verify(place, found["delta"]) for place in ledgers]
    found["problems"] = [problem for each in checked for problem in each["problems"]]
    found["valid"] = all(each["valid"] for each in checked)


def _print(found: dict[str, Any]) -> None:
    """Print the book for people."""
    for problem in found.get("problems", ()):
        output.print_rows([("damaged", problem)])
    if not found["releases"]:
        budgets = {f"epsilon {b['epsilon']:g} at delta {b['delta']:g}" for b in found["budgets"].values()}
        told = [("epsilon", "nothing was charged: no run has promised these people anything yet")]
        output.print_rows([*told, *(("lifetime", words) for words in sorted(budgets))])
        return
    tools.show_account(found)
    output.print_rows([("runs", str(found["runs"])), *(("book", place) for place in found["ledgers"])])
