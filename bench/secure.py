"""What a sum in secret costs: CPU seconds of one site and of the server, bytes that a site uploads.

100,000 coordinates; all sites stay, or a fifth of them falls silent after having shared its secrets, which is
what costs the server most. Every sum is checked. Best of three. The peer is SecAgg+ of Flower in its own
environment (flwr, installed with --no-deps, and what it imports), which `PEERS` names; without it, figures
that were recorded stand in. Theirs rounds the vector besides, ours signs and verifies. Run it alone:
`make bench-secure`.
"""

import json
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")

import numpy as np

from tacit.aggregation.secure import Coordinator, Identity, Member, Roster, Session
from tacit.aggregation.secure.session import STAGES

WIDTH, REPEATS = 100_000, 3
SIZES = (3, 10, 50, 100)
PYTHON = Path(os.environ.get("PEERS", ".venv-peers")) / "bin" / "python"
# CPU seconds and bytes on two slow shared cores, flwr 1.41.0.
RECORDED = {
    (10, 0): {"version": "1.41.0", "site": 0.050, "server": 0.216, "upload": 806_722},
    (10, 2): {"version": "1.41.0", "site": 0.053, "server": 0.322, "upload": 807_266},
    (50, 10): {"version": "1.41.0", "site": 0.718, "server": 23.8, "upload": 836_002},
}


class Clock:
    """CPU seconds by what they were spent on."""

    def __init__(self) -> None:
        self.spent: dict[str, float] = {}

    def __call__(self, what: str | None, work: Callable, *inputs: object) -> Any:
        """What the work comes to."""
        start = time.process_time()
        done = work(*inputs)
        if what is not None:
            self.spent[what] = self.spent.get(what, 0.0) + time.process_time() - start
        return done


def sum_once(sites: int, dropouts: int) -> tuple[dict[str, float], int]:
    """The seconds of one site by stage and those of the server, and what the site uploaded."""
    names = tuple(f"site {number:03}" for number in range(sites))
    session = Session(run="bench", round=1, names=names, width=WIDTH)
    identities = {name: Identity.fresh() for name in names}
    # A roster of its own, as at a real site: signatures that another has verified do not help it.
    rosters = {name: Roster.of(identities) for name in names}
    members: dict[str, Member] = {}

    def offer(name: str) -> bytes:
        members[name] = Member(session, name, identities[name], rosters[name])
        return members[name].offer()

    server, clock, first = Coordinator(session, Roster.of(identities)), Clock(), names[0]
    draws = np.random.default_rng(0)
    vectors = {name: draws.integers(0, 2**32, WIDTH, dtype=np.uint32) for name in names}
    answers, silent, uploaded = dict.fromkeys(names, b""), set(names[sites - dropouts :]), 0
    steps = {
        "offer": (offer, server.offered),
        "share": (lambda name: members[name].shared(answers[name]), server.shared),
        "mask": (lambda name: members[name].masked(vectors[name], answers[name]), server.masked),
        "agree": (lambda name: members[name].agreed(answers[name]), server.agreed),
        "reveal": (lambda name: members[name].revealed(answers[name]), server.revealed),
    }
    for stage in STAGES:
        at_site, at_server = steps[stage]
        there = [name for name in answers if name not in silent or stage in ("offer", "share")]
        sent = {name: clock(stage if name == first else None, at_site, name) for name in there}
        uploaded += len(sent[first])
        answers = clock("server", at_server, sent)
    expected = np.add.reduce([vectors[name] for name in answers.survivors], dtype=np.uint32)
    assert (answers.total == expected).all()
    assert len(answers.survivors) == sites - dropouts
    return clock.spent, uploaded


def peer(sites: int, dropouts: int) -> tuple[dict[str, float], str]:
    """The same with Flower, or what was recorded of it; and which of the two."""
    if not PYTHON.exists():
        return RECORDED[sites, dropouts], "recorded"
    script = Path(__file__).parent / "peers" / "run_flower_secagg.py"
    # Its server takes long among many sites.
    words = [PYTHON, script, *map(str, (sites, dropouts, WIDTH, REPEATS if sites < 50 else 1))]
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        print(f"Flower cannot be run in {PYTHON.parents[1]}: {done.stderr.strip().splitlines()[-1]}")
        return RECORDED[sites, dropouts], "recorded"
    return json.loads(done.stdout.splitlines()[-1]), "measured"


def ours() -> dict[tuple[int, int], dict[str, float]]:
    """Every case, printed as it is done."""
    titles = [
        "sites",
        "dropped",
        *(f"{stage}, ms" for stage in STAGES),
        "site, ms",
        "server, ms",
        "upload, kB",
    ]
    print(f"| {' | '.join(titles)} |")
    print("| ---: " * len(titles) + "|")
    found: dict[tuple[int, int], dict[str, float]] = {}
    for sites in SIZES:
        for dropouts in sorted({0, sites // 5}):
            runs = [sum_once(sites, dropouts) for _ in range(REPEATS)]
            best = {what: min(spent[what] for spent, _ in runs) for what in runs[0][0]}
            site, upload = sum(best[stage] for stage in STAGES), runs[0][1]
            found[sites, dropouts] = {"site": site, "server": best["server"], "upload": upload}
            times = [best[stage] for stage in STAGES] + [site, best["server"]]
            cells = [f"{1e3 * seconds:,.1f}" for seconds in times] + [f"{upload / 1e3:,.1f}"]
            print(f"| {sites} | {dropouts} | {' | '.join(cells)} |", flush=True)
    return found


def main() -> None:
    found = ours()
    print("\n| times less than SecAgg+ of Flower | sites | dropped | site | server | upload |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for sites, dropouts in ((10, 0), (10, 2), (50, 10)):
        theirs, said = peer(sites, dropouts)
        ratios = [theirs[what] / found[sites, dropouts][what] for what in ("site", "server", "upload")]
        cells = " | ".join(f"{ratio:,.1f}" for ratio in ratios)
        print(f"| flwr {theirs['version']}, {said} | {sites} | {dropouts} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
