"""Makes a pod comply with Kubernetes' restricted Pod Security Standard, and able to work under the restrictions.

The template's own fields take precedence. The user is set on each container, never on the pod, so that a container of
the template can run as root beside ours, and injected containers are left alone.
"""

from ddpjob_operator.engine.snapshot import Manifest

USER = 1000
SCRATCH_VOLUME = "ddpjob-scratch"
HOME_PATH = "/ddpjob/home"
TMP_PATH = "/tmp"  # noqa: S108  Programs that ignore TMPDIR write here.
PLACES = (("HOME", HOME_PATH, "home"), ("TMPDIR", TMP_PATH, "tmp"))
"""Variable, path, and subdirectory of the scratch volume. The volume is needed because an image has no home directory
for our user, and may be read-only."""

USER_NAME = "ddpjob"
"""The value of USER. Without a user name, Python's getpass fails, and with it torch.compile in older releases."""


def restrict(pod: Manifest) -> None:
    """Sets all fields of the pod's spec that the standard requires, except those that the template sets."""
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
    """Returns a container's user and privileges, except those that the container sets itself."""
    given: Manifest = {}
    if not _is_root(own):
        given["runAsNonRoot"] = True
        if "runAsUser" not in own:
            given |= {"runAsUser": USER, "runAsGroup": USER}
    if not own.get("privileged"):
        # Without privilege escalation, added capabilities would have no effect for users other than root, because
        # they get capabilities only from the files that they execute.
        if not own.get("capabilities", {}).get("add"):
            given["allowPrivilegeEscalation"] = False
        given["capabilities"] = {"drop": ["ALL"]}
    return {name: value for name, value in given.items() if name not in own}


def _is_root(own: Manifest) -> bool:
    """Whether the template requests root, or allows the image's user to be root."""
    if "runAsUser" in own:
        return bool(own["runAsUser"] == 0)
    return own.get("runAsNonRoot") is False


def _give_places(container: Manifest) -> None:
    """Gives a container its own home directory and its own directory for temporary files."""
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
