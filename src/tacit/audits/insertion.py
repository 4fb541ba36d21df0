"""Canaries for whichever mechanism a promise becomes."""

from dataclasses import fields
from typing import Any, cast

from tacit.aggregation.base import Aggregator
from tacit.audits.canaries import CanariedBlindly, CanariedRecords, CanariedSites, Canaries
from tacit.audits.vertical_canaries import CanariedColumns, CanariedCounts, CanariedProducts, CanariedSecretly
from tacit.privacy.mechanisms.base import Mechanism, ProtectedRecords
from tacit.privacy.mechanisms.secure_sum import BlindSites
from tacit.privacy.mechanisms.site_level import ProtectedSites
from tacit.privacy.mechanisms.vertical import ColumnsApart, ColumnsBlind, ColumnsTogether, Counted

CANARIED: dict[type, type] = {
    ProtectedRecords: CanariedRecords,
    ProtectedSites: CanariedSites,
    BlindSites: CanariedBlindly,
    ColumnsApart: CanariedColumns,
    ColumnsTogether: CanariedProducts,
    ColumnsBlind: CanariedSecretly,
    Counted: CanariedCounts,
}


def canaried(
    mechanism: Mechanism, canaries: Canaries, *, aggregation: Aggregator | None = None, sites: int = 1
) -> Mechanism:
    """The same mechanism with canaries in it."""
    kind = CANARIED[type(mechanism)]
    own: dict[str, Any] = {"canaries": canaries, "aggregation": aggregation, "sites": sites}
    known = {entry.name for entry in fields(kind)}
    given = {entry.name: getattr(mechanism, entry.name) for entry in fields(cast(Any, mechanism))}
    return kind(**{**{name: value for name, value in own.items() if name in known}, **given})
