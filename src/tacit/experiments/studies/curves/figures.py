"""The figures of a study: the error by parties, what it costs, whether the right predictors were found."""

import math
from pathlib import Path
from typing import TYPE_CHECKING

from tacit.experiments.studies.curves.cells import promise_in_words

if TYPE_CHECKING:
    import pandas as pd

    from tacit.experiments.studies.curves.result import CurveStudyResult

KINDS = ("sensitivity", "specificity")


def draw(studied: "CurveStudyResult", folder: Path) -> dict[str, Path]:
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
    studied: "CurveStudyResult", release: str, table: "pd.DataFrame", folder: Path
) -> dict[str, Path]:
    """Error and selection by parties; so many promises to a figure as can be told apart."""
    from tacit.functional.figures.comparisons import by_parties, selection
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


def _by_epsilon(studied: "CurveStudyResult", folder: Path) -> dict[str, Path]:
    """Error and selection by epsilon, over all numbers of parties."""
    from tacit.functional.figures.comparisons import privacy_utility, selection

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
    """How much the number of parties matters, at the promise where it matters most."""
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


def _floor(studied: "CurveStudyResult") -> dict[str, float]:
    return {"noise": float(studied.frame["floor"].mean())}


def _provenance(studied: "CurveStudyResult", table: "pd.DataFrame") -> str:
    data = studied.study.experiment.data
    runs = _span(sorted(set(table["n"])))
    return f"simulated ({data.design}), {data.records:,} subjects; means of {runs} runs each"


def _span(values: list[int]) -> str:
    return f"{values[0]}" if len(values) == 1 else f"{values[0]} to {values[-1]}"


def _place(folder: Path, name: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{name}.png"
