"""`ddpjob-operator`: the program."""

import asyncio
import gc
import sys
from asyncio.sslproto import SSLProtocol

from .kube.connection import Connection, NoClusterError
from .operator import Operator, StoppedError
from .options import OperatorOptions, parse
from .serve.fair_server import take_all_files
from .serve.log import set_up

YOUNG_OBJECTS = 10_000
"""The garbage collector looks at new objects once there are this many. With Python's 700 it looked in the middle of a
burst of jobs, found nearly everything in use, and looked at it again and again."""
TLS_READ_BYTES = 16 << 10
"""At most so much is read from a TLS connection at once: a record. Each connection has a buffer of that size while it
is open, and OpenSSL another one, which grows by a third more than what was ever read at once. With asyncio's 256 KiB
the 49 connections of a busy operator had 12 MiB, and what OpenSSL had grew for hours. Only lists are longer."""


def main(arguments: list[str] | None = None) -> None:
    """Runs the operator; exits with 1 and one line if it cannot run."""
    options = parse(arguments)
    set_up(options.log_format, options.log_level)
    take_all_files()
    gc.freeze()  # Everything that was imported stays.
    gc.set_threshold(YOUNG_OBJECTS)
    gc.enable()
    SSLProtocol.max_size = TLS_READ_BYTES
    try:
        asyncio.run(_run(options))
    except (NoClusterError, StoppedError) as error:
        print(f"ddpjob-operator: {error}", file=sys.stderr)  # noqa: T201  A program's last word.
        sys.exit(1)


async def _run(options: OperatorOptions) -> None:
    connection = Connection(options.clock_settling_seconds)
    try:
        await Operator(options, connection).run()
    finally:
        await connection.close()
