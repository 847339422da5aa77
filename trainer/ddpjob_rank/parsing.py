"""Reading flags and variables: the kinds of values, and the message about one that is none of them.

Flags are fields of dataclasses (`option`).
"""

import argparse
import json
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import Field, field, fields
from typing import Any, NoReturn, TypeVar

from .environment import Env
from .errors import ConfigError

T = TypeVar("T")

DIGITS = 18
"""So many fit into 64 bits, as which numbers are kept and exchanged."""


class Parser(argparse.ArgumentParser):
    """Raises where argparse would print its usage and exit."""

    def error(self, message: str) -> NoReturn:
        """A mistake of the user."""
        raise ConfigError(f"{message} (see {self.prog} --help)")


def unpack_variables(env: MutableMapping[str, str]) -> None:
    """Puts each variable that the operator has packed for a supervisor under its own name.

    One of ours that is set already wins: somebody has put it in front of the command. Of the others (`RANK`,
    `MASTER_ADDR`) an image may have values of its own, over which those of a pod win.

    Raises:
        ConfigError: The one in which they are packed holds something else.
    """
    packed = env.pop(Env.SUPERVISOR, "{}")
    try:
        variables: Any = json.loads(packed)
    except ValueError:
        variables = None
    if not isinstance(variables, dict) or not all(isinstance(value, str) for value in variables.values()):
        raise ConfigError(f"{Env.SUPERVISOR} must be a JSON object whose values are strings, not {packed}")
    for name, value in variables.items():
        if name.startswith("DDPJOB_"):
            env.setdefault(name, value)
        else:
            env[name] = value


def counting_from(least: int, text: str, name: str) -> int:
    """The whole number that a variable holds.

    Raises:
        ConfigError: It is not one, or less than that.
    """
    if wanted := _wanted(least, text):
        raise ConfigError(f"{name} is {text!r}: it must be {wanted}")
    return int(text)


def count_of(env: Mapping[str, str], name: str) -> int | None:
    """The number of at least 1 that a variable holds; None: it is not set.

    Raises:
        ConfigError: It holds something else.
    """
    return counting_from(1, env[name], name) if name in env else None


def natural(text: str) -> int:
    """A flag's whole number of at least 0."""
    return _at_least(0, text)


def positive(text: str) -> int:
    """A flag's whole number of at least 1."""
    return _at_least(1, text)


def positive_float(text: str) -> float:
    """A flag's number above 0."""
    return _float(text, lambda value: 0 < value < float("inf"), "a number above 0")


def not_negative(text: str) -> float:
    """A flag's number of at least 0."""
    return _float(text, lambda value: 0 <= value < float("inf"), "a number of at least 0")


def below_one(text: str) -> float:
    """A flag's number from 0 to less than 1."""
    return _float(text, lambda value: 0 <= value < 1, "a number from 0 to less than 1")


def _float(text: str, fits: Callable[[float], bool], what: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not fits(value):
        raise argparse.ArgumentTypeError(f"{text!r} is not {what}")
    return value


def _at_least(least: int, text: str) -> int:
    if wanted := _wanted(least, text):
        raise argparse.ArgumentTypeError(f"{text!r} is not {wanted}")
    return int(text)


def _wanted(least: int, text: str) -> str | None:
    """What a text would have to be, if it is not that."""
    if len(text) > DIGITS and text.isdecimal():
        return f"a whole number of at most {DIGITS} digits"
    return None if text.isdecimal() and int(text) >= least else f"a whole number of at least {least}"


def option(unset: Any, meaning: str, *flags: str, excludes: str = "", **argument: Any) -> Any:
    """A field of a dataclass that a flag sets, by default that of the field's name.

    Args:
        unset: The field's value if the flag is not given.
        meaning: The flag's help.
        flags: Its names, if it has others.
        excludes: Of the options that share this word at most one may be given.
        argument: What else argparse's `add_argument` takes.
    """
    kind = {"action": "store_true"} if unset is False else {"default": unset}
    told = {**kind, "help": meaning, **argument}
    return field(default=unset, metadata={"flags": flags, "excludes": excludes, "argument": told})


def add_options(parser: argparse.ArgumentParser, title: str, config: type[Any], *names: str) -> None:
    """Adds the flags of a dataclass as a group; of only these fields, if some are named."""
    group = parser.add_argument_group(title)
    exclusive: dict[str, Any] = {"": group}
    for one in _options(config):
        if not names or one.name in names:
            word = one.metadata["excludes"]
            if word not in exclusive:
                exclusive[word] = group.add_mutually_exclusive_group()
            exclusive[word].add_argument(*_flags(one), **one.metadata["argument"])


def chosen(config: type[T], flags: argparse.Namespace, **others: Any) -> T:
    """A dataclass with what the flags say, and with these fields, which they do not say or not alone."""
    said = {one.name: getattr(flags, _dest(one)) for one in _options(config) if one.name not in others}
    return config(**said, **others)


def _options(config: type[Any]) -> list[Field[Any]]:
    return [one for one in fields(config) if "flags" in one.metadata]


def _flags(one: Field[Any]) -> tuple[str, ...]:
    return one.metadata["flags"] or (f"--{one.name.replace('_', '-')}",)


def _dest(one: Field[Any]) -> str:
    """As argparse names it: after the first long flag."""
    long = next(flag for flag in _flags(one) if flag.startswith("--"))
    return long.removeprefix("--").replace("-", "_")
