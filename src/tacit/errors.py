"""Every exception that Tacit raises on purpose.

    TacitError
    |- InvalidValue         a field, what was given, what is allowed
    |- InvalidFile          an experiment file that cannot be read as one
    |- Refused              a combination whose promise cannot be kept
    |  `- NotSeparable      single records cannot be protected under this loss
    |- TooFewSites          not enough sites for the number of malicious sites to tolerate
    |- SecureAggregationFailed   secure aggregation was stopped; nothing was unmasked
    |- SitesUnreachable     no answer from sites that the run needs; it can be resumed
    |- BudgetExhausted      the ledger will not bear this release; nothing was charged
    |- LedgerError
    |  |- LedgerUnusable    not a ledger, or not readable or writable
    |  `- LedgerTampered    a ledger whose rows do not fit together
    `- RunUnusable          a run's directory that cannot be read, written or resumed

A mistake of the user raises one of these; anything else is a bug of ours. What a message repeats from a file,
a table or the command line is escaped and cut here, so that no message moves a terminal or fills it.

Size limits of files, compared before any work is done or memory taken.

All of them are far above actual use (10,000 sites, 2,000,000 records, 5,000 features, 1,000 rounds): a file
that passes one has a mistake in it, or was written to keep a machine busy.
"""

import math
import re
import unicodedata
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from importlib.util import find_spec
from itertools import islice, pairwise
from typing import cast

# A printed message, and one value in it, in characters.
LONGEST_MESSAGE, LONGEST_VALUE = 1_800, 300
# The name of a run or a site, which names a directory: file systems allow 255 bytes.
LONGEST_NAME = 100
# An experiment file, in bytes; how deep its tables and lists may be nested; the digits of one whole number,
# and the characters of one text.
LONGEST_FILE, MOST_DEPTH, MOST_DIGITS, LONGEST_TEXT = 2**22, 32, 100, 100_000
# Any whole number that counts something, and the least probability that is not taken for 0.
MOST_COUNT, LEAST_RATE = 10**12, 1e-9
# A federation, and how long it trains.
MOST_SITES, MOST_ROUNDS, MOST_STEPS = 100_000, 100_000, 1_000_000
# Releases of all rounds together, in a local run and in one that a site is asked for.
MOST_RELEASES, MOST_RELEASES_ASKED = 5_000_000, 500_000
# A network: layers, units in one of them, and weights in all; and the intervals of a grid of times.
MOST_LAYERS, MOST_WIDTH, MOST_WEIGHTS, MOST_CUTS, MOST_CAUSES = 100, 100_000, 50_000_000, 10_000, 1_000
# Environments that are played in at a time.
MOST_ENVS = 10_000
# A table: rows, columns, and numbers in all; a file of text, in bytes, and one line of it.
MOST_RECORDS, MOST_COLUMNS, MOST_NUMBERS = 20_000_000, 50_000, 300_000_000
LONGEST_TABLE, LONGEST_LINE = 2**34, 2**24


# Letters and pictures are joined by these; what else is of these categories moves, hides or turns letters.
JOINERS = "\u200c\u200d"
HARMFUL = ("Cc", "Cf", "Cs", "Zl", "Zp")
# The largest number of words that a misspelled one is compared with.
COMPARED = 2_000


class TacitError(Exception):
    """Any mistake or refusal that Tacit can explain; its message is one line that a terminal can show.

    Args:
        message: The message, for the owner of the data.
        others: Further arguments of the exception.
        rule: The message for all other readers: the column and the rule, without counts, values or rows. The
            same as the message where that does not depend on records; None where that was not decided.
        rows: The positions of the records that break the rule, from 1 on.
    """

    def __init__(
        self, message: str = "", *others: object, rule: str | None = None, rows: Iterable[int] = ()
    ) -> None:
        super().__init__(shorten(message), *others)
        self.rule, self.rows = None if rule is None else shorten(rule), tuple(rows)


class InvalidValue(TacitError, ValueError):
    """A value that is not allowed where it was given."""


class InvalidFile(TacitError):
    """A file that cannot be read as an experiment."""


class Refused(TacitError):
    """A combination of choices whose privacy promise cannot be kept."""


class NotSeparable(Refused):
    """A loss that couples records, so that clipping the gradients of single records gives no protection."""


class TooFewSites(TacitError, ValueError):
    """Too few sites, or too few answers, to tolerate the given number of dishonest sites."""


class SecureAggregationFailed(TacitError):
    """Secure aggregation was stopped: a site received a forbidden request, or too few sites remained.

    Nothing was unmasked.
    """


class SitesUnreachable(TacitError):
    """Required sites do not answer; finished work is kept."""


class BudgetExhausted(TacitError):
    """A release that the budget cannot bear; nothing was charged."""


class LedgerError(TacitError):
    """Something is wrong with a ledger file."""


class LedgerUnusable(LedgerError):
    """A path that does not hold a ledger, or one that cannot be read or written."""


class LedgerTampered(LedgerError):
    """A ledger whose rows do not fit together: it was changed or damaged after it was written."""


class RunUnusable(TacitError):
    """A run's directory cannot be read, written or resumed; its earlier files are intact."""


