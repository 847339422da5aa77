"""Checks calls of the public functions, so that a wrong parameter is an error that says what would be right."""

import difflib
import inspect
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import wraps
from numbers import Integral, Real
from types import FunctionType, NoneType, UnionType
from typing import Any, Literal, ParamSpec, TypeVar, Union, get_args, get_origin, get_type_hints

from ddpjob_operator.api import BadInputError
from ddpjob_operator.api.option_names import as_parameters

P = ParamSpec("P")
R = TypeVar("R")

SHOWN = 64
"""How many characters of a value are shown."""
WORDS = {
    bool: "True or False",
    int: "a whole number",
    float: "a number",
    str: "a string",
    os.PathLike: "a path",
    Mapping: "a mapping, such as {'NAME': 'value'}",
    Sequence: "a list",
}
"""What messages call the types of parameters."""
NUMBERS = {int: Integral, float: Real}
"""What counts as a number of a type; True and False do not."""
UNIONS = frozenset({UnionType, Union})
PER_NODE = ("gpus_per_node", "procs_per_node")
OTHER_NAMES = {
    **dict.fromkeys(("gpus", "gpu", "num_gpus", "ngpus", "n_gpus", "gpus_per_node", "gpu_count"), PER_NODE),
    **dict.fromkeys(("nproc", "nproc_per_node", "nprocs", "processes", "num_processes", "procs"), PER_NODE[1:]),
    **dict.fromkeys(("nnodes", "num_nodes", "workers", "num_workers", "replicas", "machines"), ("nodes",)),
}
"""What other tools call our parameters, with ours, of which the first that a function has is meant."""
OF_PROGRAMS = frozenset({"target", "arguments"})
"""Parameters that are checked later, because a message about them has to name the function."""
OF_FUNCTIONS = OF_PROGRAMS | {"args"}
"""The same, if the target is a function: then `args` is refused with what would be right."""


def public_call(function: Callable[P, R]) -> Callable[P, R]:
    """A function or method whose errors name its own parameters, and not the command's flags.

    If it is called with parameters that it does not have, or with values of other types, it raises BadInputError.
    Scalars of NumPy count as numbers.
    """
    name, signature, hints = f"ddpjob.{function.__qualname__}", inspect.signature(function), get_type_hints(function)

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        with as_parameters():
            _check_names(name, signature, args, kwargs)
            bound = signature.bind(*args, **kwargs)
            later = OF_FUNCTIONS if callable(bound.arguments.get("target")) else OF_PROGRAMS
            for parameter, value in bound.arguments.items():
                if parameter in hints and parameter not in later:
                    _check_type(parameter, value, hints[parameter])
                    _check_text(parameter, value)
                    if isinstance(value, Integral):
                        bound.arguments[parameter] = value if isinstance(value, bool) else int(value)
            return function(*bound.args, **bound.kwargs)

    return call


def shown(value: object) -> str:
    """The beginning of a value's representation; its type, if its class cannot represent it."""
    try:
        return f"{value!r:.{SHOWN}}"
    except Exception:  # noqa: BLE001  (The program may have written __repr__ itself.)
        return f"<{type(value).__qualname__}>"


def close_to(word: str, known: Sequence[str]) -> str:
    """The word among `known` that was probably meant; empty if none is similar."""
    return next(iter(difflib.get_close_matches(word, known, 1)), "")


def _check_names(name: str, signature: inspect.Signature, args: Sequence[Any], named: Mapping[str, Any]) -> None:
    """Checks whether the function of this name and signature can be called so.

    Raises:
        BadInputError: It has no such parameter.
    """
    target = args[0] if args else named.get("target")
    unknown = {key: value for key, value in named.items() if key not in signature.parameters}
    if unknown:
        raise BadInputError(_unknown(name, [*signature.parameters], target, unknown))
    try:
        signature.bind(*args, **named)
    except TypeError as error:
        raise BadInputError(f"{name}: {error}; give options by name, such as nodes=2") from None


