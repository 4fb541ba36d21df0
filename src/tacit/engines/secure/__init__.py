"""Secure aggregation between machines: rounds, server, client and messages."""
