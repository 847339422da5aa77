"""Adds to a job's pods the code, packages, resources and volumes that options of `ddpjob submit` name."""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

from ddpjob_operator.api import BadInputError, Cause
from ddpjob_operator.api.contract import CLASS_LABEL, CODE_KEY, CODE_VOLUME, QUEUE_LABEL
from ddpjob_operator.api.entrypoint import check
from ddpjob_operator.api.expansion import literal
from ddpjob_operator.api.option_names import option
from ddpjob_operator.api.resources import without_devices
from ddpjob_operator.api.spec import is_url
from ddpjob_operator.client.pods import INSTALL_CONTAINER

QUANTITY = re.compile(r"(\d+|\d*\.\d+)(m|k|[KMGTPE]i?)?")
LABEL = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
SECRET = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
GPU = "nvidia.com/gpu"

CODE_DIRECTORY = "/ddpjob/code"
"""The directory into which the code is unpacked, and in which the program runs."""
ARCHIVE_DIRECTORY = "/ddpjob/archive"
FILES_VOLUME = "code"
ARCHIVE_MOUNT = {"name": CODE_VOLUME, "mountPath": ARCHIVE_DIRECTORY, "readOnly": True}
UNPACK_CONTAINER = "unpack-code"
NO_PYTHON = json.dumps(
    {
        "cause": Cause.CONFIG_ERROR,
        "message": "there is no python in the image; submit needs one to unpack code and to install packages",
    }
)
"""A failure report, printed as the last line of the log. Its cause keeps the job from being restarted in vain."""

PACKAGES_DIRECTORY = "/ddpjob/packages"
"""The directory into which packages are installed: a virtual environment."""
PACKAGES_PATH = f"{PACKAGES_DIRECTORY}/site"
PACKAGES_VOLUME = "packages"
INSTALL_PACKAGE = "ddpjob_supervisor.node"
"""Where the source of the program is that installs packages: supervisors of held nodes run it too."""
PATH = "PYTHONPATH"

SHELL = """\
for python in python3 python; do
  command -v "$python" >/dev/null && exec "$python" "$@"
done
echo "$0" >&2
exit 2
"""

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class PodOptions:
    """The options of `ddpjob submit` for pods; an option that is None or empty leaves the pod unchanged."""

    gpus_per_node: int | None = None
    cpu: str | None = None
    memory: str | None = None
    volumes: Sequence[str] = ()
    """Each has the form `CLAIM:/path`."""
    image_volumes: Sequence[str] = ()
    """Each has the form `IMAGE:/path`."""
    queue: str | None = None
    code: Json | None = None
    """The volume with the archive of the code: a volume source as in a pod's `volumes`, without `name`."""
    works_in_code: bool = True
    """Whether the code that is sent contains the program, which then runs in CODE_DIRECTORY. Otherwise only a
    requirements file is sent."""
    packages: Sequence[str] = ()
    """The arguments of `pip install`."""
    secrets: Sequence[str] = ()
    """The names of Secrets whose keys are variables of the trainer."""
    class_name: str | None = None


def checkpoint_on(text: str | None) -> Json:
    """`spec.checkpoint` for a `CLAIM:/path` or a URL. With None, checkpoints are deleted with their pod.

    Raises:
        BadInputError: `text` has neither form.
    """
    if text is None:
        return {"path": "/checkpoints"}
    if is_url(text):
        return {"path": text}
    claim, path = _split("checkpoint", "CLAIM", text, ", or a URL such as s3://BUCKET/PATH")
    return {"path": path, "volume": _claim(claim)}


def with_pod_options(document: Json, wanted: PodOptions) -> Json:
    """Applies the options to the pods of a job; returns the changed job.

    Raises:
        BadInputError: an option is wrong, or the resulting job is invalid.
    """
    pod = document["spec"]["template"]["spec"]
    trainer, *others = pod["containers"]
    volumes, mounts = [*_volumes(wanted)], [*_mounts(wanted)]
    _check_places([mount["mountPath"] for mount in mounts])
    trainer = trainer | _set(
        envFrom=_secrets(wanted) or None,
        resources=_resources(wanted),
        workingDir=CODE_DIRECTORY if wanted.code and wanted.works_in_code else None,
        volumeMounts=mounts or None,
    )
    before = [
        *([_unpacking(trainer)] if wanted.code else []),
        *([_installing(wanted, trainer)] if wanted.packages else []),
    ]
    if wanted.packages:
        trainer = _with_packages(trainer)
    pod = pod | _set(
        initContainers=before or None,
        containers=[trainer, *others],
        volumes=volumes or None,
    )
    spec = document["spec"] | {"template": {"spec": pod}}
    placed = document | {"metadata": document["metadata"] | _labels(wanted), "spec": spec}
    check(placed)
    return placed


def _labels(wanted: PodOptions) -> Json:
    labels = {}
    for name, label, value, what in (
        ("queue", QUEUE_LABEL, wanted.queue, "the name of a queue"),
        ("class-name", CLASS_LABEL, wanted.class_name, "the name of a class, such as canary"),
    ):
        if value is None:
            continue
        if not LABEL.fullmatch(value):
            raise BadInputError(f"{option(name, value)}: must be {what}")
        labels[label] = value
    return {"labels": labels} if labels else {}


def _secrets(wanted: PodOptions) -> list[Json]:
    for name in wanted.secrets:
        if not SECRET.fullmatch(name):
            raise BadInputError(f"{option('env-from', name)}: must be the name of a Secret, such as checkpoint-store")
    return [{"secretRef": {"name": name}} for name in dict.fromkeys(wanted.secrets)]


