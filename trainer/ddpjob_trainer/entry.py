"""The entry point of `ddpjob-train`. It handles SIGTERM before it imports the rest, which takes most of a second."""

from ddpjob_rank.stopping import leave_on_request


def train() -> None:
    """Runs `ddpjob-train`."""
    leave_on_request()
    from .main import main  # noqa: PLC0415

    main()
