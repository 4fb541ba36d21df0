"""What came of a study of curves: a row for each run, their means, a summary for people, figures."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from tacit.experiments.studies.base import Announce, Row, StudyResult, silent
from tacit.experiments.studies.curves.cells import OPEN, SCORES, CurveCell
from tacit.experiments.studies.curves.spec import CurveStudy
from tacit.privacy.policy import Open
from tacit.reports.text import align_table, format_rows

if TYPE_CHECKING:
    import pandas as pd

BY = ("release", "epsilon", "parties")
MEASURES = (*SCORES, "seconds", "bytes")
COLUMNS = [
    *BY,
    "replicate",
    "fold",
    "spent",
    *SCORES,
    "selected",
    "steps",
    "seconds",
    "bytes",
    "floor",
    "failed",
]
# What the summary shows of a mean: its name for people, how many decimals, in which unit.
SHOWN = {
    "r2": ("R2", 3, 1.0),
    "ril2": ("RIL2", 3, 1.0),
    "nrmse": ("NRMSE", 3, 1.0),
    "wmape": ("WMAPE %", 1, 1.0),
    "sensitivity": ("sensitivity", 2, 1.0),
    "specificity": ("specificity", 2, 1.0),
    "seconds": ("seconds", 2, 1.0),
    "bytes": ("MB sent", 2, 2.0**20),
}
# These are told with their standard errors.
JUDGED = ("r2", "ril2")


@dataclass(frozen=True, eq=False, kw_only=True)
class CurveStudyResult(StudyResult[CurveCell]):
    """What came of a study of curves.

    In its frame, epsilon is what was asked for, infinite where nothing was promised, and `spent` is what the
    statement of the run says; `floor` is the RIL2 that nobody can expect to go below.

    Args:
        study: What was asked for.
        rows: What is known of each cell: its scores, or why it has none.
        path: The directory that remembers it.
    """

    study: CurveStudy

    def _build_frame(self) -> "pd.DataFrame":
        import pandas as pd

        known = [
            {**self.rows[cell], "epsilon": cell.epsilon} for cell in self._in_order() if cell in self.rows
        ]
        found = pd.DataFrame(known, columns=COLUMNS)
        numbers = ["epsilon", "spent", "floor", *MEASURES]
        return found.astype(dict.fromkeys(numbers, "float64"))

    def table(self, by: Sequence[str] = BY) -> "pd.DataFrame":
        """Means of the runs that have scores, by release, epsilon and parties; `n` runs each.

        Beside each mean is its standard error, sd / sqrt(n), in `<score>_error`. Runs of one replicate share
        subjects, so that it is a little too small where folds outnumber replicates.
        """
        import pandas as pd

        groups = self.frame[self.frame["failed"].isna()].groupby(list(by), sort=False)
        measures = list(MEASURES)
        means, errors = groups[measures].mean(), groups[measures].sem().add_suffix("_error")
        beside = [name for measure in measures for name in (measure, f"{measure}_error")]
        return pd.concat([groups.size().rename("n"), means, errors], axis=1)[["n", *beside]]

    def summary(self) -> str:
        """The study for people: what was run, the means, and what failed."""
        table = self.table()
        parts = [format_rows(self._head()), _format_table(table) if len(table) else "No run has a score."]
        return "\n\n".join(part for part in (*parts, "\n".join(self._notes())) if part)

    def _records(self) -> list[Row]:
        rows = cast("list[Row]", self.table().reset_index().to_dict("records"))
        return [{**row, "epsilon": OPEN if math.isinf(row["epsilon"]) else row["epsilon"]} for row in rows]

    def figures(self, folder: str | Path, *, announce: Announce = silent) -> dict[str, Path]:
        """Draw the error by parties, what it costs, and whether the right predictors were found, as PNG.

        Args:
            folder: Where to keep them; made if it is not there.
            announce: Not used: nothing is left out.

        Returns:
            The files by what they show; none where nothing was varied that could be drawn.
        """
        from tacit.experiments.studies.curves.figures import draw

        return draw(self, Path(folder))

    def _in_order(self) -> list[CurveCell]:
        """Cells that are averaged stand together."""
        places = {
            name: {value: place for place, value in enumerate(getattr(self.study, f"{name}s"))}
            for name in ("release", "epsilon")
        }
        return sorted(
            self.study.cells,
            key=lambda cell: (places["release"][cell.release], places["epsilon"][cell.epsilon], cell.parties),
        )

    def _head(self) -> list[tuple[str, str]]:
        data, task = self.study.experiment.data, self.study.experiment.task
        return [
            ("study", self.name),
            ("task", task.kind),
            ("data", f"{data.kind}, {data.design}: {data.records:,} subjects in {self.study.folds} folds"),
            ("runs", self.runs),
            *self._promise(),
        ]

    def _promise(self) -> list[tuple[str, str]]:
        """What all private runs have in common."""
        promise = self.study.example.privacy
        if isinstance(promise, Open):
            return []
        common = f"delta {promise.delta:g} for any one {promise.unit}{', REHEARSAL' * promise.rehearsal}"
        return [("promise", f"epsilon for all parties together, however many; {common}")]

    def _notes(self) -> list[str]:
        found = list[str]()
        if len(self.frame) and self.frame["floor"].notna().any():
            floor = float(self.frame["floor"].mean())
            found.append(
                "Means over replicates and folds, ± one standard error. "
                f"Of the response, {floor:.3f} (RIL2) cannot be predicted by anybody."
            )
        return found + self.failed_in_words()


def _format_table(table: "pd.DataFrame") -> str:
    """Means as a table for people."""
    header = [*BY, "n", *(words for words, _, _ in SHOWN.values())]
    rows = [
        [
            row["release"],
            OPEN if math.isinf(row["epsilon"]) else f"{row['epsilon']:g}",
            str(row["parties"]),
            str(row["n"]),
            *(_cell(row, name) for name in SHOWN),
        ]
        for row in table.reset_index().to_dict("records")
    ]
    return align_table(header, rows)


def _cell(row: Mapping[Any, Any], name: str) -> str:
    _, decimals, unit = SHOWN[name]
    if not math.isfinite(row[name]):
        return "-"
    error = row[f"{name}_error"]
    beside = f" ± {error:.{decimals}f}" if name in JUDGED and math.isfinite(error) else ""
    return f"{row[name] / unit:.{decimals}f}{beside}"
