"""The progress of a run as one live line of a terminal: what is done, how far, for what, how long yet."""

import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

from tacit.learning.record import Round
from tacit.reports.text import ProgressCallback, round_parts
from tacit.reports.text_tables import display_width, plain, shorten_middle

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

# A line of fewer columns would tell little.
NARROW = 60
# The shortest and the longest bar, in columns.
SHORT, LONG = 8, 40
# How often the clock is looked at, each second.
OFTEN = 4


@contextmanager
def show_live_line(stream: TextIO) -> Generator[ProgressCallback | None]:
    """Show what goes on as one line that changes; nobody watches where a terminal cannot, or must not."""
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
    """What is seen of a run: the last round, or what is being done instead."""

    def __init__(self, console: "Console") -> None:
        self._console, self._began = console, time.monotonic()
        self._words = "starting"
        self._share: float | None = None
        self._round: Round | None = None
        self._last: Round | None = None
        self._new_pace()

    def __call__(self, entry: Round) -> None:
        """A round is over."""
        self._seen += 1
        now = time.monotonic()
        self._ready = now + (now - self._since) / self._seen * (entry.rounds - entry.number)
        self._show(entry)

    def stage(self, words: str, share: float | None = None) -> None:
        """Something else is being done; so much of it is done, where that is known."""
        if self._round is not None or words != self._words:
            self._new_pace()
        if share:
            self._ready = self._since + (time.monotonic() - self._since) / share
        self._words, self._share, self._round = words, share, None

    def end(self) -> None:
        """Nothing more will be done: what stays is the last round, and how long everything took."""
        self._ready = None
        if self._last is not None:
            self._show(self._last)

    def render(self) -> "Text":
        """The line as it stands."""
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
    """What there is to say of a round, as far as there is room: what was spent first, then its scores."""
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