def _check_type(parameter: str, value: Any, hint: Any) -> None:
    """Checks whether a value has the type of its parameter.

    Raises:
        BadInputError: It has another type.
    """
    if _fits(value, hint):
        return
    must = f"{parameter}={shown(value)}: must be {_in_words(hint)}"
    words = value.split() if isinstance(value, str) and get_origin(hint) is Sequence else []
    raise BadInputError(f"{must}, such as {shown(words)}" if words else must)


def _check_text(parameter: str, value: Any) -> None:
    """Checks that a value can become arguments, paths and variables of processes.

    Raises:
        BadInputError: It cannot. The message does not show the values of variables, because they may be secret.
    """
    for text in _strings(value):
        if "\0" in text:
            raise BadInputError(f"{parameter} has a null character, which no argument, path or variable can have")
    if isinstance(value, Mapping):
        for variable, content in value.items():
            if "=" in variable or not variable:
                raise BadInputError(f"{parameter}: {shown(variable)} cannot be the name of a variable")
            if content is None:
                raise BadInputError(f"{parameter}: {variable} is None; leave it out, or give it a value")
    if _is_list(value) and any(each is None for each in value):
        raise BadInputError(f"{parameter}={shown(value)}: an element is None; leave it out, or give it a value")


def _strings(value: Any) -> Iterator[str]:
    """The strings in a value of a parameter."""
    if isinstance(value, str | os.PathLike):
        yield os.fsdecode(value)
    elif isinstance(value, Mapping):
        yield from (text for pair in value.items() for each in pair for text in _strings(each))
    elif _is_list(value):
        yield from (text for each in value for text in _strings(each))


def _fits(value: Any, hint: Any) -> bool:
    """Whether a value is of a type. The elements of lists and mappings are looked at, too."""
    origin, inner = get_origin(hint), get_args(hint)
    if hint in {Any, object}:
        return True
    if origin in UNIONS:
        return any(_fits(value, each) for each in inner)
    if origin is Literal:
        return isinstance(value, str) and value in inner
    if origin is Sequence:
        return _is_list(value) and all(_fits(each, inner[0]) for each in value)
    if origin is Mapping:
        return isinstance(value, Mapping) and all(_fits(key, inner[0]) for key in value)
    kind = NUMBERS.get(hint, origin or hint)
    return isinstance(value, kind) and not (hint in NUMBERS and isinstance(value, bool))


def _is_list(value: Any) -> bool:
    """Whether a value has elements in an order. The letters of a string are none."""
    return isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray)


def _in_words(hint: Any) -> str:
    origin, inner = get_origin(hint), get_args(hint)
    if origin in UNIONS:
        return " or ".join(_in_words(each) for each in inner if each is not NoneType)
    if origin is Literal:
        return " or ".join(map(repr, inner))
    return WORDS[origin or hint] + (" of strings" if origin is Sequence and object not in inner else "")


def _unknown(name: str, known: Sequence[str], target: Any, unknown: Mapping[str, Any]) -> str:
    key = next(iter(unknown))
    begin = f"{name} has no parameter {key}"
    of_target = [*inspect.signature(target).parameters] if isinstance(target, FunctionType) else []
    if isinstance(target, FunctionType) and key in of_target:
        given = shown(dict(unknown))
        return f"{begin}; the arguments of {target.__name__} are one mapping: {name}({target.__name__}, {given})"
    meant = (ours for ours in OTHER_NAMES.get(key, ()) if ours in known)
    if guess := next(meant, None) or close_to(key, known):
        return f"{begin}; did you mean {guess}?"
    if guess := close_to(key, of_target):
        given = f"{{{guess!r}: {shown(unknown[key])}}}"
        return f"{begin}; did you mean the argument {guess} of {target.__name__}? {name}({target.__name__}, {given})"
    if isinstance(target, str):
        return f"{begin}; the arguments of a script are a list: {name}({target!r}, args=['--{key}', …])"
    return begin
