"""Translates a pod into a process of this machine that resembles what a kubelet and a container runtime would start.

The process gets the pod's environment with three replacements: names and addresses of pods become loopback addresses,
ports become free ports, and paths of volume mounts become directories of the run.
"""

import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Address
from pathlib import Path

from ddpjob_operator.api import BadInputError
from ddpjob_operator.api.contract import CONTRACT_VARIABLES, TRAINER_CONTAINER, Env, Label
from ddpjob_operator.api.trace_context import TRACE_ANNOTATIONS
from ddpjob_operator.engine import ANNOTATIONS_VOLUME, SECRET_VOLUME, WAIT_CONTAINER, Manifest, by_name

from .run_directory import RunDirectory

LOOPBACK = "127.0.0.1"
MANY_ADDRESSES = sys.platform == "linux"
"""Whether each node can listen on a different loopback address. Only Linux has several loopback addresses. On other
systems all supervisors share one address, which therefore does not identify them."""
REFERENCE = re.compile(r"\$\$|\$\(([^()]+)\)")
TERMINATION_LOG = "termination.log"
NOT_USED = ("envFrom",)
NOT_HERE = ("configMap", "secret", "projected", "downwardAPI")


@dataclass(frozen=True, slots=True)
class Ports:
    """The ports on which a gang listens."""

    master: int
    status: int
    control: int


@dataclass(frozen=True)
class Machine:
    """The resources of this machine that a pod's process gets."""

    work: Path
    """The ranks' working directory if the pod's workingDir does not exist on this machine."""
    ports: Ports
    threads: int
    """Number of threads of each training process, so that all processes together use this machine's cores."""
    visible_devices: str | None = None
    """Value for CUDA_VISIBLE_DEVICES; None leaves the variable unchanged."""
    attached: int | None = None
    """The rank that gets a terminal; None: none does."""
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)


@dataclass
class ProcessSpec:
    """How to start a pod's process, and notices about its differences from the pod."""

    argv: list[str]
    env: dict[str, str]
    directory: Path
    """The working directory of the process."""
    needed: list[Path]
    """Directories that must exist before the process starts."""
    notices: list[str]


def translate(pod: Manifest, run: RunDirectory, pod_directory: Path, machine: Machine) -> ProcessSpec:
    """Translates a pod's trainer container into a process.

    Raises:
        BadInputError: the pod needs something that only a cluster has.
    """
    container = next(candidate for candidate in pod["spec"]["containers"] if candidate["name"] == TRAINER_CONTAINER)
    # Several variables are packed into one. They are unpacked because some of them get new values here, and others
    # are compared to find leftover processes of a pod.
    container = {**container, "env": [*by_name(container["env"])]}
    paths = _Paths.of(pod["spec"], container, run, pod_directory)
    directory = _directory(container, machine, paths)
    env = _environment(pod, container, machine, paths, directory) | {Env.RUN_DIR: str(run.root.absolute())}
    if machine.attached is not None:
        env[Env.ATTACH] = str(machine.attached)
    if not container.get("command"):
        raise BadInputError(
            "spec.template.spec.containers[trainer].command: is missing; on this machine there is no image "
            "whose entrypoint could be used"
        )
    words = [*container["command"], *container.get("args", [])]
    names = (*(variable["name"] for variable in container["env"]), Env.RUN_DIR)
    declared = {name: env[name] for name in names}
    argv = [paths.rewritten(_expanded(word, declared.get), "argument") for word in words]
    return ProcessSpec(argv, env, directory, paths.needed, [*_unused(pod["spec"]), *paths.notices])


