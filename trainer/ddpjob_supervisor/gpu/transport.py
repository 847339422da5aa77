"""How NCCL passes data between GPUs, from what it says with NCCL_DEBUG=INFO. Pure."""

from collections.abc import Mapping, Sequence

from .nccl_words import NcclWords

DEBUG, SUBSYS, FILE = "NCCL_DEBUG", "NCCL_DEBUG_SUBSYS", "NCCL_DEBUG_FILE"
"""NCCL writes to stdout, unless it is told otherwise."""

SOCKETS = "NET/Socket"

LONGEST = 64
"""In characters, as the status page shows it."""


def settings(file: str, env: Mapping[str, str]) -> dict[str, str]:
    """What makes NCCL write how it passes data, and little else, to a file; nothing if somebody has set any of it.

    All lines that are read here belong to INIT (NCCL 2.20 to 2.30: src/init.cc and src/transport).
    """
    return {} if {DEBUG, SUBSYS, FILE} & env.keys() else {DEBUG: "INFO", SUBSYS: "INIT", FILE: file}


def transport_of(words: NcclWords) -> str | None:
    """Its ways, those with most channels first: `P2P, NET/IB`; None if it has not said."""
    ways = [way for way, _ in words.ways.most_common()]
    return (", ".join(ways) or (f"network {words.network}" if words.network else ""))[:LONGEST] or None


def fell_back(words: NcclWords, infiniband: Sequence[str]) -> str | None:
    """What is wrong, in a sentence, if data goes over sockets although there are such devices; None: nothing."""
    if SOCKETS not in words.ways or not infiniband:
        return None
    return (
        f"NCCL sends data over sockets, although this machine has {', '.join(infiniband)}: the container needs"
        " /dev/infiniband and memory that it may lock (ulimit -l), and NCCL_IB_DISABLE must not be set"
    )
