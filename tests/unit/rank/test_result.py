"""`ddpjob.set_result`, and what of Python's values it turns into JSON."""

import datetime as dt
import json
import math
from collections import OrderedDict
from enum import Enum, IntEnum, StrEnum
from pathlib import Path, PurePosixPath
from types import SimpleNamespace
from typing import Any, NamedTuple

import ddpjob
import pytest
from ddpjob_operator.api import BadInputError
from ddpjob_operator.api.status import MAX_RESULT
from ddpjob_operator.sdk import json_values
from ddpjob_rank.reporting import result
from ddpjob_rank.reporting.result import LARGEST_BYTES, STATUS_BYTES, held_mark, json_of, left_result, result_file
from hypothesis import given
from hypothesis import strategies as st


class Point(NamedTuple):
    x: int
    y: int


class Colour(StrEnum):
    RED = "red"


class Mode(str, Enum):  # noqa: UP042  (many programs have such)
    TRAIN = "train"


class Number(IntEnum):
    ONE = 1


def scalar(value: Any, kind: str = "f") -> Any:
    """What a scalar of NumPy looks like."""
    return SimpleNamespace(dtype=SimpleNamespace(kind=kind), size=1, item=lambda: value)


def tensor(value: Any, *shape: int) -> Any:
    """What a tensor looks like."""
    return SimpleNamespace(
        dtype="float32", size=lambda: shape, numel=lambda: math.prod(shape), item=lambda: value, tolist=list
    )


BECOMES: list[tuple[Any, Any]] = [
    ((1, (2.5, None)), [1, [2.5, None]]),
    (Point(1, 2), [1, 2]),
    (OrderedDict(a=True), {"a": True}),
    (PurePosixPath("/data/x"), "/data/x"),
    (dt.date(2026, 1, 2), "2026-01-02"),
    (dt.datetime(2026, 1, 2, 3, tzinfo=dt.UTC), "2026-01-02T03:00:00+00:00"),
    (dt.time(3, 4), "03:04:00"),
    ([Colour.RED, Number.ONE], ["red", 1]),
    ({Colour.RED: 1}, {"red": 1}),
    ({Mode.TRAIN: Mode.TRAIN}, {"train": "train"}),
    (scalar(0.5), 0.5),
    (scalar(scalar(3)), 3),
    ({"loss": tensor(0.5)}, {"loss": 0.5}),
    ({"loss": tensor(0.5, 1)}, {"loss": 0.5}),
    (tensor(0.5, 1, 1), 0.5),
    (2**1000, 2**1000),
]
REFUSED: list[tuple[Any, str]] = [
    (object(), "result is of type object, which is not JSON"),
    ({"a": [1, {2}]}, "result['a'][1] is of type set"),
    ({"net": json.JSONDecoder()}, "result['net'] is of type json.decoder.JSONDecoder"),
    ({1: 2}, "result has the key 1, but JSON has only strings as keys"),
    ([float("nan")], "result[0] is nan"),
    (scalar(float("inf")), "result is inf"),
    (b"bytes", "result is of type bytes"),
    (1 + 2j, "result is of type complex"),
    ("\ud800", "result is a string that UTF-8 cannot hold"),
    ({"\ud800": 1}, "a key of result is a string that UTF-8 cannot hold"),
    (1 << 2000, "result is a whole number of more than 1024 bits"),
    (tensor(0.5, 2), "of an array or a tensor: .tolist()"),
    (tensor(0.5, 0), "of an array or a tensor: .tolist()"),
    (SimpleNamespace(dtype=1, size=2, tolist=list), "of an array or a tensor: .tolist()"),
]
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.dates() | st.binary(max_size=3),
    lambda part: st.lists(part, max_size=4) | st.dictionaries(st.text() | st.integers(), part, max_size=4),
    max_leaves=12,
)


@pytest.mark.parametrize(("value", "expected"), BECOMES, ids=str)
def test_what_stands_for_a_number_a_text_or_a_list_becomes_one(value: Any, expected: Any) -> None:
    assert json.loads(json_of(value)) == expected
    assert json_values.plain(value, "arguments") == expected


