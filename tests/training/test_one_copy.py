"""A checkpoint's bytes, as all ranks get them: once for each node."""

import os
from pathlib import Path
from typing import Any

import torch.distributed as dist
from ddpjob.group import collectives
from ddpjob.group.shared_file import SharedFile
from ddpjob_rank.world import World

from tests.support.waiting import patience
from tests.training.forking import FORKS

CONTENT = os.urandom(3500)
PORTION = 1000


def receive(world: World, directory: Path, told: Any, content: bytes, hidden: bool) -> None:  # noqa: FBT001
    """Tells what a rank has read, and in which file."""
    collectives.PORTION_BYTES = PORTION
    if hidden:
        SharedFile.of = classmethod(lambda *_: None)  # type: ignore[assignment,method-assign]
    store = dist.FileStore(str(directory / "store"), world.world_size)  # type: ignore[attr-defined]
    dist.init_process_group("gloo", store=store, rank=world.rank, world_size=world.world_size)
    file = None
    if world.leads:
        (directory / "state").write_bytes(content)
        file = SharedFile.opened(directory / "state")
    received = collectives.broadcast_file(file, world)
    assert received is not None
    told.put((world.rank, b"".join(received.portions()), received.path.stat().st_ino))
    dist.barrier()
    dist.destroy_process_group()


def received(directory: Path, content: bytes = CONTENT, *, hidden: bool = False) -> tuple[set[bytes], list[int]]:
    """What two nodes of two ranks each have read, and for each rank which of the files it was."""
    told = FORKS.Queue()
    ranks = [
        FORKS.Process(target=receive, args=(World(rank, rank % 2, 4, 2), directory, told, content, hidden))
        for rank in range(4)
    ]
    for rank in ranks:
        rank.start()
    answers = sorted(told.get(timeout=patience(60)) for _ in ranks)
    for rank in ranks:
        rank.join()
    files = [file for *_, file in answers]
    return {read for _, read, _ in answers}, [files.index(file) for file in files]


def test_the_ranks_of_a_node_share_a_copy(tmp_path: Path) -> None:
    assert received(tmp_path) == ({CONTENT}, [0, 0, 2, 2])


def test_a_rank_that_cannot_see_the_others_has_a_copy_of_its_own(tmp_path: Path) -> None:
    assert received(tmp_path, hidden=True) == ({CONTENT}, [0, 1, 2, 3])


def test_of_what_is_small_each_has_a_copy(tmp_path: Path) -> None:
    assert received(tmp_path, CONTENT[:PORTION]) == ({CONTENT[:PORTION]}, [0, 1, 2, 3])
