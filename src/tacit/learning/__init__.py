"""A cohort as one batched program: batches of many sites, gradients of every record, local steps.

Every array has the sites as its first axis, then the units whose gradients are clipped (records, or groups of
records), then the members of a unit. A cohort of one is nothing special.
"""
