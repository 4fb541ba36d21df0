"""`python -m mutants` draws mutants, runs the tests of their folders, and lists the survivors.

The exit code is 1 if fewer than 95 % are killed. Mutants in `equivalent.toml` compute the same, or something
as good, for the reason given there; they do not count.
"""

import argparse
import os
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any, cast

from mutants.cache import VerdictCache
from mutants.changes import Mutant, sample
from mutants.running import KILLED, Tree, Verdict, mirror, place_of_trees, select_tests

ROOT = Path(__file__).parents[1]
GOAL = 0.95


def main(words: Sequence[str] | None = None) -> int:
    """Run mutants; return 0 if enough are killed."""
    parser = argparse.ArgumentParser(prog="python -m mutants", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--count", type=int, default=200, help="mutants to draw")
    parser.add_argument("--seed", type=int, default=1, help="which ones")
    parser.add_argument(
        "--only", default="", help="of those drawn, the ones with this text in their line of the list"
    )
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="mutants at a time")
    parser.add_argument(
        "--keep", type=Path, help="folder of verdicts and traces, from which a later call resumes"
    )
    given = parser.parse_args(words)
    every = sample(ROOT / "src" / "tacit", given.count, given.seed)
    drawn = [one for one in every if given.only in str(one)]
    reasons, cache = find_equivalents(drawn), VerdictCache(given.keep, ROOT)
    with place_of_trees() as place, ThreadPoolExecutor(given.workers) as pool:
        trees: SimpleQueue[Tree] = SimpleQueue()
        for number in range(given.workers):
            trees.put(Tree(ROOT, Path(place) / str(number)))

        def using(work: Any, *rest: object) -> Any:  # noqa: ANN401
            tree = trees.get()
            try:
                return work(tree, *rest)
            finally:
                trees.put(tree)

        found = [Verdict(one, "equivalent", reason) for one, reason in reasons.items()]
        found += [verdict for one in drawn if one not in reasons and (verdict := cache.killed(one))]
        running = [one for one in drawn if one not in {verdict.mutant for verdict in found}]
        files = sorted({file for one in running for file in mirror(ROOT, one.path)})
        modules = sorted({one.path for one in every})
        traced = pool.map(lambda file: cache.trace(file, modules, partial(using, Tree.trace)), files)
        tests = {test: found for tests in traced for test, found in tests.items()}
        known = {test: found for test, found in tests.items() if not found.get("failed")}
        print(f"{len(drawn)} mutants, {len(known)} tests of their folders pass without a change", flush=True)
        for test in tests.keys() - known.keys():
            print(f"left out, as it fails without any mutant: {test}", flush=True)
        # In the order in which they finish, so that the cache has each at once.
        for done in as_completed([pool.submit(using, run_mutant, one, known) for one in running]):
            verdict = cast(Verdict, done.result())
            print(f"{verdict.fate:9} {verdict.mutant}  ({verdict.detail})", flush=True)
            found.append(verdict)
            cache.add(verdict)
        while not trees.empty():
            trees.get().close()
    return summarize(found)


def run_mutant(tree: Tree, mutant: Mutant, known: Mapping[str, dict[str, Any]]) -> Verdict:
    """Run the tests that may kill a mutant, and return the verdict."""
    files = mirror(ROOT, mutant.path)
    tests = select_tests(mutant, known, files)
    if not tests:
        return Verdict(mutant, "survived", "no test of its folder executes it")
    used = {test.split("::")[0] for test in tests}
    return tree.run(mutant, [file for file in files if file in used], tests)


def find_equivalents(drawn: Iterable[Mutant]) -> dict[Mutant, str]:
    """Return the equivalent mutants among those drawn, with the reasons found by review."""
    listed = tomllib.loads((Path(__file__).parent / "equivalent.toml").read_text())["mutant"]
    reasons = {(one["path"], one["text"], one["before"]): one["why"] for one in listed}
    known = ((one, reasons.get((one.path, one.text, one.before))) for one in drawn)
    return {one: reason for one, reason in known if reason is not None}


def summarize(found: Sequence[Verdict]) -> int:
    """Print the survivors and the mutation score; return 0 if enough mutants are killed."""
    print()
    for kind in ("number", "operator", "comparison"):
        fates = Counter(verdict.fate for verdict in found if verdict.mutant.kind == kind)
        print(f"{kind}: {dict(fates)}")
    fates = Counter(verdict.fate for verdict in found)
    tested, killed = len(found) - fates["equivalent"], sum(fates[kind] for kind in KILLED)
    share = killed / tested if tested else 1.0
    print(
        f"killed {killed} of {tested} ({share:.1%}), {fates['timeout']} of them by timeout; "
        f"{fates['late']} were late, {fates['equivalent']} are equivalent"
    )
    for verdict in sorted(found, key=lambda verdict: (verdict.fate, verdict.mutant)):
        if verdict.fate in ("survived", "late"):
            print(f"{verdict.fate} {verdict.mutant}  ({verdict.detail})")
    return 0 if share >= GOAL else 1


if __name__ == "__main__":
    sys.exit(main())
