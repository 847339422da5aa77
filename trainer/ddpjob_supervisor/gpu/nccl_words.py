"""What PyTorch's NCCL backend and NCCL itself say on stderr. Pure.

The backend's watchdog is a thread in C++. When a collective fails or takes too long, it logs some lines and ends the
process by SIGABRT: no exception reaches Python, and these lines are all that tells why.
(PyTorch 2.0 to 2.15: torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp.)
"""

import re
from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum

from ddpjob_rank.errors import DeviceFailedError, PeerLostError, TrainerError
from ddpjob_rank.failure.device_words import broken_device

LINE = re.compile(r"ProcessGroupNCCL|[Ww]atchdog|NCCL|nccl[A-Z]\w+|CUDA error|Cuda failure")
"""Lines without any of these words are not about NCCL: a program may write a thousand lines a second."""

GROUP = re.compile(r"\[PG (?:ID \d+ PG GUID )?(?P<group>\w+) ?(?:\([^()]{0,200}+\))? Rank \d+\]")
"""The process group that a line is about, since 2.4; before that, it is about the default one."""

TIMED_OUT = re.compile(
    r"Watchdog caught collective operation timeout: WorkNCCL\(SeqNum=(?P<number>\d+), OpType=(?P<operation>\w++)"
    r".{0,200}?\) ran for (?P<milliseconds>\d+) milliseconds"
)
GAVE_UP = re.compile(r"Watchdog caught collective operation timeout: NCCL operation timed out")
"""Of the backend `nccl2` of PyTorch 2.15."""

STATUS = re.compile(
    r"[Ll]ast enqueued (?:NCCL )?work: (?P<begun>-?\d+)"
    r"(?:, last started (?:NCCL )?work: -?\d+)?, last completed (?:NCCL )?work: (?P<done>-?\d+)"
)
SIGNALLED = re.compile(
    r"Observed flight recorder dump signal from another rank"
    r"|Received a dump signal due to a collective timeout from +rank -?\d+"
    r"|(?:Received a global|detected a) dump signal from rank -?\d+"
)
"""It is ended 8 minutes later, if nothing else ends it before. The last two are PyTorch 2.4's words."""

ENDED = re.compile(r"Terminating the process after attempting to dump debug info, due to (?P<why>.+)")
HUNG = re.compile(r"ProcessGroupNCCL's watchdog got stuck for (?P<seconds>\d+) seconds")
CUDA_ERROR = re.compile(r"CUDA error: (?P<said>.+)|Cuda failure (?:\d+ )?'(?P<failure>[^']+)'")
REMOTE = re.compile(
    r"remote process exited or there was a network error|ncclRemoteError|NCCL communicator was aborted"
)
NCCL_ERROR = re.compile(r"(?P<said>nccl(?:System|UnhandledCuda|Internal)Error: .*|ncclInvalid\w{1,32}: .*)")
LAST_ERROR = "Last error:"
"""The next line is NCCL's own explanation."""

VIA = re.compile(r"NCCL INFO (?:Channel|CollNet) \S+ ?: .{0,200}? via (?P<way>P2P|SHM|(?:NET|COLLNET)/[^/]+)")
NETWORK = re.compile(r"NCCL INFO Using network (?P<network>.+)")
PREFIX = re.compile(r"^\[rank\d+\]:\s?")
"""PyTorch puts it before each line of a rank that is in a group."""

DEFAULT_GROUP = "0"


class Ending(StrEnum):
    """Why NCCL's watchdog, or CUDA, ended a process."""

    DEVICE = "device"
    """Its GPU is broken."""
    TIMEOUT = "timeout"
    """It waited in a collective for too long."""
    PEER = "peer"
    """Another process, or the connection to it, is gone."""
    SIGNALLED = "signalled"
    """Another rank has given up, or failed, and told it so."""
    OTHER = "other"
    """Another error of CUDA or NCCL, which may be the program's."""


@dataclass(slots=True)
class NcclWords:
    """What one process has said, as far as it matters. Lines are heard one by one, without their ends."""

    ending: Ending | None = None
    said: str = ""
    """A sentence about it."""
    begun: dict[str, int] = field(default_factory=dict)
    """How many collectives it had begun, by group and backend (`0 nccl`), where it says so."""
    done: dict[str, int] = field(default_factory=dict)
    waited: str = ""
    """The collective in which it waited until it gave up: `NCCL's ALLREDUCE number 5`."""
    network: str = ""
    """Which network NCCL uses between machines: `IB`, `Socket`, or a plugin's name."""
    ways: Counter[str] = field(default_factory=Counter)
    """How many of its channels go which way: `P2P`, `SHM`, `NET/IB`."""
    _explains: bool = False

    def hear(self, line: str) -> None:
        """Takes one line."""
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
            said = (match["said"] or match["failure"]).strip()
            self._end(Ending.DEVICE if broken_device(said) else Ending.OTHER, f"CUDA error: {said}")
        elif match := SIGNALLED.search(line):
            self._end(Ending.SIGNALLED, "another rank's NCCL watchdog gave up, and told it so")
        elif self.ending is None and (match := ENDED.search(line)):
            self._end(Ending.TIMEOUT, f"NCCL's watchdog ended it, due to {match['why'].removesuffix('.')}")
        elif match := REMOTE.search(line):
            self._end(Ending.PEER, "NCCL lost a peer: remote process exited or there was a network error")
        elif match := NCCL_ERROR.search(line):
            self._end(Ending.OTHER, match["said"].strip())

    def _end(self, ending: Ending, said: str) -> None:
        """The first one counts: what follows are its consequences. But nothing explains away a broken device.

        What another rank has told it says least: it may find out the same for itself.
        """
        if self.ending in {None, Ending.SIGNALLED} or (ending is Ending.DEVICE and self.ending is not Ending.DEVICE):
            self.ending, self.said = ending, said

    def _explain(self, words: str) -> None:
        """NCCL's own explanation of what it has just said."""
        if not words or self.ending not in {Ending.PEER, Ending.OTHER}:
            return
        if broken_device(words):
            self.ending = Ending.DEVICE
        if words not in self.said:
            self.said = f"{self.said}; {words}"


CAUSES = {
    Ending.DEVICE: DeviceFailedError.cause,
    Ending.TIMEOUT: "Stalled",
    Ending.PEER: PeerLostError.cause,
    Ending.SIGNALLED: PeerLostError.cause,
    Ending.OTHER: TrainerError.cause,
}
"""What each is in a failure report."""
