"""Which process is asked what the ranks of a run are doing, and when none is."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest
from ddpjob_operator.api import BadInputError, Bookkeeping, DDPJob
from ddpjob_operator.api.contract import Label
from ddpjob_operator.engine import pod_name
from ddpjob_operator.local import RunDirectory, look, page_of, status_page
from ddpjob_operator.local.files import write_json
from ddpjob_operator.local.processes import LocalPod

TEMPLATE = {"spec": {"containers": [{"name": "trainer", "image": "any", "command": ["x"]}]}}
INCARNATION = random.randint(2, 9)
STATUS = {"bookkeeping": {"supervised": True, "incarnations": {"default": INCARNATION}}}
JOB = DDPJob.from_dict({"metadata": {"name": "digits", "uid": "u"}, "spec": {"template": TEMPLATE}, "status": STATUS})


class Handler(BaseHTTPRequestHandler):
    """A supervisor that answers with its own port."""

    status, before, more = 200, "", ""

    def do_GET(self) -> None:
        self.send_response(self.status)
        self.end_headers()
        self.wfile.write(f"{self.before}{self.server.server_port}{self.more}".encode())

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def port() -> Iterator[int]:
    """The port of a process that shows stacks."""
    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, args=(0.01,)).start()
        yield server.server_port
        server.shutdown()


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    run = RunDirectory(tmp_path / "digits")
    run.create()
    run.save(JOB)
    return run


def pod_of(run: RunDirectory, port: int, incarnation: int = INCARNATION) -> LocalPod:
    """A pod of rank 0, as its container has left it if nobody holds its lock."""
    pod = LocalPod(run.pods / pod_name(JOB, 0, incarnation))
    pod.directory.mkdir()
    labels = {Label.NODE: "0", Label.INCARNATION: str(incarnation)}
    write_json(pod.directory / "pod.json", {"metadata": {"labels": labels, "uid": "u"}, "spec": {}})
    env = {"MASTER_PORT": "1", "DDPJOB_STATUS_PORT": str(port), "DDPJOB_CONTROL_PORT": "2"}
    write_json(pod.directory / "process.json", {"env": env})
    write_json(pod.directory / "started.json", {"pid": 1, "main": 2})
    (pod.directory / "lock").touch()
    return pod


@contextmanager
def runs(pod: LocalPod) -> Iterator[None]:
    """The pod's container runs meanwhile."""
    lock = pod.lock
    assert lock.acquire()
    try:
        yield
    finally:
        lock.release()


def test_the_present_pod_of_rank_0_is_asked_and_no_former_one(run: RunDirectory, port: int) -> None:
    with runs(pod_of(run, 1, INCARNATION - 1)), runs(pod_of(run, port)), runs(pod_of(run, 1, INCARNATION + 1)):
        assert look(run) == port
        assert status_page(run, JOB) == f"http://127.0.0.1:{port}/"


@pytest.mark.parametrize("damaged", [False, True])
def test_a_pod_that_was_killed_is_not_asked_since_others_may_have_its_port(
    run: RunDirectory, port: int, *, damaged: bool
) -> None:
    pod = pod_of(run, port)
    if damaged:
        (pod.directory / "started.json").write_text("")
    assert status_page(run, JOB) is None
    with pytest.raises(BadInputError, match="digits is not running, so it has no stacks"):
        look(run)


def test_an_answer_without_stacks_is_quoted_but_not_all_of_it(
    run: RunDirectory, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Handler, "status", 404)
    monkeypatch.setattr(Handler, "more", " of many" * 10_000)
    why = f"^digits has no supervisor that shows stacks: {port} of many"
    with runs(pod_of(run, port)), pytest.raises(BadInputError, match=why) as error:
        look(run)
    assert len(str(error.value)) < 500


def test_the_status_page_is_that_of_a_supervisor(run: RunDirectory, port: int) -> None:
    with runs(pod_of(run, port)):
        assert page_of(run, JOB) == port
        plain = JOB.model_copy(update={"status": JOB.status.model_copy(update={"bookkeeping": Bookkeeping()})})
        assert (page_of(run, plain), status_page(run, plain)) == (None, None)
    assert page_of(run, JOB) is None


@pytest.mark.parametrize(("status", "before"), [(500, ""), (200, "no JSON"), (200, "[" * 100_000), (7, "")])
def test_an_answer_that_cannot_be_read_is_none(
    status: int, before: str, run: RunDirectory, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Handler, "status", status)
    monkeypatch.setattr(Handler, "before", before)
    with runs(pod_of(run, port)):
        assert page_of(run, JOB) is None
        with pytest.raises(BadInputError, match="digits has no supervisor that shows stacks"):
            look(run)


def test_a_supervisor_that_does_not_listen_has_no_page(run: RunDirectory) -> None:
    with runs(pod_of(run, 1)):
        assert page_of(run, JOB) is None
        with pytest.raises(BadInputError, match=r"digits has no supervisor that shows stacks: .*refused"):
            look(run)
