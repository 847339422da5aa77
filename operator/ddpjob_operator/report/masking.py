"""What a page must not show: values whose names say that they are secret."""

import re
from collections.abc import Iterable, Iterator

SECRET = re.compile(r"token|secret|passw|credential|private|auth|api[-_]?key|access[-_]?key", re.IGNORECASE)
IN_A_URL = re.compile(r"(?<=://)[^/@\s]+(?=@)")
MASK = "•••"


def value(name: str, text: str) -> str:
    """The value of a variable or option, as it may be shown."""
    return MASK if SECRET.search(name) else IN_A_URL.sub(MASK, text)


def words(command: Iterable[str]) -> Iterator[str]:
    """The words of a command line, as they may be shown."""
    secret = False
    for word in command:
        name, equals, text = word.partition("=")
        if secret and not word.startswith("-"):
            yield MASK
        elif equals:
            yield f"{name}={value(name, text)}"
        else:
            yield IN_A_URL.sub(MASK, word)
        secret = word.startswith("-") and not equals and bool(SECRET.search(word))
