"""Linear, logistic and Poisson regression across sites, in the open and under a promise.

Names below are loaded on first use.
"""

from typing import TYPE_CHECKING

from tacit.runtime.imports import lazy

if TYPE_CHECKING:
    from tacit.regression.federated import linear as linear
    from tacit.regression.federated import logistic as logistic
    from tacit.regression.federated import poisson as poisson

__all__ = ["linear", "logistic", "poisson"]

__getattr__ = lazy(__name__, dict.fromkeys(__all__, f"{__name__}.federated"))
