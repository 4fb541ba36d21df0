"""WHICH MODEL: choosing among a few candidates within one promise.

grid       the table [tune] of an experiment file, as candidates
selection  what decides: held-out records, or records that sites keep apart
search     find the noise that all of it together needs, train them all, choose, and keep one account
"""

from tacit.experiments.tuning.grid import Candidate, TuningGrid, read
from tacit.experiments.tuning.search import TuningResult, TuningTrial, tune
from tacit.experiments.tuning.selection import Tuning

__all__ = ["Candidate", "TuningGrid", "TuningTrial", "TuningResult", "Tuning", "read", "tune"]
