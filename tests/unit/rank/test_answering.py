"""What a rank tells of its collectives, by whatever PyTorch has to tell of them."""

import json
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest
from ddpjob_rank.running import answering
from ddpjob_rank.running.answering import END, _collectives_told, _exceptions_told
from ddpjob_supervisor.watch.asking import write_to

from tests.support.waiting import wait_for

BEGUN = {"sequences": {"0 gloo": 7}}
ENTRY = {
    "process_group": ["0", "default_pg"],
    "collective_seq_id": 7,
    "profiling_name": "gloo:all_reduce",
    "input_sizes": [[8]],
    "is_p2p": False,
    "retired": False,
    "state": "scheduled",
}


class Group:
    """A process group that has begun seven collectives."""

    group_name = "0"

    def _get_sequence_number_for_group(self) -> int:
        return 7


def dump(**_: bool) -> str:
    """A flight recorder that has the last of them."""
    return json.dumps({"entries": [ENTRY]})


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch, native: dict[str, Any]) -> list[dict[str, Any]]:
    """What is told in one group, over gloo, where PyTorch's native module has these names."""
    world = SimpleNamespace(pg_map={Group(): ("gloo", None)})
    c10d = SimpleNamespace(is_initialized=lambda: True, _world=world)
    modules = {"torch.distributed.distributed_c10d": c10d, "torch._C._distributed_c10d": SimpleNamespace(**native)}
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    return [*_collectives_told()]


@pytest.mark.parametrize("native", [{"_dump_fr_trace_json": dump}])
def test_the_last_collectives_are_told_as_the_flight_recorder_has_them(told: list[dict[str, Any]]) -> None:
    waits = {"group": "0", "number": 7, "name": "gloo:all_reduce", "sizes": [[8]], "state": "waits"}
    recorded = {"collectives": [waits], "unfinished": [waits]}
    assert told == [BEGUN, {"backend": "gloo", **BEGUN, **recorded}]


@pytest.mark.parametrize("native", [{}, {"_dump_nccl_trace": dump}, {"_dump_nccl_trace_json": dump}])
def test_their_numbers_are_told_by_a_release_that_has_no_flight_recorder_for_them(told: list[dict[str, Any]]) -> None:
    assert told == [BEGUN, {"backend": "gloo"}]


@pytest.mark.parametrize("native", [{"_dump_fr_trace_json": lambda **_: '{"entries": [{}]}'}])
def test_a_recording_in_another_form_is_said_not_to_be_understood(told: list[dict[str, Any]]) -> None:
    assert told == [BEGUN, {"error": "KeyError: 'is_p2p'"}]


def test_the_exception_that_waits_in_a_finally_is_told_with_its_place() -> None:
    told = []
    try:
        try:
            raise ValueError("no shard 7")
        finally:
            thread = threading.Thread(target=lambda: told.extend(_exceptions_told()))
            thread.start()
            thread.join()
    except ValueError as error:
        line = error.__traceback__ and error.__traceback__.tb_lineno
    assert told == [{"raised": f"ValueError: no shard 7 ({__file__}:{line})"}]
    assert [*_exceptions_told()] == []


JOINS, READS, OURS = "/x/torch/distributed/distributed_c10d.py", "/x/torch/distributed/rendezvous.py", "/x/train.py"


@pytest.mark.parametrize(
    ("size", "file", "read", "reader", "told"),
    [
        (4, JOINS, 4, READS, ["world_size is 4, but the job has 2 ranks"]),
        (2, JOINS, 2, READS, []),
        (-1, JOINS, 4, READS, ["world_size is 4, but the job has 2 ranks"]),
        (-1, JOINS, 2, READS, []),
        (-1, JOINS, 4, OURS, []),
        (4, OURS, 4, READS, []),
    ],
    ids=[
        "more than there are",
        "as many",
        "more by the address or a variable",
        "as many by a variable",
        "not given",
        "a function of the program",
    ],
)
def test_a_group_of_more_ranks_than_the_job_has_is_told(  # noqa: PLR0917
    size: int, file: str, read: int, reader: str, told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "4")  # As the program may have set it.
    seen: list[dict[str, Any]] = []

    def wait() -> None:
        thread = threading.Thread(target=lambda: seen.extend(answering._ranks_expected("2")))
        thread.start()
        thread.join()

    torch: dict[str, Any] = {"wait": wait, "read": read}
    exec(compile("def rendezvous():\n world_size = read\n wait()", reader, "exec"), torch)
    exec(compile("def init_process_group(world_size):\n rendezvous()", file, "exec"), torch)
    torch["init_process_group"](size)
    assert [part["expects"] for part in seen] == told


