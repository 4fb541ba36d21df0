"""Checks of records before anything is charged, for every task.

A run on wrong records costs as much epsilon as one on right ones. What makes it useless, or its
promise weaker than stated, is refused by the column and the rule; where records are private, nothing else is
said.
"""

from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import NDArray

from tacit.errors import InvalidValue, Refused
from tacit.runtime.arrays import Array
from tacit.runtime.fingerprints import mark_copied
from tacit.sites.federation import RowFederation
from tacit.sites.table import Table

# The largest spread of a feature that training without a scale is fit for.
WIDEST = 100.0
# The part of the records at each end of a feature that its usual spread leaves out, at least one.
ENDS = 1 / 20
# Records with a copy, as a part of all, from which on a promise about single records is refused, so that no
# single record decides on it; the fewest such records, and the fewest records that show it.
COPIED, FEWEST, SHOWING = 1 / 10, 10, 20
# A delta for up to a million records.
SMALL = 1e-6


def require_scaled(table: Table, place: str, scaled: Collection[str] = ()) -> None:
    """Refuse features of so different scales that one dominates all others.

    The usual spread decides: a single record of absurd size is clipped like any other, and a refusal
    would reveal it.

    Args:
        table: The records.
        place: Their name in errors.
        scaled: The columns that have a public scale already.
    """
    spreads = usual_spreads_of(table)
    wide = spreads > WIDEST
    if not wide.any():
        return
    at = int(np.argmax(wide))
    name, spread = table.columns[at], float(spreads[at])
    must = f"it must not span more than {WIDEST:g}, or it drowns the other features"
    if name in scaled:
        raise InvalidValue(
            f"{name} in {place} is not allowed: divided by its scale it spans {spread:.4g}, and {must}; "
            "give a larger scale",
            rule=f"{name} is not allowed: divided by its scale, {must}; give a larger scale",
        )
    # A power of ten says little about the records, and brings every range to 1 up to 10.
    size = float(10.0 ** np.ceil(np.log10(spread / 10)))
    mend = "give public numbers: its usual value as center, its usual spread as scale"
    raise InvalidValue(
        f"{name} in {place} is not allowed: its usual values span {spread:.4g}, and {must}; {mend}, "
        f"{_scale_to_give(name, float(np.median(table.features[:, at])), size)}",
        rule=f"{name} is not allowed: {must}; {mend}, for an age in years "
        f"{_scale_to_give('age', 60.0, 10.0)}",
    )


def _scale_to_give(name: str, center: float, scale: float) -> str:
    """Write a center and a scale as a file and as Python have them."""
    first = float(f"{center:.1g}")
    return (
        f'as in center = {{ "{name}" = {first} }} and scale = {{ "{name}" = {scale} }} in [data], in Python '
        f'encoding=tacit.sites.encoding.Encoding(center={{"{name}": {first}}}, scale={{"{name}": {scale}}})'
    )


def require_units(federation: RowFederation, delta: float | None) -> None:
    """Refuse private records for which a promise about single records would say less than it seems to.

    Those are records of one person several times, and more records than delta is meant for. Remote sites
    check their own records.

    Args:
        federation: The sites.
        delta: The probability with which the promise may fail; None where noise repeats, as in a rehearsal.
    """
    if federation.public or federation.distant:
        return
    require_persons_once(federation.repeated)
    require_single(federation.store, "all sites together")
    if delta is not None:
        require_delta(delta, len(federation.store))


def require_single(table: Table, place: str) -> None:
    """Refuse tables of which a tenth of the records or more have copies: a person then has several records.

    A promise about single records would protect such a person at a multiple of the stated epsilon. Records
    that few-valued columns make equal by chance are no copies. Fewer copies are advice to the owner: if one
    record decided, a refusal would reveal it.
    """
    copies = copied_records(table)
    if len(copies) < SHOWING or copies.sum() < max(FEWEST, COPIED * len(copies)):
        return
    must = (
        "no record may be there twice: a promise about single records would be weaker by the number of copies"
    )
    way_out = (
        "remove the copies (equal in three digits of every column), or protect whole sites, by "
        '[privacy] unit = "site"'
    )
    raise InvalidValue(
        f"the records of {place} are not allowed: {int(copies.sum()):,} of {len(copies):,} are equal to "
        f"another one, and {must}; {way_out}",
        rule=f"records are not allowed: {must}; {way_out}",
        rows=np.flatnonzero(copies) + 1,
    )


def require_persons_once(columns: Sequence[str]) -> None:
    """Refuse persons with several records where single records are protected.

    Args:
        columns: The identifiers that name a person in several records.
    """
    if columns:
        told = (
            f"{columns[0]} is not allowed: it must name a person in one record only, for a promise about "
            "single "
            "records protects a person with several at a multiple of epsilon; keep one record of each "
            "person, or "
            'protect whole sites, by [privacy] unit = "site"'
        )
        raise Refused(told, rule=told)


def require_delta(delta: float, records: int) -> None:
    """Refuse a delta above one over the number of private records, at which a person may be exposed.

    Args:
        delta: The probability with which the promise may fail for one record.
        records: The number of records; it is not told.
    """
    if delta * records > 1:
        told = (
            f"[privacy] delta = {delta:g} is not allowed: it must be at most 1 / the number of records, or "
            f"a person may be exposed within the promise; set a smaller one, such as delta = {SMALL:g}"
        )
        raise Refused(told, rule=told)


def copied_records(table: Table) -> NDArray[np.bool_]:
    """Mark each record that is equal to another one; none where chance explains equal records."""
    return mark_copied(table.features, [np.asarray(values) for values in table.targets.values()])


def spreads_of(table: Table) -> Array:
    """Return the range of each feature, as scaled for training (columns)."""
    if len(table) == 0:
        return np.zeros(len(table.columns))
    return np.ptp(table.features, axis=0)


def usual_spreads_of(table: Table) -> Array:
    """Return the range of each feature without its smallest and largest values (columns).

    Guarantee:
        A value beyond all others in its column is never part of the result, however large it is.
    """
    left_out = max(1, int(len(table) * ENDS))
    if len(table) <= 2 * left_out:
        return np.zeros(len(table.columns))
    return np.ptp(np.sort(table.features, axis=0)[left_out : len(table) - left_out], axis=0)
