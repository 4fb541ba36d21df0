"""Data-protection impact assessment (DPIA) of a run, to complete and file (Article 35 of the GDPR).

The facts that the run knows come from the document of its report. Answers that only people can give are
fields of a form, filled in from the table `[dpia]` of a file. Nothing here is legal advice.
"""

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, cast

from tacit.errors import InvalidFile
from tacit.privacy.ledger import total as all_runs
from tacit.privacy.policy import is_all_public
from tacit.privacy.statement import CERTAIN, NEIGHBORS, at_most, share, terms_in_words
from tacit.reports.audit import verdict
from tacit.reports.data import score_name
from tacit.reports.dpia_form import QUESTIONS, TABLE, Answers, construct_answers
from tacit.reports.page.blocks import (
    BLANK,
    Block,
    Code,
    Facts,
    Folded,
    Grid,
    Items,
    Page,
    Questionnaire,
    Section,
    Text,
)
from tacit.reports.run import COLUMNS, releases, tone
from tacit.runtime.contracts import fields_of
from tacit.runtime.tables import parse

# Epsilon above which the factor e^epsilon is too large to mean anything.
MOST = 20.0
LINE = "____________________"
# Longer lists are folded.
LONG = 12
NOBODY = "This run gives no protection. Do not file it as evidence that personal data were protected."
HELD = {
    "rows": "records, one for each person or case",
    "columns": "curves of the same people, each kind of curve at one party",
    "environments": "environments in which agents act; no table of people",
}
ONE_MACHINE = "all on one machine: the person who ran it could see all data"
PROVENANCE = {
    "released": ("released", "under the promise: with noise, and charged to the ledger"),
    "public": ("public", "agreed on, simulated or published: it depends on no private record"),
    "bare": ("unprotected", "without noise, and not covered by the promise"),
}
# View of the server and the trust in it, by who adds the noise.
SERVERS = {
    "site": ("the update of each site, with noise", "nothing: the promise holds against it"),
    "server": ("the update of each site, without noise", "keeping updates secret, and adding the noise"),
    "secure": ("only sums over sites, with noise", "not colluding with too many sites"),
    None: ("the update of each site, without noise", "everything: nothing is protected against it"),
}
SITES = {
    "site": "clipping, adding noise, following the protocol",
    "server": "clipping, following the protocol",
    "secure": "clipping, adding a share of the noise, following the protocol",
    None: "following the protocol",
}


def summary(document: Mapping[str, Any], answers: Answers | None = None) -> Page:
    """Return the data-protection page of a run.

    Args:
        document: The run, as `tacit.reports.data` has it.
        answers: Answers of the controller; by default those of `[dpia]` in the run's experiment file.
    """
    stops, answers = _stops(document), answers or _kept_answers(document)
    return Page(
        title=f"Data-protection summary: {document['name']}",
        lead=_lead(document),
        alerts=(
            *(Text(words, "stop") for words in stops),
            *(Text(alert["words"], alert["tone"]) for alert in document["alerts"]),
        ),
        sections=(
            Section("1. Processing and purpose", tuple(_processing(document, answers))),
            Section("2. Participants, and trust in them", tuple(_roles(document, answers))),
            Section("3. Data that leave a site", tuple(_disclosures(document["left"]))),
            Section("4. Guarantee", (*_total(document["promise"]), *_guarantee(document["promise"]))),
            Section("5. Measures", (Items("Measures of this run", tuple(measures(document))),)),
            Section("6. Residual risks", tuple(_risks(document, answers))),
            Section("7. Decision and signatures", tuple(_decision(answers))),
            Section("Annex A. Ledger", tuple(_ledger(document["ledger"]))),
            Section("Annex B. The experiment", tuple(_experiment(document["reproduce"]))),
        ),
        document=_plain(document, stops, answers),
    )


def _plain(document: Mapping[str, Any], stops: list[str], answers: Answers) -> dict[str, Any]:
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
        "answers": answers.as_dict(),
        **{name: document[name] for name in kept},
    }


