"""Results of a study of curves: a row for each run, their means, a summary for people, figures."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from tacit.experiments.batch import Announce, BatchResult, Row, silent
from tacit.experiments.studies.curves import OPEN, SCORES, CurveCell, CurveStudy, promise_in_words
from tacit.privacy.policy import Open
from tacit.reports.text import align_table, format_rows

if TYPE_CHECKING:
    import pandas as pd

BY = ("release", "epsilon", "parties")
MEASURES = (*SCORES, "seconds", "bytes")
COLUMNS = [*BY, "replicate", "fold", "spent", *SCORES, "selected", "steps", "seconds", "bytes", "floor"]
NUMBERS = ["epsilon", "spent", "floor", *MEASURES]
# Means in the summary: label, decimals, and factor of the unit.
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
KINDS = ("sensitivity", "specificity")


@dataclass(frozen=True, eq=False, kw_only=True)
class CurveStudyResult(BatchResult[CurveCell]):
    """Results of a study of curves.

    In its frame, `epsilon` is the requested one, infinite for an open run, and `spent` is the one in the
    run's statement; `floor` is the RIL2 of the true regression, which no method is expected to beat.

    Args:
        batch: The study.
        rows: The row of each finished cell: its scores, or the reason that it has none.
        path: The directory of the study.
    """

    batch: CurveStudy

    @property
    def _columns(self) -> tuple[list[str], list[str]]:
        return COLUMNS, NUMBERS

    def _factors(self, cell: CurveCell) -> Row:
        return {"epsilon": cell.epsilon}

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
        """Draw the error by parties, what it costs, and whether the right predictors were found, as PNG."""
        return _draw(self, Path(folder))

    def _in_order(self) -> list[CurveCell]:
        releases, epsilons = self.batch.releases, self.batch.epsilons

        def place(cell: CurveCell) -> tuple[int, int, int]:
            return releases.index(cell.release), epsilons.index(cell.epsilon), cell.parties

        return sorted(self.batch.cells, key=place)

    def _head(self) -> list[tuple[str, str]]:
        data, task = self.batch.experiment.data, self.batch.experiment.task
        return [
            ("study", self.name),
            ("task", task.kind),
            ("data", f"{data.kind}, {data.design}: {data.records:,} subjects in {self.batch.folds} folds"),
            ("runs", self.runs),
            *self._promise(),
        ]

    def _promise(self) -> list[tuple[str, str]]:
        """Return the promise that all private runs share, for the summary."""
        promise = self.batch.example.privacy
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


def _draw(studied: CurveStudyResult, folder: Path) -> dict[str, Path]:
    """Every figure that what was varied allows, as PNG in a folder; files by what they show."""
    frame = studied.frame[studied.frame["failed"].isna()]
    found: dict[str, Path] = {}
    if frame["parties"].nunique() > 1:
        for release, table in studied.table().reset_index().groupby("release", sort=False):
            found |= _by_parties(studied, str(release), table, folder)
    if frame.loc[frame["epsilon"].map(math.isfinite), "epsilon"].nunique() > 1:
        found |= _by_epsilon(studied, folder)
    return found


def _by_parties(
    studied: CurveStudyResult, release: str, table: "pd.DataFrame", folder: Path
) -> dict[str, Path]:
    """Draw error and selection by the number of parties; one figure per group of distinguishable colors."""
    from tacit.functional.figures import by_parties, selection
    from tacit.reports.plots.style import PALETTE

    found: dict[str, Path] = {}
    epsilons = list(dict.fromkeys(table["epsilon"].tolist()))
    for start in range(0, len(epsilons), len(PALETTE)):
        part = table[table["epsilon"].isin(epsilons[start : start + len(PALETTE)])]
        part = part.assign(method=[f"{promise_in_words(epsilon)}:" for epsilon in part["epsilon"].tolist()])
        more = f"{release}-{start // len(PALETTE) + 1}" if start else release
        places = {kind: _place(folder, f"{kind}-{more}") for kind in ("parties", "selection")}
        told = f"{release} release, {_provenance(studied, part)}"
        by_parties(
            _score_table(part), references=_floor(studied), title=_party_effect(part), provenance=told,
            path=places["parties"],
        )  # fmt: skip
        selection(_selection_table(part), provenance=told, path=places["selection"])
        found |= {place.stem: place for place in places.values()}
    return found


def _by_epsilon(studied: CurveStudyResult, folder: Path) -> dict[str, Path]:
    """Error and selection by epsilon, over all numbers of parties."""
    from tacit.functional.figures import privacy_utility, selection

    table = studied.table(["release", "epsilon"]).reset_index()
    finite = table["epsilon"].map(math.isfinite)
    private, without = table[finite].assign(method=table["release"]), table[~finite]
    references = _floor(studied)
    if len(without):
        references["open"] = float(without["ril2"].mean())
    told = f"{_provenance(studied, private)}, with {_span(sorted(set(studied.frame['parties'])))} parties"
    places = {name: _place(folder, name) for name in ("privacy-utility", "selection-epsilon")}
    privacy_utility(
        _score_table(private), references=references, provenance=told, path=places["privacy-utility"]
    )
    selection(_selection_table(private), by="epsilon", provenance=told, path=places["selection-epsilon"])
    return places


def _party_effect(table: "pd.DataFrame") -> str:
    """Return a title: the largest difference in RIL2 between numbers of parties, over all promises."""
    groups = table.groupby("epsilon")["ril2"]
    most = float((groups.max() - groups.min()).max())
    return f"With {_span(sorted(set(table['parties'])))} parties, RIL2 differs by at most {most:.3f}"


def _score_table(table: "pd.DataFrame") -> "pd.DataFrame":
    return _without_unknown(table.assign(score=table["ril2"], error=table["ril2_error"]), ["error"])


def _selection_table(table: "pd.DataFrame") -> "pd.DataFrame":
    return _without_unknown(table, [f"{kind}_error" for kind in KINDS])


def _without_unknown(table: "pd.DataFrame", errors: list[str]) -> "pd.DataFrame":
    """The table with these errors, or with none if one of them is not known: of a single run."""
    kept = [name for name in table.columns if not str(name).endswith("error")]
    return table[kept + errors * bool(table[errors].notna().all(axis=None))]


def _floor(studied: CurveStudyResult) -> dict[str, float]:
    return {"noise": float(studied.frame["floor"].mean())}


def _provenance(studied: CurveStudyResult, table: "pd.DataFrame") -> str:
    data = studied.batch.experiment.data
    runs = _span(sorted(set(table["n"])))
    return f"simulated ({data.design}), {data.records:,} subjects; means of {runs} runs each"


def _span(values: list[int]) -> str:
    return f"{values[0]}" if len(values) == 1 else f"{values[0]} to {values[-1]}"


def _place(folder: Path, name: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{name}.png"
