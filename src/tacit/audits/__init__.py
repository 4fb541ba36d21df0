"""Attacks on our own promise: what an adversary can prove or learn, beside what was claimed."""
