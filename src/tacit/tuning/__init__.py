"""WHICH MODEL: choosing among a few candidates within one promise.

grid        the table [tune] of an experiment file, as candidates
choosing    what decides: held-out records, or records that sites keep apart
stage       the data, and the noise that all of it together needs
search      train them all, choose, and keep one account
"""

from tacit.tuning.choosing import Tuning
from tacit.tuning.grid import Candidate, Grid, read
from tacit.tuning.search import Trial, Tuned, tune

__all__ = ["Candidate", "Grid", "Trial", "Tuned", "Tuning", "read", "tune"]