def _stops(document: Mapping[str, Any]) -> list[str]:
    """Return the reasons not to rely on the run."""
    found = [] if has_guarantee(document["promise"]) else [NOBODY]
    if document["ledger"].get("valid") is False:
        found.append("The ledger does not verify: the stated price is not proven.")
    if document.get("audit") is not None and verdict(document["audit"])[0] == "stop":
        found.append("An audit found the promise broken: do not count on it.")
    if document.get("under_way"):
        found.append("The run is not over: this page states the plan and the results so far.")
    return found


def _lead(document: Mapping[str, Any]) -> str:
    promise, many = document["promise"], len(document["sites"])
    who = "parties" if document["layout"] == "columns" else "sites"
    trained = f"{many or 'Several'} {who} train a federated {document['task']} model"
    if promise["unit"] is None:
        return f"{trained}, without any protection."
    price = "not proven" if promise["epsilon"] is None else f"{promise['epsilon']:.4g}"
    end = f"any one {promise['unit']} at epsilon {price}"
    total = promise.get("all_runs")
    if total is not None and total["runs"] > 1:
        whole = all_runs.in_words(total).partition(": ")[2]
        return f"{whole[:1].upper()}{whole[1:]} In this run, {trained}, protecting {end}."
    return f"{trained}, " + (
        f"as a rehearsal of protecting {end}." if promise["rehearsal"] else f"protecting {end}."
    )


def _processing(document: Mapping[str, Any], answers: Answers) -> Iterator[Block]:
    rounds, task = len(document["rounds"]), experiment_table(document, "task")
    columns = [str(name) for name in task.get("columns") or task.get("predictors") or ()]
    many = f"{rounds} round{'s' * (rounds != 1)}"
    yield Facts(
        (
            ("Processing", f"training of a federated {document['task']} model, in {many}"),
            ("Data of the sites", HELD.get(document["layout"], HELD["rows"])),
            *([("Place of the data", ONE_MACHINE)] if on_one_machine(document) else []),
            *([("Columns", f"{len(columns)}, listed below")] if columns else []),
            ("Result", _describe_result(document["result"])),
        )
    )
    unknown = () if columns else ("columns",)
    yield _form(answers, "purpose", "legal_basis", "people", *unknown, "special_categories")
    yield _form(answers, "necessity", "retention", "information")
    if columns:
        yield _items(f"The {len(columns)} columns", columns)


def _describe_result(result: Mapping[str, Any]) -> str:
    """Describe the result: a model and, if it was scored, its main score."""
    goal, models = result["goal"][0], result["models"]
    scored = bool(models) and goal in models[0]["scores"]
    return f"a model, scored by {score_name(goal)}" if scored else "a model, not scored"


def _form(answers: Answers, *names: str) -> Questionnaire:
    """Return the fields of these questions, with the answers so far."""
    return Questionnaire(
        tuple((name, QUESTIONS[name], answer) for name, answer in fields_of(answers, names).items())
    )


def _kept_answers(document: Mapping[str, Any]) -> Answers:
    """Return the answers in the run's experiment file."""
    return construct_answers({TABLE: experiment_table(document, TABLE)})


def _roles(document: Mapping[str, Any], answers: Answers) -> Iterator[Block]:
    noise, promise = placement(document), document["promise"]
    sees, trusted = SERVERS[noise]
    who = "Parties" if document["layout"] == "columns" else "Sites"
    others = "nothing: the promise holds against them"
    if not has_guarantee(promise):
        # Noise that can be repeated, or that proves nothing, hides nothing.
        trusted = others = "everything: nothing is protected against them"
    if on_one_machine(document):
        sees, trusted = "everything: all data were on its machine", "everything"
    yield Grid(
        "Roles",
        ("role", "sees", "is trusted with"),
        (
            (who, "their own data; the model", SITES[noise]),
            ("Coordinator (the server)", sees, trusted),
            ("Other sites, recipients of the model", "the model; published results", others),
        ),
    )
    yield Items("Trusted parties, as the promise names them", tuple(promise["trusted"]) or ("none",))
    names = [str(site["name"]) for site in document["sites"]]
    if names:
        yield _items(f"The {len(names)} {who.lower()}", names)
    yield _form(answers, "controller", "processors", "transfers")


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
            ("Runs on these data", f"{total['runs']}, at the end of this one"),
            (
                "Lifetime budget",
                "none was set" if budget is None else f"{budget[0]:g} at delta {budget[1]:g}",
            ),
        )
    )
    yield Text("The rest of this section is about this run alone.")


