"""The entry point of `ddpjob-supervise`. It handles SIGTERM before the other imports, which take most of a second."""

import sys

from ddpjob_rank.console import complain
from ddpjob_rank.exit_codes import ExitCode
from ddpjob_rank.stopping import leave_on_request


def supervise() -> None:
    """Runs `ddpjob-supervise`; exits with a one-line message if a library that it needs is missing."""
    leave_on_request()
    try:
        from .main import main  # noqa: PLC0415

        main()  # `main` imports most modules only after it has started the zygote.
    except ModuleNotFoundError as error:
        library = str(error.name).partition(".")[0]
        if library.startswith("ddpjob"):
            raise
        complain(
            f"{sys.executable} lacks {library}: ddpjob was installed without its extra cli; install"
            " ddpjob[cli] from the same source"
        )
        sys.exit(ExitCode.BAD_INPUT)
