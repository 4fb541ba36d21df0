"""Scores under the names that users of federated-survival know."""

from tacit.compat.federated_survival.utils.metrics import calculate_cindex as calculate_cindex
from tacit.compat.federated_survival.utils.metrics import calculate_ibs as calculate_ibs
