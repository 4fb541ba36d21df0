"""Audit in a report: was the promise kept? Results of the attacks, from plain data."""

from collections.abc import Iterator, Mapping
from typing import Any, Literal

import msgspec

from tacit.errors import RunUnusable
from tacit.reports.page.blocks import Block, Figure, Folded, Grid, Page, Section, Text

HEADING = "Was the promise kept?"
METHODS = {"fitted": "family fit", "one_run": "one run", "steinke": "Steinke"}
REHEARSED = "A rehearsal gives no protection; this verdict is about the same run with secret noise."


class BoundsRecord(msgspec.Struct, kw_only=True):
    """Bounds as `audit.json` has them."""

    claim: float
    delta: float
    confidence: float
    canaries: int
    fitted: float
    one_run: float
    steinke: float
    noise: float | None
    name: str = ""
    charged: int = 0
    heard: int = 0
    fresh: bool = True


class EarlierAudit(msgspec.Struct, kw_only=True):
    """Summary of an audit that was replaced by another."""

    seed: int
    kept: bool | None
    words: str


class Document(msgspec.Struct, kw_only=True):
    """Schema of `audit.json`."""

    kind: Literal["audit"]
    name: str
    confidence: float
    seed: int
    rehearsal: bool
    mechanisms: list[BoundsRecord]
    run: BoundsRecord | None
    membership: dict[str, Any] | None
    inversion: dict[str, Any] | None
    notes: list[str]
    earlier: list[EarlierAudit] = []


def read(found: Mapping[str, Any] | None, path: object) -> dict[str, Any] | None:
    """Read an audit from a file, and recompute its verdicts from its numbers.

    Raises:
        RunUnusable: It is damaged.
    """
    if found is None:
        return None
    try:
        known = msgspec.convert(found, Document)
    except msgspec.ValidationError as error:
        raise RunUnusable(
            f"the audit in {path} cannot be read: {error}; delete audit.json, and audit again"
        ) from error
    run = None if known.run is None else {**found["run"], "kept": _holds(known.run)}
    each = [
        {**row, "kept": _holds(told)} for row, told in zip(found["mechanisms"], known.mechanisms, strict=True)
    ]
    return {**found, "run": run, "mechanisms": each}


def _holds(told: BoundsRecord) -> bool:
    most = max(told.fitted, told.one_run, told.steinke)
    return most <= told.claim and told.heard >= told.charged and told.fresh


def is_upheld(found: Mapping[str, Any]) -> bool | None:
    """Return True if no attack broke the promise; None if the run itself was not attacked."""
    if verdict(found)[0] == "stop":
        return False
    return None if found["run"] is None else True


def verdict(found: Mapping[str, Any]) -> tuple[Literal["stop", "mind", "good"], str]:
    """Return the tone and the sentence of an audit's verdict."""
    tone, words = _verdict(found)
    before = next((past for past in found.get("earlier", ()) if past["kept"] is False), None)
    if tone != "stop" and before is not None:
        return "stop", f"An audit with seed {before['seed']} found it broken. {before['words']}"
    if found["rehearsal"]:
        return tone if tone == "stop" else "mind", f"{REHEARSED} {words}"
    return tone, words


def _verdict(found: Mapping[str, Any]) -> tuple[Literal["stop", "mind", "good"], str]:
    """Return the verdict of this audit alone, ignoring that it may be a rehearsal."""
    run, sure = found["run"], f"with {100 * found['confidence']:.4g} % confidence"
    if run is not None and not run["kept"]:
        return "stop", f"No: {_why(run, sure)}. Do not rely on this promise."
    broken = [each["name"] for each in found["mechanisms"] if not each["kept"]]
    if broken:
        return "stop", f"No: attacks proved a larger epsilon than claimed, {sure}, for: {'; '.join(broken)}."
    attacked = f"{len(found['mechanisms'])} mechanisms" if found["mechanisms"] else ""
    if run is None:
        but = f"; no attack on {attacked} proved a larger epsilon than claimed, {sure}" if attacked else ""
        return "mind", f"Not known: the run itself was not attacked{but}."
    also = f", nor any on {attacked}" if attacked else ""
    return "good", (
        f"As far as attacks can show: epsilon is at least {largest_bound(run):.3g}, and the claim is "
        f"{run['claim']:.3g}. No attack on the run proved more than the claim{also}, {sure}."
    )


