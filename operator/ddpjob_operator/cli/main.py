"""The `ddpjob` command. Exit codes: that of the job; 2 for bad input; 1 where a cluster does not do its part."""

import signal
import sys


def main() -> None:
    """Runs the command that the arguments name."""
    # To import all takes most of a second, in which nothing is there yet that Ctrl-C would have to stop.
    heeded = signal.signal(signal.SIGINT, signal.SIG_DFL)
    from .arguments import parse  # noqa: PLC0415

    arguments = parse(
        sys.argv[1:]
    )  # What was called for help or by mistake ends here, and has not imported the rest.
    from .commands import call  # noqa: PLC0415

    signal.signal(signal.SIGINT, heeded)
    sys.exit(call(arguments))
