"""Rules that a schema cannot state: what fields say of each other and of the contract between operator and pod.

Each rule looks at a document that may be wrong in other ways too, and reports only what it is about.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any

from .contract import (
    CONTRACT_VARIABLES,
    GROUP,
    MAX_CONTAINERS,
    MAX_ENV,
    MAX_NODES,
    MAX_PROCS_PER_NODE,
    RESERVED_VOLUME_PREFIX,
    TRAINER_CONTAINER,
)
from .problems import Path, Problem
from .restart import LAST_EXIT_CODE, Restart
from .spec import AUTO, DDPJobSpec, is_gpu

Rule = Callable[[Any], Iterator[Problem]]

TEMPLATE: Path = ("spec", "template")
RULE_MATCHES = ("exitCodes", "signals", "causes")
POD: Path = (*TEMPLATE, "spec")
PORTS = {"masterPort": "master_port", "statusPort": "status_port", "controlPort": "control_port"}


def trainer_container(job: Any) -> Iterator[Problem]:
    """Exactly one container is the trainer."""
    containers = mappings(job, (*POD, "containers"))
    names = [container.get("name") for _, container in containers]
    if TRAINER_CONTAINER not in names:
        have = f"; it has {', '.join(str(name) for name in names)}" if names else ""
        yield Problem(
            (*POD, "containers"),
            f"needs a container named {TRAINER_CONTAINER}, which runs the training{have}",
        )


def unique_names(job: Any) -> Iterator[Problem]:
    """Containers, volumes and environment variables are told apart by their names."""
    lists: list[Path] = [(*POD, "volumes"), *((*path, "env") for path, _ in all_containers(job))]
    yield from _repeated([*all_containers(job)])
    for path in lists:
        yield from _repeated([*mappings(job, path)])


def contract_variables(job: Any) -> Iterator[Problem]:
    """The variables of the contract are the operator's to set."""
    for path, container in all_containers(job):
        for env_path, variable in mappings(container, ("env",), path):
            if str(variable.get("name")) in CONTRACT_VARIABLES:
                message = f"{variable['name']} is set by DDPJob itself; remove it"
                yield Problem((*env_path, "name"), message)


def reserved_names(job: Any) -> Iterator[Problem]:
    """Labels and volumes of ours cannot be the template's."""
    for kind in ("labels", "annotations"):
        for name in mapping(job, (*TEMPLATE, "metadata", kind)):
            if str(name).startswith(f"{GROUP}/"):
                yield Problem((*TEMPLATE, "metadata", kind, name), f"{GROUP}/ is reserved for DDPJob; choose another")
    for path, volume in mappings(job, (*POD, "volumes")):
        if str(volume.get("name")).startswith(RESERVED_VOLUME_PREFIX):
            yield Problem((*path, "name"), f"{RESERVED_VOLUME_PREFIX} is reserved for DDPJob; choose another name")


def operators_fields(job: Any) -> Iterator[Problem]:
    """What DDPJob decides cannot stand in the template."""
    pod = mapping(job, POD)
    for name in ("hostname", "subdomain"):
        if name in pod:
            yield Problem((*POD, name), "is set by DDPJob itself; remove it")
    if pod.get("restartPolicy", "Never") != "Never":
        message = f"{pod['restartPolicy']!r} must be Never: DDPJob restarts the gang as a whole (spec.restart)"
        yield Problem((*POD, "restartPolicy"), message)


def bounded_template(job: Any) -> Iterator[Problem]:
    """The bounds that let the API server check every variable of every container."""
    for kind in ("containers", "initContainers"):
        yield from _too_many(job, (*POD, kind), MAX_CONTAINERS)
    for path, _ in all_containers(job):
        yield from _too_many(job, (*path, "env"), MAX_ENV)


def one_interval(job: Any) -> Iterator[Problem]:
    """A checkpoint has one interval."""
    checkpoint = mapping(job, ("spec", "checkpoint"))
    if "everySteps" in checkpoint and "everySeconds" in checkpoint:
        yield Problem(("spec", "checkpoint", "everySeconds"), "cannot be set together with everySteps; keep one")


def known_volumes(job: Any) -> Iterator[Problem]:
    """What is mounted is there."""
    volumes = [str(volume.get("name")) for _, volume in mappings(job, (*POD, "volumes"))]
    for path, container in all_containers(job):
        for mount_path, mount in mappings(container, ("volumeMounts",), path):
            name = mount.get("name")
            if isinstance(name, str) and name not in volumes:
                have = f"; there is {', '.join(volumes)}" if volumes else ""
                yield Problem((*mount_path, "name"), f"{name} is no volume of the template{have}")


def checkpoint_mount(job: Any) -> Iterator[Problem]:
    """Two volumes cannot be mounted at one place."""
    checkpoint = mapping(job, ("spec", "checkpoint"))
    if "volume" not in checkpoint:
        return
    for path, container in all_containers(job):
        if container.get("name") != TRAINER_CONTAINER:
            continue
        for mount_path, mount in mappings(container, ("volumeMounts",), path):
            if str(mount.get("mountPath")).rstrip("/") == str(checkpoint.get("path")).rstrip("/"):
                message = "is where spec.checkpoint.volume is mounted already; remove one of them"
                yield Problem((*mount_path, "mountPath"), message)


def ordered_backoff(job: Any) -> Iterator[Problem]:
    """The first wait is not longer than the longest."""
    restart = mapping(job, ("spec", "restart"))
    first = restart.get("backoffSeconds", Restart().backoff_seconds)
    longest = restart.get("maxBackoffSeconds", Restart().max_backoff_seconds)
    if isinstance(first, int) and isinstance(longest, int) and first > longest:
        yield Problem(("spec", "restart", "backoffSeconds"), f"{first} is more than maxBackoffSeconds ({longest})")


