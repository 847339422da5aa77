"""The rules' checks in Python, in the order of their table."""

import re
from collections.abc import Iterator
from typing import Any

from ddpjob_operator.api.causes import Cause
from ddpjob_operator.api.contract import (
    CODE_VOLUME,
    CONTRACT_VARIABLES,
    GROUP,
    MAX_CONTAINERS,
    MAX_ENV,
    MAX_NAME_LENGTH,
    MAX_NODES,
    MAX_PROCS_PER_NODE,
    RESERVED_VOLUME_PREFIX,
    TRAINER_CONTAINER,
)
from ddpjob_operator.api.problems import Path
from ddpjob_operator.api.restart import Restart, RestartAction
from ddpjob_operator.api.schema import NAME_PATTERN
from ddpjob_operator.api.spec import STORE_URL, Network, is_gpu, is_url

from .reading import POD, TEMPLATE, all_containers, listed, mapping, mappings
from .record import Breach, Check

RULE_MATCHES = ("exitCodes", "signals", "causes")
INTERVALS = ("interval", "everySteps", "everySeconds")

Found = Iterator[Breach]


def job_name(job: Any) -> Found:
    """The names of pods and of the Service can be made from the job's name."""
    metadata = mapping(job, ("metadata",))
    name = metadata.get("name")
    if isinstance(name, str) and (
        len(name) > MAX_NAME_LENGTH or not re.search(NAME_PATTERN.replace("$", r"\Z"), name)
    ):
        yield _at(("metadata", "name"), it=repr(name))


def trainer_container(job: Any) -> Found:
    """The template has a container for the trainer."""
    names = [container.get("name") for _, container in mappings(job, (*POD, "containers"))]
    if TRAINER_CONTAINER not in names:
        have = f"; it has {', '.join(str(name) for name in names)}" if names else ""
        yield _at((*POD, "containers"), have=have)


def contract_variables(kind: str) -> Check:
    """Only the operator may set the variables of the contract."""

    def check(job: Any) -> Found:
        for path, container in mappings(job, (*POD, kind)):
            for env_path, variable in mappings(container, ("env",), path):
                if str(variable.get("name")) in CONTRACT_VARIABLES:
                    yield _at((*env_path, "name"), it=variable["name"])

    return check


def reserved_keys(kind: str) -> Check:
    """A template cannot have labels or annotations that are reserved for DDPJob."""

    def check(job: Any) -> Found:
        for name in mapping(job, (*TEMPLATE, "metadata", kind)):
            if str(name).startswith(f"{GROUP}/"):
                yield _at((*TEMPLATE, "metadata", kind, name))

    return check


def reserved_volumes(job: Any) -> Found:
    """A template cannot have volumes whose names are reserved for DDPJob."""
    for path, volume in mappings(job, (*POD, "volumes")):
        if str(volume.get("name")).startswith(RESERVED_VOLUME_PREFIX):
            yield _at((*path, "name"))


def operators_field(name: str) -> Check:
    """A template cannot set a field that DDPJob sets itself."""

    def check(job: Any) -> Found:
        if name in mapping(job, POD):
            yield _at((*POD, name))

    return check


def restart_policy(job: Any) -> Found:
    """The kubelet must not restart a single rank."""
    policy = mapping(job, POD).get("restartPolicy", "Never")
    if policy != "Never":
        yield _at((*POD, "restartPolicy"), it=repr(policy))


def trainer_restarts(field: str, *harmless: Any) -> Check:
    """The kubelet must not restart the trainer container. It may restart other containers."""

    def check(job: Any) -> Found:
        for path, container in mappings(job, (*POD, "containers")):
            if container.get("name") == TRAINER_CONTAINER and container.get(field) not in (None, *harmless):
                yield _at((*path, field))

    return check


def whole_gpus(kind: str) -> Check:
    """An amount of GPUs is a small whole number, because each GPU gets a process."""

    def check(job: Any) -> Found:
        for path, container in mappings(job, (*POD, "containers")):
            for name, amount in mapping(container, ("resources", kind)).items():
                if is_gpu(str(name)) and not _is_few(amount):
                    yield _at((*path, "resources", kind, name), it=repr(amount))

    return check


