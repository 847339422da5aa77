"""Each test has a process without a training."""

from collections.abc import Iterator

import pytest


@pytest.fixture
def no_training(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Ends the test's training, and forgets that a stop was requested."""
    from ddpjob.training import connecting  # noqa: PLC0415  (most tests here need no torch)
    from ddpjob_rank.reporting import request  # noqa: PLC0415

    for name in ("_asked", "_noticed"):
        monkeypatch.setattr(request, name, False)
    yield
    if connecting._current:
        connecting._current.close()
        connecting._current = None


@pytest.fixture
def alone_in_a_group() -> Iterator[None]:
    """A process group of one rank."""
    import torch.distributed as dist  # noqa: PLC0415

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()
