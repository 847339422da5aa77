"""Strangers at the control port of a gang that trains: they know the uid, which many can read, and not the secret."""

import json
import re
import socket
from pathlib import Path
from typing import Any

from tests.support.relay import relay_in_a_thread
from tests.training.gang import Gang, a_gang

LONG = "1000000"
UID: dict[str, Any] = {"uid": "a-uid"}
HELLO = {"kind": "Hello", **UID, "node": 1, "incarnation": 99, "attempt": 99, "port": 29502, "release": "0.1.0"}
ANNOUNCE = {"kind": "Announce", **UID, "incarnation": 99}
END = {"rank": 0, "exit_code": 2, "time": 0.0, "cause": "ConfigError", "message": "a stranger's words"}
LEAVE = {"kind": "Leave", "incident": {"attempt": 1, "node": 0, "end": END}}
OF_VERSION = ({"protocol": 2}, {"protocol": 3, "nonce": "00"})


def says(address: str, *words: dict[str, Any]) -> bytes:
    """What is answered to whoever says this, until the connection ends or nothing is said any more."""
    host, port = address.split(":")
    said = b""
    with socket.create_connection((host, int(port)), timeout=30) as there:
        there.sendall(b"".join(json.dumps(one).encode() + b"\n" for one in words))
        there.settimeout(2.0)
        try:
            while part := there.recv(1 << 16):
                said += part
        except (TimeoutError, ConnectionError):
            pass
    return said


def leads(address: str) -> bool:
    """Announces a rank 0 that it is itself, and has whoever comes to it start an attempt; whether any came."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(3.0)
        says(address, ANNOUNCE | {"address": f"127.0.0.1:{server.getsockname()[1]}", "nonce": "00"})
        try:
            server.accept()[0].close()
        except TimeoutError:
            return False
        return True


def test_whoever_knows_the_uid_neither_stops_nor_ends_nor_leads_a_gang(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("0123456789abcdef" * 4)
    with a_gang(tmp_path, 2, DDPJOB_SECRET_FILE=str(secret)) as gang:
        gang.start("train.py", LONG)
        gang.await_steps(1)
        for version in OF_VERSION:
            for address in map(gang.control, gang.supervisors):
                said = says(address, HELLO | version, HELLO | version, LEAVE)
                assert not any(word in said for word in (b"Welcome", b"History", b"Elsewhere")), said
        assert not leads(gang.control(1))
        goes_on(gang)
        assert all("refused a connection to the control port from" in gang.log(node) for node in gang.supervisors)
        nobody_leads_by_passing_on(gang)


def nobody_leads_by_passing_on(gang: Gang) -> None:
    """Rank 0's pod is replaced, and where it looks for the other node somebody passes its words on."""
    with relay_in_a_thread(gang.control(1), "127.0.0.9") as between:
        gang.kill_node(0)
        gang.start_node(0, "train.py", LONG, attempt=2, peers=between)
        gang.await_steps(2)
    assert "rank 0 is at 127.0.0.9" not in gang.log(1)
    assert re.search(r"refused .* control port.*127\.0\.0\.1:.* but is seen at 127\.0\.0\.9", gang.log(1))


def goes_on(gang: Gang) -> None:
    """Training is where it would be without them."""
    gang.await_steps(1, least=max(step.step for step in gang.steps()) + 20)
    assert {step.attempt for step in gang.steps()} == {1}
    assert all(supervisor.poll() is None for supervisor in gang.supervisors.values())
