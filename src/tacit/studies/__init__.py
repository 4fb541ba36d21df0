"""HOW GOOD, AND FOR HOW MANY: one experiment, repeated over all that its table [study] varies.

contract   what a study is, and what came of one
asked      the table [study] of a file, and reading a study again
running    all cells over several processes, and going on with what was cut off
listing    the rows of cells on disk
curves     subjects, parties, folds and promises
worlds     regimes of training, promises and seeds
"""

from tacit.studies.asked import asked_for, load, read
from tacit.studies.contract import Studied, Study
from tacit.studies.curves.asked import Factors
from tacit.studies.curves.cells import Cell
from tacit.studies.running import attempt

__all__ = ["Cell", "Factors", "Studied", "Study", "asked_for", "attempt", "load", "read"]