def _directory(container: Manifest, machine: Machine, paths: "_Paths") -> Path:
    """The container's workingDir if it is in a volume or exists on this machine, otherwise `machine.work`.

    Raises:
        BadInputError: workingDir is not an absolute path.
    """
    wanted = container.get("workingDir")
    if not wanted:
        return machine.work
    here = Path(paths.rewritten(wanted, "workingDir"))
    if here != Path(wanted):  # In a volume, create the directory, as a container runtime does.
        paths.needed.append(here)
        return here
    if not here.is_absolute():
        raise BadInputError(
            f"spec.template.spec.containers[trainer].workingDir: {wanted!r} must be an absolute path, "
            f"because a container needs one; on this machine: {machine.work / here}"
        )
    if here.is_dir():
        return here
    paths.notices.append(f"workingDir {wanted} does not exist on this machine; the ranks run in {machine.work}")
    return machine.work


def _environment(
    pod: Manifest, container: Manifest, machine: Machine, paths: "_Paths", directory: Path
) -> dict[str, str]:
    """This machine's environment, in place of the image's, with the container's variables added in their order."""
    given = CONTRACT_VARIABLES | TRACE_ANNOTATIONS.keys()  # They come from the job or not at all, as in a pod.
    env = {name: value for name, value in machine.environment.items() if name not in given}
    env["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), env.get("PATH", os.defpath)])
    env.setdefault("OMP_NUM_THREADS", str(machine.threads))
    if machine.visible_devices is not None:
        env["CUDA_VISIBLE_DEVICES"] = machine.visible_devices
    here = _network(pod, container, machine.ports)
    declared: dict[str, str] = {}
    for variable in container["env"]:
        name = variable["name"]
        value = here.get(name) or _expanded(_value(variable, pod, machine), declared.get)
        declared[name] = paths.rewritten(value, name)
    return env | {Env.LISTEN_ADDR: address_of(pod)} | declared | {"PWD": str(directory)}


def address_of(pod: Manifest) -> str:
    """The address on which a pod listens: 127.0.0.1 for rank 0, 127.0.0.2 for rank 1 and so on."""
    return str(IPv4Address(LOOPBACK) + _node(pod)) if MANY_ADDRESSES else LOOPBACK


def _network(pod: Manifest, container: Manifest, ports: Ports) -> dict[str, str]:
    """The values on this machine of the variables for addresses and ports."""
    peers = next((variable["value"] for variable in container["env"] if variable["name"] == Env.PEERS), "")
    hosts = [peer.rpartition(":")[0] for peer in peers.split(",") if peer]
    here = {
        Env.MASTER_ADDR: LOOPBACK,
        Env.PET_MASTER_ADDR: LOOPBACK,
        Env.MASTER_PORT: str(ports.master),
        Env.PET_MASTER_PORT: str(ports.master),
        Env.STATUS_PORT: str(ports.status),
        Env.CONTROL_PORT: str(ports.control),
        Env.PEERS: ",".join(f"{host if _is_here(host) else LOOPBACK}:{ports.control}" for host in hosts),
    }
    if MANY_ADDRESSES:
        return here
    own = {} if _node(pod) == 0 else {Env.STATUS_PORT: "0", Env.CONTROL_PORT: "0"}  # 0 means any free port.
    return here | own | {Env.IN_PLACE_RESTARTS: "0"}


def _node(pod: Manifest) -> int:
    return int(pod["metadata"]["labels"][Label.NODE])


def _is_here(host: str) -> bool:
    """Whether a host is the loopback address of a local pod, as opposed to the DNS name of rank 0."""
    return host.startswith("127.")


def _value(variable: Manifest, pod: Manifest, machine: Machine) -> str:
    if "valueFrom" not in variable:
        return str(variable.get("value", ""))
    name, source = variable["name"], variable["valueFrom"]
    field_path = source.get("fieldRef", {}).get("fieldPath", "")
    if field_path in {"metadata.name", "metadata.namespace"}:
        return str(pod["metadata"][field_path.removeprefix("metadata.")])
    if field_path == "status.podIP":
        return address_of(pod)
    if field_path == "status.hostIP":
        return LOOPBACK
    if name in machine.environment:
        return machine.environment[name]
    raise BadInputError(
        f"variable {name} comes from {', '.join(source)}, which only a cluster has; set {name} in your shell"
    )


@dataclass
class _Paths:
    """Maps the container's paths to paths on this machine."""

    places: dict[str, Path]
    needed: list[Path]
    """Directories that must exist before the process starts."""
    notices: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, spec: Manifest, container: Manifest, run: RunDirectory, pod_directory: Path) -> "_Paths":
        volumes = {volume["name"]: volume for volume in spec.get("volumes", [])}
        places = {
            mount["mountPath"].rstrip("/"): _place(volumes[mount["name"]], run, pod_directory)
            / mount.get("subPath", "")
            for mount in container.get("volumeMounts", [])
            if mount["mountPath"] != "/dev/shm"  # noqa: S108  This machine has its own.
        }
        needed = list(places.values())
        contract = {variable["name"]: variable.get("value", "") for variable in container["env"]}
        places[_expanded(contract[Env.TERMINATION_LOG], contract.get)] = pod_directory / TERMINATION_LOG
        return cls(places, needed)

    def rewritten(self, text: str, what: str) -> str:
        """Replaces a container path by the local path. `text` is the path, or an option such as `--dir=PATH`.

        `what` is what a notice calls the text: `argument`, `workingDir`, or the name of a variable.
        """
        head, equals, tail = text.rpartition("=") if text.startswith("-") else ("", "", text)
        for mount, place in sorted(self.places.items(), key=lambda item: -len(item[0])):
            if _inside(tail, mount):
                here = f"{place}{tail[len(mount) :]}"
                if what not in CONTRACT_VARIABLES and here != tail:
                    self.notices.append(f"{what} {text}: {mount} is {place} here")
                return f"{head}{equals}{here}"
        return text


