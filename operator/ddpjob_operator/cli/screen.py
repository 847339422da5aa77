"""The one door by which words come to a screen: as they were said, whoever said them."""

import re
from typing import Any

from rich.console import Console  # noqa: TID251  Here it is given its rule.
from rich.text import Text

CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""All but tabs and ends of lines."""


class Screen(Console):
    """A terminal or pipe. What is printed on it is never read as markup, neither rich's nor the terminal's own."""

    def __init__(self, **options: Any) -> None:
        super().__init__(highlight=False, markup=False, emoji=False, soft_wrap=True, **options)

    def render_str(self, text: str, *arguments: Any, **options: Any) -> Text:
        """All text that is printed comes by here, also that of a table's cells."""
        return super().render_str(visible(text), *arguments, **options)

    def on_broken_pipe(self) -> None:
        """Lets the caller decide; rich would end the process, and a run must not end because nobody reads of it."""
        raise BrokenPipeError


def visible(text: str) -> str:
    """The text with its control characters written out: a terminal would obey them."""
    return CONTROL.sub(lambda found: repr(found[0])[1:-1], text)
