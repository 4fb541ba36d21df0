"""The privacy ledger: an append-only, hash-chained store, its chain, and its view for people."""
