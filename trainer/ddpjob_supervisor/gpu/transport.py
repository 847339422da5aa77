"""How NCCL passes data between GPUs, from what it says with NCCL_DEBUG=INFO."""

from contextlib import suppress
from pathlib import Path

from .nccl_words import NcclWords

INFINIBAND = Path("/sys/class/infiniband")
SOCKETS = "NET/Socket"

LONGEST = 64
"""In characters, as the status page shows it."""


def transport_of(words: NcclWords) -> str | None:
    """Its ways, those with most channels first: `P2P, NET/IB`; None if it has not said."""
    ways = [way for way, _ in words.ways.most_common()]
    return (", ".join(ways) or (f"network {words.network}" if words.network else ""))[:LONGEST] or None


def infiniband(directory: Path = INFINIBAND) -> list[str]:
    """The InfiniBand and RoCE devices of this machine."""
    with suppress(OSError):
        return sorted(device.name for device in directory.iterdir())
    return []


def fell_back(words: NcclWords, devices: list[str]) -> str | None:
    """What is wrong, in a sentence, if data goes over sockets although there is something better; None: nothing."""
    if SOCKETS not in words.ways or not devices:
        return None
    return (
        f"NCCL sends data over sockets, although this machine has {', '.join(devices)}: the container needs"
        " /dev/infiniband and memory that it may lock (ulimit -l), and NCCL_IB_DISABLE must not be set"
    )