def different_ports(job: Any) -> Iterator[Problem]:
    """Two servers cannot listen on one port."""
    spec = mapping(job, ("spec",))
    taken: dict[int, str] = {}
    for name, field in PORTS.items():
        port = spec.get(name, DDPJobSpec.model_fields[field].default)
        if not isinstance(port, int):
            continue
        before = taken.setdefault(port, name)
        if before != name:
            said, other = (name, before) if name in spec else (before, name)
            yield Problem(("spec", said), f"{port} is {other} already; ports must differ")


def matching_rules(job: Any) -> Iterator[Problem]:
    """A restart rule says what it matches, and its ranges of exit codes are ranges."""
    for path, rule in mappings(job, ("spec", "restart", "rules")):
        if not any(rule.get(field) for field in RULE_MATCHES):
            yield Problem(path, f"matches nothing; give one of {', '.join(RULE_MATCHES)}")
        codes = rule.get("exitCodes")
        for index, code in enumerate(codes if isinstance(codes, list) else ()):
            if isinstance(code, str) and re.fullmatch(r"[0-9]{1,3}-[0-9]{1,3}", code) and not _is_range(code):
                message = f"{code!r} must go from a smaller to a larger exit code, both from 1 to {LAST_EXIT_CODE}"
                yield Problem((*path, "exitCodes", index), message)


def elastic_bounds(job: Any) -> Iterator[Problem]:
    """The number of nodes lies within the bounds of elastic."""
    elastic = mapping(job, ("spec", "elastic"))
    nodes = mapping(job, ("spec",)).get("nodes", 1)
    least, most = elastic.get("minNodes", 1), elastic.get("maxNodes", MAX_NODES)
    if "elastic" in mapping(job, ("spec",)) and all(isinstance(one, int) for one in (nodes, least, most)):
        if nodes < least:
            yield Problem(("spec", "nodes"), f"{nodes} is less than elastic.minNodes ({least})")
        if nodes > most:
            yield Problem(("spec", "nodes"), f"{nodes} is more than elastic.maxNodes ({most})")


def counted_devices(job: Any) -> Iterator[Problem]:
    """Devices that are claimed cannot be counted from the container's requests."""
    auto = mapping(job, ("spec",)).get("procsPerNode", AUTO) == AUTO
    for _, container in all_containers(job):
        claims = mapping(container, ("resources",)).get("claims")
        if auto and claims and container.get("name") == TRAINER_CONTAINER:
            message = "Auto cannot count devices that are claimed; give a number"
            yield Problem(("spec", "procsPerNode"), message)


def whole_gpus(job: Any) -> Iterator[Problem]:
    """GPUs are counted in whole numbers, since they become processes."""
    for path, container in all_containers(job):
        for kind in ("requests", "limits"):
            for name, amount in mapping(container, ("resources", kind)).items():
                if container.get("name") == TRAINER_CONTAINER and is_gpu(str(name)) and not _is_few(amount):
                    message = f"{amount!r} must be a whole number of GPUs, at most {MAX_PROCS_PER_NODE}"
                    yield Problem((*path, "resources", kind, name), message)


RULES: tuple[Rule, ...] = (
    trainer_container,
    unique_names,
    contract_variables,
    reserved_names,
    operators_fields,
    bounded_template,
    one_interval,
    known_volumes,
    checkpoint_mount,
    ordered_backoff,
    different_ports,
    matching_rules,
    elastic_bounds,
    counted_devices,
    whole_gpus,
)


def all_containers(job: Any) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Containers and init containers of the template, with their paths."""
    for kind in ("containers", "initContainers"):
        yield from mappings(job, (*POD, kind))


def mapping(value: Any, path: Path) -> dict[Any, Any]:
    """The mapping at a path; an empty one where there is none."""
    for part in path:
        value = value.get(part) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def mappings(value: Any, path: Path, base: Path = ()) -> Iterator[tuple[Path, dict[Any, Any]]]:
    """The mappings in the list at a path, each with its own path; `base` is the path of `value` itself."""
    for index, item in enumerate(_listed(value, path)):
        if isinstance(item, dict):
            yield (*base, *path, index), item


def _listed(value: Any, path: Path) -> list[Any]:
    for part in path:
        if isinstance(value, dict):
            value = value.get(part)
        elif isinstance(value, list) and isinstance(part, int):
            value = value[part]
        else:
            return []
    return value if isinstance(value, list) else []


def _is_range(code: str) -> bool:
    first, last = (int(end) for end in code.split("-"))
    return 1 <= first <= last <= LAST_EXIT_CODE


def _is_few(amount: Any) -> bool:
    return re.fullmatch(r"[0-9]{1,4}", str(amount)) is not None and int(amount) <= MAX_PROCS_PER_NODE


def _repeated(items: list[tuple[Path, dict[Any, Any]]]) -> Iterator[Problem]:
    seen: set[str] = set()
    for path, item in items:
        name = item.get("name")
        if isinstance(name, str) and name in seen:
            yield Problem((*path, "name"), f"{name} is used twice; names must differ")
        seen.add(str(name))


def _too_many(job: Any, path: Path, limit: int) -> Iterator[Problem]:
    count = len(_listed(job, path))
    if count > limit:
        yield Problem(path, f"has {count} entries; at most {limit} are allowed")
