"""A port that another process has is told with its number, its holder and where it comes from."""

import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest
from ddpjob_rank.errors import PortTakenError
from ddpjob_rank.failure.failure_report import known_failure
from ddpjob_rank.failure.taken_port import taken_port
from ddpjob_rank.machine.port_holder import holder_of

LISTENS = """
import socket, sys
listening = socket.create_server(("127.0.0.1", 0))
print(listening.getsockname()[1], flush=True)
sys.stdin.read()
"""


class DistNetworkError(RuntimeError):
    """Named as torch.distributed's."""


def libuv(port: int) -> DistNetworkError:
    return DistNetworkError(
        "The server socket has failed to listen on any local network address."
        f" port: {port}, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use"
    )


def sockets(port: int) -> DistNetworkError:
    return DistNetworkError(
        "The server socket has failed to listen on any local network address. The server socket has failed to bind to"
        f" [::]:{port} (errno: 98 - Address already in use). The server socket has failed to bind to 0.0.0.0:{port}"
        " (errno: 98 - Address already in use)."
    )


@pytest.fixture
def other() -> Iterator[tuple[int, int]]:
    """The pid and the port of another process that listens."""
    with subprocess.Popen([sys.executable, "-c", LISTENS], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        yield process.pid, int(process.stdout.readline())
        process.communicate()


@pytest.mark.parametrize("error_at", [libuv, sockets])
@pytest.mark.parametrize(
    ("ports", "source"),
    [
        (("41234", None), "the program sets MASTER_PORT to this port"),
        (("41234", "41234"), "the program chose this port"),
        ((None, None), "DDPJob has set MASTER_PORT to this port"),
    ],
)
def test_a_taken_port_is_told_with_its_holder_and_who_sets_it(
    error_at: type[DistNetworkError],
    ports: tuple[str | None, str | None],
    source: str,
    other: tuple[int, int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`ports` is MASTER_PORT at the start and at the error; None stands for the port that is taken."""
    pid, port = other
    given, now = ports
    monkeypatch.setenv("MASTER_PORT", now or str(port))
    error = error_at(port)
    assert known_failure(error) is None
    told = taken_port(error, given or str(port))
    assert type(told) is PortTakenError
    assert str(told).startswith(f"port {port} of this machine is taken by process {pid} (python")
    assert source in str(told)


def test_another_error_is_about_no_port() -> None:
    assert taken_port(DistNetworkError("The client socket has timed out"), "29500") is None
    assert taken_port(OSError(98, "Address already in use"), "29500") is None


def test_the_holder_may_be_this_process_or_gone() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        assert holder_of(port) == "this process itself"
    assert holder_of(port) == "another process"
