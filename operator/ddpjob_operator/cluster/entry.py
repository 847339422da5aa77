"""The first lines of `ddpjob-operator`, which needs libraries of its own that may not be installed."""

import sys

BAD_INPUT = 2


def main() -> None:
    """Runs the operator; exits with 2 and one line if its libraries are missing."""
    try:
        from .command import main as operate  # noqa: PLC0415
    except ModuleNotFoundError as error:
        if str(error.name).startswith("ddpjob"):
            raise
        print(  # noqa: T201  A program's last word.
            f"ddpjob-operator: {sys.executable} lacks {error.name}: ddpjob was installed without its extra operator;"
            " install it as ddpjob[operator], from where it came",
            file=sys.stderr,
        )
        sys.exit(BAD_INPUT)
    operate()
