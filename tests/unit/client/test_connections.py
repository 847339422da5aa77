"""Connections that another thread closes, whatever is waited for."""

import gc
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
import pytest
from ddpjob_operator.cli.cluster.life import Life
from ddpjob_operator.cli.cluster.pod_logs import PodLogs
from ddpjob_operator.client import ClosedError, Cluster, Jobs
from ddpjob_operator.client.errors import UnreachableError
from ddpjob_operator.sdk.handle import Job
from kubernetes.client.api_client import ApiClient
from kubernetes.client.configuration import Configuration

from tests.support.waiting import wait_for

from .api import a_job

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
SILENCE = {"no head": b"", "no body": HEAD + b"Transfer-Encoding: chunked\r\n\r\n"}
A_DOCUMENT = {
    **a_job(),
    "spec": {"template": {"spec": {"containers": [{"name": "trainer", "image": "any"}]}}},
    "status": {"state": "Running", "message": "1 node running"},
}
LIST = json.dumps({"items": [A_DOCUMENT], "metadata": {"resourceVersion": "7"}}).encode()


@contextmanager
def silent(begins: bytes) -> Iterator[Cluster]:
    """A cluster that lists objects, and whose watches and logs begin so and then say nothing more."""
    server = socket.create_server(("127.0.0.1", 0))
    kept: list[socket.socket] = []

    def serve(connection: socket.socket) -> None:
        kept.append(connection)
        with connection.makefile("rb") as requests:
            while line := requests.readline():
                while requests.readline().strip():
                    pass
                waits = b"watch=true" in line or b"/log?" in line
                answer = json.dumps(A_DOCUMENT).encode() if b"/digits " in line else LIST
                length = b"Content-Length: %d\r\n\r\n" % len(answer)
                connection.sendall(begins if waits else HEAD + length + answer)
            connection.close()
            kept.remove(connection)

    def accept() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=(connection,), daemon=True, name="server").start()

    threading.Thread(target=accept, daemon=True, name="server").start()
    configuration = Configuration(host=f"http://127.0.0.1:{server.getsockname()[1]}")
    configuration.retries = False  # type: ignore[assignment]
    try:
        yield Cluster(ApiClient(configuration), "here", "team")
    finally:
        server.shutdown(socket.SHUT_RDWR)
        server.close()
        for connection in kept:
            connection.close()


def followers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name in {"job", "pods", "reader"}]


@pytest.mark.parametrize("begins", SILENCE.values(), ids=SILENCE)
def test_who_waits_for_an_answer_is_woken_up(begins: bytes) -> None:
    ended: list[Exception] = []

    def read(cluster: Cluster) -> None:
        try:
            list(cluster.lines("/api/v1/pods/x/log", {"follow": "true"}))
        except (ClosedError, UnreachableError) as error:
            ended.append(error)

    with silent(begins) as shared:
        apart = shared.apart()
        reader = threading.Thread(target=read, args=(apart,), daemon=True, name="reader")
        reader.start()
        reader.join(0.2)
        assert reader.is_alive()
        apart.close()
        reader.join(5)
        assert not reader.is_alive()
        assert [type(error) for error in ended] == [ClosedError]
        with pytest.raises(ClosedError):
            apart.call("GET", "/any")
        assert shared.call("GET", "/any")["items"]


@pytest.mark.parametrize("begins", SILENCE.values(), ids=SILENCE)
def test_who_stops_to_follow_a_job_leaves_no_thread(begins: bytes) -> None:
    with silent(begins) as cluster:
        life, logs = Life(Jobs(cluster), A_DOCUMENT), PodLogs(Jobs(cluster), A_DOCUMENT, (0,))
        logs.follow()
        left = followers()
        assert [thread.name for thread in left] == ["job", "pods"]
        left[0].join(0.2)
        logs.stop()
        life.stop()
        for thread in left:
            thread.join(5)
        assert not followers()


@pytest.mark.parametrize(
    "times", [20, pytest.param(1000, marks=pytest.mark.full("twenty waits leave nothing, so many more do not"))]
)
def test_waiting_again_and_again_leaves_neither_threads_nor_sockets_nor_memory(times: int) -> None:
    with silent(SILENCE["no body"]) as cluster:

        def wait_once() -> None:
            with pytest.raises(TimeoutError):
                Job(Jobs(cluster), A_DOCUMENT).wait(0.001, quiet=True)

        wait_once()
        wait_for("the threads of the first wait end", lambda: not followers())
        gc.collect()
        before = _left()  # The server may still have its end of the first connection.
        for _ in range(times):
            wait_once()
        wait_for("all threads end", lambda: not followers())
        gc.collect()
        wait_for(
            "the server has closed its ends of the connections",
            lambda: all(now <= then for now, then in zip(_left(), before, strict=True)),
        )


def _left() -> tuple[int, int]:
    """How many files are open, and how many clients there are."""
    return psutil.Process().num_fds(), sum(type(each) is ApiClient for each in gc.get_objects())
