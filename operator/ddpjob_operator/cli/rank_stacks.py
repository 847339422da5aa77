"""Prints what each rank of a job is doing, as found out by rank 0's supervisor."""

from collections.abc import Mapping
from typing import Any

from ddpjob_operator.api import BadInputError
from ddpjob_operator.api.words import intervals
from ddpjob_operator.text import one_line

from .screen import Screen

INDENT = "    "


def print_stacks(screen: Screen, document: Any) -> None:
    """Prints each different stack once, with its ranks; the innermost call comes first.

    Raises:
        BadInputError: the document does not have the expected form.
    """
    try:
        lines = [*_lines(document)]
    except (AttributeError, KeyError, TypeError, ValueError):
        raise BadInputError("the supervisor's answer cannot be read: it is of another version of DDPJob") from None
    # Lines are cut off only on a terminal, not in a file or a pipe.
    width = screen.width if screen.is_terminal else None
    for line in map(one_line, lines):
        # Only the indented lines of a stack are cut off. The sentence on what the ranks are doing stays whole.
        if width is not None and line.startswith(INDENT) and len(line) > width:
            line = f"{line[: width - 1]}…"  # noqa: PLW2901
        screen.print(line)


def _lines(document: Mapping[str, Any]) -> list[str]:
    groups = document["ranks"]
    if not groups:
        return [f"attempt {document['attempt']}: no rank runs; the gang's phase is {document['phase']}"]
    lines = []
    for group in groups:
        ranks = [int(rank) for rank in group["ranks"]]
        who = "ranks {}: each" if ranks[1:] else "rank {}:"
        lines.append(f"{who.format(intervals(ranks))} {group['does']}")
        lines += [f"{INDENT}{frame}" for frame in group["stack"]]
    return lines
