"""One release: an answer that left a site, as the ledger records it.

A release holds its noise and how far one person or one site could have moved it. Those two numbers stay
together with the relation under which they hold: a noise multiplier alone would allow composing numbers that
mean different things. A release knows no data and can be published.

Pricing events: the attributes that decide the price of a release; equal events are counted together.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, NamedTuple, get_args

import msgspec

from tacit.errors import is_between, require, require_count, require_positive, require_rate, require_word
from tacit.runtime.contracts import fields_of

Law = Literal["gaussian", "laplace", "selection", "discrete", "discrete-laplace"]
Relation = Literal["add-remove", "replace"]
View = Literal["server", "sites", "public"]
Sampled = Literal["unit", "group"]

# Discrete Gaussian noise of fewer or more steps has no price.
FEWEST_STEPS, MOST_STEPS = 16.0, 2.0**60
# Fewest steps in a bound for noise that was calibrated without knowing the lattice.
COARSEST = 2.0**16
# The variance, in steps, of the rounding that makes a Gaussian discrete.
ROUNDED = 16.0

# The unit whose presence is protected.
Unit = Literal["record", "site"]


@dataclass(frozen=True, kw_only=True)
class Release:
    """A noisy answer about private data, or `count` equal ones.

    Args:
        law: Noise distribution: `gaussian` (L2), `laplace` (L1), `selection` of one candidate (pure),
            `discrete`: Gaussian on the integers (L2), for secure sums; or `discrete-laplace` on the integers
            (L1), for counts.
        scale: Standard deviation (gaussian), or the b of Laplace, also on the integers; for a selection
            sensitivity / epsilon. That of discrete noise is what all the shares counted on add up to; like
            its sensitivity, in steps of the lattice, which are whole counts with `discrete-laplace`.
        sensitivity: Largest distance by which one unit can move the answer under `relation`, in the norm of
            the law.
        relation: Neighboring relation: one unit more or less, or one unit exchanged for another.
        rate: Probability of the secret, independent draw that decided who took part; 1 means no such draw.
            Each release has a draw of its own: two answers about the same drawn batch are one release.
        sampled: Unit of the draw: the unit itself, or a fixed group that the unit belongs to.
        bound: The longest contribution of one unit, or group, where a draw decides about an exchange: such a
            release is priced for contributions around zero, which is what the undrawn contribute.
        count: Number of equal releases.
        unit: Protected unit.
        subject: Subject that bears the cost: `sites`, `records` (at every party), or `records@oslo`.
        view: Observer of the release. What the public sees, sites see; what sites see, the server sees.
        party: Party that released it.
        purpose: Purpose in words: `round 3`, `clip radius`.
        rehearsal: Whether the noise can be recomputed from a seed, so that it gives no protection.
    """

    law: Law = "gaussian"
    scale: float
    sensitivity: float
    relation: Relation = "add-remove"
    rate: float = 1.0
    sampled: Sampled = "unit"
    bound: float | None = None
    count: int = 1
    unit: Unit = "record"
    subject: str = "records"
    view: View = "server"
    party: str = ""
    purpose: str = ""
    rehearsal: bool = False

    def __post_init__(self) -> None:
        for name, word in fields_of(self, WORDS).items():
            require_word(name, word, WORDS[name])
        require_positive("scale", self.scale)
        require_positive("sensitivity", self.sensitivity)
        require_positive("scale / sensitivity", self.multiplier)
        require_rate("rate", self.rate)
        require_count("count", self.count)
        require_subject(self.subject, self.unit)
        centred = self.bound is not None and 0 < 2 * self.bound <= self.sensitivity * (1 + 1e-12)
        if self.law == "discrete":
            require(self.rate == 1, "rate", self.rate, "1 with discrete noise: sampling is not priced")
            known = FEWEST_STEPS <= self.scale <= MOST_STEPS
            require(known, "scale", self.scale, f"from {FEWEST_STEPS:g} to 2^60 steps of a lattice")
        if self.law == "discrete-laplace":
            require(self.rate == 1, "rate", self.rate, "1 with discrete noise: sampling is not priced")
            whole = self.sensitivity == round(self.sensitivity)
            require(whole, "sensitivity", self.sensitivity, "a whole number with discrete Laplace noise")
        allowed = "at most half the sensitivity, where sampling decides about a replacement"
        require(centred or not self.two_sided, "bound", self.bound, allowed)

    @property
    def multiplier(self) -> float:
        """Noise in units of the sensitivity; its inverse is the epsilon of a pure law."""
        return self.scale / self.sensitivity

    @property
    def two_sided(self) -> bool:
        """Return True if the sampled contribution is exchanged rather than present or absent.

        Only then do the two neighbors differ on both sides of what they share, each by half the sensitivity;
        without sampling the two cases cost the same.
        """
        return self.rate < 1 and (self.relation == "replace" or self.sampled == "group")

    def as_gaussian(self) -> "Release":
        """Return the Gaussian release that a discrete one is a rounding of; other laws stay unchanged.

        Guarantee:
            At least as costly. Give whole numbers a Gaussian noise of variance scale^2 - 16, and round each
            coordinate y to the whole number z with probability in proportion to exp(-(z - y)^2 / (2 * 16)):
            the outcome has the discrete Gaussian law of `scale` (Peikert 2010, theorem 3.1), up to a factor
            within 5 exp(-32 pi^2) < 2^-450 of 1 for each coordinate, because the probabilities add up to a
            constant within 2.01 exp(-32 pi^2), wherever y is (Poisson's summation formula). Rounding reads
            no data, so the discrete release costs no more than the Gaussian one.
        """
        if self.law != "discrete":
            return self
        return replace(self, law="gaussian", scale=math.sqrt(self.scale**2 - ROUNDED))

    def under_replacement(self) -> "Release":
        """Return this release, priced for replacing one unit: one leaves and another joins.

        Guarantee:
            Never cheaper than the truth. A unit may leave one drawn group and join another; the draw is then
            no longer counted on.
        """
        if self.relation == "replace":
            return self
        rate = 1.0 if self.sampled == "group" else self.rate
        # A unit present or absent moves the answer by its own length: the sensitivity is that bound.
        return replace(
            self, relation="replace", sensitivity=2 * self.sensitivity, rate=rate, bound=self.sensitivity
        )

    def as_dict(self) -> dict[str, Any]:
        """Plain data, in the order of the fields."""
        # Convert numpy's numbers to plain ones, for JSON.
        return {
            key: float(value) if isinstance(value, float) else value for key, value in asdict(self).items()
        }


WORDS: Mapping[str, tuple[str, ...]] = {
    "law": get_args(Law),
    "relation": get_args(Relation),
    "sampled": get_args(Sampled),
    "unit": get_args(Unit),
    "view": get_args(View),
}


def from_dict(fields: Mapping[str, Any]) -> Release:
    """Read a release back from plain data; wrong types, unknown words and unknown fields are refused."""
    unknown = sorted(set(fields) - set(Release.__dataclass_fields__))
    require(not unknown, "release", unknown, "without unknown fields")
    return msgspec.convert(dict(fields), type=Release)


def clipped_release(
    multiplier: float, *, clip: float = 1.0, relation: Relation = "add-remove", **fields: Any
) -> Release:
    """A release of contributions clipped to `clip`, with noise of `multiplier` times that bound.

    Sensitivity and clip are tied here: one unit more or less moves a sum by the bound, an exchange by twice
    it; and one unit more or less exchanges the contribution of a group.
    """
    require_positive("noise multiplier", multiplier)
    require_positive("clip", clip)
    sides = 2 if relation == "replace" or fields.get("sampled") == "group" else 1
    return Release(scale=multiplier * clip, sensitivity=sides * clip, bound=clip, relation=relation, **fields)


def in_any_round(purpose: str) -> str:
    """Remove the round number from a purpose; the purpose of a round itself becomes empty."""
    return re.sub(r"( of)? ?round \d+$", "", purpose)


def by_subject(releases: Iterable[Release], also: Iterable[str] = ()) -> dict[str, list[Release]]:
    """Group releases by the subject they concern, including those in `also`, under one relation.

    A release about a whole concerns its parts: what is let out about whole sites, or about `records` at every
    party, is also let out about `records@oslo`. Releases of one subject are brought to one relation
    (`one_relation`).
    """
    about: dict[str, list[Release]] = {}
    for release in releases:
        about.setdefault(release.subject, []).append(release)
    return {
        subject: one_relation(
            [release for whole in enclosing_subjects(subject) for release in about.get(whole, [])], subject
        )
        for subject in dict.fromkeys([*about, *also])
    }


def enclosing_subjects(subject: str) -> list[str]:
    """Return the subjects whose releases concern a subject: its own, and the wholes that it is a part of."""
    kind, _, place = subject.partition("@")
    return list(dict.fromkeys([subject, kind, "sites", f"sites@{place}"]))


def one_relation(releases: list[Release], subject: str) -> list[Release]:
    """Bring releases about one subject to one relation: as they are, or all to replacement.

    Guarantee:
        Bounds a change of one unit of the subject. A record that joins a site turns the clipped update of
        that site into another one, up to twice the clip bound away: where the subject is records, releases
        about whole sites are priced for exchanging the site, even if no other release concerns them.
    """
    mixed = mixes_relations({(release.relation, release.unit) for release in releases}, subject)
    return [release.under_replacement() for release in releases] if mixed else releases


def mixes_relations(relations: AbstractSet[tuple[str, str]], subject: str) -> bool:
    """Return True if releases under these relations and units bound a subject by replacement alone."""
    about_sites = subject.partition("@")[0] == "sites"
    return len(relations) > 1 or (not about_sites and any(unit == "site" for _, unit in relations))


def require_subject(subject: object, unit: Unit) -> None:
    """Refuse an invalid subject; two spellings of one subject would count as two people."""
    text = subject if isinstance(subject, str) else ""
    kind, at, place = text.partition("@")
    clean = text == text.strip() and kind != "" and bool(at) == bool(place) and "@" not in place
    allowed = '"sites" or "sites@NAME"' if unit == "site" else 'a name such as "records@oslo"'
    require(clean and (kind == "sites") == (unit == "site"), "subject", subject, allowed)


def require_delta(delta: object, law: Law | None = None) -> None:
    """Refuse a delta that is not a probability below 1; Gaussian noise needs one above 0."""
    require(delta == 0 or is_between(delta, 0, 1), "delta", delta, "at least 0 and below 1")
    if law in ("gaussian", "discrete"):
        require(
            delta != 0, "delta", delta, 'above 0 with Gaussian noise; use mechanism "laplace" for delta 0'
        )


class Event(NamedTuple):
    """Attributes that decide the price of one release; equal events are counted, not composed one by one."""

    law: Law
    multiplier: float
    rate: float
    two_sided: bool

    @property
    def pure_only(self) -> bool:
        """Return True if the event has no bound except its pure epsilon.

        Discrete Laplace noise on a count that a record moves by 1 gives as much as its pure epsilon allows:
        the privacy loss is +-epsilon, that of randomized response.
        """
        return self.law in ("selection", "discrete-laplace") or (self.law == "laplace" and self.two_sided)

    @property
    def pure(self) -> float:
        """Return epsilon at delta 0, amplified by sampling."""
        return math.inf if self.law == "gaussian" else amplify(1 / self.multiplier, self.rate)


Counts = tuple[tuple[Event, int], ...]


def group_events(releases: Iterable[Release]) -> Counts:
    """Count the releases of each event; a price depends on nothing else."""
    counter: Counter[Event] = Counter()
    # Discrete noise is priced as the Gaussian that it is a rounding of, alone and among other releases.
    for release in (release.as_gaussian() for release in releases):
        counter[Event(release.law, release.multiplier, release.rate, release.two_sided)] += release.count
    return tuple(sorted(counter.items()))


def variance(kind: Event) -> float:
    """Roughly, the variance of the privacy loss of one release; for choosing grids, never a claim."""
    spread = 1 / kind.multiplier if kind.law == "gaussian" else kind.pure
    if kind.rate == 1 or kind.law != "gaussian":
        return spread**2
    return min(kind.rate**2 * math.expm1(min(spread**2, 700.0)), spread**2)


def max_loss(kind: Event) -> float:
    """About the largest privacy loss of one release before its tail is cut."""
    inverse = 1 / kind.multiplier
    loss = 9 * inverse + 0.5 * inverse**2 if kind.law == "gaussian" else inverse
    return amplify(loss, kind.rate)


def amplify(epsilon: float, rate: float) -> float:
    """Amplify epsilon by secret sampling with probability `rate`: log(1 + rate (e^epsilon - 1))."""
    if epsilon < 500:
        return math.log1p(rate * math.expm1(epsilon))
    return epsilon + math.log(rate + (1 - rate) * math.exp(-epsilon))


def rho(release: Release) -> float:
    """The zCDP of one release; of a sampled one, as if there had been no draw."""
    # A Gaussian of z sensitivities has 1 / (2 z^2); so has a discrete one (Canonne, Kamath and Steinke 2020),
    # and any pure release with epsilon = 1 / z.
    return 1 / (2 * release.multiplier**2)
