"""Programs of the repository that are no part of the package."""