def _place(volume: Manifest, run: RunDirectory, pod_directory: Path) -> Path:
    name: str = volume["name"]
    if name == SECRET_VOLUME:
        return run.secrets
    if name == ANNOTATIONS_VOLUME:
        return annotations(pod_directory)
    if "emptyDir" in volume:
        return pod_directory / "volumes" / name
    source = volume.get("hostPath", {})
    host = Path(str(source.get("path", "")))
    if host.is_absolute() and (host.is_dir() or source.get("type") == "DirectoryOrCreate"):
        return host
    return run.volumes / str(volume.get("persistentVolumeClaim", {}).get("claimName", name))


def annotations(pod_directory: Path) -> Path:
    """The directory in which a pod's supervisor finds annotations of its pod."""
    return pod_directory / "annotations"


def _inside(path: str, mount: str) -> bool:
    return path == mount or path.startswith(f"{mount}/")


def _expanded(text: str, lookup: Callable[[str], str | None]) -> str:
    """Expands `$(NAME)` as the kubelet does. References to unknown names stay unchanged, and `$$` becomes `$`."""

    def one(match: re.Match[str]) -> str:
        if match.group() == "$$":
            return "$"
        value = lookup(match.group(1))
        return match.group() if value is None else value

    return REFERENCE.sub(one, text)


def _unused(spec: Manifest) -> Iterator[str]:
    for kind in ("initContainers", "containers"):
        for container in spec.get(kind, []):
            if container["name"] == WAIT_CONTAINER:
                continue  # Not needed on one machine: a rank that starts early retries its connection.
            if container["name"] != TRAINER_CONTAINER:
                yield f"container {container['name']} is not run on this machine"
                continue
            for field_name in NOT_USED:
                if field_name in container:
                    yield f"{field_name} of the trainer container is not used on this machine"
    for volume in spec.get("volumes", []):
        if volume["name"] in {SECRET_VOLUME, ANNOTATIONS_VOLUME}:
            continue
        for kind in NOT_HERE:
            if kind in volume:
                yield f"volume {volume['name']} ({kind}) is an empty directory on this machine"
