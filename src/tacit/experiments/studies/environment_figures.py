"""Figures and films of a study in environments: learning, returns, what privacy costs, clusters, weights.

A figure that cannot be drawn is left out with a message.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from tacit.errors import TacitError
from tacit.experiments.batch import Announce
from tacit.experiments.experiment import load
from tacit.experiments.studies.environment_results import UNSEEN, WorldStudyResult
from tacit.experiments.studies.environments import RUNS, WorldCell, experiment_for, steps_until, world_kinds
from tacit.experiments.studies.regimes import ALONE, FEDERATED, UNTRAINED, Regime, world_source
from tacit.learning.record import Round
from tacit.runs.directory import Directory
from tacit.runtime.keys import Key

if TYPE_CHECKING:
    import pandas as pd

    from tacit.control.history import History
    from tacit.runs.run import Run
    from tacit.sites.environments import Scenes, World
    from tacit.sites.federation import Federation

Drawing = Callable[[Path], object]
# Embeddings of weights in a plane.
MAPS = ("t-sne", "umap")
# An axis ends this far below untrained policies, as a share of the best one's lead over them.
BELOW = 0.25
# Label of a score over all worlds.
EVERYWHERE = "all worlds"


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


def draw(studied: WorldStudyResult, folder: Path, announce: Announce) -> dict[str, Path]:
    """Draw every figure that the finished runs allow, as PNG in a folder; return files by name."""
    found: dict[str, Path] = {}
    for name, drawing in drawings(studied).items():
        folder.mkdir(parents=True, exist_ok=True)
        place = folder / f"{name}.png"
        try:
            drawing(place)
        except TacitError as error:
            announce(f"left out {name}: {error}")
            continue
        found[name] = place
    return found


def drawings(studied: WorldStudyResult) -> dict[str, Drawing]:
    """Return all drawings of a study by name; empty if no run has a score."""
    means = studied.table().reset_index()
    if not (means["regime"] != UNTRAINED).any():
        return {}
    return {
        **_of_learning(studied, means),
        **_of_returns(studied, means),
        **_of_clusters(studied),
        **_of_weights(studied),
    }


def film_worlds(studied: WorldStudyResult, folder: Path, announce: Announce) -> dict[str, Path]:
    """A film for each kind of world, of the federated regime or else the best, with the first seed."""
    first = list(finished_runs(studied, first=True))
    if not first:
        return {}
    chosen = next(
        (run for run in first if run.regime.name == FEDERATED),
        max(first, key=lambda run: studied.rows[run.cell]["scores"].get("return") or float("-inf")),
    )
    scenes = cast("Scenes | None", chosen.federation.held_out)
    if scenes is None:
        return {}
    folder.mkdir(parents=True, exist_ok=True)
    found: dict[str, Path] = {}
    run = load(chosen.place)
    for label, (site, world) in _stages(scenes).items():
        name = f"{_slug(chosen.regime.label)}-{label}"
        try:
            found[name] = _film(run, site, world, folder / f"{name}.gif", chosen.cell.seed)
        except TacitError as error:
            announce(f"left out the film {name}: {error}")
    return found


def _stages(scenes: "Scenes") -> "dict[str, tuple[str, World]]":
    """One world of each kind, and whose it is."""
    found: dict[str, tuple[str, World]] = {}
    for site, world in zip(scenes.sites.tolist(), scenes.worlds, strict=True):
        found.setdefault(world.label or "world", (site, world))
    return found


def _film(run: "Run", site: str, world: "World", place: Path, seed: int) -> Path:
    """Film one episode of a site's model; in a world without a site, of the one model of all sites."""
    from tacit.control.envs.spaces import refuse_undrawable

    with refuse_undrawable(world):
        return (run.model if site == "" else run.model_of(site)).film(place, world, seed=seed)


def _of_learning(studied: WorldStudyResult, means: "pd.DataFrame") -> dict[str, Drawing]:
    """Draw learning curves: by world, overlaid, and by regime; one figure per group of colors."""
    from tacit.control.figures import learning_curves, overlay, side_by_side

    rows = learning_history(studied)
    found: dict[str, Drawing] = {}
    if rows.empty:
        return found
    options = _options(studied, means)
    watch = world_source(studied.batch.experiment).watch
    told = f"{_where(studied)}; {watch} greedy episodes in each world after every round"
    for more, part in _parts(rows):
        for name, figure in (
            ("learning-curves", learning_curves),
            ("overlay", overlay),
            ("side-by-side", side_by_side),
        ):
            found[f"{name}{more}"] = _calling(figure, part, **options, provenance=told)
    return found


