"""A supervisor's place in its gang, read from the pod's environment."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ddpjob_rank.environment import TORCHRUN, Env
from ddpjob_rank.errors import ConfigError
from ddpjob_rank.limits import JOINING_SECONDS
from ddpjob_rank.parsing import counting_from
from ddpjob_rank.world import MAX_PORT, Node, read_world

from .addresses import host_and_port, is_loopback
from .judging import Limits, left_to_operator

CONTROL_PORT = 29502
CONTROL_PORT_OFFSET = 2
"""How far above the master's port the control port is if there is no operator, so that two runs use different
ports."""

STATUS_PORT = 29501
DEFAULT_WINDOW_SECONDS = 3600
GRACE_SECONDS = 30
"""The default of Kubernetes' grace period and of torchrun's `--shutdown-timeout`."""

DIGITS = 10
"""How many digits of a save interval are read. An interval with more digits is longer than any training."""

NO_RESTARTS = Limits()
DISABLED = "Disabled"
LONGEST_INCIDENT = 2500
"""In bytes. A longer one does not fit into the first message to the coordinator. The operator writes shorter ones."""


@dataclass(frozen=True, slots=True)
class Settings:
    """A supervisor's place in its gang, and its options. The defaults describe a gang of one process."""

    uid: str = ""
    incarnation: int = 0
    attempt: int = 0
    node: int = 0
    nodes: int = 1
    processes: int = 1
    """The number of processes on each node."""
    master_addr: str = ""
    master_port: int = 0
    control_port: int = CONTROL_PORT
    status_port: int = STATUS_PORT
    in_a_job: bool = False
    """Whether an operator created this pod. The operator reads the status port, and replaces lost pods."""
    joining_seconds: float | None = None
    """How many seconds to wait for the other nodes; None for no limit, because an operator starts them."""
    listen: str | None = None
    """The address to listen on; None for all addresses."""
    peers: tuple[str, ...] = ()
    """Addresses of supervisors through which to find the coordinator, as host:port. Rank 0's is the first."""
    limits: Limits = NO_RESTARTS
    idle_seconds: float | None = None
    """How many seconds the gang is held without a program before it ends; None if it has a program of its own."""
    stall_timeout: float | None = None
    """Seconds without a finished step that count as a stall; None if this is learned from the job's own steps."""
    first_step_timeout: float | None = None
    """Seconds without a first step that count as a stall; None if this is learned from first steps of former
    attempts."""
    image: str = ""
    """The container's image; empty if there is none."""
    incident: str = ""
    """The incident after which the operator has made this pod, as JSON; empty if there is none."""
    attached: bool = False
    """Whether a rank has a terminal. If so, the gang may stand still while a person thinks."""
    checkpoint_every_steps: int | None = None
    checkpoint_every_seconds: int | None = None
    """The interval between two saves, in steps or in seconds. None if the program need not save at intervals."""
    code_revision: int | None = None
    """The revision of the code with which this pod was made; None if the code is in the image."""
    preflight: str = DISABLED
    grace: float = GRACE_SECONDS
    """How many seconds this node has after it is told to stop; after that it is killed."""
    domain_file: Path | None = None
    """The file for this node's topology domain, empty until the domain is known; None if ranks do not follow
    placement."""
    checkpoint_request_file: Path | None = None
    """The file with the last request for a checkpoint; None if nobody can make one."""
    secret: bytes = field(default=b"", repr=False)
    """The job's secret; empty if this is the only node."""
    secret_file: Path | None = None
    """The file from which `secret` was read."""

    @property
    def leads(self) -> bool:
        """Whether this is rank 0's supervisor."""
        return self.node == 0

    @property
    def host_name(self) -> str | None:
        """The host name under which the other nodes find this one; None if they need no name, or have its address."""
        return self.master_addr if self.leads and len(self.peers) == 1 else None

    @property
    def listens(self) -> bool:
        """Whether this supervisor has a control port.

        Nobody connects to the only supervisor of a gang. Without an operator, supervisors connect only to rank 0's.
        """
        return self.nodes > 1 and (self.leads or self.in_a_job)

    @property
    def reaches_out(self) -> bool:
        """Whether this supervisor connects to other machines, or accepts connections from them."""
        theirs = [host_and_port(peer)[0] for peer in self.peers]
        return self.nodes > 1 and not all(map(is_loopback, [*theirs, self.listen or ""] if self.listens else theirs))


