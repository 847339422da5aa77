"""Keeps Kubernetes from expanding `$(NAME)` in commands, arguments and values of variables."""

import re

EXPANDED = re.compile(r"\$(?=[$(])")
"""A `$` that Kubernetes would interpret."""


def literal(text: str) -> str:
    """Escapes a text so that Kubernetes expands no variables in it."""
    return EXPANDED.sub("$$", text)
