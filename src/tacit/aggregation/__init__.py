"""How it is combined: from one vector per site to one vector."""

from tacit.aggregation.averaging import Mean as Mean

__all__ = ["Mean"]
