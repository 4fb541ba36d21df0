"""A DPIA of a run: a data-protection summary for an officer to complete and file (Article 35 of the GDPR).

What the run knows is filled in, from the document of its report. What only people know is left blank, and
says so. Nothing here is legal advice.
"""

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, cast

from tacit.errors import InvalidFile
from tacit.privacy.ledger import total as all_runs
from tacit.privacy.provenance import is_all_public
from tacit.privacy.statement import at_most, share
from tacit.reports.audit import verdict
from tacit.reports.data import score_name
from tacit.reports.page.blocks import Block, Code, Facts, Folded, Grid, Items, Page, Section, Text
from tacit.reports.run import releases, tone
from tacit.runtime.tables import parse

# Epsilon above which the factor e^epsilon is too large to mean anything.
MOST = 20.0
LINE = "____________________"
# Longer lists are folded.
LONG = 12
NOBODY = "This run protects nobody. Do not file it as evidence that personal data were protected."
HELD = {
    "rows": "records, one for each person or case",
    "columns": "curves of the same people, each kind of curve at one party",
    "environments": "worlds that agents act in; no table of people",
}
TOGETHER = "all on the machine that ran this: whoever ran it could see all of it"
NEIGHBOURS = {
    "add-remove": "with any one {unit} as without it, or without it as with it",
    "replace": "with any one {unit} as with any other in its place",
}
PROVENANCE = {
    "released": ("released", "under the promise: with noise, and paid for in the ledger"),
    "public": ("public", "agreed on, simulated or published: it tells nobody's secret"),
    "bare": ("bare", "without any protection"),
}
# View of the server and the trust in it, by who adds the noise.
SERVERS = {
    "site": ("what each site sends, with its noise", "nothing: the promise holds against it"),
    "server": ("what each site sends, without noise", "keeping that to itself, and adding the noise"),
    "secure": ("sums over sites alone, with noise", "not working together with too many sites"),
    None: ("what each site sends, as it is", "everything: nothing is protected against it"),
}
SITES = {
    "site": "clipping, adding noise, following the protocol",
    "server": "clipping, following the protocol",
    "secure": "clipping, adding a share of the noise, following the protocol",
    None: "following the protocol",
}


def summary(document: Mapping[str, Any]) -> Page:
    """The data-protection summary of a run.

    Args:
        document: The run, as `tacit.reports.data` has it.
    """
    stops = _stops(document)
    return Page(
        title=f"Data-protection summary: {document['name']}",
        lead=_lead(document),
        alerts=(
            *(Text(words, "stop") for words in stops),
            *(Text(alert["words"], alert["tone"]) for alert in document["alerts"]),
        ),
        sections=(
            Section("1. What is processed, and why", tuple(_processing(document))),
            Section("2. Who takes part, and who is trusted", tuple(_roles(document))),
            Section("3. What leaves a site", tuple(_disclosures(document["left"]))),
            Section(
                "4. What is guaranteed", (*_total(document["promise"]), *_guarantee(document["promise"]))
            ),
            Section("5. Measures", (Items("What was done", tuple(measures(document))),)),
            Section("6. Residual risks", tuple(_risks(document))),
            Section("7. Decision and signatures", tuple(_decision())),
            Section("Annex A. Ledger", tuple(_ledger(document["ledger"]))),
            Section("Annex B. The experiment", tuple(_experiment(document["reproduce"]))),
        ),
        document=_plain(document, stops),
    )


def _plain(document: Mapping[str, Any], stops: list[str]) -> dict[str, Any]:
    """Return the sentences as plain data."""
    kept = ("promise", "left", "ledger", "reproduce")
    return {
        "schema": 1,
        "kind": "data-protection summary",
        "name": document["name"],
        "protects": not stops,
        "alerts": [*({"tone": "stop", "words": words} for words in stops), *document["alerts"]],
        "conclusions": [
            {"prior": prior, "at_most": most} for prior, most in conclusions(document["promise"])
        ],
        "measures": list(measures(document)),
        "risks": list(risks(document)),
        **{name: document[name] for name in kept},
    }


