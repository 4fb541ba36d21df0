"""The peak memory of a process for the same work, including the interpreter and all libraries.

Each side runs in a process of its own; the work and the comparisons are those of the races for speed.
Libraries take most of the first 300 MB of each side.
"""

from bench import aggregation, metrics, rounds, survival
from bench.racing import Race

FIT = {"model": "LogisticHazard", "records": 20_000, "sites": 50, "rounds": 1, "private": False}
MIXED = {"rule": "mixing, trimmed-mean", "sites": 50, "precision": "single"}


def our_fit():
    return survival.ours(**FIT)


def federated_survival():
    return survival.federated_survival(**FIT)


def our_score(score, count):
    return metrics.ours(score, count)


def scikit_survival(score, count):
    return metrics.scikit_survival(score, count)


def torchsurv(score, count):
    return metrics.torchsurv(score, count)


def our_mixing():
    return aggregation.ours(**MIXED)


def byzfl():
    return aggregation.byzfl_numpy(**MIXED)


def our_round():
    return rounds.ours(100, "private")


def plain_loop():
    return rounds.plain_loop(100, "private")


def race(name, ours, theirs, same, **given):
    return Race(name=name, group=name, ours=ours, theirs=theirs, same=same, given=given, by="peak", repeats=1)


RACES = [
    race(
        "LogisticHazard, a round of 20,000 records at 50 sites",
        our_fit,
        {"federated-survival 0.8.0": federated_survival},
        {"weights": 1e-5, "noise": 0.0, "c_index": 1e-5, "ibs": 1e-5},
    ),
    race(
        "Harrell's C, 10,000 records",
        our_score,
        {"torchsurv 0.2": torchsurv},
        1e-6,
        score="Harrell's C",
        count=10_000,
    ),
    race(
        "integrated Brier, 100,000 records",
        our_score,
        {"scikit-survival 0.28": scikit_survival},
        1e-9,
        score="integrated Brier",
        count=100_000,
    ),
    race("mixing and trimmed mean, 50 sites", our_mixing, {"ByzFL 0.0.11, numpy": byzfl}, 1e-4),
    race("a round of 100 sites, private", our_round, {"plain loop": plain_loop}, 1e-5),
]
