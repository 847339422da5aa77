"""A supervisor from its start to its exit code. The zygote is started first: what it imports takes longest."""

import os
from collections.abc import Sequence

from ddpjob_rank.machine.storage import check_temporary
from ddpjob_rank.running.program import Program

from .node.zygote_process import PRELOADED, TRAINER_PRELOADED, start_zygote


def supervise(
    program: Program,
    start_method: str = "warm",
    max_restarts: int | None = None,
    preload: Sequence[str] = (),
    patience: float | None = None,
) -> int:
    """Runs a program once for each process of this node, and returns the exit code for all.

    `preload` names what the ranks import besides PyTorch: it is already imported when they are forked. `patience` is
    how many seconds to wait for the other nodes if no operator starts them.

    Raises:
        ConfigError: The environment does not describe a place in a gang, or not one in the coordinator's.
        StorageError: There is no directory for temporary files.
        TrainerError: The control port is in use, this node is not fit for training, or others are gone.
    """
    check_temporary()
    preloaded = (*PRELOADED, *(TRAINER_PRELOADED if program.is_trainer else ()), *preload)
    zygote = None if start_method == "cold" else start_zygote(preloaded, program.directory)
    try:
        # Here, since these imports take as long as a tenth of the zygote's, which have begun.
        from .node.cold import Cold  # noqa: PLC0415
        from .node.warm import Warm  # noqa: PLC0415
        from .taking_part import run  # noqa: PLC0415

        starter = Cold() if zygote is None else Warm(preloaded, program.directory, zygote)
        return run(program, starter, os.environ, max_restarts, patience)
    finally:
        if zygote is not None:
            zygote.kill()
            zygote.wait()
