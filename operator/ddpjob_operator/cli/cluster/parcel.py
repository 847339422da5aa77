"""What `ddpjob submit SCRIPT` brings to a cluster: a job, and the code that it runs."""

import argparse
import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ddpjob_operator.api import BadInputError
from ddpjob_operator.api.contract import SUPERVISE
from ddpjob_operator.api.entrypoint import Entrypoint, Options, document_of, module
from ddpjob_operator.api.launchers import Size, launcher_of
from ddpjob_operator.api.secrecy import SECRET_NAME
from ddpjob_operator.api.words import counted
from ddpjob_operator.cli import program
from ddpjob_operator.client import Document
from ddpjob_operator.client.archive import pack, readable
from ddpjob_operator.client.code import DIGEST, config_map
from ddpjob_operator.client.source import SUSPECT, Source, read_file, read_folder

from .packages import with_packages, within
from .pod_options import PodOptions, checkpoint_on, with_pod_options

NAMED = 20
"""This many files are named; the others are only counted."""
FIRST = 5
"""This many of those that do not travel."""


@dataclass(frozen=True)
class Parcel:
    """A job and its code, not yet created."""

    document: Document
    code: Document | None
    """The ConfigMap with the code; None if all of it is in the image."""
    told: tuple[str, ...] = ()
    """What is sent and what is not, in lines for people."""
    file: Path | None = None
    """The YAML file that it was read from; None for a program."""


def parcel(given: argparse.Namespace, namespace: str) -> Parcel:
    """The job that the arguments describe, for a namespace.

    Raises:
        BadInputError: there is no such program, it is too large to send, or an option is wrong.
    """
    if given.include and given.source is None and given.target is None:
        raise BadInputError("--include is for files of the --source folder; add --source FOLDER")
    folder = read_folder(given.source, given.include) if given.source is not None else None
    entrypoint = _entrypoint(given)
    program_here = folder or (read_file(Path(given.target), given.include) if given.target is not None else None)
    source, packages = with_packages(given, program_here)
    gpus = given.gpus_per_node or 0
    per_gpu = gpus or None if launcher_of(entrypoint.command) else None  # Others leave it to the job: Auto.
    options = Options(
        image=given.image,
        name=given.name,
        size=Size(given.nodes, given.procs_per_node or per_gpu),
        gpus=gpus * (given.nodes or 1),
        env=given.env,
        max_restarts=given.max_restarts,
        checkpoint=checkpoint_on(given.checkpoint),
    )
    code = config_map(pack(source.files), namespace) if source else None
    wanted = PodOptions(
        gpus_per_node=given.gpus_per_node,
        cpu=given.cpu,
        memory=given.memory,
        volumes=given.volume,
        image_volumes=given.image_volume,
        queue=given.queue,
        code=code["metadata"]["name"] if code else None,
        works_in_code=program_here is not None,
        packages=packages,
    )
    document = with_pod_options(document_of(entrypoint, options), wanted)
    marks = {"annotations": {DIGEST: code["metadata"]["annotations"][DIGEST]}} if code else {}
    document["metadata"] |= {"namespace": namespace, **marks}
    told = (*_packed(source, whole=given.dry_run), *_beside(given)) if source else ()
    told += tuple(_readable(given.env))
    return Parcel(document, code, told)


def _entrypoint(given: argparse.Namespace) -> Entrypoint:
    """With paths as they are in the pod."""
    words: Sequence[str] = given.program or ()
    if given.module is not None:
        return module(given.module, words)  # Perhaps it is only in the image.
    found = program.entrypoint(given)
    if given.target is None:
        _check_travels(words, given.source)
        return found
    path = Path(given.target)
    return replace(found, command=(SUPERVISE, path.name if given.source is None else within(path, given.source)))


def _check_travels(words: Sequence[str], source: Path | None) -> None:
    """A script that a command names is here; it is in the pod only if its folder is sent."""
    here = [word for word in words if word.endswith(".py") and not Path(word).is_absolute() and Path(word).is_file()]
    if here and source is None:
        raise BadInputError(f"{here[0]} would not be sent; to send it with its folder: --source .")


def _packed(source: Source, *, whole: bool) -> Iterator[str]:
    """What travels and what does not; the first of each or, as a dry run has it, the whole of it."""
    names = sorted(file.name for file in source.files)
    size = readable(sum(len(file.content) for file in source.files))
    yield f"packed {counted(len(names), 'file')}, {size}: {_named(names, NAMED, whole=whole)}"
    secret = sorted(name for name, reason in source.left_out.items() if reason == SUSPECT)
    others = sorted(f"{name} ({reason})" for name, reason in source.left_out.items() if reason != SUSPECT)
    if secret:
        named = _named(secret, FIRST, whole=whole)
        yield f"not packed, because {'they' if len(secret) > 1 else 'it'} may hold secrets ({len(secret)}): {named}"
        yield "To send one anyway: --include FILE. Values that only the job should know belong in a Secret"
    if others:
        yield f"not packed: {_named(others, FIRST, whole=whole)}"
    if not whole and max(len(secret), len(others)) > FIRST:
        yield "All of them: --dry-run"


def _named(names: Sequence[str], most: int, *, whole: bool) -> str:
    more = f" and {len(names) - most} more" if len(names) > most and not whole else ""
    return f"{', '.join(names if whole else names[:most])}{more}"


def _readable(env: Sequence[str]) -> Iterator[str]:
    """Which variables everybody sees who may see the job."""
    if seen := [name for name in (one.partition("=")[0] for one in env) if SECRET_NAME.search(name)]:
        yield f"everyone who may see the job can read {', '.join(seen)}; put secret values into a Secret"


def _beside(given: argparse.Namespace) -> Iterator[str]:
    """What a script that is sent alone imports from the folder that it leaves."""
    if given.source is not None or given.target is None:
        return
    script = Path(given.target)
    there = [name for name in sorted(_imported(script)) if _is_module(script.parent / name)]
    if there:
        names = ", ".join(there)
        yield f"{script} imports {names} from its folder, which is not sent; to send it: --source {script.parent}"


def _imported(script: Path) -> set[str]:
    """The first parts of the names that it imports."""
    nodes = [*ast.walk(ast.parse(script.read_bytes()))]
    plain = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    out_of = {node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module and not node.level}
    return {name.partition(".")[0] for name in plain | out_of}


def _is_module(path: Path) -> bool:
    return path.with_name(f"{path.name}.py").is_file() or (path / "__init__.py").is_file()
