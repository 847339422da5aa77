"""The ways of starting ranks: forked from a process that has imported everything, or each on its own."""

from .cold import Cold
from .warm import Warm

__all__ = ["Cold", "Starter", "Warm"]

Starter = Cold | Warm
