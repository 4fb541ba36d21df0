"""What follows from the facts of a run for whoever has to answer for it: bounds, measures, residual risks.

Each is a sentence that the document of a run bears out. Nothing is claimed that the run did not prove.
"""

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, cast

from tacit.errors import InvalidFile
from tacit.privacy.provenance import is_all_public
from tacit.privacy.statement import at_most, share
from tacit.reports.audit import verdict
from tacit.runtime.tables import parse

BLANK = "(to be filled in by the controller)"
PRIORS = (0.01, 0.1, 0.5)
# Up to here a price is called small, moderate, large.
SMALL, MODERATE, LARGE = 1.0, 3.0, 10.0
ADDED = {
    "site": "by each site, before anything left it",
    "server": "by the server, before anybody else could see what it had worked out",
    "secure": "by all sites, a share each, before anything left them",
}


def conclusions(promise: Mapping[str, Any]) -> list[tuple[float, float]]:
    """For a few chances given before, what they may become at most; nothing where nothing is promised."""
    if not has_guarantee(promise):
        return []
    return [(prior, at_most(prior, float(promise["epsilon"]))) for prior in PRIORS]


def has_guarantee(promise: Mapping[str, Any]) -> bool:
    """Whether a price was proven, for noise that nobody can repeat."""
    return promise["unit"] is not None and promise["epsilon"] is not None and not promise["rehearsal"]


def experiment_table(document: Mapping[str, Any], table: str) -> dict[str, Any]:
    """What the experiment of a run says in one of its tables, if it was kept."""
    try:
        found: object = parse(str(document["reproduce"].get("experiment") or ""), "experiment.toml").get(
            table
        )
    except InvalidFile:
        return {}
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def placement(document: Mapping[str, Any]) -> str | None:
    """Who adds the noise: `site`, `server` or `secure`; None where nobody does."""
    if document["promise"]["unit"] is None:
        return None
    given = experiment_table(document, "privacy").get("noise")
    if given in ADDED:
        return str(given)
    words = " ".join(document["promise"]["trusted"])
    return "server" if "without noise" in words else "secure" if "sums alone" in words else "site"


def engine(document: Mapping[str, Any]) -> str | None:
    """Where sites worked, if that is known."""
    return experiment_table(document, "engine").get("kind")


def on_one_machine(document: Mapping[str, Any]) -> bool:
    """Whether data that are somebody's all lay where the run was made."""
    return engine(document) == "local" and not is_all_public(document["left"]["public"])


def measures(document: Mapping[str, Any]) -> Iterator[str]:
    """What was done, as far as the run knows."""
    promise, ledger = document["promise"], document["ledger"]
    broken = ledger.get("valid") is False
    if on_one_machine(document):
        yield "Sites were kept apart by the program alone: all data lay on the machine that ran it."
    elif promise["unit"] is None:
        yield "Raw data were not sent. What was worked out from them was, without protection."
    if promise["unit"] is not None:
        yield f"What any one {promise['unit']} can change of what is added up was bounded before."
        laws = sorted({str(row["law"]) for row in ledger.get("releases", ())})
        which = f" ({', '.join(laws)})" if laws else ""
        yield f"Noise{which} was added {ADDED[placement(document) or 'site']}."
        if not broken:
            yield "Every release was charged to the ledger before it was made: a crash can only waste budget."
    if ledger.get("events"):
        state = {True: "verified: every hash fits", False: "NOT valid", None: "not verified: it was not kept"}
        head = f"; its head is {ledger['head']}" if ledger.get("head") else ""
        yield f"The ledger is a chain of hashes, {state[ledger.get('valid')]}{head}."
    if promise.get("budget") is not None and (promise["epsilon"] or math.inf) <= promise["budget"]:
        yield f"The run had a budget of epsilon {promise['budget']:g}; what would exceed it is refused."
    yield from _audit_measures(document.get("audit"))
    yield f"What sites sent was combined by {document['robustness']['rule']}."
    if has_guarantee(promise) and engine(document) == "local" and not document.get("under_way"):
        yield "The secret that noise was drawn from was deleted when the run was over."


def _audit_measures(audit: Mapping[str, Any] | None) -> Iterator[str]:
    """What an audit found, if there was one."""
    if audit is not None:
        yield f"The promise was put to the test by attacks on it. Was it kept? {verdict(audit)[1]}"


