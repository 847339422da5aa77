"""Reads files of records, which have a line of JSON for each."""

from collections.abc import Iterator
from pathlib import Path

from ddpjob_operator.text.foreign_json import parsed_or_none
from ddpjob_operator.view_model import Records, collected

NAME = "metrics.jsonl"
"""The file that ddpjob-train writes."""
SEEN_NAME = "progress.jsonl"
"""The file in which the supervisor records the progress of any program."""
LONGEST_LINE = 1 << 20
"""The maximum length of a line in bytes. Anybody may have written the file, so lines are not read if they are too
long or too deeply nested to be records."""


def read(file: Path) -> Records:
    """Reads the records in a file. Skips malformed lines, such as one whose writer was killed while writing."""
    return collected(map(parsed_or_none, _lines(file)))


def _lines(file: Path) -> Iterator[bytes]:
    """Yields the lines of a file, except lines that are too long to be records."""
    with file.open("rb") as content:
        whole = True
        while part := content.readline(LONGEST_LINE):
            if whole and (len(part) < LONGEST_LINE or part.endswith(b"\n")):
                yield part
            whole = part.endswith(b"\n")