@pytest.mark.parametrize(("value", "sentence"), REFUSED, ids=lambda value: type(value).__name__)
def test_what_json_cannot_hold_is_refused_and_its_place_named(value: Any, sentence: str) -> None:
    with pytest.raises(ddpjob.ConfigError) as refused:
        json_of(value)
    assert sentence in str(refused.value)
    with pytest.raises(BadInputError) as as_argument:
        json_values.plain(value, "result")
    assert str(as_argument.value) == str(refused.value).replace("return ", "pass ")


@given(VALUES)
def test_arguments_and_results_are_converted_alike_and_what_is_json_stays(value: Any) -> None:
    def outcome(convert: Any) -> Any:
        try:
            return convert()
        except (BadInputError, ddpjob.ConfigError):
            return "refused"

    of_result = outcome(lambda: json.loads(json_of(value)))
    assert of_result == outcome(lambda: json_values.plain(value, "result"))
    if of_result != "refused":
        assert json.loads(json_of(of_result)) == of_result


def test_a_value_that_contains_itself_is_refused() -> None:
    value: list[Any] = []
    value.append(value)
    with pytest.raises(ddpjob.ConfigError, match="does it contain itself"):
        json_of(value)


@pytest.fixture
def heartbeat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "0"
    for name, value in {"DDPJOB_HEARTBEAT": str(file), "DDPJOB_ATTEMPT": "3", "RANK": "0"}.items():
        monkeypatch.setenv(name, value)
    for name in ("DDPJOB_HISTORY", "DDPJOB_RUN_DIR"):
        monkeypatch.delenv(name, raising=False)
    return file


def test_rank_0_leaves_the_last_result_of_its_attempt(heartbeat: Path) -> None:
    ddpjob.set_result({"accuracy": 0.5})
    ddpjob.set_result({"accuracy": 0.9})
    assert json.loads(result_file(heartbeat, 3).read_text(encoding="utf-8")) == {"accuracy": 0.9}
    assert [file.name for file in heartbeat.parent.iterdir()] == ["0.result-3"]


def test_the_value_of_another_rank_does_not_count(heartbeat: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    ddpjob.set_result(object())
    assert not [*heartbeat.parent.iterdir()]


def test_without_a_supervisor_a_result_is_only_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DDPJOB_HEARTBEAT", raising=False)
    ddpjob.set_result("x" * STATUS_BYTES)
    with pytest.raises(ddpjob.ConfigError):
        ddpjob.set_result(object())


def test_on_held_nodes_a_result_may_be_large_without_a_history(heartbeat: Path) -> None:
    held_mark(heartbeat).touch()
    ddpjob.set_result("x" * STATUS_BYTES)
    assert left_result(heartbeat, 3) == ("x" * STATUS_BYTES, STATUS_BYTES + 2)
    assert left_result(heartbeat, 2) is None
    with pytest.raises(ddpjob.ConfigError):
        ddpjob.set_result(object())


@pytest.mark.parametrize(
    ("variable", "value"), [("DDPJOB_HISTORY", "s3://bucket/history"), ("DDPJOB_RUN_DIR", "/ddpjob-runs/digits")]
)
def test_a_larger_result_needs_a_history_or_the_directory_of_a_run(
    heartbeat: Path, variable: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ddpjob.set_result("x" * (STATUS_BYTES - 2))
    with pytest.raises(ddpjob.ConfigError, match=r"2049 bytes of JSON.*give the job a history"):
        ddpjob.set_result("x" * (STATUS_BYTES - 1))
    monkeypatch.setenv(variable, value)
    ddpjob.set_result("x" * (LARGEST_BYTES - 2))
    with pytest.raises(ddpjob.ConfigError, match=r"at most 1048576 \(1 MiB\)"):
        ddpjob.set_result("x" * (LARGEST_BYTES - 1))
    assert len(result_file(heartbeat, 3).read_bytes()) == LARGEST_BYTES


def test_rank_and_status_agree_on_the_limits() -> None:
    assert STATUS_BYTES == MAX_RESULT
    assert (result.DEEPEST, result.MOST_BITS) == (json_values.DEEPEST, json_values.MOST_BITS)
