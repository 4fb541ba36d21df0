"""Mutation testing of what a promise hangs on: `make mutants` changes one number at a time, and runs tests.

A mutant is caught when a fast test of the folder that mirrors its module fails, breaks or does not end. It is
not in the package and it is no test: it tells which tests are missing.
"""
