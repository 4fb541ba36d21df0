"""Secure aggregation with all sites in this process: the server sees sums over groups alone."""

import secrets

import numpy as np

from tacit.aggregation.secure import Session, secure_sum
from tacit.errors import Refused
from tacit.learning.record import Fault
from tacit.learning.task import Updates
from tacit.privacy.mechanisms.secure_sum import SecureSum


def sum_locally(updates: Updates, mechanism: SecureSum) -> Updates:
    """Return the means over groups of sites, summed by the protocol with all its parties in this process.

    Args:
        updates: The updates of all sites, as integers, with their shares of the noise.
        mechanism: The mechanism, which converts integers to numbers.
    """
    steps = dict(zip(updates.names, updates.matrix, strict=True))
    run, rows, faults = secrets.token_hex(8), list[np.ndarray](), list[Fault]()
    groups = mechanism.groups(updates.names)
    for place, group in enumerate(groups, start=1):
        session = Session(
            run=f"{run}, group {place}",
            round=mechanism.number,
            names=group,
            width=int(updates.matrix.shape[1]),
            colluders=mechanism.colluders,
        )
        if session.honest < mechanism.shares:
            raise Refused(
                f"a sum over {len(group)} sites holds the noise of {session.honest} honest ones, and that of "
                f"{mechanism.shares} was paid for"
            )
        found = secure_sum({name: mechanism.on_ring(steps[name]) for name in group}, session=session)
        rows.append(mechanism.mean_of(found.total, len(group)))
        faults += found.faults
    names = tuple(f"group {place}" for place in range(1, len(groups) + 1))
    return Updates(names, np.stack(rows), round=updates.round, faults=tuple(faults))
