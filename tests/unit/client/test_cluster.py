"""What is sent to an API server, and what becomes of its answers."""

import json
import pickle
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from ddpjob_operator.client import Cluster, RefusedError, UnreachableError
from ddpjob_operator.client.errors import ExistsError, NoNamespaceError, refusal
from kubernetes.client.api_client import ApiClient
from kubernetes.client.configuration import Configuration

PATH = "/api/v1/namespaces/team/pods"
STATUS = {"kind": "Status", "reason": "AlreadyExists", "message": "it is there", "details": {"name": "digits"}}


@contextmanager
def answering(
    code: int, body: bytes, *, whole: bool = True, seconds: float = 0.0
) -> Iterator[tuple[Cluster, list[Any]]]:
    """A cluster whose API server gives one answer, and breaks off after `seconds` unless it is the whole one."""
    asked: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            asked.append((self.command, self.path, dict(self.headers), content))
            self.send_response(code)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self.wfile.write(b"%x\r\n%b\r\n" % (len(body), body) + (b"0\r\n\r\n" if whole else b""))
            self.wfile.flush()
            time.sleep(seconds)
            self.close_connection = not whole

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = answer  # noqa: N815  The names are those of http.server.

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        configuration = Configuration(host=f"http://127.0.0.1:{server.server_port}")
        configuration.api_key["authorization"] = "Bearer mine"
        configuration.retries = False  # type: ignore[assignment]
        try:
            with ApiClient(configuration) as api:
                yield Cluster(api, "here", "team"), asked
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(
    ("method", "kind"),
    [
        ("POST", "application/json"),
        ("PUT", "application/json"),
        ("PATCH", "application/merge-patch+json"),
        ("DELETE", "application/json"),
    ],
)
def test_a_request_is_the_users_and_has_its_body_as_json(method: str, kind: str) -> None:
    with answering(200, b'{"made": 1}') as (cluster, asked):
        assert cluster.call(method, PATH, {"spec": {"nodes": 2}}, {"dryRun": "All"}) == {"made": 1}
    [(sent, path, headers, body)] = asked
    assert (sent, path, json.loads(body)) == (method, f"{PATH}?dryRun=All", {"spec": {"nodes": 2}})
    assert (headers["Content-Type"], headers["authorization"]) == (kind, "Bearer mine")


def test_of_a_collection_only_metadata_is_asked_for() -> None:
    with answering(200, b'{"items": [{"metadata": {"name": "a"}}, {"metadata": {"name": "b"}}]}') as (cluster, asked):
        assert cluster.metadata(PATH, {"labelSelector": "x"}) == [{"name": "a"}, {"name": "b"}]
    [(sent, path, headers, _)] = asked
    assert (sent, path) == ("GET", f"{PATH}?labelSelector=x")
    assert headers["Accept"] == "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"


@pytest.mark.parametrize(
    "error",
    [
        refusal(403, {"message": "no", "reason": "Forbidden", "details": {"name": "a"}}, "the cluster"),
        refusal(503, {}, "the cluster"),
        NoNamespaceError("team", "the cluster"),
        ExistsError("a exists already"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_is_the_same_in_another_process(error: Exception) -> None:
    """A pool of processes, in which somebody submits jobs, breaks at an error that cannot be sent back."""
    received = pickle.loads(pickle.dumps(error))
    assert (type(received), str(received), vars(received)) == (type(error), str(error), vars(error))
    assert str(error)


@pytest.mark.parametrize("code", [400, 404, 409, 422])
def test_a_refusal_has_the_servers_code_and_words(code: int) -> None:
    with answering(code, json.dumps(STATUS).encode()) as (cluster, _), pytest.raises(RefusedError) as refused:
        cluster.call("POST", PATH, {})
    error = refused.value
    assert (error.code, error.reason, error.said, error.details) == (
        *(code, "AlreadyExists", "it is there"),
        {"name": "digits"},
    )
    assert str(error) == "the cluster of context here refuses: it is there"


@pytest.mark.parametrize(
    ("code", "body", "error", "words"),
    [
        (401, b"{}", RefusedError, "rejects your credentials (Unauthorized): those in the kubeconfig are wrong"),
        (403, b"<html>", RefusedError, "refuses: Forbidden"),
        (429, b"{}", UnreachableError, "cannot answer now: Too Many Requests"),
        (500, b"[]", UnreachableError, "cannot answer now: Internal Server Error"),
        (502, b"<html>", UnreachableError, "cannot answer now: Bad Gateway"),
        (520, b"<html>", UnreachableError, "cannot answer now: status 520"),
        (200, b"<html>", UnreachableError, "is not a JSON object"),
        (200, b"[]", UnreachableError, "is not a JSON object"),
    ],
)
def test_what_a_proxy_answers_instead_is_one_line(code: int, body: bytes, error: type[Exception], words: str) -> None:
    with answering(code, body) as (cluster, _), pytest.raises(error) as raised:
        cluster.call("GET", PATH)
    assert words in str(raised.value)
    assert "\n" not in str(raised.value)


def test_lines_come_as_they_are_and_end_with_the_answer() -> None:
    with answering(200, b"a\nb\n") as (cluster, asked):
        assert [*cluster.lines(PATH, {"follow": "true"})] == [b"a\n", b"b\n"]
    assert asked[0][1] == f"{PATH}?follow=true"


def test_an_answer_that_breaks_off_is_told_after_the_lines_that_came() -> None:
    with answering(200, b"a\nb\n", whole=False) as (cluster, _):
        lines = cluster.lines(PATH, {})
        assert next(lines) == b"a\n"
        with pytest.raises(UnreachableError, match="cannot reach the cluster of context here at http://127"):
            list(lines)


def test_no_line_is_waited_for_longer_than_was_asked() -> None:
    with answering(200, b"a\n", whole=False, seconds=0.3) as (cluster, _):
        began = time.monotonic()
        with pytest.raises(UnreachableError, match="timed out"):
            list(cluster.lines(PATH, {}, silence_seconds=0.05))
        assert time.monotonic() - began < 0.3


def test_where_nothing_listens_the_address_is_told() -> None:
    with answering(200, b"{}") as (cluster, _):
        pass
    address = cluster.api.configuration.host
    with pytest.raises(UnreachableError) as raised:
        cluster.call("GET", PATH)
    assert str(raised.value).startswith(f"cannot reach the cluster of context here at {address}: ")
    assert "Connection refused" in str(raised.value)
