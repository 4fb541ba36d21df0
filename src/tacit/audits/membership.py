"""Membership inference: attacks without and with the privacy policy, and the proven bound.

The experiment is repeated many times, each time with a random half of its records, so that each model's
training records are known. The attacker computes the loss of a model on a record, and compares it with
shadow models that were trained with the record and without it. The attacker is strong: it has the record,
and others like it to train models of its own. It sees the last model alone; the proven bound also holds for
an attacker who sees all releases.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from tacit.audits.lower_bounds import power
from tacit.audits.membership_statistics import (
    FEW_ALARMS,
    FEWEST_MODELS,
    attack,
    lira,
    membership_scores,
    roc,
    tpr_at_fpr,
)
from tacit.errors import InvalidValue, Refused, require
from tacit.experiments.experiment import Experiment
from tacit.functional.tasks import Boosting
from tacit.learning.record import Tell, silent
from tacit.privacy.accounting.release import Release
from tacit.privacy.policy import Open, Privacy, Provenance
from tacit.runtime.keys import Key
from tacit.sites.federation import Federation, require_rows
from tacit.sites.vertical import Subjects, VerticalFederation

if TYPE_CHECKING:
    from tacit.runs.run import Run

Array = NDArray[np.float64]
Marks = NDArray[np.bool_]
AttackSetting = dict[str, Any]

SHADOWS = 16
# Half of a site's records must be enough to train on, however the coins fall.
FEWEST = 16
# Points of the curve of the proven bound.
POINTS = 101
PEOPLE = "people in the study"


@dataclass(frozen=True, kw_only=True)
class Membership:
    """Result of membership inference.

    Args:
        unit: The attacked unit: `record`, or `episode`.
        models: The number of models in each setting; each is the target once, the others its shadows.
        records: The number of records, or episodes.
        members: The number of pairs of a model and a record that it was trained on.
        others: The number of pairs of a model and a record that it was not trained on.
        settings: The findings without and with the policy, as `setting` returns them.
        who: The plural noun of the attacked unit.
    """

    unit: str
    models: int
    records: int
    members: int
    others: int
    settings: tuple[AttackSetting, ...]
    who: str = PEOPLE

    @property
    def sentence(self) -> str:
        """Result in one sentence for lay readers."""
        return sentence(self.settings, self.who)

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        found = {name: value for name, value in vars(self).items() if name != "settings"}
        return {
            "kind": "membership", **found, "settings": list(self.settings), "sentence": self.sentence
        }  # fmt: skip


def membership(
    experiment: Experiment,
    federation: Federation,
    *,
    shadows: int = SHADOWS,
    seed: int = 0,
    tell: Tell = silent,
) -> Membership:
    """Attack the models of an experiment: without protection, and under its privacy policy if it has one.

    Args:
        experiment: The experiment that is repeated: its task, rounds and policy, without early stopping,
            synthetic records, attacks and baselines.
        federation: Its sites, opened.
        shadows: The number of shadow models.
        seed: The seed of the halves and of each model.
        tell: Receives progress.

    Raises:
        Refused: The result would reveal protected records, or cannot be computed.
        InvalidValue: A site is too small to train on half of it.
    """
    require(shadows + 1 >= FEWEST_MODELS, "shadows", shadows, f"at least {FEWEST_MODELS - 1}")
    _require_attackable(experiment, federation)
    key = Key(seed) / "membership"
    drawn = [_half(federation, key / "half" / number) for number in range(shadows + 1)]
    present = np.stack([marks for marks, _ in drawn])
    promises: dict[str, Privacy | Open] = {"open": Open(participation=experiment.privacy.participation)}
    if isinstance(experiment.privacy, Privacy):
        promises["private"] = experiment.privacy
    parts = [part for _, part in drawn]
    found: list[AttackSetting] = []
    for name, promise in promises.items():
        asked = replace(experiment, privacy=promise, stop=None, augment=None, attack=None, baselines=False)
        runs, scores = _train_runs(asked, federation, parts, key, partial(tell, f"training {name} models"))
        found.append(_attack_setting(name, runs, scores, present))
    many = int(present.sum())
    return Membership(
        unit="record", models=len(present), records=present.shape[1], members=many,
        others=present.size - many, settings=tuple(found),
    )  # fmt: skip


def setting(
    name: str,
    epsilon: float | None,
    delta: float | None,
    score: tuple[str, float | None],
    scores: Array,
    present: Marks,
    releases: Sequence[Release],
) -> AttackSetting:
    """Compute the attacks of one setting, as plain data.

    Args:
        name: The name of the setting: `open`, `private`.
        epsilon: The promised epsilon, if any.
        delta: The delta of the promise.
        score: The name of the models' score, and its value if it is known.
        scores: The score of each model on each record, high for members (models, records).
        present: True where the model was trained on the record, of the same shape.
        releases: The releases of one model; empty without a promise.
    """
    return {
        "name": name,
        "epsilon": epsilon,
        "delta": delta,
        "score": list(score),
        "attacks": {"lira": _attack(lira(scores, present), present), "loss": _attack(scores, present)},
        "ceiling": _ceiling(releases),
    }


def sentence(settings: Sequence[AttackSetting], who: str = PEOPLE) -> str:
    """Summarize the better attack of each setting in one sentence for lay readers.

    Args:
        settings: The settings, as `setting` returns them.
        who: The plural noun of the attacked unit.
    """
    found = [(each["name"], best_hit_count(each)) for each in settings]
    (first, many), *others = found
    rest = "".join(f", and {number} from the {name} one" for name, number in others)
    # A random guess finds as many members as its share of false alarms.
    alarm = f"at one false alarm in {round(1 / FEW_ALARMS)} others, where guessing identifies 1"
    told = f"Of 100 {who} an attacker would identify {many} from the {first} model{rest}, {alarm}"
    kept = next((each for each in settings if each["ceiling"] is not None), None)
    if kept is None:
        return f"{told}; there is no promise, so a better attacker may identify more."
    most = kept["ceiling"]["named"]
    if max(each["low"] for each in kept["attacks"].values()) > most:
        return (
            f"{told}; no attacker should identify more than {most}: the promise is broken, or it was chance."
        )
    proven = "proven for the same run with secret noise" if kept["ceiling"]["rehearsal"] else "proven"
    return f"{told}; {proven}: no attacker can identify more than {most}."


def best_hit_count(found: Mapping[str, Any]) -> int:
    """Return the number of members among 100 that the better attack of a setting names."""
    return max(each["named"] for each in found["attacks"].values())


def _require_attackable(experiment: Experiment, federation: Federation) -> None:
    """Refuse protected records, remote records, and tasks without single records."""
    provenance = Provenance(experiment.privacy, public=federation.public)
    way_out = "attack an experiment on simulated or published data, or declare a rehearsal"
    provenance.look("the loss of models on single records", instead=way_out)
    if federation.distant:
        raise Refused("the records are at the sites: an attack needs them on this machine")
    if experiment.task.layout == "environments":
        raise Refused(f"{experiment.task.kind} learns from episodes, not from records: attack its episodes")
    if experiment.clusters is not None:
        raise Refused("[clusters] trains several models, and an attack needs one: leave it out")
    if isinstance(federation, VerticalFederation):
        return
    sizes = federation.cohort(list(federation)).sizes
    for name, size in zip(federation, sizes.tolist(), strict=True):
        if size < FEWEST:
            raise InvalidValue(
                f"site {name} holds {size} records, and half of them are trained on: it must hold at least "
                f"{FEWEST}; take fewer sites, or more records"
            )


def _half(federation: Federation, key: Key) -> tuple[Marks, Federation]:
    """Draw a random half of the records: its members, and the federation with them alone."""
    draws = key.generator()
    if not isinstance(federation, VerticalFederation):
        # A coin for each, since the promise is about one record more or less.
        sites = require_rows(federation)
        marks = draws.random(len(sites.store)) < 0.5
        return marks, sites.split(marks, 0.5)[1]
    # The number of subjects is public, and the relation is replacement: draw exactly half.
    count = len(federation.subjects)
    marks = draws.permutation(count) < count // 2
    taken = federation.subjects.take(np.flatnonzero(marks))
    part = VerticalFederation(
        {party: {name: taken[name] for name in held} for party, held in federation.holdings.items()},
        held_out=cast(Subjects | None, federation.held_out),
        held_out_public=federation.held_out_public,
        public=federation.public,
        origin=federation.origin,
        order=list(taken.columns),
        taken=federation.taken,
    )
    return marks, part


def _train_runs(
    experiment: Experiment,
    federation: Federation,
    parts: Sequence[Federation],
    key: Key,
    tell: Callable[[float], None],
) -> "tuple[list[Run], Array]":
    """Train a model on each part, and score each on all records (models, records)."""
    runs: list[Run] = []
    scores: list[Array] = []
    for number, part in enumerate(parts):
        tell(number / len(parts))
        runs.append(replace(experiment, seed=_seed(key / "seed" / number)).run_on(part, None))
        scores.append(_score(runs[-1], federation))
    return runs, np.stack(scores)


def _seed(key: Key) -> int:
    """Derive the seed of a model, so that no two have the same noise."""
    return int(key.generator().integers(2**31))


def _score(run: "Run", federation: Federation) -> Array:
    """Return a model's score on each record or subject: minus its loss."""
    task = run.task
    if isinstance(federation, VerticalFederation):
        curves = cast("Boosting", task)
        columns = federation.subjects.columns
        seen = curves.coordinates_of(curves.response, federation.subjects[curves.response])
        return membership_scores(seen, run.model.coordinates(columns))["loss"]
    store = require_rows(federation).store
    losses = task.losses(run.state, store)
    if losses.shape != (len(store),):
        raise Refused(
            f"{task.kind} has no loss of a single record to attack by: it couples every record at risk. "
            "Attack logistic-hazard, or poisson-ph, whose losses are sums over records"
        )
    return -losses


