"""A pod that shows what is on a volume claim, made with the user's own rights, and deleted afterwards."""

import getpass
import os
import platform
import re
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http import HTTPStatus
from importlib.resources import files
from typing import Any

from ddpjob_operator.api import BadInputError

from .cluster import Cluster, Document
from .errors import ClusterError, RefusedError, UnreachableError

PORT = 29503
SECONDS = 900
"""How long the pod may run, if it cannot be deleted."""
START_SECONDS, LOOK_SECONDS, SAY_SECONDS = 180.0, 0.5, 10.0
USER = 1000
"""The user of a job's pods, unless their template names another one."""
MOUNTED = "/claim"
WRONG = frozenset({"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "CreateContainerConfigError"})
"""Why a container waits that will not start soon."""


@dataclass(frozen=True, slots=True)
class Claimed:
    """A directory on a volume claim, and how to read it."""

    claim: str
    path: str
    """Relative to the root of the volume; empty for the root."""
    image: str
    """An image with Python."""
    user: int = USER
    """Whose files these are: others may not read them."""
    pull_secrets: Sequence[Document] = ()
    """What the image needs, as in a pod's `imagePullSecrets`."""


def reader_pod(name: str, where: Claimed, made_by: str) -> Document:
    """The pod's manifest. The strictest of Kubernetes' standards admits it, unless the user is root."""
    program = files(__package__).joinpath("serve_files.py").read_text(encoding="utf-8")
    root = f"{MOUNTED}/{where.path}".rstrip("/")
    container = {
        "name": "reader",
        "image": where.image,
        "command": ["python3", "-c", program, root, str(PORT)],
        "resources": {
            "requests": {"cpu": "10m", "memory": "64Mi"},
            "limits": {"cpu": "500m", "memory": "128Mi", "ephemeral-storage": "16Mi"},
        },
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
        "volumeMounts": [{"name": "claim", "mountPath": MOUNTED, "readOnly": True}],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "labels": {
                "app.kubernetes.io/name": "ddpjob-history-reader",
                "app.kubernetes.io/managed-by": "ddpjob",
                "sidecar.istio.io/inject": "false",
            },
            "annotations": {"ddpjob.dev/made-by": made_by, "ddpjob.dev/reads": f"{where.claim}/{where.path}"},
        },
        "spec": {
            "restartPolicy": "Never",
            "activeDeadlineSeconds": SECONDS,
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "securityContext": {
                "runAsNonRoot": where.user != 0,
                "runAsUser": where.user,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "imagePullSecrets": [*where.pull_secrets],
            "containers": [container],
            "volumes": [{"name": "claim", "persistentVolumeClaim": {"claimName": where.claim, "readOnly": True}}],
        },
    }


@contextmanager
def reading(cluster: Cluster, where: Claimed, say: Callable[[str], None]) -> Iterator[str]:
    """Runs the pod, and yields its name once it answers. `say` gets what it waits for.

    Raises:
        BadInputError: There is no such claim, or the pod is not admitted.
        ClusterError: The pod does not start, or the cluster does not answer.
    """
    user = _user()
    name = (
        f"ddpjob-history-{re.sub('[^a-z0-9]+', '-', user.lower()).strip('-')[:20] or 'user'}-{secrets.token_hex(3)}"
    )
    pods = f"/api/v1/namespaces/{cluster.namespace}/pods"
    _check_claim(cluster, where.claim)
    try:
        cluster.call("POST", pods, reader_pod(name, where, f"{user}@{platform.node()}"))
        _wait(cluster, f"{pods}/{name}", name, say)
        yield name
    except RefusedError as error:
        if error.code in {HTTPStatus.FORBIDDEN, HTTPStatus.UNPROCESSABLE_ENTITY}:
            raise BadInputError(f"the claim {where.claim} cannot be read by a pod: {error}") from None
        raise
    finally:  # Also after Ctrl-C.
        with suppress(ClusterError):
            cluster.call("DELETE", f"{pods}/{name}", {"gracePeriodSeconds": 0})


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # In many containers the user has no name.
        return str(os.getuid())


def _check_claim(cluster: Cluster, claim: str) -> None:
    try:
        cluster.call("GET", f"/api/v1/namespaces/{cluster.namespace}/persistentvolumeclaims/{claim}")
    except RefusedError as error:
        if error.code != HTTPStatus.NOT_FOUND:  # Who may not see claims may still use them.
            return
        raise BadInputError(f"there is no claim {claim} in namespace {cluster.namespace}") from None


def _wait(cluster: Cluster, path: str, name: str, say: Callable[[str], None]) -> None:
    """Waits until the pod answers.

    Raises:
        ClusterError: It does not start.
    """
    begun = said = time.monotonic()
    while True:
        status = cluster.call("GET", path).get("status", {})
        why, hopeless = _state(status)
        if status.get("phase") == "Running":
            try:
                cluster.ask_pod(name, PORT, "/names")
            except UnreachableError as error:  # Python has not started yet.
                why = str(error)
            else:
                return
        now = time.monotonic()
        if hopeless or now - begun > START_SECONDS:
            raise ClusterError(f"the pod {name}, which reads the claim, does not start: {why}")
        if now - said > SAY_SECONDS:
            said = now
            say(f"waiting for the pod {name}, which reads the claim: {why}")
        time.sleep(LOOK_SECONDS)


def _state(status: Document) -> tuple[str, bool]:
    """What a pod waits for, and whether it waits in vain."""
    containers: list[dict[str, Any]] = status.get("containerStatuses", [])
    state = containers[0].get("state", {}) if containers else {}
    if waits := state.get("waiting"):
        reason = waits.get("reason", "")
        return f"{reason}: {waits['message']}" if waits.get("message") else reason, reason in WRONG
    if status.get("phase") in {"Failed", "Succeeded"}:
        ended = state.get("terminated", {})
        return ended.get("message") or status.get("message") or f"it ended with {ended.get('exitCode')}", True
    conditions: list[dict[str, Any]] = status.get("conditions", [])
    unplaced = (one.get("message") for one in conditions if one.get("type") == "PodScheduled")
    return next(unplaced, None) or "it is not running yet", False
