"""The values of a state in a form that is read back without running code from the file.

torch.load(weights_only=True) reads tensors, numbers, strings, and lists, tuples, sets and dicts of them. Optimizers
and schedules of users also hold values such as a numpy number or a datetime, whose meaning is just as plain. Each of
these becomes a dict with its type's name under TAG, and is read back as the type that it had. All other objects are
refused, because only code could restore them.
"""

from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

TAG = "ddpjob.type"
"""A dict with this key stands for a value that is not plain; under the key is the name of the value's type."""

DEEPEST = 100
"""How deep containers may be nested. A container that holds itself would otherwise be followed for ever."""

SHOWN = 12
"""The largest number of keys that an error shows of the path to a value."""

ATOMS = frozenset({bool, bytearray, bytes, complex, float, int, str, type(None)})
READ_BY_TORCH = ATOMS | {torch.Size, torch.device, torch.dtype}
SEQUENCES = frozenset({list, tuple})
MAPPINGS = frozenset({dict, OrderedDict, Counter})

FACTORIES: Mapping[str, type] = {
    factory.__name__: factory for factory in (bool, dict, float, int, list, set, str, tuple)
}
"""What a defaultdict may call for a missing key."""

KINDS_OF_NUMBERS = "biufcMmUS"
"""The kinds of numpy's dtypes whose bytes are the whole value: neither Python objects nor structures."""


