"""Results of a study in environments: means with intervals, conclusions in words, figures and films.

A figure that cannot be drawn is left out with a message.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from tacit.errors import TacitError
from tacit.experiments.batch import Announce, BatchResult, Row, join_words, silent, student_interval
from tacit.experiments.experiment import load
from tacit.experiments.studies.environments import WorldCell, WorldStudy, finished_runs, steps_until
from tacit.experiments.studies.regimes import ALONE, FEDERATED, UNTRAINED, world_source
from tacit.privacy.policy import Open
from tacit.reports.text import align_table, format_rows
from tacit.runtime.keys import Key
from tacit.sites.environments import Variants

if TYPE_CHECKING:
    import pandas as pd

    from tacit.control.history import History
    from tacit.runs.run import Run
    from tacit.sites.environments import Scenes, World

BY = ["regime", "epsilon"]
PLAIN = ["sites", "rounds", "steps", "steps_in_all", "seconds", "spent", "delta", "agreement"]
PLAYED = ["played_low", "played_high"]
WORLD, UNSEEN = "return@", "return_unseen"
NOTHING = "-"
# Steps that differ by less than this part are as many.
ALIKE = 0.05
Drawing = Callable[[Path], object]
# Embeddings of weights in a plane.
MAPS = ("t-sne", "umap")
# An axis ends this far below untrained policies, as a share of the best one's lead over them.
BELOW = 0.25
# Label of a score over all worlds.
EVERYWHERE = "all worlds"


@dataclass(frozen=True, eq=False, kw_only=True)
class WorldStudyResult(BatchResult[WorldCell]):
    """Results of a study in environments.

    In its frame, `epsilon` is the requested one and `spent` the one in the run's statement; both are missing
    for open runs. `steps` are environment steps of one site, `steps_in_all` those of all sites.

    Args:
        batch: The study.
        rows: The row of each finished cell: its scores, or the reason that it has none.
        path: The directory of the study, with every run in it.
    """

    batch: WorldStudy

    @property
    def _columns(self) -> tuple[list[str], list[str]]:
        return [*BY, "seed", "unit", *PLAIN], ["epsilon", *PLAIN]

    @property
    def scores(self) -> list[str]:
        """Score columns of agents, without the ends of intervals."""
        known = [str(name) for name in self.frame.columns]
        first = known.index(PLAIN[-1]) + 1
        return [name for name in known[first:-1] if not name.endswith(("_low", "_high"))]

    @cached_property
    def worlds(self) -> dict[str, str]:
        """Score column of each kind of world, by its name; the mean over unseen worlds comes last."""
        found = {name.removeprefix(WORLD): name for name in self.scores if name.startswith(WORLD)}
        return found | ({"unseen": UNSEEN} if UNSEEN in self.scores and len(self.unseen) > 1 else {})

    @property
    def unseen(self) -> tuple[str, ...]:
        """Worlds in which no site trains."""
        return tuple(world_source(self.batch.experiment).unseen)

    def table(self) -> "pd.DataFrame":
        """Means over seeds of the runs that have scores, by regime and epsilon; `n` runs each.

        Beside each score are `<score>_low` and `<score>_high`, the ends of its 95 % interval: of the mean
        over seeds (Student's t), or of a single run by bootstrap over its episodes, where that is known.
        `played_low` and `played_high` are what episodes alone tell of the return, whatever other seeds do.
        """
        import pandas as pd

        scored = self.frame[self.frame["failed"].isna()]
        groups = [
            (*cast("tuple[str, float]", key), own)
            for key, own in scored.groupby(BY, sort=False, dropna=False)
        ]
        rows = [
            {
                "regime": name,
                "epsilon": asked,
                "label": self._label(name, asked),
                **_means(own, self.scores),
            }
            for name, asked, own in groups
        ]
        beside = [name for score in self.scores for name in (score, f"{score}_low", f"{score}_high")]
        return pd.DataFrame(rows, columns=[*BY, "label", "n", "unit", *PLAIN, *PLAYED, *beside]).set_index(BY)

    def above_alone(self) -> list[str]:
        """The regimes whose mean return is above that of agents alone in every world, unseen ones too."""
        means = self._by_label()
        if ALONE not in means.index or not self.worlds:
            return []
        columns = list(self.worlds.values())
        others = means.drop(index=[ALONE, *([UNTRAINED] if UNTRAINED in means.index else [])])
        better = (others[columns] > means.loc[ALONE, columns]).all(axis=1)
        return [str(label) for label in others.index[better]]

    def learnt_nothing(self) -> list[str]:
        """Return the regimes without evidence of a higher return than that of untrained policies."""
        means = self._by_label()
        if UNTRAINED not in means.index:
            return []
        floor = float(means["return"].to_dict()[UNTRAINED])
        low = means["played_low"].fillna(means["return"]).drop(index=UNTRAINED)
        return [str(label) for label in low.index[~(low > floor)]]

    def summary(self) -> str:
        """Summarize the study in text: the runs, means by regime and by world, findings, and failures."""
        table = self.table()
        rows = [dict(row) for row in table.reset_index().to_dict("records")]
        parts = [format_rows(_head(self))]
        if rows:
            parts += [_by_regime(rows), _by_world(self, rows)]
        else:
            parts.append("No run has a score.")
        notes = [*(_conclusions(self, table) if rows else []), *self.failed_in_words()]
        return "\n\n".join(part for part in (*parts, "\n".join(notes)) if part)

    def as_dict(self) -> dict[str, Any]:
        """The study as one document."""
        return {
            **super().as_dict(),
            "above_alone": self.above_alone(),
            "learnt_nothing": self.learnt_nothing(),
        }

    def figures(self, folder: str | Path, *, announce: Announce = silent) -> dict[str, Path]:
        """Draw learning curves, returns by world, return against epsilon, clusters and weights, as PNG."""
        into = Path(folder)
        found: dict[str, Path] = {}
        for name, drawing in drawings(self).items():
            into.mkdir(parents=True, exist_ok=True)
            place = into / f"{name}.png"
            try:
                drawing(place)
            except TacitError as error:
                announce(f"left out {name}: {error}")
                continue
            found[name] = place
        return found

    def films(self, folder: str | Path, *, announce: Announce = silent) -> dict[str, Path]:
        """Film the agents of the federated regime, or else of the best, in each kind of world, as GIF.

        Args:
            folder: The folder of the films; created if missing.
            announce: Receives the names of omitted films, with reasons.
        """
        first = list(finished_runs(self, first=True))
        if not first:
            return {}
        chosen = next(
            (run for run in first if run.regime.name == FEDERATED),
            max(first, key=lambda run: self.rows[run.cell]["scores"].get("return") or float("-inf")),
        )
        scenes = cast("Scenes | None", chosen.federation.held_out)
        if scenes is None:
            return {}
        into = Path(folder)
        into.mkdir(parents=True, exist_ok=True)
        found: dict[str, Path] = {}
        run = load(chosen.place)
        for label, (site, world) in _stages(scenes).items():
            name = f"{_slug(chosen.regime.label)}-{label}"
            try:
                found[name] = _film(run, site, world, into / f"{name}.gif", chosen.cell.seed)
            except TacitError as error:
                announce(f"left out the film {name}: {error}")
        return found

    def draw(self, folder: str | Path, *, announce: Announce = silent) -> dict[str, Path]:
        """Draw all `figures`, and `films` if the study asks for them."""
        found = super().draw(folder, announce=announce)
        if self.batch.films:
            found |= self.films(Path(folder) / "films", announce=announce)
        return found

    def _records(self) -> list[Row]:
        rows = cast("list[Row]", self.table().reset_index().to_dict("records"))
        return [{name: _plain(value) for name, value in row.items()} for row in rows]

    def _by_label(self) -> "pd.DataFrame":
        return self.table().set_index("label")

    def _label(self, regime: str, epsilon: float) -> str:
        """Return the label of a regime at an epsilon."""
        asked = None if math.isnan(epsilon) else epsilon
        found = [each for each in self.batch.regimes if (each.name, each.epsilon) == (regime, asked)]
        return found[0].label if found else regime


def _means(own: "pd.DataFrame", scores: list[str]) -> Row:
    """Return the means of runs that differ in their seeds alone."""
    found: Row = {"n": len(own), "unit": own["unit"].iloc[0]}
    # Epsilon is never averaged: the largest counts.
    found |= {name: own[name].max() if name == "spent" else own[name].mean() for name in PLAIN}
    for name in PLAYED:
        ends = f"return{name.removeprefix('played')}"
        found[name] = own[ends].mean() if ends in own else math.nan
    for name in scores:
        low, high = _interval(own, name)
        found |= {name: own[name].mean(), f"{name}_low": low, f"{name}_high": high}
    return found


def _interval(own: "pd.DataFrame", name: str) -> tuple[float, float]:
    values = own[name].dropna().to_numpy(dtype=np.float64)
    if len(values) > 1:
        return student_interval(values)
    low, high = (f"{name}{end}" for end in ("_low", "_high"))
    if low not in own or not len(values):
        return math.nan, math.nan
    return float(own[low].iloc[0]), float(own[high].iloc[0])


def _plain(value: object) -> str | float | None:
    """Convert a value for JSON; numbers that are not finite become null."""
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    return value if value is None or isinstance(value, int) else str(value)


def _head(studied: WorldStudyResult) -> list[tuple[str, str]]:
    common = studied.batch.experiment
    source, sites = world_source(common), common.sites
    physics = source.world
    judged = "" if physics == "gymnasium" else f" (trained in {physics}, evaluated in Gymnasium)"
    each = ""
    if isinstance(sites, Variants) and sites.worlds:
        each = f": {sites.each} each of {', '.join(sites.worlds)}"
    return [
        ("study", studied.name),
        ("task", f"{common.task.kind} in {source.env}{judged}"),
        ("sites", f"{len(common.names or ()):,}{each}"),
        ("runs", studied.runs),
        *_promise(studied),
    ]


def _promise(studied: WorldStudyResult) -> list[tuple[str, str]]:
    """Return the promise of the private runs, for the summary."""
    promises = [regime.experiment.privacy for regime in studied.batch.regimes]
    units = {promise.unit for promise in promises if not isinstance(promise, Open)}
    rehearsed = any(not isinstance(promise, Open) and promise.rehearsal for promise in promises)
    if not units:
        return []
    whom = " or ".join(f"any one {unit}" for unit in sorted(units))
    return [("promise", f"to {whom}, for the whole run{', REHEARSAL' * rehearsed}")]


def _by_regime(rows: Sequence[dict[Any, Any]]) -> str:
    """Format a table of regimes: price, return, interquartile mean, training steps."""
    header = ("regime", "promise", "n", "return", "95 %", "IQM", "95 %", "steps a site", "steps in all")
    return align_table(header, [
        (
            row["label"], _price(row), str(row["n"]),
            _number(row.get("return")), _between(row, "return"),
            _number(row.get("iqm")), _between(row, "iqm"),
            f"{row['steps']:.0f}", f"{row['steps_in_all']:.0f}",
        )
        for row in rows
    ])  # fmt: skip


def _by_world(studied: WorldStudyResult, rows: Sequence[dict[Any, Any]]) -> str:
    """Format a table of returns by regime and world, with the agreement of clusters and worlds."""
    worlds = {_title(name, studied.unseen): score for name, score in studied.worlds.items()}
    solved = {"solved %": 100.0} if "solved" in studied.scores else {}
    apart = any(not math.isnan(row["agreement"]) for row in rows)
    if not worlds and not solved and not apart:
        return ""
    header = ("return in", *worlds, *solved, *(["agreement"] * apart))
    return align_table(header, [
        (
            row["label"],
            *(_number(row[score]) for score in worlds.values()),
            *(_number(unit * row["solved"]) for unit in solved.values()),
            *([_number(row["agreement"], 2)] * apart),
        )
        for row in rows
    ])  # fmt: skip


def _title(name: str, unseen: Sequence[str]) -> str:
    return f"{name} (unseen)" if name in unseen else "unseen, mean" if name == "unseen" else name


def _price(row: dict[Any, Any]) -> str:
    """Format the spent epsilon of a regime for people."""
    if not isinstance(row["unit"], str):
        return "none"
    spent = "unbounded" if math.isnan(row["spent"]) else f"{row['spent']:.4g}"
    return f"epsilon {spent} at delta {row['delta']:g}"


def _conclusions(studied: WorldStudyResult, table: "pd.DataFrame") -> list[str]:
    """Return the conclusions from the means, in sentences."""
    seeds = int(table["n"].max())
    found = [
        f"Means over {seeds} seeds, with the 95 % interval of the mean (Student's t)."
        if seeds > 1
        else "One seed: intervals are by bootstrap over its episodes, and do not cover the variation over "
        "seeds."
    ]
    labels = table["label"].tolist()
    if ALONE in labels and studied.worlds:
        found += _beside_alone(studied.above_alone(), table)
    futile = studied.learnt_nothing()
    if futile:
        floor = _number(table.set_index("label").loc[UNTRAINED, "return"])
        have = "has" if len(futile) == 1 else "have"
        found.append(f"{join_words(futile)} {have} learned nothing: not above an untrained policy ({floor}).")
    found += _fewer(table)
    return found


def _beside_alone(above: Sequence[str], table: "pd.DataFrame") -> list[str]:
    """Name the regimes that beat agents trained alone in every world."""
    steps = table.set_index("label")["steps"].to_dict()
    if not set(steps) - {ALONE, UNTRAINED}:
        return []
    if not above:
        return ["No regime is above agents alone in every world."]
    verb = "is" if len(above) == 1 else "are"
    # Sampling of sites makes steps vary a little.
    alike = all(abs(steps[label] / steps[ALONE] - 1) < ALIKE for label in above)
    fair = ", at as many steps a site" if alike else "; note the different numbers of steps"
    return [f"{join_words(above)} {verb} above agents alone in every world{fair}."]


def _fewer(table: "pd.DataFrame") -> list[str]:
    """Note that fewer sites train alone than in the federation, if so."""
    sites = table.set_index("label")["sites"].drop(index=UNTRAINED, errors="ignore")
    if ALONE not in sites.index or sites[ALONE] >= sites.max():
        return []
    return [
        f"Alone, {sites[ALONE]:.0f} of {sites.max():.0f} sites train: those in which agents are evaluated."
    ]


def _between(row: dict[Any, Any], name: str) -> str:
    low, high = row.get(f"{name}_low", math.nan), row.get(f"{name}_high", math.nan)
    return NOTHING if math.isnan(low) or math.isnan(high) else f"{low:.0f} to {high:.0f}"


def _number(value: Any, decimals: int = 1) -> str:  # noqa: ANN401
    return NOTHING if value is None or math.isnan(value) else f"{value:.{decimals}f}"


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
    """Return a function that draws a figure to a path."""
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
