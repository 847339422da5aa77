"""Which agreement belongs to which process group, and where the ranks look for rank 0."""

import json
import socket
import sys
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest
from ddpjob_rank.reporting import group_agreement, teller
from ddpjob_rank.reporting.agreement import Agreement, Wish
from ddpjob_rank.reporting.group_agreement import agreement_of_group

MASTER = "digits-0.digits"


class Store(dict[str, str]):
    """One of torch's, as far as an agreement uses it. It has the host of a TCPStore."""

    host = "digits-0.of-the-store"
    underlying_store = None

    def set(self, key: str, value: str) -> None:
        self[key] = value

    def check(self, keys: list[str]) -> bool:
        return keys[0] in self

    __hash__ = object.__hash__


Form = Callable[..., None]


@pytest.fixture
def form(monkeypatch: pytest.MonkeyPatch) -> Iterator[Form]:
    """Forms another group in place of torch."""
    monkeypatch.setattr(group_agreement, "_agreements", {})
    monkeypatch.setattr(group_agreement, "_made", {})
    monkeypatch.setattr(teller, "_warned", set())
    monkeypatch.setattr(group_agreement, "address_towards", lambda host, _: f"an address towards {host}")
    monkeypatch.setenv("MASTER_ADDR", MASTER)
    for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE", "DDPJOB_LISTEN_ADDR"):
        monkeypatch.delenv(name, raising=False)

    c10d = SimpleNamespace(is_initialized=lambda: True)
    monkeypatch.setitem(sys.modules, group_agreement.C10D, c10d)

    def form(store: Store | None, rank: int = 0, size: int = 2) -> None:
        c10d._get_default_store = lambda: store
        c10d.get_rank, c10d.get_world_size = lambda: rank, lambda: size

    yield form
    for agreement, _ in group_agreement._agreements.values():
        agreement.close()


def stop() -> Agreement:
    return agreement_of_group("stop", "f()")


def test_a_group_has_one_agreement_for_each_purpose_and_the_next_group_has_others(form: Form) -> None:
    first, second = Store(), Store()
    form(first)
    agreement = stop()
    assert stop() is agreement
    assert agreement_of_group("save", "g()") is not agreement
    form(second)
    assert stop() is not agreement
    assert not agreement._thread.is_alive()
    assert [*first], [*second] == (
        ["ddpjob/agreement/stop/0/1", "ddpjob/agreement/save/0/1"],
        ["ddpjob/agreement/stop/0/2"],
    )


def test_the_store_of_a_former_group_is_not_kept(form: Form) -> None:
    """It would keep the port on which a TCPStore listens."""
    form(Store())
    stop()
    _, former = group_agreement._agreements["stop"]
    assert former is not None
    form(Store())
    assert former() is None


@pytest.mark.parametrize(("size", "warnings"), [(1, 0), (2, 1), (3, 1)])
def test_without_a_store_a_process_stops_when_it_is_told_to_and_one_of_several_is_warned_once(
    size: int, warnings: int, form: Form, capsys: pytest.CaptureFixture[str]
) -> None:
    form(None, size=size)
    stop().wish(Wish.STOP)
    assert stop().reached(1) is Wish.STOP
    assert capsys.readouterr().err.count("this backend has no store") == warnings


def test_a_backend_without_a_store_is_told_once(form: Form, capsys: pytest.CaptureFixture[str]) -> None:
    form(None, size=4)
    assert stop() is stop()
    stop().wish(Wish.STOP)
    assert stop().reached(1) is Wish.STOP
    assert capsys.readouterr().err.count("f(): this backend has no store") == 1


def test_rank_0_is_looked_for_where_its_store_is_and_where_it_says(form: Form) -> None:
    store = Store()
    form(store)
    stop()
    hosts = json.loads(store["ddpjob/agreement/stop/0/1"])["hosts"]
    towards = [f"an address towards {host}" for host in (MASTER, *group_agreement.ELSEWHERE)]
    assert hosts == [store.host, MASTER, *towards, socket.gethostname(), "127.0.0.1"]
    assert [*group_agreement._hosts(store, leads=False)] == [store.host, MASTER]
    assert [*group_agreement._hosts(SimpleNamespace(underlying_store=object()), leads=False)] == [MASTER]


@pytest.mark.parametrize(
    ("variables", "addresses"),
    [
        ({"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}, {"127.0.0.1"}),
        ({"DDPJOB_LISTEN_ADDR": "127.0.0.7"}, {"127.0.0.7"}),
        ({"WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "4"}, {"::", "0.0.0.0"}),  # Not those of this group.
        ({"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "1"}, {"::", "0.0.0.0"}),
    ],
)
def test_on_one_machine_nobody_else_reaches_the_port(
    variables: dict[str, str], addresses: set[str], form: Form, monkeypatch: pytest.MonkeyPatch
) -> None:
    listened: list[str] = []
    listening = socket.create_server

    def note(address: tuple[str, int], **options: object) -> socket.socket:
        made = listening(address, **options)  # type: ignore[arg-type]
        listened.append(made.getsockname()[0])
        return made

    monkeypatch.setattr(socket, "create_server", note)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    form(Store())
    stop()
    assert addresses.issuperset(listened)
    assert len(listened) == 1