def test_the_exception_that_ended_a_thread_is_printed_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answering, "_fallen", [])
    printed: list[threading.ExceptHookArgs] = []
    monkeypatch.setattr(threading, "excepthook", partial(answering._note, printed.append))
    thread = threading.Thread(target=[].pop, name="feed")
    thread.start()
    thread.join()
    assert [args.exc_type for args in printed] == [IndexError]
    assert [*_exceptions_told()] == [{"fallen": "its thread feed has ended with IndexError: pop from empty list"}]


def test_a_thread_that_leaves_has_not_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answering, "_fallen", [])
    monkeypatch.setattr(threading, "excepthook", partial(answering._note, lambda _: None))
    thread = threading.Thread(target=sys.exit)
    thread.start()
    thread.join()
    assert [*_exceptions_told()] == []


def test_an_exception_that_cannot_say_what_it_is_is_told_nevertheless(monkeypatch: pytest.MonkeyPatch) -> None:
    class Mute(Exception):  # noqa: N818
        def __str__(self) -> str:
            raise KeyError

    def fail() -> NoReturn:
        raise Mute

    monkeypatch.setattr(answering, "_fallen", [])
    printed: list[threading.ExceptHookArgs] = []
    monkeypatch.setattr(threading, "excepthook", partial(answering._note, printed.append))
    thread = threading.Thread(target=fail, name="feed")
    thread.start()
    thread.join()
    assert len(printed) == 1
    assert [told["fallen"].partition(" (")[0] for told in _exceptions_told()] == [
        "its thread feed has ended with Mute: <exception str() failed>"
    ]


@pytest.fixture
def asks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[[bytes], list[dict[str, Any]]]]:
    """Asks this process, which has made itself answer; returns what it tells."""
    monkeypatch.setenv("DDPJOB_HEARTBEAT", str(tmp_path / "0"))
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    (tmp_path / "0.ask").touch()  # Of a former process.
    (tmp_path / "0.stack").write_text("of a former process")
    answering.install()
    told = tmp_path / "0.told"

    def ask(question: bytes) -> list[dict[str, Any]]:
        assert write_to(tmp_path / "0.ask", question)
        wait_for("an answer", lambda: told.exists() and told.read_text().endswith(f"{json.dumps(END)}\n"))
        lines = [json.loads(line) for line in told.read_text().splitlines()]
        told.unlink()
        return lines

    yield ask
    assert answering.SIGNAL is not None
    answering.faulthandler.unregister(answering.SIGNAL)


@pytest.mark.skipif(answering.SIGNAL is None, reason="only Linux has real-time signals")
def test_a_process_answers_whenever_it_is_asked_and_shows_its_stacks(
    asks: Callable[[bytes], list[dict[str, Any]]], tmp_path: Path
) -> None:
    assert asks(answering.QUESTION)[-1] == END
    assert (tmp_path / "0.stack").read_text() == ""
    assert asks(answering.STACKS_TOO)[-1] == END
    assert f'File "{__file__}"' in (tmp_path / "0.stack").read_text()
    before = len((tmp_path / "0.stack").read_text())
    assert answering.SIGNAL is not None
    signal.raise_signal(answering.SIGNAL)
    shown = (tmp_path / "0.stack").read_text()[before:]
    assert f'File "{__file__}"' in shown
    assert "_answer" in shown, "all threads"
    assert (tmp_path / "0.ask").stat().st_mode & 0o777 == 0o600
    assert all(thread.daemon for thread in threading.enumerate() if thread.name == "answering")
    ends = threading.Thread(target=lambda: {}["key"], name="reader")
    ends.start()
    ends.join()
    assert any("its thread reader has ended with KeyError" in part.get("fallen", "") for part in asks(b"?"))


def test_without_a_supervisor_nobody_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DDPJOB_HEARTBEAT", raising=False)
    hook = threading.excepthook
    answering.install()
    assert threading.excepthook is hook
