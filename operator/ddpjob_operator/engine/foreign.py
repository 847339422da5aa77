"""Reads reports from programs that are not ours, or that have another version.

Numbers and texts are accepted only within bounds, because some of them are copied into the job's status.
"""

import re
from collections.abc import Mapping
from typing import Any

LARGEST_ANSWER = 256 * 1024
"""The largest answer that is read from a supervisor, in bytes. Real answers have at most about 20 KB."""
LARGEST_COUNT = 2**53
"""The largest integer that every reader of JSON can represent."""
LARGEST_ATTEMPT = 2**31
TEXT_BYTES = 512
GLOO = re.compile(r"\[[^\[\]\s]*\.cc:\d+\] ")
ADVICE = ". This is typically"
"""The beginning of the advice in gloo's messages about lost peers. The advice is always the same."""
KIND_OF = re.compile(r"(Error|Failed|Exception)$")


def count_of(value: Any, most: int = LARGEST_COUNT) -> int | None:
    """Returns `value` if it is a whole number from 0 to `most`; otherwise None."""
    counted = isinstance(value, int) and not isinstance(value, bool)
    return value if counted and 0 <= value <= most else None


def attempt_of(value: Any) -> int | None:
    """Returns `value` if it can be the number of an attempt, counted from 1; otherwise None."""
    return count_of(value, LARGEST_ATTEMPT) or None


def words_of(report: Mapping[str, Any]) -> str:
    """Returns the exception's type and message from a failure report, without a type that only repeats the cause."""
    exception, cause = text_of(report.get("exception")), text_of(report.get("cause"))
    if KIND_OF.sub("", exception) == KIND_OF.sub("", cause):
        exception = ""
    return text_of(": ".join(part for part in (exception, text_of(report.get("message"))) if part))


def peer_lost_words(text: str) -> str:
    """Shortens a message about a lost peer, as our trainer does, by removing gloo's source line and advice."""
    return GLOO.sub("", text).partition(ADVICE)[0]


def text_of(value: Any) -> str:
    """Returns `value` if it is a text, cut to the length that a status may hold; otherwise an empty text."""
    text = value if isinstance(value, str) else ""
    # JSON may contain half of a surrogate pair, which UTF-8 cannot encode. The cut may also split a character.
    return text.encode(errors="replace")[:TEXT_BYTES].decode(errors="ignore")
