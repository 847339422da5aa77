"""Gives a job the organisation's settings that it does not make itself."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ddpjob_operator.api import DDPJob, DDPJobSpec, Defaults
from ddpjob_operator.api.default_settings import IDENTITIES, MOUNT_FIELDS

from .snapshot import Manifest

TIMES = ("active_deadline_seconds", "start_deadline_seconds", "ttl_seconds_after_finished")
"""The fields of the spec that have the same name among the defaults."""
CONTAINERS = ("initContainers", "containers")


def with_defaults(job: DDPJob, defaults: Defaults) -> DDPJob:
    """Returns the job with the settings in `defaults` that it does not make itself.

    The defaults must be those in the job's status, if the job has begun. Labels, annotations, image, queue,
    NetworkPolicy and pod security are not part of the spec, and are left to the policies that decide on them.
    """
    if not defaults.sources:
        return job
    spec = job.spec
    given: dict[str, Any] = {name: getattr(defaults, name) for name in TIMES if getattr(spec, name) is None}
    if defaults.history_path and not spec.history.path:
        given["history"] = spec.history.model_copy(update={"path": defaults.history_path})
    given["template"] = {**spec.template, "spec": _pod(spec, defaults)}
    return DDPJob(metadata=job.metadata, spec=spec.model_copy(update=given), status=job.status)


def _pod(spec: DDPJobSpec, defaults: Defaults) -> Manifest:
    pod = spec.template["spec"]
    volumes = _mountable(spec, defaults)
    mounts = [{key: volume[key] for key in ("name", *MOUNT_FIELDS) if key in volume} for volume in volumes]
    containers = {
        kind: [_container(container, defaults.env, mounts) for container in pod[kind]]
        for kind in CONTAINERS
        if kind in pod
    }
    # A pod waits for all of its volumes, so it gets none that no container mounts: it may not exist in the namespace.
    every = (container for kind in containers.values() for container in kind)
    mounted = {mount["name"] for container in every for mount in container.get("volumeMounts", ())}
    sources = [
        {key: value for key, value in volume.items() if key not in MOUNT_FIELDS}
        for volume in volumes
        if volume["name"] in mounted
    ]
    by_name = IDENTITIES["image_pull_secrets"]
    given = {
        "imagePullSecrets": _added(pod, "imagePullSecrets", defaults.image_pull_secrets, by_name),
        "tolerations": _added(pod, "tolerations", defaults.tolerations, IDENTITIES["tolerations"]),
        "nodeSelector": {**defaults.node_selector, **pod.get("nodeSelector", {})},
        "volumes": [*sources, *pod.get("volumes", ())],
        **containers,
    }
    return {**pod, **{field: value for field, value in given.items() if value}}


def _mountable(spec: DDPJobSpec, defaults: Defaults) -> list[Manifest]:
    """Returns the default volumes that the job has no other content for, one for each path: the last one."""
    # A volume of the job with the same name has other content, so it must not be mounted in place of the default.
    own = {volume["name"] for volume in spec.template["spec"].get("volumes", ())}
    at = {_mount_path(volume): volume for volume in defaults.volumes if volume["name"] not in own}
    if spec.checkpoint is not None and spec.checkpoint.volume is not None:
        at.pop(spec.checkpoint.path.rstrip("/"), None)
    return [*at.values()]


def _container(container: Manifest, env: Iterable[Manifest], mounts: Iterable[Manifest]) -> Manifest:
    # The defaults come first, so that the container's own variables can refer to them, as in `$(HTTPS_PROXY)`.
    given = {
        "env": _added(container, "env", env, IDENTITIES["env"]),
        "volumeMounts": _added(container, "volumeMounts", mounts, _mount_path),
    }
    return {**container, **{field: value for field, value in given.items() if value}}


def _added(
    owner: Manifest, field: str, defaults: Iterable[Manifest], key: Callable[[Mapping[str, Any]], str]
) -> list[Manifest]:
    """Returns the defaults whose keys no item of the owner's own list has, followed by the own items."""
    own = owner.get(field, ())
    known = {key(item) for item in own}
    return [*(item for item in defaults if key(item) not in known), *own]


def _mount_path(mount: Mapping[str, Any]) -> str:
    return str(mount["mountPath"]).rstrip("/")
