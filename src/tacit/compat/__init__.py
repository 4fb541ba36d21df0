"""Names that others know, on this core."""
