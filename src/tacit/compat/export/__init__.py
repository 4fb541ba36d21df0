"""Models for those who do not have Tacit: tensors by name, a card that says everything, ONNX for networks."""

from tacit.compat.export.writing import export as export

__all__ = ["export"]