def _stops(document: Mapping[str, Any]) -> list[str]:
    """Return the reasons not to rely on the run."""
    found = [] if has_guarantee(document["promise"]) else [NOBODY]
    if document["ledger"].get("valid") is False:
        found.append("The ledger does not verify: nothing that is said here of the price is proven.")
    if document.get("audit") is not None and verdict(document["audit"])[0] == "stop":
        found.append("An audit found the promise broken: nobody may count on it.")
    if document.get("under_way"):
        found.append("The run is not over: what is said here was planned, or is so for now.")
    return found


def _lead(document: Mapping[str, Any]) -> str:
    promise, many = document["promise"], len(document["sites"])
    who = "parties" if document["layout"] == "columns" else "sites"
    learnt = f"{many or 'Several'} {who} train a {document['task']} model together"
    if promise["unit"] is None:
        return f"{learnt}, without any protection."
    price = "not proven" if promise["epsilon"] is None else f"{promise['epsilon']:.4g}"
    end = f"any one {promise['unit']} at epsilon {price}"
    total = promise.get("all_runs")
    if total is not None and total["runs"] > 1:
        whole = all_runs.in_words(total).partition(": ")[2]
        return f"{whole[:1].upper()}{whole[1:]} In this one, {learnt}, protecting {end}."
    return f"{learnt}, " + (
        f"as a rehearsal of protecting {end}." if promise["rehearsal"] else f"protecting {end}."
    )


def _processing(document: Mapping[str, Any]) -> Iterator[Block]:
    rounds, task, result = len(document["rounds"]), experiment_table(document, "task"), document["result"]
    columns = [str(name) for name in task.get("columns") or task.get("predictors") or ()]
    many = f"{rounds} round{'s' * (rounds != 1)}"
    yield Facts(
        (
            ("Processing", f"training of a {document['task']} model across sites, in {many}"),
            ("What sites hold", HELD.get(document["layout"], HELD["rows"])),
            *([("Where it lay", TOGETHER)] if on_one_machine(document) else []),
            ("Columns", f"{len(columns)}, below" if columns else BLANK),
            ("What comes of it", f"a model, judged by {score_name(result['goal'][0])}"),
            ("Purpose", BLANK),
            ("Legal basis (Art. 6, Art. 9)", BLANK),
            ("Whose data, how many people", BLANK),
            ("Special categories, children", BLANK),
            ("Necessity, proportionality", BLANK),
            ("Retention, deletion", BLANK),
            ("How people are told, and object", BLANK),
        )
    )
    if columns:
        yield _items(f"The {len(columns)} columns", columns)


def _roles(document: Mapping[str, Any]) -> Iterator[Block]:
    noise, promise = placement(document), document["promise"]
    sees, trusted = SERVERS[noise]
    who = "Parties" if document["layout"] == "columns" else "Sites"
    others = "nothing: the promise holds against them"
    if not has_guarantee(promise):
        # Noise that can be repeated, or that proves nothing, hides nothing.
        trusted = others = "everything: nothing is protected against them"
    if on_one_machine(document):
        sees, trusted = "everything: all data lay on its machine", "everything"
    yield Grid(
        "Roles",
        ("role", "sees", "is trusted with"),
        (
            (who, "their own data; the model", SITES[noise]),
            ("Coordinator, that is, the server", sees, trusted),
            ("Other sites, whoever gets the model", "the model; what is published", others),
        ),
    )
    yield Items("Trusted, as the promise says it", tuple(promise["trusted"]) or ("nobody",))
    names = [str(site["name"]) for site in document["sites"]]
    if names:
        yield _items(f"The {len(names)} {who.lower()}", names)
    yield Facts(
        (
            ("Controller, joint controllers (Art. 26)", BLANK),
            ("Processors, their contracts (Art. 28)", BLANK),
            ("Transfers to third countries", BLANK),
        )
    )


def _items(title: str, lines: list[str]) -> Block:
    found = Items(title, tuple(lines))
    return found if len(lines) <= LONG else Folded(title, (found,))


