"""Experiment files that `tacit new` writes; each runs as it is."""
