"""Privacy statement: the promise, its observers, its price and its limits, as plain data and as sentences.

A statement is made from the promise and the releases, planned or charged. It holds nothing private and is
meant to be shown to a data-protection officer.
"""

import html
import math
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import msgspec

from tacit.privacy import accounting
from tacit.privacy.accounting.release import Law, Relation, Release, Unit, View, by_subject, in_any_round
from tacit.privacy.ledger.total import AllRuns
from tacit.privacy.policy import Open, Privacy

if TYPE_CHECKING:
    from tacit.privacy.ledger.store import Ledger


FOLLOWED = ("in the same sums, the number of updates that were shorter than their clip bounds",)
NOT_PROTECTED = (
    "the names of the sites",
    "the fact that a site takes part",
    "timing and the size of messages",
    "the refusal of a run because a site's data cannot be used, and its reason",
)
PUBLIC = ("the experiment file: model, rounds, sampling rates, clip bound, noise scale",)
# Neighboring relation in words: of one unit in the data, and of two data sets.
EXCHANGED = {"add-remove": "is in the data or not", "replace": "is replaced by any other"}
NEIGHBORS = {
    "add-remove": "two data sets that differ in one {unit}, added or removed",
    "replace": "two data sets that differ in one {unit}, replaced by another",
}
NORMS: dict[Law, str] = {
    "gaussian": "L2",
    "laplace": "L1",
    "selection": "score",
    "discrete": "L2",
    "discrete-laplace": "L1",
}
CERTAIN = "practically certain"
ROUNDING = 1e-9
VIEWS: dict[View, str] = {"server": "the server", "sites": "the other sites", "public": "the public"}


