"""The verb `ledger`: releases of a run, or of all runs on a file of data, their budget, and verification."""

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit.cli import output
from tacit.cli.output import Console, verb
from tacit.errors import InvalidFile, InvalidValue

if TYPE_CHECKING:
    from tacit.privacy.ledger.data_book import DataBook
    from tacit.privacy.ledger.store import Ledger

# The kinds of files that runs read records from.
KINDS = (".csv", ".parquet")
# The default delta of a lifetime and of its price.
USUAL_DELTA = 1e-5


@verb()
def ledger(
    console: Console,
    path: Annotated[
        Path,
        typer.Argument(help="A ledger file, the directory of a run, or a data file, for all runs on it."),
    ],
    verify: Annotated[
        bool, typer.Option("--verify", help="Verify the file, every hash and the price.")
    ] = False,
    delta: Annotated[
        float | None,
        typer.Option(help="Delta of the price; by default that of the budget, or of the runs on the data."),
    ] = None,
    lifetime: Annotated[
        float | None,
        typer.Option(help="Lifetime budget of a data file: epsilon, at --delta, for all runs on it."),
    ] = None,
) -> None:
    """List the releases on a ledger, with the price so far."""
    if path.suffix.lower() in KINDS and not path.is_dir():
        found = _data_account(path, lifetime=lifetime, delta=delta, verify=verify)
        console.answer(lambda: found, lambda: _show_data_account(found))
        if not found["valid"]:
            raise SystemExit(output.VERIFICATION_FAILED)
        return
    if lifetime is not None:
        raise InvalidValue(
            f"--lifetime = {lifetime:g} is not allowed for {path}: give a file of data, .csv or .parquet"
        )
    path = path / "ledger.db" if path.is_dir() else path
    if verify:
        checked = _verify(path, delta)
        console.answer(lambda: checked, lambda: _show_verification(checked))
        if not checked["valid"]:
            console.log(f"tacit: ledger {path} does not verify")
            raise SystemExit(output.VERIFICATION_FAILED)
        return
    from tacit.privacy.ledger.view import account
    from tacit.runs.run import run_of

    priced = account(path, delta)
    console.answer(lambda: priced, lambda: _show_account(priced))
    run = run_of(path)
    require_sound([] if run is None else [run])


def require_sound(paths: Iterable[Path]) -> None:
    """Report runs whose ledger or statement does not verify, and exit with the code for that."""
    from tacit.runs.run import verify_run

    judged = [(path, verify_run(path)) for path in paths]
    for path, found in judged:
        for problem in found.ledger:
            output.log(f"tacit: the ledger of {path} does not verify: {problem}", quiet=False)
        for problem in found.statement:
            output.log(f"tacit: the statement of {path} does not verify: {problem}", quiet=False)
    if any(found.problems for _, found in judged):
        raise SystemExit(output.VERIFICATION_FAILED)


def _verify(path: Path, delta: float | None) -> dict[str, Any]:
    """Check a ledger: its file, its chain, its price and, in a run, what the run knows of it."""
    from tacit.privacy.ledger import store
    from tacit.runs.run import run_of, verify_run

    found = vars(store.verify(path, delta))
    run = run_of(path)
    known = () if run is None else verify_run(run).problems
    if known and found["valid"]:
        found |= {"valid": False, "epsilon": math.inf, "problems": known}
    return {"path": str(path), **found}


def _show_verification(found: Mapping[str, Any]) -> None:
    if not found["valid"]:
        output.print_rows([("damaged", problem) for problem in found["problems"]])
        return
    output.print_rows([
        ("valid", f"{output.pluralise(found['events'], 'release')}, every hash matches"),
        _spent(found),
        *_by_basis(found),
        ("head", found["head"]),
    ])  # fmt: skip


def _show_account(found: Mapping[str, Any]) -> None:
    output.print_table(
        ("row", "subject", "for", "noise", "scale", "sensitivity", "rate", "count", "running epsilon"),
        [
            (
                str(row["number"]),
                row["subject"],
                row["purpose"],
                row["law"],
                f"{row['scale']:.4g}",
                f"{row['sensitivity']:.4g}",
                f"{row['rate']:g}",
                str(row["count"]),
                output.format_price(row["running_epsilon"]),
            )
            for row in found["releases"]
        ],
    )
    output.say("")
    budgets = [
        (f"budget of {'every subject' if name == '*' else name}", f"{b['epsilon']:g} at delta {b['delta']:g}")
        for name, b in found["budgets"].items()
    ]
    stated = [
        (f"at delta {row['delta']:g}", output.format_price(row["epsilon"])) for row in found.get("stated", ())
    ]
    output.print_rows([_spent(found), *stated, *_by_basis(found), *budgets, *_unbound(found)])


