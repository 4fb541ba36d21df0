"""Reports of runs, comparisons, audits and for data protection; pages and plots."""
