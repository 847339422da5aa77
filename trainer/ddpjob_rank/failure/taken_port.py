"""Explains why rank 0 could not listen on a port: who has it, and where the port comes from."""

import os
import re

from ddpjob_rank.environment import Env
from ddpjob_rank.errors import PortTakenError
from ddpjob_rank.machine.port_holder import holder_of

TAKEN = re.compile(r"port: (?P<port>\d+),[^\n]{0,200}EADDRINUSE|failed to bind to \S+:(?P<bound>\d+) \(errno: 98 ")
"""The words of torch's TCPStore about a taken port: first with libuv, then without libuv or before PyTorch 2.4."""

SPAWNED_RAISED = "ProcessRaisedException"
"""The type of `torch.multiprocessing.spawn` that quotes the traceback of a process: torch is not imported."""


def taken_port(error: BaseException, given: str) -> PortTakenError | None:
    """The error in one line, if a port is taken; None for another error. `given` is the MASTER_PORT of the start.

    This is not certainly a mistake: the process that has the port may have ended before the next attempt.
    """
    told = isinstance(error, RuntimeError) or type(error).__name__ == SPAWNED_RAISED
    found = TAKEN.search(str(error)) if told else None
    if found is None:
        return None
    port = found["port"] or found["bound"]
    if port == given:
        source = "DDPJob has set MASTER_PORT to it; the next attempt has another"
    elif port == os.environ.get(Env.MASTER_PORT):
        source = "the program sets MASTER_PORT to it: leave MASTER_PORT as DDPJob sets it, to a free port"
    else:
        source = "the program names it itself: let it use MASTER_PORT, which DDPJob sets to a free port"
    return PortTakenError(f"port {port} of this machine is taken by {holder_of(int(port))}; {source}")
