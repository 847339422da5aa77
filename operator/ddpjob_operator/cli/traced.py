"""Records the trace context of this process in the job that it submits or runs."""

import os
import sys
from typing import Any

from ddpjob_operator.api.trace_context import TRACE_ANNOTATIONS, trace_context


def trace_context_here() -> dict[str, str]:
    """The annotations for the trace context of this process; empty if it has none. What is invalid gets a warning."""
    given = {key: os.environ[name] for name, key in TRACE_ANNOTATIONS.items() if os.environ.get(name)}
    valid = trace_context(given)
    if ignored := [name for name, key in TRACE_ANNOTATIONS.items() if key in given.keys() - valid.keys()]:
        verb = "it is" if len(ignored) == 1 else "they are"
        print(
            f"warning: the job does not get {' and '.join(ignored)}, because {verb} not a valid W3C trace context:"
            " https://www.w3.org/TR/trace-context-2/",
            file=sys.stderr,
        )
    return valid


def with_trace(document: dict[str, Any], context: dict[str, str]) -> dict[str, Any]:
    """The job with this trace context in place of its own, unless the context is empty."""
    if not context:
        return document
    metadata = document["metadata"]
    others = {
        key: text
        for key, text in (metadata.get("annotations") or {}).items()
        if key not in TRACE_ANNOTATIONS.values()
    }
    return {**document, "metadata": {**metadata, "annotations": {**others, **context}}}
