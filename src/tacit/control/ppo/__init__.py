"""Proximal policy optimisation (PPO): the algorithm, its options and the warm-up of its critic."""