@dataclass(frozen=True, kw_only=True)
class Statement:
    """The promise of a run and its price.

    Args:
        unit: Protected unit; None in an open run.
        relation: Neighboring relation of the promise.
        epsilon: The price so far, or as planned; None in an open run, infinite if nothing is proven.
        delta: The probability with which the promise may fail.
        against: Observers that the promise holds against, the one who sees most first.
        trusted: Parties that must keep to the protocol for it to hold.
        subjects: The price for each kind of subject.
        released: Releases under the promise.
        public: Public facts.
        bare: Data that left without protection.
        not_protected: Limits of the promise.
        rehearsal: Whether the noise repeats with the seed, and so gives no protection.
        but: Parts of every record among the unprotected.
        all_runs: Total cost of all runs on the same people; None without a book.
        left_out: Planned parts that the budget did not bear any more.
    """

    unit: Unit | None
    relation: Relation | None
    epsilon: float | None
    delta: float | None
    against: tuple[str, ...]
    trusted: tuple[str, ...]
    subjects: dict[str, float]
    released: tuple[str, ...]
    public: tuple[str, ...]
    bare: tuple[str, ...]
    not_protected: tuple[str, ...]
    rehearsal: bool
    but: tuple[str, ...] = ()
    all_runs: AllRuns | None = None
    left_out: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON; an infinite epsilon becomes None, and `proven` says so."""
        subjects = {name: _finite(value) for name, value in self.subjects.items()}
        proven = self.epsilon is not None and math.isfinite(self.epsilon)
        plain = {**asdict(self), "epsilon": _finite(self.epsilon), "subjects": subjects, "proven": proven}
        return {**plain, "all_runs": None if self.all_runs is None else self.all_runs.as_dict()}

    def sentences(self) -> list[str]:
        """Render the statement as sentences."""
        lists = [
            ("Released under this promise", self.released),
            ("Public", self.public),
            ("Unprotected", self.bare),
            ("Not protected", self.not_protected),
            ("Left out, because the budget did not cover it", self.left_out),
        ]
        return [*self._promise(), *(f"{title}: {'; '.join(items)}." for title, items in lists if items)]

    def price(self) -> str:
        """Return the price and its meaning in words; empty without a promise."""
        if self.unit is None or self.relation is None:
            return ""
        return price_in_words(self.epsilon, self.delta, self.unit, self.relation)

    def _repr_html_(self) -> str:
        parts = (sentence.partition(": ") for sentence in self.sentences())
        return facts("Privacy statement", [(title, words) for title, _, words in parts])

    def _promise(self) -> list[str]:
        if self.unit is None or self.relation is None:
            return ["No promise: this run is open, and what leaves the sites is not protected."]
        change, but = EXCHANGED[self.relation], "".join(f", except for {part}" for part in self.but)
        promise = [
            f"Price: {self.price()}",
            *([] if self.all_runs is None else [self.all_runs.sentence()]),
            f"Protected: any one {self.unit}{but}. Observers see almost the same whether it {change}.",
            f"Against: {', '.join(self.against)}, and anyone with whom they share what they see.",
        ]
        if self.trusted:
            promise.append(f"Trusted: {'; '.join(self.trusted)}.")
        promise.append(f"Terms: {terms_in_words(self.unit, self.relation)}.")
        if self.rehearsal:
            promise.insert(0, "REHEARSAL: the noise repeats with the seed, so it gives no protection.")
        return promise


def from_dict(fields: dict[str, Any]) -> Statement:
    """Read a statement back from plain data; an epsilon that is not proven is infinite again."""
    known = {name: value for name, value in fields.items() if name != "proven"}
    promised = fields["unit"] is not None
    epsilon = math.inf if promised and known["epsilon"] is None else known["epsilon"]
    subjects = {name: math.inf if value is None else value for name, value in known["subjects"].items()}
    total = known.get("all_runs")
    if total is not None:
        total = {**total, "epsilon": math.inf if total["epsilon"] is None else total["epsilon"]}
    changed = {"epsilon": epsilon, "subjects": subjects, "all_runs": total}
    return msgspec.convert({**known, **changed}, type=Statement)


def state(
    privacy: Privacy | Open,
    releases: Iterable[Release],
    *,
    public: Sequence[str] = (),
    bare: Sequence[str] = (),
    but: Sequence[str] = (),
    left_out: Sequence[str] = (),
    prices: Mapping[str, float] | None = None,
) -> Statement:
    """The statement of a promise and the releases made, or planned, under it.

    Args:
        privacy: The promise.
        releases: Past or planned charges of the ledger.
        public: Other public facts of this run.
        bare: Other data that left without protection.
        but: Parts of every record that the promise does not cover.
        left_out: Planned parts that the budget did not bear any more.
        prices: The epsilon of each subject, as the ledger has it; of one plan if not given.
    """
    if isinstance(privacy, Open):
        return _open(public, bare)
    rows = list(releases)
    groups = by_subject(rows)
    subjects = dict(prices or {})
    if prices is None:
        subjects = {name: accounting.epsilon(group, privacy.delta) for name, group in groups.items()}
    replaced = any(row.relation == "replace" for group in groups.values() for row in group)
    trusting = privacy.noise == "server"
    return Statement(
        unit=privacy.unit,
        relation="replace" if replaced else "add-remove",
        epsilon=max(subjects.values(), default=0.0),
        delta=privacy.delta,
        against=tuple(name for view, name in VIEWS.items() if not (trusting and view == "server")),
        trusted=tuple(_trusted_parties(privacy)),
        subjects=subjects,
        released=(*released_in_words(rows), *(FOLLOWED if rows and privacy.clip_quantile else ())),
        public=(*PUBLIC, *public),
        bare=tuple(bare),
        not_protected=(*but, *NOT_PROTECTED),
        but=tuple(but),
        left_out=tuple(left_out),
        rehearsal=privacy.rehearsal or any(row.rehearsal for row in rows),
    )


def subject_prices(ledger: "Ledger", privacy: Privacy | Open) -> dict[str, float] | None:
    """Return the epsilon of each subject by its ledger; None for an open run."""
    return None if isinstance(privacy, Open) else ledger.prices(privacy.delta)


def _trusted_parties(privacy: Privacy) -> Iterable[str]:
    """Yield the parties that must keep to the protocol for the promise to hold."""
    yield "each site, to follow the protocol"
    if privacy.noise == "server":
        yield "the server, which sees updates without noise"
    if privacy.noise == "secure":
        some = f"{privacy.colluders}"
        yield f"all sites but {some}, not to collude with the server, which sees only sums"


def released_in_words(releases: Iterable[Release], *, named: bool = True) -> list[str]:
    """Describe past or planned releases in words; equal ones at several sites once.

    Args:
        releases: Past or planned charges of a ledger.
        named: Whether the sites are known; if not, a release is described for each site.
    """
    first: dict[tuple[object, ...], Release] = {}
    counts: dict[tuple[object, ...], Counter[str]] = {}
    scales: dict[tuple[object, ...], set[float]] = {}
    for release in releases:
        # Rounds are equal up to their number, and to the scale of their noise.
        aim, subject = in_any_round(release.purpose), release.subject.partition("@")[0]
        alike = replace(release, subject=subject, count=1, party="", purpose=aim)
        key = tuple(value for name, value in vars(alike).items() if name != "scale")
        first.setdefault(key, alike)
        counts.setdefault(key, Counter())[release.subject] += release.count
        scales.setdefault(key, set()).add(release.scale)
    return [_in_words(release, counts[key], scales[key], named) for key, release in first.items()]


def _in_words(release: Release, counts: Counter[str], scales: Collection[float], named: bool) -> str:
    fewest, most = min(counts.values()), max(counts.values())
    times = f"{most:,}" if fewest == most else f"{fewest:,} to {most:,}"
    about = _subjects(list(counts), named)
    what = release.unit if release.sampled == "unit" else "group"
    draw = f", each {what} sampled with probability {release.rate:g}" if release.rate < 1 else ""
    if release.law == "selection":
        choices = f"{times} private choice{'s' * (most != 1)}"
        release = replace(release, scale=max(scales))
        return f"{choices} at epsilon {1 / release.multiplier:g}, computed from {about}{draw}"
    if release.purpose.startswith("column "):
        # Every record leaves in it, not their sum.
        clipped = f"each record clipped to length {release.sensitivity / 2:.4g}"
        law = _noise_in_words(release, scales)
        return f"the {release.purpose} of {about}, record by record ({law}, {clipped})"
    steps = " steps" if release.law == "discrete" else ""
    bound = f"{NORMS[release.law]} sensitivity {release.sensitivity:.4g}{steps}"
    sums = "noisy sum" if most == 1 else "noisy sums"
    aim = f", for the {release.purpose}," if release.purpose else ""
    return f"{times} {sums}{aim} over {about} ({_noise_in_words(release, scales)}, {bound}{draw})"


def _subjects(names: Sequence[str], named: bool = True) -> str:
    """Describe the subjects of equal releases: records or sites, of one site or of several."""
    subject, _, site = names[0].partition("@")
    if site and not named:
        return "each site" if subject == "sites" else f"the {subject} of each site"
    if len(names) == 1:
        return f"the {subject} of {site}" if site else f"all {subject}"
    return (
        f"each of {len(names)} sites"
        if subject == "sites"
        else f"the {subject} of each of {len(names)} sites"
    )


def _noise_in_words(release: Release, scales: Collection[float]) -> str:
    least, most = f"{min(scales):.4g}", f"{max(scales):.4g}"
    size = most if least == most else f"{least} to {most}"
    if release.law in ("laplace", "discrete-laplace"):
        return f"{'Laplace' if release.law == 'laplace' else 'discrete Laplace'} noise of scale {size}"
    law, steps = ("discrete Gaussian", " steps") if release.law == "discrete" else ("Gaussian", "")
    return f"{law} noise of standard deviation {size}{steps}"


def terms_in_words(unit: Unit, relation: Relation) -> str:
    """Explain the terms of a promise: neighboring data sets, sensitivity and its bounds."""
    return (
        f"neighboring data sets are {NEIGHBORS[relation].format(unit=unit)}; the sensitivity of a sum is the "
        "most that it can differ between neighboring data sets; it is limited because each contribution is "
        "bounded, by construction or by clipping (scaling it down to the clip bound)"
    )


def price_in_words(epsilon: float | None, delta: float | None, unit: Unit, relation: Relation) -> str:
    """Describe the price and its meaning for one person or one site."""
    if epsilon is None or delta is None or not math.isfinite(epsilon):
        return "not bounded; nothing can be proven."
    used = "whether a record was used" if unit == "record" else "whether a site's data were used"
    what = used if relation == "add-remove" else f"which of two given {unit}s was used"
    # The mechanism is a mixture: all but a part of probability delta keeps to epsilon alone. It does not
    # follow that a posterior exceeds the bound with probability delta at most.
    rest = f" (this guarantee may fail with probability {delta:g})" if delta else ""
    sure = share(at_most(0.5, epsilon))
    end = sure if sure == CERTAIN else f"at most {sure} sure"
    price = f"epsilon {epsilon:.4g} at delta {delta:g}"
    return f"{price}. An attacker who starts at 50:50 about {what} can become {end}{rest}."


def at_most(prior: float, epsilon: float) -> float:
    """Return the largest posterior probability of an observer with this prior, under a pure epsilon."""
    # Odds grow by e^epsilon at most; written so that a large epsilon does not overflow.
    return 0.0 if prior == 0 else prior / (prior + (1 - prior) * math.exp(-epsilon))


def share(chance: float) -> str:
    """A chance in per cent, never rounded down."""
    tenths = math.ceil(1000 * chance - ROUNDING)
    return f"{tenths / 10:.1f} %" if tenths < 1000 else CERTAIN


def _open(public: Sequence[str], bare: Sequence[str]) -> Statement:
    return Statement(
        unit=None,
        relation=None,
        epsilon=None,
        delta=None,
        against=(),
        trusted=("every participant",),
        subjects={},
        released=(),
        public=(*PUBLIC, *public),
        bare=("each site's model update in every round", *bare),
        not_protected=NOT_PROTECTED,
        rehearsal=False,
    )


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


LEFT = ' style="text-align:left;vertical-align:top"'
# Breaks that words may have, and what letters and pictures are joined by.
USUAL = "\n\t\u200c\u200d"
UNFIT = ("Cc", "Cf", "Cs", "Zl", "Zp")


def _escape(text: str) -> str:
    """Escape text for HTML; invisible and bidirectional control characters are replaced by a mark."""
    seen = (
        char if char in USUAL or unicodedata.category(char) not in UNFIT else "\N{REPLACEMENT CHARACTER}"
        for char in text
    )
    return html.escape("".join(seen), quote=True)


def facts(title: str, rows: Iterable[tuple[str, str]]) -> str:
    """Render a short table of things with their names as HTML, for the output of notebook cells.

    Words are escaped here, and nowhere else has to be.
    """
    told = "".join(
        f"<tr><th{LEFT} scope=row>{_escape(name)}</th><td{LEFT}>{_escape(text)}</td></tr>"
        for name, text in rows
    )
    return f"<div><p><strong>{_escape(title)}</strong></p><table><tbody>{told}</tbody></table></div>"
