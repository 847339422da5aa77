"""The plant's size *real*: nodes that run containers."""

from .node import Node
from .plant import RealPlant, start_real
from .registry import Answer, start_registry

__all__ = ["Answer", "Node", "RealPlant", "start_real", "start_registry"]
