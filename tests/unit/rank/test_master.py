"""Rank 0's port is waited for, and what is the matter with it is told."""

import socket
import time
from datetime import timedelta

import pytest
from ddpjob_rank.errors import PeerLostError
from ddpjob_rank.places.master import RETRY_SECONDS, await_rank_0
from ddpjob_rank.world import World

from tests.support.ports import hold_port
from tests.support.waiting import patience


def world(port: int) -> World:
    return World(1, 0, 2, 1, "127.0.0.1", port)


def test_a_rank_0_that_listens_later_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        pauses: list[float] = []

        def pause(seconds: float) -> None:
            pauses.append(seconds)
            server.listen()

        monkeypatch.setattr(time, "sleep", pause)
        await_rank_0(world(server.getsockname()[1]), timedelta(seconds=patience(20)))
        assert pauses == [RETRY_SECONDS]
        server.settimeout(0)
        with server.accept()[0] as connection:
            assert connection.recv(1) == b"", "it says nothing"


def test_a_rank_0_that_does_not_listen_is_told_with_its_address_and_the_reason() -> None:
    port = hold_port()
    with pytest.raises(PeerLostError) as caught:
        await_rank_0(world(port), timedelta(seconds=0.04))
    assert str(caught.value) == f"waited 0 s for rank 0 to answer at 127.0.0.1:{port}: Connection refused"
