"""Every robust rule against ByzFL 0.0.11, with numpy and with torch, on the same updates.

100,000 numbers in single precision from 10, 50 and 200 sites; the rules tolerate the largest number of
dishonest sites below a third. The updates are a common part and an equal amount of noise, so that no choice
is easy. Two rules of ByzFL are checked with other settings than they are timed with, because they stop early:
the geometric median takes ten steps, and is checked after twenty; the covariance filter uses a random
direction, and is checked with the direction that it estimates. Our means are sums in double precision, so
they are also compared with ByzFL's in double precision, with numpy. With 200 sites, only means and Krum are
run: ByzFL's mixing needs 11 GB, and its other rules take seconds for each call.
"""

from functools import lru_cache

import numpy as np

from bench.racing import Race, Work

WIDTH, RADIUS = 100_000, 1.5
# How often, for so many sites; Krum is nearest to its goal, so more often.
REPEATS = {10: 5, 50: 2, 200: 1}
CHOOSING = ("krum", "multi-krum", "mixing, krum", "mixing, trimmed-mean")
COORDINATES = ("median", "trimmed-mean", "mean-around-median")
WEIGHING = ("geometric-median", "centered-clip", "covariance-filter")


@lru_cache(maxsize=1)
def updates(sites, precision):
    draws = np.random.default_rng(sites)
    common = draws.standard_normal(WIDTH, dtype=np.float32)
    rows = draws.standard_normal((sites, WIDTH), dtype=np.float32) + common
    return rows.astype(np.float64) if precision == "double" else rows


def liars(sites):
    return (sites - 1) // 3


def ours(rule, sites, precision):
    from tacit import aggregation

    f = liars(sites)
    known = {
        "centered-clip": lambda: aggregation.CenteredClip(f=f, radius=RADIUS),
        "mean": aggregation.Mean,
        "mixing, krum": lambda: aggregation.Mixing(then=aggregation.Krum(f=f)),
        "mixing, trimmed-mean": lambda: aggregation.Mixing(then=aggregation.TrimmedMean(f=f)),
    }
    combine = known[rule]() if rule in known else aggregation.AGGREGATORS[rule](f=f)
    rows = updates(sites, precision)
    return Work(lambda: combine(rows))


def byzfl_numpy(rule, sites, precision):
    return byzfl(rule, liars(sites), updates(sites, precision))


def byzfl_torch(rule, sites, precision):
    import torch

    torch.set_num_threads(1)
    return byzfl(rule, liars(sites), torch.from_numpy(updates(sites, precision)))


def byzfl(rule, f, rows):
    from bench.peers.run_byzfl import RULES, mended, theirs

    to_the_end = {
        "geometric-median": lambda: theirs.GeometricMedian(T=20),
        "covariance-filter": lambda: mended(theirs.CAF(f)),
    }
    combine = RULES[rule](f)
    if rule not in to_the_end:
        return Work(lambda: combine(rows))
    return Work(lambda: combine(rows), check=lambda: to_the_end[rule]()(rows))


def race(rule, sites, precision="single"):
    groups = {
        "Krum, multi-Krum, mixing + Krum or trimmed mean": CHOOSING,
        "median, trimmed mean, mean around the median": COORDINATES,
        "geometric median, covariance filter, centered clipping": WEIGHING,
        f"mean in {precision} precision": ("mean",),
    }
    group = next(name for name, rules in groups.items() if rule in rules)
    peers = {"ByzFL 0.0.11, numpy": byzfl_numpy, "ByzFL 0.0.11, torch": byzfl_torch}
    if precision == "double":
        # With torch it goes back to single precision.
        del peers["ByzFL 0.0.11, torch"]
    return Race(
        name=f"{rule}, {sites} sites" + (", double precision" if precision == "double" else ""),
        group=f"{group}; {'10 and 50' if rule in COORDINATES + WEIGHING else '10 to 200'} sites",
        given={"rule": rule, "sites": sites, "precision": precision},
        ours=ours,
        theirs=peers,
        same=1e-4,
        goal=5 if rule in CHOOSING else None,
        repeats=REPEATS[sites] + (rule in CHOOSING[:2]) - (sites == 50 and rule in CHOOSING[2:]),
    )


RACES = [
    *(race(rule, sites) for sites in REPEATS for rule in CHOOSING[: 2 if sites == 200 else 4]),
    *(race(rule, sites) for sites in (10, 50) for rule in COORDINATES),
    *(race(rule, sites) for sites in (10, 50) for rule in WEIGHING),
    *(race("mean", sites, precision) for precision in ("single", "double") for sites in REPEATS),
]
