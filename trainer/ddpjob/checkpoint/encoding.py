"""Encodes the state of a training run as bytes, and decodes it without running code from it.

    {"shared": {"model": …, "optimizer": …}, "ranks": [{"random": …}, …], "position": (step, epoch, samples)}

`shared` has the state that is the same on all ranks, by the names of its objects; `ranks` has each rank's own state.
Format 1 had the objects' names at the top level, and, for each name in the ranks' own states, a list by rank.
"""

import io
import pickle
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import zip_longest
from pathlib import Path
from typing import IO, Any, cast

import torch
from ddpjob_rank.errors import ConfigError

from .content import Sink
from .plain_values import restored

StateDict = dict[str, Any]

SHARED, RANKS, TENSORS = "shared", "ranks", "tensors"
"""Keys of a state. Sharded state also has TENSORS: the places of the tensors that are not in it, but in files of
their own."""

PLAIN = (
    "A checkpoint can hold tensors, numbers, strings, numpy arrays, dates, paths, and lists, dicts and sets of them. "
    "To restore an object of another class, code from the checkpoint would have to run: have state_dict() return "
    "only values of the types listed here"
)


def encode(state: StateDict, file: Sink) -> None:
    """Writes a state, in its plain form, as bytes."""
    torch.save(state, cast("IO[bytes]", file))


def decode(file: Path) -> StateDict:
    """Decodes a state without running code from it (weights_only). Its tensors are read from the file when used."""
    state: StateDict = restored(torch.load(file, map_location="cpu", mmap=True, weights_only=True))
    return state if SHARED in state else _from_format_1(state)


def _from_format_1(state: StateDict) -> StateDict:
    own = {name: state.get(name) or [] for name in ("random", "compression")}
    return {
        SHARED: {name: value for name, value in state.items() if name not in own and name != "position"},
        RANKS: [dict(zip(own, each, strict=True)) for each in zip_longest(*own.values())],
        "position": state["position"],
    }


def to_bytes(state: StateDict) -> bytes:
    """A small state, in its plain form, as bytes. `group.values` cannot encode all plain forms."""
    content = io.BytesIO()
    encode(state, content)
    return content.getvalue()


def from_bytes(content: bytes) -> StateDict:
    """The plain form of the state that `to_bytes` has encoded. Runs no code from it."""
    form: StateDict = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    return form


def check_loadable(file: Path) -> None:
    """Checks that an encoded state can be decoded, so that an error is found now and not when a run resumes.

    The numbers in the tensors are not read.

    Raises:
        ConfigError: The state contains something other than tensors and plain values.
    """
    with _refusing_code():
        decode(file)


def check_encodable(state: StateDict) -> None:
    """Like `check_loadable`, for a state that is not encoded yet. Replaces its tensors by empty tensors.

    Raises:
        ConfigError: The state contains something other than tensors and plain values.
    """
    encoded = to_bytes(_without_numbers(state))
    with _refusing_code():
        from_bytes(encoded)


def _without_numbers(value: Any) -> Any:
    """A copy of a state without the numbers in its tensors."""
    if isinstance(value, torch.Tensor):
        return torch.empty(0, dtype=value.dtype)
    if type(value) in {dict, OrderedDict}:
        return {key: _without_numbers(item) for key, item in value.items()}
    if type(value) in {list, tuple}:
        return type(value)(_without_numbers(item) for item in value)
    return value


@contextmanager
def _refusing_code() -> Iterator[None]:
    try:
        yield
    except pickle.UnpicklingError as error:
        raise ConfigError(
            f"the state of the model, the optimizer or the scheduler cannot be saved ({first_lines(error)}). {PLAIN}"
        ) from error


def first_lines(error: Exception) -> str:
    """The first two lines of an error's message, as one line."""
    return " ".join(line.strip() for line in str(error).splitlines()[:2])
