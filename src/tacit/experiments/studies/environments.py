"""One experiment in environments, repeated over regimes of training, promises and seeds.

The table [study] says what varies, and a cell is a regime, what it may cost, and a seed: trained, and judged
in Gymnasium. Reading one touches no environment.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, cast

from tacit.aggregation.defence.kmeans import agreement
from tacit.errors import InvalidFile, Refused, TacitError, require_count, require_positive, require_word
from tacit.experiments.batch import (
    Cell,
    CellBatch,
    Row,
    finite,
    finite_scores,
    join_words,
    require_distinct,
    row_of,
    without_workers,
)
from tacit.experiments.experiment import Experiment
from tacit.experiments.studies.regimes import (
    OURS,
    PRIVATE,
    UNTRAINED,
    Regime,
    Regimes,
    require_own,
    world_source,
)
from tacit.learning.record import Round
from tacit.privacy.policy import Open, Provenance
from tacit.runs.directory import Directory
from tacit.runtime.keys import Key
from tacit.runtime.tables import Table, construct, portable
from tacit.runtime.threads import cores
from tacit.sites.environments import EnvFederation

if TYPE_CHECKING:
    from tacit.control.agents.policy import Policy
    from tacit.experiments.studies.environment_results import WorldStudyResult
    from tacit.runs.run import Run
    from tacit.sites.environments import Scenes
    from tacit.sites.federation import Federation

# The folder of the runs in the directory of a study.
RUNS = "runs"


@dataclass(frozen=True, kw_only=True)
class WorldFactors:
    """Factors of a study in environments: the table [study]; a table [study.NAME] is a custom regime.

    Args:
        regimes: The regimes, `alone`, `federated`, `clustered`, `private` or custom ones; by default all that
            the file has the tables for.
        epsilons: Budgets of private runs, in turn; by default as in [privacy].
        replicates: The number of repetitions, each with the next seed.
        alone_copies: The largest number of copies of each kind of world that train alone; by default as many
            as agents are judged in.
        films: Film the agents of one regime, once in each kind of world.
        workers: The number of processes; by default the number of cores, or one for compiled worlds, of which
            a run uses all cores.
        own: The changes to the file in each custom regime.
    """

    regimes: tuple[str, ...] | None = None
    epsilons: tuple[float, ...] | None = None
    replicates: int = 1
    alone_copies: int | None = None
    films: bool = True
    workers: int | None = None
    own: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])

    def __post_init__(self) -> None:
        require_count("replicates", self.replicates)
        for name, count in (("alone_copies", self.alone_copies), ("workers", self.workers)):
            if count is not None:
                require_count(name, count)
        require_distinct(regimes=self.regimes, epsilons=self.epsilons)
        for epsilon in self.epsilons or ():
            require_positive("epsilons", epsilon)
        require_own(self.own)

    @classmethod
    def from_table(cls, table: Mapping[str, Any]) -> Table:
        """A table of a file with its own tables as the regimes that they name."""
        known = set(cls.__dataclass_fields__)
        named = {key: table[key] for key in table if isinstance(table[key], dict) and key not in known}
        rest = {key: value for key, value in table.items() if key not in named}
        return {**rest, "own": {**rest.get("own", {}), **named}} if named else rest


@dataclass(frozen=True, kw_only=True)
class WorldCell(Cell):
    """One run of a study in environments.

    Args:
        regime: The training regime, or `untrained`.
        epsilon: The budget, if one was set.
        seed: The seed.
    """

    regime: str
    epsilon: float | None
    seed: int

    def __str__(self) -> str:
        price = "" if self.epsilon is None else f", epsilon {self.epsilon:g}"
        return f"{self.regime}{price}, seed {self.seed}"

    @property
    def group(self) -> tuple[str, float | None]:
        """Its regime."""
        return self.regime, self.epsilon

    @property
    def folder(self) -> str:
        """Name of the run's directory."""
        price = "" if self.epsilon is None else f"-epsilon-{self.epsilon:.12g}"
        return f"{self.regime}{price}-seed-{self.seed}"


