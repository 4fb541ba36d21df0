"""Text output of a run: progress, and summary.

Words and tables are as wide as they look, never wider than asked, and harmless. Names come from files and
from other people: whatever in them would move the cursor, hide or turn letters round is shown by its code, so
that a name cannot be taken for a command to the terminal.
"""

import re
import sys
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TextIO

from tacit.errors import escape
from tacit.learning.record import Round, sizes_in_words
from tacit.privacy.ledger import total
from tacit.reports.evaluation import HIDDEN_SCORES, NO_SCORE, evaluation_in_words

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

NAMES = {
    "c_index": "C-index", "ibs": "IBS", "r2": "R2", "ril2": "RIL2", "iqm": "IQM",
    "uno": "Uno's C", "auc": "AUC",
    "return_low": "return, 95 % from", "return_high": "return, 95 % to", "return_unseen": "return, unseen",
    "iqm_low": "IQM, 95 % from", "iqm_high": "IQM, 95 % to", "solved": "share solved",
}  # fmt: skip
# Seconds after which a pipe hears of a stage that is not a round.
PATIENCE = 10.0
# Number of scores side by side.
WIDEST = 6
INTERVAL, LOW, HIGH = "95 % interval", "_low", "_high"
REHEARSAL = "* A rehearsal: the noise repeats with the seed, so it gives no protection."

Ends = Mapping[str, Sequence[float]]


class ProgressCallback(Protocol):
    """Callback that hears of every round, and of stages before, between and after rounds."""

    def __call__(self, entry: Round) -> None:
        """Report the end of a round."""
        ...

    def stage(self, words: str, share: float | None = None) -> None:
        """Report another stage, and the finished share of it, if that is known."""
        ...


class _Model(NamedTuple):
    """Scores of a model, and the intervals of some of them."""

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
        run: Result of `Run.as_dict`, with the sentences of its `statement`; optionally `how` its intervals
            were found.
    """
    models = _models(run)
    table = scores([(model.label, model.scores) for model in models], [model.ends for model in models])
    if run.get("evaluation") and not any(model.scores for model in models):
        table = HIDDEN_SCORES
    beneath = [run.get("how", "")]
    if run["baselines"]:
        beneath.append("The comparison models had the same training without any protection.")
    if run.get("simplest"):
        beneath.append("{name}: {how}.".format(**run["simplest"]))
    explained = "\n".join(wrap_paragraph(words) for words in beneath if words)
    promised = "\n".join(wrap_paragraph(words, indent="  ") for words in run["statement"])
    head = format_rows(header_of(run), whole=False)
    return "\n\n".join(part for part in (head, table, explained, promised) if part)


def header_of(run: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the head of a summary: name, task, rounds, price and warnings."""
    promise = run["privacy"]
    spent = "open: no promise" if promise["unit"] is None else _spent(promise)
    ended = str(run["rounds"]) + (f", ended early: {run['stopped']}" if run["stopped"] else "")
    head = [("verdict", words) for words in run.get("verdict", ())]
    head += [("run", run["name"]), ("task", run["task"]), ("rounds", ended), ("privacy", spent)]
    if promise.get("all_runs") is not None:
        head.append(("all runs", total.in_words(promise["all_runs"]).partition(": ")[2].rstrip(".")))
    head += [("records", words)] if (words := sizes_in_words(run.get("sizes", {}))) else []
    head += [("evaluation", words) for words in evaluation_in_words(run.get("evaluation"))]
    bought = _bought(run)
    head += [("evaluation", ", ".join(bought))] if bought else []
    if run["chosen"] != run["rounds"]:
        head.append(("model", f"of round {run['chosen']}"))
    head += [(f"model {number}", ", ".join(names)) for number, names in _members(run.get("clusters", {}))]
    head += [("trouble", words) for words in run.get("trouble", ())]
    head += [("finding", words) for words in run.get("findings", ())]
    head += [("note", words) for words in run.get("notes", ())]
    return head


