"""What makes a pod admissible under Kubernetes' restricted Pod Security Standard, and what it then needs to work.

The template wins field by field. The user is set on each container, never on the pod: so a container of the template
can be root beside ours, and a container that somebody else injects is left alone.
"""

from ddpjob_operator.engine.snapshot import Manifest

USER = 1000
SCRATCH_VOLUME = "ddpjob-scratch"
HOME_PATH = "/ddpjob/home"
TMP_PATH = "/tmp"  # noqa: S108  Programs that ignore TMPDIR write here.
PLACES = (("HOME", HOME_PATH, "home"), ("TMPDIR", TMP_PATH, "tmp"))
"""Variable, path, and subdirectory of the scratch volume. An image has no home for our user, and may be read-only."""

USER_NAME = "ddpjob"
"""Python's getpass, and with it torch.compile of older releases, fails if the user has no name anywhere."""


def restrict(pod: Manifest) -> None:
    """Sets what the standard requires in the pod's spec, unless the template sets it."""
    context = {"seccompProfile": {"type": "RuntimeDefault"}, **pod.get("securityContext", {})}
    containers = [*pod.get("initContainers", ()), *pod["containers"]]
    for container in containers:
        own = {**context, **container.get("securityContext", {})}
        container["securityContext"] = {**_confinement(own), **container.get("securityContext", {})}
        if not _is_root(own) or own.get("readOnlyRootFilesystem"):
            _give_places(container)
    # Without an fsGroup, volumes belong to root, and other users cannot write to them.
    if "fsGroup" not in context and not all(_is_root({**context, **one["securityContext"]}) for one in containers):
        context = {"fsGroup": USER, "fsGroupChangePolicy": "OnRootMismatch", **context}
    pod["securityContext"] = context
    if any(_uses_scratch(container) for container in containers):
        pod.setdefault("volumes", []).append({"name": SCRATCH_VOLUME, "emptyDir": {}})


def _confinement(own: Manifest) -> Manifest:
    """The user of a container and what it may do, except what the container sets itself."""
    given: Manifest = {}
    if not _is_root(own):
        given["runAsNonRoot"] = True
        if "runAsUser" not in own:
            given |= {"runAsUser": USER, "runAsGroup": USER}
    if not own.get("privileged"):
        # Forbidding privilege escalation would void added capabilities for users other than root, who get
        # capabilities only from the files that they run.
        if not own.get("capabilities", {}).get("add"):
            given["allowPrivilegeEscalation"] = False
        given["capabilities"] = {"drop": ["ALL"]}
    return {name: value for name, value in given.items() if name not in own}


def _is_root(own: Manifest) -> bool:
    """Whether the template asks for root, or allows the image's user to be root."""
    if "runAsUser" in own:
        return bool(own["runAsUser"] == 0)
    return own.get("runAsNonRoot") is False


def _give_places(container: Manifest) -> None:
    """Gives a container a home and a directory for temporary files of its own."""
    own = container.get("env", [])
    named = {variable["name"] for variable in own}
    mounts = container.setdefault("volumeMounts", [])
    mounted = {mount["mountPath"].rstrip("/") for mount in mounts}
    given = [] if "USER" in named else [{"name": "USER", "value": USER_NAME}]
    for variable, path, part in PLACES:
        if variable in named:
            continue
        given.append({"name": variable, "value": path})
        if path not in mounted:
            place = f"{container['name']}/{part}"
            mounts.append({"name": SCRATCH_VOLUME, "mountPath": path, "subPath": place})
    container["env"] = [*given, *own]


def _uses_scratch(container: Manifest) -> bool:
    return any(mount["name"] == SCRATCH_VOLUME for mount in container.get("volumeMounts", ()))
