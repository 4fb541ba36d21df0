"""Every way in which anything private leaves, each attacked by itself: fast, and before anybody trusts it.

A primitive is a mechanism, the price it names for itself, and an adversary who tells its worst neighbours
apart. The adversary uses nothing but the mechanism's own methods, the ones that a run calls.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tacit.aggregation.averaging import Mean
from tacit.audits.canaries import LONG, Canaries, canaried
from tacit.keys import Key
from tacit.privacy.adaptive import AdaptiveBound
from tacit.privacy.audit import Bounds, Evidence, bounds, ratios
from tacit.privacy.blind import BlindSites
from tacit.privacy.columns import ColumnsApart, ColumnsBlind, ColumnsTogether, Counted
from tacit.privacy.mechanism import Mechanism, ProtectedRecords, Rows
from tacit.privacy.release import Release
from tacit.privacy.selection import PrivateQuantile, Selection
from tacit.privacy.whole import ProtectedSites
from tacit.watching import Tell, nobody

if TYPE_CHECKING:
    from torch import Tensor

Array = NDArray[np.float64]
DELTA = 1e-5
CLIP = 0.5
SITES = 5
# How many numbers an update has that is spread evenly over all of them.
SPREAD = 64
SITE = "site"
# Few are enough where each costs a call of its own.
FEW = 2000


@dataclass(frozen=True)
class Primitive:
    """One way in which something leaves.

    Args:
        mechanism: What lets it out.
        price: What it charges for that.
        attack: What an adversary sees of so many canaries; called with the mechanism, which may be a broken
            one, so that its price is not what is believed.
        most: How many canaries are enough.
        delta: At which delta the price is stated.
    """

    mechanism: Any
    price: tuple[Release, ...]
    attack: Callable[[Any, int, Key], Evidence]
    most: int = 5000
    delta: float = DELTA

    def audit(self, *, mechanism: Any = None, confidence: float = 0.95, seed: int = 0) -> Bounds:  # noqa: ANN401
        """Attack the mechanism, or another one that claims the same price."""
        key = Key(seed, rehearsal=True)
        evidence = self.attack(mechanism or self.mechanism, self.most, key)
        return bounds(evidence, self.price, self.delta, confidence=confidence)


def audit_mechanisms(*, confidence: float = 0.95, seed: int = 0, tell: Tell = nobody) -> dict[str, Bounds]:
    """Attack every primitive.

    Args:
        confidence: With which probability all bounds together are to hold.
        seed: What repeats.
        tell: Told how far it is.
    """
    found: dict[str, Bounds] = {}
    for number, (name, make) in enumerate(PRIMITIVES.items()):
        tell("attacking every mechanism", number / len(PRIMITIVES))
        # The doubt is shared: many tests, one verdict.
        each = 1 - (1 - confidence) / len(PRIMITIVES)
        found[name] = make().audit(confidence=each, seed=seed)
    return found


def _planted(
    mechanism: Mechanism, play: Callable[[Any, Key], object], *, most: int = 5000, delta: float = DELTA
) -> Primitive:
    """A mechanism that takes canaries, and how it is used; with no records of anybody."""

    def attack(attacked: Mechanism, count: int, key: Key) -> Evidence:
        canaries = Canaries(count, [SITE], key / "coins")
        play(canaried(attacked, canaries, aggregation=Mean(), sites=SITES), key)
        return canaries.evidence()

    return Primitive(mechanism, mechanism.release(1, [SITE]), attack, most=most, delta=delta)


def _records(multiplier: float, **fields: Any) -> Primitive:
    """Training steps on records, or risk groups: each step draws, clips, adds up and adds noise."""
    usual: dict[str, Any] = {"law": "gaussian", "steps": 1, "rate": 1.0}
    mechanism = ProtectedRecords(clip=CLIP, multiplier=multiplier, rehearsal=True, **{**usual, **fields})

    def play(planted: ProtectedRecords, key: Key) -> None:
        import torch

        nobody = Rows(torch.zeros(1, 0, 1, dtype=torch.float64))
        for step in range(planted.steps):
            planted.noisy_sums(nobody, [key / SITE / "noise"], step)

    return _planted(mechanism, play, delta=0.0 if mechanism.law == "laplace" else DELTA)


def _updates(multiplier: float, **fields: Any) -> Primitive:
    """Whole updates, with noise at the site or at the server."""
    usual: dict[str, Any] = {"law": "gaussian", "reach": CLIP}
    mechanism = ProtectedSites(clip=CLIP, multiplier=multiplier, rehearsal=True, **{**usual, **fields})

    def play(planted: ProtectedSites, key: Key) -> None:
        planted.at_server(planted.at_site(_zeros(1), key / SITE / "update"), key / "server")

    return _planted(mechanism, play, delta=0.0 if mechanism.law == "laplace" else DELTA)


def _zeros(count: int) -> "Tensor":
    import torch

    return torch.zeros(count, dtype=torch.float64)


def _spread() -> Primitive:
    """An update spread evenly over many numbers: long in one norm, and short in the other."""
    primitive = _updates(2 / 3, law="laplace", where="site")

    def attack(attacked: ProtectedSites, count: int, key: Key) -> Evidence:
        import torch

        present = (key / "coins").generator().random(count) < 0.5
        rows = np.where(present, LONG, -LONG)[:, None] * np.full((1, SPREAD), CLIP)
        answers = attacked.at_site(torch.from_numpy(rows), key / SITE / "update").numpy()
        # Each number moves by its share of the bound.
        own = Release(law="laplace", scale=primitive.price[0].scale, sensitivity=2 * CLIP / SPREAD,
                      bound=CLIP / SPREAD, relation="replace")  # fmt: skip
        return Evidence(ratios(own, answers).sum(axis=1), present)

    return Primitive(primitive.mechanism, primitive.price, attack, delta=0.0)


def _sum_in_secret() -> Primitive:
    mechanism = BlindSites(clip=CLIP, multiplier=1.0, colluders=1, sites=SITES, rehearsal=True)
    return _planted(
        mechanism, lambda planted, key: planted.at_site(_zeros(1), key / SITE / "update"), most=FEW
    )


COLUMNS: Mapping[str, float] = {"x": 1.0, "y": 2.0}


def _curves(direction: int) -> Primitive:
    """Curves as their coordinates, each person's by itself, along one of the coordinates."""
    mechanism = ColumnsApart(
        multiplier=1.0, radii=COLUMNS, holders=dict.fromkeys(COLUMNS, SITE), widths=dict.fromkeys(COLUMNS, 4),
        rehearsal=True,
    )  # fmt: skip

    def attack(attacked: ColumnsApart, count: int, key: Key) -> Evidence:
        present = (key / "coins").generator().random(count) < 0.5
        scores = np.zeros(count)
        for price, (column, radius) in zip(mechanism.release(1, [SITE]), COLUMNS.items(), strict=True):
            rows = np.zeros((count, 4))
            rows[:, direction] = LONG * radius * np.where(present, 1, -1)
            scores += ratios(price, attacked.noisy_rows(rows, column, key / SITE / column)[:, direction])
        return Evidence(scores, present)

    return Primitive(mechanism, mechanism.release(1, [SITE]), attack)


