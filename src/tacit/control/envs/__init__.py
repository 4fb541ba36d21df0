"""Gymnasium environments: spaces, checks before use, vectorised stepping, episodes."""
