"""Data augmentation: synthetic patients from a multi-task variational autoencoder."""
