"""Values as they go from process to process."""

import pickle
import random
from typing import Any

import numpy as np
import pytest
import torch
from ddpjob import random_state
from ddpjob.group import values

VALUES: dict[str, Any] = {
    "numbers": (0, -1, 2**63, 0.1, float("inf"), True, None),
    "text": "\u00fc \U0001f600",
    "what training tells": (128, {"loss": 0.25, "accuracy": 0.5}),
    "numbers for names": {3: [1, (2, "3")], (1, "a"): {}},
    "names that mean something here": {"tensor": 1, "tuple": [2]},
    "nothing": [(), [], {}],
}


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
def test_a_value_comes_back_as_it_was(value: Any) -> None:
    came = values.decode(values.encode(value))
    assert came == value
    assert repr(came) == repr(value), "also what equals another kind"


@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(12, dtype=torch.float32).reshape(3, 4).T,
        torch.tensor(1.5, dtype=torch.bfloat16),
        torch.empty(0, 3, dtype=torch.int64),
        torch.tensor([True, False]),
        torch.nn.Parameter(torch.ones(2)),
    ],
    ids=["transposed", "a single one", "none", "bool", "a parameter"],
)
def test_tensors_come_back_bit_for_bit(tensor: torch.Tensor) -> None:
    before, came, after = values.decode(values.encode([torch.ones(3), {"it": tensor}, torch.zeros(5)]))
    assert (came["it"].dtype, came["it"].shape) == (tensor.dtype, tensor.shape)
    assert torch.equal(came["it"], tensor.detach())
    assert torch.equal(before, torch.ones(3))
    assert torch.equal(after, torch.zeros(5))


def test_the_state_of_random_generators_can_be_told() -> None:
    random_state.seed_all(7)
    state = values.decode(values.encode(random_state.capture()))
    expected = random.random(), np.random.rand(), torch.rand(1).item()  # noqa: NPY002
    random_state.restore(state)
    assert (random.random(), np.random.rand(), torch.rand(1).item()) == expected  # noqa: NPY002


def test_what_is_no_value_is_refused_where_it_is_told() -> None:
    with pytest.raises(TypeError, match=r"^a set cannot be sent to another process$"):
        values.encode([{1}])


class Trap:
    """Its pickle runs code."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (pytest.fail, ("code was run",))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        pickle.dumps(Trap()),
        (9).to_bytes(8, "big") + b'{"x": []}',
        (30).to_bytes(8, "big") + b'{"tensor": ["torch.int8", [9]]',
        values.encode(torch.ones(4))[:-1],
        (2).to_bytes(8, "big") + b"{}",
        (14).to_bytes(8, "big") + b'{"tensor": []}',
    ],
    ids=["nothing", "a pickle", "another kind", "cut in the JSON", "cut in the numbers", "no kind", "of no type"],
)
def test_bytes_that_are_no_value_run_nothing(content: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  (JSON's own words, or ours)
        values.decode(content)


@pytest.mark.parametrize(
    "value",
    [b"", b"bytes", np.float32(1.5), np.arange(6, dtype=np.uint32).reshape(2, 3).T, np.zeros((0, 3)), np.bool_(True)],
)
def test_bytes_and_what_numpy_has_come_back_as_what_they_were(value: object) -> None:
    before, came, after = values.decode(values.encode([1, {"it": value}, torch.ones(2)]))
    assert (type(came["it"]), before, after.tolist()) == (type(value), 1, [1, 1])
    assert np.array_equal(came["it"], value)
    assert getattr(came["it"], "dtype", None) == getattr(value, "dtype", None)


def test_an_array_of_objects_is_neither_told_nor_read() -> None:
    with pytest.raises(TypeError):
        values.encode(np.array([object()]))
    text = b'{"array": ["|O", [1], false]}'
    with pytest.raises(ValueError, match="not a valid value"):
        values.decode(len(text).to_bytes(8, "big") + text + bytes(8))
