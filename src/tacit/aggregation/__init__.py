"""Combining updates: mean, robust rules, quarantine, clusters, attacks, secure aggregation.

base, mean, join   the contract of an aggregator; the mean over a public denominator; parties put side by side
server             the server's optimizer: plain step, momentum, Adam
screening          rejection of malformed updates before anything is combined
geometry, kernels  inner products and distances of updates, compiled
robust/            median, trimmed mean, Krum, geometric median, centered clipping, covariance filter, mixing
defence/           quarantine of sites, clusters of sites with models of their own
attacks/           attacks by dishonest (Byzantine) sites, to try all of this out
secure/            secure aggregation: sums of vectors that stay hidden
"""

from collections.abc import Mapping
from typing import Any

from tacit.aggregation.mean import Mean as Mean
from tacit.aggregation.robust.coordinatewise import MeanAroundMedian as MeanAroundMedian
from tacit.aggregation.robust.coordinatewise import Median as Median
from tacit.aggregation.robust.coordinatewise import TrimmedMean as TrimmedMean
from tacit.aggregation.robust.krum import Bulyan as Bulyan
from tacit.aggregation.robust.krum import Krum as Krum
from tacit.aggregation.robust.krum import MultiKrum as MultiKrum
from tacit.aggregation.robust.mixing import Bucketing as Bucketing
from tacit.aggregation.robust.mixing import Mixing as Mixing
from tacit.aggregation.robust.reweighted import CenteredClip as CenteredClip
from tacit.aggregation.robust.reweighted import CovarianceFilter as CovarianceFilter
from tacit.aggregation.robust.reweighted import GeometricMedian as GeometricMedian
from tacit.aggregation.robust.reweighted import Robust as Robust

# Aggregators by kind; the first is the default.
AGGREGATORS: Mapping[str, type[Any]] = {
    rule.kind: rule
    for rule in (
        Mean,
        Robust,
        Median,
        TrimmedMean,
        MeanAroundMedian,
        GeometricMedian,
        CenteredClip,
        CovarianceFilter,
        Krum,
        MultiKrum,
        Bulyan,
        Mixing,
        Bucketing,
    )
}

__all__ = [
    "AGGREGATORS",
    "Bucketing",
    "Bulyan",
    "CenteredClip",
    "CovarianceFilter",
    "GeometricMedian",
    "Krum",
    "Mean",
    "MeanAroundMedian",
    "Median",
    "Mixing",
    "MultiKrum",
    "Robust",
    "TrimmedMean",
]
