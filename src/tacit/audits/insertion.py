"""Canaries for whichever mechanism a promise becomes."""

from dataclasses import fields
from typing import Any, cast

from tacit.aggregation.base import Aggregator
from tacit.audits.canaries import CanariedRecordLevel, CanariedSecureSum, CanariedSiteLevel, Canaries
from tacit.audits.vertical_canaries import (
    CanariedCounts,
    CanariedGramMatrix,
    CanariedLocalColumns,
    CanariedSecureGram,
)
from tacit.privacy.mechanisms.base import Mechanism, RecordLevel
from tacit.privacy.mechanisms.secure_sum import SecureSum
from tacit.privacy.mechanisms.site_level import SiteLevel
from tacit.privacy.mechanisms.vertical import ClippedSecureGram, GramMatrix, LocalColumns, NoisyHistograms

CANARIED: dict[type, type] = {
    RecordLevel: CanariedRecordLevel,
    SiteLevel: CanariedSiteLevel,
    SecureSum: CanariedSecureSum,
    LocalColumns: CanariedLocalColumns,
    GramMatrix: CanariedGramMatrix,
    ClippedSecureGram: CanariedSecureGram,
    NoisyHistograms: CanariedCounts,
}


def with_canaries(
    mechanism: Mechanism, canaries: Canaries, *, aggregation: Aggregator | None = None, sites: int = 1
) -> Mechanism:
    """The same mechanism with canaries in it."""
    kind = CANARIED[type(mechanism)]
    own: dict[str, Any] = {"canaries": canaries, "aggregation": aggregation, "sites": sites}
    known = {entry.name for entry in fields(kind)}
    given = {entry.name: getattr(mechanism, entry.name) for entry in fields(cast(Any, mechanism))}
    return kind(**{**{name: value for name, value in own.items() if name in known}, **given})
