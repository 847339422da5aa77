"""Parses flags and environment variables, and explains wrong values in messages.

Flags are declared as fields of dataclasses, with `option`.
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
"""The largest number of decimal digits that a number may have, because numbers are stored and exchanged with 64
bits."""


class Parser(argparse.ArgumentParser):
    """A parser that raises ConfigError where argparse would print its usage and exit."""

    def error(self, message: str) -> NoReturn:
        """Raises ConfigError with argparse's message."""
        raise ConfigError(f"{message} (see {self.prog} --help)")


def unpack_variables(env: MutableMapping[str, str]) -> None:
    """Sets in `env` each of the variables that the operator has packed into `DDPJOB_SUPERVISOR`.

    A variable whose name begins with `DDPJOB_` keeps its value if it is already set, because somebody has set it for
    this command. Other variables (`RANK`, `MASTER_ADDR`) are replaced, because the image may have set its own values.

    Raises:
        ConfigError: `DDPJOB_SUPERVISOR` is not a JSON object whose values are strings.
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
    """Converts `text`, the value of the variable `name`, to a whole number.

    Raises:
        ConfigError: `text` is not a whole number, or the number is less than `least`.
    """
    if wanted := _wanted(least, text):
        raise ConfigError(f"{name} is {text!r}: it must be {wanted}")
    return int(text)


def count_of(env: Mapping[str, str], name: str) -> int | None:
    """The value of a variable, a whole number of at least 1; None if the variable is not set.

    Raises:
        ConfigError: The variable has another value.
    """
    return counting_from(1, env[name], name) if name in env else None


def natural(text: str) -> int:
    """Converts a flag's text to a whole number of at least 0."""
    return _at_least(0, text)


def positive(text: str) -> int:
    """Converts a flag's text to a whole number of at least 1."""
    return _at_least(1, text)


def positive_float(text: str) -> float:
    """Converts a flag's text to a number above 0."""
    return _float(text, lambda value: 0 < value < float("inf"), "a number above 0")


def not_negative(text: str) -> float:
    """Converts a flag's text to a number of at least 0."""
    return _float(text, lambda value: 0 <= value < float("inf"), "a number of at least 0")


def below_one(text: str) -> float:
    """Converts a flag's text to a number from 0 to less than 1."""
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
    """What `text` should be, if it is wrong; None if it is right."""
    if len(text) > DIGITS and text.isdecimal():
        return f"a whole number of at most {DIGITS} digits"
    return None if text.isdecimal() and int(text) >= least else f"a whole number of at least {least}"


def option(unset: Any, meaning: str, *flags: str, excludes: str = "", **argument: Any) -> Any:
    """A dataclass field that is set by a flag. By default the flag has the field's name.

    Args:
        unset: The field's value if the flag is not given.
        meaning: The flag's help.
        flags: The flag's names, if they differ from the field's.
        excludes: A word. At most one of the options that have the same word may be given.
        argument: Further arguments of argparse's `add_argument`.
    """
    kind = {"action": "store_true"} if unset is False else {"default": unset}
    merged = {**kind, "help": meaning, **argument}
    return field(default=unset, metadata={"flags": flags, "excludes": excludes, "argument": merged})


def add_options(parser: argparse.ArgumentParser, title: str, config: type[Any], *names: str) -> None:
    """Adds the flags of a dataclass as a group. If `names` are given, adds only the flags of these fields."""
    group = parser.add_argument_group(title)
    exclusive: dict[str, Any] = {"": group}
    for setting in _options(config):
        if not names or setting.name in names:
            word = setting.metadata["excludes"]
            if word not in exclusive:
                exclusive[word] = group.add_mutually_exclusive_group()
            exclusive[word].add_argument(*_flags(setting), **setting.metadata["argument"])


def config_from_flags(config: type[T], flags: argparse.Namespace, **others: Any) -> T:
    """Creates a dataclass from the values of the parsed flags.

    `others` are fields that are not set by flags alone.
    """
    values = {item.name: getattr(flags, _dest(item)) for item in _options(config) if item.name not in others}
    return config(**values, **others)


def _options(config: type[Any]) -> list[Field[Any]]:
    return [item for item in fields(config) if "flags" in item.metadata]


def _flags(item: Field[Any]) -> tuple[str, ...]:
    return item.metadata["flags"] or (f"--{item.name.replace('_', '-')}",)


def _dest(item: Field[Any]) -> str:
    """The name that argparse gives to the flag's value, which it derives from the flag's first long form."""
    long = next(flag for flag in _flags(item) if flag.startswith("--"))
    return long.removeprefix("--").replace("-", "_")
