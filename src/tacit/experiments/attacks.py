"""Attack tables: every attack against every aggregation rule, as the score that is left when some sites lie.

A trial repeats one experiment for each attack and each rule, always as a rehearsal: malicious sites are
simulated. Under a privacy policy each is tried twice, with its noise and without.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any, ClassVar, Self, cast

import numpy as np

from tacit.aggregation import AGGREGATORS
from tacit.aggregation.attacks import ATTACKS, Attack
from tacit.aggregation.base import Aggregator, as_aggregator
from tacit.aggregation.robust.krum import Krum
from tacit.aggregation.robust.mixing import Bucketing, Mixing
from tacit.errors import InvalidFile, InvalidValue, Refused, TooFewSites, require, require_word
from tacit.experiments.batch import Cell, CellBatch, Row
from tacit.experiments.experiment import Experiment, construct_experiment
from tacit.privacy.policy import Open, Privacy
from tacit.reports.text import BROKEN, NAMES, fit_table
from tacit.runs.directory import STATE, Directory
from tacit.runs.setup import require_rehearsal
from tacit.runtime.keys import Key
from tacit.runtime.tables import Table, build, construct, portable, read_as
from tacit.sites.federation import Federation

# Scores by attack, then by aggregator; None where a rule is refused, or the attack broke the run.
Scores = dict[str, dict[str, float | None]]
NOBODY, TRIALS = "none", "trials.json"
STEPS = {step.kind: step for step in (Mixing, Bucketing)}
# The rules that are compared by default: the mean, those that tolerate noise, and the classics.
USUAL = (
    "mean", "median", "trimmed-mean", "geometric-median", "krum", "multi-krum", "centered-clip",
    "covariance-filter", "mixing+trimmed-mean", "mixing+geometric-median",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class AttackCell(Cell):
    """One trial.

    Args:
        noise: `with` the noise of the policy, or `without`.
        attack: The attack; `none` for honest sites alone.
        rule: The aggregation rule that should tolerate it.
    """

    noise: str
    attack: str
    rule: str

    def __str__(self) -> str:
        return f"{self.attack} against {self.rule}, {self.noise} noise"


@dataclass(frozen=True, kw_only=True)
class AttackTrials(CellBatch[AttackCell, "AttackScores"]):
    """Trials of an experiment file with a table [attack].

    Args:
        experiment: The experiment that is repeated.
        attacks: The attacks by name; `none` for honest sites alone.
        rules: The aggregation rules by name.
        document: As for any batch; so are `folder` and `workers`.
    """

    attacks: Mapping[str, Attack | None]
    rules: Mapping[str, Aggregator]
    # A refused or failed trial would fail again.
    retries: ClassVar[bool] = False

    @classmethod
    def construct(cls, document: Table, folder: Path) -> Self:
        """Construct the trials of a document."""
        table = document.get("attack")
        if not isinstance(table, dict):
            raise InvalidFile('[attack] is missing: give one, such as kinds = ["sign-flip"] and liars = 2')
        asked = dict(cast(Table, table))
        experiment = construct_experiment({k: v for k, v in document.items() if k != "attack"}, folder)
        if experiment.task.layout != "rows":
            raise Refused(
                f"[attack] does not go with {experiment.task.kind}: attacks are on sites with records"
            )
        against = _words("against", asked.pop("against", list(USUAL)))
        attacks = _attacks(asked, folder)
        liars = max(attack.liars for attack in attacks.values())
        rules = {word: _rule(word, liars) for word in against}
        if "aggregation" in document:
            rules = {"as in the file": as_aggregator(experiment.aggregation), **rules}
        return cls(
            experiment=experiment,
            attacks={NOBODY: None, **attacks},
            rules=rules,
            document=portable(document, folder),
            folder=folder,
        )

    @property
    def cells(self) -> tuple[AttackCell, ...]:
        """Every attack (and none) against every rule, first without noise, then with it."""
        every = product(self.promises, self.attacks, self.rules)
        return tuple(AttackCell(noise=noise, attack=attack, rule=rule) for noise, attack, rule in every)

    @property
    def liars(self) -> int:
        """Number of malicious sites."""
        return max(attack.liars for attack in self.attacks.values() if attack is not None)

    @property
    def promises(self) -> dict[str, Privacy | Open]:
        """Privacy policies to try: without noise, and the file's own if it has one."""
        privacy = self.experiment.privacy
        require_rehearsal(privacy)
        if isinstance(privacy, Open):
            return {"without": privacy}
        return {"without": Open(participation=privacy.participation), "with": privacy}

    @cached_property
    def federation(self) -> Federation:
        """The sites with their data, among which all attacks can be tried."""
        federation = self.experiment.open_federation()
        for attack in self.attacks.values():
            if attack is not None:
                key = Key(self.experiment.seed)
                _ = attack.poison_data(federation, attack.draw_liars(list(federation), key), key)
        return federation

    def check(self) -> None:
        """Refuse runs that are not rehearsals, and data on which an attack cannot run."""
        _ = self.promises, self.federation

    def run_cell(self, cell: AttackCell, place: Path | None) -> Row:
        """The row of a cell: the score that decides, or why there is none."""
        chosen = replace(
            self.experiment,
            privacy=self.promises[cell.noise],
            aggregation=self.rules[cell.rule],
            attack=self.attacks[cell.attack],
            baselines=False,
        )
        score, failed = _score(chosen, self.federation)
        return {**cell.row, "score": score, "failed": failed}

    def begin_line(self, cell: AttackCell) -> str:
        """Return the line that announces a trial."""
        return str(cell)

    def end_line(self, cell: AttackCell, row: Row) -> str:
        """Return nothing: scores are in the table."""
        return ""

    def read_rows(self, directory: Directory) -> dict[AttackCell, Row]:
        """The trials of a directory."""
        scores = _read_scores(directory)
        return {} if scores is None else scores.rows()

    def begin(self, directory: Directory, rows: Mapping[AttackCell, Row]) -> None:
        """Nothing is written before the first trial is over."""

    def keep(self, directory: Directory, rows: Mapping[AttackCell, Row], row: Row) -> None:
        """Write the table of all trials so far."""
        scores = self.result(rows, None)
        directory.write_json(TRIALS, {**scores.as_dict(), "score": list(scores.score)})

    def result(self, rows: Mapping[AttackCell, Row], path: Path | None) -> "AttackScores":
        """The table of all trials so far."""
        tables: dict[str, Scores] = {}
        why: dict[str, dict[str, dict[str, str]]] = {}
        for cell, row in rows.items():
            tables.setdefault(cell.noise, {}).setdefault(cell.attack, {})[cell.rule] = row["score"]
            if row["failed"] is not None:
                why.setdefault(cell.noise, {}).setdefault(cell.rule, {})[cell.attack] = row["failed"]
        return AttackScores(
            name=self.experiment.name,
            score=self.experiment.task.goal,
            liars=self.liars,
            sites=len(self.federation),
            tables=tables,
            why=why,
            path=path,
        )


