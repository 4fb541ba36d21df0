"""HOW IT IS COMBINED: from one vector per site to one vector, whatever some sites send.

averaging     the mean, over a public denominator
coordinates   median, trimmed mean, mean around the median: each number by itself
robust        geometric median, centred clipping, the covariance filter; selecting: Krum and its kin
scores        who has the most others near, found in single precision where that tells
mixing        steps before a rule: nearest neighbours, buckets
screening     what is left out before anything is combined
quarantine    who is watched, and left out for a while
clusters      several models for one federation
grouping      groups of points, and how far two groupings agree
secure/       sums of vectors that nobody sees
attacks       how sites lie, to try all of this out
server        what the server does with the result
"""

from collections.abc import Mapping
from typing import Any

from tacit.aggregation.averaging import Mean as Mean
from tacit.aggregation.coordinates import MeanAroundMedian as MeanAroundMedian
from tacit.aggregation.coordinates import Median as Median
from tacit.aggregation.coordinates import TrimmedMean as TrimmedMean
from tacit.aggregation.mixing import Bucketing as Bucketing
from tacit.aggregation.mixing import Mixing as Mixing
from tacit.aggregation.robust import CenteredClip as CenteredClip
from tacit.aggregation.robust import CovarianceFilter as CovarianceFilter
from tacit.aggregation.robust import GeometricMedian as GeometricMedian
from tacit.aggregation.robust import Robust as Robust
from tacit.aggregation.selecting import Bulyan as Bulyan
from tacit.aggregation.selecting import Krum as Krum
from tacit.aggregation.selecting import MultiKrum as MultiKrum

# By kind; the first one is meant where none is named.
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
