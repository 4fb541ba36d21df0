"""Local training: the contract of a task, batches, optimizers, perceptrons.

Every array has the sites as its first axis, then the units whose gradients are clipped (records, or groups of
records), then the members of a unit. A cohort of one is nothing special.
"""
