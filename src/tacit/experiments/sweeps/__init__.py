"""WHAT A PROMISE COSTS A MODEL: one experiment at every value of a few keys, with several seeds.

values   the lists of a command line, parted
spec     what is swept, as a study
cells    one run: some values and a seed
result   what came of it: means and intervals
summary  a summary for people
figure   the curve
page     a report
"""

from tacit.experiments.sweeps.cells import SweepCell
from tacit.experiments.sweeps.result import SweepResult
from tacit.experiments.sweeps.spec import Sweep, load, read

__all__ = ["SweepCell", "Sweep", "SweepResult", "load", "read"]
