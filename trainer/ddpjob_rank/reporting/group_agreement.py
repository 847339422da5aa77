"""The agreement of all ranks of the script's default process group."""

import os
import socket
import sys
import weakref
from collections.abc import Iterator
from typing import Any

from ddpjob_rank.environment import Env
from ddpjob_rank.machine.network import address_towards
from ddpjob_rank.world import restart_of_torchrun

from .agreement import Agreement, Wish
from .teller import warn_once

__all__ = ["Wish", "agreement_of_group"]

C10D = "torch.distributed.distributed_c10d"

LOOPBACK = "127.0.0.1"
ELSEWHERE = ("192.0.2.1", "2001:db8::1")
"""Addresses that belong to no machine (RFC 5737, RFC 3849). The route to them is the default route."""

_agreements: dict[str, tuple[Agreement, weakref.ref[Any] | None]] = {}
"""The agreements, each with the store of the group for which it was made."""
_made: dict[str, int] = {}


def agreement_of_group(key: str, function: str, other_store: Any = None) -> Agreement:
    """The agreement of the default process group's ranks; a new one if the script has formed another group.

    Without a group it is the agreement of a single rank. All ranks must ask for the same agreements in each group.

    Args:
        key: The name of the agreement within its group.
        function: The name of the function that all ranks have to call equally often, for warnings.
        other_store: A store to use instead of the group's.
    """
    c10d: Any = sys.modules.get(C10D)
    store = other_store or _store(c10d)
    agreement, former = _agreements.get(key, (None, None))
    if agreement and (former() if former else None) is store:
        return agreement
    if agreement:
        agreement.close()
    agreement = _new(c10d, store, key, function)
    # A weak reference, so that rank 0's store stops listening on its port when nobody else uses it.
    _agreements[key] = agreement, weakref.ref(store) if store is not None else None
    return agreement


def _store(c10d: Any) -> Any:
    try:
        return c10d._get_default_store() if c10d is not None else None  # noqa: SLF001  (there is no public way to it)
    except ValueError:  # There is no group.
        return None


def _new(c10d: Any, store: Any, key: str, function: str) -> Agreement:
    grouped = c10d is not None and c10d.is_initialized()
    rank, size = (c10d.get_rank(), c10d.get_world_size()) if grouped else (0, 1)
    if store is None and size > 1:
        warn_once(
            key,
            f"{function}: this backend has no store, so the ranks cannot stop or save after the same step, and each"
            " rank stops when its own process is told to: use gloo or nccl",
        )
        size = 1
    if size > 1:
        _made[key] = _made.get(key, 0) + 1
    here = os.environ.get(Env.WORLD_SIZE) == os.environ.get(Env.LOCAL_WORLD_SIZE) == str(size)
    return Agreement(
        store,
        # The store may also hold the address of a former group's leader, which must not be taken for this group's:
        # the leader of an earlier group of this process, or of the group before torchrun's restart, which keeps the
        # store.
        f"ddpjob/agreement/{key}/{restart_of_torchrun()}/{_made.get(key, 0)}",
        hosts=[LOOPBACK] if here else [*_hosts(store, leads=rank == 0)] if size > 1 else [],
        rank=rank,
        size=size,
        warn=lambda message: warn_once(message, message),
        function=function,
        address=LOOPBACK if here else os.environ.get(Env.LISTEN_ADDR, ""),
    )


def _hosts(store: Any, *, leads: bool) -> Iterator[str]:
    """Names and addresses under which rank 0's machine may be reached, the best first."""
    while (wrapped := getattr(store, "underlying_store", None)) is not None:
        store = wrapped
    # A TCPStore is usually served by rank 0's machine, and this rank has already reached it there.
    if host := getattr(store, "host", None):
        yield host
    master = os.environ.get(Env.MASTER_ADDR)
    if master:
        yield master
    if leads:
        found = (address_towards(other, 1) for other in (master, *ELSEWHERE) if other)
        yield from filter(None, (os.environ.get(Env.LISTEN_ADDR), *found, socket.gethostname(), LOOPBACK))
