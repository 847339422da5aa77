"""Becoming a rank: a process that runs somebody's program as Python would, and can be asked what it does."""
