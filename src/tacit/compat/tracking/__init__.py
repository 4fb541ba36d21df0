"""Callbacks that show a run elsewhere, round by round: TensorBoard and MLflow. Neither is ever needed.

They are told rounds and the run at its end, which hold nothing private, and read nothing else.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tacit.compat.tracking.mlflow import MLflow as MLflow
    from tacit.compat.tracking.tensorboard import TensorBoard as TensorBoard

_HOMES = {"MLflow": "tacit.compat.tracking.mlflow", "TensorBoard": "tacit.compat.tracking.tensorboard"}

__all__ = ["MLflow", "TensorBoard"]


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'tacit.compat.tracking' has no attribute {name!r}")
