"""The main program of `ddpjob-operator`."""

import asyncio
import gc
import sys
from asyncio.sslproto import SSLProtocol

from .kube.connection import Connection, NoClusterError
from .operator import Operator, StoppedError
from .options import OperatorOptions, parse
from .serve.fair_server import raise_open_files_limit
from .serve.log import set_up

YOUNG_OBJECTS = 10_000
"""How many new objects the garbage collector waits for before it examines them. With Python's default of 700 it ran
in the middle of bursts of jobs, found nearly everything in use, and examined the same objects again and again."""
TLS_READ_BYTES = 16 << 10
"""The largest read from a TLS connection: the size of a TLS record. Each open connection has a buffer of this size,
and OpenSSL has another buffer, which grows to a third more than the largest read so far. With asyncio's 256 KiB the
49 connections of a busy operator held 12 MiB, and OpenSSL's buffers kept growing for hours. Only lists of objects are
longer than a record."""


def main(arguments: list[str] | None = None) -> None:
    """Runs the operator. If it cannot run, prints one line and exits with 1."""
    options = parse(arguments)
    set_up(options.log_format, options.log_level)
    raise_open_files_limit()
    gc.freeze()  # Imported modules are never garbage, so the collector need not examine them.
    gc.set_threshold(YOUNG_OBJECTS)
    gc.enable()
    SSLProtocol.max_size = TLS_READ_BYTES
    try:
        asyncio.run(_run(options))
    except (NoClusterError, StoppedError) as error:
        print(f"ddpjob-operator: {error}", file=sys.stderr)  # noqa: T201  The program's last message.
        sys.exit(1)


async def _run(options: OperatorOptions) -> None:
    connection = Connection(options.clock_settling_seconds)
    try:
        await Operator(options, connection).run()
    finally:
        await connection.close()
