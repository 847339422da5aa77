"""The environment variables that give a trainer its place in the gang."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict

from ddpjob_operator.api import CheckpointInterval, DDPJob, DDPJobSpec, RestartMode
from ddpjob_operator.api.contract import (
    ANNOTATIONS_DIRECTORY,
    CHECKPOINT_REQUEST_FILE,
    CODE_KEY,
    CODE_VOLUME,
    DOMAIN_FILE,
    PACKED_BEHIND_SUPERVISOR,
    PACKED_VARIABLES,
    SECRET_DIRECTORY,
    SECRET_KEY,
    TERMINATION_LOG_PATH,
    Env,
)
from ddpjob_operator.api.expansion import literal
from ddpjob_operator.api.git_state import GitState
from ddpjob_operator.api.resources import amount_of
from ddpjob_operator.api.trace_context import TRACE_ANNOTATIONS
from ddpjob_operator.engine.incidents.judgement import left_to_operator
from ddpjob_operator.engine.snapshot import Manifest

from .names import master_address
from .topology import shown_annotations
from .volumes import history_of

TOLD = frozenset({"attempt", "time", "node", "nodeName", "rank", "cause", "exitCode", "signal", "step"})
"""The fields of an incident that supervisors write into the history, and its message."""
LONGEST_TOLD = 300


def trainer_env(job: DDPJob, node: int, living: tuple[str, ...]) -> list[Manifest]:
    """Returns our variables for a node's trainer container, to be placed before the template's own `env`.

    Because of this order, the template's variables and arguments can refer to ours, as in `$(NODE_RANK)`. Variables
    that the template mentions are not packed. `living` are the addresses of the gang's pods that already run.
    """
    values = {
        **_world(job, node),
        **_torchrun(job, node),
        **_identity(job, node),
        **_checkpoint(job),
        **_supervisor(job, node, living),
    }
    values[Env.TERMINATION_LOG] = job.spec.trainer.get("terminationMessagePath", TERMINATION_LOG_PATH)
    return _listed({**_packed(values, job.spec), **_trace(job)})


def master_env(job: DDPJob) -> list[Manifest]:
    """Returns the variables by which the wait container finds rank 0: address, master port and control port."""
    return _listed(
        {
            Env.MASTER_ADDR: master_address(job),
            Env.MASTER_PORT: job.status.network.master_port,
            Env.CONTROL_PORT: job.status.network.control_port,
        }
    )


def by_name(env: Sequence[Manifest]) -> Iterator[Manifest]:
    """Yields the variables as a supervisor sees them, with packed variables under their own names."""
    for variable in env:
        if variable["name"] == Env.SUPERVISOR:
            yield from ({"name": name, "value": value} for name, value in json.loads(variable["value"]).items())
        else:
            yield variable


def _packed(values: Mapping[str, object], spec: DDPJobSpec) -> dict[str, object]:
    """Packs the variables that only a supervisor reads into a single one, except those that the template mentions.

    This makes pods smaller. The API server stores each variable twice, once in the pod's managed fields, and rewrites
    both copies whenever the pod's status changes.
    """
    template, names = str(spec.trainer), PACKED_BEHIND_SUPERVISOR if spec.supervisor else PACKED_VARIABLES
    packed = {
        name: str(value)
        for name, value in values.items()
        if value is not None and name in names and name not in template
    }
    others = {name: value for name, value in values.items() if name not in packed}
    return {**others, Env.SUPERVISOR: json.dumps(packed, separators=(",", ":"))}


def _listed(values: Mapping[str, object]) -> list[Manifest]:
    """The variables as a container lists them, with `$(NAME)` escaped, because Kubernetes would expand it there."""
    known = {name: str(value) for name, value in values.items() if value is not None}
    return [{"name": name, "value": literal(value)} for name, value in known.items()]


def _world(job: DDPJob, node: int) -> dict[str, object]:
    nodes, procs = job.status.nodes, job.status.procs_per_node
    assert nodes is not None, "an attempt was started"
    assert procs is not None, "an attempt was started"
    world: dict[str, object] = {
        Env.MASTER_ADDR: master_address(job),
        Env.MASTER_PORT: job.status.network.master_port,
        Env.WORLD_SIZE: nodes * procs,
        Env.NNODES: nodes,
        Env.NODE_RANK: node,
        Env.NPROC_PER_NODE: procs,
    }
    # If a node has several processes, torchrun or the supervisor sets these variables for each process.
    if procs == 1:
        world |= {Env.RANK: node, Env.LOCAL_RANK: 0, Env.LOCAL_WORLD_SIZE: 1}
    return world


def _torchrun(job: DDPJob, node: int) -> dict[str, object]:
    return {
        Env.PET_NNODES: job.status.nodes,
        Env.PET_NPROC_PER_NODE: job.status.procs_per_node,
        Env.PET_NODE_RANK: node,
        Env.PET_MASTER_ADDR: master_address(job),
        Env.PET_MASTER_PORT: job.status.network.master_port,
    }


def _identity(job: DDPJob, node: int) -> dict[str, object]:
    assert job.status.backend is not None, "an attempt was started"
    return {
        Env.NAME: job.metadata.name,
        Env.NAMESPACE: job.metadata.namespace,
        Env.UID: job.metadata.uid,
        Env.INCARNATION: job.status.bookkeeping.incarnations.of(node),
        Env.ATTEMPT: job.status.attempt,
        Env.BACKEND: job.status.backend.lower(),
    }


def _checkpoint(job: DDPJob) -> dict[str, object]:
    checkpoint = job.spec.checkpoint
    if checkpoint is None:
        return {}
    automatic, limit = checkpoint.interval is CheckpointInterval.AUTO, checkpoint.local_copy_size_limit
    return {
        Env.CHECKPOINT_DIR: checkpoint.path,
        Env.CHECKPOINT_EVERY_STEPS: checkpoint.every_steps,
        Env.CHECKPOINT_EVERY_SECONDS: checkpoint.interval if automatic else checkpoint.every_seconds,
        Env.CHECKPOINT_KEEP: checkpoint.keep,
        Env.CHECKPOINT_LOCAL_COPY_BYTES: None if limit is None else amount_of(limit),
    }


def _trace(job: DDPJob) -> dict[str, object]:
    """The trace context of the job's submission. A template that sets a part of it has a context of its own."""
    own = {variable["name"] for variable in job.spec.trainer.get("env", ())}
    known = job.metadata.annotations or {}
    return {} if own & TRACE_ANNOTATIONS.keys() else {name: known.get(key) for name, key in TRACE_ANNOTATIONS.items()}


