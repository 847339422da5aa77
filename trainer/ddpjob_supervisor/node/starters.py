"""The two ways to start ranks: forked from a process that has imported everything, or as separate processes."""

from .cold import Cold
from .warm import Warm

__all__ = ["Cold", "Starter", "Warm"]

Starter = Cold | Warm
