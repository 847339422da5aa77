"""The `ddpjob` command. Exit codes: the job's own; 2 if the input is wrong; 1 if a request to a cluster fails."""

import io
import signal
import sys

from .terminal import guard

BAD_INPUT = 2


def main() -> None:
    """Runs the command that the arguments name."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # As on stderr, escape what stdout cannot encode.
        sys.stdout.reconfigure(errors="backslashreplace")
    # The imports take most of a second. If Ctrl-C kills the process during this time, that does no harm, because
    # nothing has been started yet.
    handler = signal.signal(signal.SIGINT, signal.SIG_DFL)
    from .arguments import parse  # noqa: PLC0415

    arguments = parse(sys.argv[1:])  # Exits for --help or a mistake, before the slow imports.
    if not getattr(arguments, "raw", False):
        guard()
    try:
        from .commands import call, load  # noqa: PLC0415

        load(arguments)
    except ModuleNotFoundError as error:
        if str(error.name).startswith("ddpjob"):
            raise
        print(
            f"error: {sys.executable} lacks {error.name}: ddpjob was installed without the extra `cli`; "
            "install ddpjob[cli] from the same source",
            file=sys.stderr,
        )
        sys.exit(BAD_INPUT)
    signal.signal(signal.SIGINT, handler)
    sys.exit(call(arguments))
