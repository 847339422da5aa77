"""The trials of the full preflight: sums over ranks with a known result, and matrix products on a rank's own GPU."""

import time
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from ddpjob_rank.console import counted
from ddpjob_rank.machine.interface import choose_interface, local_address
from ddpjob_rank.world import World
from torch.distributed.distributed_c10d import PrefixStore, Store

from .plan import NO_END, WRONG, WRONGLY, Outcome

CPU_BYTES, GPU_BYTES = 16 << 20, 64 << 20
TIMES = 3
"""How many sums are timed, after a first sum, which sets up the connections."""

PERIOD, FACTORS = 251, 13
"""The known tensor repeats 0..250, and rank r multiplies it by r % 13 + 1. Sums of up to 5,000 ranks are exact in
float32."""

PRODUCT_SIZE, PRODUCTS = 1024, 8


@dataclass(frozen=True, slots=True)
class Group:
    """One rank's place in a group of ranks that compute a sum."""

    name: str
    """Unique among all groups that use the store."""
    rank: int
    size: int


def sum_over(group: Group, world: World, backend: str, seconds: float) -> Outcome:
    """Sums a known tensor over all ranks of a group. Reports a problem if they do not join within `seconds`."""
    device = torch.device("cuda", world.local_rank) if backend == "nccl" else torch.device("cpu")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    try:
        _join(group, world, device, seconds)
    except dist.DistStoreError:
        # The error's own message is not reported, because it contains only keys of the store.
        return Outcome(f"{NO_END} {seconds:.0f} s")
    outcome = _sum(group, device)
    dist.barrier()  # A rank that left early would look like a lost peer to a rank that is still summing.
    return outcome


def _join(group: Group, world: World, device: torch.device, seconds: float) -> None:
    cuda = device.type == "cuda"
    # NCCL's timeout is longer, so that the parent kills a hanging process first: it reports more than NCCL would.
    timeout = timedelta(seconds=2 * seconds if cuda else seconds)
    whole = dist.TCPStore(world.master_addr, world.master_port, timeout=timeout)  # type: ignore[attr-defined]
    store = PrefixStore(group.name, whole)
    if not cuda:
        _choose_interface(store, group, world)
    dist.init_process_group(
        "nccl" if cuda else "gloo",
        store=store,
        rank=group.rank,
        world_size=group.size,
        timeout=timeout,
        device_id=device if cuda else None,
    )


def _choose_interface(store: Store, group: Group, world: World) -> None:
    """Makes gloo use the network interface that training will choose."""
    own = local_address(world)
    store.set(f"address/{group.rank}", own)
    others = (rank for rank in range(group.size) if rank != group.rank)
    choose_interface(own, (store.get(f"address/{rank}").decode() for rank in others))


def _sum(group: Group, device: torch.device) -> Outcome:
    size = GPU_BYTES if device.type == "cuda" else CPU_BYTES
    known = (torch.arange(size // 4, device=device) % PERIOD).float()
    factors = [rank % FACTORS + 1 for rank in range(group.size)]
    best, wrong = float("inf"), 0
    # Go on after a wrong sum, because ranks with right sums go on and need this rank.
    for turn in range(1 + TIMES):
        values = known * factors[group.rank]
        _finish(device)
        begun = time.perf_counter()
        dist.all_reduce(values)
        _finish(device)
        best = min(best, time.perf_counter() - begun) if turn else best
        wrong = max(wrong, int((values != known * sum(factors)).sum()))
    trouble = f"{WRONG} at {wrong} of {known.numel()} places" if wrong else ""
    return Outcome(trouble, seconds=best, size=size)


def try_gpu(local_rank: int) -> Outcome:
    """Checks that the rank's GPU computes correctly. The fast preflight has already queried the driver."""
    device = torch.device("cuda", local_rank)
    torch.cuda.set_device(device)
    wrong = _wrong_products(device)
    return Outcome(f"{WRONGLY}: {counted(wrong, 'wrong value')} in {PRODUCTS} matrix products" if wrong else "")


def _wrong_products(device: torch.device) -> int:
    """How many values of some matrix products differ from the CPU's. All numbers are exact in float32 and TF32."""
    rows = torch.arange(PRODUCT_SIZE)
    left = ((rows[:, None] + 3 * rows[None, :]) % 7).float()
    right = ((5 * rows[:, None] + rows[None, :]) % 5).float()
    expected = (left @ right).to(device)
    there = left.to(device), right.to(device)
    return sum(int((there[0] @ there[1] != expected).sum()) for _ in range(PRODUCTS))


def _finish(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
