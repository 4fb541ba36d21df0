"""Every exception that Tacit raises on purpose.

    TacitError
    |- InvalidValue         a field, what was given, what is allowed
    |- InvalidFile          an experiment file that cannot be read as one
    |- Refused              a combination whose promise cannot be kept
    |  `- NotSeparable      single records cannot be protected under this loss
    |- TooFewSites          not enough sites to outvote the liars that were to be stood
    |- SecureAggregationFailed   a sum in secret that was stopped; nothing was unmasked
    |- SitesUnreachable     nobody answers whom a run cannot do without; it can be resumed
    |- BudgetExhausted      the ledger will not bear this release; nothing was charged
    |- LedgerError
    |  |- LedgerUnusable    not a ledger, or not readable or writable
    |  `- LedgerTampered    a ledger whose rows do not fit together
    `- RunUnusable          a run's directory that cannot be read, written or resumed

A mistake of the user raises one of these; anything else is a bug of ours.
"""

import math
import re
from collections.abc import Iterable
from difflib import get_close_matches


class TacitError(Exception):
    """Any mistake or refusal that Tacit can explain."""


class InvalidValue(TacitError, ValueError):
    """A value that is not allowed where it was given."""


class InvalidFile(TacitError):
    """A file that cannot be read as an experiment."""


class Refused(TacitError):
    """A combination of choices whose privacy promise cannot be kept."""


class NotSeparable(Refused):
    """A loss that couples records, so that clipping single records would protect nobody."""


class TooFewSites(TacitError, ValueError):
    """Not enough sites, or not enough that answered, to outvote the liars that were to be stood."""


class SecureAggregationFailed(TacitError):
    """A sum in secret that was stopped, by a site that was asked what it must not answer or by too few sites.

    Nothing was unmasked.
    """


class SitesUnreachable(TacitError):
    """Sites that a run cannot do without and that do not answer; what was done so far is kept."""


class BudgetExhausted(TacitError):
    """A release that the budget cannot bear; nothing was charged."""


class LedgerError(TacitError):
    """Something is wrong with a ledger file."""


class LedgerUnusable(LedgerError):
    """A path that does not hold a ledger, or one that cannot be read or written."""


class LedgerTampered(LedgerError):
    """A ledger whose rows do not fit together: it was changed or damaged after it was written."""


class RunUnusable(TacitError):
    """A run's directory that cannot be read, written or resumed; what was written before is intact."""


def require(condition: bool, field: str, given: object, allowed: str) -> None:
    """Raise `InvalidValue` naming the field, what was given and what is allowed, unless `condition` holds."""
    if not condition:
        raise InvalidValue(f"{field} = {given!r} is not allowed: it must be {allowed}")


def require_word(field: str, given: object, allowed: Iterable[str]) -> None:
    """Raise `InvalidValue` unless `given` is one of the allowed words; suggest the nearest."""
    words = tuple(allowed)
    if given not in words:
        raise InvalidValue(
            f"{field} = {given!r} is not allowed: it must be {choices(words)}{hint(given, words)}"
        )


def choices(words: Iterable[str]) -> str:
    """The words as `"a", "b" or "c"`."""
    quoted = [f'"{word}"' for word in words]
    return quoted[0] if len(quoted) == 1 else ", ".join(quoted[:-1]) + " or " + quoted[-1]


def hint(given: object, words: Iterable[str]) -> str:
    """A *did you mean* for a misspelt word, or nothing when no word is near."""
    near = get_close_matches(str(given), list(words), n=1)
    return f' (did you mean "{near[0]}"?)' if near else ""


def require_positive(field: str, given: object) -> None:
    """Refuse what is not a positive, finite number."""
    require(between(given, 0, math.inf), field, given, "a finite number above 0")


def require_rate(field: str, given: object) -> None:
    """Refuse what is not a probability above 0."""
    require(between(given, 0, math.nextafter(1, 2)), field, given, "above 0 and at most 1")


def require_name(field: str, given: object) -> None:
    """Refuse what cannot name a directory everywhere."""
    plain = isinstance(given, str) and re.fullmatch(r"[\w.+-]+( [\w.+-]+)*", given) and given.strip(".")
    require(bool(plain), field, given, "letters, digits and . _ + - alone: it names a directory")


def require_count(field: str, given: object) -> None:
    """Refuse what is not a whole number of at least 1."""
    ok = isinstance(given, int) and not isinstance(given, bool) and given >= 1
    require(ok, field, given, "a whole number of at least 1")


def between(given: object, low: float, high: float) -> bool:
    """Whether it is a number strictly inside; a whole number too large for a float is not."""
    if not isinstance(given, int | float) or isinstance(given, bool):
        return False
    try:
        return low < float(given) < high
    except OverflowError:
        return False