@dataclass(frozen=True, kw_only=True)
class WorldStudy(CellBatch[WorldCell, "WorldStudyResult"]):
    """Study in environments: an experiment file with a table [study].

    Args:
        experiment: The part that all regimes share.
        regimes: The regimes, each with its experiment.
        seeds: The seeds; worlds and evaluation episodes are the same for one seed.
        films: True if agents are filmed.
        document: As for any batch; so are `folder` and `workers`.
    """

    regimes: tuple[Regime, ...]
    seeds: tuple[int, ...]
    films: bool

    @classmethod
    def construct(cls, document: Table, folder: Path) -> Self:
        """Construct the study of a document."""
        factors = construct(WorldFactors, "study", document["study"])
        rest = {name: part for name, part in document.items() if name != "study"}
        _refuse(rest, factors)
        regimes = Regimes(rest, folder, factors.own, factors.epsilons, factors.alone_copies)
        names = regimes.names if factors.regimes is None else factors.regimes
        _require_regimes(names, factors)
        common, chosen = regimes.common(), regimes.select(names)
        return cls(
            experiment=common,
            regimes=chosen,
            seeds=tuple(common.seed + number for number in range(factors.replicates)),
            films=factors.films,
            document=without_workers(portable(document, folder)),
            folder=folder,
            workers=factors.workers or (1 if _has_compiled_worlds(chosen) else cores()),
        )

    @property
    def cells(self) -> tuple[WorldCell, ...]:
        """Every regime with every seed, preceded by an untrained policy."""
        kinds = [(UNTRAINED, None), *((regime.name, regime.epsilon) for regime in self.regimes)]
        return tuple(
            WorldCell(regime=name, epsilon=epsilon, seed=seed)
            for seed in self.seeds
            for name, epsilon in kinds
        )

    @property
    def example(self) -> Experiment:
        """One of the runs, with a promise if any has one."""
        every = [regime.experiment for regime in self.regimes]
        private = [each for each in every if not isinstance(each.privacy, Open)]
        return (private or every)[0]

    @property
    def size(self) -> str:
        """Regimes and number of seeds, in words."""
        listed = join_words([regime.label for regime in self.regimes])
        times = f"; {len(self.seeds)} seeds each" if len(self.seeds) > 1 else ""
        return f"{listed}, beside untrained policies{times}"

    def condition(self, cell: WorldCell) -> str:
        """Return the label of a cell's regime."""
        return UNTRAINED if cell.regime == UNTRAINED else self.regime(cell).label

    def regime(self, cell: WorldCell) -> Regime:
        """The regime of a cell that is trained."""
        return next(each for each in self.regimes if (each.name, each.epsilon) == cell.group)

    def check(self) -> None:
        """Refuse options that no run of the study could have, before anything is trained."""
        self._require_public()
        for regime in self.regimes:
            try:
                _ = regime.experiment.plan()
            except TacitError as error:
                raise type(error)(f"regime {regime.label}: {error}") from error

    def _require_public(self) -> None:
        """Refuse private worlds outside a rehearsal: each run would charge a ledger of its own."""
        promises = [regime.experiment.privacy for regime in self.regimes]
        real = [promise for promise in promises if not isinstance(promise, Open) and not promise.rehearsal]
        if real and not self.experiment.data.public:
            raise Refused(
                "[study] does not go with a promise about private environments: every run would charge its "
                "own ledger. Give [privacy] rehearsal = true, or run one experiment"
            )

    def run_cell(self, cell: WorldCell, place: Path | None) -> Row:
        """Run a cell and return its row; its run has a directory of its own."""
        if cell.regime == UNTRAINED:
            chosen = experiment_for(self.experiment, cell)
            return row_of(cell, lambda: _untrained_row(chosen))
        chosen = experiment_for(self.regime(cell).experiment, cell)
        return row_of(cell, lambda: _train(chosen, None if place is None else place / RUNS / cell.folder))

    def outcome(self, row: Row) -> str:
        """Return the mean return and the duration of a run, in words."""
        spent = "" if row["spent"] is None else f" at epsilon {row['spent']:.4g}"
        took = "" if row["seconds"] is None else f", {row['seconds']:.1f} s"
        return f"return {row['scores'].get('return', float('nan')):.1f}{spent}{took}"

    def result(self, rows: Mapping[WorldCell, Row], path: Path | None) -> "WorldStudyResult":
        """Return the results of the study."""
        from tacit.experiments.studies.environment_results import WorldStudyResult

        return WorldStudyResult(batch=self, rows=rows, path=path)


