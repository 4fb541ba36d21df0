"""HOW GOOD, AND FOR HOW MANY: one experiment, repeated over all that its table [study] varies.

base          what a study is, and what came of one
spec          the table [study] of a file, and reading a study again
workers       all cells over several processes, and going on with what was cut off
rows          the rows of cells on disk
curves        subjects, parties, folds and promises
environments  regimes of training, promises and seeds
"""

from tacit.experiments.studies.base import Study, StudyResult
from tacit.experiments.studies.curves.cells import CurveCell
from tacit.experiments.studies.curves.spec import CurveFactors
from tacit.experiments.studies.spec import has_study_table, load, read
from tacit.experiments.studies.workers import attempt

__all__ = ["CurveCell", "CurveFactors", "StudyResult", "Study", "has_study_table", "attempt", "load", "read"]