def _spent(found: Mapping[str, Any]) -> tuple[str, str]:
    if not found["events"]:
        return "epsilon", "nothing was charged: a ledger does not list the releases of an open run"
    return "epsilon", f"{output.format_price(found['epsilon'])} at delta {found['delta']:g}"


def _unbound(found: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Explain the total of several plans without a common budget."""
    if found["budgets"] or found["plans"] <= 1:
        return []
    from tacit.privacy.ledger.total import SET_ONE, UNBOUND

    way_out = f" ({SET_ONE})" if "data" in found else ""
    return [("note", f"as much as a lifetime budget fixed in advance; {UNBOUND}{way_out}")]


def _by_basis(found: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Price the same releases as one plan, and as plans of which each may follow from the last."""
    if not found["events"]:
        return []
    return [
        ("if planned ahead", output.format_price(found["epsilon_as_planned"])),
        ("if results decided", output.format_price(found["epsilon_as_lifetime"])),
    ]


def _data_account(path: Path, *, lifetime: float | None, delta: float | None, verify: bool) -> dict[str, Any]:
    """Open the book of the data in a file, once its lifetime budget is set, if one is given."""
    from tacit.runs.fit import book_of_file

    if not path.is_file():
        raise InvalidFile(f"{path} cannot be read: there is no such file")
    book = book_of_file(path)
    if lifetime is not None:
        book.allow(lifetime, USUAL_DELTA if delta is None else delta)
    found = _unite(path, book, delta)
    found["runs"] = book.total(found["delta"], "record").runs
    if verify:
        checked = [_verify(place, found["delta"]) for place in book.ledgers()]
        found["problems"] = [problem for each in checked for problem in each["problems"]]
        found["valid"] = all(each["valid"] for each in checked)
    return found


def _unite(path: Path, book: "DataBook", delta: float | None) -> dict[str, Any]:
    """List all rows of the ledgers of a book; empty if there is none."""
    from tacit.privacy.ledger.chain import RECORDS
    from tacit.privacy.ledger.store import Ledger
    from tacit.privacy.ledger.view import account_of, price_rows

    ledgers, union = book.ledgers(), book.unite()
    if union is None:
        nothing: dict[str, Any] = {"path": None, "budgets": {}, "head": None, "releases": [], "stated": []}
        return {"data": str(path), **price_rows([], delta or USUAL_DELTA), **nothing, "ledgers": []}
    with union, Ledger(ledgers[0], mode="read") as fullest:
        own = {"path": str(ledgers[0]), "head": fullest.head}
        # Runs that protect whole sites are charged to them, and cost their records more.
        found = account_of(union, delta, also=[RECORDS])
        stated = _state_price(union) if delta is None and not found["budgets"] else []
    return {"data": str(path), **found, **own, "stated": stated, "ledgers": [str(place) for place in ledgers]}


def _state_price(union: "Ledger") -> list[dict[str, float]]:
    """Price a book at each delta that its runs state, if there are several.

    The price of all is that at the smallest above 0, which holds at every larger one as well.
    """
    from tacit.privacy.ledger.chain import RECORDS

    deltas = union.stated_deltas()
    if len(deltas) <= 1:
        return []
    priced = [(delta, [union.spent(delta), union.spent(delta, subject=RECORDS)]) for delta in deltas]
    return [{"delta": delta, "epsilon": max(prices)} for delta, prices in priced]


def _show_data_account(found: Mapping[str, Any]) -> None:
    for problem in found.get("problems", ()):
        output.print_rows([("damaged", problem)])
    if not found["releases"]:
        budgets = {f"epsilon {b['epsilon']:g} at delta {b['delta']:g}" for b in found["budgets"].values()}
        told = [("epsilon", "nothing was charged: no run under a promise has used these data yet")]
        output.print_rows([*told, *(("lifetime", words) for words in sorted(budgets))])
        return
    _show_account(found)
    output.print_rows([("runs", str(found["runs"])), *(("book", place) for place in found["ledgers"])])
