"""One experiment on curves, repeated over subjects, parties, folds and promises.

spec     what is varied, as cells
cells    one cell: some parties, some subjects held out, one promise
result   what came of them: a table, a summary
figures  figures
"""
