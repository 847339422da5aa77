"""Parses the lines that PyTorch's NCCL backend and NCCL itself write to stderr. Pure.

The backend's watchdog is a C++ thread. When a collective fails or takes too long, the watchdog logs some lines and
ends the process with SIGABRT. No exception reaches Python, so only these lines give the reason. (PyTorch 2.0 to 2.15:
torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp.)
"""

import re
from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum

from ddpjob_rank.errors import DeviceFailedError, PeerLostError, TrainerError
from ddpjob_rank.failure.collective_errors import Fault, nccl_fault
from ddpjob_rank.failure.device_words import broken_device

LINE = re.compile(r"ProcessGroupNCCL|[Ww]atchdog|NCCL|nccl[A-Z]\w+|CUDA error|Cuda failure")
"""A quick test that skips lines that are not about NCCL, because a program may write a thousand lines per second."""

GROUP = re.compile(r"\[PG (?:ID \d+ PG GUID )?(?P<group>\w+) ?(?:\([^()]{0,200}+\))? Rank \d+\]")
"""The process group of a line. PyTorch before 2.4 does not print it, so the default group is assumed then."""

TIMED_OUT = re.compile(
    r"Watchdog caught collective operation timeout: WorkNCCL\(SeqNum=(?P<number>\d+), OpType=(?P<operation>\w++)"
    r".{0,200}?\) ran for (?P<milliseconds>\d+) milliseconds"
)
GAVE_UP = re.compile(r"Watchdog caught collective operation timeout: NCCL operation timed out")
"""The line of PyTorch 2.15's backend `nccl2`."""

STATUS = re.compile(
    r"[Ll]ast enqueued (?:NCCL )?work: (?P<begun>-?\d+)"
    r"(?:, last started (?:NCCL )?work: -?\d+)?, last completed (?:NCCL )?work: (?P<done>-?\d+)"
)
SIGNALLED = re.compile(
    r"Observed flight recorder dump signal from another rank"
    r"|Received a dump signal due to a collective timeout from +rank -?\d+"
    r"|(?:Received a global|detected a) dump signal from rank -?\d+"
)
"""After a line that matches, the watchdog ends the process if it still runs 8 minutes later. The last two
alternatives are lines of PyTorch 2.4."""

ENDED = re.compile(r"Terminating the process after attempting to dump debug info, due to (?P<why>.+)")
HUNG = re.compile(r"ProcessGroupNCCL's watchdog got stuck for (?P<seconds>\d+) seconds")
CUDA_ERROR = re.compile(r"CUDA error: (?P<said>.+)|Cuda failure (?:\d+ )?'(?P<failure>[^']+)'")
REMOTE = re.compile(
    r"remote process exited or there was a network error|ncclRemoteError|NCCL communicator was aborted"
)
NCCL_ERROR = re.compile(
    r"(?P<said>(?P<result>nccl(?:System|UnhandledCuda|Internal)Error|ncclInvalid(?:Usage|Argument)): .*)"
)
LAST_ERROR = "Last error:"
"""NCCL's own explanation follows these words, on the same line or on the next."""

VIA = re.compile(r"NCCL INFO (?:Channel|CollNet) \S+ ?: .{0,200}? via (?P<way>P2P|SHM|(?:NET|COLLNET)/[^/]+)")
NETWORK = re.compile(r"NCCL INFO Using network (?P<network>.+)")
PREFIX = re.compile(r"^\[rank\d+\]:\s?")
"""The prefix that PyTorch prints before each line of a rank that belongs to a process group."""

DEFAULT_GROUP = "0"


class Ending(StrEnum):
    """Why the NCCL watchdog, or CUDA, ended a process."""

    DEVICE = "device"
    """The GPU of the process is broken."""
    TIMEOUT = "timeout"
    """The process waited in a collective for too long."""
    PEER = "peer"
    """Another process, or the connection to it, was lost."""
    SIGNALLED = "signalled"
    """Another rank signalled this process, because it failed or its watchdog gave up."""
    OTHER = "other"
    """Another error of CUDA or NCCL, which may be the program's fault."""


