"""Checks calls of the public functions, so that a wrong parameter is an error that says what would be right."""

import difflib
import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
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
    str: "a string",
    os.PathLike: "a path",
    Mapping: "a mapping, such as {'NAME': 'value'}",
    Sequence: "a list",
}
"""What messages call the types of parameters."""
UNIONS = frozenset({UnionType, Union})
OF_PROGRAMS = frozenset({"target", "arguments"})
"""Parameters that are checked later, because a message about them has to name the function."""


def public_call(function: Callable[P, R]) -> Callable[P, R]:
    """A function whose errors name its own parameters, and not the command's flags.

    If it is called with parameters that it does not have, or with values of other types, it raises BadInputError.
    """
    name, signature, hints = f"ddpjob.{function.__name__}", inspect.signature(function), get_type_hints(function)

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        with as_parameters():
            _check_names(name, signature, args, kwargs)
            for parameter, value in signature.bind(*args, **kwargs).arguments.items():
                if parameter not in OF_PROGRAMS:
                    _check_type(parameter, value, hints[parameter])
            return function(*args, **kwargs)

    return call


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
    must = f"{parameter}={value!r:.{SHOWN}}: must be {_in_words(hint)}"
    one = isinstance(value, str) and get_origin(hint) is Sequence
    raise BadInputError(f"{must}; if it has one element: [{value!r:.{SHOWN}}]" if one else must)


def _fits(value: Any, hint: Any) -> bool:
    """Whether a value is of a type. The elements of lists and mappings are looked at, too."""
    origin, inner = get_origin(hint), get_args(hint)
    if hint in {Any, object}:
        return True
    if origin in UNIONS:
        return any(_fits(value, each) for each in inner)
    if origin is Literal:
        return value in inner
    if origin is Sequence:  # The letters of a string are no elements.
        return isinstance(value, Sequence) and not isinstance(value, str) and all(_fits(e, inner[0]) for e in value)
    if origin is Mapping:
        return isinstance(value, Mapping) and all(_fits(key, inner[0]) for key in value)
    return isinstance(value, origin or hint)


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
        given = f"{dict(unknown)!r:.{SHOWN}}"
        return f"{begin}; the arguments of {target.__name__} are one mapping: {name}({target.__name__}, {given})"
    if guess := close_to(key, known):
        return f"{begin}; did you mean {guess}?"
    if guess := close_to(key, of_target):
        given = f"{{{guess!r}: {unknown[key]!r:.{SHOWN}}}}"
        return f"{begin}; did you mean the argument {guess} of {target.__name__}? {name}({target.__name__}, {given})"
    if isinstance(target, str):
        return f"{begin}; the arguments of a script are a list: {name}({target!r}, args=['--{key}', …])"
    return begin
