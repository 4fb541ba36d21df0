"""`python -m bench` runs every comparison, `python -m bench NAME...` some; `tables` publishes their results.

Prints Markdown tables and writes results into `bench/latest/`; `tables` copies them to `bench/results/`, and
rewrites the README and the guide. It ends with an error where two sides did not compute the same. A goal that
is missed is printed, and is no error: machines differ.
"""

import sys
import time
from importlib import import_module
from typing import Any

from bench import COMPARISONS, tables
from bench.racing import Stable, grown, run


def compared(name: str) -> dict[str, Any]:
    """Run the comparisons of a file and print each result at once."""
    module, began, where = import_module(f"bench.{name}"), time.perf_counter(), tables.machine()
    races, growths = list[dict[str, Any]](), list[dict[str, Any]]()
    print(f"\n## {name}\n\n{(module.__doc__ or '').strip().splitlines()[0]}\n", flush=True)
    with Stable(module.__name__) as stable:
        for race in getattr(module, "RACES", ()):
            for found in run(race, stable):
                # Only the first line needs a head.
                print("\n".join(tables.raced([found]).splitlines()[2 if races else 0 :]), flush=True)
                races.append(found)
        for growth in getattr(module, "GROWTHS", ()):
            growths.append(grown(growth, stable))
            print(tables.grown(growths[-1:]) + "\n", flush=True)
    spent = time.perf_counter() - began
    return {"machine": where, "seconds": spent, "races": races, "growths": growths}


def main(names: list[str]) -> None:
    """Run the comparisons, or the one study, of these names."""
    if names == ["tables"]:
        tables.publish()
        return
    if names and hasattr(module := import_module(f"bench.{names[0]}"), "main"):
        sys.argv = [module.__file__ or "", *names[1:]]
        module.main()
        return
    missed = []
    for name in names or COMPARISONS:
        found = compared(name)
        tables.write(name, found)
        missed += [race for race in found["races"] if race["goal"] and race["ratio"] < race["goal"]]
        print(f"\n{name} took {found['seconds']:.0f} s", flush=True)
    for race in missed:
        print(f"missed: {race['race']}, against {race['peer']}: {race['ratio']:.1f} of {race['goal']:g}")


if __name__ == "__main__":
    main(sys.argv[1:])
