"""Data for a federation that is simulated in one process: drawn, read from a file, dealt out to clients."""
