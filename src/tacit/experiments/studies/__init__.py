"""HOW GOOD, AND FOR HOW MANY: one experiment, repeated over all that its table [study] varies.

base          what a study is, and what came of one
spec          the table [study] of a file, and reading a study again
workers       all cells over several processes, and going on with what was cut off
rows          the rows of cells on disk
curves        subjects, parties, folds and promises
environments  regimes of training, promises and seeds
"""

from tacit.experiments.studies.base import Studied, Study
from tacit.experiments.studies.curves.cells import Cell
from tacit.experiments.studies.curves.spec import Factors
from tacit.experiments.studies.spec import asked_for, load, read
from tacit.experiments.studies.workers import attempt

__all__ = ["Cell", "Factors", "Studied", "Study", "asked_for", "attempt", "load", "read"]
