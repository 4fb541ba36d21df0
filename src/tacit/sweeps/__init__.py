"""WHAT A PROMISE COSTS A MODEL: one experiment at every value of a few keys, with several seeds.

values     the lists of a command line, parted
asked      what is swept, as a study
cells      one run: some values and a seed
swept      what came of it: means and intervals
telling    a summary for people
drawing    the curve
showing    a report
"""

from tacit.sweeps.asked import Sweep, load, read
from tacit.sweeps.cells import Cell
from tacit.sweeps.swept import Swept

__all__ = ["Cell", "Sweep", "Swept", "load", "read"]
