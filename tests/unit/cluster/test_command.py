"""What the program sets for its whole process before it runs."""

import asyncio
import ssl
from asyncio.sslproto import SSLProtocol
from collections.abc import Coroutine
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest
from ddpjob_operator.cluster import command
from ddpjob_operator.cluster.operator import StoppedError


def test_a_tls_connection_keeps_a_buffer_of_16_kib(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SSLProtocol, "max_size", SSLProtocol.max_size)
    kept = list[int]()

    def run(program: Coroutine[Any, Any, None]) -> None:
        program.close()
        loop = asyncio.new_event_loop()
        connection: Any = SSLProtocol(
            loop, asyncio.Protocol(), ssl.create_default_context(), asyncio.Future(loop=loop), server_hostname="here"
        )
        kept.append(len(connection._ssl_buffer))
        connection._get_app_transport().close()
        loop.close()

    def nothing(*_: object) -> None:
        """Leaves this process as it is."""

    monkeypatch.setattr(command, "asyncio", SimpleNamespace(run=run))
    monkeypatch.setattr(command, "gc", SimpleNamespace(freeze=nothing, set_threshold=nothing, enable=nothing))
    monkeypatch.setattr(command, "set_up", nothing)
    command.main([])
    assert kept == [16 << 10]


@pytest.mark.parametrize("why", [None, StoppedError("another one leads")], ids=["as asked", "it cannot go on"])
def test_however_it_ends_its_connections_are_closed_and_one_line_says_why(
    why: Exception | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    connection, operator = Mock(close=AsyncMock()), Mock(run=AsyncMock(side_effect=why))
    monkeypatch.setattr(command, "Connection", Mock(return_value=connection))
    monkeypatch.setattr(command, "Operator", Mock(return_value=operator))
    for name in ("gc", "set_up", "raise_open_files_limit"):
        monkeypatch.setattr(command, name, Mock())
    monkeypatch.setattr(SSLProtocol, "max_size", SSLProtocol.max_size)
    with pytest.raises(SystemExit, match=r"^1$") if why else nullcontext():
        command.main(["--clock-settling-seconds", "7"])
    command.Connection.assert_called_once_with(7.0)
    connection.close.assert_awaited_once()
    assert capsys.readouterr().err == (f"ddpjob-operator: {why}\n" if why else "")
