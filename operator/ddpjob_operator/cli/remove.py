"""`ddpjob rm NAME`: removes a run on this machine, with the logs and checkpoints in its directory."""

from ddpjob_operator.api import BadInputError
from ddpjob_operator.local import Runs, find_run, remove_run, unregister

from .invocation import itself


def remove(runs: Runs, name: str) -> int:
    """Removes a run that is not running.

    Raises:
        BadInputError: there is no such run, it is running, or a part of it cannot be removed.
    """
    run = find_run(runs, name)
    root, lock = run.root.absolute(), run.lock
    if root.is_symlink():
        raise BadInputError(f"{root} is a link to {root.resolve()}; remove its target, then the link")
    if not run.lock_file.exists():
        raise BadInputError(f"{root} is not a run directory: nothing has run in it")
    if run.running or not lock.acquire(writing=False):
        raise BadInputError(f"{name} is running; stop it first, with: {itself()} stop {name}")
    try:
        remove_run(run)
    except OSError as error:
        raise BadInputError(
            f"cannot remove {error.filename}: {error.strerror}; other parts of {name} may be gone"
        ) from None
    finally:
        lock.release()
    unregister(run)
    print(f"{name}: removed {root}, with the logs and checkpoints in it")
    return 0
