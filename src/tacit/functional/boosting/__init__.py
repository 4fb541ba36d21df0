"""Functional boosting on released moments: path, selection, degrees of freedom, debiasing."""
