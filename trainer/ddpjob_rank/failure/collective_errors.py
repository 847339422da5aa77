"""What errors of collectives mean: who is at fault, and which sentence of the error's text gives the reason. Pure.

The texts are those of PyTorch 1.8 to 2.15 (getNcclErrorDetailStr in torch/csrc/distributed/c10d, with socket.cpp and
TCPStore.cpp beside it), of NCCL's ncclGetErrorString and ncclGetLastError, and of gloo.
"""

import re
from dataclasses import dataclass
from enum import Enum


class Fault(Enum):
    """Who or what is at fault."""

    PROGRAM = "program"
    DEVICE = "device"
    """CUDA has reported an error to NCCL. If the error's text does not mean that the GPU is broken, the program may
    be at fault."""
    MACHINE = "machine"
    """The rank's own machine or container lacks something, or NCCL itself has failed."""
    PEER = "peer"
    """Another process is at fault, or the connection to it."""


@dataclass(frozen=True, slots=True)
class CollectiveError:
    """An error of a collective."""

    fault: Fault
    sentence: str


TEXTS = {
    "ncclUnhandledCudaError": "unhandled cuda error",
    "ncclSystemError": "unhandled system error",
    "ncclInternalError": "internal error",
    "ncclInvalidArgument": "invalid argument",
    "ncclInvalidUsage": "invalid usage",
    "ncclRemoteError": "remote process exited or there was a network error",
}
"""The text for each of NCCL's results. Some versions of PyTorch print only this text."""
FAULTS = {
    "ncclUnhandledCudaError": Fault.DEVICE,
    "ncclSystemError": Fault.PEER,
    "ncclInternalError": Fault.MACHINE,
    "ncclInvalidArgument": Fault.PROGRAM,
    "ncclInvalidUsage": Fault.PROGRAM,
    "ncclRemoteError": Fault.PEER,
}
"""Who is at fault for each of NCCL's results."""

UNCLEAR = frozenset({"ncclSystemError", "ncclInternalError"})
"""Results for which NCCL's explanation decides who is at fault. Some versions of NCCL report a lost peer with one of
these results: https://github.com/NVIDIA/nccl/issues/1092."""

OF_THE_MACHINE = re.compile(
    r"shared memory|/dev/shm|No space left on device|Cannot allocate memory|Too many open files"
    r"|no (?:usable )?socket interface"
)
OF_A_PEER = re.compile(r"[Cc]onnect|[Ss]ocket|remote|timed? ?out|from peer")

RESULT = re.compile(rf"\b(?P<name>{'|'.join(TEXTS)})\b.*")
BY_TEXT = {text: name for name, text in TEXTS.items()}
RESULT_TEXT = re.compile(rf"NCCL [Ee]rror.{{0,300}}?(?P<text>{'|'.join(BY_TEXT)})")
EXPLANATION = re.compile(r"Last error:[ \t]*\n?[ \t]*(?P<said>[^\n]*)")
NO_EXPLANATION = "Unknown NCCL Error"

NO_PEERS_FAULT = re.compile(r"EADDRINUSE|[Aa]ddress already in use|EACCES|[Pp]ermission denied")
"""Words of a network error that mean that this process cannot listen on a port. In this case no peer is at fault."""

PEER_LOST_PHRASES = (
    "Connection closed by peer",
    "Connection reset by peer",
    "Broken pipe",
    "Connection refused",
    "Connection was likely closed",
    "Socket closed",
    "Socket Timeout",
    "Application timeout caused pair closure",
    "Timed out waiting",
    "Wait timeout",
    "wait timeout after",
    "NCCL timeout in",
    "failed to pass monitoredBarrier",
    "has aborted its NCCL communicators",
    "NCCL communicator was aborted",
    "remote process exited",
    "Watchdog caught collective operation timeout",
)
"""Phrases of gloo, NCCL and the store which mean that another process is gone, or did not come in time."""

OF_THE_NETWORK = frozenset({"DistNetworkError", "DistStoreError"})
"""Types that mean a lost peer whatever the message is. They are names, so that this module need not import torch."""

OF_THE_PROGRAM = frozenset({"QueueEmptyError"})
"""A subclass of DistStoreError that means that the program has read an empty queue without waiting."""

TRACE = re.compile(r"\n(?:Exception raised from .* \(most recent call first\)|frame #\d+:|C\+\+ CapturedTraceback:)")
"""The beginning of the C++ frames that PyTorch appends to a message."""

ADVICE = ". This is typically"
"""The beginning of the advice in gloo's message. From here on, the message is the same for every lost peer."""

SOURCE = re.compile(r"^\[[^\]]*\.cc:\d+\] ")
"""The place in gloo's source that gloo puts in front of its message."""


def collective_error(error: BaseException) -> CollectiveError | None:
    """What an error of a collective or of the store means; None if it is an error of another kind."""
    if not isinstance(error, RuntimeError):
        return None
    text, types = without_frames(str(error)), {kind.__name__ for kind in type(error).__mro__}
    if (of_nccl := nccl_error(text)) is not None:
        return of_nccl
    lines = lines_of(text)
    first = next(iter(lines), "")
    if types & OF_THE_PROGRAM or NO_PEERS_FAULT.search(text):
        return CollectiveError(Fault.PROGRAM, first)
    telling = next((line for line in lines if any(phrase in line for phrase in PEER_LOST_PHRASES)), None)
    if telling is None and not types & OF_THE_NETWORK:
        return None
    return CollectiveError(Fault.PEER, (telling or first).partition(ADVICE)[0])


def nccl_error(text: str) -> CollectiveError | None:
    """What an error of NCCL means, with NCCL's own explanation if there is one; None for any other error."""
    named, told = RESULT.search(text), RESULT_TEXT.search(text)
    if named is not None:
        name, sentence = named["name"], named[0].strip()
    elif told is not None:
        name = BY_TEXT[told["text"]]
        sentence = f"{name}: {told['text']}"
    else:
        return None
    explained = EXPLANATION.search(text)
    said = explained["said"].strip() if explained else ""
    if said and said != NO_EXPLANATION:
        return CollectiveError(nccl_fault(name, said), f"{name}: {said}")
    return CollectiveError(nccl_fault(name, ""), sentence)


def nccl_fault(name: str, said: str) -> Fault:
    """Who is at fault for a result of NCCL. `said` is NCCL's explanation."""
    if name in UNCLEAR:
        if OF_THE_MACHINE.search(said):
            return Fault.MACHINE
        if OF_A_PEER.search(said):
            return Fault.PEER
    return FAULTS[name]


def without_frames(text: str) -> str:
    """A message of PyTorch, without the C++ frames that may follow it."""
    frames = TRACE.search(text)
    return text[: frames.start()] if frames else text


def lines_of(text: str) -> list[str]:
    """The lines of a message that are not empty, without the place in gloo's source."""
    lines = (SOURCE.sub("", line.strip()) for line in text.splitlines())
    return [line for line in lines if line]
