"""Words of a program that is not ours, or of another version.

Only numbers and texts within bounds are taken from it, since some of them go into the job's status.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

LARGEST_ANSWER = 256 * 1024
"""Bytes. A supervisor's answer has some 20 KB at most."""
LARGEST_COUNT = 2**53
"""What every reader of JSON can hold."""
LARGEST_ATTEMPT = 2**31
TEXT_BYTES = 512
GLOO = re.compile(r"\[[^\]\s]*\.cc:\d+\] ")
KIND_OF = re.compile(r"(Error|Failed|Exception)$")


def document_of(content: str | bytes) -> Mapping[str, Any] | None:
    """The JSON object that this is; None where it is anything else."""
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def count_of(value: Any, most: int = LARGEST_COUNT) -> int | None:
    """A whole number from 0 on."""
    counted = isinstance(value, int) and not isinstance(value, bool)
    return value if counted and 0 <= value <= most else None


def attempt_of(value: Any) -> int | None:
    """The number of an attempt; 0 is none."""
    return count_of(value, LARGEST_ATTEMPT) or None


def words_of(report: Mapping[str, Any]) -> str:
    """The last line of the exception that a failure report tells of: one that only repeats the cause is left out."""
    exception, cause = text_of(report.get("exception")), text_of(report.get("cause"))
    if KIND_OF.sub("", exception) == KIND_OF.sub("", cause):
        exception = ""
    return text_of(": ".join(part for part in (exception, text_of(report.get("message"))) if part))


def peer_lost_words(text: str) -> str:
    """How a program says that it lost a peer: without gloo's source line and advice, as our trainer says it."""
    return GLOO.sub("", text).partition(". ")[0]


def text_of(value: Any) -> str:
    """The beginning of a text."""
    text = value if isinstance(value, str) else ""
    return text.encode(errors="replace")[:TEXT_BYTES].decode(errors="ignore")
