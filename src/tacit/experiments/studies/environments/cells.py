"""One cell of a study: a regime, what it may cost, and a seed; trained, and judged in Gymnasium."""

import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from tacit.aggregation.defence.kmeans import agreement
from tacit.experiments.experiment import Experiment
from tacit.experiments.studies.base import Row, row_of
from tacit.experiments.studies.environments.regimes import UNTRAINED
from tacit.learning.record import Round
from tacit.privacy.policy import Open
from tacit.privacy.provenance import Provenance
from tacit.runtime.keys import Key

if TYPE_CHECKING:
    from tacit.control.agents.policy import Policy
    from tacit.runs.run import Run
    from tacit.sites.environments import Scenes
    from tacit.sites.federation import Federation

# Where runs are in the directory of a study.
RUNS = "runs"


@dataclass(frozen=True, kw_only=True)
class WorldCell:
    """Where a run stands in a study.

    Args:
        regime: How it is trained, or `untrained`.
        epsilon: What it may cost, where that was said.
        seed: What it repeats by.
    """

    regime: str
    epsilon: float | None
    seed: int

    def __str__(self) -> str:
        price = "" if self.epsilon is None else f", epsilon {self.epsilon:g}"
        return f"{self.regime}{price}, seed {self.seed}"

    @property
    def row(self) -> Row:
        """Plain data for JSON."""
        return asdict(self)

    @property
    def folder(self) -> str:
        """What the directory of its run is called."""
        price = "" if self.epsilon is None else f"-epsilon-{self.epsilon:.12g}"
        return f"{self.regime}{price}-seed-{self.seed}"


def experiment_for(experiment: Experiment, cell: WorldCell) -> Experiment:
    """The experiment of a cell: that of its regime, with its seed."""
    return replace(experiment, name=cell.folder, seed=cell.seed, baselines=False)


def score_cell(experiment: Experiment, cell: WorldCell, place: Path | None) -> Row:
    """The row of a cell: its name and its scores, or why it has none.

    Args:
        experiment: That of its regime.
        cell: Which one.
        place: The directory of the study, in which runs have directories of their own.
    """
    chosen = experiment_for(experiment, cell)
    if cell.regime == UNTRAINED:
        return row_of(cell, lambda: _untrained_row(chosen))
    return row_of(cell, lambda: _train(chosen, None if place is None else place / RUNS / cell.folder))


def steps_until(
    experiment: Experiment, rounds: Sequence[Round], end: int | None = None
) -> tuple[float, float]:
    """How many steps of the environment a site has made until the end of a round, and all sites together.

    Where who took part is a secret, that is what is expected.

    Args:
        experiment: What was run.
        rounds: What happened.
        end: The number of the round; the last if not said.
    """
    sites, joins = len(experiment.sites.names), experiment.privacy.participation
    came = [sites * joins if entry.sites is None else entry.sites for entry in rounds[:end]]
    every = sum(came) * experiment.task.steps
    return every / sites, every


def world_kinds(federation: "Federation") -> dict[str, str]:
    """The kind of world that each site has; nothing where kinds have no names."""
    held: dict[str, Any] = getattr(federation, "holdings", {})
    found = {name: worlds[0].label for name, worlds in held.items()}
    return found if all(found.values()) else {}


def _train(chosen: Experiment, place: Path | None) -> Row:
    federation = chosen.open_federation()
    # What was cut off in the middle of a run goes on there.
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
        "spent": _finite(promise.epsilon),
        "delta": promise.delta,
        "sites": len(chosen.sites.names),
        "rounds": len(run.record.rounds),
        "steps": each,
        "steps_in_all": every,
        "seconds": seconds,
        "scores": {name: _finite(value) for name, value in run.scores.items()},
        "agreement": _agreement(chosen, run, federation),
    }


def _agreement(chosen: Experiment, run: "Run", federation: "Federation") -> float | None:
    """How well groups of sites that were found are the kinds of their worlds, where sites were told apart."""
    known = world_kinds(federation)
    if chosen.clusters is None or chosen.clusters.by == "site" or not run.clusters or not known:
        return None
    return agreement(run.clusters, known)


def _untrained_row(chosen: Experiment) -> Row:
    """What the weights bring in that every run of this seed begins with.

    Their actions are drawn, that is, nearly any is as likely as another. The likeliest one of weights that
    nobody has trained is a whim: here it falls like a stone, there it hovers for ever.
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
        "sites": len(chosen.sites.names),
        "rounds": 0,
        "steps": 0.0,
        "steps_in_all": 0.0,
        "seconds": time.perf_counter() - began,
        "scores": {name: _finite(value) for name, value in scores.items()},
        "agreement": None,
    }


def _random_returns(policy: "Policy", scenes: "Scenes | None") -> dict[str, float]:
    """What a policy brings in when its actions are drawn."""
    from tacit.control.agents.evaluation import summarise

    if scenes is None:
        return {}
    returns = [
        policy.play(world, scenes.episodes, seed=scenes.seed + place, deterministic=False)
        for place, world in enumerate(scenes.worlds)
    ]
    return summarise(returns, scenes, Key(scenes.seed) / "bootstrap")


def _finite(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(value)
