"""What arguments and values become on their way to the ranks, and what JSON cannot hold."""

import datetime as dt
import enum
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ddpjob_operator.api import BadInputError
from ddpjob_operator.sdk.json_values import json_of, plain


class Colour(enum.StrEnum):
    RED = "red"


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "made"),
    [
        (None, None),
        (True, True),
        (Colour.RED, "red"),
        ({Colour.RED: (1, 2.5)}, {"red": [1, 2.5]}),
        (Path("a/b"), "a/b"),
        (dt.date(2026, 1, 2), "2026-01-02"),
        (dt.time(3, 4), "03:04:00"),
        (np.float32(0.5), 0.5),
        (np.array([[3]]), 3),
        (np.datetime64("2026-01-02"), "2026-01-02"),
        (2**1024 - 1, 2**1024 - 1),
        (nested(50), nested(50)),
    ],
    ids=lambda value: str(value)[:30],
)
def test_a_value_is_sent_as_json_has_it(value: Any, made: Any) -> None:
    sent = plain(value, "it")
    assert sent == made
    assert type(sent) is type(made)


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (nested(51), "it" + "[0]" * 20 + "[0… is nested more than 50 levels deep"),
        ({"a": 2**1024}, "it['a'] is a whole number of more than 1024 bits"),
        ([0.0, float("nan")], "it[1] is nan, which JSON does not have"),
        (-float("inf"), "it is -inf"),
        ({"a": {1: 2}}, "it['a'] has the key 1, but JSON has only strings as keys"),
        ({"\ud800": 2}, "a key of it is a string that UTF-8 cannot hold"),
        (["\ud800"], "it[0] is a string that UTF-8 cannot hold"),
        (np.array([1, 2]), "it is of type numpy.ndarray, which is not JSON: pass "),
        (np.array([1, 2]), "; of an array or a tensor: .tolist()"),
        ({1, 2}, "it is of type set, which is not JSON"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_what_json_cannot_hold_is_named_by_its_place(value: Any, why: str) -> None:
    with pytest.raises(BadInputError) as refused:
        plain(value, "it")
    assert why in str(refused.value)


def test_as_many_bytes_as_allowed_are_sent_and_none_is_wasted() -> None:
    assert json_of({"a": [1, "ü"]}, "it", 15) == '{"a":[1,"ü"]}'.encode()
    with pytest.raises(BadInputError, match=r"^it: 14 bytes of JSON, but at most 13 bytes can be sent"):
        json_of({"a": [1, "ü"]}, "it", 13)
    assert len(json_of({"a": [1, "ü"]}, "it", 14)) == 14
