"""Trained agents: policies, their evaluation, and files of Stable-Baselines3."""
