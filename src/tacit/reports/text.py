"""A run as text: its progress while it goes on, its summary when it is over."""

import sys
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple, Protocol, TextIO

from tacit.learning.record import Round
from tacit.privacy.ledger import total
from tacit.reports.text_tables import (
    BROKEN,
    WIDTH,
    align_table,
    fit_table,
    format_rows,
    plain,
    widest_line,
    wrap_paragraph,
)

__all__ = [
    "BROKEN",
    "NAMES",
    "ProgressCallback",
    "align_table",
    "header_of",
    "format_rows",
    "line",
    "number",
    "progress",
]
__all__ += ["score_table", "scores", "side_by_side", "summary", "round_parts"]

NAMES = {
    "c_index": "C-index", "ibs": "IBS", "r2": "R2", "ril2": "RIL2", "iqm": "IQM",
    "return_low": "return, 95 % from", "return_high": "return, 95 % to", "return_unseen": "return, unseen",
    "iqm_low": "IQM, 95 % from", "iqm_high": "IQM, 95 % to", "solved": "share solved",
}  # fmt: skip
# After how many seconds a pipe is told what is being done, if it is not a round.
PATIENCE = 10.0
# How many scores stand side by side.
WIDEST = 6
INTERVAL, LOW, HIGH = "95 % interval", "_low", "_high"
REHEARSAL = "* A rehearsal: the noise repeats with the seed, so it protects nobody."

Ends = Mapping[str, Sequence[float]]


class ProgressCallback(Protocol):
    """Whoever wants to know about every round, and about what is done before, between and after them."""

    def __call__(self, entry: Round) -> None:
        """A round is over."""
        ...

    def stage(self, words: str, share: float | None = None) -> None:
        """Something else is being done; so much of it is done, where that is known."""
        ...


class _Model(NamedTuple):
    """What is told of a model: its scores, and the intervals of some of them."""

    label: str
    scores: Mapping[str, float]
    ends: Ends

    def value(self, score: str) -> str:
        return number(self.scores.get(score), score)

    def interval(self, score: str) -> str:
        if score not in self.ends:
            return ""
        low, high = (number(end, score, fewer=1) for end in self.ends[score])
        return f"[{low}, {high}]"


def summary(run: dict[str, Any]) -> str:
    """The summary of a run: a header, its scores beside both baselines, its statement.

    Args:
        run: What `Run.as_dict` says, and the sentences of its `statement`; perhaps `how` its intervals were
            found.
    """
    models = _models(run)
    table = scores([(model.label, model.scores) for model in models], [model.ends for model in models])
    beneath = [run.get("how", "")]
    if run["baselines"]:
        beneath.append("Alone and pooled: the same work without any protection, for comparison.")
    explained = "\n".join(wrap_paragraph(words) for words in beneath if words)
    promised = "\n".join(wrap_paragraph(words, indent="  ") for words in run["statement"])
    head = format_rows(header_of(run), whole=False)
    return "\n\n".join(part for part in (head, table, explained, promised) if part)


