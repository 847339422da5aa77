"""The `ddpjob` command. Exit codes: the job's; 2 if it cannot be done as asked; 1 if a cluster does not do it."""

import io
import signal
import sys

from .terminal import guard

BAD_INPUT = 2


def main() -> None:
    """Runs the command that the arguments name."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # What it cannot encode is escaped, as on stderr.
        sys.stdout.reconfigure(errors="backslashreplace")
    # Importing everything takes most of a second, in which there is nothing yet that Ctrl-C would have to stop.
    heeded = signal.signal(signal.SIGINT, signal.SIG_DFL)
    from .arguments import parse  # noqa: PLC0415

    arguments = parse(sys.argv[1:])  # A call for help or with a mistake ends here, before the rest is imported.
    if not getattr(arguments, "raw", False):
        guard()
    try:
        from .commands import call  # noqa: PLC0415
    except ModuleNotFoundError as error:
        if str(error.name).startswith("ddpjob"):
            raise
        print(
            f"error: {sys.executable} lacks {error.name}: ddpjob was installed without its extra cli; "
            "install ddpjob[cli] from the same source",
            file=sys.stderr,
        )
        sys.exit(BAD_INPUT)
    signal.signal(signal.SIGINT, heeded)
    sys.exit(call(arguments))