def _products() -> Primitive:
    mechanism = ColumnsTogether(
        multiplier=1.0, radii=COLUMNS, holders=dict.fromkeys(COLUMNS, SITE), rehearsal=True
    )
    return _planted(mechanism, lambda planted, key: planted.at_server(_zeros(6), key / "server"), most=FEW)


def _products_in_secret() -> Primitive:
    mechanism = ColumnsBlind(
        multiplier=0.5, radii=dict.fromkeys("xyz", 1.0), widths=((1,), (1,), (1,)), records=1, rehearsal=True
    )
    return _planted(
        mechanism, lambda planted, key: planted.at_site(_zeros(1), key / SITE / "update"), most=FEW
    )


def _histogram() -> Primitive:
    mechanism = Counted(multiplier=1.0, holders={"x": SITE}, purpose="lengths", rehearsal=True)

    def play(planted: Counted, key: Key) -> None:
        planted.noisy_sum(_zeros(2)[None], key / SITE / "x")

    return _planted(mechanism, play, most=FEW)


def _bound_that_follows() -> Primitive:
    mechanism = AdaptiveBound(rehearsal=True, expected=1000, noise=0.5)

    def attack(attacked: AdaptiveBound, count: int, key: Key) -> Evidence:
        import torch

        present = (key / "coins").generator().random(count) < 0.5
        lengths = {True: torch.full((1,), 9.0), False: torch.zeros(0)}
        # The noisy count of long contributions is what the move of the bound shows.
        counts = [
            attacked.expected
            / attacked.speed
            * math.log(attacked.next(1.0, lengths[bool(there)], key / number))
            for number, there in enumerate(present)
        ]
        return Evidence(ratios(mechanism.release(), np.array(counts)), present)

    return Primitive(mechanism, (mechanism.release(),), attack, most=FEW)


