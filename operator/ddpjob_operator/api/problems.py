"""Problems with a document, described for the person who wrote it."""

from dataclasses import dataclass

Path = tuple[str | int, ...]
"""The keys and list indices that lead from the document's root to a value."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A mistake, with its place and what would be right."""

    path: Path
    message: str

    def __str__(self) -> str:
        where = dotted(self.path)
        return f"{where}: {self.message}" if where else self.message


class BadInputError(Exception):
    """A user's mistake. A program only prints the text of this error and exits with 2, without a traceback."""


class InvalidJobError(BadInputError):
    """A document is not a valid DDPJob. The error contains every problem that was found."""

    def __init__(self, source: str, lines: list[str]) -> None:
        super().__init__("\n  ".join([f"{source} is not a valid DDPJob:", *lines]))


def dotted(path: Path) -> str:
    """Formats a path as people write it, as in `spec.template.spec.containers[0].name`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}"
    return text.removeprefix(".")
