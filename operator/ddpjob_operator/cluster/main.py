"""`ddpjob-operator`: the program."""

import asyncio
import sys

from .connection import Connection, NoClusterError
from .logs import set_up
from .operator import Operator, StoppedError
from .options import Options, parse


def main(arguments: list[str] | None = None) -> None:
    """Runs the operator; exits with 1 and one line where it cannot run."""
    options = parse(arguments)
    set_up(options.log_format, options.log_level)
    try:
        asyncio.run(_run(options))
    except (NoClusterError, StoppedError) as error:
        print(f"ddpjob-operator: {error}", file=sys.stderr)  # noqa: T201  A program's last word.
        sys.exit(1)


async def _run(options: Options) -> None:
    connection = Connection()
    try:
        await Operator(options, connection).run()
    finally:
        await connection.close()
