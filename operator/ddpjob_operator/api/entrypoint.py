"""Makes a DDPJob from a command line: a script, a module or a command, and options such as the number of nodes.

A dry run prints exactly the job that the command would run, because both are made here.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import PurePath
from typing import Any

from .contract import (
    API_VERSION,
    CONTRACT_VARIABLES,
    KIND,
    MAX_NAME_LENGTH,
    SET_BY_US,
    SUPERVISE,
    TRAIN,
    TRAINER_CONTAINER,
)
from .expansion import literal
from .launchers import Size, launcher_of
from .option_names import option
from .problems import BadInputError, Path, Problem
from .spec import HistoryMode

NO_SIZE = Size()

NO_HISTORY = "off"
"""Says that no history is kept, in place of a directory or a URL."""
NAMELESS = "job"
"""The job's name if its script's name contains no letter that is allowed in a DNS label."""
ROOM_FOR_NUMBER = len("-99999")


@dataclass(frozen=True, slots=True)
class Entrypoint:
    """The program that each node runs."""

    command: tuple[str, ...]
    arguments: tuple[str, ...]
    name: str
    """The default name of the job."""


def script(path: str, arguments: Sequence[str] = ()) -> Entrypoint:
    """Returns the entrypoint that runs a Python script under the supervisor."""
    return Entrypoint((SUPERVISE, path), tuple(arguments), job_name(PurePath(path).stem))


def module(name: str, arguments: Sequence[str] = ()) -> Entrypoint:
    """Returns the entrypoint that runs a Python module under the supervisor."""
    return Entrypoint((SUPERVISE, "-m", name), tuple(arguments), _name_of_module(name))


def started(entrypoint: Entrypoint, method: str | None) -> Entrypoint:
    """Sets how a script's or module's ranks are started, `warm` or `cold`; None: the supervisor decides."""
    supervise, *program = entrypoint.command
    return replace(entrypoint, command=(supervise, "--start-method", method, *program)) if method else entrypoint


def command(words: Sequence[str]) -> Entrypoint:
    """Returns the entrypoint that runs any command without a supervisor. `words` must not be empty."""
    return Entrypoint(tuple(words), (), _name_in(words))


@dataclass(frozen=True, slots=True)
class Options:
    """The options besides the entrypoint. An option that was not given is None."""

    image: str | None
    """The image; None: the image that the operator's administrator has set."""
    name: str | None = None
    size: Size = NO_SIZE
    gpus: int = 0
    """The total number of GPUs on all nodes; 0 if there are none, or if the number is unknown."""
    env: Sequence[str] = ()
    """Environment variables, each as `NAME=VALUE`."""
    max_restarts: int | None = None
    checkpoint: dict[str, Any] | None = None
    """The field `spec.checkpoint`."""
    history: str | None = None
    """The directory or the URL for `spec.history.path`, or NO_HISTORY."""


OPTIONS: dict[Path, str] = {
    ("metadata", "name"): "name",
    ("spec", "nodes"): "nodes",
    ("spec", "procsPerNode"): "procs-per-node",
    ("spec", "restart", "maxRestarts"): "max-restarts",
    ("spec", "checkpoint", "path"): "checkpoint",
    ("spec", "history", "path"): "history",
    ("spec", "template", "spec", "containers", 0, "env"): "env",
}
"""The option that sets each field, by the field's path."""


def document_of(entrypoint: Entrypoint, options: Options) -> dict[str, Any]:
    """Returns the DDPJob that runs an entrypoint, as a valid document to write to YAML.

    Raises:
        BadInputError: an option is wrong. The text lists all mistakes.
    """
    size = options.size
    if launcher := launcher_of(entrypoint.command):
        size = launcher.size(entrypoint.command, size, options.gpus)
    supervised = entrypoint.command[0].rpartition("/")[2] in {SUPERVISE, TRAIN}
    if options.history not in {None, NO_HISTORY} and not supervised:
        raise BadInputError(
            f"{option('history')} is for scripts, modules and {TRAIN}: other commands have no supervisor that keeps a"
            " history"
        )
    trainer = _set(
        name=TRAINER_CONTAINER,
        image=options.image,
        command=[literal(word) for word in entrypoint.command],
        args=[literal(word) for word in entrypoint.arguments] or None,
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
            history=_history(options.history),
            template={"spec": {"containers": [trainer]}},
        ),
    }
    check(document)
    return document


def check(document: dict[str, Any]) -> None:
    """Checks that a document made from options is a valid DDPJob.

    Raises:
        BadInputError: the document is not valid. For each mistake the text names the wrong option.
    """
    from .validation import problems  # noqa: PLC0415  A tenth of a second, in which `run --on` has started.

    if found := problems(document):
        raise BadInputError("\n  ".join(map(_as_typed, found)))


def job_name(text: str) -> str:
    """Makes a job's name from a text: `My_Train.v2` becomes `my-train-v2`. There is room to append a number."""
    dashed = re.sub(r"[^a-z0-9]+", "-", text.lower()).lstrip("-0123456789")
    return dashed[: MAX_NAME_LENGTH - ROOM_FOR_NUMBER].strip("-") or NAMELESS


def _set(**fields: Any) -> dict[str, Any]:
    return {field: value for field, value in fields.items() if value is not None}


def _history(wanted: str | None) -> dict[str, str] | None:
    if wanted == NO_HISTORY:
        return {"mode": HistoryMode.DISABLED.value}
    return None if wanted is None else {"path": wanted}


def variables(texts: Sequence[str]) -> dict[str, str]:
    """Environment variables by name, for ranks that are started without a document. Each text is `NAME=VALUE`.

    Raises:
        BadInputError: a text is not, or DDPJob itself sets its variable.
    """
    found = dict(map(_divided, texts))
    for name in found:
        if name in CONTRACT_VARIABLES:
            raise BadInputError(f"{option('env')}: {SET_BY_US.format(it=name)}")
    return found


def _variable(text: str) -> dict[str, str]:
    name, value = _divided(text)
    return {"name": name, "value": literal(value)}


def _divided(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise BadInputError(f"{option('env', text)}: must be NAME=VALUE")
    return name, value


def _as_typed(problem: Problem) -> str:
    typed = (name for path, name in OPTIONS.items() if problem.path[: len(path)] == path)
    return next((f"{option(name)}: {problem.message}" for name in typed), str(problem))


def _name_of_module(name: str) -> str:
    *packages, last = name.split(".")
    return job_name(packages[-1] if packages and last == "__main__" else last)


def _name_in(words: Sequence[str]) -> str:
    """Makes a job's name from the name of the script, else of the last module after `-m`, else of the program."""
    script = next((word for word in words if word.endswith(".py")), None)
    modules = [name for flag, name in pairwise(words) if flag == "-m"]
    if script is not None:
        return job_name(PurePath(script).stem)
    return _name_of_module(modules[-1]) if modules else job_name(PurePath(words[0]).stem)
