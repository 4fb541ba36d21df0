"""The other side of `bench/aggregation.py` and of `tests/reference/byzfl_rules.json`: ByzFL 0.0.11.

In an environment of its own (`make peers`). `run_byzfl.py reference FILE` writes what its rules answer in
double precision, and what they make of replies that should not break them.
"""

import json
import signal
import sys
import types
import warnings
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch

# The package itself loads its training benchmark, and a torchvision that would replace torch: only its rules.
_package = types.ModuleType("byzfl")
_package.__path__ = list(find_spec("byzfl").submodule_search_locations)
sys.modules["byzfl"] = _package

from byzfl import aggregators as theirs  # noqa: E402

# Sites and liars; in each, updates of three lengths.
CASES = [(5, 1), (10, 1), (10, 3), (20, 2), (20, 6)]
WIDTHS = (1, 7, 40)
RADIUS = 1.5
# What must not break a rule: ten sites, of which the last sends this in one coordinate, or in all of them.
POISON = {"nan": (np.nan, 1), "infinite": (np.inf, 1), "huge": (1e38, None)}
# The rules of ByzFL by our names.
RULES = {
    "mean": lambda f: theirs.Average(),
    "median": lambda f: theirs.Median(),
    "trimmed-mean": theirs.TrMean,
    "mean-around-median": theirs.Meamed,
    "geometric-median": lambda f: theirs.GeometricMedian(T=10),
    "krum": theirs.Krum,
    "multi-krum": theirs.MultiKrum,
    "centered-clip": lambda f: theirs.CenteredClipping(L=1, tau=RADIUS),
    "covariance-filter": theirs.CAF,
    "mixing, trimmed-mean": lambda f: mixed(f, theirs.TrMean),
    "mixing, krum": lambda f: mixed(f, theirs.Krum),
}


def mixed(f: int, rule):
    """Nearest-neighbour mixing before a rule."""
    return lambda rows: rule(f)(theirs.NNM(f)(rows))


def exact_rules(f: int) -> dict:
    """The rules that are compared number by number: iterations run to their end, directions are exact."""
    changed = {
        # From d = 1 on its steps creep toward an update; so many arrive.
        "geometric-median": theirs.GeometricMedian(nu=1e-13, T=30_000),
        "centered-clip, 4 steps": theirs.CenteredClipping(L=4, tau=RADIUS),
        "covariance-filter": mended(theirs.CAF(f)),
    }
    return {name: rule(f) for name, rule in RULES.items()} | changed


def mended(rule):
    """The filter, less what is random in it, and less what keeps it from ending.

    Its one power iteration starts in a random direction: here in the one that it looks for. And a row without
    weight still sets the scale by which others lose theirs, which is then nearly nothing: here it does not.
    """

    def top(size: int, device: object = None):
        around = sys._getframe(1).f_locals
        around["diffs"][around["c"] == 0] = 0
        scaled = np.sqrt(np.asarray(around["c"]))[:, None] * np.asarray(around["diffs"])
        direction = scaled.T @ np.linalg.eigh(scaled @ scaled.T)[1][:, -1]
        return direction if device is None else torch.from_numpy(direction)

    def call(rows):
        kept = np.random.randn, torch.randn
        np.random.randn = torch.randn = top
        try:
            return rule(rows)
        finally:
            np.random.randn, torch.randn = kept

    return call


def inputs(sites: int, width: int) -> np.ndarray:
    """Updates around a common direction, one of them far away."""
    draws = np.random.default_rng([sites, width])
    rows = draws.normal(size=(sites, width)) + draws.normal(size=width)
    rows[-1] *= -6
    return np.round(rows, 5)


def reference(path: Path) -> None:
    """Write inputs and answers."""
    kept = {f"{n} x {d}": inputs(n, d).tolist() for n in (5, 10, 20) for d in WIDTHS}
    answers = []
    for sites, f in CASES:
        for width in WIDTHS:
            for name, rule in exact_rules(f).items():
                # Between two updates on a line, every point is a geometric median.
                if name == "geometric-median" and width == 1 and sites % 2 == 0:
                    continue
                found = np.round(rule(inputs(sites, width)), 10).tolist()
                answers.append({"rule": name, "inputs": f"{sites} x {width}", "f": f, "answer": found})
    source = f"ByzFL {version('byzfl')}, numpy {np.__version__}, double precision"
    lines = ",\n".join("    " + json.dumps(answer) for answer in answers)
    rows = ",\n".join(f"    {json.dumps(name)}: {json.dumps(values)}" for name, values in kept.items())
    head = f'  "source": {json.dumps(source)},\n  "radius": {RADIUS},\n  "holes": {json.dumps(holes())}'
    path.write_text(f'{{\n{head},\n  "inputs": {{\n{rows}\n  }},\n  "answers": [\n{lines}\n  ]\n}}\n')


def holes() -> dict[str, dict[str, str]]:
    """Report the outcome of each rule when one of ten sites sends no update."""
    found = {}
    for word, (poison, columns) in POISON.items():
        rows = inputs(10, 7)
        rows[-1, :columns] = poison
        found[word] = {name: outcome(rule(3), rows) for name, rule in RULES.items()}
    found["f of numpy"] = {"trimmed-mean": outcome(lambda rows: theirs.TrMean(np.int64(3))(rows), rows)}
    found["no liars"] = {"covariance-filter": outcome(theirs.CAF(0), inputs(10, 7))}
    return found


def outcome(rule, rows: np.ndarray) -> str:
    """A word for what a rule makes of the rows."""

    def stop(*_: object) -> None:
        raise TimeoutError

    signal.signal(signal.SIGALRM, stop)
    signal.alarm(3)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            answer = rule(rows)
    except TimeoutError:
        return "no end"
    except Exception as error:
        return type(error).__name__
    finally:
        signal.alarm(0)
    if answer is None:
        return "nothing"
    return "finite" if np.isfinite(answer).all() else "not finite"


if __name__ == "__main__":
    {"reference": reference}[sys.argv[1]](Path(sys.argv[2]))
