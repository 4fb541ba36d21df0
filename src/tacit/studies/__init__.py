"""HOW GOOD, AND FOR HOW MANY: one experiment on curves, repeated over subjects, parties, folds and promises.

asked      the table [study] of an experiment file, as cells
cells      one cell: some parties, some subjects held out, one promise
running    all cells over several processes, and going on with what was cut off
studied    what came of them: a table, a summary, figures
"""

from tacit.studies.asked import Factors, Study, asked_for, read
from tacit.studies.cells import Cell
from tacit.studies.running import attempt
from tacit.studies.studied import Studied, load

__all__ = ["Cell", "Factors", "Studied", "Study", "asked_for", "attempt", "load", "read"]
