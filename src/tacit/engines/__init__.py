"""Engines, which run local work: in this process, or over Flower; rounds of secure aggregation."""
