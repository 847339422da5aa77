"""The entry point of `ddpjob-operator`, which checks that the operator's optional libraries are installed."""

import gc
import sys

BAD_INPUT = 2


def main() -> None:
    """Runs the operator. If its libraries are missing, prints one line and exits with 2."""
    # None makes Python behave as if the `kubernetes` client were not installed. Otherwise kopf would import the
    # client just to recognize its model objects, which the operator does not use. That import took a quarter of the
    # startup time.
    sys.modules.setdefault("kubernetes", None)  # type: ignore[arg-type]
    # Garbage collection during the imports took a tenth of the startup time. `operate` turns it back on.
    gc.disable()
    try:
        from .command import main as operate  # noqa: PLC0415
    except ModuleNotFoundError as error:
        if str(error.name).startswith("ddpjob"):
            raise
        print(  # noqa: T201  The program's last message.
            f"ddpjob-operator: {sys.executable} lacks {error.name}: ddpjob was installed without the extra"
            " `operator`; install ddpjob[operator] from the same source",
            file=sys.stderr,
        )
        sys.exit(BAD_INPUT)
    operate()
