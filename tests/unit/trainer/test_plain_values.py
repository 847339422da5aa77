"""Values that torch does not read back without running code are written in a plain form, or refused by name."""

import io
import random
import threading
from collections import Counter, OrderedDict, defaultdict, deque
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from ddpjob.checkpoint.plain_values import DEEPEST, TAG, NotPlainError, UnknownFormError, plain, restored


def through_a_file(value: Any) -> Any:
    """What a run that resumes gets."""
    file = io.BytesIO()
    torch.save({"state": plain(value)}, file)
    file.seek(0)
    return restored(torch.load(file, weights_only=True)["state"])


def same(left: Any, right: Any) -> bool:
    """Whether two values are equal and have the same types, at all depths."""
    if type(left) is not type(right):
        return False
    if isinstance(left, torch.Tensor):
        return left.dtype == right.dtype and torch.equal(left, right)
    if isinstance(left, np.ndarray):
        return left.dtype == right.dtype and left.shape == right.shape and left.tobytes() == right.tobytes()
    if isinstance(left, dict):
        return list(left) == list(right) and all(same(left[key], right[key]) for key in left)
    if isinstance(left, (list, tuple, deque)):
        return len(left) == len(right) and all(map(same, left, right))
    return bool(left == right)


VALUES = (
    [np.float32(0.1), np.int64(-3), np.bool_(True), np.str_("ä"), np.complex64(1j)],
    [np.datetime64("2026-11-29T16:00:00", "ns"), np.timedelta64(3, "s"), np.float64("-inf")],
    np.arange(6, dtype=">i2").reshape(2, 3).T,
    [np.zeros((0, 3)), np.array(2.5), np.array(["a", "bcd"]), np.array([b"x"]), np.zeros(2, dtype=bool)],
    {"when": datetime(2026, 11, 29, 16, 0, 1, 2, tzinfo=UTC), "day": date(2026, 2, 28), "at": time(1, 2, 3)},
    (timedelta(days=-1, microseconds=5), Decimal("0.10"), Path("/a/b"), Path("c")),
    [deque([1, np.int8(2)], maxlen=3), deque(), frozenset({1, "a"}), range(5, 0, -2)],
    [defaultdict(list, {"a": [np.float16(1)]}), defaultdict(None, {1: 2}), defaultdict(int)],
    {np.int64(3): "a key of numpy", (1, 2): "a tuple", 4: 5},
    {TAG: "a program's own key of this name", "value": [1]},
    OrderedDict([("b", np.float32(1)), ("a", deque([2]))]),
    Counter({"x": np.int32(2), "y": 1}),
    {np.int64(3), 4},
    {1, "a", None, 2.5},
    [torch.zeros(2), torch.Size([1, 2]), torch.float16, torch.device("cpu"), 10**40, 1j, b"b", bytearray(b"c"), None],
)


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_a_value_comes_back_as_what_it_was(value: Any) -> None:
    assert same(through_a_file(value), value)


def test_whatever_is_nested_in_whatever_else_comes_back() -> None:
    leaves = [item for value in VALUES for item in (value if isinstance(value, (list, tuple)) else [value])]
    for _ in range(200):
        value: Any = random.choice(leaves)
        for _ in range(random.randrange(6)):
            other = random.choice(leaves)
            value = random.choice(
                (
                    [value, other],
                    (other, value),
                    {"a": value, 1: other},
                    OrderedDict(x=value),
                    deque([value], maxlen=2),
                    defaultdict(dict, {0: value}),
                    {TAG: value},
                )
            )
        assert same(through_a_file(value), value), value


def test_a_state_that_is_plain_is_not_copied() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))
    state = {"model": model.state_dict(), "optimizer": torch.optim.Adam(model.parameters()).state_dict()}
    assert plain(state) is state
    assert restored(state) is state


def test_a_changed_state_of_a_module_keeps_what_torch_notes_with_it() -> None:
    state = torch.nn.BatchNorm1d(2).state_dict()
    state["extra"] = np.float32(1)
    assert plain(state)._metadata is state._metadata  # type: ignore[attr-defined]
    assert type(state["extra"]) is np.float32, "the program's own state is left as it is"


class Colour(Enum):
    """As programs have them."""

    RED = 1


class Pair(NamedTuple):
    """As programs have them."""

    left: int


class Text(str):
    """As programs have them."""

    __slots__ = ()


LOOP: list[Any] = []
LOOP.append(LOOP)
DEEP: Any = 0
for _ in range(DEEPEST + 1):
    DEEP = {"a": DEEP}


@pytest.mark.parametrize(
    ("value", "named"),
    [
        (
            {"groups": [{"colour": Colour.RED}]},
            "['groups'][0]['colour'] is of type tests.unit.trainer.test_plain_values.Colour",
        ),
        ([Pair(1)], "[0] is of type tests.unit.trainer.test_plain_values.Pair"),
        ({"a": Text("b")}, "['a'] is of type tests.unit.trainer.test_plain_values.Text"),
        ({"lock": threading.Lock()}, "['lock'] is of type _thread.lock"),
        (deque([{1: len}]), "['items'][0][1] is of type builtins.builtin_function_or_method"),
        ({"by": defaultdict(lambda: 0)}, "['by'] is a defaultdict whose default_factory is <function <lambda>"),
        (np.array([object()]), " is a numpy array of object"),
        ([np.zeros(1, dtype="i4,f4")], "[0] is a numpy array of [('f0', '<i4'), ('f1', '<f4')]"),
        (LOOP, "[0][…] is nested more than 100 levels deep, or contains itself"),
        (DEEP, "['a'][…] is nested more than 100 levels deep, or contains itself"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_only_code_could_restore_is_refused_with_its_place_and_type(value: Any, named: str) -> None:
    with pytest.raises(NotPlainError) as refused:
        plain(value)
    assert named in str(refused.value)


@pytest.mark.parametrize(
    "form",
    [
        {TAG: "of tomorrow", "value": 1},
        {TAG: ["dict"], "value": 1},
        {TAG: "deque"},
        {TAG: "deque", "value": 3},
        {TAG: "defaultdict", "value": {"factory": "eval", "items": []}},
        {TAG: "numpy.generic", "value": {"dtype": "O", "bytes": b"12345678"}},
        {TAG: "numpy.generic", "value": {"dtype": "<f4", "bytes": b"1"}},
        {TAG: "numpy.ndarray", "value": {"dtype": "O", "shape": [1], "bytes": torch.zeros(8, dtype=torch.uint8)}},
        {TAG: "numpy.ndarray", "value": {"dtype": "<f4", "shape": [9], "bytes": torch.zeros(8, dtype=torch.uint8)}},
        {TAG: "set", "value": [[]]},
    ],
    ids=str,
)
def test_a_form_that_is_unknown_or_damaged_is_told_and_runs_nothing(form: Any) -> None:
    with pytest.raises(UnknownFormError):
        restored({"a": [form]})
