"""What every test shares: Hypothesis without deadlines, since machines are shared and noisy."""

from hypothesis import settings

settings.register_profile("tacit", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("tacit")
