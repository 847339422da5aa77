"""The W3C trace context of a job's submission: https://www.w3.org/TR/trace-context-2/.

A job keeps the context in annotations, and its ranks get it in the environment variables of OpenTelemetry's
specification. So the spans of a training belong to the trace of what submitted it. Anybody can write an annotation,
so whoever reads one checks it.
"""

import re
from collections.abc import Mapping

from .contract import GROUP

TRACE_ANNOTATIONS = {"TRACEPARENT": f"{GROUP}/traceparent", "TRACESTATE": f"{GROUP}/tracestate"}
"""The annotations of a job that hold a trace context, by the variables in which the ranks get it."""
TRACEPARENT, TRACESTATE = TRACE_ANNOTATIONS.values()

PARENT = re.compile(
    r"(?!ff|00.{54})[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(?:-[!-~]{1,200})?"
)
"""Version, trace, parent and flags. Only versions after 00 may have more parts."""
MEMBER = re.compile(
    r"([a-z][-_*/a-z0-9]{0,255}|[a-z0-9][-_*/a-z0-9]{0,240}@[a-z][-_*/a-z0-9]{0,13})"
    r"=[ -+\--<>-~]{0,255}[!-+\--<>-~]"
)
"""A key, perhaps of a tenant, and its value."""
MOST_MEMBERS = 32
LONGEST_STATE = 512
"""As many characters as everybody has to pass on."""


def trace_context(annotations: Mapping[str, object]) -> dict[str, str]:
    """Returns those of the annotations that are a valid trace context. A state counts only with a valid parent."""
    parent, state = annotations.get(TRACEPARENT), annotations.get(TRACESTATE)
    if not (isinstance(parent, str) and PARENT.fullmatch(parent)):
        return {}
    known = {TRACEPARENT: parent}
    return {**known, TRACESTATE: state} if isinstance(state, str) and _is_state(state) else known


def _is_state(text: str) -> bool:
    members = [word for part in text[: LONGEST_STATE + 1].split(",") if (word := part.strip(" \t"))]
    keys = {found[1] for member in members if (found := MEMBER.fullmatch(member))}
    return len(text) <= LONGEST_STATE and 0 < len(members) == len(keys) <= MOST_MEMBERS
