"""How the runs of a study went from round to round, from what their directories remember."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from tacit.experiments.studies.environments.cells import (
    RUNS,
    WorldCell,
    experiment_for,
    steps_until,
    world_kinds,
)
from tacit.experiments.studies.environments.regimes import UNTRAINED, Regime
from tacit.learning.record import Round
from tacit.runs.directory import Directory

if TYPE_CHECKING:
    import pandas as pd

    from tacit.control.history import History
    from tacit.experiments.studies.environments.result import WorldStudyResult

# What a score is called that is of no world in particular.
EVERYWHERE = "all worlds"


def runs(studied: "WorldStudyResult") -> Iterator[tuple[WorldCell, Regime, Path]]:
    """The cells that have a score, their regimes and their directories; none where nothing was kept."""
    for cell in studied.study.cells:
        done = cell in studied.rows and studied.rows[cell]["failed"] is None
        if done and studied.path is not None and cell.regime != UNTRAINED:
            yield cell, studied.study.regime(cell), studied.path / RUNS / cell.folder


def learning_history(studied: "WorldStudyResult") -> "pd.DataFrame":
    """Scores after every round: `regime`, `world`, `seed`, `steps` of a site until then, `return`."""
    import pandas as pd

    from tacit.experiments.studies.environments.result import UNSEEN

    names = {world: score for world, score in studied.worlds.items() if score != UNSEEN}
    names = names or {EVERYWHERE: "return"}
    rows = [
        {
            "regime": regime.label,
            "world": world,
            "seed": cell.seed,
            "steps": steps_until(regime.experiment, rounds, number)[0],
            "return": rounds[number - 1].scores[score],
        }
        for cell, regime, place in runs(studied)
        for rounds in [_rounds(place)]
        for number in range(1, len(rounds) + 1)
        for world, score in names.items()
        if score in rounds[number - 1].scores
    ]
    return pd.DataFrame(rows, columns=["regime", "world", "seed", "steps", "return"])


def cluster_history(studied: "WorldStudyResult") -> "dict[str, pd.DataFrame]":
    """Which cluster each site is in after every round, by regime; of the first seed."""
    import pandas as pd

    found: dict[str, pd.DataFrame] = {}
    for cell, regime, place in runs(studied):
        clusters = regime.experiment.clusters
        if cell.seed != studied.study.seeds[0] or clusters is None or clusters.by == "site":
            continue
        known = world_kinds(experiment_for(regime.experiment, cell).open_federation())
        rows = [
            {
                "site": site,
                "world": known[site],
                "round": entry.number,
                "cluster": str(cluster),
                **(
                    {"phase": "together" if entry.number < clusters.warm else "apart"}
                    if clusters.warm
                    else {}
                ),
            }
            for entry in _rounds(place)
            for site, cluster in entry.clusters.items()
            if site in known
        ]
        if rows:
            found[regime.label] = pd.DataFrame(rows)
    return found


def weights(studied: "WorldStudyResult") -> "dict[str, tuple[History, dict[str, str]]]":
    """The history of each regime that kept weights, and the world of each site in it; of the first seed."""
    from tacit.control.history import HISTORY, History

    found: dict[str, tuple[History, dict[str, str]]] = {}
    for cell, regime, place in runs(studied):
        if cell.seed == studied.study.seeds[0] and (place / HISTORY).is_file():
            history = History.load(place / HISTORY)
            if len(history.weights):
                found[regime.label] = (
                    history,
                    world_kinds(experiment_for(regime.experiment, cell).open_federation()),
                )
    return found


def _rounds(place: Path) -> list[Round]:
    return Directory(place).rounds()
