"""Encodes values as bytes: tensors, numbers, strings, and tuples, lists and dicts of these. Decoding runs no code.

    size of the JSON, in 8 bytes | JSON | the tensors' elements, in the order in which the JSON names the tensors

JSON has no tensors, no tuples, and only strings as keys. Therefore each tensor, tuple or dict becomes a JSON object
with one key, the name of its kind. So do bytes, and the arrays and numbers of NumPy.
"""

import json
import math
from typing import Any

import numpy as np
import torch
from ddpjob_rank.console import with_article
from torch import Tensor

SIZE_BYTES = 8
KINDS_OF_NUMBERS = "biufc"
"""The kinds of NumPy's dtypes that are encoded: truth values and numbers."""
DTYPES = {str(dtype): dtype for dtype in vars(torch).values() if isinstance(dtype, torch.dtype)}


def encode(value: object) -> bytes:
    """Encodes a value as bytes.

    Raises:
        TypeError: The type of the value, or of a value in it, is not supported.
    """
    tensors: list[Tensor] = []
    text = json.dumps(_to_json(value, tensors)).encode()
    return b"".join((len(text).to_bytes(SIZE_BYTES, "big"), text, *map(_numbers, tensors)))


def decode(content: bytes) -> Any:
    """Decodes a value.

    Raises:
        ValueError: These bytes are not an encoded value.
    """
    end = SIZE_BYTES + int.from_bytes(content[:SIZE_BYTES], "big")
    rest = _Rest(content, end)
    try:
        return _from_json(json.loads(content[SIZE_BYTES:end]), rest)
    except (LookupError, TypeError, AttributeError, RuntimeError, RecursionError) as error:
        raise ValueError(f"not a valid value from a process: {error}") from error


def _to_json(value: object, tensors: list[Tensor]) -> object:  # noqa: PLR0911  (a table)
    match value:
        case Tensor():
            tensors.append(value)
            return {"tensor": [str(value.dtype), list(value.shape)]}
        case bytes():
            tensors.append(torch.frombuffer(bytearray(value), dtype=torch.uint8) if value else torch.empty(0))
            return {"bytes": len(value)}
        case np.ndarray() | np.generic() if value.dtype.kind in KINDS_OF_NUMBERS:
            numbers = np.ascontiguousarray(value).reshape(-1).view(np.uint8)
            tensors.append(torch.from_numpy(numbers.copy()))
            return {"array": [value.dtype.str, list(value.shape), isinstance(value, np.generic)]}
        case tuple():
            return {"tuple": [_to_json(item, tensors) for item in value]}
        case dict():
            return {"dict": [[_to_json(key, tensors), _to_json(item, tensors)] for key, item in value.items()]}
        case list():
            return [_to_json(item, tensors) for item in value]
        case None | bool() | int() | float() | str():
            return value
        case _:
            raise TypeError(f"{with_article(type(value).__name__)} cannot be sent to another process")


def _numbers(tensor: Tensor) -> bytes:
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


class _Rest:
    """The elements of those tensors that have not been decoded yet, as bytes."""

    def __init__(self, content: bytes, start: int) -> None:
        self._content = content
        self._start = start

    def take(self, dtype: torch.dtype, shape: list[int]) -> Tensor:
        """Decodes the next tensor, of this type and shape."""
        end = self._start + math.prod(shape) * dtype.itemsize
        numbers, self._start = bytearray(self._content[self._start : end]), end
        flat = torch.frombuffer(numbers, dtype=dtype) if numbers else torch.empty(0, dtype=dtype)
        return flat.reshape(shape)


def _from_json(encoded: Any, rest: _Rest) -> Any:  # noqa: PLR0911  (as above)
    if isinstance(encoded, list):
        return [_from_json(item, rest) for item in encoded]
    if not isinstance(encoded, dict):
        return encoded
    ((kind, content),) = encoded.items()
    match kind:
        case "tensor":
            return rest.take(DTYPES[content[0]], content[1])
        case "bytes":
            return rest.take(torch.uint8, [content]).numpy().tobytes()
        case "array":
            name, shape, single = content
            dtype = np.dtype(name)
            if dtype.kind not in KINDS_OF_NUMBERS:
                raise KeyError(name)
            numbers = rest.take(torch.uint8, [math.prod(shape) * dtype.itemsize]).numpy().view(dtype).reshape(shape)
            return numbers[()] if single else numbers
        case "tuple":
            return tuple(_from_json(item, rest) for item in content)
        case "dict":
            return {_from_json(key, rest): _from_json(item, rest) for key, item in content}
    raise KeyError(kind)
