"""How NCCL transfers data between GPUs, read from its log with NCCL_DEBUG=INFO. Pure."""

from collections.abc import Mapping, Sequence

from .nccl_words import NcclWords

DEBUG, SUBSYS, FILE = "NCCL_DEBUG", "NCCL_DEBUG_SUBSYS", "NCCL_DEBUG_FILE"
"""NCCL writes its log to stdout unless NCCL_DEBUG_FILE is set."""

SOCKETS = "NET/Socket"

LONGEST = 64
"""The maximum length of the text for the status page, in characters."""


def settings(file: str, env: Mapping[str, str]) -> dict[str, str]:
    """The variables that make NCCL log to a file how it transfers data, and little else. Empty if any of them is set.

    All lines that are read here belong to NCCL's subsystem INIT (NCCL 2.20 to 2.30: src/init.cc and src/transport).
    """
    return {} if {DEBUG, SUBSYS, FILE} & env.keys() else {DEBUG: "INFO", SUBSYS: "INIT", FILE: file}


def transport_of(words: NcclWords) -> str | None:
    """NCCL's transports, the one with most channels first, such as `P2P, NET/IB`; None if none is logged."""
    ways = [way for way, _ in words.ways.most_common()]
    return (", ".join(ways) or (f"network {words.network}" if words.network else ""))[:LONGEST] or None


def fell_back(words: NcclWords, infiniband: Sequence[str]) -> str | None:
    """A warning if NCCL uses sockets although the machine has InfiniBand devices; otherwise None."""
    if SOCKETS not in words.ways or not infiniband:
        return None
    return (
        f"NCCL sends data over sockets, although this machine has {', '.join(infiniband)}: the container needs"
        " /dev/infiniband and memory that it may lock (ulimit -l), and NCCL_IB_DISABLE must not be set"
    )
