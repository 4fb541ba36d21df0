"""Plots that reports and papers share."""
