"""`ddpjob-supervise`, whose first line obeys requests to stop: what follows takes most of a second to import."""

from ddpjob_rank.stopping import leave_on_request


def supervise() -> None:
    """`ddpjob-supervise`."""
    leave_on_request()
    from .main import main  # noqa: PLC0415

    main()