def _choice(
    mechanism: Selection | PrivateQuantile, pair: Mapping[bool, Sequence[float]], seen: Callable[[Any], bool]
) -> Primitive:
    """One of several is chosen: an adversary waits for the outcome that tells its worst neighbours apart."""

    def attack(attacked: Selection | PrivateQuantile, count: int, key: Key) -> Evidence:
        present = (key / "coins").generator().random(count) < 0.5
        found = [
            seen(attacked.choose(pair[bool(there)], key / number)) for number, there in enumerate(present)
        ]
        return Evidence(np.where(found, 1.0, -1.0), present)

    return Primitive(mechanism, (mechanism.release(),), attack, delta=0.0)


def _exponential() -> Primitive:
    # One record moves one score up and all the others down.
    pair = {True: [1.0] + [-1.0] * 19, False: [0.0] * 20}
    return _choice(Selection(rehearsal=True, epsilon=2.0, rule="exponential"), pair, lambda place: place == 0)


def _permute_and_flip() -> Primitive:
    pair = {True: [0.0, 0.0], False: [-1.0, 1.0]}
    rule = Selection(rehearsal=True, epsilon=2.0, rule="permute-and-flip")
    return _choice(rule, pair, lambda place: place == 0)


def _quantile() -> Primitive:
    # The largest of two numbers becomes the smallest: a short gap gains a rank, and the long one loses it.
    pair = {True: [0.0, 0.05], False: [0.05, 1.0]}
    rule = PrivateQuantile(rehearsal=True, quantile=0.5, low=0.0, high=1.0, epsilon=2.0)
    return _choice(rule, pair, lambda place: place < 0.05)


PRIMITIVES: Mapping[str, Callable[[], Primitive]] = {
    "a training step": lambda: _records(1.0),
    "training steps, records drawn": lambda: _records(0.7, rate=0.5, steps=8),
    "training steps, Laplace": lambda: _records(0.5, law="laplace"),
    "risk groups": lambda: _records(2.0, grouped=True),
    "risk groups, drawn": lambda: _records(1.0, grouped=True, sampled="group", rate=0.5, steps=4),
    "update of a site": lambda: _updates(2.0, where="site"),
    "update of a site, Laplace": lambda: _updates(1.0, where="site", law="laplace"),
    "update of a site, Laplace, spread": _spread,
    "mean of updates": lambda: _updates(1.0, where="server", reach=CLIP / SITES),
    "mean of updates, Laplace": lambda: _updates(0.5, where="server", reach=CLIP / SITES, law="laplace"),
    "mean of updates, sites drawn": lambda: _updates(0.5, where="server", reach=CLIP / SITES / 0.5, rate=0.5),
    "sum in secret": _sum_in_secret,
    **{f"curves, direction {number + 1}": lambda number=number: _curves(number) for number in range(4)},
    "products of curves": _products,
    "products in secret": _products_in_secret,
    "histogram": _histogram,
    "bound that follows": _bound_that_follows,
    "choice, exponential": _exponential,
    "choice, permute and flip": _permute_and_flip,
    "quantile": _quantile,
}