def _of_returns(studied: WorldStudyResult, means: "pd.DataFrame") -> dict[str, Drawing]:
    """Draw the final return of each regime in each world, and the return against epsilon."""
    from tacit.control.figures import privacy_return, scenarios

    found: dict[str, Drawing] = {}
    episodes = world_source(studied.batch.experiment).episodes
    told = f"{_where(studied)}; {episodes} greedy episodes in each world, in Gymnasium"
    for more, part in _parts(_returns(studied, means)):
        alone = " One seed: no intervals." * int(means["n"].max() == 1)
        provenance = f"{told}.{alone}"
        options = _options(studied, means)
        found[f"scenarios{more}"] = _calling(scenarios, part, **options, provenance=provenance)
    priced = means[means["spent"].notna()]
    if len(priced):
        # Intervals over a few seeds are too wide; those over episodes show if anything was learned.
        ends = {"played_low": "low", "played_high": "high"}
        table = priced.drop(columns="epsilon").rename(columns={"spent": "epsilon", **ends})
        table = table[["epsilon", "return", "low", "high", "regime"]].dropna(axis=1)
        found["privacy-return"] = _calling(privacy_return, table, _references(means), provenance=told)
    return found


def _of_clusters(studied: WorldStudyResult) -> dict[str, Drawing]:
    from tacit.control.figures import memberships

    told = f"{_where(studied)}, seed {studied.batch.seeds[0]}"
    return {
        f"clusters-{_slug(label)}": _calling(memberships, rows, provenance=f"{label}: {told}")
        for label, rows in cluster_history(studied).items()
    }


def _of_weights(studied: WorldStudyResult) -> dict[str, Drawing]:
    """Maps of the weights that were kept along the way."""
    from tacit.control.figures.maps import SHARED, weight_map

    found: dict[str, Drawing] = {}
    for label, (history, homes) in weights(studied).items():
        owners = [str(owner) for owner in history.weight_labels]
        others = sorted({owner for owner in owners if owner not in homes})
        # The one model of all stands for itself; of several, none does.
        names = {others[0]: SHARED} if len(others) == 1 else {}
        kept = [place for place, owner in enumerate(owners) if owner in homes or owner in names]
        if not any(owners[place] in homes for place in kept):
            # Under secure aggregation single updates are invisible, so none were kept.
            continue
        sites = [names.get(owners[place], owners[place]) for place in kept]
        worlds = [homes.get(site, "") for site in sites]
        for method in MAPS:
            found[f"weights-{method}-{_slug(label)}"] = _calling(
                weight_map, history.weights[kept], worlds, history.weight_steps[kept], sites,
                method=method, key=Key(studied.batch.seeds[0]) / "map",
                provenance=f"{label}: weights of the sites without noise, seed {studied.batch.seeds[0]}",
            )  # fmt: skip
    return found


def _calling(figure: Callable[..., object], *table: object, **options: object) -> Drawing:
    """The drawing of a figure, once it is known where to."""
    return lambda place: figure(*table, **options, path=place)


def _returns(studied: WorldStudyResult, means: "pd.DataFrame") -> "pd.DataFrame":
    """One row for each regime and world, with the ends of its interval; of one seed, there is none."""
    import pandas as pd

    # Those who learn keep the colors that they have in other figures.
    order = means.sort_values("regime", key=lambda names: names == UNTRAINED, kind="stable")
    rows: list[dict[str, Any]] = []
    for world, score in _return_names(studied).items():
        for row in cast("list[dict[str, Any]]", order.to_dict("records")):
            mean = row[score]
            low, high = (row[f"{score}{end}"] for end in ("_low", "_high"))
            known = bool(np.isfinite([low, high]).all())
            ends = (low, high) if known else (mean, mean)
            rows.append(
                {"regime": row["label"], "world": world, "mean": mean, "low": ends[0], "high": ends[1]}
            )
    return pd.DataFrame(rows).dropna()


def _options(studied: WorldStudyResult, means: "pd.DataFrame") -> dict[str, Any]:
    """Return the options that all figures of returns share."""
    return {"target": _target(studied), "unseen": studied.unseen, "lowest": _lowest(studied, means)}


def _target(studied: WorldStudyResult) -> float | None:
    """The return that the environment says it is solved by, if it says so."""
    from tacit.control.envs.spaces import reward_threshold

    return reward_threshold(world_source(studied.batch.experiment).env)