@dataclass(frozen=True, kw_only=True)
class AttackScores:
    """Scores of all trials.

    Args:
        name: The name of the experiment.
        score: The deciding score, and its good direction.
        liars: The number of malicious sites.
        sites: The number of all sites.
        tables: The scores, without noise and, under a privacy policy, with it.
        why: Reasons of missing scores, by noise, rule and attack.
        path: The directory of the batch.
    """

    name: str
    score: tuple[str, str]
    liars: int
    sites: int
    tables: dict[str, Scores]
    why: dict[str, dict[str, dict[str, str]]]
    path: Path | None

    def rows(self) -> dict[AttackCell, Row]:
        """The trials one by one."""
        cells = [
            (AttackCell(noise=noise, attack=attack, rule=rule), score)
            for noise, table in self.tables.items()
            for attack, row in table.items()
            for rule, score in row.items()
        ]
        reasons = {
            cell: self.why.get(cell.noise, {}).get(cell.rule, {}).get(cell.attack) for cell, _ in cells
        }
        return {cell: {**cell.row, "score": score, "failed": reasons[cell]} for cell, score in cells}

    def worst(self, noise: str) -> dict[str, float | None]:
        """The worst that any attack did to each rule; None if it was refused, or broke."""
        pick, table = (min if self.score[1] == "max" else max), self.tables[noise]
        found: dict[str, float | None] = {}
        for rule in table[NOBODY]:
            column = [row[rule] for row in table.values() if rule in row]
            known = [value for value in column if value is not None]
            found[rule] = pick(known) if len(known) == len(column) else None
        return found

    def summary(self) -> str:
        """Summarize the trials: a line for each attack, a column for each rule."""
        score = NAMES.get(self.score[0], self.score[0])
        return "\n\n".join(
            part
            for noise in self.tables
            for part in (
                f"{score} when {self.liars} of {self.sites} sites are dishonest, {noise} noise",
                self._table(noise),
                "\n".join(self._missing(noise)),
            )
            if part
        )

    def _table(self, noise: str) -> str:
        table = {**self.tables[noise], "worst": self.worst(noise)}
        refused = [rule for rule, score in table[NOBODY].items() if score is None]
        cells = [
            [name, *("-" if rule in refused else _cell(row, rule) for rule in table[NOBODY])]
            for name, row in table.items()
        ]
        return fit_table(["attack", *table[NOBODY]], cells)

    def _missing(self, noise: str) -> list[str]:
        """Return the reasons of missing scores; a rule that is refused is so for every attack."""
        return [
            f"{rule}, {attack}: {reason}"
            if self.tables[noise][NOBODY][rule] is not None
            else f"{rule}: {reason}"
            for rule, reasons in self.why.get(noise, {}).items()
            for attack, reason in reasons.items()
            if attack == NOBODY or self.tables[noise][NOBODY][rule] is not None
        ]

    def as_dict(self) -> dict[str, Any]:
        """The trials as one document."""
        worst = {noise: self.worst(noise) for noise in self.tables}
        told = {"name": self.name, "score": self.score[0], "liars": self.liars, "sites": self.sites}
        path = None if self.path is None else str(self.path)
        return {"run": path, **told, "tables": self.tables, "worst": worst, "why": self.why}

    def _repr_html_(self) -> str:
        from tacit.reports.page.html import tried_html

        return tried_html(self.as_dict())