def counted_devices(job: Any) -> Found:
    """If the trainer claims devices, which cannot be counted, the number of processes must be given."""
    uncounted = "procsPerNode" not in mapping(job, ("spec",))
    for _, container in mappings(job, (*POD, "containers")):
        claims = mapping(container, ("resources",)).get("claims")
        if uncounted and claims and container.get("name") == TRAINER_CONTAINER:
            yield _at(("spec", "procsPerNode"))


def one_interval(job: Any) -> Found:
    """A checkpoint has at most one interval."""
    checkpoint = mapping(job, ("spec", "checkpoint"))
    given = [field for field in INTERVALS if field in checkpoint]
    if len(given) > 1:
        yield _at(("spec", "checkpoint"), given=f"has {' and '.join(given)}; ")


def checkpoint_url(job: Any) -> Found:
    """A URL for checkpoints names a place in an object store, and contains no credentials."""
    return _store_url(job, "checkpoint")


def history_url(job: Any) -> Found:
    """A URL for the history names a place in an object store, and contains no credentials."""
    return _store_url(job, "history")


def _store_url(job: Any, field: str) -> Found:
    path = mapping(job, ("spec", field)).get("path")
    if isinstance(path, str) and is_url(path) and not re.fullmatch(STORE_URL, path):
        yield _at(("spec", field, "path"))


def volume_for_directory(job: Any) -> Found:
    """A checkpoint in an object store has no volume."""
    checkpoint = mapping(job, ("spec", "checkpoint"))
    if "volume" in checkpoint and is_url(str(checkpoint.get("path"))):
        yield _at(("spec", "checkpoint", "volume"))


def ordered_backoff(job: Any) -> Found:
    """The first backoff is not longer than the maximum."""
    restart = mapping(job, ("spec", "restart"))
    first = restart.get("backoffSeconds", Restart().backoff_seconds)
    longest = restart.get("maxBackoffSeconds", Restart().max_backoff_seconds)
    if isinstance(first, int) and isinstance(longest, int) and first > longest:
        yield _at(("spec", "restart", "backoffSeconds"), it=first, bound=f" ({longest})")


def different_ports(*names: str) -> Check:
    """The last of these ports differs from all others, because two servers cannot listen on the same port."""

    def check(job: Any) -> Found:
        network = mapping(job, ("spec", "network"))
        ports = Network().to_dict() | network
        *before, name = names
        taken = next((other for other in before if ports[other] == ports[name]), None)
        if taken and isinstance(ports[name], int):
            field, other = (name, taken) if name in network else (taken, name)
            yield _at(("spec", "network", field), it=ports[name], other=other)

    return check


def matching_rules(job: Any) -> Found:
    """A restart rule has something to match."""
    for path, rule in mappings(job, ("spec", "restart", "rules")):
        if not any(rule.get(field) for field in RULE_MATCHES):
            yield _at(path)


def forbidden_beginnings(job: Any) -> Found:
    """A rule for the cause StartedOver has the action Fail, because a restart could not undo the start-over."""
    for path, rule in mappings(job, ("spec", "restart", "rules")):
        if Cause.STARTED_OVER in listed(rule, ("causes",)) and rule.get("action") != RestartAction.FAIL:
            yield _at((*path, "action"))


def enough_nodes(job: Any) -> Found:
    """An elastic job has at least `elastic.minNodes` nodes."""
    nodes, least, _ = _sizes(job)
    if nodes < least:
        yield _at(("spec", "nodes"), it=nodes, bound=f" ({least})")


def few_enough_nodes(job: Any) -> Found:
    """An elastic job has at most `elastic.maxNodes` nodes."""
    nodes, _, most = _sizes(job)
    if nodes > most:
        yield _at(("spec", "nodes"), it=nodes, bound=f" ({most})")


def one_choice(*path: str) -> Check:
    """Exactly one field of the mapping at `path` is set."""

    def check(job: Any) -> Found:
        if isinstance(mapping(job, path[:-1]).get(path[-1]), dict) and len(mapping(job, path)) != 1:
            yield _at(path)

    return check


def gang_within_nodes(job: Any) -> Found:
    """The job has at least as many pods as must be placed together."""
    path = ("spec", "scheduling", "schedulingPolicy", "gang")
    least, nodes = mapping(job, path).get("minCount"), mapping(job, ("spec",)).get("nodes", 1)
    if isinstance(least, int) and isinstance(nodes, int) and least > nodes:
        yield _at((*path, "minCount"), it=least, bound=f" ({nodes})")


