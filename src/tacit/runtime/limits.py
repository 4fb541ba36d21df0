"""Size limits of files, compared before any work is done or memory taken.

All of them are far above actual use (10,000 sites, 2,000,000 records, 5,000 features, 1,000 rounds): a file
that passes one has a mistake in it, or was written to keep a machine busy.
"""

# A printed message, and one value in it, in characters.
LONGEST_MESSAGE, LONGEST_VALUE = 1_800, 300
# The name of a run or a site, which names a directory: file systems allow 255 bytes.
LONGEST_NAME = 100
# An experiment file, in bytes; how deep its tables and lists may be nested; the digits of one whole number,
# and the characters of one text.
LONGEST_FILE, MOST_DEPTH, MOST_DIGITS, LONGEST_TEXT = 2**22, 32, 100, 100_000
# Any whole number that counts something, and the least probability that is not taken for 0.
MOST_COUNT, LEAST_RATE = 10**12, 1e-9
# A federation, and how long it trains.
MOST_SITES, MOST_ROUNDS, MOST_STEPS = 100_000, 100_000, 1_000_000
# Releases of all rounds together, in a local run and in one that a site is asked for.
MOST_RELEASES, MOST_RELEASES_ASKED = 5_000_000, 500_000
# A network: layers, units in one of them, and weights in all; and the intervals of a grid of times.
MOST_LAYERS, MOST_WIDTH, MOST_WEIGHTS, MOST_CUTS, MOST_CAUSES = 100, 100_000, 50_000_000, 10_000, 1_000
# Environments that are played in at a time.
MOST_ENVS = 10_000
# A table: rows, columns, and numbers in all; a file of text, in bytes, and one line of it.
MOST_RECORDS, MOST_COLUMNS, MOST_NUMBERS = 20_000_000, 50_000, 300_000_000
LONGEST_TABLE, LONGEST_LINE = 2**34, 2**24