def _disclosures(left: Mapping[str, Any]) -> Iterator[Block]:
    for kind, (word, meaning) in PROVENANCE.items():
        yield Items(f"{word.capitalize()}, {meaning}", tuple(left[kind]) or ("nothing",))


def _total(promise: Mapping[str, Any]) -> Iterator[Block]:
    """State the total over all runs on the same people, before this run's own price."""
    total = promise.get("all_runs")
    if total is None:
        return
    yield Text(all_runs.in_words(total), tone(total))
    whole = "not proven" if total["epsilon"] is None else f"{total['epsilon']:.4g}"
    budget = total["lifetime"]
    bound = "" if all_runs.is_bound(total) else ", as a lifetime budget fixed in advance"
    yield Facts(
        (
            ("Epsilon, all runs", f"{whole} at delta {total['delta']:g}{bound}"),
            ("Runs on these data", f"{total['runs']}, as of the end of this one"),
            (
                "Lifetime budget",
                "none was set" if budget is None else f"{budget[0]:g} at delta {budget[1]:g}",
            ),
        )
    )
    yield Text("What follows is about this run alone.")


def _guarantee(promise: Mapping[str, Any]) -> Iterator[Block]:
    if promise["unit"] is None:
        yield Text("Nothing: the run is open, and what leaves the sites is not protected.", "stop")
        return
    if promise["rehearsal"]:
        yield Text(
            "Nothing: the noise repeats with a seed, so that whoever knows it can take it away. What follows "
            "is what the run would promise if it were not a rehearsal.",
            "stop",
        )
    elif not has_guarantee(promise):
        yield Text("Nothing: no bound could be proven.", "stop")
    but = "".join(f", but for {part}" for part in promise["but"])
    rest = f"; but for a part of probability {promise['delta']:g}" if promise["delta"] else ""
    differs = NEIGHBOURS[promise["relation"]].format(unit=promise["unit"])
    yield Text(
        f"Whatever others see is {_times(promise['epsilon'])} as likely {differs}{but}{rest}. That holds "
        "whatever else they know, now or later, and whatever they work out."
    )
    yield Facts(
        (
            ("Epsilon", "not proven" if promise["epsilon"] is None else f"{promise['epsilon']:.4g}"),
            ("Delta", f"{promise['delta']:g}"),
            ("Protected", f"any one {promise['unit']}; neighbours: {promise['relation']}"),
            ("Holds against", ", ".join(promise["against"]) or "nobody"),
        )
    )
    yield from _conclusions(promise)
    yield Items("What the guarantee does not cover", tuple(_exclusions(promise)))


def _times(epsilon: float | None) -> str:
    """Describe e^epsilon, the factor by which one unit changes a probability, never rounded down."""
    if epsilon is None or epsilon > MOST:
        return "any number of times"
    return f"at most {math.ceil(100 * math.exp(epsilon)) / 100:,.2f} times"


def _conclusions(promise: Mapping[str, Any]) -> Iterator[Block]:
    found = conclusions(promise)
    if not found:
        return
    unit, delta = promise["unit"], promise["delta"]
    what = (
        f"a {unit} took part" if promise["relation"] == "add-remove" else f"a {unit} is a certain one of two"
    )
    rows = tuple((f"{100 * prior:g} %", share(most)) for prior, most in found)
    yield Grid(f"How sure somebody may become that {what}", ("before", "after, at most"), rows)
    if delta:
        yield Text(
            f"That is all if delta is 0. With delta {delta:g}, what leaves is as if drawn from something "
            f"that keeps to the table, but for a part of probability {delta:g} in which nothing is promised."
        )
    yield Text("It is a bound on what the worst of attackers may conclude, not a forecast of what any will.")


def _exclusions(promise: Mapping[str, Any]) -> Iterator[str]:
    yield from promise["not_protected"]
    yield "what is true of people because it is true of others like them: a model that works tells that"
    if promise["unit"] == "record":
        yield "several records of one person at once, or a whole site"
    yield "new people whom the model is used on, and what is decided about them"


