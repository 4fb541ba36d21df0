"""Was the promise kept? What attacks on it found, as blocks of a report; from plain data."""

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from tacit.reports.blocks import Block, Figure, Folded, Grid, Page, Section, Text

HEADING = "Was the promise kept?"
METHODS = {"fitted": "family fit", "one_run": "one run", "steinke": "Steinke"}


def verdict(found: Mapping[str, Any]) -> tuple[Literal["stop", "mind", "good"], str]:
    """What to make of an audit, in a sentence, and how it is meant."""
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
        f"that epsilon is at least {proven(run):.3g}; claimed is {run['claim']:.3g}."
    )


def _why(run: Mapping[str, Any], sure: str) -> str:
    """What is wrong with a run."""
    if run["heard"] < run["charged"]:
        return (
            f"canaries were in {run['heard']:,} answers where {run['charged']:,} were charged, so something "
            "leaves by another way than the one that is protected"
        )
    if not run["fresh"]:
        return "noise was used more than once, so that it can be taken away"
    return f"epsilon is at least {proven(run):.3g}, {sure}, where {run['claim']:.3g} is claimed"


def proven(bounds: Mapping[str, Any]) -> float:
    """The largest of the bounds."""
    return max(bounds[name] for name in METHODS)


def sentences(found: Mapping[str, Any]) -> Iterator[str]:
    """What attacks on models found, in words."""
    for part in ("membership", "inversion"):
        if found[part] is not None:
            yield found[part]["sentence"]


def blocks(found: Mapping[str, Any]) -> Iterator[Block]:
    """The section of a report."""
    tone, words = verdict(found)
    yield Text(words, tone)
    yield Text(
        "An audit attacks from below what is proven from above: it can show that a promise is broken, and "
        "never that it is kept."
    )
    if found["run"] is not None:
        yield from _run(found["run"])
    if found["mechanisms"]:
        yield from _mechanisms(found)
    if found["membership"] is not None:
        yield from _membership(found["membership"])
    if found["inversion"] is not None:
        from tacit.reports.inversion_figure import inversion

        told = found["inversion"]
        yield Figure("inversion", inversion(told), told["sentence"])
    for note in found["notes"]:
        yield Text(f"Not attacked: {note}.", "mind")


def _run(run: Mapping[str, Any]) -> Iterator[Block]:
    from tacit.reports.audit_figures import BOUNDS, bounded

    yield Text(
        f"The run was repeated with {run['canaries']:,} canaries in it: made-up units, each there or not by "
        "the toss of a coin, that go through the same clipping, noise and counting as everybody. Whoever "
        "sees what leaves can tell heads from tails only as well as epsilon allows."
    )
    told = "; ".join(f"at least {run[name]:.3g} by {words}" for name, words in METHODS.items())
    yield Figure("bounds", bounded(run), f"Epsilon {run['claim']:.3g} is claimed. Proven: {told}.")
    yield Grid(
        "Bounds on epsilon from below",
        ("by", "epsilon at least", "takes for granted"),
        tuple(
            (words, f"{run[name]:.4g}", BOUNDS[name].partition(": ")[2]) for name, words in METHODS.items()
        ),
    )


def _mechanisms(found: Mapping[str, Any]) -> Iterator[Block]:
    from tacit.reports.audit_figures import attacked

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
                _yes(each["kept"]),
            )
            for each in rows
        ),
    )
    yield Folded(words, (Figure("mechanisms", attacked(rows), words), grid))


def _membership(found: Mapping[str, Any]) -> Iterator[Block]:
    from tacit.reports.membership_figures import membership

    yield Figure("membership", membership(found), found["sentence"])
    yield Text(
        "What these attacks found was computed from the records themselves, without noise: no promise covers "
        "it. Only public records, and rehearsals, are attacked in this way."
    )


def _yes(kept: bool) -> str:
    return "yes" if kept else "no"


def page(found: Mapping[str, Any]) -> Page:
    """The report of an audit by itself."""
    tone, words = verdict(found)
    return Page(
        title=f"Audit of {found['name']}",
        lead=f"{HEADING} {words}",
        alerts=(Text(words, tone),) if tone == "stop" else (),
        sections=(Section(HEADING, tuple(blocks(found))),),
        document=found,
    )
