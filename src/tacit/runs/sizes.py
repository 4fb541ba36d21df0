"""Numbers of records and events behind a result, where they are public, bought or may be looked at."""

import numpy as np

from tacit.privacy.policy import Provenance
from tacit.sites.federation import Federation, RowFederation
from tacit.sites.table import Records, Table

# Name of a count, such as `records`, and the count.
Counts = dict[str, int]


def count_sizes(federation: Federation, test: Records | None, provenance: Provenance) -> dict[str, Counts]:
    """Count the records that a model is trained and scored on, and their events.

    Under a promise, the number of training records is shown if it is public or bought, and that of events is
    not. Scored records are public wherever they are scored.

    Args:
        federation: The sites.
        test: The records that the model is scored on.
        provenance: Decides if records may be looked at.
    """
    found: dict[str, Counts] = {}
    if isinstance(federation, RowFederation) and provenance.allowed and not federation.distant:
        found["trained"] = _count(federation.store)
    elif isinstance(federation, RowFederation) and federation.records is not None:
        found["trained"] = {"records": federation.records}
    if isinstance(test, Table):
        found["scored"] = _count(test)
    return found


def _count(table: Table) -> Counts:
    if "event" not in table.targets:
        return {"records": len(table)}
    return {"records": len(table), "events": int(np.count_nonzero(table.targets["event"] > 0))}
