"""A history on a volume claim, which a pod shows while this command runs."""

import base64
import re
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import PurePosixPath
from urllib.parse import urlencode

from ddpjob_operator.api import BadInputError, DDPJob, PodSecurity
from ddpjob_operator.api.spec import is_url
from ddpjob_operator.cli.phrases import say
from ddpjob_operator.client import Claimed, Cluster, ClusterError, Document, Jobs, as_job, connect, reading
from ddpjob_operator.client.reader_pod import PORT, USER
from ddpjob_operator.engine import history_of, no_history
from ddpjob_operator.history import HistoryPlace, PlaceError

ADDRESS = re.compile(
    r"pvc://(?:(?P<user>[0-9]{1,10})@)?(?P<claim>[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?)(?P<path>/[^\x00-\x1f?#]{0,1024})?"
)

ROOT = 0
"""The user of most public images, and so of pods whose user only the image knows."""


class ClaimPlace(HistoryPlace):
    """A directory on a volume claim."""

    def __init__(self, cluster: Cluster, pod: str, address: str) -> None:
        self._cluster, self._pod, self._address = cluster, pod, address
        self._listed: dict[str, Document] = {}

    def __str__(self) -> str:
        return self._address

    def read(self, path: str, limit: int) -> bytes | None:
        """As `HistoryPlace.read`."""
        content = self._ask("/read", path, limit).get("content")
        try:
            return None if content is None else base64.b64decode(content, validate=True)[:limit]
        except (TypeError, ValueError):
            raise self._odd() from None

    def first_files(self, path: str) -> Iterator[str]:
        """As `HistoryPlace.first_files`."""
        return iter(self.files(path))

    def _names(self, path: str, *, folders: bool) -> list[str]:
        if path not in self._listed:
            self._listed[path] = self._ask("/names", path)
        names = self._listed[path].get("folders" if folders else "files", [])
        if not isinstance(names, list):
            raise self._odd()
        return sorted(name for name in names if isinstance(name, str))

    def _odd(self) -> PlaceError:
        return PlaceError(f"cannot read {self}: the pod's answer is not understood")

    def _ask(self, what: str, path: str, limit: int = 0) -> Document:
        try:
            answer = self._cluster.ask_pod(self._pod, PORT, f"{what}?{urlencode({'path': path, 'limit': limit})}")
        except ClusterError as error:
            raise PlaceError(f"cannot read {self}: {error}") from None
        if "error" in answer:
            raise PlaceError(f"cannot read {self}/{path}: {answer['error']}")
        return answer


@contextmanager
def opened_claim(arguments: Namespace, namespace: str | None, name: str | None) -> Iterator[HistoryPlace]:
    """Opens the claim that `--history` names, for as long as the block runs; `name` is of a job that has an image.

    Raises:
        BadInputError: The address is wrong, or no image is known.
        PlaceError: The claim cannot be read.
    """
    _parts(arguments.history)
    cluster = connect(getattr(arguments, "kubeconfig", None), getattr(arguments, "context", None), namespace)
    image, secrets = (arguments.reader_image, ()) if arguments.reader_image else _image_of(Jobs(cluster), name)
    with opened_address(cluster, arguments.history, image, secrets) as place:
        yield place


@contextmanager
def opened_address(cluster: Cluster, address: str, image: str, secrets: Sequence[Document]) -> Iterator[HistoryPlace]:
    """Opens a directory on a volume claim, for as long as the block runs, by a pod with this image.

    Raises:
        BadInputError: The address is wrong.
        PlaceError: The claim cannot be read.
    """
    claim, path, user = _parts(address)
    try:
        with reading(cluster, Claimed(claim, path, image, user, secrets), say) as pod:
            yield ClaimPlace(cluster, pod, address.rstrip("/"))
    except ClusterError as error:
        raise PlaceError(str(error)) from None


def _parts(address: str) -> tuple[str, str, int]:
    """The claim, the path on it, and the user who reads it."""
    found = ADDRESS.fullmatch(address)
    if found is None or ".." in PurePosixPath(found["path"] or "/").parts:
        raise BadInputError("--history must be pvc://CLAIM/PATH, or pvc://USER@CLAIM/PATH with the number of a user")
    return found["claim"], (found["path"] or "").strip("/"), int(found["user"] or USER)


def claim_of(job: DDPJob, path: str) -> str | None:
    """The address of a job's directory on a volume claim; None if it is on none."""
    spec, pod, wanted = job.spec, job.spec.template["spec"], PurePosixPath(path)
    sources = {volume["name"]: volume for volume in pod.get("volumes", ())}
    mounts: list[tuple[PurePosixPath, Document, str]] = [
        (PurePosixPath(mount["mountPath"]), sources.get(mount["name"], {}), mount.get("subPath", ""))
        if "subPathExpr" not in mount  # What it stands for, only the pods know.
        else (PurePosixPath(mount["mountPath"]), {}, "")
        for mount in spec.trainer.get("volumeMounts", ())
    ]
    if spec.checkpoint is not None and spec.checkpoint.volume is not None:
        mounts.append((PurePosixPath(spec.checkpoint.path), spec.checkpoint.volume, ""))
    # The innermost mount has the directory.
    around = [mount for mount in mounts if wanted.is_relative_to(mount[0])]
    if not around:
        return None
    at, volume, within = max(around, key=lambda mount: len(mount[0].parts))
    if not (claim := volume.get("persistentVolumeClaim", {}).get("claimName")):
        return None
    user = _user_of(job)
    whose = "" if user == USER else f"{user}@"
    return f"pvc://{whose}{claim}/{PurePosixPath(within, wanted.relative_to(at))}".removesuffix("/.")


def _user_of(job: DDPJob) -> int:
    """The number of the user to whom a job's files belong."""
    pod, trainer = job.spec.template["spec"], job.spec.trainer
    own: Document = {**pod.get("securityContext", {}), **trainer.get("securityContext", {})}
    images_own = job.status.pod_security is PodSecurity.NONE or own.get("runAsNonRoot") is False
    return int(own.get("runAsUser", ROOT if images_own else USER))


def where_history_is(job: DDPJob) -> str:
    """The address by which `--history` reads what is kept of a job, as far as there is one; else why not."""
    path = history_of(job)
    if path is None:
        return f"none: {why_no_history(job)}"
    if is_url(path):
        return path
    return claim_of(job, path) or f"{path}, on a volume that is not a claim"


def why_no_history(job: DDPJob) -> str:
    """Why nothing is kept of a job, as a clause of a sentence."""
    return no_history(job.spec) or "it was started by an operator that keeps one only where history.path is set"


def _image_of(jobs: Jobs, name: str | None) -> tuple[str, Sequence[Document]]:
    """The image of a job that still exists, and the names of the secrets to pull it with.

    Raises:
        BadInputError: There is none.
    """
    try:
        job = as_job(jobs.get(name)) if name else None
    except (BadInputError, ClusterError):
        job = None
    if job is not None and (found := image_of(job)) is not None:
        return found
    raise BadInputError("--reader-image must name an image with Python for the pod that reads the claim")


def image_of(job: DDPJob) -> tuple[str, Sequence[Document]] | None:
    """A job's image, and the names of the secrets to pull it with; None if no image is known."""
    image = job.spec.trainer.get("image") or job.status.trainer_image
    return (str(image), job.spec.template["spec"].get("imagePullSecrets", ())) if image else None
