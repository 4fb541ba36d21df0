"""The table [study] of worlds: which regimes, at what prices, how often. Reading one touches no world."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from tacit.errors import (
    InvalidFile,
    Refused,
    TacitError,
    require,
    require_count,
    require_positive,
    require_word,
)
from tacit.experiments.experiment import Experiment
from tacit.experiments.studies.base import Row, Study, Table
from tacit.experiments.studies.environments.cells import WorldCell, score_cell
from tacit.experiments.studies.environments.regimes import (
    OURS,
    PRIVATE,
    UNTRAINED,
    Regime,
    Regimes,
    require_own,
)
from tacit.privacy.policy import Open
from tacit.runtime.tables import construct, portable
from tacit.runtime.threads import cores

if TYPE_CHECKING:
    from tacit.experiments.studies.environments.result import WorldStudyResult


@dataclass(frozen=True, kw_only=True)
class WorldFactors:
    """What is varied; every table [study.NAME] is a regime of the file's own.

    Args:
        regimes: Which ones, `alone`, `federated`, `clustered`, `private` or the file's own; all that the file
            has what they need for if not said.
        epsilons: What private runs may cost, in turn; as in [privacy] if not said.
        replicates: How often everything is repeated, each time with the next seed.
        alone_copies: How many copies of each kind of world train alone at most; as many as agents are judged
            in if not said. A thousand lonely agents teach nothing.
        films: Whether to film the agents of one regime, once in each kind of world.
        workers: How many processes share the work; if not said as many as there are cores, or one where
            worlds are compiled, since a run uses all cores then.
        own: What differs from the file in each regime of its own.
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
        for name in ("alone_copies", "workers"):
            if getattr(self, name) is not None:
                require_count(name, getattr(self, name))
        for name in ("regimes", "epsilons"):
            _require_distinct(name, getattr(self, name))
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
class WorldStudy(Study[WorldCell]):
    """What an experiment file with a table [study] asks for, in worlds.

    Args:
        experiment: What all regimes have in common.
        regimes: The regimes, each with the experiment that it is.
        seeds: What runs repeat by; the worlds and what agents are judged by are the same for one seed.
        films: Whether agents are filmed.
        document: As for any study; so are `folder` and `workers`.
    """

    regimes: tuple[Regime, ...]
    seeds: tuple[int, ...]
    films: bool

    @property
    def cells(self) -> tuple[WorldCell, ...]:
        """Every regime with every seed, and before them a policy that nobody has trained."""
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
        """Which regimes there are, and how many seeds."""
        *most, last = [regime.label for regime in self.regimes]
        listed = f"{', '.join(most)} and {last}" if most else last
        times = f"; {len(self.seeds)} seeds each" if len(self.seeds) > 1 else ""
        return f"{listed}, beside untrained policies{times}"

    def regime(self, cell: WorldCell) -> Regime:
        """The regime of a cell that is trained."""
        return next(each for each in self.regimes if (each.name, each.epsilon) == (cell.regime, cell.epsilon))

    def check(self) -> None:
        """Refuse what no run of it could have, before anything is trained."""
        self._require_public()
        for regime in self.regimes:
            try:
                _ = regime.experiment.plan()
            except TacitError as error:
                raise type(error)(f"regime {regime.label}: {error}") from error

    def _require_public(self) -> None:
        """Refuse worlds that are somebody's, where each run would name its own price."""
        promises = [regime.experiment.privacy for regime in self.regimes]
        real = [promise for promise in promises if not isinstance(promise, Open) and not promise.rehearsal]
        if real and not getattr(self.experiment.data, "public", False):
            raise Refused(
                "[study] does not go with a promise about worlds that are somebody's: every run would be "
                "charged on a ledger of its own. Give [privacy] rehearsal = true, or run one experiment"
            )

    def run_cell(self, cell: WorldCell, place: Path | None) -> Row:
        """The row of a cell; what else a run leaves is in a directory of its own."""
        own = self.experiment if cell.regime == UNTRAINED else self.regime(cell).experiment
        return score_cell(own, cell, place)

    def outcome(self, row: Row) -> str:
        """What agents bring in, and how long that took."""
        spent = "" if row["spent"] is None else f" at epsilon {row['spent']:.4g}"
        took = "" if row["seconds"] is None else f", {row['seconds']:.1f} s"
        return f"return {row['scores'].get('return', float('nan')):.1f}{spent}{took}"

    def cell_of(self, row: Row) -> WorldCell:
        """The cell that a row is about."""
        return WorldCell(regime=row["regime"], epsilon=row["epsilon"], seed=row["seed"])

    def result(self, rows: Mapping[WorldCell, Row], path: Path | None) -> "WorldStudyResult":
        """What came of it."""
        from tacit.experiments.studies.environments.result import WorldStudyResult

        return WorldStudyResult(study=self, rows=rows, path=path)


def construct_study(document: Table, folder: Path) -> WorldStudy:
    """The study that a document says."""
    factors = construct(WorldFactors, "study", document["study"])
    rest = {name: part for name, part in document.items() if name != "study"}
    _refuse(rest, factors)
    regimes = Regimes(rest, folder, factors.own, factors.epsilons, factors.alone_copies)
    names = regimes.names if factors.regimes is None else factors.regimes
    _require_regimes(names, factors)
    common, chosen = regimes.common(), regimes.select(names)
    return WorldStudy(
        experiment=common,
        regimes=chosen,
        seeds=tuple(common.seed + number for number in range(factors.replicates)),
        films=factors.films,
        document=_without_workers(portable(document, folder)),
        folder=folder,
        workers=factors.workers or (1 if _has_compiled_worlds(chosen) else cores()),
    )


def _without_workers(document: Table) -> Table:
    """The document without the number of processes: a study may be resumed on another machine."""
    document["study"].pop("workers", None)
    return document


def _refuse(document: Table, factors: WorldFactors) -> None:
    """Refuse what is said in [study] and in a table of its own as well, and liars in all regimes."""
    if "attack" in document:
        raise InvalidFile(
            "it has a table [attack], which would lie in every regime: put it into one of its own, such as "
            "[study.lied-to] attack = { ... }"
        )
    privacy = document.get("privacy")
    for key in ("epsilon", "noise_multiplier"):
        if factors.epsilons is not None and isinstance(privacy, dict) and key in privacy:
            raise InvalidFile(
                f"[privacy] {key} is said twice: leave it out, [study] epsilons says it for every run"
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
    """Whether some worlds are compiled, so that one run keeps all cores busy."""
    return any(getattr(regime.experiment.data, "world", "") == "fast-lander" for regime in regimes)


def _require_distinct(name: str, given: object) -> None:
    if given is not None:
        listed = list(cast("tuple[object, ...]", given))
        require(len(listed) > 0, name, listed, "a list of at least one, or left out")
        require(len(set(listed)) == len(listed), name, listed, "a list of different ones")
