"""Stores the code of jobs as archives in immutable ConfigMaps.

The jobs that run a ConfigMap's code own the ConfigMap, which is deleted with the last of them.
"""

import base64
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from http import HTTPStatus
from typing import Any

from ddpjob_operator.api import BadInputError
from ddpjob_operator.api.contract import API_VERSION, CODE_KEY, GROUP, KIND

from .archive import Archive
from .cluster import Cluster, Document
from .errors import ClusterError, NoNamespaceError, RefusedError
from .jobs import Jobs

LABEL = f"{GROUP}/code"
"""Label of each ConfigMap that holds code. Clients use it to find ConfigMaps that have no owner."""
DIGEST = f"{GROUP}/code-digest"
"""Annotation of each ConfigMap with code, and of the jobs that run this code: the SHA-256 of the archive."""
TRIES = 5

ORPHANED_AFTER = timedelta(minutes=10)
"""Age after which a ConfigMap without a job counts as abandoned. Normally a client creates the job within a second
after the ConfigMap."""

OVERTAKEN = frozenset({HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT})


def name_of(digest: str) -> str:
    """The name of the ConfigMap with the archive that has this SHA-256. It is the same for the same code."""
    return f"ddpjob-code-{digest[:16]}"


def config_map(archive: Archive, namespace: str) -> Document:
    """The ConfigMap to create for an archive."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": name_of(archive.digest),
            "namespace": namespace,
            "labels": {"app.kubernetes.io/managed-by": "ddpjob", LABEL: "archive"},
            "annotations": {DIGEST: f"sha256:{archive.digest}"},
        },
        "immutable": True,
        "binaryData": {CODE_KEY: base64.b64encode(archive.data).decode()},
    }


def used_by(job: Document) -> set[str]:
    """The names of all ConfigMaps that a job's pods mount, may have to mount again, or mounted first."""
    volumes = job["spec"]["template"]["spec"].get("volumes", ())
    code = job["spec"].get("code", {})
    named = {code[field] for field in ("configMap", "former") if field in code}
    return named | {volume["configMap"]["name"] for volume in volumes if "name" in volume.get("configMap", {})}


def former_of(job: Document, digest: str) -> str | None:
    """The ConfigMap, other than the template's, with the code that a job goes back to; None: that of the template.

    `digest` is the SHA-256 of that code's archive.
    """
    code = job["spec"].get("code", {})
    return name_of(digest) if name_of(digest) in {code.get("configMap"), code.get("former")} else None


@dataclass(frozen=True)
class Leftovers:
    """The ConfigMaps that clients left behind when they died halfway."""

    adopted: dict[str, list[Document]]
    """The jobs that run the code of a ConfigMap, by the name of the ConfigMap."""
    orphaned: tuple[Document, ...]
    """The metadata of ConfigMaps whose code no job runs, and no job is about to run."""


def leftovers(loose: Sequence[Document], jobs: Iterable[Document], now: datetime) -> Leftovers:
    """Decides what to do with `loose`, the ConfigMaps without an owner. `now` is a time by the API server's clock."""
    users: dict[str, list[Document]] = {}
    for job in jobs:
        for name in used_by(job):
            users.setdefault(name, []).append(job)
    adopted = {found["name"]: users[found["name"]] for found in loose if found["name"] in users}
    orphaned = (found for found in loose if found["name"] not in users and now - created(found) > ORPHANED_AFTER)
    return Leftovers(adopted, tuple(orphaned))


def created(metadata: Document) -> datetime:
    """When an object was created, by the API server's clock."""
    return datetime.fromisoformat(metadata["creationTimestamp"])


