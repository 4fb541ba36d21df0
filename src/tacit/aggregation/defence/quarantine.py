"""Quarantine of suspicious sites, judged by their updates over many rounds.

Every round each site is compared with all others: is its update longer, does it point elsewhere, is it far
from the rest? One anomaly says little, so anomalies add up (CUSUM) and wear off. A site that is left out is
still judged, against those that take part alone and more strictly: as training settles, updates become short
and noisy, and a lie stands out less in a single round. It comes back on trial once its suspicion is low.

It sees the updates that the server sees, noise included, and nothing else. An attacker within the spread of
honest sites is not found, here or anywhere: the aggregation rule has to tolerate that.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from tacit.aggregation.base import Array, rows_of
from tacit.aggregation.geometry import geometric_median, gram_of, squared_distances
from tacit.errors import require, require_count, require_positive, require_word
from tacit.learning.query import Updates
from tacit.learning.record import Decision, Standing, Status

# With fewer sites there is no majority to compare with.
FEWEST = 4
# Anomalies of an update, with the smallest spread that counts: of the logarithm of its length, of its cosine
# with the center, of the logarithm of its distance from its neighbors. Nearly equal sites would otherwise
# show anomalies by rounding.
SIGNS = (
    ("is longer than the others", 0.1),
    ("points away from the others", 0.05),
    ("is far from all others", 0.15),
)
# The median absolute deviation of normal numbers, in standard deviations, turned round.
NORMAL = 1.4826
# Noise in each number, and length of the noise, both in parts of the clip, from which on an update that
# points the wrong way is found late or never. Measured with 8 and 20 sites and updates as long as the clip
# (`bench/quarantine.py`): with 20 numbers or more all attackers are found at 0.2 and 2, within 16 rounds; at
# 0.3 between none and all are, at 0.5 next to none, at a length of 5 and more none within 50.
DROWNED, BURIED = 0.25, 2.5
# A part of a typical update's length below which an update counts as 0.
SHORTEST = 1e-6


@dataclass(frozen=True, kw_only=True)
class Quarantine:
    """Quarantine: suspicion of every site, updated round by round.

    A round adds the excess over `drift` in the largest of three anomaly scores, in robust deviations, at most
    `drift` itself: no site is left out before `threshold / drift` rounds. Suspicion stops at `threshold`. Of
    a site that is left out, suspicion wears off by half of `drift` in a round: one that is honest from then
    on, with scores below a quarter of `drift`, is back on trial after at most `4 (threshold - readmit) /
    drift` rounds.

    Args:
        mode: `observe` reports which sites would be left out and leaves out none; `exclude` leaves them out.
        f: Largest number of sites that are left out at once; by default the number that the aggregation
            tolerates.
        drift: Number of deviations that count as usual; this much suspicion wears off in each round.
        threshold: Suspicion at which a site is left out; from half of it on the site is watched.
        readmit: Suspicion below which a site comes back.
        trial: Number of rounds for which a site that is back counts half.
    """

    mode: Literal["observe", "exclude"] = "observe"
    f: int | None = None
    drift: float = 3.0
    threshold: float = 10.0
    readmit: float = 2.0
    trial: int = 5
    kind: ClassVar[str] = "quarantine"

    def __post_init__(self) -> None:
        require_word("mode", self.mode, ("observe", "exclude"))
        if self.f is not None:
            require_count("f", self.f)
        require_positive("drift", self.drift)
        require_positive("threshold", self.threshold)
        require_positive("readmit", self.readmit)
        allowed = f"at most half of threshold = {self.threshold}"
        require(2 * self.readmit <= self.threshold, "readmit", self.readmit, allowed)
        require_count("trial", self.trial)

    def judge(
        self, updates: Updates, past: Mapping[str, Standing], most: int
    ) -> tuple[dict[str, Standing], tuple[Decision, ...]]:
        """Return the standing of each site after a round, and the changes of standing.

        It depends on the arguments alone: a run that is resumed judges the same.

        Args:
            updates: Updates of the sites, as the server sees them; screened.
            past: Standings before; absent sites keep theirs.
            most: The most sites that may be left out of this round, so that the others can be combined. If it
                is the same in all rounds, no more are left out at any time.

        Raises:
            InvalidValue: An update holds NaN or infinity; the message names the site.
        """
        if too_few_warning(len(updates.names)) is not None:
            return dict(past), ()
        out = {name for name, standing in past.items() if standing.status == "quarantined"}
        names, scores = anomaly_scores(updates, most, out)
        found = {
            name: self._next_standing(past.get(name, Standing()), float(score))
            for name, score in zip(names, scores.max(axis=0), strict=True)
        }
        found = {**past, **found}
        strange = dict(zip(names, scores.T.tolist(), strict=True))
        for name in self._limit_exclusions(
            found, past, strange, most if self.f is None else min(self.f, most)
        ):
            found[name] = replace(found[name], status="watch")
        was: dict[str, Status] = {name: past.get(name, Standing()).status for name in names}
        return found, tuple(
            Decision(
                site=name,
                was=was[name],
                now=found[name].status,
                reason=self._reason(found[name], was[name], strange[name]),
            )
            for name in names
            if found[name].status != was[name]
        )

    def admit(self, updates: Updates, standings: Mapping[str, Standing]) -> Updates:
        """Return the updates to combine: without excluded sites, and at half length for sites on trial.

        There may be none left where few sites take part in a round. Under `observe` all are admitted.
        """
        status = [standings.get(name, Standing()).status for name in updates.names]
        if self.mode == "observe" or not {"quarantined", "probation"} & set(status):
            return updates
        kept = [place for place, word in enumerate(status) if word != "quarantined"]
        halves = [0.5 if status[place] == "probation" else 1.0 for place in kept]
        matrix = updates.matrix[kept]
        names = tuple(updates.names[place] for place in kept)
        return Updates(names, matrix * np.array(halves)[:, None], updates.round)

    def _next_standing(self, was: Standing, score: float) -> Standing:
        """Return the standing after one more round, without the limit on exclusions."""
        # A lie that hardly stands out is told from honest work by standing out round after round.
        usual = self.drift / 2 if was.status == "quarantined" else self.drift
        step = min(score, 2 * self.drift) - usual
        suspicion = min(max(was.suspicion + step, 0.0), self.threshold)
        status, left = self._verdict(was, suspicion)
        return Standing(status=status, suspicion=suspicion, seen=was.seen + 1, left=left)

    def _verdict(self, was: Standing, suspicion: float) -> tuple[Status, int]:
        if was.status == "quarantined":
            return ("probation", self.trial) if suspicion < self.readmit else ("quarantined", 0)
        if suspicion >= self.threshold:
            return "quarantined", 0
        if was.status == "probation" and was.left > 1:
            return "probation", was.left - 1
        # A watched site stays so until little suspicion is left: a verdict that flickers is of no use.
        watched = self.readmit if was.status == "watch" else self.threshold / 2
        return ("watch" if suspicion >= watched else "active"), 0

    def _limit_exclusions(
        self,
        found: Mapping[str, Standing],
        past: Mapping[str, Standing],
        strange: Mapping[str, Sequence[float]],
        most: int,
    ) -> list[str]:
        """Return the exclusions beyond the limit; at equal suspicion, sites excluded before stay so."""

        def before(name: str) -> bool:
            return past.get(name, Standing()).status == "quarantined"

        def worst_first(name: str) -> tuple[float, bool, float, str]:
            return -found[name].suspicion, not before(name), -max(strange[name]), name

        everybody = [name for name, standing in found.items() if standing.status == "quarantined"]
        suspects = sorted((name for name in everybody if name in strange), key=worst_first)
        # Absent sites take up places too, but do not give places back to present ones.
        free = most - (len(everybody) - len(suspects))
        return suspects[max(free, min(sum(map(before, suspects)), most), 0) :]

    def _reason(self, now: Standing, was: Status, strange: Sequence[float]) -> str:
        """Return the reason for a change of standing, in numbers that do not depend on the round."""
        suspicion = f"suspicion {now.suspicion:.1f} of {self.threshold:g}"
        if now.status == "probation":
            return f"{suspicion}, below {self.readmit:g}: on trial again for {self.trial} rounds"
        if now.status == "active":
            over = "its trial is over" if was == "probation" else "it is like the others again"
            return f"{suspicion}: {over}"
        if was == "quarantined":
            return f"{suspicion}: other sites are more suspicious, and no more may be excluded at once"
        worst = max(range(len(SIGNS)), key=lambda sign: strange[sign])
        sign = f"its update {SIGNS[worst][0]} by {strange[worst]:.1f} deviations"
        ends = {"observe": "it would be excluded, but quarantine only observes", "exclude": "it is excluded"}
        return f"{sign}; {suspicion}: {ends[self.mode] if now.status == 'quarantined' else 'it is watched'}"


def too_few_warning(sites: int) -> str | None:
    """Return a warning if there are too few sites to judge any."""
    if sites >= FEWEST:
        return None
    return f"{sites} sites are too few to identify dishonest ones: quarantine needs at least {FEWEST}"


def noise_warning(noise: float, clip: float, width: int) -> str | None:
    """Return a warning if noise hides attackers from the quarantine.

    Args:
        noise: The standard deviation of the noise that a site adds to each number of its update.
        clip: The length to which updates are clipped before.
        width: Number of coordinates of an update.
    """
    across = noise * math.sqrt(width)
    if noise <= DROWNED * clip and across <= BURIED * clip:
        return None
    return (
        f"noise hides dishonest updates: it is about {across / clip:.2g} times as long as an update may be, "
        "so quarantine detects a shorter false update late or never; choose an aggregation that tolerates it"
    )


def anomaly_scores(updates: Updates, most: int, out: Collection[str] = ()) -> tuple[tuple[str, ...], Array]:
    """Return the names of the sites in order, and their anomaly scores by each sign (signs, sites).

    Strange is what exceeds the median of all sites, in robust deviations. Sites in `out` are compared with
    the others alone, who are each compared with the rest of them.
    """
    rows, order = rows_of(updates)
    names = tuple(updates.names[int(place)] for place in order)
    gram = gram_of(rows, order, updates, centre="zero")
    lengths = np.sqrt(gram.diagonal())
    typical = float(np.median(lengths)) or float(lengths.max()) or 1.0
    signs = (
        _logarithms(lengths / typical),
        -_cosines(gram),
        _logarithms(_neighbour_distances(gram, most) / typical),
    )
    found = np.stack([_deviations(values, floor) for values, (_, floor) in zip(signs, SIGNS, strict=True)])
    kept = np.array([name not in out for name in names])
    if kept.all() or int(kept.sum()) < FEWEST:
        return names, found
    return names, np.where(kept, found, _scores_against(gram, kept, typical))


def _scores_against(gram: Array, kept: NDArray[np.bool_], typical: float) -> Array:
    """Score the anomaly of all sites (signs, sites) against the `kept` ones, without themselves."""
    signs = (
        _logarithms(np.sqrt(gram.diagonal()) / typical),
        -_cosines_with_others(gram, kept),
        _logarithms(_distances_from(gram, kept) / typical),
    )
    return np.stack(
        [_deviations(values, floor, kept) for values, (_, floor) in zip(signs, SIGNS, strict=True)]
    )


def _cosines_with_others(gram: Array, kept: NDArray[np.bool_]) -> Array:
    """Return the cosine of each row with the geometric median of the kept ones, its own part taken out."""
    weights = np.zeros(len(gram))
    weights[kept] = geometric_median(gram[np.ix_(kept, kept)])
    own, inner = weights * gram.diagonal(), gram @ weights
    squares = float(weights @ inner) - 2 * weights * inner + weights * own
    lengths = np.sqrt(gram.diagonal() * np.maximum(squares, 0.0))
    return np.divide(inner - own, lengths, out=np.ones(len(gram)), where=lengths > 0)


def _distances_from(gram: Array, kept: NDArray[np.bool_]) -> Array:
    """Return the mean distance of each row from its nearest neighbors among the kept ones."""
    distances = np.sqrt(squared_distances(gram))[:, kept]
    # A row is no neighbor of itself.
    distances[np.flatnonzero(kept), np.arange(int(kept.sum()))] = np.inf
    return np.sort(distances, axis=1)[:, : int(kept.sum()) - 2].mean(axis=1)


def _logarithms(values: Array) -> Array:
    return np.log(np.maximum(values, SHORTEST))


def _cosines(gram: Array) -> Array:
    """Return the cosine of each row with the geometric median of all; 1 for a row of zeros."""
    weights = geometric_median(gram)
    lengths = np.sqrt(gram.diagonal()) * math.sqrt(max(float(weights @ gram @ weights), 0.0))
    return np.divide(gram @ weights, lengths, out=np.ones(len(gram)), where=lengths > 0)


def _neighbour_distances(gram: Array, most: int) -> Array:
    """Return each row's mean distance from its nearest neighbors, of the surely honest number (Krum)."""
    distances = np.sqrt(squared_distances(gram))
    nearest = max(len(gram) - max(most, 0) - 2, 1)
    # The nearest of all is the row itself.
    return np.sort(distances, axis=1)[:, 1 : nearest + 1].mean(axis=1)


def _deviations(values: Array, floor: float, among: NDArray[np.bool_] | slice = slice(None)) -> Array:
    """Return how far each value is above the median of some, in robust deviations of at least `floor`."""
    above = values - np.median(values[among])
    return above / max(NORMAL * float(np.median(np.abs(above[among]))), floor)
