"""Gymnasium environments: spaces, checks before use, vectorized stepping, episodes."""
