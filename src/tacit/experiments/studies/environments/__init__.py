"""One experiment in worlds, repeated over regimes of training, promises and seeds.

regimes  ways to train on the same worlds, each an experiment of its own
spec     what is varied, as cells
cells    one cell: a regime, a promise and a seed, trained and judged
result   what came of them: means and intervals
summary  a summary for people
history  how runs went, from their directories
figures  figures and films
"""
