"""IS IT TRUE: tools for those who bring their own losses, tasks and statistics.

check       how far one record moves what is let out, against what is claimed
neighbours  data sets that differ in one record, drawn, made worse, and put where rounding tells them apart
"""

from tacit.audits.sensitivity.check import Pair, Sensitivity, SensitivityExceeded, check_sensitivity
from tacit.audits.sensitivity.neighbours import Movement

__all__ = ["Movement", "Pair", "Sensitivity", "SensitivityExceeded", "check_sensitivity"]
