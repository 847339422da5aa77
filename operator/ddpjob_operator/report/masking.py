"""What a page must not show: values whose names say that they are secret."""

import re
from collections.abc import Iterable, Iterator

NAMES = r"token(?!i[sz])|secret|passw|credential|private|auth|api[-_]?key|access[-_]?key"
SECRET = re.compile(NAMES, re.IGNORECASE)
IN_A_URL = re.compile(r"(?<=://)[^/\s]+(?=@)")
NAME = rf"(?=[-\w.]*(?:{NAMES})) [-\w.]++"
QUOTED = r"""
    [$a-z]{0,2} (?: \\" (?:(?!\\").)* (?:\\"|$) | \\' (?:(?!\\').)* (?:\\'|$)  # A prefix is Python's or a shell's.
                  | "(?:\\.|[^"\\])*(?:"|$) | '(?:\\.|[^'\\])*(?:'|$) )
"""
# A long word is examined once, not once per letter.
IN_A_SCRIPT = re.compile(
    rf"""
    (?<![-\w.])
    (
        (?! \w*(?:Error|Exception|Warning)\b ) {NAME}
        (?:
            (?: \\?["']\]? )? (?: :\s*[\w.]+ )?                       # name: str = "value", x["name"] = "value"
            (?: \s* [:!=]?= \s* (?={QUOTED}) | \s+ [:!=]?= \s+ | = )  # NAME=value, name = value
            | \\?["'] \s* [:,] \s* (?! \\?["']- )                     # "name": "value", "name", "value"
            | : \s+ (?: (?:Bearer|Basic) \s+ )?                       # Name: value
        )
        | (?=\w+- | authorization) {NAME} :                           # Na-me:value; a module:name has no hyphen
        | (?<!\S) (?=-) {NAME} \s+ (?!-)                              # --name value
    )
    (?: {QUOTED} | [^\s"';&|]+ )
    """,
    re.IGNORECASE | re.VERBOSE | re.DOTALL,
)
MASK = "•••"


def value(name: str, text: str) -> str:
    """The value of a variable or option, as it may be shown."""
    return MASK if SECRET.search(name) else script(text)


def words(command: Iterable[str]) -> Iterator[str]:
    """The words of a command line, as they may be shown."""
    secret = False
    for word in command:
        name, equals, text = word.partition("=")
        if secret and not word.startswith("-"):
            yield MASK
        elif equals and not re.search(r"[\s\"':{]", name):
            yield f"{name}={value(name, text)}"
        else:
            yield script(word)
        secret = word.startswith("-") and not equals and bool(SECRET.search(word))


def script(text: str) -> str:
    """A text that may contain whole commands, like a shell script, as it may be shown."""
    return IN_A_SCRIPT.sub(rf"\1{MASK}", IN_A_URL.sub(MASK, text))
