"""The plant's size *real*: nodes that run containers."""

from .node import Node
from .plant import RealPlant, start_real

__all__ = ["Node", "RealPlant", "start_real"]