def experiment_for(experiment: Experiment, cell: WorldCell) -> Experiment:
    """The experiment of a cell: that of its regime, with its seed."""
    return replace(experiment, name=cell.folder, seed=cell.seed, baselines=False)


def steps_until(
    experiment: Experiment, rounds: Sequence[Round], end: int | None = None
) -> tuple[float, float]:
    """Count environment steps until the end of a round: of one site, and of all sites together.

    With secret participation these are expected counts.

    Args:
        experiment: The experiment.
        rounds: Its rounds.
        end: The number of the round; by default the last.
    """
    sites, joins = len(experiment.names or ()), experiment.privacy.participation
    came = [sites * joins if entry.sites is None else entry.sites for entry in rounds[:end]]
    every = sum(came) * experiment.task.steps
    return every / sites, every


def world_kinds(federation: "Federation") -> dict[str, str]:
    """The kind of world that each site has; nothing where kinds have no names."""
    held = federation.holdings if isinstance(federation, EnvFederation) else {}
    found = {name: worlds[0].label for name, worlds in held.items()}
    return found if all(found.values()) else {}


@dataclass(frozen=True)
class FinishedRun:
    """A run of a study that has a score: its cell, its regime and its directory."""

    cell: WorldCell
    regime: Regime
    place: Path

    @property
    def rounds(self) -> list[Round]:
        """Rounds of the run, from its directory."""
        return Directory(self.place).rounds()

    @property
    def federation(self) -> "Federation":
        """The sites with their worlds."""
        return experiment_for(self.regime.experiment, self.cell).open_federation()

    @property
    def kinds(self) -> dict[str, str]:
        """The kind of world that each site has."""
        return world_kinds(self.federation)

    def cluster_rows(self) -> list[Row]:
        """Return the cluster of each site after every round; none if sites learn one model, or alone."""
        clusters = self.regime.experiment.clusters
        if clusters is None or clusters.by == "site":
            return []
        known = self.kinds
        return [
            {"site": site, "world": known[site], "round": entry.number, "cluster": str(cluster)}
            | ({"phase": "together" if entry.number < clusters.warm else "apart"} if clusters.warm else {})
            for entry in self.rounds
            for site, cluster in entry.clusters.items()
            if site in known
        ]


def finished_runs(studied: "WorldStudyResult", *, first: bool = False) -> Iterator[FinishedRun]:
    """Yield the runs with a score, optionally of the first seed alone; none without a directory."""
    for cell in studied.batch.cells:
        done = cell in studied.rows and studied.rows[cell]["failed"] is None
        asked = cell.regime != UNTRAINED and (not first or cell.seed == studied.batch.seeds[0])
        if done and asked and studied.path is not None:
            yield FinishedRun(cell, studied.batch.regime(cell), studied.path / RUNS / cell.folder)


