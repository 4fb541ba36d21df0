"""The total over all runs on the same people, as plain data and in words. It loads nothing heavy."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

# Without a lifetime the total is read off afterwards, and results may have decided that there is a next run.
UNBOUND = "no lifetime budget is set; if you decide by results whether to run again, delta may be larger"
SET_ONE = "set a budget: tacit ledger FILE --lifetime E"


@dataclass(frozen=True, kw_only=True)
class AllRuns:
    """Total price of all runs on the same people, from the book of the data.

    Args:
        runs: Number of runs, this one included.
        epsilon: The price of all of them; infinite if nothing is proven. Of several runs, the lifetime budget
            that would have borne them, had it been fixed before the first.
        delta: The probability with which the promise may fail.
        unit: Protected unit.
        lifetime: The lifetime budget of these people, epsilon and delta, if one was set.
        notes: Notes on how to read it.
    """

    runs: int
    epsilon: float
    delta: float
    # As `Unit` of the accounting, which this module does not load: the command line shows totals.
    unit: Literal["record", "site"]
    lifetime: tuple[float, float] | None = None
    notes: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON; an infinite epsilon becomes None."""
        return {**asdict(self), "epsilon": self.epsilon if math.isfinite(self.epsilon) else None}

    def sentence(self) -> str:
        """Render the total as a sentence."""
        return in_words(self.as_dict())


def in_words(total: Mapping[str, Any]) -> str:
    """Put the total over all runs into words, from the plain data of `AllRuns`."""
    notes = "".join(f" Note: {note}." for note in total["notes"])
    if total["runs"] <= 1:
        return f"All runs: Tacit knows of no earlier run on these records{_limit(total, 'their')}.{notes}"
    runs = f"the {total['runs']} runs on these data"
    limit = _limit(total, "their")
    if total["epsilon"] is None:
        return f"All runs: the cost of {runs} to any one {total['unit']} is not bounded{limit}.{notes}"
    return f"All runs: {runs} {_price(total)}{limit}{_warning(total)}.{notes}"


def so_far(total: Mapping[str, Any]) -> str:
    """Put the price of all earlier runs on the same people into words."""
    runs = "1 run on these data has" if total["runs"] == 1 else f"{total['runs']} runs on these data have"
    if total["epsilon"] is None:
        return f"{runs} cost any one {total['unit']} more than can be bounded; another run adds its own cost"
    cost = f"{_price(total, 'so far')}{_limit(total, 'the')}"
    return f"{runs} {cost}; another run adds its own cost{_warning(total)}"


def is_bound(total: Mapping[str, Any]) -> bool:
    """Return True if the total is a promise: one run, a lifetime budget, or pure epsilons (delta 0)."""
    return total["runs"] <= 1 or total["lifetime"] is not None or total["delta"] == 0


def _price(total: Mapping[str, Any], how: str = "in total") -> str:
    """Describe a total in words; without a budget, compare it with a lifetime budget."""
    epsilon, delta = f"epsilon {total['epsilon']:.4g}", f"delta {total['delta']:g}"
    if is_bound(total):
        return f"cost any one {total['unit']} {epsilon} {how}, at {delta}"
    return f"cost any one {total['unit']} {epsilon} {how}, at {delta}, as a lifetime budget fixed in advance"


def _warning(total: Mapping[str, Any]) -> str:
    binding = total["lifetime"] is not None or total["delta"] == 0
    return "" if binding else f"; {UNBOUND} ({SET_ONE})"


def _limit(total: Mapping[str, Any], whose: str) -> str:
    budget = total["lifetime"]
    return (
        "" if budget is None else f"; {whose} lifetime budget is epsilon {budget[0]:g} at delta {budget[1]:g}"
    )
