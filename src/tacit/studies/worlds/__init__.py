"""One experiment in worlds, repeated over regimes of training, promises and seeds.

regimes      ways to train on the same worlds, each an experiment of its own
asked        what is varied, as cells
cells        one cell: a regime, a promise and a seed, trained and judged
studied      what came of them: means and intervals
telling      a summary for people
remembered   how runs went, from their directories
drawing      figures and films
"""
