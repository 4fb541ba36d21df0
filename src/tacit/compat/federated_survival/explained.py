"""What is said about an option that is not taken literally."""

import secrets
import warnings


class Explained(UserWarning):
    """An option that was given but is not taken literally; the text says why, and what is done instead."""


def explain(texts: list[str], *, depth: int = 2) -> None:
    """Warn once, in words, about everything that is not taken literally.

    Args:
        texts: One sentence each; nothing is said where there is none.
        depth: How many calls above this one the user's line is.
    """
    if texts:
        warnings.warn("\n  ".join(texts), Explained, stacklevel=depth + 1)


def seed_of(given: int | None) -> int:
    """The seed that was given; one that nobody chose, if none was."""
    return secrets.randbits(32) if given is None else int(given)
