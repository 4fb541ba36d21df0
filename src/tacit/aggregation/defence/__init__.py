"""Quarantine of suspicious sites, and clustered federated learning."""
