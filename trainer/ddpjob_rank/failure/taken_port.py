"""Explains why rank 0 could not listen on a port: which process has the port, and where its number comes from."""

import os
import re

from ddpjob_rank.environment import Env
from ddpjob_rank.errors import PortTakenError
from ddpjob_rank.machine.port_holder import holder_of

TAKEN = re.compile(r"port: (?P<port>\d+),[^\n]{0,200}EADDRINUSE|failed to bind to \S+:(?P<bound>\d+) \(errno: 98 ")
"""TCPStore's messages about a taken port: the first with libuv, the second without libuv or before PyTorch 2.4."""

SPAWNED_RAISED = "ProcessRaisedException"
"""The type of the exception in which `torch.multiprocessing.spawn` quotes the traceback of a process. Only the name
is compared, because torch is not imported here."""


def taken_port(error: BaseException, given: str) -> PortTakenError | None:
    """A one-line error if a port is taken; None for any other error.

    `given` is the MASTER_PORT with which the program was started. A taken port is not necessarily a mistake: the
    process that has it may have ended before the next attempt.
    """
    told = isinstance(error, RuntimeError) or type(error).__name__ == SPAWNED_RAISED
    found = TAKEN.search(str(error)) if told else None
    if found is None:
        return None
    port = found["port"] or found["bound"]
    if port == given:
        source = "DDPJob has set MASTER_PORT to this port; the next attempt gets another one"
    elif port == os.environ.get(Env.MASTER_PORT):
        source = "the program sets MASTER_PORT to this port: leave MASTER_PORT as DDPJob sets it, to a free port"
    else:
        source = "the program chose this port: let it use MASTER_PORT instead, which DDPJob sets to a free port"
    return PortTakenError(f"port {port} of this machine is taken by {holder_of(int(port))}; {source}")
