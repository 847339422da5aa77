"""Makes a DDPJob from what a person types: a script, a module or a command, and options such as the number of nodes.

A dry run prints exactly what the command would run, because both get the job from here.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import PurePath
from typing import Any

from .contract import API_VERSION, KIND, MAX_NAME_LENGTH, SUPERVISE, TRAINER_CONTAINER
from .launchers import Size, launcher_of
from .problems import BadInputError, Path, Problem
from .validation import problems

NO_SIZE = Size()

NAMELESS = "job"
"""The name of a job if the name of its script has no letter that a DNS label may contain."""
ROOM_FOR_NUMBER = len("-99999")

EXPANDED = re.compile(r"\$(?=[$(])")
"""A `$` that Kubernetes would interpret in commands, arguments and values of variables."""


@dataclass(frozen=True, slots=True)
class Entrypoint:
    """What each node runs."""

    command: tuple[str, ...]
    arguments: tuple[str, ...]
    name: str
    """The default name of its job."""


def script(path: str, arguments: Sequence[str] = ()) -> Entrypoint:
    """A Python script under the supervisor."""
    return Entrypoint((SUPERVISE, path), tuple(arguments), job_name(PurePath(path).stem))


def module(name: str, arguments: Sequence[str] = ()) -> Entrypoint:
    """A Python module under the supervisor."""
    return Entrypoint((SUPERVISE, "-m", name), tuple(arguments), _name_of_module(name))


def started(entrypoint: Entrypoint, method: str | None) -> Entrypoint:
    """The entrypoint of a script or module whose ranks are started `warm` or `cold`; None: the supervisor decides."""
    supervise, *program = entrypoint.command
    return replace(entrypoint, command=(supervise, "--start-method", method, *program)) if method else entrypoint


def command(words: Sequence[str]) -> Entrypoint:
    """Any command, without a supervisor; `words` has at least one item."""
    return Entrypoint(tuple(words), (), _name_in(words))


@dataclass(frozen=True, slots=True)
class Options:
    """Options besides the entrypoint; None: not given."""

    image: str | None
    """None: the image that the operator's administrator has set."""
    name: str | None = None
    size: Size = NO_SIZE
    gpus: int = 0
    """GPUs of all nodes together; 0 if there are none, or if the number is unknown."""
    env: Sequence[str] = ()
    """Each `NAME=VALUE`."""
    max_restarts: int | None = None
    checkpoint: dict[str, Any] | None = None
    """`spec.checkpoint`."""


FLAGS: dict[Path, str] = {
    ("metadata", "name"): "--name",
    ("spec", "nodes"): "--nodes",
    ("spec", "procsPerNode"): "--procs-per-node",
    ("spec", "restart", "maxRestarts"): "--max-restarts",
    ("spec", "checkpoint", "path"): "--checkpoint",
    ("spec", "template", "spec", "containers", 0, "env"): "--env",
}
"""For each field, by its path: the option that sets it."""


def document_of(entrypoint: Entrypoint, options: Options) -> dict[str, Any]:
    """The valid DDPJob that runs an entrypoint, as a document to write to YAML.

    Raises:
        BadInputError: an option is wrong; the text lists all mistakes.
    """
    size = options.size
    if launcher := launcher_of(entrypoint.command):
        size = launcher.size(entrypoint.command, size, options.gpus)
    trainer = _set(
        name=TRAINER_CONTAINER,
        image=options.image,
        command=[*literal(entrypoint.command)],
        args=[*literal(entrypoint.arguments)] or None,
        env=[_variable(text) for text in options.env] or None,
    )
    document = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": entrypoint.name if options.name is None else options.name},
        "spec": _set(
            nodes=size.nodes,
            procsPerNode=size.procs_per_node,
            restart=None if options.max_restarts is None else {"maxRestarts": options.max_restarts},
            checkpoint=options.checkpoint,
            template={"spec": {"containers": [trainer]}},
        ),
    }
    check(document)
    return document


def check(document: dict[str, Any]) -> None:
    """Checks whether a document made from options is a valid DDPJob.

    Raises:
        BadInputError: it is not; for each mistake the text says which option is wrong.
    """
    if found := problems(document):
        raise BadInputError("\n  ".join(map(_as_typed, found)))


def job_name(text: str) -> str:
    """A name for a job: `My_Train.v2` becomes `my-train-v2`. A number can be appended."""
    dashed = re.sub(r"[^a-z0-9]+", "-", text.lower()).lstrip("-0123456789")
    return dashed[: MAX_NAME_LENGTH - ROOM_FOR_NUMBER].strip("-") or NAMELESS


def literal(words: Sequence[str]) -> tuple[str, ...]:
    """The words, escaped so that Kubernetes expands nothing in them: the user's shell has already expanded them."""
    return tuple(EXPANDED.sub("$$", word) for word in words)


def _set(**fields: Any) -> dict[str, Any]:
    return {field: value for field, value in fields.items() if value is not None}


def _variable(text: str) -> dict[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise BadInputError(f"--env {text}: must be NAME=VALUE")
    return {"name": name, "value": literal((value,))[0]}


def _as_typed(problem: Problem) -> str:
    typed = (flag for path, flag in FLAGS.items() if problem.path[: len(path)] == path)
    return next((f"{flag}: {problem.message}" for flag in typed), str(problem))


def _name_of_module(name: str) -> str:
    *packages, last = name.split(".")
    return job_name(packages[-1] if packages and last == "__main__" else last)


def _name_in(words: Sequence[str]) -> str:
    """A name made from that of the script, else of the last module after a `-m`, else of the program."""
    script = next((word for word in words if word.endswith(".py")), None)
    modules = [name for flag, name in pairwise(words) if flag == "-m"]
    if script is not None:
        return job_name(PurePath(script).stem)
    return _name_of_module(modules[-1]) if modules else job_name(PurePath(words[0]).stem)
