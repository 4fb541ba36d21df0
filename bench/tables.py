"""Results of comparisons as JSON, as Markdown and in the README.

A run writes into `bench/latest/`, which git ignores. Publishing copies its results to `bench/results/`.
"""

import json
import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from bench import COMPARISONS
from bench.sides import ROOT

RESULTS = ROOT / "bench" / "results"
LATEST = ROOT / "bench" / "latest"
PAGE = ROOT / "docs" / "guides" / "bench.md"
BEGIN, END = "<!-- bench: begin -->", "<!-- bench: end -->"


def machine() -> dict[str, Any]:
    """Describe the machine of the measurement."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    model = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "")
    return {
        "processor": model or platform.processor(),
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
        "python": platform.python_version(),
    }


def write(name: str, found: Mapping[str, Any]) -> None:
    """Write the results of a comparison, unpublished."""
    LATEST.mkdir(exist_ok=True)
    (LATEST / f"{name}.json").write_text(json.dumps(found, indent=1) + "\n")


def read() -> dict[str, dict[str, Any]]:
    """Read the published results, in the order of the comparisons."""
    paths = {name: RESULTS / f"{name}.json" for name in COMPARISONS}
    return {name: json.loads(path.read_text()) for name, path in paths.items() if path.exists()}


def raced(races: Iterable[Mapping[str, Any]]) -> str:
    """Every race of a file as a Markdown table."""
    head = ["the same work", "against", "theirs", "ours", "times better", "spread", "apart", "goal"]
    lines = [
        [
            race["race"],
            race["peer"] + (", recorded" if race["recorded"] else ""),
            *(_cost(race, who) for who in ("theirs", "ours")),
            number(race["ratio"]),
            ""
            if race["lowest"] == race["highest"]
            else f"{number(race['lowest'])} to {number(race['highest'])}",
            "" if race["apart"] is None else f"{race['apart']:.0e}",
            _goal(race),
        ]
        for race in races
    ]
    return _table(head, lines, numbers=slice(2, None))


def grown(growths: Sequence[Mapping[str, Any]]) -> str:
    """Growth as a Markdown table: a line for each side, its slope at the end."""
    tables: list[str] = []
    for growth in growths:
        head = [
            f"{growth['growth']}: {growth['over']}",
            *(f"{value:,}" for value in growth["values"]),
            "slope",
            "of the last two",
        ]
        lines = [
            [
                who,
                *(seconds(cost) for cost in costs),
                *[""] * (len(growth["values"]) - len(costs)),
                f"{growth['slope'][who]:.2f}",
                f"{growth['last_slope'][who]:.2f}",
            ]
            for who, costs in growth["cpu_seconds"].items()
        ]
        tables.append(_table(head, lines, numbers=slice(1, None)))
    return "\n\n".join(tables)


def grouped(results: Mapping[str, Mapping[str, Any]]) -> str:
    """The README's table: what we had a goal for, by group and peer; then where we are behind."""
    gathered: dict[tuple[str, str, str], list[Mapping[str, Any]]] = {}
    races = [(name, race) for name, found in results.items() for race in found["races"]]
    for name, race in races:
        if race["goal"]:
            gathered.setdefault((name, race["group"], race["peer"]), []).append(race)
    lines = [
        [
            group,
            peer + (", as recorded" if own[0]["recorded"] else ""),
            _range([race["ratio"] for race in own]),
            _goals(own),
            f"`make bench-{name}`",
        ]
        for (name, group, peer), own in gathered.items()
    ]
    table = _table(["the same work", "against", "times better", "goal", ""], lines, numbers=slice(2, 4))
    minutes = sum(found["seconds"] for found in results.values()) / 60
    return f"{table}\n\n{behind([race for _, race in races])} All of it took {minutes:.0f} minutes."


def behind(races: Sequence[Mapping[str, Any]]) -> str:
    """Count the comparisons, and list those in which the peer is better."""
    lost = [
        f"{race['race']} against {race['peer']} ({race['ratio']:.2f})" for race in races if race["ratio"] < 1
    ]
    said = f"behind in {len(lost)}: {'; '.join(lost)}" if lost else "behind in none"
    return f"Of all {len(races)} comparisons with peers, we are {said}."


def publish() -> None:
    """Publish the latest results: copy them, then write the tables of the README and the guide."""
    for path in sorted(LATEST.glob("*.json")):
        path.replace(RESULTS / path.name)
    results = read()
    _between(ROOT / "README.md", grouped(results))
    _between(PAGE, page(results))


def page(results: Mapping[str, Mapping[str, Any]]) -> str:
    """Everything that is kept, a section for each file."""
    sections: list[str] = []
    for name, found in results.items():
        about = (import_module(f"bench.{name}").__doc__ or "").strip()
        where = found["machine"]
        said = (
            f"*{where['processor']}, {where['cores']} cores, load {where['load']} when it began, "
            f"Python {where['python']}; `make bench-{name}` took {found['seconds'] / 60:.1f} minutes.*"
        )
        parts = [f"## {name}", about, said]
        parts += [raced(found["races"])] if found["races"] else []
        parts += [grown(found["growths"])] if found["growths"] else []
        sections.append("\n\n".join(parts))
    return "\n\n".join(sections)


def published(path: Path) -> str:
    """Return the text between the marks of a file."""
    return path.read_text().split(BEGIN)[1].split(END)[0].strip()


def number(value: float) -> str:
    """Two significant digits or so; thousands with a comma."""
    if value >= 100:
        return f"{float(f'{value:.2g}'):,.0f}"
    return f"{value:.0f}" if value >= 10 else f"{value:.1f}" if value >= 0.95 else f"{value:.2f}"


def seconds(value: float) -> str:
    """A time with the unit that suits it."""
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value / 1e-6:.3g} µs"


def _cost(race: Mapping[str, Any], who: str) -> str:
    if race["by"] == "peak":
        return f"{race['peak_megabytes'][who]:,.0f} MB"
    return seconds(race["cpu_seconds"][who])


def _goal(race: Mapping[str, Any]) -> str:
    if race["goal"] is None:
        return ""
    return f"{race['goal']:g}" + ("" if race["ratio"] >= race["goal"] else ", missed")


def _goals(races: Sequence[Mapping[str, Any]]) -> str:
    goals = {race["goal"] for race in races} - {None}
    missed = sum(race["goal"] is not None and race["ratio"] < race["goal"] for race in races)
    said = " / ".join(f"{goal:g}" for goal in sorted(goals))
    return said + (f", missed by {missed} of {len(races)}" if missed else "")


def _range(ratios: Sequence[float]) -> str:
    low, high = number(min(ratios)), number(max(ratios))
    return low if low == high else f"{low} to {high}"


def _table(head: Sequence[str], lines: Iterable[Sequence[str]], *, numbers: slice) -> str:
    marks = ["---"] * len(head)
    marks[numbers] = ["---:"] * len(marks[numbers])
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, marks, *lines))


def _between(path: Path, text: str) -> None:
    before, rest = path.read_text().split(BEGIN)
    after = rest.split(END)[1]
    path.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}")