@dataclass(slots=True)
class NcclWords:
    """The relevant content of one process's log, which is passed in line by line, without line ends."""

    ending: Ending | None = None
    said: str = ""
    """A sentence that explains the ending."""
    begun: dict[str, int] = field(default_factory=dict)
    """The number of collectives that the process had begun, if it is logged, by group and backend (`0 nccl`)."""
    done: dict[str, int] = field(default_factory=dict)
    """The number of collectives that were completed, in the same form."""
    waited: str = ""
    """The collective in which the process waited until its timeout, such as `NCCL's ALLREDUCE number 5`."""
    network: str = ""
    """The network that NCCL uses between machines: `IB`, `Socket`, or a plugin's name."""
    ways: Counter[str] = field(default_factory=Counter)
    """The number of channels for each transport: `P2P`, `SHM`, `NET/IB`."""
    _explains: bool = False
    _result: str = ""
    """NCCL's result, such as `ncclSystemError`, if that was the reason. Its explanation may follow."""

    def hear(self, line: str) -> None:
        """Parses the next line."""
        if self._explains:
            self._explains = False
            self._explain(PREFIX.sub("", line).strip())
        if LAST_ERROR in line:
            self._explains = True
            self._explain(line.partition(LAST_ERROR)[2].strip())
        if LINE.search(line) is None:
            return
        if " NCCL INFO " in line:
            self._hear_info(line)
        else:
            self._hear_error(line)

    def _hear_info(self, line: str) -> None:
        if match := VIA.search(line):
            self.ways[match["way"]] += 1
        elif match := NETWORK.search(line):
            self.network = match["network"].strip()

    def _hear_error(self, line: str) -> None:
        if match := STATUS.search(line):
            named = GROUP.search(line)
            group = f"{named['group'] if named else DEFAULT_GROUP} nccl"
            self.begun[group], self.done[group] = int(match["begun"]), int(match["done"])
        if match := TIMED_OUT.search(line):
            self.waited = self.waited or f"NCCL's {match['operation']} number {match['number']}"
            self._end(Ending.TIMEOUT, f"it waited in {self.waited} for {int(match['milliseconds']) / 1000:.0f} s")
        elif GAVE_UP.search(line):
            self._end(Ending.TIMEOUT, "it waited in a collective of NCCL until its timeout")
        elif match := HUNG.search(line):
            self._end(Ending.TIMEOUT, f"NCCL's watchdog was stuck for {match['seconds']} s")
        elif match := CUDA_ERROR.search(line):
            error = (match["said"] or match["failure"]).strip()
            self._end(Ending.DEVICE if broken_device(error) else Ending.OTHER, f"CUDA error: {error}")
        elif match := SIGNALLED.search(line):
            self._end(Ending.SIGNALLED, "the NCCL watchdog of another rank gave up, and signalled this rank")
        elif self.ending is None and (match := ENDED.search(line)):
            self._end(Ending.TIMEOUT, f"NCCL's watchdog ended the process, due to {match['why'].removesuffix('.')}")
        elif match := REMOTE.search(line):
            self._end(Ending.PEER, "NCCL lost a peer: remote process exited or there was a network error")
        elif (match := NCCL_ERROR.search(line)) and self.ending in {None, Ending.SIGNALLED}:
            self._result = match["result"]
            self._end(_ending_by(self._result, ""), match["said"].strip())

    def _end(self, ending: Ending, explanation: str) -> None:
        """Sets the reason. The first reason counts, because later ones are its consequences, with two exceptions.

        A broken device replaces any other reason. Any other reason replaces SIGNALLED, which only means that another
        rank failed.
        """
        if self.ending in {None, Ending.SIGNALLED} or (ending is Ending.DEVICE and self.ending is not Ending.DEVICE):
            self.ending, self.said = ending, explanation

    def _explain(self, words: str) -> None:
        """Adds NCCL's own explanation of the last error."""
        if not words or self.ending not in {Ending.PEER, Ending.OTHER}:
            return
        if broken_device(words):
            self.ending = Ending.DEVICE
        elif self._result:
            self.ending = _ending_by(self._result, words)
        if words not in self.said:
            self.said = f"{self.said}; {words}"


def _ending_by(result: str, explanation: str) -> Ending:
    return Ending.PEER if nccl_fault(result, explanation) is Fault.PEER else Ending.OTHER


CAUSES = {
    Ending.DEVICE: DeviceFailedError.cause,
    Ending.TIMEOUT: "Stalled",
    Ending.PEER: PeerLostError.cause,
    Ending.SIGNALLED: PeerLostError.cause,
    Ending.OTHER: TrainerError.cause,
}
"""The cause that a failure report gives for each of these endings."""
