"""Tacit against named peers, on the same work in one run.

A file with `RACES` or `GROWTHS` is a comparison of speed: both sides of it, side by side, each run in a
process and an environment of its own. A file with `main` is a study of something else. `python -m bench NAME`
runs one, `make bench` all comparisons; `racing.py` says how they are run, `tables.py` shows what was found.
"""

# In the order in which a reader meets them.
COMPARISONS = (
    "survival",
    "step",
    "rounds",
    "metrics",
    "cox",
    "aggregation",
    "secure",
    "solver",
    "boosting",
    "control",
    "accounting",
    "startup",
    "memory",
    "growth",
)