def _resources(wanted: PodOptions) -> Json | None:
    """Resources whose requests equal their limits, so that the scheduler reserves all that a pod may use."""
    for flag, amount in (("cpu", wanted.cpu), ("memory", wanted.memory)):
        if amount is not None and not QUANTITY.fullmatch(amount):
            raise BadInputError(f"{option(flag, amount)}: must be a Kubernetes quantity, such as 4, 500m or 16Gi")
    if wanted.gpus_per_node is not None and wanted.gpus_per_node < 0:
        raise BadInputError(f"{option('gpus-per-node', wanted.gpus_per_node)}: must not be less than 0")
    asked = _set(cpu=wanted.cpu, memory=wanted.memory) | ({GPU: wanted.gpus_per_node} if wanted.gpus_per_node else {})
    return {"requests": asked, "limits": dict(asked)} if asked else None


def _volumes(wanted: PodOptions) -> Iterator[Json]:
    if wanted.code:
        yield {"name": FILES_VOLUME, "emptyDir": {}}
        yield {"name": CODE_VOLUME, **wanted.code}
    if wanted.packages:
        yield {"name": PACKAGES_VOLUME, "emptyDir": {}}
    for name, source, _ in _mounted(wanted):
        yield {"name": name, **source}


def _mounts(wanted: PodOptions) -> Iterator[Json]:
    if wanted.code:
        yield {"name": FILES_VOLUME, "mountPath": CODE_DIRECTORY}
    if wanted.code and wanted.works_in_code:
        yield {**ARCHIVE_MOUNT}  # Supervisors need the archive to replace the code in place.
    for name, _, path in _mounted(wanted):
        yield {"name": name, "mountPath": path}


def _check_places(paths: list[str]) -> None:
    if twice := sorted({path for path in paths if paths.count(path) > 1}):
        raise BadInputError(f"two volumes cannot be mounted at {twice[0]}; choose another path for one of them")


def _mounted(wanted: PodOptions) -> Iterator[tuple[str, Json, str]]:
    """Name, source and mount path of each volume that --volume or --image-volume names."""
    kinds: tuple[tuple[str, str, Sequence[str], Callable[[str], Json]], ...] = (
        ("volume", "CLAIM", wanted.volumes, _claim),
        ("image-volume", "IMAGE", wanted.image_volumes, lambda image: {"image": {"reference": image}}),
    )
    for flag, what, texts, source in kinds:
        for number, text in enumerate(texts):
            origin, path = _split(flag, what, text)
            yield f"{flag}-{number}", source(origin), path


def _split(flag: str, what: str, text: str, otherwise: str = "") -> tuple[str, str]:
    origin, colon, path = text.rpartition(":")
    if not colon or not origin or not path.startswith("/"):
        raise BadInputError(
            f"{option(flag, text)}: must be {what}:/path, where {what} is mounted at /path{otherwise}"
        )
    return origin, path


def _claim(name: str) -> Json:
    return {"persistentVolumeClaim": {"claimName": name}}


def _unpacking(trainer: Json) -> Json:
    """The init container that unpacks the code. It names no image, so the operator gives it the trainer's image."""
    archive = f"{ARCHIVE_DIRECTORY}/{CODE_KEY}"
    return {
        "name": UNPACK_CONTAINER,
        "command": ["sh", "-c", SHELL, NO_PYTHON, "-ISc", _text("unpack.py"), archive, CODE_DIRECTORY],
        **without_devices(trainer),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [
            {"name": FILES_VOLUME, "mountPath": CODE_DIRECTORY},
            {**ARCHIVE_MOUNT},
        ],
    }


def _installing(wanted: PodOptions, trainer: Json) -> Json:
    """The init container that installs packages.

    It has the trainer's variables, working directory, volumes and resources, except GPUs.
    """
    own = trainer.get("env", [])
    return {
        "name": INSTALL_CONTAINER,
        "command": ["sh", "-c", SHELL, NO_PYTHON, "-c", _text("install.py", INSTALL_PACKAGE), PACKAGES_DIRECTORY],
        "args": [literal(package) for package in wanted.packages],
        **_set(
            workingDir=trainer.get("workingDir"),
            env=(_with_path(own) if any(variable["name"] == PATH for variable in own) else own) or None,
            envFrom=trainer.get("envFrom"),
        ),
        **without_devices(trainer),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [
            *trainer.get("volumeMounts", ()),
            {"name": PACKAGES_VOLUME, "mountPath": PACKAGES_DIRECTORY},
        ],
    }


def _with_packages(trainer: Json) -> Json:
    """The trainer with the installed packages on its PYTHONPATH, mounted read-only."""
    mount = {"name": PACKAGES_VOLUME, "mountPath": PACKAGES_DIRECTORY, "readOnly": True}
    mounts = [*trainer.get("volumeMounts", ()), mount]
    return trainer | {"env": _with_path(trainer.get("env", [])), "volumeMounts": mounts}


def _with_path(env: Sequence[Json]) -> list[Json]:
    """The variables with the packages' directory at the end of PYTHONPATH, after the user's own directories."""
    own = [variable["value"] for variable in env if variable["name"] == PATH and variable["value"]]
    others = [variable for variable in env if variable["name"] != PATH]
    return [*others, {"name": PATH, "value": ":".join([*own[-1:], PACKAGES_PATH])}]


def _text(name: str, package: str = "ddpjob_operator.client") -> str:
    """The source of a program that runs in the pod. It must not contain `$(NAME)`, which Kubernetes would expand."""
    return resources.files(package).joinpath(name).read_text(encoding="utf-8")


def _set(**fields: Any) -> Json:
    return {field: value for field, value in fields.items() if value is not None}
