"""Mutation testing of the code that privacy promises depend on: `make mutants` changes one place at a time.

A mutant is killed if a fast test of the folder that mirrors its module fails, breaks or times out. Survivors
show which tests are missing. Mutation testing is no part of the package or of its tests.
"""
