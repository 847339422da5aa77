"""The ways of starting ranks: forked from a process that has imported everything, or each by itself."""

from .cold import Cold
from .warm import Warm

__all__ = ["Cold", "Starter", "Warm"]

Starter = Cold | Warm
