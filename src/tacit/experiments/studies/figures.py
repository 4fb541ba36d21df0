"""Figures of studies, and films of agents.

Of curves: error by parties and by epsilon, selection of predictors. In environments: learning, returns, what
privacy costs, clusters, weights.

A figure that cannot be drawn is left out with a message.
"""

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from tacit.errors import TacitError
from tacit.experiments.batch import Announce
from tacit.experiments.experiment import load
from tacit.experiments.studies.curves import parts_of, promise_in_words
from tacit.experiments.studies.environment_results import UNSEEN, WorldStudyResult
from tacit.experiments.studies.environments import finished_runs, steps_until
from tacit.experiments.studies.regimes import ALONE, FEDERATED, UNTRAINED, world_source
from tacit.functional.figures.experiments import by_parties, privacy_utility, selection
from tacit.reports.plots.style import PALETTE, Picture
from tacit.runtime.keys import Key

if TYPE_CHECKING:
    import pandas as pd

    from tacit.control.history import History
    from tacit.experiments.studies.curves import CurveStudyResult
    from tacit.runs.run import Run
    from tacit.sites.environments import Scenes, World

# Multiple of the largest error within which a reference is drawn.
NEAR = 2.0
SELECTED = ("sensitivity", "specificity")
# A figure, and a file of it if a place is named.
Drawing = Callable[[Path | None], object]
# Embeddings of weights in a plane.
MAPS = ("t-sne", "umap")
# An axis ends this far below untrained policies, as a share of the best one's lead over them.
BELOW = 0.25
# Label of a score over all worlds.
EVERYWHERE = "all worlds"


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
    """Return one environment of each kind, with its site."""
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
    from tacit.control.figures.learning import learning_curves, overlay, side_by_side

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
    """Return a function that draws a figure, to a path if one is given."""
    return lambda place: figure(*table, **options, path=place)


def _returns(studied: WorldStudyResult, means: "pd.DataFrame") -> "pd.DataFrame":
    """Return one row for each regime and world, with the ends of its interval; of one seed, there is none."""
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
    """Return the reward threshold of the environment, if it has one."""
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
        rows = run.cluster_rows()
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
    """Return the score in each kind of world that has a name, or the one of all."""
    names = {world: score for world, score in studied.worlds.items() if score != UNSEEN}
    return names or {EVERYWHERE: "return"}


# Curves


def pictures(studied: "CurveStudyResult") -> dict[str, Picture]:
    """Draw every figure that the varied factors allow, by name."""
    frame = studied.frame[studied.frame["failed"].isna()]
    found: dict[str, Picture] = {}
    if frame["parties"].nunique() > 1:
        for release, table in studied.table().reset_index().groupby("release", sort=False):
            found |= _by_parties(studied, str(release), table)
    if frame.loc[frame["epsilon"].map(math.isfinite), "epsilon"].nunique() > 1:
        found |= _by_epsilon(studied)
    return found


def _by_parties(studied: "CurveStudyResult", release: str, table: "pd.DataFrame") -> dict[str, Picture]:
    """Draw error and selection by the number of parties; one figure per group of distinguishable colors."""
    found: dict[str, Picture] = {}
    epsilons = list(dict.fromkeys(table["epsilon"].tolist()))
    for start in range(0, len(epsilons), len(PALETTE)):
        part = table[table["epsilon"].isin(epsilons[start : start + len(PALETTE)])]
        part = part.assign(method=[f"{promise_in_words(epsilon)}:" for epsilon in part["epsilon"].tolist()])
        more = f"{release}-{start // len(PALETTE) + 1}" if start else release
        told = f"{release} release, {_curve_provenance(studied, part)}"
        found[f"parties-{more}"] = by_parties(
            _score_table(part),
            references=_curve_references(studied),
            title=_party_effect(part),
            provenance=told,
        )
        found[f"selection-{more}"] = selection(_selection_table(part), provenance=told)
    return found


def _by_epsilon(studied: "CurveStudyResult") -> dict[str, Picture]:
    """Error and selection by epsilon, over all numbers of parties."""
    table = studied.table(["release", "epsilon"]).reset_index()
    finite = table["epsilon"].map(math.isfinite)
    private, without = table[finite].assign(method=table["release"]), table[~finite]
    references = _curve_references(studied)
    if len(without):
        references["open"] = float(without["ril2"].mean())
    told = (
        f"{_curve_provenance(studied, private)}, with {_span(sorted(set(studied.frame['parties'])))} parties"
    )
    drawn = privacy_utility(_score_table(private), references=references, provenance=told)
    chosen = selection(_selection_table(private), by="epsilon", provenance=told)
    return {"privacy-utility": drawn, "selection-epsilon": chosen}


def _party_effect(table: "pd.DataFrame") -> str:
    """Return a title: the largest difference in RIL2 between numbers of parties, over all promises."""
    groups = table.groupby("epsilon")["ril2"]
    most = float((groups.max() - groups.min()).max())
    return f"With {_span(sorted(set(table['parties'])))} parties, RIL2 differs by at most {most:.3f}"


def _score_table(table: "pd.DataFrame") -> "pd.DataFrame":
    return _without_unknown(table.assign(score=table["ril2"], error=table["ril2_error"]), ["error"])


def _selection_table(table: "pd.DataFrame") -> "pd.DataFrame":
    return _without_unknown(table, [f"{kind}_error" for kind in SELECTED])


def _without_unknown(table: "pd.DataFrame", errors: list[str]) -> "pd.DataFrame":
    """Return the table with these errors, or with none if one of them is not known: of a single run."""
    kept = [name for name in table.columns if not str(name).endswith("error")]
    return table[kept + errors * bool(table[errors].notna().all(axis=None))]


def _curve_references(studied: "CurveStudyResult") -> dict[str, float]:
    """Return the error of the truth, which no method beats, and of the simplest baseline if it is near."""
    found = {"noise": float(studied.frame["floor"].mean())}
    simplest = [verdict.simplest for verdict in studied.verdicts if verdict.simplest is not None]
    if simplest:
        error = float(np.mean([one.scores["ril2"] for one in simplest]))
        # Far above everything else it would flatten the lines; the table has it.
        near = error <= NEAR * float(studied.frame["ril2"].max())
        found |= {simplest[0].name: error} if near else {}
    return found


def _curve_provenance(studied: "CurveStudyResult", table: "pd.DataFrame") -> str:
    data, _, _ = parts_of(studied.batch.experiment)
    runs = _span(sorted(set(table["n"])))
    return f"simulated ({data.design}), {data.records:,} subjects; means of {runs} runs each"


def _span(values: list[int]) -> str:
    return f"{values[0]}" if len(values) == 1 else f"{values[0]} to {values[-1]}"