def escape(text: str) -> str:
    """Write every character that a terminal would obey or not show by its escape, newlines among them."""
    if text.isprintable():
        return text
    return "".join(
        sign if _is_harmless(sign) else sign.encode("unicode_escape").decode("ascii") for sign in text
    )


def _is_harmless(sign: str) -> bool:
    return sign in JOINERS or unicodedata.category(sign) not in HARMFUL


def shorten(text: str, most: int = LONGEST_MESSAGE) -> str:
    """Escape a text, and leave out the middle of one that is longer than `most` characters."""
    shown = escape(text if len(text) <= 2 * most else text[:most] + text[-most:])
    if len(text) <= most and len(shown) <= most:
        return shown
    head = 2 * most // 3
    return f"{shown[:head]} ... {shown[head + 5 - most :]}"


def quote(value: object) -> str:
    """Write a value as Python does, escaped and cut."""
    return shorten(repr(value), LONGEST_VALUE)


def require(condition: bool, field: str, given: object, allowed: str, *, about_records: bool = False) -> None:
    """Raise `InvalidValue` naming the field, the given and the allowed value, unless `condition` holds.

    Args:
        condition: The condition to hold.
        field: The name of the field.
        given: The given value.
        allowed: The allowed values, in words.
        about_records: True if `given` depends on records; it is then for their owner alone.
    """
    if not condition:
        words = f"{field} = {quote(given)} is not allowed: it must be {allowed}"
        rule = f"{field} is not allowed: it must be {allowed}" if about_records else words
        raise InvalidValue(words, rule=rule)


def require_word(field: str, given: object, allowed: Iterable[str]) -> None:
    """Raise `InvalidValue` unless `given` is one of the allowed words; suggest the nearest."""
    words = tuple(allowed)
    if given not in words:
        told = f"{field} = {quote(given)} is not allowed: it must be {choices(words)}{hint(given, words)}"
        raise InvalidValue(told, rule=told)


def choices(words: Iterable[str]) -> str:
    """The words as `"a", "b" or "c"`."""
    quoted = [f'"{word}"' for word in words]
    return quoted[0] if len(quoted) == 1 else ", ".join(quoted[:-1]) + " or " + quoted[-1]


def hint(given: object, words: Iterable[str]) -> str:
    """A *did you mean* for a misspelled word, or nothing when no word is near."""
    # Nothing is near to what is longer than a word, and comparing it would take a while.
    few = list(islice(words, COMPARED)) if len(str(given)) <= LONGEST_VALUE else []
    near = get_close_matches(str(given), few, n=1)
    return f' (did you mean "{near[0]}"?)' if near else ""


def require_positive(field: str, given: object) -> None:
    """Refuse a value that is not a positive, finite number."""
    require(is_between(given, 0, math.inf), field, given, "a finite number above 0")


def require_rate(field: str, given: object, least: float = 0.0) -> None:
    """Refuse a value that is not a probability above 0, or above `least`."""
    fits = is_between(given, math.nextafter(least, 0) if least else 0, math.nextafter(1, 2))
    require(fits, field, given, f"above 0{f' (at least {least:g})' if least else ''} and at most 1")


def require_name(field: str, given: object) -> None:
    """Refuse a name that is not valid for a directory on every system."""
    plain = isinstance(given, str) and re.fullmatch(r"[\w.+-]+( [\w.+-]+)*", given) and given.strip(".")
    require(bool(plain), field, given, "letters, digits and . _ + - alone: it names a directory")
    require(len(cast(str, given)) <= LONGEST_NAME, field, given, f"at most {LONGEST_NAME} characters long")


def require_count(field: str, given: object, most: int = MOST_COUNT) -> None:
    """Refuse a value that is not a whole number from 1 to `most`."""
    whole = isinstance(given, int) and not isinstance(given, bool) and given >= 1
    require(whole, field, given, "a whole number of at least 1")
    require(cast(int, given) <= most, field, given, f"at most {most:,}")


def require_hidden(given: Sequence[object]) -> None:
    """Refuse layers of a network that are none, and more or wider ones than memory could hold."""
    require(len(given) <= MOST_LAYERS, "hidden", f"{len(given):,} layers", f"at most {MOST_LAYERS}")
    for width in given:
        require_count("hidden", width, MOST_WIDTH)
    require_weights(cast("Sequence[int]", given))


def require_weights(widths: Sequence[int]) -> None:
    """Refuse a network with more weights than memory could hold; its layers are as wide as this."""
    weights = sum(left * right for left, right in pairwise(widths))
    require(weights <= MOST_WEIGHTS, "hidden", list(widths), f"layers with {MOST_WEIGHTS:,} weights at most")


def require_extra(package: str, extra: str, what: str) -> None:
    """Refuse what needs a package that is not installed, and say how to install it."""
    try:
        there = find_spec(package) is not None
    except (ImportError, ValueError):
        there = False
    if not there:
        raise InvalidValue(f"{what} needs {package}, which is not installed: pip install 'tacit[{extra}]'")


def is_between(given: object, low: float, high: float) -> bool:
    """Return True for a number strictly between two bounds; an integer too large for a float is not."""
    if not isinstance(given, int | float) or isinstance(given, bool):
        return False
    try:
        return low < float(given) < high
    except OverflowError:
        return False
