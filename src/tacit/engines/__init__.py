"""Engines: the local one trains all sites in this process as one batched program, others over Flower."""
