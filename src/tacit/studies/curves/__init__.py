"""One experiment on curves, repeated over subjects, parties, folds and promises.

asked      what is varied, as cells
cells      one cell: some parties, some subjects held out, one promise
studied    what came of them: a table, a summary
drawing    figures
"""
