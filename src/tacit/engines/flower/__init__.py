"""Transport by Flower: nodes, and the socket of a site's guard."""
