"""A run as text: its progress while it goes on, its summary when it is over."""

import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, TextIO

from tacit.record import Round

NAMES = {
    "c_index": "C-index", "ibs": "IBS", "r2": "R2", "ril2": "RIL2", "iqm": "IQM",
    "return_low": "return, 95 % from", "return_high": "return, 95 % to", "return_unseen": "return, unseen",
    "iqm_low": "IQM, 95 % from", "iqm_high": "IQM, 95 % to", "solved": "share solved",
}  # fmt: skip
# How many scores fit side by side.
WIDEST = 6
# What stands in a table of scores where a model was ruined.
BROKEN = "broken"


class Watcher(Protocol):
    """Whoever wants to know about every round."""

    def __call__(self, entry: Round) -> None:
        """A round is over."""
        ...


def summary(run: dict[str, Any]) -> str:
    """The summary of a run: a header, its scores beside both baselines, its statement.

    Args:
        run: What `Run.as_dict` says, and the sentences of its `statement`.
    """
    promise = run["privacy"]
    spent = "open: nothing is promised" if promise["unit"] is None else _spent(promise)
    ended = str(run["rounds"]) + (f", ended early: {run['stopped']}" if run["stopped"] else "")
    head = [("run", run["name"]), ("task", run["task"]), ("rounds", ended), ("privacy", spent)]
    if run["chosen"] != run["rounds"]:
        head.append(("model", f"of round {run['chosen']}"))
    head += [(f"model {number}", ", ".join(names)) for number, names in _members(run.get("clusters", {}))]
    head += [("trouble", line) for line in run.get("trouble", ())]
    head += [("note", line) for line in run.get("notes", ())]
    layout = run.get("layout", "rows")
    parts = [labelled(head), scores([("federated", run["scores"]), *_named(run["baselines"], layout)])]
    if run["baselines"]:
        parts.append("Alone and pooled are trained by the same work without any protection, for comparison.")
    return "\n\n".join([*parts, "\n".join(run["statement"])])


def side_by_side(runs: Sequence[dict[str, Any]]) -> str:
    """Several runs, one line each."""
    metrics: list[str] = list(dict.fromkeys(name for run in runs for name in run["scores"]))
    header = ["run", "task", "rounds", "privacy", *(NAMES.get(name, name) for name in metrics)]
    rows = [
        (
            run.get("run") or run["name"],
            run["task"],
            str(run["rounds"]),
            "open" if run["privacy"]["unit"] is None else _spent(run["privacy"]),
            *(_number(run["scores"].get(name), name) for name in metrics),
        )
        for run in runs
    ]
    return aligned(header, rows)


def scores(rows: Sequence[tuple[str, dict[str, float]]]) -> str:
    """Scores as a table, one line for each way of training."""
    metrics = list(dict.fromkeys(name for _, found in rows for name in found))
    if not metrics:
        return "No score: there are no held-out records that may be looked at."
    if len(metrics) > WIDEST:
        # More than fit side by side stand below each other.
        columns = ("", *(label for label, _ in rows))
        cells = {name: [_number(found.get(name), name) for _, found in rows] for name in metrics}
        return aligned(columns, [(NAMES.get(name, name), *cells[name]) for name in metrics])
    header = ("", *(NAMES.get(name, name) for name in metrics))
    return aligned(
        header, [(label, *(_number(found.get(name), name) for name in metrics)) for label, found in rows]
    )


def line(entry: Round) -> str:
    """A round as one line."""
    # What is told of one world alone is in the record.
    shown = {name: value for name, value in entry.scores.items() if "@" not in name}
    found = "  ".join(f"{NAMES.get(name, name)} {_number(value, name)}" for name, value in shown.items())
    limit = "" if entry.budget is None else f"/{entry.budget:g}"
    price = "" if entry.epsilon is None else f"epsilon {entry.epsilon:.4g}{limit}"
    return "  ".join(part for part in (f"round {entry.number}/{entry.rounds}", found, price) if part)


@contextmanager
def progress(stream: TextIO | None = None, *, quiet: bool = False) -> Generator[Watcher]:
    """Show rounds as they end, on stderr: one live bar on a terminal, one line each in a pipe."""
    shown = stream or sys.stderr
    if quiet:
        yield lambda entry: None
    elif shown.isatty():
        with _bar(shown) as watcher:
            yield watcher
    else:
        yield lambda entry: print(line(entry), file=shown, flush=True)


@contextmanager
def _bar(stream: TextIO) -> Generator[Watcher]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(file=stream)) as bar:
        shown = bar.add_task("starting", total=None)
        yield lambda entry: bar.update(
            shown, completed=entry.number, total=entry.rounds, description=line(entry)
        )


def labelled(rows: Sequence[tuple[str, str]]) -> str:
    """Labelled lines, the labels in one column."""
    width = max((len(label) for label, _ in rows), default=0)
    return "\n".join(f"{label:<{width}}  {text}".rstrip() for label, text in rows)


def aligned(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """An aligned table; columns of numbers to the right."""
    widths = [max(len(cell) for cell in column) for column in zip(header, *rows, strict=True)]
    numeric = [all(_is_number(cell) for cell in column) for column in zip(*rows, strict=True)]
    right = numeric or [False] * len(header)
    return "\n".join(
        "  ".join(
            cell.rjust(width) if push else cell.ljust(width)
            for cell, width, push in zip(row, widths, right, strict=True)
        ).rstrip()
        for row in (header, ["-" * width for width in widths], *rows)
    )


def _spent(promise: dict[str, Any]) -> str:
    epsilon = "unbounded" if promise["epsilon"] is None else f"{promise['epsilon']:.4g}"
    rehearsal = ", REHEARSAL" if promise["rehearsal"] else ""
    return f"epsilon {epsilon} at delta {promise['delta']:g} for any one {promise['unit']}{rehearsal}"


def _named(baselines: dict[str, dict[str, float]], layout: str) -> list[tuple[str, dict[str, float]]]:
    alone = "active party alone" if layout == "columns" else "each site alone"
    names = {"alone": alone, "pooled": "pooled"}
    return [(names.get(key, key), found) for key, found in baselines.items()]


def _members(clusters: dict[str, int]) -> list[tuple[int, list[str]]]:
    models = sorted(set(clusters.values()))
    return [(model, [name for name in clusters if clusters[name] == model]) for model in models]


def _number(value: float | None, name: str) -> str:
    # Returns are sums of many rewards: more decimals would say nothing.
    decimals = 1 if name.startswith(("return", "iqm")) else 4
    return "-" if value is None else f"{value:.{decimals}f}"


def _is_number(cell: str) -> bool:
    bare = cell.removeprefix("-").replace(".", "").replace("e-", "").replace("e+", "")
    return cell in ("", "-", BROKEN) or bare.isdigit()