def _train(chosen: Experiment, place: Path | None) -> Row:
    federation = chosen.open_federation()
    # An interrupted run resumes.
    begun = place is not None and place.exists()
    if place is not None:
        place.parent.mkdir(parents=True, exist_ok=True)
    began = time.perf_counter()
    run = chosen.run_on(federation, place, resume=begun)
    seconds = None if begun else time.perf_counter() - began
    each, every = steps_until(chosen, run.record.rounds)
    promise = run.privacy
    return {
        "unit": promise.unit,
        "spent": finite(promise.epsilon),
        "delta": promise.delta,
        "sites": len(chosen.names or ()),
        "rounds": len(run.record.rounds),
        "steps": each,
        "steps_in_all": every,
        "seconds": seconds,
        "scores": finite_scores(run.scores),
        "agreement": _agreement(chosen, run, federation),
    }


def _agreement(chosen: Experiment, run: "Run", federation: "Federation") -> float | None:
    """Return the agreement of the clusters found with the kinds of worlds; None without clusters."""
    known = world_kinds(federation)
    if chosen.clusters is None or chosen.clusters.by == "site" or not run.clusters or not known:
        return None
    return agreement(run.clusters, known)


def _untrained_row(chosen: Experiment) -> Row:
    """Score the initial weights, from which every run of this seed starts.

    Actions are sampled: the likeliest action of untrained weights is arbitrary, so that a greedy policy may
    fall like a stone or hover for ever.
    """
    chosen = replace(chosen, privacy=Open())
    federation = chosen.open_federation()
    began = time.perf_counter()
    task = chosen.task.with_privacy(chosen.privacy).bind(
        federation, Provenance(Open(), public=federation.public)
    )
    start = task.start(federation, Key(chosen.seed) / "start")
    scores = _random_returns(task.model(start), cast("Scenes | None", federation.held_out))
    return {
        "unit": None,
        "spent": None,
        "delta": None,
        "sites": len(chosen.names or ()),
        "rounds": 0,
        "steps": 0.0,
        "steps_in_all": 0.0,
        "seconds": time.perf_counter() - began,
        "scores": finite_scores(scores),
        "agreement": None,
    }


def _random_returns(policy: "Policy", scenes: "Scenes | None") -> dict[str, float]:
    """Return the scores of a policy whose actions are sampled."""
    from tacit.control.agents.evaluation import summarise

    if scenes is None:
        return {}
    returns = [
        policy.play(world, scenes.episodes, seed=scenes.seed + place, deterministic=False)
        for place, world in enumerate(scenes.worlds)
    ]
    return summarise(returns, scenes, Key(scenes.seed) / "bootstrap")


def _refuse(document: Table, factors: WorldFactors) -> None:
    """Refuse options given both in [study] and in a table of their own, and attacks in all regimes."""
    if "attack" in document:
        raise InvalidFile(
            "it has a table [attack], which would attack every regime: put it into a regime of its own, such "
            "as [study.lied-to] attack = { ... }"
        )
    privacy = document.get("privacy")
    for key in ("epsilon", "noise_multiplier"):
        if factors.epsilons is not None and isinstance(privacy, dict) and key in privacy:
            raise InvalidFile(
                f"[privacy] {key} is given twice: remove it, [study] epsilons gives it for every run"
            )


def _require_regimes(names: tuple[str, ...], factors: WorldFactors) -> None:
    for name in names:
        try:
            require_word("regimes", name, (*OURS, *factors.own))
        except TacitError as error:
            raise InvalidFile(f"[study] {error}, or the name of a table [study.NAME]") from error
    if factors.epsilons is not None and PRIVATE not in names:
        raise InvalidFile(
            f'[study] epsilons = {list(factors.epsilons)} are for the regime "{PRIVATE}": add it to regimes, '
            "or leave them out"
        )
    for name in factors.own:
        if name not in names:
            raise InvalidFile(f"[study.{name}] is not used: add {name!r} to regimes, or leave the table out")


def _has_compiled_worlds(regimes: tuple[Regime, ...]) -> bool:
    """Return True if some worlds are compiled, so that one run uses all cores."""
    return any(world_source(regime.experiment).world == "fast-lander" for regime in regimes)
