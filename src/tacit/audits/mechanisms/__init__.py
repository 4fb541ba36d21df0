"""Adversaries of every way in which anything private leaves: each tells the worst neighbours apart.

An adversary uses nothing but the mechanism's own methods, the ones that a run calls, and knows everything but
whether its canary is there.
"""
