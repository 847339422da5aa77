"""The first lines of `ddpjob-operator`, which needs libraries of its own that may not be installed."""

import gc
import sys

BAD_INPUT = 2


def main() -> None:
    """Runs the operator; exits with 2 and one line if its libraries are missing."""
    # None makes Python behave as if the `kubernetes` client were not installed. If that is installed, kopf imports it
    # only to recognize its model objects, which the operator does not use, and the import took a quarter of the
    # start.
    sys.modules.setdefault("kubernetes", None)  # type: ignore[arg-type]
    gc.disable()  # Searching modules for garbage took a tenth of the start. `operate` enables it.
    try:
        from .command import main as operate  # noqa: PLC0415
    except ModuleNotFoundError as error:
        if str(error.name).startswith("ddpjob"):
            raise
        print(  # noqa: T201  A program's last word.
            f"ddpjob-operator: {sys.executable} lacks {error.name}: ddpjob was installed without the extra"
            " `operator`; install ddpjob[operator] from the same source",
            file=sys.stderr,
        )
        sys.exit(BAD_INPUT)
    operate()
