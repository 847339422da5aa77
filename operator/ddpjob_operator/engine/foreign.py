"""Reads reports from programs that are not ours, or are of another version.

Only numbers and texts within bounds are accepted, because some of them go into the job's status.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

LARGEST_ANSWER = 256 * 1024
"""Bytes. A supervisor's answer has about 20 KB at most."""
LARGEST_COUNT = 2**53
"""The largest integer that every reader of JSON can represent."""
LARGEST_ATTEMPT = 2**31
TEXT_BYTES = 512
GLOO = re.compile(r"\[[^\[\]\s]*\.cc:\d+\] ")
ADVICE = ". This is typically"
"""Where gloo's message stops being specific: what follows is the same for every lost peer."""
KIND_OF = re.compile(r"(Error|Failed|Exception)$")


def document_of(content: str | bytes) -> Mapping[str, Any] | None:
    """The JSON object in `content`; None if it is anything else."""
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def count_of(value: Any, most: int = LARGEST_COUNT) -> int | None:
    """A whole number from 0 to `most`; None if it is anything else."""
    counted = isinstance(value, int) and not isinstance(value, bool)
    return value if counted and 0 <= value <= most else None


def attempt_of(value: Any) -> int | None:
    """The number of an attempt, from 1; None if it is anything else."""
    return count_of(value, LARGEST_ATTEMPT) or None


def words_of(report: Mapping[str, Any]) -> str:
    """The exception's type and message in a failure report; without the type if it only repeats the cause."""
    exception, cause = text_of(report.get("exception")), text_of(report.get("cause"))
    if KIND_OF.sub("", exception) == KIND_OF.sub("", cause):
        exception = ""
    return text_of(": ".join(part for part in (exception, text_of(report.get("message"))) if part))


def peer_lost_words(text: str) -> str:
    """A program's message about a lost peer, shortened as our trainer does: without gloo's source line and advice."""
    return GLOO.sub("", text).partition(ADVICE)[0]


def text_of(value: Any) -> str:
    """A text, cut to what a status may hold; empty if it is anything else."""
    text = value if isinstance(value, str) else ""
    # JSON may hold half of a surrogate pair, which UTF-8 cannot encode; the cut may split a character.
    return text.encode(errors="replace")[:TEXT_BYTES].decode(errors="ignore")
