"""What supervisors say to each other, as lines."""

import json
import math
import sys
import typing
from types import FrameType
from typing import Any

import pytest
from ddpjob_supervisor.gang.messages import (
    PROTOCOL,
    Announce,
    Beats,
    Begin,
    Bring,
    Challenge,
    Code,
    Elsewhere,
    End,
    Examine,
    Examined,
    Failed,
    Farewell,
    Finish,
    Finished,
    HeldProgram,
    Hello,
    History,
    Idle,
    Incident,
    Installed,
    Leave,
    Leaving,
    Located,
    Look,
    Looked,
    Message,
    Past,
    Ping,
    Refused,
    Start,
    Stop,
    UnreadableError,
    Welcome,
    from_line,
    to_line,
)
from ddpjob_supervisor.watch.beat import Beat, BeatFields
from ddpjob_supervisor.watch.blame import Observation

END = End(3, 137, 1_700_000_000.5, "Application", 'killed by SIGKILL: "\u00fc"\n', "ValueError", 120)
INCIDENT = Incident(2, 1, END, tied=True, consequences=12, consequence_nodes=(0, 2))
PAST = Past((INCIDENT, INCIDENT), 20, (1.5, 2.5), 1, 600.25, 21)
BEAT: BeatFields = {
    "rank": 1,
    "attempt": 4,
    "activity": "training",
    "step": 120,
    "loss": 0.5,
    "seconds": {"data": 0.25},
    "checkpoint": {"step": 100, "time": "2026-11-21T12:00:00.000Z"},
}
OBSERVATION = Observation(1, "S", where="train.py:9", communicates=True, sequences={"0 gloo": 17}, step=5)

MESSAGES: list[Message] = [
    Hello("uid", 1, 2, 3, 29502, "0.1.0", sent=1_700_000_000.25, nonce="c0"),
    Hello("uid", 1, 2, 3, 29502, "0.1.0", domain=""),
    Challenge("ff"),
    Welcome("0.1.0", 1.5, at="10.0.0.1:29502"),
    Refused("another job's", for_good=True),
    Elsewhere("[fd00::1]:29502", 3),
    Announce("uid", 3, ":29502", "c0", "10.0.0.1:40000"),
    History(4, PAST),
    History(0),
    Start(4, 29500, {"0": "10.0.0.1:29502"}, PAST, check=True),
    Start(1, 29500, {}),
    Start(2, 29500, {}, order=(0, 2, 1)),
    Start(2, 29500, {}, program=HeldProgram(("train.py", "--lr", "0.1"), "ab12", "alice", {"A": "b"})),
    Installed(4),
    Begin(4),
    Bring("ab12", 524_288),
    Code("ab12", 524_288, bytes(range(256))),
    Code("ab12", 0, None),
    Stop(4),
    Stop(4, also_told=True),
    Finish(4),
    Examine(4),
    Look(4),
    Leave(INCIDENT),
    Farewell(),
    Failed(4),
    Failed(4, "DeviceFailed", end=END),
    Idle(4, (END, End(0, 0, 1.0)), progressed=True),
    Idle(4),
    Finished(4),
    Leaving(),
    Located("rack-1"),
    Beats(4, (BEAT, BEAT), running=(0, 1)),
    Examined(4, (OBSERVATION,)),
    Looked(4, (OBSERVATION,)),
    Ping(),
]


def test_every_kind_is_tried() -> None:
    assert {type(message) for message in MESSAGES} == set(typing.get_args(Message))


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_a_message_comes_as_it_was_sent_in_one_line(message: Message) -> None:
    line = to_line(message)
    assert from_line(line) == message
    assert line.index(b"\n") == len(line) - 1


def hello(**changes: Any) -> bytes:
    said = json.loads(to_line(MESSAGES[0])) | changes
    return json.dumps({name: value for name, value in said.items() if value is not ...}).encode() + b"\n"


def test_first_words_and_a_refusal_are_what_they_will_always_be() -> None:
    said = {
        Hello("uid", 1, 2, 3, 29502, "0.1.0", sent=0.5, nonce="c0"): (
            '{"kind": "Hello", "uid": "uid", "node": 1, "incarnation": 2, "attempt": 3, "port": 29502,'
            f' "release": "0.1.0", "protocol": {PROTOCOL}, "sent": 0.5, "nonce": "c0"}}'
        ),
        Announce("uid", 3, ":1", "c0"): (
            '{"kind": "Announce", "uid": "uid", "incarnation": 3, "address": ":1", "nonce": "c0"}'
        ),
        Challenge("ff"): '{"kind": "Challenge", "nonce": "ff"}',
        Refused("no", for_good=True): '{"kind": "Refused", "why": "no", "for_good": true}',
    }
    for message, line in said.items():
        said = json.loads(to_line(message)).items()
        assert said >= json.loads(line).items(), "other versions read this, and may only be told more"
        assert from_line(line.replace("}", ', "colour": "red"}').encode()) == message