def _lowest(studied: WorldStudyResult, means: "pd.DataFrame") -> float | None:
    """Return the lower end of the axis, so that a failed regime does not flatten the rest; None for none."""
    floor, best = _references(means).get(UNTRAINED), float(means["return"].max())
    if floor is None or best <= floor:
        return None
    lowest = round(floor - (best - floor) * BELOW, -1)
    worst = float(np.nanmin(means[["return", *studied.worlds.values()]].to_numpy(dtype=np.float64)))
    return lowest if worst < lowest else None


def _references(means: "pd.DataFrame") -> dict[str, float]:
    """Returns that cost no epsilon."""
    known = means.set_index("label")["return"].to_dict()
    names: Mapping[str, str] = {FEDERATED: "open", ALONE: ALONE, UNTRAINED: UNTRAINED}
    return {words: float(known[label]) for label, words in names.items() if label in known}


def _parts(rows: "pd.DataFrame") -> "list[tuple[str, pd.DataFrame]]":
    """Split rows into groups of regimes with distinct colors, each with the suffix of its figure's name."""
    from tacit.reports.plots.style import PALETTE

    labels = list(dict.fromkeys(rows["regime"].tolist()))
    starts = range(0, len(labels), len(PALETTE))
    return [
        (f"-{place + 1}" if place else "", rows[rows["regime"].isin(labels[start : start + len(PALETTE)])])
        for place, start in enumerate(starts)
    ]


def _where(studied: WorldStudyResult) -> str:
    common = studied.batch.experiment
    return f"{world_source(common).env}, {len(common.names or ()):,} sites"


def _slug(label: str) -> str:
    return label.replace(" ", "-")


def finished_runs(studied: WorldStudyResult, *, first: bool = False) -> Iterator[FinishedRun]:
    """The runs that have a score, perhaps of the first seed alone; none where nothing was kept."""
    for cell in studied.batch.cells:
        done = cell in studied.rows and studied.rows[cell]["failed"] is None
        asked = cell.regime != UNTRAINED and (not first or cell.seed == studied.batch.seeds[0])
        if done and asked and studied.path is not None:
            yield FinishedRun(cell, studied.batch.regime(cell), studied.path / RUNS / cell.folder)


def learning_history(studied: WorldStudyResult) -> "pd.DataFrame":
    """Scores after every round: `regime`, `world`, `seed`, `steps` of a site until then, `return`."""
    import pandas as pd

    rows = [
        {
            "regime": run.regime.label,
            "world": world,
            "seed": run.cell.seed,
            "steps": steps_until(run.regime.experiment, rounds, number)[0],
            "return": rounds[number - 1].scores[score],
        }
        for run in finished_runs(studied)
        for rounds in [run.rounds]
        for number in range(1, len(rounds) + 1)
        for world, score in _return_names(studied).items()
        if score in rounds[number - 1].scores
    ]
    return pd.DataFrame(rows, columns=["regime", "world", "seed", "steps", "return"])


def cluster_history(studied: WorldStudyResult) -> "dict[str, pd.DataFrame]":
    """Return the cluster of each site after every round, by regime; of the first seed."""
    import pandas as pd

    found: dict[str, pd.DataFrame] = {}
    for run in finished_runs(studied, first=True):
        clusters = run.regime.experiment.clusters
        if clusters is None or clusters.by == "site":
            continue
        known = run.kinds
        rows = [
            {"site": site, "world": known[site], "round": entry.number, "cluster": str(cluster)}
            | ({"phase": "together" if entry.number < clusters.warm else "apart"} if clusters.warm else {})
            for entry in run.rounds
            for site, cluster in entry.clusters.items()
            if site in known
        ]
        if rows:
            found[run.regime.label] = pd.DataFrame(rows)
    return found


def weights(studied: WorldStudyResult) -> "dict[str, tuple[History, dict[str, str]]]":
    """The history of each regime that kept weights, and the world of each site in it; of the first seed."""
    from tacit.control.history import HISTORY, History

    kept = [run for run in finished_runs(studied, first=True) if (run.place / HISTORY).is_file()]
    histories = [(run, History.load(run.place / HISTORY)) for run in kept]
    return {run.regime.label: (history, run.kinds) for run, history in histories if len(history.weights)}


def _return_names(studied: WorldStudyResult) -> dict[str, str]:
    """The score in each kind of world that has a name, or the one of all."""
    names = {world: score for world, score in studied.worlds.items() if score != UNSEEN}
    return names or {EVERYWHERE: "return"}
