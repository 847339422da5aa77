"""What the program sets for its whole process before it runs."""

import asyncio
import ssl
from asyncio.sslproto import SSLProtocol
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any

import pytest
from ddpjob_operator.cluster import command


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
