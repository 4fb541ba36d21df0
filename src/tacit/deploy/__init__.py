"""Deployment on several machines: coordinator, sites, folders, certificates, rehearsal."""