def _guarantee(promise: Mapping[str, Any]) -> Iterator[Block]:
    if promise["unit"] is None:
        yield Text("Nothing: the run is open, and what leaves the sites is not protected.", "stop")
        return
    if promise["rehearsal"]:
        yield Text(
            "Nothing: this run is a rehearsal. Its noise repeats with a seed, and an attacker who knows the "
            "seed can subtract it. The same run with secret noise would guarantee the numbers below.",
            "stop",
        )
    elif not has_guarantee(promise):
        yield Text("Nothing: no bound could be proven.", "stop")
    unit, relation, delta = promise["unit"], promise["relation"], promise["delta"]
    yield Facts(
        (
            ("Epsilon", "not proven" if promise["epsilon"] is None else f"{promise['epsilon']:.4g}"),
            ("Delta", f"{delta:g}, the probability with which the guarantee may fail"),
            ("Protected", f"any one {unit}"),
            ("Neighboring data sets", NEIGHBORS[relation].format(unit=unit)),
            ("Holds against", ", ".join(promise["against"]) or "no observer"),
        )
    )
    but = "".join(f", except for {part}" for part in promise["but"])
    rest = f" (with probability {delta:g}, this may fail)" if delta else ""
    yield Text(
        f"Every result is {_times(promise['epsilon'])} as likely for one of two neighboring data sets as for "
        f"the other{but}{rest}. This holds for every attacker, with any other knowledge, now or later, and "
        "for any computation on the results."
    )
    yield Text(f"Terms: {terms_in_words(unit, relation)}.")
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
        f"a {unit} was used" if promise["relation"] == "add-remove" else f"one of two given {unit}s was used"
    )
    rows = tuple((f"{100 * prior:g} %", share(most)) for prior, most in found)
    yield Grid(f"Certainty of an attacker that {what}", ("before", "after, at most"), rows)
    if delta:
        yield Text(f"The table holds for delta 0. With delta {delta:g}, it may fail with that probability.")
    yield Text(
        "The table bounds the conclusions of the strongest attacker. It does not predict a real attack."
    )


def _exclusions(promise: Mapping[str, Any]) -> Iterator[str]:
    yield from promise["not_protected"]
    yield "facts about a person that follow from other people's data: any useful model reveals them"
    if promise["unit"] == "record":
        yield "several records of one person at once, or a whole site"
    yield "new people to whom the model is applied, and decisions about them"


def _risks(document: Mapping[str, Any], answers: Answers) -> Iterator[Block]:
    yield Items("Risks that remain", tuple(risks(document)))
    yield _form(answers, "severity", "fairness", "decisions", "measures")


def _decision(answers: Answers) -> Iterator[Block]:
    yield _form(answers, "advice", "views", "consultation", "decision", "review")
    roles = ("Controller", "Data-protection officer")
    rows = tuple((role, LINE, LINE, LINE) for role in roles)
    yield Grid("Signatures", ("role", "name", "date", "signature"), rows)


def _ledger(ledger: Mapping[str, Any]) -> Iterator[Block]:
    if ledger.get("valid") is False:
        yield Text("The ledger does not verify: it does not show what was charged.", "stop")
    elif not ledger.get("releases"):
        yield Text("Nothing was charged: the run made no release under a promise.")
    else:
        yield Text(COLUMNS)
        yield releases("Every release", ledger)


