"""Privacy mechanisms: clipping, noise and price in one object; the only place where noise is drawn."""
