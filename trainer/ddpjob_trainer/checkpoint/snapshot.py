"""Copies of a state in CPU memory: training goes on with the original while the copy is written."""

import torch
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions

from .state import StateDict


class Snapshots:
    """Takes one copy after another, each in the memory of the previous one."""

    def __init__(self) -> None:
        on_gpu = bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]
        self._stager = DefaultStager(
            StagingOptions(
                use_pinned_memory=on_gpu,
                use_non_blocking_copy=on_gpu,
                use_shared_memory=False,
                # The copy itself is short; a step must not change what has not been copied yet.
                use_async_staging=False,
            )
        )

    def take(self, state: StateDict) -> StateDict:
        """A copy of a state as it is now. It holds until the next one is taken."""
        copy = self._stager.stage(state)
        assert isinstance(copy, dict), "staging is not asynchronous"
        return copy
