"""The curve of a sweep: the score against epsilon, or against whatever was swept."""

import math
from typing import TYPE_CHECKING, Any

from tacit.experiments.sweeps.result import SweepResult, score_title
from tacit.experiments.sweeps.spec import EPSILON
from tacit.experiments.sweeps.values import labels, sort_value

if TYPE_CHECKING:
    import pandas as pd

    from tacit.reports.plots.style import Picture

# What a line is called where there is one.
ONE = "federated"
REFERENCES = {"alone": "each site alone", "pooled": "pooled"}


def curve(swept: SweepResult) -> "Picture | None":
    """The score that counts against what is swept; None where no run has one, or lines are too many."""
    from tacit.reports.plots.style import PALETTE

    rows = _rows(swept)
    if rows.empty or rows["method"].nunique() > len(PALETTE):
        return None
    if axis_key(swept) != EPSILON:
        return _by_value(swept, rows)
    priced = rows[rows["value"] < math.inf]
    return None if priced.empty else _by_price(swept, priced, rows[rows["value"] == math.inf])


def axis_key(swept: SweepResult) -> str:
    """The key that is drawn along the axis: epsilon, or else the one with most numbers, or most words."""
    if EPSILON in swept.keys:
        return EPSILON
    return max(swept.keys, key=lambda key: (swept.numeric(key), len(swept.study.swept[key])))


def score_format(swept: SweepResult) -> str:
    """How numbers of the score that counts are written."""
    return "{:.1f}" if swept.goal[0].startswith(("return", "iqm")) else "{:.3f}"


def _rows(swept: SweepResult) -> "pd.DataFrame":
    """One row for each combination: the value along the axis, the line it belongs to, and the score."""
    import pandas as pd

    key, score, found = axis_key(swept), swept.goal[0], list[dict[str, Any]]()
    table = swept.table().reset_index()
    if score not in table:
        return pd.DataFrame()
    others = [name for name in swept.keys if name != key]
    names = labels(others)
    for row in table.to_dict("records"):
        mean, low, high = (float(row[f"{score}{end}"]) for end in ("", "_low", "_high"))
        if math.isnan(mean) or (key == EPSILON and row[key] < math.inf and math.isnan(row["spent"])):
            # Of a price that is not proven there is no place on the axis.
            continue
        # A promise is kept at what was asked for; what a run cost is never more.
        value = max(row[key], row["spent"]) if key == EPSILON and row[key] < math.inf else row[key]
        known = not math.isnan(low)
        found.append(
            {
                "value": value,
                "method": ", ".join(_line(names[name], row[name]) for name in others) or ONE,
                "score": mean,
                "low": low if known else mean,
                "high": high if known else mean,
            }
        )
    return pd.DataFrame(found, columns=["value", "method", "score", "low", "high"])


def _by_price(swept: SweepResult, priced: "pd.DataFrame", opened: "pd.DataFrame") -> "Picture":
    from tacit.reports.plots.privacy_utility import privacy_utility

    many = opened["method"].nunique() > 1
    references = {
        f"open, {row['method']}" if many else "open": float(row["score"]) for row in opened.to_dict("records")
    }
    table = priced.rename(columns={"value": "epsilon"})
    return privacy_utility(
        table if swept.interval else table.drop(columns=["low", "high"]),
        references={**references, **_baseline_scores(swept)},
        score=score_title(swept.goal[0]),
        shown=score_format(swept),
        # A single point has no band to be seen.
        band=(swept.interval or None) if table["epsilon"].nunique() > 1 else None,
        title=headline(swept),
        provenance=provenance(swept),
    )


def _by_value(swept: SweepResult, rows: "pd.DataFrame") -> "Picture":
    from tacit.reports.plots.sweep import by_number, by_word

    key = axis_key(swept)
    options: dict[str, Any] = {
        "across": key,
        "score": score_title(swept.goal[0]),
        "shown": score_format(swept),
        "references": _baseline_scores(swept),
        "band": swept.interval or None,
        "title": headline(swept),
        "provenance": provenance(swept),
    }
    if not swept.numeric(key):
        return by_word(rows, **options)
    return by_number(rows, **options, beside=_baseline_scores_by(swept, key))


def _baseline_scores(swept: SweepResult) -> dict[str, float]:
    """What the score is without any promise, where that is the same for all runs."""
    found = {str(one["name"]): _mean(swept, one) for one in swept.baselines() if not one["changes"]}
    return {REFERENCES.get(name, name): mean for name, mean in found.items() if mean is not None}


def _baseline_scores_by(swept: SweepResult, key: str) -> dict[str, dict[float, float]]:
    """The same where it depends on the value along the axis, and on nothing else."""
    found: dict[str, dict[float, float]] = {}
    for one in swept.baselines():
        mean = _mean(swept, one)
        if list(one["changes"]) == [key] and mean is not None:
            name = str(one["name"])
            points = found.setdefault(REFERENCES.get(name, name), {})
            points[float(sort_value(one["changes"][key]))] = mean
    return found


def _mean(swept: SweepResult, one: dict[str, Any]) -> float | None:
    return one["scores"].get(swept.goal[0], {}).get("mean")


def headline(swept: SweepResult) -> str:
    """What came of it, in one sentence."""
    rows = _rows(swept).to_dict("records")
    if not rows:
        return f"Nothing can be drawn of {swept.name} yet"
    score, form = score_title(swept.goal[0]), score_format(swept)
    best = max if swept.goal[1] == "max" else min
    if axis_key(swept) != EPSILON:
        top = best(rows, key=lambda row: row["score"])
        ends = [form.format(end(row["score"] for row in rows)) for end in (min, max)]
        own = f"{labels([axis_key(swept)])[axis_key(swept)]} {_word(top['value'])}"
        line = "" if top["method"] == ONE else f", {top['method']}"
        return f"{score} between {ends[0]} and {ends[1]}, best with {own}{line}"
    prices = sorted({float(row["value"]) for row in rows})
    bounded = [price for price in prices if price < math.inf]
    ends = list(dict.fromkeys([*bounded[:1], *bounded[-1:], *prices[-1:]]))
    reached = {price: best(row["score"] for row in rows if row["value"] == price) for price in ends}
    # Of several lines that share an epsilon, the best.
    most = "" if len({row["method"] for row in rows}) == 1 else "at best "
    told = ", ".join(f"{form.format(found)} {_at(price)}" for price, found in reached.items())
    return f"{score} {most}{told}"


def _at(price: float) -> str:
    return f"at epsilon {price:g}" if price < math.inf else "without a promise"


def provenance(swept: SweepResult) -> str:
    """Where the numbers come from."""
    promise = swept.study.example.privacy
    seeds = len(swept.study.seeds)
    told = f"{swept.name}: {swept.study.experiment.task.kind}, mean of {seeds} seed{'s' * (seeds != 1)}"
    if getattr(promise, "rehearsal", False):
        told += "; REHEARSAL: the noise repeats with the seed and protects nobody"
    return told


def _line(name: str, value: object) -> str:
    """What a line is called; words speak for themselves."""
    return f"{name} {_word(value)}" if isinstance(value, float) else str(value)


def _word(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
