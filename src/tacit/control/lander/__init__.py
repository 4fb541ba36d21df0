"""A compiled LunarLander: rigid-body physics after Box2D 2.3."""
