"""The coordinator's side of a deployed federation: split, launch, run."""
