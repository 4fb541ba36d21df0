"""Where it runs: in this process as one batched program, or at sites on machines of their own."""
