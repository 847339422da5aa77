"""`ddpjob-supervise`, whose first line obeys requests to stop: what follows takes most of a second to import."""

import sys

from ddpjob_rank.console import complain
from ddpjob_rank.exit_codes import ExitCode
from ddpjob_rank.stopping import leave_on_request


def supervise() -> None:
    """`ddpjob-supervise`; exits with one line if its libraries are missing."""
    leave_on_request()
    try:
        from .main import main  # noqa: PLC0415

        main()  # It imports most of what it needs only once the zygote is started.
    except ModuleNotFoundError as error:
        library = str(error.name).partition(".")[0]
        if library.startswith("ddpjob"):
            raise
        complain(
            f"{sys.executable} lacks {library}: ddpjob was installed without its extra cli; install"
            " ddpjob[cli] from the same source"
        )
        sys.exit(ExitCode.BAD_INPUT)
