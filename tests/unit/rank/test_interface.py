"""Which network interface gloo is told to use, and when it finds the right one by itself."""

import os
import socket
from pathlib import Path
from typing import Any

import pytest
from ddpjob_rank.machine import interface, network
from ddpjob_rank.machine.interface import choose_interface, interface_towards, name_leads_out
from ddpjob_rank.world import World

INTERFACES = {"127.0.0.1": "lo", "::1": "lo", "10.0.0.11": "eth0", "fe80::1": "eth0"}
"""The kernel does not list 127.0.1.1, although any program can bind to it."""

OF_OTHERS = ("", "127.0.0.1", "10.0.0.12")


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with loopback and eth0, through which it reaches all others."""
    monkeypatch.setattr(interface, "interface_of", INTERFACES.get)
    monkeypatch.setattr(interface, "address_towards", lambda host, _: "10.0.0.11" if host == "10.0.0.12" else None)
    monkeypatch.setenv(interface.VARIABLE, "")  # So that it is restored, whatever a test does to it.
    monkeypatch.delenv(interface.VARIABLE)


@pytest.mark.parametrize(
    ("addresses", "leads_out"),
    [
        pytest.param(["10.0.0.11"], True, id="in a pod: its own address"),
        pytest.param(["127.0.1.1"], False, id="on Debian: loopback"),
        pytest.param(["127.0.1.1", "10.0.0.11"], False, id="loopback first"),
        pytest.param(["192.0.2.7"], False, id="an address that this machine does not have"),
        pytest.param(["192.0.2.7", "10.0.0.11"], True, id="such an address first: gloo cannot bind to it"),
        pytest.param(["fe80::1%eth0"], True, id="an address that names its interface"),
        pytest.param([], False, id="none"),
    ],
)
def test_gloo_finds_its_interface_where_the_host_name_has_an_address_of_this_machine(
    addresses: list[str], monkeypatch: pytest.MonkeyPatch, *, leads_out: bool
) -> None:
    def resolve(*_: Any, **__: Any) -> list[Any]:
        if not addresses:
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 0)) for address in addresses]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    assert name_leads_out() == leads_out


@pytest.mark.parametrize(
    ("own", "others", "name"),
    [
        pytest.param("10.0.0.11", OF_OTHERS, "eth0", id="the interface on the route to the master"),
        pytest.param("127.0.1.1", OF_OTHERS, "eth0", id="on the master's machine: the one that leads to others"),
        pytest.param("127.0.0.1", ("127.0.0.1",), "", id="all on one machine"),
        pytest.param("", OF_OTHERS, "", id="gloo chooses"),
    ],
)
def test_the_interface_is_the_one_that_leads_to_the_other_machines(
    own: str, others: tuple[str, ...], name: str
) -> None:
    assert interface_towards(own, others) == name
    assert choose_interface(own, others) == name
    assert os.environ.get(interface.VARIABLE, "") == name


def test_the_address_towards_the_master_is_asked_for_unless_the_user_has_chosen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def of(master: str) -> str:
        return interface.local_address(World(master_addr=master, master_port=29500))

    assert [of("10.0.0.12"), of("192.0.2.7"), of("")] == ["10.0.0.11", "", ""]
    monkeypatch.setenv(interface.VARIABLE, "eth7")
    assert of("10.0.0.12") == ""


def test_a_host_has_several_addresses_and_the_first_that_there_is_a_route_to_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nowhere = (socket.AF_INET6, socket.SOCK_DGRAM, 17, "", ("2001:db8::1", 9, 0, 0))
    here = (socket.AF_INET, socket.SOCK_DGRAM, 17, "", ("127.0.0.1", 9))
    connect = socket.socket.connect

    class Probe(socket.socket):
        def connect(self, address: Any) -> None:
            if address[0] != "127.0.0.1":
                raise OSError(101, "Network is unreachable")
            connect(self, address)

    monkeypatch.setattr(socket, "socket", Probe)
    for found, address in (([nowhere, here], "127.0.0.1"), ([here, nowhere], "127.0.0.1"), ([nowhere], None)):
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, found=found, **__: found)
        assert network.address_towards("node-1", 9) == address


def test_what_the_kernel_does_not_list_there_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> str:
        raise OSError

    kinds = tmp_path / "sys/class/net/ib0/type"
    kinds.parent.mkdir(parents=True)
    kinds.write_text("32\n")
    assert network.fabric(tmp_path) == network.Fabric((), ("ib0",))
    assert network.interface_of("::1") in {"lo", None}
    monkeypatch.setattr(Path, "read_text", refuse)
    assert network.fabric(tmp_path) == network.Fabric()
    assert network.interface_of("::1") is None
    monkeypatch.setattr(network.sys, "platform", "darwin")
    assert network.interface_of("127.0.0.1") is None