def one_group(job: Any) -> Found:
    """A pod is in only one PodGroup, either the operator's or the template's own."""
    if "schedulingGroup" in mapping(job, POD) and "scheduling" in mapping(job, ("spec",)):
        yield _at(("spec", "scheduling"))


def replaceable_code(job: Any) -> Found:
    """Code can take the place only of code that the template has."""
    volumes = [volume.get("name") for _, volume in mappings(job, (*POD, "volumes"))]
    if "code" in mapping(job, ("spec",)) and CODE_VOLUME not in volumes:
        yield _at(("spec", "code"))


def shared_names(job: Any) -> Found:
    """No init container has the same name as a container."""
    names = [container.get("name") for _, container in mappings(job, (*POD, "containers"))]
    for path, container in mappings(job, (*POD, "initContainers")):
        if isinstance(name := container.get("name"), str) and name in names:
            yield _at((*path, "name"), it=name)


def unique_names(job: Any) -> Found:
    """No two containers, volumes or environment variables of a container have the same name."""
    envs: list[Path] = [(*path, "env") for path, _ in all_containers(job)]
    for path in [*((*POD, kind) for kind in ("containers", "initContainers", "volumes")), *envs]:
        yield from _repeated([*mappings(job, path)])


def few_containers(job: Any) -> Found:
    """The number of containers is limited, so that the API server can check all their variables."""
    for kind in ("containers", "initContainers"):
        yield from _too_many(job, (*POD, kind), MAX_CONTAINERS)


def few_variables(job: Any) -> Found:
    """The number of a container's variables is limited, so that the API server can check all of them."""
    for path, _ in all_containers(job):
        yield from _too_many(job, (*path, "env"), MAX_ENV)


def known_volumes(job: Any) -> Found:
    """Every mounted volume exists."""
    volumes = [str(volume.get("name")) for _, volume in mappings(job, (*POD, "volumes"))]
    for path, container in all_containers(job):
        for mount_path, mount in mappings(container, ("volumeMounts",), path):
            name = mount.get("name")
            if isinstance(name, str) and name not in volumes:
                have = f"; it has {', '.join(volumes)}" if volumes else ""
                yield _at((*mount_path, "name"), it=name, have=have)


def checkpoint_mount(job: Any) -> Found:
    """The template mounts no other volume at the path of `checkpoint.volume`."""
    checkpoint = mapping(job, ("spec", "checkpoint"))
    if "volume" not in checkpoint:
        return
    for path, container in all_containers(job):
        if container.get("name") != TRAINER_CONTAINER:
            continue
        for mount_path, mount in mappings(container, ("volumeMounts",), path):
            if str(mount.get("mountPath")).rstrip("/") == str(checkpoint.get("path")).rstrip("/"):
                yield _at((*mount_path, "mountPath"))


def _at(path: Path, **values: object) -> Breach:
    return Breach(path, values)


def _sizes(job: Any) -> tuple[int, int, int]:
    """Returns the number of nodes with its bounds.

    If the job is not elastic, or a value is not a number, returns (1, 1, 1), which breaks no rule.
    """
    spec, elastic = mapping(job, ("spec",)), mapping(job, ("spec", "elastic"))
    sizes = (spec.get("nodes", 1), elastic.get("minNodes", 1), elastic.get("maxNodes", MAX_NODES))
    return sizes if "elastic" in spec and all(isinstance(size, int) for size in sizes) else (1, 1, 1)


def _is_few(amount: Any) -> bool:
    return re.fullmatch(r"[0-9]{1,4}", str(amount)) is not None and int(amount) <= MAX_PROCS_PER_NODE


def _repeated(items: list[tuple[Path, dict[Any, Any]]]) -> Found:
    seen: set[str] = set()
    for path, item in items:
        name = item.get("name")
        if isinstance(name, str) and name in seen:
            yield _at((*path, "name"), it=name)
        seen.add(str(name))


def _too_many(job: Any, path: Path, limit: int) -> Found:
    count = len(listed(job, path))
    if count > limit:
        yield _at(path, count=count, limit=limit)
