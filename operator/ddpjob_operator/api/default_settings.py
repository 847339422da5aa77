"""The settings that an organisation's administrator can give to jobs that do not make them themselves."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any

from pydantic import Field

from .inheritance import LONGEST_VALUE, MOST_INHERITED
from .model import Model
from .numbers import PositiveSeconds, Seconds
from .spec import MAX_PLACE, PLACE_PATTERN, NetworkPolicy, PodSecurity

MOST_ENTRIES = 64
MOST_SETTINGS = 64
"""The most items of one list or mapping of settings. Each job keeps its settings in its status."""
MOUNT_FIELDS = ("mountPath", "readOnly", "subPath")
"""The fields of a volume's mount that stand beside the volume."""

_ATOMIC = {"x-kubernetes-list-type": "atomic"}
Named = Annotated[dict[str, Any], Field(json_schema_extra={"properties": {"name": {"type": "string"}}})]
Tolerating = Annotated[dict[str, Any], Field(json_schema_extra={"properties": {"key": {"type": "string"}}})]
"""Parts of Kubernetes' own types. `schema.defaults_schema` has all of their fields."""
Items = Annotated[tuple[Named, ...], Field(max_length=MOST_SETTINGS, json_schema_extra=_ATOMIC)]
Tolerations = Annotated[tuple[Tolerating, ...], Field(max_length=MOST_SETTINGS, json_schema_extra=_ATOMIC)]
Pairs = dict[str, Annotated[str, Field(max_length=LONGEST_VALUE)]]


def _name(item: Mapping[str, Any]) -> str:
    return str(item.get("name", ""))


def _toleration(item: Mapping[str, Any]) -> str:
    """Returns what a toleration tolerates, in the form of a taint."""
    word = str(item.get("key", "*"))
    value = f"={item['value']}" if "value" in item else ""
    effect = f":{item['effect']}" if "effect" in item else ""
    return f"{word}{value}{effect}"


IDENTITIES: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "env": _name,
    "image_pull_secrets": _name,
    "volumes": _name,
    "tolerations": _toleration,
}
"""The fields that are lists, each with the function that returns the key of an item."""


class DefaultSettings(Model):
    """Settings for jobs that do not make them themselves. A setting that is left out says nothing."""

    image: Annotated[str, Field(min_length=1, max_length=1024)] | None = None
    """The image of containers that name none, if the trainer names none either."""
    image_pull_secrets: Items = ()
    """Secrets for pulling images, each as `name: NAME`, in the job's namespace. Identified by `name`."""
    env: Items = ()
    """Environment variables of all containers of the template, as in a container. Identified by `name`. The values
    are shown in the status of jobs, so a password belongs into a Secret, with `valueFrom.secretKeyRef`."""
    tolerations: Tolerations = ()
    """Tolerations of the pods. Identified by `key`, `value` and `effect`."""
    node_selector: Annotated[Pairs, Field(max_length=MOST_SETTINGS)] = Field(default_factory=dict)
    """Labels of the Kubernetes nodes on which the pods may run. Identified by key."""
    labels: Annotated[Pairs, Field(max_length=MOST_INHERITED)] = Field(default_factory=dict)
    """Labels of everything that the operator creates for the job. Identified by key."""
    annotations: Annotated[Pairs, Field(max_length=MOST_INHERITED)] = Field(default_factory=dict)
    """Annotations of everything that the operator creates for the job. Identified by key."""
    volumes: Items = ()
    """Volumes of the pods, as in a pod, each with a `mountPath`, and perhaps `readOnly` and `subPath`: it is mounted
    there in all containers of the template. Identified by `name`."""
    queue: Annotated[str, Field(pattern="^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$", max_length=63)] | None = None
    """The queue of Kueue, in the job's namespace, that has to admit jobs without the label
    `kueue.x-k8s.io/queue-name`."""
    history_path: Annotated[str, Field(pattern=PLACE_PATTERN, max_length=MAX_PLACE)] | None = None
    """`spec.history.path`."""
    active_deadline_seconds: PositiveSeconds | None = None
    """`spec.activeDeadlineSeconds`."""
    start_deadline_seconds: PositiveSeconds | None = None
    """`spec.startDeadlineSeconds`."""
    ttl_seconds_after_finished: Seconds | None = None
    """`spec.ttlSecondsAfterFinished`."""


class DefaultsEntry(DefaultSettings):
    """Settings for the jobs of some namespaces, or of all."""

    name: Annotated[str, Field(pattern="^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", max_length=63)]
    """The entry's name, by which the status of a job says where a setting comes from."""
    namespace_selector: dict[str, Any] | None = None
    """The labels of the namespaces whose jobs get the settings: `matchLabels` and `matchExpressions`. Without it,
    those of all namespaces."""
    network_policy: NetworkPolicy | None = None
    """`spec.network.policy`: Enabled or Disabled."""
    pod_security: PodSecurity | None = None
    """The security context of pods whose template sets none: Restricted or None, as the value `podSecurity` of the
    chart."""
