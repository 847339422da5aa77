"""What each command takes: its words and flags, how each is read, and what it is where it is not given."""

import argparse
from collections.abc import Iterator

from ddpjob_operator.cli.arguments import parser

from .conftest import Golden


def taken(command: argparse.ArgumentParser) -> Iterator[str]:
    """One line for each argument."""
    for action in command._actions:
        if isinstance(action, argparse._HelpAction):
            continue
        said = {
            "how": type(action).__name__.strip("_").removesuffix("Action"),
            "read": getattr(action.type, "__name__", "text"),
            "of": action.choices and [*action.choices],
            "many": action.nargs,
            "default": action.default,
            "const": action.const,
            "needed": action.required and "yes",
        }
        known = (f"{name} {value}" for name, value in said.items() if value is not None and value is not False)
        yield f"  {' '.join(action.option_strings) or action.metavar} = {action.dest}: {', '.join(known)}"
    for group in command._mutually_exclusive_groups:
        yield f"  only one of {', '.join(action.dest for action in group._group_actions)}"


def test_the_command_line_takes_this(golden: Golden) -> None:
    top = parser()
    (commands,) = (action for action in top._actions if isinstance(action, argparse._SubParsersAction))
    lines = [line for name, command in commands.choices.items() for line in (name, *taken(command))]
    golden("command-line.txt", "\n".join(lines) + "\n")