def test_what_a_newer_version_adds_to_a_beat_or_a_finding_is_left_out() -> None:
    for message in Beats(4, (BEAT,)), Examined(4, (OBSERVATION,)):
        more = to_line(message).replace(b'"rank":1', b'"rank":1,"colour":["red"]')
        assert b"colour" in more
        assert from_line(more) == message


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf, 0.5])
def test_a_loss_that_is_no_number_any_more_arrives_as_what_it_is(number: float) -> None:
    beat = Beat(1, 4, "training", loss=number, metrics={"a": number})
    message = from_line(to_line(Beats(4, (beat.to_dict(),))))
    assert isinstance(message, Beats)
    (told,) = message.beats
    assert [float(told["loss"]), float(told["metrics"]["a"])] == pytest.approx([number] * 2, nan_ok=True)


def test_a_message_that_quotes_what_is_no_text_is_sent_all_the_same() -> None:
    message = from_line(to_line(Idle(4, (End(3, 1, 1.0, "Application", "No such file: '\udcff.jpg'"),))))
    assert isinstance(message, Idle)
    assert message.ends[0].message == "No such file: '?.jpg'"


def test_a_time_may_be_a_whole_number() -> None:
    message = from_line(hello(sent=3))
    assert isinstance(message, Hello)
    assert (message.sent, type(message.sent)) == (3.0, float)


def test_fields_with_a_default_may_be_left_out() -> None:
    message = from_line(hello(sent=...))
    assert isinstance(message, Hello)
    assert message.sent == 0.0


REFUSED: dict[str, bytes] = {
    "nothing": b"\n",
    "no JSON": b"GET / HTTP/1.1\r\n",
    "no text": b"\xff\xfe\x00\n",
    "no object": b"[1]\n",
    "a number": b"1\n",
    "no kind": b"{}\n",
    "an unknown kind": b'{"kind": "Dance"}\n',
    "a kind that is none of the messages": b'{"kind": "End", "rank": 1, "exit_code": 1, "time": 0}\n',
    "a kind that cannot be one": b'{"kind": ["Stop"], "attempt": 1}\n',
    "a field that is missing": hello(node=...),
    "a field too many": b'{"kind": "Stop", "attempt": 1, "colour": "red"}\n',
    "text for a number": hello(node="0"),
    "a fraction for a number": hello(node=0.5),
    "true for a number": hello(node=True),
    "a number for text": hello(uid=1),
    "nothing for text": hello(uid=None),
    "an object for a list": b'{"kind": "Beats", "attempt": 1, "beats": {}}\n',
    "a list of other things": b'{"kind": "Beats", "attempt": 1, "beats": [1]}\n',
    "an observation with text for a step": (
        b'{"kind": "Examined", "attempt": 1, "observations": [{"rank": 0, "step": "5"}]}\n'
    ),
    "an observation with nothing for a list": (
        b'{"kind": "Examined", "attempt": 1, "observations": [{"rank": 0, "sequences": null}]}\n'
    ),
    "bytes that are no text": b'{"kind": "Elsewhere", "address": "\xff"}\n',
    "a number that is none": b'{"kind": "Welcome", "release": "0.1.0", "heard": NaN}\n',
    "a number for a name": b'{"kind": "Start", "attempt": 1, "port": 1, "members": {"0": 1}}\n',
    "a wrong thing inside": b'{"kind": "Leave", "incident": {"attempt": 1, "node": 0, "end": {"rank": 0}}}\n',
    "no thing inside": b'{"kind": "Leave", "incident": null}\n',
    "a beat without a process": b'{"kind": "Beats", "attempt": 1, "beats": [{"attempt": 1, "activity": "x"}]}\n',
    "a beat with text for a step": json.dumps(
        {"kind": "Beats", "attempt": 1, "beats": [{**BEAT, "step": "1"}]}
    ).encode(),
    "depths without end": b"[" * 200_000 + b"\n",
}


@pytest.mark.parametrize("title", REFUSED)
def test_what_is_no_message_is_unreadable(title: str) -> None:
    with pytest.raises(UnreadableError, match="is not a message between supervisors of this version"):
        from_line(REFUSED[title])


def test_only_the_beginning_of_what_is_unreadable_is_quoted() -> None:
    with pytest.raises(UnreadableError) as caught:
        from_line(b"x" * 100_000)
    assert len(str(caught.value)) < 200


def test_to_read_another_beat_takes_no_call_of_python() -> None:
    """Rank 0's supervisor reads each second what all ranks say. Time would depend on who else is on the machine."""
    full: BeatFields = {**BEAT, "seconds": dict.fromkeys("abcde", 0.25), "metrics": {"learning_rate": 0.1}}

    def calls(beats: int) -> int:
        line, counted = to_line(Beats(4, (full,) * beats)), 0

        def count(_frame: FrameType, event: str, _argument: object) -> None:
            nonlocal counted
            counted += event in {"call", "c_call"}

        before = sys.getprofile()
        sys.setprofile(count)
        try:
            from_line(line)
        finally:
            sys.setprofile(before)
        return counted

    assert calls(8) == calls(0) > 0