def _experiment(reproduce: Mapping[str, Any]) -> Iterator[Block]:
    if not reproduce.get("experiment"):
        yield Text(f"The run did not keep its experiment file: {BLANK}.")
        return
    yield Code(str(reproduce["experiment"]))
    if reproduce.get("environment"):
        made = ", ".join(f"{name} {value}" for name, value in reproduce["environment"].items())
        yield Text(f"Software: {made}.")


# Bounds, measures and residual risks: each is a sentence that the document of a run supports


PRIORS = (0.01, 0.1, 0.5)
# Up to here a price is called small, moderate, large.
SMALL, MODERATE, LARGE = 1.0, 3.0, 10.0
ADDED = {
    "site": "Each site added noise{laws} before it sent anything.",
    "server": "The server added noise{laws} before it showed a result to anyone.",
    "secure": "Each site added its share of the noise{laws} before it sent anything.",
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
    # Statements of older versions say "sums alone".
    secure = "only sums" in words or "sums alone" in words
    return "server" if "without noise" in words else "secure" if secure else "site"


def engine(document: Mapping[str, Any]) -> str | None:
    """Return the kind of engine, if that is known."""
    return experiment_table(document, "engine").get("kind")


def on_one_machine(document: Mapping[str, Any]) -> bool:
    """Return True if private data of all sites lay where the run was made."""
    return engine(document) == "local" and not is_all_public(document["left"]["public"])


def measures(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield the protective measures that the run knows."""
    promise, ledger = document["promise"], document["ledger"]
    broken = ledger.get("valid") is False
    if on_one_machine(document):
        yield "All data were on the machine that ran this; only the program separated the sites."
    elif promise["unit"] is None:
        yield "Sites sent no raw data. They sent model updates, without protection."
    if promise["unit"] is not None:
        yield f"Clipping bounded the contribution of any one {promise['unit']} to every sum."
        laws = sorted({str(row["law"]) for row in ledger.get("releases", ())})
        which = f" ({', '.join(laws)})" if laws else ""
        yield ADDED[placement(document) or "site"].format(laws=which)
        if not broken:
            yield "The ledger was charged before every release: a crash can waste budget, never exceed it."
    if ledger.get("events"):
        state = {
            True: "verified: every hash matches",
            False: "NOT valid",
            None: "not verified: it was not kept",
        }
        head = f"; its head is {ledger['head']}" if ledger.get("head") else ""
        yield f"The ledger is a chain of hashes, {state[ledger.get('valid')]}{head}."
    if promise.get("budget") is not None and (promise["epsilon"] or math.inf) <= promise["budget"]:
        yield f"The run had a budget of epsilon {promise['budget']:g}; the ledger refuses releases beyond it."
    yield from _audit_measures(document.get("audit"))
    yield f"The server combined the updates by the rule {document['robustness']['rule']}."
    if has_guarantee(promise) and engine(document) == "local" and not document.get("under_way"):
        yield "The run deleted the secret key of its noise when it was over."


def _audit_measures(audit: Mapping[str, Any] | None) -> Iterator[str]:
    """Yield the result of an audit, if there was one."""
    if audit is not None:
        yield f"An audit attacked the promise. Was it kept? {verdict(audit)[1]}"


def risks(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield the residual risks, from the facts of this run."""
    promise = document["promise"]
    if has_guarantee(promise):
        yield _size(promise)
        yield _failure(document)
    else:
        yield f"This run gives no protection, because {_why_not(promise)}: treat all releases as unprotected."
    for what in document["left"]["bare"]:
        yield f"Unprotected: {what}."
    for part in promise["but"]:
        yield f"The promise does not cover {part}."
    yield from _trusting(document)
    if has_guarantee(promise) and promise["unit"] == "record":
        yield "A person with k records is protected at k times this epsilon only, and at a larger delta."
    yield "The names of participating sites are not protected; a site with one person identifies that person."
    if document["ledger"].get("valid") is not False:
        yield _adding_up(document)
    for trouble in document["robustness"].get("trouble", ()):
        yield f"Trouble during the run: {trouble}."


def _why_not(promise: Mapping[str, Any]) -> str:
    if promise["unit"] is None:
        return "it is open"
    return "its noise repeats with a seed" if promise["rehearsal"] else "no price could be proven"


def _size(promise: Mapping[str, Any]) -> str:
    epsilon = float(promise["epsilon"])
    words = "very large: the bound guarantees hardly anything"
    if epsilon <= SMALL:
        words = "small: the contribution of one {unit} is well hidden"
    elif epsilon <= MODERATE:
        words = "moderate: much is hidden, but not everything"
    elif epsilon <= LARGE:
        words = "large: the bound is weak"
    rest = f" (this may fail with probability {promise['delta']:g})" if promise["delta"] else ""
    sure = share(at_most(0.5, epsilon))
    end = sure if sure == CERTAIN else f"at most {sure} sure"
    hidden = words.format(unit=promise["unit"])
    return f"Epsilon {epsilon:.4g} is {hidden}. An attacker who starts at 50:50 can become {end}{rest}."


def _failure(document: Mapping[str, Any]) -> str:
    """Explain delta for the number of units, if that is public."""
    promise, many = document["promise"], _units(document)
    delta, unit = float(promise["delta"]), promise["unit"]
    if delta == 0:
        return "Delta is 0: the guarantee cannot fail."
    fails = f"The guarantee may fail with probability {delta:g} (delta)"
    if many is None:
        said = f"Delta must be far below 1 / (number of {unit}s); this run does not know that number"
        return f"{fails}. {said}: {BLANK}."
    if unit == "site":
        return f"{fails}, for each of {many:,} sites; a site for which it fails reveals all its people."
    far = "which is far below 1"
    if delta * many >= 1:
        far = "which is too much to be called protection"
    elif delta * many > 0.1:
        far = "which is not far below 1"
    return f"{fails}: of {many:,} {unit}s, {delta * many:.2g} are exposed in the worst case, {far}."


def _units(document: Mapping[str, Any]) -> int | None:
    """Return the number of units, if that is public."""
    if document["promise"]["unit"] == "site":
        return len(document["sites"]) or None
    for words in document["left"]["public"]:
        found = re.match(r"(?:the number of|how many) records .*: ([\d,]+)$", words)
        if found is not None:
            return int(found[1].replace(",", ""))
    return None


def _trusting(document: Mapping[str, Any]) -> Iterator[str]:
    noise = placement(document)
    if noise == "server":
        yield "The operator of the server, or an intruder, sees the updates of the sites without noise."
    if noise == "secure":
        many = experiment_table(document, "privacy").get("colluders", 1)
        yield f"If more than {many} of the sites collude with the server, the guarantee is lost."
    if has_guarantee(document["promise"]) and engine(document) == "flower":
        yield "Each site keeps the key of its noise: an attacker who obtains the key can subtract the noise."
    if has_guarantee(document["promise"]):
        yield "A site that does not follow the protocol may break the promise to the people in its own data."


def _adding_up(document: Mapping[str, Any]) -> str:
    """Describe the total over other runs on the same people."""
    ledger, own = document["ledger"], document["promise"].get("budget")
    if document["promise"].get("all_runs") is not None:
        return (
            "The prices of all runs on the same people add up. The book of the data holds all runs on these "
            "data, under any name; it cannot know that the same people are in other data too."
        )
    budgets = cast("Mapping[str, Mapping[str, float]]", ledger.get("budgets") or {})
    limits = ", ".join(
        f"epsilon {budget['epsilon']:g} for {'any one person or site' if name == '*' else name}"
        for name, budget in budgets.items()
    )
    if limits and not (set(budgets) == {"*"} and budgets["*"]["epsilon"] == own):
        return f"The prices of all runs on the same people add up. The budget of this ledger is {limits}."
    return (
        "The prices of all runs on the same people add up. This ledger holds only the budget of this run; "
        "other runs have their own ledgers, and this page does not add them up."
    )
