"""When it happens: time-to-event models across sites, their data and their scores."""

from tacit.survival.tasks import LogisticHazard as LogisticHazard

__all__ = ["LogisticHazard"]