def risks(document: Mapping[str, Any]) -> Iterator[str]:
    """What remains, from the facts of this run."""
    promise = document["promise"]
    if has_guarantee(promise):
        yield _size(promise)
        yield _failure(document)
    else:
        yield f"Nobody is protected by this run, because {_why_not(promise)}: what left is as if sent openly."
    for what in document["left"]["bare"]:
        yield f"Left without protection: {what}."
    for part in promise["but"]:
        yield f"The promise does not speak of {part}."
    yield from _trusting(document)
    if has_guarantee(promise) and promise["unit"] == "record":
        yield "Somebody with k records is protected at k times this epsilon only, and at a larger delta."
    yield "That a site takes part, and its name, are not protected; a site of one person is that person."
    if document["ledger"].get("valid") is not False:
        yield _adding_up(document)
    for trouble in document["robustness"].get("trouble", ()):
        yield f"On the way: {trouble}."


def _why_not(promise: Mapping[str, Any]) -> str:
    if promise["unit"] is None:
        return "it was open"
    return "its noise repeats with a seed" if promise["rehearsal"] else "no price could be proven"


def _size(promise: Mapping[str, Any]) -> str:
    epsilon = float(promise["epsilon"])
    words = "very large: as a bound it hides hardly anything"
    if epsilon <= SMALL:
        words = "small: what one of them adds is hidden well"
    elif epsilon <= MODERATE:
        words = "moderate: much is hidden, not everything"
    elif epsilon <= LARGE:
        words = "large: as a bound it is weak"
    rest = ", but for the part of delta" if promise["delta"] else ""
    return f"Epsilon {epsilon:.4g} is {words}. Even odds may become {share(at_most(0.5, epsilon))}{rest}."


def _failure(document: Mapping[str, Any]) -> str:
    """What delta means for so many units."""
    promise, many = document["promise"], _units(document)
    delta, unit = float(promise["delta"]), promise["unit"]
    if delta == 0:
        return "Delta is 0: there is no part in which the guarantee may fail."
    fails = f"Delta {delta:g} is the part in which the guarantee may fail"
    if many is None:
        said = f"It has to be far below one over the number of {unit}s, which this run does not tell"
        return f"{fails}. {said}: {BLANK}."
    if unit == "site":
        return f"{fails}, for each of {many:,} sites: one that it fails for shows all its people."
    verdict = "which is far below one"
    if delta * many >= 1:
        verdict = "which is too much to be called protection"
    elif delta * many > 0.1:
        verdict = "which is not far below one"
    return f"{fails}; for {many:,} {unit}s that is {delta * many:.2g} of them in the worst case, {verdict}."


def _units(document: Mapping[str, Any]) -> int | None:
    """How many units there are, if that is public."""
    if document["promise"]["unit"] == "site":
        return len(document["sites"]) or None
    for words in document["left"]["public"]:
        found = re.match(r"how many records .*: ([\d,]+)$", words)
        if found is not None:
            return int(found[1].replace(",", ""))
    return None


def _trusting(document: Mapping[str, Any]) -> Iterator[str]:
    noise = placement(document)
    if noise == "server":
        yield "Whoever runs the server, or breaks into it, sees what sites send without noise."
    if noise == "secure":
        many = experiment_table(document, "privacy").get("colluders", 1)
        yield f"If more than {many} of the sites tell the server what they know, nothing is proven any more."
    if has_guarantee(document["promise"]) and engine(document) == "flower":
        yield "Sites keep the keys that their noise is drawn from: whoever gets one can take that noise away."
    if has_guarantee(document["promise"]):
        yield "A site that does not follow the protocol breaks the promise to its own people at least."


def _adding_up(document: Mapping[str, Any]) -> str:
    """What other runs on the same people come to."""
    ledger, own = document["ledger"], document["promise"].get("budget")
    if document["promise"].get("all_runs") is not None:
        return (
            "Runs on the same people add up. The book of the data has all runs on these data, whatever they "
            "are called; people who are in other data as well cannot be known from it."
        )
    budgets = cast("Mapping[str, Mapping[str, float]]", ledger.get("budgets") or {})
    limits = ", ".join(
        f"epsilon {budget['epsilon']:g} for {'everybody' if name == '*' else name}"
        for name, budget in budgets.items()
    )
    if limits and not (set(budgets) == {"*"} and budgets["*"]["epsilon"] == own):
        return f"Runs on the same people add up. This ledger bears {limits}, over all that is charged to it."
    return (
        "Runs on the same people add up. This ledger has no budget but that of this run: others have ledgers "
        "of their own, and nobody adds them up here."
    )
