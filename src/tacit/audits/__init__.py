"""Attacks on our own promise: lower bounds on epsilon, membership inference, sensitivity tests.

`audit` does all of it for an experiment; each part can be had by itself.
"""

from tacit.audits.episodes import episodes
from tacit.audits.experiment import Audit, audit, load
from tacit.audits.inversion import demonstrate
from tacit.audits.mechanisms import audit_mechanisms
from tacit.audits.membership import membership
from tacit.audits.running import audit_run

__all__ = [
    "Audit",
    "audit",
    "audit_mechanisms",
    "audit_run",
    "demonstrate",
    "episodes",
    "load",
    "membership",
]