def read(path: str | Path, changes: Sequence[str] = ()) -> AttackTrials:
    """Read an experiment file with a table [attack].

    Args:
        path: The file, or the directory of earlier trials, which keeps its own.
        changes: Changes to it: `attack.liars=2`, values written as in TOML.

    Raises:
        InvalidFile: The file, the table and the key at fault, and what is allowed instead.
    """
    return read_as(AttackTrials.construct, path, changes)


def has_attack_table(path: str | Path, changes: Sequence[str] = ()) -> bool:
    """Return True if a file, or the one that a directory keeps, has a table [attack] to be tried."""
    if (Path(path) / STATE).exists():
        # The directory of a single run, which had its attack.
        return False
    return read_as(lambda document, folder: "attack" in document, path, changes)


def load(path: str | Path) -> AttackScores | None:
    """Load the finished trials of a directory; None if it holds none."""
    return _read_scores(Directory(path)) if Path(path).is_dir() else None


def _read_scores(directory: Directory) -> AttackScores | None:
    told = directory.read_json(TRIALS)
    if told is None:
        return None
    name, direction = told["score"]
    kept = {key: told[key] for key in ("name", "liars", "sites", "tables", "why")}
    return AttackScores(**kept, score=(name, direction), path=directory.path)


def _score(experiment: Experiment, federation: Federation) -> tuple[float | None, str | None]:
    """Return the score that decides, or why there is none."""
    try:
        # Attacks may drive a model to infinity; that is a result, not an error.
        with np.errstate(all="ignore"):
            run = experiment.run_on(federation, None)
    except (Refused, TooFewSites) as error:
        return None, str(error)
    except InvalidValue as error:
        if experiment.attack is None:
            raise
        return None, f"the run failed: {error}"
    found = run.scores.get(experiment.task.goal[0])
    return found, None if found is not None else "there is no score"


def _attacks(asked: Table, folder: Path) -> dict[str, Attack]:
    """Read the attacks of a table: one with all its options, or several kinds with equally many attackers."""
    if "kind" in asked:
        require("kinds" not in asked, "[attack] kinds", asked.get("kinds"), "left out where kind is given")
        attack = build("attack", {"attack": asked}, folder, ATTACKS)
        require(isinstance(attack, Attack), "[attack] kind", asked["kind"], "derived from tacit's Attack")
        return {str(asked["kind"]): attack}
    kinds = _words("kinds", asked.pop("kinds", list(ATTACKS)))
    for kind in kinds:
        require_word("[attack] kinds", kind, ATTACKS)
    return {kind: construct(ATTACKS[kind], "attack", asked) for kind in kinds}


def _rule(word: str, liars: int) -> Aggregator:
    """Construct an aggregation rule by its kind, perhaps after a step, that tolerates `liars` sites."""
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


def _cell(row: Mapping[str, float | None], rule: str) -> str:
    if rule not in row:
        # Not tried yet.
        return ""
    score = row[rule]
    return BROKEN if score is None else f"{score:.3f}"


def _words(field: str, given: object) -> list[str]:
    entries = cast("list[object]", given) if isinstance(given, list) else list[object]()
    plain = bool(entries) and all(isinstance(entry, str) for entry in entries)
    require(plain, f"[attack] {field}", cast(object, given), "a list of kinds")
    return [str(entry) for entry in entries]
