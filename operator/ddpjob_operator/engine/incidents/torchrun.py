"""Finds out from torchrun's log how the node's first failed rank ended, if the container's main process is torchrun.

However its ranks failed, torchrun itself exits with code 1 and an exception of its own. It names the rank that failed
first at the end of its log. torchrun's error file cannot be the container's termination message: torchrun removes the
file before writing it, and the termination message is a mount, which cannot be removed.
(https://docs.pytorch.org/docs/stable/elastic/errors.html)

torchrun reports the rank's exception only if the script's main function has torch's @record decorator. Otherwise the
rank itself has printed the exception, above torchrun's summary. The kubelet passes on the last 2,048 bytes of a log,
which include the exception if a node has only a few ranks.
"""

import re
from dataclasses import replace

from ddpjob_operator.engine.snapshot import Exit

from .facts import SIGNAL_BASE

TRACEBACK = "Traceback (most recent call last):"
ROOT_CAUSE = "Root Cause (first observed failure):"
RANK, CODE, SAID = "  rank      : ", "  exitcode  : ", "  traceback : "
TOLD_TO_STOP = re.compile(r"^\S*\bSignalException: Process \d+ got signal: (?P<signal>\d{1,2})\s*\Z", re.MULTILINE)
EXIT_CODE = re.compile(r"^  exitcode  : (-?\d{1,3}) ", re.MULTILINE)
NUMBER = re.compile("-?[0-9]+")
RAISED = 1
"""The exit code of a Python program that ended with an exception."""

BORDER = re.compile(r"\n={10,}\s*\Z")
INDENT = re.compile(r"^  ", re.MULTILINE)


def of_its_rank(ended: Exit) -> tuple[Exit, int | None]:
    """Returns the exit of the rank that failed first, as if there had been no torchrun, and the rank's number."""
    if stopped := TOLD_TO_STOP.search(ended.message):
        return replace(ended, code=SIGNAL_BASE + int(stopped["signal"]), message=""), None
    summary = _root_cause(ended.message)
    if summary is None:  # A traceback can be so long that the beginning of the summary is cut off.
        return replace(ended, message=BORDER.sub("", ended.message)), None
    rank, code, said = summary
    if said.startswith(TRACEBACK):
        said = INDENT.sub("", said)
    else:
        said = _printed(rank, ended.message) if code == RAISED else ""
    return replace(ended, code=SIGNAL_BASE - code if code < 0 else code, message=said), rank


def _root_cause(log: str) -> tuple[int, int, str] | None:
    """Parses rank, exit code and error from torchrun's summary; None if the log does not end with a summary."""
    _, title, summary = f"\n{log}".rpartition(f"\n{ROOT_CAUSE}\n")
    fields, traceback, rest = f"\n{summary}".partition(f"\n{SAID}")
    said, _, border = rest.rstrip().rpartition("\n")
    rank, code = _number(fields, RANK, digits=9), _number(fields, CODE, digits=3)
    if not (title and traceback and border) or border.strip("=") or rank is None or code is None or rank < 0:
        return None
    return rank, code, said.rstrip()


def _number(lines: str, label: str, digits: int) -> int | None:
    """Returns the number that follows a label at the beginning of a line."""
    word = lines.partition(f"\n{label}")[2].partition(" ")[0]
    return int(word) if len(word.removeprefix("-")) <= digits and NUMBER.fullmatch(word) else None


def _printed(rank: int, log: str) -> str:
    """Returns the lines that this rank certainly printed, with its exception.

    After the ranks have met, torch.distributed prefixes each line of a traceback with the rank. Before that, the
    lines certainly come from this rank if all other ranks kept running until torchrun stopped them.
    """
    before, _, summary = log.rpartition(f"\n{TRACEBACK}\n")
    own = [line for line in before.splitlines() if line.startswith(f"[rank{rank}]: ")]
    alone = all(int(code) < 0 for code in EXIT_CODE.findall(summary)[:-1])
    if alone and TRACEBACK in before and "[rank" not in before:
        return before
    return "\n".join(own)