def _supervisor(job: DDPJob, node: int, living: tuple[str, ...]) -> dict[str, object]:
    restart, control_port = job.spec.restart, job.status.network.control_port
    in_place, git = restart.mode is RestartMode.IN_PLACE, GitState.of(job.metadata.annotations or {})
    shown = {file: f"{ANNOTATIONS_DIRECTORY}/{file}" for file in shown_annotations(job, node)}
    return {
        Env.STATUS_PORT: job.status.network.status_port,
        Env.CONTROL_PORT: control_port,
        Env.PEERS: ",".join(f"{host}:{control_port}" for host in (master_address(job), *map(_host, living))),
        Env.SECRET_FILE: f"{SECRET_DIRECTORY}/{SECRET_KEY}",
        # Restarts in place count against maxRestarts too, so supervisors must not make more than that number.
        Env.IN_PLACE_RESTARTS: min(restart.in_place_restarts, restart.max_restarts) if in_place else 0,
        Env.RESTART_WINDOW_SECONDS: restart.window_seconds,
        Env.LEAVE_TO_OPERATOR: left_to_operator(restart),
        Env.STALL_TIMEOUT_SECONDS: job.spec.stall_timeout_seconds,
        Env.FIRST_STEP_TIMEOUT_SECONDS: job.spec.first_step_timeout_seconds,
        Env.IMAGE: job.spec.trainer.get("image") or job.status.trainer_image,
        Env.GIT: git and json.dumps(asdict(git), separators=(",", ":")),
        **_code(job),
        Env.PREFLIGHT: job.spec.preflight,
        Env.GRACE_PERIOD_SECONDS: job.spec.template["spec"].get("terminationGracePeriodSeconds"),
        Env.TOPOLOGY_DOMAIN_FILE: shown.get(DOMAIN_FILE),
        Env.CHECKPOINT_REQUEST_FILE: shown.get(CHECKPOINT_REQUEST_FILE),
        **_history(job, node),
    }


def _code(job: DDPJob) -> dict[str, object]:
    mounts = job.spec.trainer.get("volumeMounts", ())
    archive = next((mount["mountPath"] for mount in mounts if mount["name"] == CODE_VOLUME), None)
    if archive is None:
        return {}
    revision = job.spec.code.revision if job.spec.code else 0
    return {Env.CODE_ARCHIVE: f"{archive.rstrip('/')}/{CODE_KEY}", Env.CODE_REVISION: revision}


def _history(job: DDPJob, node: int) -> dict[str, object]:
    if (path := history_of(job)) is None:
        return {}
    status, incarnations = job.status, job.status.bookkeeping.incarnations
    # Supervisors know only what happens while they run. To the others of its gang, a pod that is new alone was lost.
    alone = incarnations.of(node) != incarnations.default
    last = status.last_incident if node == 0 or alone else None
    if last is None or last.attempt < status.attempt - 1:  # Something else ended the last attempt, such as a resize.
        return {Env.HISTORY: path}
    known = {field: value for field, value in last.to_dict().items() if field in TOLD}
    known["message"] = last.message[:LONGEST_TOLD]
    return {Env.HISTORY: path, Env.LAST_INCIDENT: json.dumps(known, ensure_ascii=False, separators=(",", ":"))}


def _host(address: str) -> str:
    """Returns an address as it is written before a port. An IPv6 address needs brackets."""
    return f"[{address}]" if ":" in address else address