@dataclass(frozen=True)
class Code:
    """The ConfigMaps that hold code in a cluster's namespace."""

    cluster: Cluster

    def check(self, wanted: Document) -> None:
        """Has the API server check whether this ConfigMap could be created, without creating it.

        Raises:
            BadInputError: there is no such namespace.
            ClusterError: it could not be created for another reason, such as a lack of rights.
        """
        self._make(wanted, {"dryRun": "All"})

    def put(self, wanted: Document) -> tuple[Document, bool]:
        """Creates the ConfigMap unless it exists. Returns its object, and whether this call created it.

        Raises:
            BadInputError: a ConfigMap with other content has its name, or there is no such namespace.
            ClusterError: it cannot be created for another reason, such as a lack of rights.
        """
        while True:
            if (made := self._make(wanted, {})) is not None:
                return made, True
            try:
                found = self.cluster.call("GET", self._path(wanted["metadata"]["name"]))
            except RefusedError as error:
                if error.missing:
                    continue  # The ConfigMap was deleted between the two requests.
                raise
            if found.get("binaryData") != wanted["binaryData"] or not found.get("immutable"):
                name, flags = wanted["metadata"]["name"], f"-n {self.cluster.namespace}"
                raise BadInputError(
                    f"ConfigMap {name}, in which this code is to be stored, holds something else; delete "
                    f"it: kubectl delete configmap {name} {flags}"
                )
            return found, False

    def own(self, wanted: Document, job: Document, found: Document | None = None) -> None:
        """Makes a job an owner of its code. Creates the ConfigMap again if it has been deleted in the meantime."""
        reference = _owner(job)
        for _ in range(TRIES):
            metadata = (found or self.put(wanted)[0])["metadata"]
            owners = metadata.get("ownerReferences", [])
            if any(owner["uid"] == reference["uid"] for owner in owners):
                return
            if self._own(metadata, [*owners, reference]):
                return
            found = None

    def remove(self, metadata: Document) -> None:
        """Removes a ConfigMap, unless it has changed (by a new owner, for example) since its `metadata` was read."""
        body = {"preconditions": {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}}
        try:
            self.cluster.call("DELETE", self._path(metadata["name"]), body)
        except RefusedError as error:
            if error.code not in OVERTAKEN:
                raise

    def clear(self, jobs: Jobs, now: datetime) -> None:
        """Cleans up after clients that died halfway; `now` is a time by the API server's clock."""
        loose = [found for found in self._all() if not found.get("ownerReferences")]
        if not loose:
            return
        left = leftovers(loose, jobs.all(), now)
        for metadata in loose:
            if users := left.adopted.get(metadata["name"]):
                self._own(metadata, [_owner(job) for job in users])
        for metadata in left.orphaned:
            self.remove(metadata)

    def release(self, job: Document) -> None:
        """Ends a job's ownership of code that it no longer runs. Deletes the code if it has no other owner."""
        uid, used = job["metadata"]["uid"], used_by(job)
        for metadata in self._all():
            owners = metadata.get("ownerReferences", [])
            others = [owner for owner in owners if owner["uid"] != uid]
            if metadata["name"] in used or others == owners:
                continue
            if others:
                self._own(metadata, others)
            else:
                self.remove(metadata)

    def _make(self, wanted: Document, query: dict[str, str]) -> Document | None:
        """Creates a ConfigMap; returns None if a ConfigMap of that name already exists."""
        try:
            return self.cluster.call("POST", self._path(), wanted, {"fieldValidation": "Strict", **query})
        except RefusedError as error:
            if error.reason == "AlreadyExists":
                return None
            if error.forbidden:
                raise ClusterError(f"cannot store the code in a ConfigMap: {error}") from None
            if error.details.get("kind") == "namespaces":
                raise NoNamespaceError(self.cluster.namespace, str(self.cluster)) from None
            raise

    def _own(self, metadata: Document, owners: list[Any]) -> bool:
        """Sets the owners of a ConfigMap. Returns False if it has changed since `metadata` was read."""
        body = {"metadata": {"resourceVersion": metadata["resourceVersion"], "ownerReferences": owners}}
        try:
            self.cluster.call("PATCH", self._path(metadata["name"]), body)
        except RefusedError as error:
            if error.code in OVERTAKEN:
                return False
            raise
        return True

    def _all(self) -> list[Document]:
        """The metadata of all ConfigMaps with code."""
        return self.cluster.metadata(self._path(), {"labelSelector": LABEL})

    def _path(self, *parts: str) -> str:
        return "/".join(("/api/v1/namespaces", self.cluster.namespace, "configmaps", *parts))


def _owner(job: Document) -> Document:
    """An owner reference to a job. It omits blockOwnerDeletion, because some clusters let only few users set that."""
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "name": job["metadata"]["name"],
        "uid": job["metadata"]["uid"],
    }