def _bought(run: Mapping[str, Any]) -> list[str]:
    """Return the scores on private held-out records in words, where the table shows others."""
    found: Mapping[str, Any] = run.get("evaluation") or {}
    model = _model("", found.get("scores", {}), found.get("intervals", {}))
    shown = () if model.scores == run["scores"] else model.scores
    return [f"{NAMES.get(name, name)} {model.value(name)} {model.interval(name)}".rstrip() for name in shown]


def score_table(run: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """The scores of a run as a table with a line for each way of training: its header, and its rows."""
    models = _models(run)
    return _score_rows(models, list(dict.fromkeys(name for model in models for name in model.scores)))


def side_by_side(runs: Sequence[dict[str, Any]]) -> str:
    """Several runs, one line each where that fits."""
    found = [_model("", run["scores"]).scores for run in runs]
    paths = tell_apart([run.get("run") or run["name"] for run in runs])
    metrics = list(dict.fromkeys(name for known in found for name in known))
    names = [NAMES.get(name, name) for name in metrics]
    header = ["run", "task", "rounds", "epsilon", "delta", "unit", *names]
    cells = [[number(known.get(name), name) for name in metrics] for known in found]
    rows = [
        (path, run["task"], str(run["rounds"]), *_price(run["privacy"]), *own)
        for run, path, own in zip(runs, paths, cells, strict=True)
    ]
    rehearsed = any(run["privacy"]["rehearsal"] for run in runs)
    named = [(run.get("run") or run["name"], words) for run in runs for words in run.get("verdict", ())]
    verdicts = [wrap_paragraph(f"{name}: {words}", indent="  ") for name, words in named]
    first = "\n".join(verdicts) + "\n\n" if verdicts else ""
    return first + fit_table(header, rows) + (f"\n\n{REHEARSAL}" if rehearsed else "")


def scores(rows: Sequence[tuple[str, Mapping[str, float]]], intervals: Sequence[Ends] = ()) -> str:
    """Scores as a table, one line for each way of training where that fits.

    Args:
        rows: Name of each way of training, and its scores.
        intervals: Those of each one's scores, beside such as scores bring themselves.
    """
    known = intervals or [dict[str, Sequence[float]]()] * len(rows)
    models = [_model(label, found, ends) for (label, found), ends in zip(rows, known, strict=True)]
    metrics = list(dict.fromkeys(name for model in models for name in model.scores))
    if not metrics:
        return NO_SCORE
    tables = [_below(models, metrics)]
    if len(metrics) <= WIDEST:
        tables.insert(0, align_table(*_score_rows(models, metrics)))
    for table in tables:
        if widest_line(table) <= WIDTH:
            return table
    return _list_scores(models, metrics)


def line(entry: Round) -> str:
    """A round as one line."""
    found, price = round_parts(entry)
    return "  ".join(part for part in (f"round {entry.number}/{entry.rounds}", *found, price) if part)


def round_parts(entry: Round) -> tuple[list[str], str]:
    """Return the parts of a round's line: its scores, and the epsilon spent by then."""
    # Scores of single environments are in the record alone.
    shown = {name: value for name, value in entry.scores.items() if "@" not in name}
    found = [f"{plain(NAMES.get(name, name))} {number(value, name)}" for name, value in shown.items()]
    limit = "" if entry.budget is None else f"/{entry.budget:g}"
    return found, "" if entry.epsilon is None else f"epsilon {entry.epsilon:.4g}{limit}"


def number(value: float | None, name: str, *, fewer: int = 0) -> str:
    """Format the value of a score, with `fewer` decimals less than usual."""
    # Returns are sums of many rewards: more decimals would say nothing.
    decimals = 1 if name.startswith(("return", "iqm")) else 4 - fewer
    return "-" if value is None else f"{value:.{decimals}f}"


@contextmanager
def progress(stream: TextIO | None = None, *, quiet: bool = False) -> Generator[ProgressCallback]:
    """Show progress on stderr: one live line on a terminal, a line for each round in a pipe.

    A terminal that is narrow is treated like a pipe.
    """
    shown = stream or sys.stderr
    with ExitStack() as stack:
        watcher = None
        if shown.isatty() and not quiet:
            watcher = stack.enter_context(show_live_line(shown))
        written = _Lines(lambda words: None if quiet else print(words, file=shown, flush=True))
        stack.callback(written.end)
        yield watcher or written


class _Lines:
    """Print a line for each round, and for any other stage that takes long."""

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
        """Cancel the line of the current stage."""
        if self._waiting is not None:
            self._waiting.cancel()
        self._words, self._waiting = "", None


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
    """Return a model with its scores; interval ends become intervals."""
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
    """Return epsilon, delta and unit; with a star for rehearsals."""
    if promise["unit"] is None:
        return "open", "-", "-"
    epsilon = "unbounded" if promise["epsilon"] is None else f"{promise['epsilon']:.4g}"
    return epsilon, f"{promise['delta']:g}", promise["unit"] + "*" * bool(promise["rehearsal"])


def _models(run: Mapping[str, Any]) -> list[_Model]:
    ends = run.get("intervals", {})
    alone = "active party alone" if run.get("layout") == "columns" else "each site alone"
    known = {"federated": run["scores"], **run["baselines"]}
    if run.get("simplest"):
        known[run["simplest"]["name"]] = run["simplest"]["scores"]
    return [
        _model(alone if name == "alone" else name, found, ends.get(name, {})) for name, found in known.items()
    ]


def _members(clusters: dict[str, int]) -> list[tuple[int, list[str]]]:
    models = sorted(set(clusters.values()))
    return [(model, [name for name in clusters if clusters[name] == model]) for model in models]


# Words and tables as lines for a terminal


# Width of any terminal.
WIDTH = 80
# Narrowest first column, and the mark of omitted letters.
LEAST, OMITTED = 12, "..."
# Columns for the name of a run beside others.
NAME = 30
# Entry of a broken model in a table of scores.
BROKEN = "broken"


def plain(text: str) -> str:
    """Escape all characters that a terminal would obey or not show."""
    return escape(text)


def display_width(text: str) -> int:
    """Return the width of words on a terminal, in columns: Chinese letters and pictures take two each."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def wrap_paragraph(text: str, *, width: int = WIDTH, indent: str = "", whole: bool = False) -> str:
    """Wrap a paragraph in lines of at most `width` columns.

    Args:
        text: The paragraph.
        width: Width of a line.
        indent: Beginning of the lines after the first.
        whole: Whether words that are longer than a line stay whole, such as paths to be copied.
    """
    found, line, room = list[str](), "", width
    for word in filter(None, plain(text).split(" ")):
        if line and display_width(line) + 1 + display_width(word) <= room:
            line = f"{line} {word}"
            continue
        if line:
            found.append(line)
            room = width - display_width(indent)
        while not whole and display_width(word) > room:
            part = _prefix(word, room)
            found.append(part)
            word, room = word[len(part) :], width - display_width(indent)
        line = word
    return f"\n{indent}".join([*found, line])


def format_rows(rows: Sequence[tuple[str, str]], *, width: int = WIDTH, whole: bool = True) -> str:
    """Labeled lines, the labels in one column.

    Args:
        rows: Labels, and what there is to say.
        width: Width of a line.
        whole: Whether words stay whole that are longer than a line.
    """
    shown = [(plain(label), text) for label, text in rows]
    beside = max((display_width(label) for label, _ in shown), default=0) + 2
    room = max(width - beside, LEAST)
    return "\n".join(
        _pad(label, beside) + wrap_paragraph(text, width=room, whole=whole).replace("\n", "\n" + " " * beside)
        if text
        else label
        for label, text in shown
    )


def align_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Align a table in columns; numbers to the right."""
    header, rows = [plain(cell) for cell in header], [[plain(cell) for cell in row] for row in rows]
    widths = [max(display_width(cell) for cell in column) for column in zip(header, *rows, strict=True)]
    numeric = [all(_is_number(cell) for cell in column) for column in zip(*rows, strict=True)]
    right = numeric or [False] * len(header)
    return "\n".join(
        "  ".join(
            _pad(cell, width, right=push) for cell, width, push in zip(row, widths, right, strict=True)
        ).rstrip()
        for row in (header, ["-" * width for width in widths], *rows)
    )


def fit_table(header: Sequence[str], rows: Sequence[Sequence[str]], *, width: int = WIDTH) -> str:
    """Align a table within the width: unchanged, transposed, with shorter names, or in parts."""
    table = align_table(header, rows)
    wide = widest_line(table)
    if wide <= width:
        return table
    turned = align_table([header[0], *(row[0] for row in rows)], list(zip(header, *rows, strict=True))[1:])
    if widest_line(turned) <= width:
        return turned
    first = max(display_width(plain(row[0])) for row in (header, *rows))
    room = width - (wide - first)
    if room >= LEAST:
        return align_table(header, _shorten_names(rows, room))
    return _in_parts(header, _shorten_names(rows, width // 3), width)


def widest_line(text: str) -> int:
    """Return the width of the widest line, in columns."""
    return max(display_width(line) for line in text.split("\n"))


def shorten_middle(text: str, room: int) -> str:
    """Shorten words to `room` columns: keep the beginning and more of the end."""
    text = plain(text)
    if display_width(text) <= room:
        return text
    # Names of runs and paths differ at their ends.
    last = 2 * (room - len(OMITTED)) // 3
    return _prefix(text, room - len(OMITTED) - last) + OMITTED + _prefix(text[::-1], last)[::-1]


def tell_apart(names: Sequence[str], room: int = NAME) -> list[str]:
    """Shorten the names of runs so that they differ: without their common folder, then their common words."""
    begin = re.sub(r"[^/\\]*$", "", _common(names))
    lines = [name[len(begin) :] for name in names]
    if len(names) < 2 or not all(lines) or max(map(display_width, lines)) <= room:
        return lines if all(lines) and len(names) > 1 else list(names)
    begin = re.sub(r"[^-_ .]*$", "", _common(lines))
    end = re.sub(r"^[^-_ .]*", "", _common([line[::-1] for line in lines])[::-1])
    marks = OMITTED * bool(begin), OMITTED * bool(end)
    found = [line[len(begin) : len(line) - len(end)].join(marks) for line in lines]
    return found if len(set(found)) == len(set(lines)) else lines


def _common(names: Sequence[str]) -> str:
    """Return the beginning that all names share."""
    first, last = min(names), max(names)
    pairs = enumerate(zip(first, last, strict=False))
    return first[: next((at for at, (one, other) in pairs if one != other), len(first))]


def _in_parts(header: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> str:
    """Split a table into several, each with the first column and as many others as fit."""
    groups, used = list[list[int]](), width
    first = max(display_width(row[0]) for row in (header, *rows))
    for place in range(1, len(header)):
        wide = max(display_width(plain(row[place])) for row in (header, *rows)) + 2
        if used + wide > width:
            groups.append([0])
            used = first
        groups[-1].append(place)
        used += wide
    room = width - first - 2
    return "\n\n".join(
        align_table(
            [header[at] for at in group], [[shorten_middle(row[at], room) for at in group] for row in rows]
        )
        for group in groups
    )


def _shorten_names(rows: Sequence[Sequence[str]], room: int) -> list[list[str]]:
    return [[shorten_middle(row[0], room), *row[1:]] for row in rows]


def _prefix(text: str, room: int) -> str:
    """The longest beginning that takes no more columns; one letter at least."""
    used = 0
    for place, char in enumerate(text):
        used += display_width(char)
        if used > room:
            return text[: max(place, 1)]
    return text


def _pad(text: str, width: int, *, right: bool = False) -> str:
    space = " " * (width - display_width(text))
    return space + text if right else text + space


def _is_number(cell: str) -> bool:
    if cell.startswith("[") and cell.endswith("]"):
        return all(_is_number(end) for end in cell[1:-1].split(", "))
    bare = cell.removeprefix("-").replace(".", "").replace("e-", "").replace("e+", "")
    return cell in ("", "-", BROKEN) or bare.isdigit()


# The progress of a run as one live line of a terminal


# A narrower line would show too little.
NARROW = 60
# The shortest and the longest bar, in columns.
SHORT, LONG = 8, 40
# Refreshes of the clock per second.
OFTEN = 4


@contextmanager
def show_live_line(stream: TextIO) -> Generator[ProgressCallback | None]:
    """Show progress as one changing line; yield None where the terminal cannot, or must not."""
    from rich.console import Console
    from rich.live import Live

    console = Console(file=stream, highlight=False)
    if not console.is_terminal or console.is_dumb_terminal or console.width < NARROW:
        yield None
        return
    shown = LiveLine(console)
    with Live(get_renderable=shown.render, console=console, refresh_per_second=OFTEN):
        yield shown
        shown.end()


class LiveLine:
    """Live line of a run: the last round, or the current stage."""

    def __init__(self, console: "Console") -> None:
        self._console, self._began = console, time.monotonic()
        self._words = "starting"
        self._share: float | None = None
        self._round: Round | None = None
        self._last: Round | None = None
        self._new_pace()

    def __call__(self, entry: Round) -> None:
        """Show the end of a round."""
        self._seen += 1
        now = time.monotonic()
        self._ready = now + (now - self._since) / self._seen * (entry.rounds - entry.number)
        self._show(entry)

    def stage(self, words: str, share: float | None = None) -> None:
        """Show another stage, and the finished share of it, if that is known."""
        if self._round is not None or words != self._words:
            self._new_pace()
        if share:
            self._ready = self._since + (time.monotonic() - self._since) / share
        self._words, self._share, self._round = words, share, None

    def end(self) -> None:
        """End the line: keep the last round, and the total time."""
        self._ready = None
        if self._last is not None:
            self._show(self._last)

    def render(self) -> "Text":
        """Render the current line."""
        from rich.text import Text

        width, now = self._console.width - 1, time.monotonic()
        left = "" if self._ready is None else f", {_clock(max(self._ready - now, 0.0))} left"
        clock = f"{_clock(now - self._began)}{left}"
        words = shorten_middle(plain(self._words), width - display_width(clock) - 2)
        free = width - display_width(f"{words}  {clock}") - (0 if self._share is None else SHORT + 2)
        beside = [] if self._round is None else _as_fits(self._round, free)
        found = Text(words, no_wrap=True, overflow="crop")
        if self._share is not None:
            long = min(LONG, width - display_width("  ".join([words, *beside, clock])) - 2)
            done = round(long * min(max(self._share, 0.0), 1.0))
            full, rest = ("\u2501", "\u2500") if self._console.encoding.startswith("utf") else ("#", "-")
            found.append("  ").append(full * done, "cyan").append(rest * (long - done), "bright_black")
        return found.append("  ".join(["", *beside, clock]))

    def _show(self, entry: Round) -> None:
        self._words, self._share = f"round {entry.number}/{entry.rounds}", entry.number / entry.rounds
        self._round = self._last = entry

    def _new_pace(self) -> None:
        self._since, self._seen = time.monotonic(), 0
        self._ready: float | None = None


def _as_fits(entry: Round, free: int) -> list[str]:
    """Return the parts of a round's line that fit: the price first, then its scores."""
    scores, price = round_parts(entry)
    found, used = list[str](), display_width(price) + 2 if price else 0
    for words in scores:
        used += display_width(words) + 2
        if used > free:
            break
        found.append(words)
    return [*found, price] if price else found


def _clock(seconds: float) -> str:
    whole = int(seconds)
    hours, minutes, rest = whole // 3600, whole // 60 % 60, whole % 60
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
