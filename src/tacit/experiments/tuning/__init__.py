"""Hyperparameter tuning: choose among a few candidates within one privacy budget.

grid       the table [tune] of an experiment file, as candidates
selection  the criterion: held-out records, or records that sites keep apart
search     calibrate the noise for all of it, train the candidates, choose, and keep one account
"""

from tacit.experiments.tuning.grid import Candidate, TuningGrid, read
from tacit.experiments.tuning.search import TuningResult, TuningTrial, tune
from tacit.experiments.tuning.selection import Tuning

__all__ = ["Candidate", "TuningGrid", "TuningTrial", "TuningResult", "Tuning", "read", "tune"]