def header_of(run: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What comes first of a run: its name, what it learnt, how long, at what price, and what to mind."""
    promise = run["privacy"]
    spent = "open: nothing is promised" if promise["unit"] is None else _spent(promise)
    ended = str(run["rounds"]) + (f", ended early: {run['stopped']}" if run["stopped"] else "")
    head = [("run", run["name"]), ("task", run["task"]), ("rounds", ended), ("privacy", spent)]
    if promise.get("all_runs") is not None:
        head.append(("all runs", total.in_words(promise["all_runs"]).partition(": ")[2].rstrip(".")))
    if run["chosen"] != run["rounds"]:
        head.append(("model", f"of round {run['chosen']}"))
    head += [(f"model {number}", ", ".join(names)) for number, names in _members(run.get("clusters", {}))]
    head += [("trouble", words) for words in run.get("trouble", ())]
    head += [("found", words) for words in run.get("findings", ())]
    head += [("note", words) for words in run.get("notes", ())]
    return head


def score_table(run: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """The scores of a run as a table with a line for each way of training: its header, and its rows."""
    models = _models(run)
    return _score_rows(models, list(dict.fromkeys(name for model in models for name in model.scores)))


def side_by_side(runs: Sequence[dict[str, Any]]) -> str:
    """Several runs, one line each where that fits."""
    found = [_model("", run["scores"]).scores for run in runs]
    metrics = list(dict.fromkeys(name for known in found for name in known))
    header = [
        "run",
        "task",
        "rounds",
        "epsilon",
        "delta",
        "unit",
        *(NAMES.get(name, name) for name in metrics),
    ]
    rows = [
        (
            run.get("run") or run["name"],
            run["task"],
            str(run["rounds"]),
            *_price(run["privacy"]),
            *(number(known.get(name), name) for name in metrics),
        )
        for run, known in zip(runs, found, strict=True)
    ]
    rehearsed = any(run["privacy"]["rehearsal"] for run in runs)
    return fit_table(header, rows) + (f"\n\n{REHEARSAL}" if rehearsed else "")


def scores(rows: Sequence[tuple[str, Mapping[str, float]]], intervals: Sequence[Ends] = ()) -> str:
    """Scores as a table, one line for each way of training where that fits.

    Args:
        rows: What each way is called, and its scores.
        intervals: Those of each one's scores, beside such as scores bring themselves.
    """
    known = intervals or [dict[str, Sequence[float]]()] * len(rows)
    models = [_model(label, found, ends) for (label, found), ends in zip(rows, known, strict=True)]
    metrics = list(dict.fromkeys(name for model in models for name in model.scores))
    if not metrics:
        return "No score: there are no held-out records that may be looked at."
    layouts = [_beside, _below] if len(metrics) <= WIDEST else [_below]
    for layout in layouts:
        table = layout(models, metrics)
        if widest_line(table) <= WIDTH:
            return table
    return _list_scores(models, metrics)


def line(entry: Round) -> str:
    """A round as one line."""
    found, price = round_parts(entry)
    return "  ".join(part for part in (f"round {entry.number}/{entry.rounds}", *found, price) if part)


def round_parts(entry: Round) -> tuple[list[str], str]:
    """What there is to say of a round: its scores, and what was spent by then."""
    # What is told of one world alone is in the record.
    shown = {name: value for name, value in entry.scores.items() if "@" not in name}
    found = [f"{plain(NAMES.get(name, name))} {number(value, name)}" for name, value in shown.items()]
    limit = "" if entry.budget is None else f"/{entry.budget:g}"
    return found, "" if entry.epsilon is None else f"epsilon {entry.epsilon:.4g}{limit}"


def number(value: float | None, name: str, *, fewer: int = 0) -> str:
    """The value of a score, with so many decimals fewer than usual."""
    # Returns are sums of many rewards: more decimals would say nothing.
    decimals = 1 if name.startswith(("return", "iqm")) else 4 - fewer
    return "-" if value is None else f"{value:.{decimals}f}"


@contextmanager
def progress(stream: TextIO | None = None, *, quiet: bool = False) -> Generator[ProgressCallback]:
    """Show what goes on, on stderr: one live line on a terminal, a line for each round in a pipe.

    A terminal that is narrow is treated like a pipe.
    """
    shown = stream or sys.stderr
    with ExitStack() as stack:
        watcher = None
        if shown.isatty() and not quiet:
            from tacit.reports.terminal import show_live_line

            watcher = stack.enter_context(show_live_line(shown))
        written = _Lines(lambda words: None if quiet else print(words, file=shown, flush=True))
        stack.callback(written.end)
        yield watcher or written


class _Lines:
    """A line for each round, and for whatever else takes so long that somebody may wonder."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say, self._words = say, ""
        self._waiting: threading.Timer | None = None

    def __call__(self, entry: Round) -> None:
        self.end()
        self._say(line(entry))

    def stage(self, words: str, share: float | None = None) -> None:
        if words == self._words:
            return
        self.end()
        self._words, self._waiting = words, threading.Timer(PATIENCE, self._say, [f"{plain(words)} ..."])
        self._waiting.daemon = True
        self._waiting.start()

    def end(self) -> None:
        """Nothing is being done."""
        if self._waiting is not None:
            self._waiting.cancel()
        self._words, self._waiting = "", None


def _beside(models: Sequence[_Model], metrics: Sequence[str]) -> str:
    return align_table(*_score_rows(models, metrics))


def _score_rows(models: Sequence[_Model], metrics: Sequence[str]) -> tuple[list[str], list[list[str]]]:
    """A line for each model."""
    header, uncertain = [""], {name for model in models for name in model.ends}
    for name in metrics:
        header += [NAMES.get(name, name), *([INTERVAL] if name in uncertain else [])]
    return header, [[model.label, *_cells(model, metrics, uncertain)] for model in models]


def _below(models: Sequence[_Model], metrics: Sequence[str]) -> str:
    """A line for each score."""
    header = [""]
    for model in models:
        header += [model.label, *([INTERVAL] if model.ends else [])]
    rows = [
        [NAMES.get(name, name), *(c for m in models for c in _cells(m, [name], {name} if m.ends else set()))]
        for name in metrics
    ]
    return align_table(header, rows)


def _list_scores(models: Sequence[_Model], metrics: Sequence[str]) -> str:
    """A line for each score of each model."""
    header = ["score", "", "", *([INTERVAL] if any(model.ends for model in models) else [])]
    rows = [
        [
            NAMES.get(name, name) if model is models[0] else "",
            model.label,
            *_cells(model, [name], {name} if len(header) > 3 else set()),
        ]
        for name in metrics
        for model in models
    ]
    return fit_table(header, rows)


def _cells(model: _Model, metrics: Sequence[str], uncertain: set[str]) -> list[str]:
    found = list[str]()
    for name in metrics:
        found += [model.value(name), *([model.interval(name)] if name in uncertain else [])]
    return found


def _model(label: str, found: Mapping[str, float], ends: Ends = {}) -> _Model:  # noqa: B006
    """A model with its scores; those that are the ends of an interval go where intervals are."""
    own = {
        name: (found[name + LOW], found[name + HIGH])
        for name in found
        if name + LOW in found and name + HIGH in found
    }
    within = {name + end for name in own for end in (LOW, HIGH)}
    known = {name: pair for name, pair in {**own, **ends}.items() if name in found}
    return _Model(label, {name: value for name, value in found.items() if name not in within}, known)


def _spent(promise: dict[str, Any]) -> str:
    epsilon = "unbounded" if promise["epsilon"] is None else f"{promise['epsilon']:.4g}"
    rehearsal = ", REHEARSAL" if promise["rehearsal"] else ""
    return f"epsilon {epsilon} at delta {promise['delta']:g} for any one {promise['unit']}{rehearsal}"


def _price(promise: dict[str, Any]) -> tuple[str, str, str]:
    """Epsilon, delta, and of whom; with a star for rehearsals."""
    if promise["unit"] is None:
        return "open", "-", "-"
    epsilon = "unbounded" if promise["epsilon"] is None else f"{promise['epsilon']:.4g}"
    return epsilon, f"{promise['delta']:g}", promise["unit"] + "*" * bool(promise["rehearsal"])


def _models(run: Mapping[str, Any]) -> list[_Model]:
    ends = run.get("intervals", {})
    alone = "active party alone" if run.get("layout") == "columns" else "each site alone"
    return [
        _model(alone if name == "alone" else name, found, ends.get(name, {}))
        for name, found in {"federated": run["scores"], **run["baselines"]}.items()
    ]


def _members(clusters: dict[str, int]) -> list[tuple[int, list[str]]]:
    models = sorted(set(clusters.values()))
    return [(model, [name for name in clusters if clusters[name] == model]) for model in models]
