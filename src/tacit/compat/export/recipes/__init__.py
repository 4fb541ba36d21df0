"""How to predict from an exported model with numpy alone: the text of each file stands in a card.

A recipe imports nothing of Tacit, so that whoever copies it needs nothing of it.
"""

from importlib.resources import files


def source(name: str) -> str:
    """The text of a recipe."""
    return files(__name__).joinpath(f"{name}.py").read_text(encoding="utf-8")
