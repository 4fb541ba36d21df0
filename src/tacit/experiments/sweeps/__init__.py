"""WHAT A PROMISE COSTS A MODEL: one experiment at every value of a few keys, with several seeds.

spec    what is swept, read from a file and a command line, as a batch
result  what came of it: means and intervals
report  a summary for people, the curve, a page
"""

from tacit.experiments.sweeps.result import SweepResult
from tacit.experiments.sweeps.spec import Sweep, SweepCell, load, read

__all__ = ["SweepCell", "Sweep", "SweepResult", "load", "read"]
