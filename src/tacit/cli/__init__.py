"""Command line: the verbs of `tacit`, their output and exit codes."""