class NotPlainError(Exception):
    """A value has no plain form. The text says where it is and which type it has: `['a'][0] is of type x.Lock`."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self._problem = problem
        self.keys: list[object] = []
        """The keys and indices that lead to the value, the innermost first."""

    def __str__(self) -> str:
        keys = [f"[{key!r:.40}]" for key in reversed(self.keys)]
        return "".join(keys if len(keys) <= SHOWN else [*keys[: SHOWN - 1], "[…]"]) + self._problem


@dataclass(frozen=True, slots=True)
class Sharded:
    """Takes the place of a tensor that is not in the state itself, but in the files of a sharded state."""

    name: str


class HeldState(dict[Any, Any]):
    """The part of a dict that this rank has. The whole dict consists of the parts of all ranks."""


class UnknownFormError(Exception):
    """A value was written by a newer version of this program, or is damaged."""


def plain(value: Any) -> Any:
    """The value in its plain form: the value itself, not a copy, if it is plain already.

    Tensors, and the numbers of numpy arrays, are not copied.

    Raises:
        NotPlainError: The value, or a value in it, has no plain form.
    """
    return _plain(value, DEEPEST)


def restored(value: Any) -> Any:
    """The value whose plain form is given. Containers without special values in them are not copied.

    Raises:
        UnknownFormError: A form in it is unknown or damaged.
    """
    kind = type(value)
    if kind in SEQUENCES:
        return with_items(value, [restored(item) for item in value])
    if kind not in MAPPINGS:
        return value
    if TAG not in value:
        return with_values(value, {key: restored(item) for key, item in value.items()})
    name = value[TAG]
    if not isinstance(name, str) or name not in FORMS:
        raise UnknownFormError(f"it holds a value of type {name!r}, which this version does not know")
    try:
        return FORMS[name].read(restored(value["value"]))
    except UnknownFormError:
        raise
    except Exception as error:
        raise UnknownFormError(f"a value of type {name} in it is damaged ({error})") from error


def _plain(value: Any, depth: int) -> Any:
    kind = type(value)
    if kind in READ_BY_TORCH or isinstance(value, Tensor):
        return value
    if depth == 0:
        raise NotPlainError(f" is nested more than {DEEPEST} levels deep, or contains itself")
    if kind in SEQUENCES:
        return with_items(value, _each(enumerate(value), depth))
    if kind in MAPPINGS and TAG not in value and all(type(key) in ATOMS for key in value):
        return with_values(value, dict(zip(value, _each(value.items(), depth), strict=True)))
    if kind is set and all(type(item) in ATOMS for item in value):
        return value
    name = "numpy.generic" if isinstance(value, np.generic) else NAMES.get(kind)
    if name is None:
        raise NotPlainError(f" is of type {kind.__module__}.{kind.__qualname__}")
    return {TAG: name, "value": _plain(FORMS[name].write(value), depth - 1)}


def _each(items: Iterable[tuple[object, Any]], depth: int) -> list[Any]:
    forms = []
    for key, item in items:
        try:
            forms.append(_plain(item, depth - 1))
        except NotPlainError as error:
            error.keys.append(key)
            raise
    return forms


def with_items(sequence: Any, items: list[Any]) -> Any:
    """A list or tuple like `sequence` with these items; `sequence` itself if these are its items."""
    return sequence if all(map(_same, sequence, items)) else type(sequence)(items)


def with_values(mapping: Any, items: dict[Any, Any]) -> Any:
    """A copy of `mapping` with these values for its keys; `mapping` itself if these are its values."""
    if all(map(_same, mapping.values(), items.values())):
        return mapping
    changed = copy(mapping)  # Keeps attributes, such as `_metadata` of a module's state.
    dict.update(changed, items)  # Counter.update would add the numbers.
    return changed


def _same(left: object, right: object) -> bool:
    return left is right


def _numbers(value: np.ndarray | np.generic) -> str:
    """The name of the dtype of an array or a number.

    Raises:
        NotPlainError: The values are not plain numbers or strings.
    """
    if value.dtype.kind not in KINDS_OF_NUMBERS:
        raise NotPlainError(f" is a numpy array of {value.dtype}")
    return value.dtype.str


def _dtype(name: str) -> np.dtype[Any]:
    dtype = np.dtype(name)
    if dtype.kind not in KINDS_OF_NUMBERS:
        raise UnknownFormError(f"it holds numpy values of {name}")
    return dtype


def _array(form: Mapping[str, Any]) -> Any:
    numbers = form["bytes"].clone().numpy().view(_dtype(form["dtype"]))
    return numbers.reshape(tuple(form["shape"]))


def _defaultdict(form: Mapping[str, Any]) -> Any:
    factory = form["factory"]
    return defaultdict(None if factory is None else FACTORIES[factory], form["items"])


def _factory(value: defaultdict[Any, Any]) -> str | None:
    factory = value.default_factory
    if factory is None:
        return None
    name = getattr(factory, "__name__", "")
    if FACTORIES.get(name) is not factory:
        raise NotPlainError(f" is a defaultdict whose default_factory is {factory!r:.60}")
    return name


@dataclass(frozen=True, slots=True)
class _Form:
    """How values of one type are written and read."""

    write: Callable[[Any], Any]
    """Turns the value into one that `_plain` can write."""
    read: Callable[[Any], Any]


def _pairs(value: Mapping[Any, Any]) -> list[Any]:
    return [[key, item] for key, item in value.items()]


FORMS: Mapping[str, _Form] = {
    # Mappings with keys that are not plain, or with TAG as a key.
    **{kind.__name__: _Form(_pairs, kind) for kind in (dict, OrderedDict)},
    "Counter": _Form(_pairs, lambda pairs: Counter(dict(pairs))),
    "defaultdict": _Form(lambda value: {"factory": _factory(value), "items": _pairs(value)}, _defaultdict),
    "deque": _Form(
        lambda value: {"items": list(value), "maxlen": value.maxlen},
        lambda form: deque(form["items"], form["maxlen"]),
    ),
    "set": _Form(list, set),
    "frozenset": _Form(list, frozenset),
    "range": _Form(lambda value: [value.start, value.stop, value.step], lambda form: range(*form)),
    "datetime": _Form(datetime.isoformat, datetime.fromisoformat),
    "date": _Form(date.isoformat, date.fromisoformat),
    "time": _Form(time.isoformat, time.fromisoformat),
    "timedelta": _Form(lambda value: [value.days, value.seconds, value.microseconds], lambda form: timedelta(*form)),
    "Decimal": _Form(str, Decimal),
    "Path": _Form(str, Path),
    "sharded": _Form(lambda value: value.name, Sharded),
    "numpy.generic": _Form(
        lambda value: {"dtype": _numbers(value), "bytes": value.tobytes()},
        lambda form: np.ndarray((), _dtype(form["dtype"]), form["bytes"])[()],
    ),
    "numpy.ndarray": _Form(
        lambda value: {
            "dtype": _numbers(value),
            "shape": list(value.shape),
            "bytes": torch.from_numpy(np.require(value, requirements=("C", "W")).reshape(-1).view(np.uint8)),
        },
        _array,
    ),
}

NAMES: Mapping[type, str] = {
    **{kind: kind.__name__ for kind in (dict, OrderedDict, Counter, defaultdict, deque, set, frozenset, range)},
    **{kind: kind.__name__ for kind in (datetime, date, time, timedelta, Decimal)},
    **dict.fromkeys((Path, type(Path())), "Path"),
    np.ndarray: "numpy.ndarray",
    HeldState: "dict",
    Sharded: "sharded",
}
"""For each type, the name of its form in FORMS."""
