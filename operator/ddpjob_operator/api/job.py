"""The DDPJob object as a whole."""

from collections.abc import Mapping
from typing import Any

from pydantic import ConfigDict, field_validator

from .contract import API_VERSION, CLASS_LABEL, KIND
from .former import as_read, is_former
from .git_state import GIT_ANNOTATIONS, GitState
from .model import Model, without_nulls
from .ownership import JobRef
from .spec import DDPJobSpec
from .status import DDPJobStatus
from .trace_context import TRACE_ANNOTATIONS, trace_context


def of_submission(annotations: Mapping[str, object]) -> dict[str, str]:
    """Returns those of the annotations that describe a job's submission and are valid: trace context, git commit."""
    git = GitState.of(annotations)
    return trace_context(annotations) | (git.annotations if git is not None else {})


def renewed(before: Mapping[str, str] | None, now: Mapping[str, str] | None) -> dict[str, str] | None:
    """Returns the annotations of a start, with those of a later one in place of them; None if there are none.

    A trace context and a git commit are replaced as a whole.
    """
    old, new = before or {}, now or {}
    for group in (GIT_ANNOTATIONS, frozenset(TRACE_ANNOTATIONS.values())):
        if not group.isdisjoint(new):
            old = {key: text for key, text in old.items() if key not in group}
    return {**old, **new} or None


class Metadata(Model):
    """The fields of an object's metadata that DDPJob reads. All other fields are ignored."""

    model_config = ConfigDict(extra="ignore")

    name: str
    namespace: str = "default"
    uid: str = ""
    generation: int = 1
    annotations: dict[str, str] | None = None
    """Those that describe the job's submission. Pods are built from no other annotations."""
    labels: dict[str, str] | None = None
    """Only that of the job's class. Objects of the job are built from other labels."""

    @field_validator("annotations", mode="before")
    @classmethod
    def _only_of_the_submission(cls, value: object) -> dict[str, str] | None:
        return of_submission(value) or None if isinstance(value, dict) else None

    @field_validator("labels", mode="before")
    @classmethod
    def _only_of_the_class(cls, value: object) -> dict[str, str] | None:
        class_name = value.get(CLASS_LABEL) if isinstance(value, dict) else None
        return {CLASS_LABEL: class_name} if class_name and isinstance(class_name, str) else None

    @property
    def class_name(self) -> str:
        """The job's class by its label; empty: the default class."""
        return (self.labels or {}).get(CLASS_LABEL, "")


class DDPJob(Model):
    """A DDPJob: the spec contains the user's request, and the status what has happened since."""

    metadata: Metadata
    spec: DDPJobSpec
    status: DDPJobStatus = DDPJobStatus()

    @property
    def ref(self) -> JobRef:
        """The job's namespace, name and uid."""
        return JobRef(self.metadata.namespace, self.metadata.name, self.metadata.uid)

    @classmethod
    def from_dict(cls, document: dict[str, Any], *, nulls: bool = True) -> "DDPJob":
        """Parses a document in which `validation.problems` finds no problem. A null counts as an unset field.

        `nulls` is False if the document is known to have no nulls, so that it need not be searched for them.
        """
        known = without_nulls(document) if nulls else document
        parts = {key: known[key] for key in cls.model_fields if key in known}
        if is_former(parts.get("spec") or {}, parts.get("status") or {}):
            parts["spec"], parts["status"] = as_read(parts["spec"], parts.get("status") or {})
        return cls.model_validate(parts)

    def with_status(self, status: DDPJobStatus) -> "DDPJob":
        """Returns the same job with this status."""
        return DDPJob(metadata=self.metadata, spec=self.spec, status=status)

    def to_document(self) -> dict[str, object]:
        """Returns the job as a document to write to YAML or JSON."""
        return {"apiVersion": API_VERSION, "kind": KIND, **self.to_dict()}


def domain_key(job: DDPJob) -> str | None:
    """Returns the node label with the topology domain; None if the job names none or has no supervisor to use it."""
    topology = job.spec.topology
    return topology.key if topology and job.spec.supervisor else None


def called(job: DDPJob) -> str:
    """Returns the word for a node in messages: `rank` if its number is the rank of its only process, else `node`."""
    procs_per_node = job.status.procs_per_node or job.spec.resolved_procs_per_node()
    return "rank" if procs_per_node == 1 and domain_key(job) is None else "node"
