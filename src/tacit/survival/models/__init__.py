"""Survival models: discrete-time hazards, Cox models, their losses and predictions."""
