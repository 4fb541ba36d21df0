"""What came of a study of worlds: a row for each run, means with intervals, and what they show."""

import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from tacit.experiments.studies.base import Announce, Row, StudyResult, silent
from tacit.experiments.studies.environments.cells import WorldCell
from tacit.experiments.studies.environments.regimes import ALONE, UNTRAINED
from tacit.experiments.studies.environments.spec import WorldStudy

if TYPE_CHECKING:
    import pandas as pd

BY = ["regime", "epsilon"]
PLAIN = ["sites", "rounds", "steps", "steps_in_all", "seconds", "spent", "delta", "agreement"]
PLAYED = ["played_low", "played_high"]
WORLD, UNSEEN = "return@", "return_unseen"
LEVEL = 0.95


@dataclass(frozen=True, eq=False, kw_only=True)
class WorldStudyResult(StudyResult[WorldCell]):
    """What came of a study of worlds.

    In its frame, epsilon is what was asked for, and `spent` what the statement of the run says; both are
    missing where nothing is promised. `steps` are those of one site, `steps_in_all` those of all together.

    Args:
        study: What was asked for.
        rows: What is known of each cell: its scores, or why it has none.
        path: The directory that remembers it, and every run in it.
    """

    study: WorldStudy

    def _build_frame(self) -> "pd.DataFrame":
        import pandas as pd

        known = [self.rows[cell] for cell in self._in_order() if cell in self.rows]
        flat = [{**row, **row.get("scores", {})} for row in known]
        scores = list(dict.fromkeys(name for row in known for name in row.get("scores", {})))
        columns = [*BY, "seed", "unit", *PLAIN, *scores, "failed"]
        found = pd.DataFrame(flat, columns=columns)
        return found.astype(dict.fromkeys(["epsilon", *PLAIN, *scores], "float64"))

    @property
    def scores(self) -> list[str]:
        """What is told of agents, without the ends of intervals."""
        known = [str(name) for name in self.frame.columns]
        first = known.index(PLAIN[-1]) + 1
        return [name for name in known[first:-1] if not name.endswith(("_low", "_high"))]

    @cached_property
    def worlds(self) -> dict[str, str]:
        """The scores in each kind of world, by its name; the mean over nobody's comes last."""
        found = {name.removeprefix(WORLD): name for name in self.scores if name.startswith(WORLD)}
        return found | ({"unseen": UNSEEN} if UNSEEN in self.scores and len(self.unseen) > 1 else {})

    @property
    def unseen(self) -> tuple[str, ...]:
        """The worlds that nobody trains in."""
        return tuple(getattr(self.study.experiment.data, "unseen", {}))

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
        """The regimes whose return is not above that of untrained policies, as far as one can tell."""
        means = self._by_label()
        if UNTRAINED not in means.index:
            return []
        floor = float(cast(Any, means.loc[UNTRAINED, "return"]))
        low = means["played_low"].fillna(means["return"]).drop(index=UNTRAINED)
        return [str(label) for label in low.index[~(low > floor)]]

    def summary(self) -> str:
        """The study for people: what was run, means by regime and by world, what they show, what failed."""
        from tacit.experiments.studies.environments.summary import summarise

        return summarise(self)

    def as_dict(self) -> dict[str, Any]:
        """The study as one document."""
        return {
            **super().as_dict(),
            "above_alone": self.above_alone(),
            "learnt_nothing": self.learnt_nothing(),
        }

    def figures(self, folder: str | Path, *, announce: Announce = silent) -> dict[str, Path]:
        """Draw learning curves, returns by world, what privacy costs, clusters and weights, as PNG.

        Args:
            folder: Where to keep them; made if it is not there.
            announce: Told what is left out, and why.
        """
        from tacit.experiments.studies.environments.figures import draw

        return draw(self, Path(folder), announce)

    def films(self, folder: str | Path, *, announce: Announce = silent) -> dict[str, Path]:
        """Film the agents of the federated regime, or else of the best, in each kind of world, as GIF.

        Args:
            folder: Where to keep them; made if it is not there.
            announce: Told what is left out, and why.
        """
        from tacit.experiments.studies.environments.animation import film_worlds

        return film_worlds(self, Path(folder), announce)

    def draw(self, folder: str | Path, *, announce: Announce = silent) -> dict[str, Path]:
        """Draw everything there is to see: `figures`, and `films` if the study asks for them."""
        found = super().draw(folder, announce=announce)
        if self.study.films:
            found |= self.films(Path(folder) / "films", announce=announce)
        return found

    def _records(self) -> list[Row]:
        rows = cast("list[Row]", self.table().reset_index().to_dict("records"))
        return [{name: _plain(value) for name, value in row.items()} for row in rows]

    def _by_label(self) -> "pd.DataFrame":
        return self.table().set_index("label")

    def _label(self, regime: str, epsilon: float) -> str:
        """What a regime is called among all others."""
        asked = None if math.isnan(epsilon) else epsilon
        found = [each for each in self.study.regimes if (each.name, each.epsilon) == (regime, asked)]
        return found[0].label if found else regime

    def _in_order(self) -> list[WorldCell]:
        """Cells that are averaged stand together."""
        kinds = list(dict.fromkeys((cell.regime, cell.epsilon) for cell in self.study.cells))
        return sorted(self.study.cells, key=lambda cell: kinds.index((cell.regime, cell.epsilon)))


def _means(own: "pd.DataFrame", scores: list[str]) -> Row:
    """The means of runs that differ in their seeds alone."""
    found: Row = {"n": len(own), "unit": own["unit"].iloc[0]}
    # What runs cost is never averaged: the dearest counts.
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
        from scipy.stats import t as student

        half = (
            float(student.ppf(0.5 + LEVEL / 2, len(values) - 1)) * values.std(ddof=1) / math.sqrt(len(values))
        )
        return float(values.mean() - half), float(values.mean() + half)
    low, high = (f"{name}{end}" for end in ("_low", "_high"))
    if low not in own or not len(values):
        return math.nan, math.nan
    return float(own[low].iloc[0]), float(own[high].iloc[0])


def _plain(value: object) -> str | float | None:
    """A value as JSON has it, which knows no numbers that are none."""
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    return value if value is None or isinstance(value, int) else str(value)
