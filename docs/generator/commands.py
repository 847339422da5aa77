"""Sections of docs/reference/command-line.md, from the commands' own parsers."""

# ruff: noqa: SLF001  argparse has no public way to list a parser's arguments, and its help differs between Pythons.

import argparse
from collections.abc import Iterable, Iterator

from ddpjob_operator.cli import arguments
from ddpjob_supervisor import main as supervisor
from ddpjob_trainer import config
from ddpjob_trainer.inference import commands as inference

from .markdown import code, table


def ddpjob() -> str:
    """The commands of `ddpjob`, each with its arguments."""
    return "\n".join(_commands(arguments.parser()))


def ddpjob_train() -> str:
    """The flags of `ddpjob-train`, in their groups."""
    groups = config.train_parser()._action_groups
    return "\n".join(
        f"### {_capital(group.title)}\n\n{_arguments(group._group_actions)}" for group in groups if _own(group)
    )


def ddpjob_train_commands() -> str:
    """The arguments of each command of `ddpjob-train` other than training."""
    parsers = (inference.export_parser(), inference.predict_parser())
    return "\n".join(
        f"### `{parser.prog}`\n\n{parser.description}\n\n{_arguments(parser._actions)}" for parser in parsers
    )


def ddpjob_supervise() -> str:
    """The flags of `ddpjob-supervise`."""
    return _arguments(supervisor._parser()._actions)


def _commands(parser: argparse.ArgumentParser) -> Iterator[str]:
    top = next(action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    for listed in top._choices_actions:
        command = top.choices[listed.dest]
        yield f"### `{parser.prog} {listed.dest}`\n\n{_capital(listed.help)}.\n\n{_arguments(command._actions)}"


def _own(group: argparse._ArgumentGroup) -> bool:
    """Whether a group contains more than `--help`."""
    return any(not isinstance(action, argparse._HelpAction) for action in group._group_actions)


def _arguments(actions: Iterable[argparse.Action]) -> str:
    shown = (action for action in actions if not isinstance(action, argparse._HelpAction))
    return table(("Argument", "Meaning"), ((_names(action), action.help) for action in shown))


def _names(action: argparse.Action) -> str:
    value = "" if action.nargs == 0 else f" {_value(action)}"
    return ", ".join(code(f"{name}{value}") for name in action.option_strings) or code(_value(action))


def _value(action: argparse.Action) -> str:
    if action.choices is not None:
        return "{" + ",".join(str(choice) for choice in action.choices) + "}"
    return str(action.metavar or action.dest.upper())


def _capital(text: str | None) -> str:
    return text[:1].upper() + text[1:] if text else ""
