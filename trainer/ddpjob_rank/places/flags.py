"""Flags for a process's place: its rank, the number of processes, and how they find each other without a launcher."""

import argparse
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from ddpjob_rank.errors import ConfigError
from ddpjob_rank.parsing import config_from_flags, natural, option, positive
from ddpjob_rank.world import MAX_PORT

PROOF = (
    "file with the secret that the nodes' supervisors share: at least 32 bytes, readable only by its owner "
    "(default: DDPJOB_SECRET_FILE; without a file, supervisors meet only on this machine, with a secret "
    "that ddpjob keeps for this user)"
)
METHODS = "env://, tcp://HOST:PORT, or file:///PATH on a disk that all processes share"


def _port(text: str) -> int:
    port = positive(text)
    if port > MAX_PORT:
        raise argparse.ArgumentTypeError(f"{text} is not a port: the highest is {MAX_PORT}")
    return port


@dataclass(frozen=True, kw_only=True, slots=True)
class PlaceConfig:
    """This process's place according to the flags. A field is None if the environment or a launcher decides it."""

    nodes: int | None = option(
        None, "number of nodes (default: 1)", "-n", "--nodes", "--nnodes", type=positive, metavar="N"
    )
    procs_per_node: int | None = option(
        None,
        "processes to start on each node, usually one per GPU (default: 1)",
        *("-g", "--procs-per-node", "--nproc-per-node", "--nproc_per_node", "--gpus"),
        type=positive,
        metavar="N",
    )
    node_rank: int | None = option(
        None, "this node's number, from 0", "-nr", "--node-rank", "--node_rank", type=natural, metavar="N"
    )
    master_addr: str | None = option(
        None, "name or address of node 0, which rank 0 runs on", "--master-addr", "--master_addr", metavar="HOST"
    )
    master_port: int | None = option(
        None, "where rank 0 listens (default: 29500)", "--master-port", "--master_port", type=_port, metavar="PORT"
    )
    secret_file: Path | None = option(None, PROOF, type=Path, metavar="FILE")
    init_file: Path | None = option(None, f"how processes find each other: {METHODS}", "--init-method", metavar="URL")
    """The file through which processes find each other, if they do not use rank 0's port."""
    rank: int | None = option(
        None, "this process's rank, from 0, if you start each process separately", type=natural, metavar="N"
    )
    world_size: int | None = option(
        None, "number of processes, if each process is started with its --rank", type=positive, metavar="N"
    )
    local_rank: int | None = option(
        None, "torch.distributed.launch passes it", "--local-rank", "--local_rank", type=natural, metavar="N"
    )


def read_place(flags: argparse.Namespace) -> PlaceConfig:
    """The place that the flags describe.

    Raises:
        ConfigError: Two flags contradict each other, or --init-method is not valid.
    """
    addr, port, file = _method(flags.init_method or "env://")
    for flag, given, url in (("--master-addr", flags.master_addr, addr), ("--master-port", flags.master_port, port)):
        if None not in (given, url) and given != url:
            raise ConfigError(f"{flag} is {given}, but --init-method is {flags.init_method}: name the master once")
    addr, port = flags.master_addr or addr, flags.master_port or port
    return config_from_flags(PlaceConfig, flags, master_addr=addr, master_port=port, init_file=file)


def _method(url: str) -> tuple[str | None, int | None, Path | None]:
    """The master's host and port, or the file, in an init method."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        parts, host, port = urlsplit(""), None, None
    if parts.query:
        raise ConfigError(f"--init-method {url}: give the rank and the size with --rank and --world-size instead")
    match parts.scheme, bool(host), bool(port), parts.path:
        case "env", False, False, "":
            return None, None, None
        case "tcp", True, True, "":
            return host, port, None
        case "file", False, False, path if len(path) > 1:
            return None, None, Path(path)
    raise ConfigError(f"--init-method {url}: it must be {METHODS}")