def _risks(document: Mapping[str, Any]) -> Iterator[Block]:
    yield Items("What remains", tuple(risks(document)))
    yield Facts(
        (
            ("How likely, how severe for people", BLANK),
            ("Wrong or unfair predictions", BLANK),
            ("Decisions by the model (Art. 22)", BLANK),
            ("Further measures", BLANK),
        )
    )


def _decision() -> Iterator[Block]:
    yield Facts(
        (
            ("Advice of the officer (Art. 35(2))", BLANK),
            ("Views of people concerned (Art. 35(9))", BLANK),
            ("Prior consultation (Art. 36)", BLANK),
            ("Decision", BLANK),
            ("To be reviewed by", BLANK),
        )
    )
    roles = ("Controller", "Data-protection officer")
    rows = tuple((role, LINE, LINE, LINE) for role in roles)
    yield Grid("Signatures", ("role", "name", "date", "signature"), rows)


def _ledger(ledger: Mapping[str, Any]) -> Iterator[Block]:
    if ledger.get("valid") is False:
        yield Text("The ledger does not verify: what was charged cannot be told from it.", "stop")
    elif not ledger.get("releases"):
        yield Text("Nothing was charged: no release was made under a promise.")
    else:
        yield releases("Every release", ledger)


def _experiment(reproduce: Mapping[str, Any]) -> Iterator[Block]:
    if not reproduce.get("experiment"):
        yield Text(f"The run did not keep its choices: {BLANK}.")
        return
    yield Code(str(reproduce["experiment"]))
    if reproduce.get("environment"):
        made = ", ".join(f"{name} {value}" for name, value in reproduce["environment"].items())
        yield Text(f"Made with {made}.")


# Bounds, measures and residual risks: each is a sentence that the document of a run bears out


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
    """Return the largest posterior of a few priors; empty without a guarantee."""
    if not has_guarantee(promise):
        return []
    return [(prior, at_most(prior, float(promise["epsilon"]))) for prior in PRIORS]


def has_guarantee(promise: Mapping[str, Any]) -> bool:
    """Return True if a price was proven, for noise that cannot be repeated."""
    return promise["unit"] is not None and promise["epsilon"] is not None and not promise["rehearsal"]


def experiment_table(document: Mapping[str, Any], table: str) -> dict[str, Any]:
    """Return a table of the run's experiment file; empty if the file was not kept."""
    try:
        found: object = parse(str(document["reproduce"].get("experiment") or ""), "experiment.toml").get(
            table
        )
    except InvalidFile:
        return {}
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def placement(document: Mapping[str, Any]) -> str | None:
    """Return the party that adds the noise: `site`, `server` or `secure`; None without a promise."""
    if document["promise"]["unit"] is None:
        return None
    given = experiment_table(document, "privacy").get("noise")
    if given in ADDED:
        return str(given)
    words = " ".join(document["promise"]["trusted"])
    return "server" if "without noise" in words else "secure" if "sums alone" in words else "site"


def engine(document: Mapping[str, Any]) -> str | None:
    """Return the kind of engine, if that is known."""
    return experiment_table(document, "engine").get("kind")


def on_one_machine(document: Mapping[str, Any]) -> bool:
    """Return True if private data of all sites lay where the run was made."""
    return engine(document) == "local" and not is_all_public(document["left"]["public"])


def measures(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield the protective measures, as far as the run knows them."""
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
    """Yield the result of an audit, if there was one."""
    if audit is not None:
        yield f"The promise was put to the test by attacks on it. Was it kept? {verdict(audit)[1]}"


def risks(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield the residual risks, from the facts of this run."""
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
    """Explain delta for the number of units, if that is public."""
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
    far = "which is far below one"
    if delta * many >= 1:
        far = "which is too much to be called protection"
    elif delta * many > 0.1:
        far = "which is not far below one"
    return f"{fails}; for {many:,} {unit}s that is {delta * many:.2g} of them in the worst case, {far}."


def _units(document: Mapping[str, Any]) -> int | None:
    """Return the number of units, if that is public."""
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
    """Describe the total over other runs on the same people."""
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