def _attack_setting(name: str, runs: "Sequence[Run]", scores: Array, present: Marks) -> AttackSetting:
    """Attack the models of all runs of one setting; state the price of the most expensive."""
    goal = runs[0].task.goal[0]
    known = [run.scores[goal] for run in runs if goal in run.scores]
    dearest = max(runs, key=lambda run: run.privacy.epsilon or 0.0)
    statement = dearest.privacy
    return setting(
        name,
        statement.epsilon,
        None if statement.epsilon is None else statement.delta,
        (goal, float(np.mean(known)) if known else None),
        scores,
        present,
        dearest.charged,
    )


def _attack(scores: Array, present: Marks) -> dict[str, Any]:
    inside, outside = scores[present], scores[~present]
    found = attack(inside, outside, alarms=FEW_ALARMS)
    return {"auc": found.auc, **tpr_at_fpr(scores, present).as_dict(), "roc": roc(inside, outside)}


def _ceiling(releases: Sequence[Release]) -> dict[str, Any] | None:
    """Return the proven bound on any attack on one record; None if nothing was released under a promise."""
    if not releases:
        return None
    # A record more or less replaces one site by another, so site-level promises cover it under replacement.
    about = [each.under_replacement() if each.unit == "site" else each for each in releases]
    false = np.concatenate([np.logspace(-4, 0, POINTS), [FEW_ALARMS]])
    true = power(about, false)
    return {
        "false": false[:-1].tolist(),
        "true": true[:-1].tolist(),
        "named": math.ceil(100 * float(true[-1])),
        "rehearsal": any(each.rehearsal for each in releases),
    }
