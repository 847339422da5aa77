"""Which kubeconfigs can be used, and the one line for each that cannot."""

import asyncio
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock, Mock, call

import pytest
from ddpjob_operator.cluster.kube import connection as connecting
from ddpjob_operator.cluster.kube.api_client import DDPJOBS, ApiClient, ApiError, FencedError
from ddpjob_operator.cluster.kube.connection import Connection, NoClusterError

CLUSTER = {"server": "https://127.0.0.1:1"}
TOKEN = {"token": "secret"}


def a_kubeconfig(
    file: Path, cluster: dict[str, Any] | None = None, user: dict[str, Any] | None = None, **other: Any
) -> Path:
    config = {
        "clusters": [{"name": "here", "cluster": CLUSTER if cluster is None else cluster}],
        "users": [{"name": "me", "user": TOKEN if user is None else user}],
        "contexts": [{"name": "mine", "context": {"cluster": "here", "user": "me"}}],
        "current-context": "mine",
        **other,
    }
    file.write_text(json.dumps(config))
    return file


async def connected() -> Connection:
    connection = Connection()
    await connection.close()
    return connection


@pytest.mark.parametrize(
    ("what", "expected"),
    [
        ({"user": {"exec": {"command": "aws"}}}, "plugins (exec) are not called here"),
        ({"current-context": "other"}, "there is no 'other' in it"),
        ({"contexts": [{"name": "mine", "context": {"cluster": "here"}}]}, "there is no 'user' in it"),
        ({"current-context": None}, "Current context is not set"),
        ({"cluster": {}}, "its cluster has no server"),
        ({"clusters": "none"}, "The kubeconfig cannot be used: "),
        ({"cluster": {**CLUSTER, "certificate-authority": "gone.crt"}}, "cannot be read (gone.crt): "),
        ({"cluster": {**CLUSTER, "certificate-authority-data": "bm9uc2Vuc2U="}}, "cannot be read (given as data): "),
    ],
)
def test_a_kubeconfig_that_cannot_be_used_gets_one_line(
    what: dict[str, Any], expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(a_kubeconfig(tmp_path / "config", **what)))
    with pytest.raises(NoClusterError) as refused:
        asyncio.run(connected())
    assert expected in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_file_that_is_no_yaml_is_no_kubeconfig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config").write_text("a: [")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    with pytest.raises(NoClusterError, match=r"\AThe kubeconfig cannot be used: .*\Z"):
        asyncio.run(connected())


def test_beside_a_cluster_whose_service_account_it_has_not_it_takes_the_kubeconfig(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
    monkeypatch.setenv("KUBECONFIG", str(a_kubeconfig(tmp_path / "config")))
    assert connecting.credentials().server == CLUSTER["server"]


@pytest.mark.timeout(60)
def test_a_server_that_never_answers_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connecting, "REQUEST_SECONDS", 0.05)

    async def asked() -> None:
        connection = Connection()
        try:
            await ApiClient(connection, lambda: True).get(DDPJOBS, "team", "digits")
        finally:
            await connection.close()

    with socket.create_server(("127.0.0.1", 0)) as deaf:
        server = f"http://127.0.0.1:{deaf.getsockname()[1]}"
        monkeypatch.setenv("KUBECONFIG", str(a_kubeconfig(tmp_path / "config", cluster={"server": server}, user={})))
        with pytest.raises(ApiError) as error:
            asyncio.run(asked())
    assert error.value.passing


@contextmanager
def serving(
    status: int, text: bytes, asked_by: list[str | None] | None = None, valid: str | None = None
) -> Iterator[str]:
    """The address of a server that answers everything so, but with 401 where another Authorization is `valid`."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            by = self.headers["Authorization"]
            if asked_by is not None:
                asked_by.append(by)
            self.send_response(status if valid in {None, by} else 401)
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: Any) -> None:
            """Says nothing."""

    server = HTTPServer(("127.0.0.1", 0), Page)
    serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    serving.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        serving.join()
        server.server_close()


@pytest.fixture
def page() -> Iterator[str]:
    """The address of a server that is no API server, as a proxy with a page of its own is none."""
    with serving(200, b"<html>Please log in</html>") as address:
        yield address


def test_an_answer_that_is_not_json_is_an_answer_of_nobody_s(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = a_kubeconfig(tmp_path / "config", cluster={"server": page}, user={})
    monkeypatch.setenv("KUBECONFIG", str(config))

    async def asked() -> None:
        connection = Connection()
        try:
            await ApiClient(connection, lambda: True).get(DDPJOBS, "team", "digits")
        finally:
            await connection.close()

    with pytest.raises(ApiError, match=r"the API server's answer cannot be read: .*: b'<html>") as error:
        asyncio.run(asked())
    assert error.value.passing


def test_a_kubeconfig_that_is_just_being_written_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "config"
    monkeypatch.setenv("KUBECONFIG", str(config))

    async def asked(address: str) -> None:
        a_kubeconfig(config, cluster={"server": address})
        connection = Connection()
        config.write_text("")
        api = ApiClient(connection, lambda: True)
        try:
            with pytest.raises(ApiError, match="who are you") as refused:
                await api.get(DDPJOBS, "team", "digits")
            assert refused.value.status == 401
            with pytest.raises(ApiError, match="who are you"):
                await anext(api.watch(DDPJOBS, "team", "", 1))
        finally:
            await connection.close()

    with serving(401, b"who are you") as address:
        asyncio.run(asked(address))


@pytest.mark.parametrize("streamed", [False, True], ids=["a request", "a watch"])
def test_after_a_token_has_expired_the_present_one_is_read_and_the_request_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, streamed: bool
) -> None:
    config = tmp_path / "config"
    monkeypatch.setenv("KUBECONFIG", str(config))

    async def statuses(address: str) -> list[int]:
        a_kubeconfig(config, cluster={"server": address}, user={"token": "former"})
        connection = Connection()
        a_kubeconfig(config, cluster={"server": address}, user={"token": "present"})

        async def status() -> int:
            if not streamed:
                return (await connection.send("GET", "/any", None, lambda: None))[0]
            async with connection.stream("/any", 10.0, {}) as response:
                return response.status

        try:
            return [await status(), await status()]
        finally:
            await connection.close()

    tokens: list[str | None] = []
    with serving(200, b"", tokens, valid="Bearer present") as address:
        assert asyncio.run(statuses(address)) == [200, 200]
    assert tokens == ["Bearer former", "Bearer present", "Bearer present"]


def test_what_may_not_be_written_any_more_is_not_sent() -> None:
    """The check is made right before, because this process may have been paused since an earlier one."""
    writer, may_write = Mock(write=AsyncMock()), [True, False]

    def fence() -> None:
        if not may_write.pop(0):
            raise FencedError

    async def play() -> None:
        body = connecting._Body(b"{}", fence)
        await body.write_with_length(writer, None)
        assert writer.write.mock_calls == [call(b"{}")]
        with pytest.raises(FencedError):
            await body.write_with_length(writer, None)
        assert len(writer.write.mock_calls) == 1

    asyncio.run(play())


def test_where_there_is_neither_a_pod_nor_a_kubeconfig_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    for login in ("login_with_service_account", "login_with_kubeconfig"):
        monkeypatch.setattr(connecting.kopf, login, lambda **_: None)
    with pytest.raises(NoClusterError, match=r"^No cluster: this is not a pod with a service account, and"):
        connecting.credentials()
