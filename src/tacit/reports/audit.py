"""Audit in a report: was the promise kept? Results of the attacks, from plain data."""

from collections.abc import Iterator, Mapping
from typing import Any, Literal

import msgspec

from tacit.errors import RunUnusable
from tacit.reports.page.blocks import Block, Figure, Folded, Grid, Page, Section, Text

HEADING = "Was the promise kept?"
METHODS = {"fitted": "family fit", "one_run": "one run", "steinke": "Steinke"}
REHEARSED = "A rehearsal, which protects nobody: this is about what it would promise otherwise."


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
        return "stop", f"No: attacks proved more than is claimed, {sure}, of: {'; '.join(broken)}."
    attacked = f"{len(found['mechanisms'])} mechanisms" if found["mechanisms"] else ""
    if run is None:
        but = f"; no attack on {attacked} proved more than is claimed, {sure}" if attacked else ""
        return "mind", f"Not known: the run itself was not attacked{but}."
    also = f", nor any on {attacked}" if attacked else ""
    return "good", (
        f"As far as attacks can tell: none on the run proved more than is claimed{also}, {sure}. They proved "
        f"that epsilon is at least {largest_bound(run):.3g}; claimed is {run['claim']:.3g}."
    )


def _why(run: Mapping[str, Any], sure: str) -> str:
    """Explain in words why a run failed its audit."""
    if run["heard"] < run["charged"]:
        return (
            f"canaries were in {run['heard']:,} answers where {run['charged']:,} were charged, so something "
            "leaves by another way than the one that is protected"
        )
    if not run["fresh"]:
        return "noise was used more than once, so that it can be taken away"
    return f"epsilon is at least {largest_bound(run):.3g}, {sure}, where {run['claim']:.3g} is claimed"


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
        "An audit attacks from below what is proven from above: it can show that a promise is broken, and "
        "never that it is kept. The run and the mechanisms share the doubt."
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
        f"The run was repeated with {run['canaries']:,} canaries in it: made-up units, each there or not by "
        "the toss of a coin, that go through the same clipping, noise and counting as everybody. Whoever "
        "sees what leaves can tell heads from tails only as well as epsilon allows."
    )
    told = "; ".join(f"at least {run[name]:.3g} by {words}" for name, words in METHODS.items())
    yield Figure("bounds", run_bounds(run), f"Epsilon {run['claim']:.3g} is claimed. Proven: {told}.")
    yield Grid(
        "Bounds on epsilon from below",
        ("by", "epsilon at least", "takes for granted"),
        tuple(
            (words, f"{run[name]:.4g}", BOUNDS[name].partition(": ")[2]) for name, words in METHODS.items()
        ),
    )


def _mechanisms(found: Mapping[str, Any]) -> Iterator[Block]:
    from tacit.reports.plots.audits import mechanism_bounds

    rows = found["mechanisms"]
    broken = sum(not each["kept"] for each in rows)
    words = f"{len(rows)} mechanisms, each attacked by itself: {broken or 'none'} broken."
    grid = Grid(
        "Every mechanism, attacked by itself",
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
        "What these attacks found was computed from the records themselves, without noise: no promise covers "
        "it. Only public records, rehearsals, and open runs, which promise nothing, are attacked in this way."
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
