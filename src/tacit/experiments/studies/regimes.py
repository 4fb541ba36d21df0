"""Regimes: ways to train on the same worlds, each an experiment of its own.

    alone       every site trains by itself, with as many steps as in the others
    federated   one model for all, without a privacy policy
    clustered   several models, each for a cluster of sites that learn alike
    private     one model for all, under the privacy policy of the file

A file may add custom regimes: tables [study.NAME] with their differences from the file.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from tacit.aggregation.defence.clustering import Clusters
from tacit.aggregation.mean import Mean
from tacit.aggregation.server import Plain
from tacit.control.sources import Gymnasium, RemoteWorlds
from tacit.errors import InvalidFile, TacitError, require
from tacit.experiments.experiment import KINDS, Experiment, construct_experiment
from tacit.privacy.policy import Open, Privacy
from tacit.runtime.tables import Table, build
from tacit.sites.environments import Variants
from tacit.sites.sampling import Poisson

ALONE, FEDERATED, CLUSTERED, PRIVATE = "alone", "federated", "clustered", "private"
OURS = (ALONE, FEDERATED, CLUSTERED, PRIVATE)
# The name of untrained policies among the regimes.
UNTRAINED = "untrained"
# Keys that a custom regime may not change: they are the same in all.
COMMON = ("name", "seed", "baselines", "study", "tune")
# One round in this many warms up one model for all, before sites are clustered.
WARM = 4


@dataclass(frozen=True)
class Regime:
    """A training regime.

    Args:
        name: Its name.
        experiment: Its experiment.
        label: Its label among all others, with its epsilon where there are several.
    """

    name: str
    experiment: Experiment
    label: str

    @property
    def epsilon(self) -> float | None:
        """Budget of a private regime, if one was set."""
        privacy = self.experiment.privacy
        return privacy.epsilon if isinstance(privacy, Privacy) else None


@dataclass(frozen=True)
class Regimes:
    """Builder of the regimes of a file.

    Args:
        document: The file, without its table [study].
        folder: The folder of the file.
        own: Its custom regimes, by name.
        epsilons: Budgets of private runs; by default as in [privacy].
        alone_copies: The number of copies of each world that train alone; by default as many as agents are
            judged in.
    """

    document: Table
    folder: Path
    own: Mapping[str, Mapping[str, Any]]
    epsilons: tuple[float, ...] | None
    alone_copies: int | None

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all regimes for which the file has the tables."""
        tables = {CLUSTERED: "clusters", PRIVATE: "privacy"}
        there = [name for name in OURS if tables.get(name, "task") in self.document]
        return (*there, *self.own)

    def common(self) -> Experiment:
        """Return the experiment that all regimes share: the file without privacy and clusters."""
        return construct_experiment(self._bare(), self.folder)

    def select(self, names: Sequence[str]) -> tuple[Regime, ...]:
        """The regimes of these names, the private one once for each epsilon."""
        common = self.common()
        found: list[Regime] = []
        for name in names:
            if name == PRIVATE:
                found += self._private(common)
            else:
                found.append(Regime(name, self._one(name, common), name))
        return tuple(found)

    def _one(self, name: str, common: Experiment) -> Experiment:
        if name == ALONE:
            return self._alone(common)
        if name == CLUSTERED:
            return replace(common, clusters=self._clusters(common))
        return common if name == FEDERATED else self._own(name)

    def _bare(self) -> Table:
        rest = {name: part for name, part in self.document.items() if name not in ("privacy", "clusters")}
        promise = self.promise()
        joins = 1.0 if promise is None else promise.participation
        return {**rest, "privacy": {"kind": Open.kind, "participation": joins}}

    def promise(self) -> Privacy | Open | None:
        """Return the file's privacy policy, at the first of several budgets."""
        table = self.document.get("privacy")
        if table is None or not isinstance(table, dict) or not self.epsilons:
            return None if table is None else build("privacy", self.document, self.folder, KINDS["privacy"])
        priced = {**cast(Table, table), "epsilon": self.epsilons[0]}
        return build("privacy", {"privacy": priced}, self.folder, KINDS["privacy"])

    def _private(self, common: Experiment) -> list[Regime]:
        promise = self.promise()
        if not isinstance(promise, Privacy):
            raise InvalidFile(
                f'[study] regimes has "{PRIVATE}", and [privacy] is '
                f"{'missing' if promise is None else 'open'}: give a promise, or remove the regime"
            )
        if self.epsilons is None:
            return [Regime(PRIVATE, replace(common, privacy=promise), PRIVATE)]
        several = len(self.epsilons) > 1
        return [
            Regime(
                PRIVATE,
                replace(common, privacy=replace(promise, epsilon=epsilon)),
                f"{PRIVATE} {epsilon:g}" if several else PRIVATE,
            )
            for epsilon in self.epsilons
        ]

    def _alone(self, common: Experiment) -> Experiment:
        """Return every site on its own, with as many steps as it would have in the others."""
        sites = common.sites
        if isinstance(sites, Variants):
            judged = min(sites.scenes, sites.each)
            most = judged if self.alone_copies is None else self.alone_copies
            allowed = (
                f"at least {judged}: agents are evaluated in the environments of that number of copies, "
                "[sites] scenes"
            )
            require(most >= judged, "[study] alone_copies", most, allowed)
            sites = replace(sites, copies=most) if most < sites.each else sites
        return replace(
            common,
            clusters=Clusters(by="site"),
            sites=sites,
            rounds=max(round(common.rounds * common.privacy.participation), 1),
            privacy=Open(),
            # A cluster of one site needs no rule other than the mean.
            aggregation=Mean(),
            server=Plain(),
            sampling=Poisson(),
            quarantine=None,
        )

    def _clusters(self, common: Experiment) -> Clusters:
        if "clusters" in self.document:
            return build("clusters", self.document, self.folder, KINDS["clusters"])
        variants = len(common.sites.variants) if isinstance(common.sites, Variants) else 0
        if variants < 2:
            raise InvalidFile(
                f'[study] regimes has "{CLUSTERED}", and the number of models is missing: give a table '
                "[clusters], or several kinds of environments in [sites]"
            )
        return Clusters(count=variants, by="direction", warm=common.rounds // WARM)

    def _own(self, name: str) -> Experiment:
        try:
            return construct_experiment(merge(self._bare(), self.own[name]), self.folder)
        except TacitError as error:
            raise InvalidFile(f"[study.{name}] {error}") from error


def require_own(own: Mapping[str, Mapping[str, Any]]) -> None:
    """Refuse regimes with the name of another, or with options that all regimes share."""
    for name, table in own.items():
        plain = re.fullmatch(r"[\w+-][\w.+-]*", name) is not None
        require(plain, "regime", name, "letters, digits and . _ + - alone: it names a directory")
        if name in (*OURS, UNTRAINED):
            raise InvalidFile(f"[study.{name}] has a name that is taken: call your own regime something else")
        for key in COMMON:
            if key in table:
                raise InvalidFile(f"[study.{name}] {key} is not allowed: it is the same in all regimes")


def merge(document: Mapping[str, Any], changes: Mapping[str, Any]) -> Table:
    """Merge changes into a document, key by key; a table of another kind replaces the first.

    A table [privacy] is never merged: a given one replaces the whole.
    """
    found = dict(document)
    for key, value in changes.items():
        mixed = key != "privacy" and isinstance(found.get(key), dict) and isinstance(value, dict)
        found[key] = _merge_table(found[key], cast(Table, value)) if mixed else value
    return found


def _merge_table(held: Table, given: Table) -> Table:
    another = "kind" in given and given["kind"] != held.get("kind")
    return given if another else merge(held, given)


def world_source(experiment: Experiment) -> Gymnasium | RemoteWorlds:
    """The environments of an experiment; a source of a user's own stands for one, under its kind."""
    data = experiment.data
    if isinstance(data, Gymnasium | RemoteWorlds):
        return data
    return Gymnasium(env=data.kind, episodes=1, watch=1)
