"""Byzantine-robust aggregation rules, and the steps before them."""