def _why(run: Mapping[str, Any], sure: str) -> str:
    """Explain in words why a run failed its audit."""
    if run["heard"] < run["charged"]:
        return (
            f"canaries were in {run['heard']:,} answers, and {run['charged']:,} were charged: some data "
            "leave "
            "by a path that is not protected"
        )
    if not run["fresh"]:
        return "the same noise was used more than once, so an attacker can subtract it"
    return f"epsilon is at least {largest_bound(run):.3g}, {sure}, and the claim is {run['claim']:.3g}"


def largest_bound(bounds: Mapping[str, Any]) -> float:
    """The largest of the bounds."""
    return max(bounds[name] for name in METHODS)


def sentences(found: Mapping[str, Any]) -> Iterator[str]:
    """Yield the results of attacks on models in words."""
    for part in ("membership", "inversion"):
        if found[part] is not None:
            yield found[part]["sentence"]


def blocks(found: Mapping[str, Any]) -> Iterator[Block]:
    """The section of a report."""
    tone, words = verdict(found)
    yield Text(words, tone)
    yield Text(
        "An audit gives a lower bound on epsilon; the proof gives an upper bound. An audit can show that a "
        "promise is broken, and never that it is kept. The confidence is for all its bounds together."
    )
    if found["run"] is not None:
        yield from _run(found["run"])
    if found["mechanisms"]:
        yield from _mechanisms(found)
    if found["membership"] is not None:
        yield from _membership(found["membership"])
    if found["inversion"] is not None:
        from tacit.reports.plots.audits import inversion

        told = found["inversion"]
        yield Figure("inversion", inversion(told), told["sentence"])
    for note in found["notes"]:
        yield Text(f"Not attacked: {note}.", "mind")


def _run(run: Mapping[str, Any]) -> Iterator[Block]:
    from tacit.reports.plots.audits import BOUNDS, run_bounds

    yield Text(
        f"The audit repeated the run with {run['canaries']:,} canaries: made-up units, each included with "
        "probability 1/2, that pass through the same clipping, noise and accounting as real ones. An "
        "attacker "
        "who sees the releases guesses which canaries were included; epsilon limits the rate of correct "
        "guesses."
    )
    told = "; ".join(f"at least {run[name]:.3g} by {words}" for name, words in METHODS.items())
    yield Figure(
        "bounds", run_bounds(run), f"Claimed: epsilon {run['claim']:.3g}. Proven by attacks: {told}."
    )
    yield Grid(
        "Lower bounds on epsilon",
        ("method", "epsilon at least", "assumption"),
        tuple(
            (words, f"{run[name]:.4g}", BOUNDS[name].partition(": ")[2]) for name, words in METHODS.items()
        ),
    )


def _mechanisms(found: Mapping[str, Any]) -> Iterator[Block]:
    from tacit.reports.plots.audits import mechanism_bounds

    rows = found["mechanisms"]
    broken = sum(not each["kept"] for each in rows)
    words = f"{len(rows)} mechanisms, each attacked alone: {broken or 'none'} broken."
    grid = Grid(
        "Each mechanism, attacked alone",
        ("mechanism", "claimed", *METHODS.values(), "kept"),
        tuple(
            (
                each["name"],
                f"{each['claim']:.3g}",
                *(f"{each[name]:.3g}" for name in METHODS),
                "yes" if each["kept"] else "no",
            )
            for each in rows
        ),
    )
    yield Folded(words, (Figure("mechanisms", mechanism_bounds(rows), words), grid))


def _membership(found: Mapping[str, Any]) -> Iterator[Block]:
    from tacit.reports.plots.audits import membership

    yield Figure("membership", membership(found), found["sentence"])
    yield Text(
        "These attacks compute their findings from the records themselves, without noise: no promise covers "
        "them. They are made on public records, rehearsals and open runs only."
    )


def page(found: Mapping[str, Any]) -> Page:
    """Return the report of a single audit."""
    tone, words = verdict(found)
    return Page(
        title=f"Audit of {found['name']}",
        lead=f"{HEADING} {words}",
        alerts=(Text(words, tone),) if tone == "stop" else (),
        sections=(Section(HEADING, tuple(blocks(found))),),
        document=found,
    )