def read_settings(env: Mapping[str, str], max_restarts: int | None = None) -> Settings:
    """The settings that an environment describes. `max_restarts` overrides the number of restarts in place.

    Raises:
        ConfigError: A variable is missing, is not a number, or contradicts another one.
    """
    node, nodes, processes = _place(env)
    in_a_job = Env.STATUS_PORT in env
    master_port = _number(env, Env.MASTER_PORT, 0)
    control = _number(env, Env.CONTROL_PORT, CONTROL_PORT if in_a_job else _control_port_near(master_port))
    master = env.get(Env.MASTER_ADDR, "")
    codes, causes = left_to_operator(env.get(Env.LEAVE_TO_OPERATOR, ""))
    restarts = _number(env, Env.IN_PLACE_RESTARTS, 0) if max_restarts is None else max_restarts
    window = _number(env, Env.RESTART_WINDOW_SECONDS, DEFAULT_WINDOW_SECONDS)
    stall = _number(env, Env.STALL_TIMEOUT_SECONDS, 0)
    return Settings(
        uid=env.get(Env.UID, ""),
        incarnation=_number(env, Env.INCARNATION, 0),
        attempt=_number(env, Env.ATTEMPT, 0),
        node=node,
        nodes=nodes,
        processes=processes,
        master_addr=master,
        master_port=master_port,
        control_port=control,
        status_port=_number(env, Env.STATUS_PORT, STATUS_PORT),
        in_a_job=in_a_job,
        joining_seconds=None if in_a_job else JOINING_SECONDS,
        # If the master's address is a loopback address, all nodes run on this machine.
        listen=env.get(Env.LISTEN_ADDR) or (master if is_loopback(master) else None),
        peers=_peers(env) or ((f"{master}:{control}",) if master else ()),
        limits=Limits(restarts, window, codes, causes),
        stall_timeout=stall or None,
        first_step_timeout=_number(env, Env.FIRST_STEP_TIMEOUT_SECONDS, 0) or None,
        image=env.get(Env.IMAGE, ""),
        incident=_if_short(env.get(Env.LAST_INCIDENT, "")),
        attached=Env.ATTACH in env,
        checkpoint_every_steps=_interval(env, Env.CHECKPOINT_EVERY_STEPS),
        checkpoint_every_seconds=_interval(env, Env.CHECKPOINT_EVERY_SECONDS),
        code_revision=_number(env, Env.CODE_REVISION, 0) if Env.CODE_ARCHIVE in env else None,
        preflight=env.get(Env.PREFLIGHT, DISABLED),
        grace=_number(env, Env.GRACE_PERIOD_SECONDS, GRACE_SECONDS),
        domain_file=_file(env, Env.TOPOLOGY_DOMAIN_FILE),
        checkpoint_request_file=_file(env, Env.CHECKPOINT_REQUEST_FILE),
    )


def _place(env: Mapping[str, str]) -> tuple[int, int, int]:
    """This node's number, the number of nodes, and the number of processes per node."""
    if TORCHRUN in env:
        raise ConfigError(
            "torchrun has started this supervisor, which starts the ranks of a node itself: start the "
            "program with ddpjob-supervise in place of torchrun, or with torchrun alone"
        )
    place = read_world(env)
    if isinstance(place, Node):
        return place.node_rank, place.world_size // place.processes, place.processes
    if place.alone:
        return 0, 1, 1
    if not {Env.NODE_RANK, Env.NNODES} <= env.keys():
        raise ConfigError(
            f"RANK is {place.rank} of {place.world_size}, but NODE_RANK and NNODES are not both set: set "
            "them to name this supervisor's node; with NPROC_PER_NODE instead of RANK it starts all "
            "processes of the node"
        )
    return place.rank // place.local_world_size, int(env[Env.NNODES]), place.local_world_size


def _control_port_near(port: int) -> int:
    return port + CONTROL_PORT_OFFSET if port + CONTROL_PORT_OFFSET <= MAX_PORT else port - CONTROL_PORT_OFFSET


def _peers(env: Mapping[str, str]) -> tuple[str, ...]:
    peers = tuple(part.strip() for part in env.get(Env.PEERS, "").split(",") if part.strip())
    try:
        for peer in peers:
            host_and_port(peer)
    except ValueError as error:
        raise ConfigError(
            f"{Env.PEERS}: {error}: it must be addresses as host:port, with commas between them"
        ) from None
    return peers


def _interval(env: Mapping[str, str], name: str) -> int | None:
    """The number in a variable; None if it is invalid.

    The program reads the variable too, and reports an invalid number.
    """
    text = env.get(name, "")
    return int(text[:DIGITS]) if text.isascii() and text.isdecimal() else None


def _file(env: Mapping[str, str], name: str) -> Path | None:
    return Path(env[name]) if name in env else None


def _number(env: Mapping[str, str], name: str, default: int) -> int:
    return counting_from(0, env.get(name, str(default)), name)


def _if_short(incident: str) -> str:
    written = json.dumps(incident, ensure_ascii=False).encode(errors="replace")
    return incident if len(written) <= LONGEST_INCIDENT else ""
