"""Every attack against every aggregator: what is left of a model when some sites lie.

A trial repeats one experiment, once for each attack and each rule, in rehearsal: liars are made up, and what
they do to private records is nobody's business. Under a promise everything is tried twice, with its noise and
without.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, cast

from tacit.aggregation import AGGREGATORS
from tacit.aggregation.attacks import ATTACKS
from tacit.aggregation.base import Aggregator, adopted
from tacit.aggregation.liars import Attack
from tacit.aggregation.mixing import Bucketing, Mixing
from tacit.aggregation.selecting import Krum
from tacit.directory import STATE, Directory
from tacit.errors import InvalidFile, Refused, TooFewSites, require, require_word
from tacit.experiment import Experiment, construct_experiment
from tacit.privacy.policy import Open, Privacy
from tacit.reading import construct, made, portable, read_as
from tacit.reports.text import NAMES, aligned
from tacit.sites.site import Federation

Table = dict[str, Any]
# Scores by attack, then by aggregator; None where the combination is refused.
Scores = dict[str, dict[str, float | None]]
NOBODY, TRIALS = "none", "trials.json"
STEPS = {step.kind: step for step in (Mixing, Bucketing)}
# The rules that are compared if nobody says which: the plain one, those that stand noise, and the classics.
USUAL = (
    "mean", "median", "trimmed-mean", "geometric-median", "krum", "multi-krum", "centered-clip",
    "covariance-filter", "mixing+trimmed-mean", "mixing+geometric-median",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Trials:
    """What an experiment file with a table [attack] asks for.

    Args:
        experiment: What is repeated.
        attacks: Who lies how, by name; `none` is nobody.
        rules: What should stand it, by name.
        document: The file as it was read, with absolute paths.
    """

    experiment: Experiment
    attacks: Mapping[str, Attack | None]
    rules: Mapping[str, Aggregator]
    document: Table

    @property
    def liars(self) -> int:
        """How many sites lie."""
        return max(attack.liars for attack in self.attacks.values() if attack is not None)


@dataclass(frozen=True, kw_only=True)
class Tried:
    """What came of the trials.

    Args:
        name: What the experiment is called.
        score: Which score decides, and its good direction.
        liars: How many sites lied.
        sites: Among how many.
        tables: The scores, without noise and, under a promise, with it.
        path: The directory that remembers them.
    """

    name: str
    score: tuple[str, str]
    liars: int
    sites: int
    tables: dict[str, Scores]
    path: Path | None

    def worst(self, noise: str) -> dict[str, float | None]:
        """The worst that any attack did to each rule."""
        pick, table = (min if self.score[1] == "max" else max), self.tables[noise]
        rules = next(iter(table.values()))
        found = {rule: [row[rule] for row in table.values()] for rule in rules}
        return {
            rule: pick(known) if (known := [value for value in column if value is not None]) else None
            for rule, column in found.items()
        }

    def summary(self) -> str:
        """The trials for people: a line for each attack, a column for each rule."""
        score = NAMES.get(self.score[0], self.score[0])
        return "\n\n".join(
            f"{score} when {self.liars} of {self.sites} sites lie, {noise} noise\n\n{self._table(noise)}"
            for noise in self.tables
        )

    def _table(self, noise: str) -> str:
        table = {**self.tables[noise], "worst": self.worst(noise)}
        rules = list(table["worst"])
        cells = [[name, *(_cell(row[rule]) for rule in rules)] for name, row in table.items()]
        return aligned(["attack", *rules], cells)

    def as_dict(self) -> dict[str, Any]:
        """The trials as one document."""
        worst = {noise: self.worst(noise) for noise in self.tables}
        told = {"name": self.name, "score": self.score[0], "liars": self.liars, "sites": self.sites}
        path = None if self.path is None else str(self.path)
        return {"run": path, **told, "tables": self.tables, "worst": worst}


def read(path: str | Path, changes: Sequence[str] = ()) -> Trials:
    """Read an experiment file with a table [attack].

    Args:
        path: The file, or the directory of earlier trials, which keeps its own.
        changes: What to change in it: `attack.liars=2`, values written as in TOML.

    Raises:
        InvalidFile: The file, the table and the key at fault, and what is allowed instead.
    """
    return read_as(_construct, path, changes)


def asked_for(path: str | Path, changes: Sequence[str] = ()) -> bool:
    """Whether a file, or the one that a directory keeps, has a table [attack] to be tried out."""
    if (Path(path) / STATE).exists():
        # The directory of a single run, which had its attack.
        return False
    return read_as(lambda document, folder: "attack" in document, path, changes)


def attempt(
    trials: Trials,
    out: str | os.PathLike[str] | None,
    *,
    resume: bool = False,
    announce: Callable[[str], None] = lambda line: None,
) -> Tried:
    """Run everything that is not known yet, and keep the scores.

    Args:
        trials: What is tried.
        out: The directory that remembers it; nothing is kept without one.
        resume: Whether to go on with the trials in `out`, if there are some.
        announce: Told what is tried next.
    """
    directory = Directory(out)
    promises = _promises(trials.experiment.privacy)
    with directory.claimed(trials.document, resume=resume):
        tables = cast("dict[str, Scores]", (directory.read_json(TRIALS) or {}).get("tables", {}))
        federation = trials.experiment.opened()
        for noise, attack, rule in product(promises, trials.attacks, trials.rules):
            row = tables.setdefault(noise, {}).setdefault(attack, {})
            if rule not in row:
                announce(f"{attack} against {rule}, {noise} noise")
                chosen = replace(
                    trials.experiment,
                    privacy=promises[noise],
                    aggregation=trials.rules[rule],
                    attack=trials.attacks[attack],
                    baselines=False,
                )
                row[rule] = _score(chosen, federation)
                directory.write_json(TRIALS, {"tables": tables})
    return Tried(
        name=trials.experiment.name,
        score=trials.experiment.task.goal,
        liars=trials.liars,
        sites=len(federation),
        tables=tables,
        path=directory.path,
    )


def _score(experiment: Experiment, federation: Federation) -> float | None:
    """The score that decides; None where the promise cannot be kept with this rule, or so few sites."""
    try:
        run = experiment.trained(federation, None)
    except (Refused, TooFewSites):
        return None
    return run.scores.get(experiment.task.goal[0])


def _promises(privacy: Privacy | Open) -> dict[str, Privacy | Open]:
    """Without noise, and with that of the promise, if there is one."""
    if isinstance(privacy, Open):
        return {"without": privacy}
    if not privacy.rehearsal:
        raise Refused("[attack] is for rehearsals: give [privacy] rehearsal = true, or leave the attack out")
    return {"without": Open(participation=privacy.participation), "with": privacy}


def _construct(document: Table, folder: Path) -> Trials:
    table = document.get("attack")
    if not isinstance(table, dict):
        raise InvalidFile('[attack] is missing: give one, such as kinds = ["sign-flip"] and liars = 2')
    asked = dict(cast(Table, table))
    experiment = construct_experiment({k: v for k, v in document.items() if k != "attack"}, folder)
    against = _words("against", asked.pop("against", list(USUAL)))
    attacks = _attacks(asked, folder)
    liars = max(attack.liars for attack in attacks.values())
    rules = {word: _rule(word, liars) for word in against}
    if "aggregation" in document:
        rules = {"as in the file": adopted(experiment.aggregation), **rules}
    return Trials(
        experiment=experiment,
        attacks={NOBODY: None, **attacks},
        rules=rules,
        document=portable(document, folder),
    )


def _attacks(asked: Table, folder: Path) -> dict[str, Attack]:
    """One attack with all its options, or several kinds that share how many lie."""
    if "kind" in asked:
        require("kinds" not in asked, "[attack] kinds", asked.get("kinds"), "left out where kind is given")
        return {str(asked["kind"]): made("attack", {"attack": asked}, folder, ATTACKS)}
    kinds = _words("kinds", asked.pop("kinds", list(ATTACKS)))
    for kind in kinds:
        require_word("[attack] kinds", kind, ATTACKS)
    return {kind: construct(ATTACKS[kind], "attack", asked) for kind in kinds}


def _rule(word: str, liars: int) -> Aggregator:
    """An aggregator by its kind, perhaps with a step before it, that is to stand so many liars."""
    step, _, kind = word.rpartition("+")
    require_word("[attack] against", kind, [name for name in AGGREGATORS if name not in STEPS])
    options: Table = {"f": liars} if "f" in AGGREGATORS[kind].__dataclass_fields__ else {}
    if AGGREGATORS[kind] is Krum:
        # It is here to be seen failing.
        options["allow_fragile"] = True
    rule = construct(AGGREGATORS[kind], "attack", options)
    if not step:
        return cast(Aggregator, rule)
    require_word("[attack] against", step, STEPS)
    return cast(Aggregator, construct(STEPS[step], "attack", {"then": rule}))


def _cell(score: float | None) -> str:
    return "-" if score is None else f"{score:.3f}"


def _words(field: str, given: object) -> list[str]:
    entries = cast("list[object]", given) if isinstance(given, list) else list[object]()
    plain = bool(entries) and all(isinstance(entry, str) for entry in entries)
    require(plain, f"[attack] {field}", cast(object, given), "a list of kinds")
    return [str(entry) for entry in entries]
