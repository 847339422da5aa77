"""How the rank that failed first on its node ended, where torchrun stands between it and the container.

torchrun itself ends with 1 and an exception of its own, whatever became of its ranks; which it was stands in the last
words of its log. Its error file is no way to learn of it: torchrun removes the file before it writes it, and a
container's termination message is a mount that cannot be removed.
(https://docs.pytorch.org/docs/stable/elastic/errors.html)
"""

import re
from dataclasses import replace

from .incident import SIGNAL_BASE
from .snapshot import Exit

ROOT_CAUSE = re.compile(
    r"^Root Cause \(first observed failure\):$.*?"
    r"^  rank      : (?P<rank>\d{1,9}) .*?"
    r"^  exitcode  : (?P<code>-?\d{1,3}) .*?"
    r"^  traceback : (?P<said>.*?)\s*\n=+\s*\Z",
    re.DOTALL | re.MULTILINE,
)
TOLD_TO_STOP = re.compile(r"^\S*\bSignalException: Process \d+ got signal: (?P<signal>\d{1,2})\s*\Z", re.MULTILINE)
BORDER = re.compile(r"\n={10,}\s*\Z")
INDENT = re.compile(r"^  ", re.MULTILINE)
TRACEBACK = "Traceback"
"""What `said` begins with where the main function of the script has torch's @record; otherwise it tells nothing."""


def of_its_rank(ended: Exit) -> tuple[Exit, int | None]:
    """The end of the rank that torchrun names, as if nothing stood between, and which of all ranks it is."""
    if stopped := TOLD_TO_STOP.search(ended.message):
        return replace(ended, code=SIGNAL_BASE + int(stopped["signal"]), message=""), None
    told = ROOT_CAUSE.search(ended.message)
    if told is None:  # A long traceback leaves no room for what stands before it.
        return replace(ended, message=BORDER.sub("", ended.message)), None
    code = int(told["code"])
    said = INDENT.sub("", told["said"]) if told["said"].startswith(TRACEBACK) else ""
    return replace(ended, code=SIGNAL_BASE - code if code < 0 else code, message=said), int(told["rank"])
