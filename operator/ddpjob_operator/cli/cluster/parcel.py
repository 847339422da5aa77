"""Builds what `ddpjob submit SCRIPT` sends to a cluster: a job, and a ConfigMap with the code that it runs."""

import argparse
import ast
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddpjob_operator.api import BadInputError
from ddpjob_operator.api.contract import HOLD, SUPERVISE
from ddpjob_operator.api.entrypoint import Entrypoint, Options, document_of, module, started
from ddpjob_operator.api.launchers import Size, launcher_of
from ddpjob_operator.api.numbers import MOST_SECONDS
from ddpjob_operator.api.option_names import in_python, option
from ddpjob_operator.api.secrecy import SECRET_NAME
from ddpjob_operator.api.words import counted, listed
from ddpjob_operator.cli import program
from ddpjob_operator.client import Document
from ddpjob_operator.client.archive import IN_A_CONFIG_MAP, IN_A_REGISTRY, File, pack, readable
from ddpjob_operator.client.code import DIGEST, config_map
from ddpjob_operator.client.image_registry import CodeImage, Registry
from ddpjob_operator.client.source import SUSPECT, Source, check_holds_no_secret, read_file, read_folder

from .packages import Packages, with_packages, within
from .pod_options import CODE_DIRECTORY, PodOptions, checkpoint_on, with_pod_options

if TYPE_CHECKING:  # Its module imports what runs jobs on this machine.
    from ddpjob_operator.cli.packed import PackedProgram

NAMED = 20
"""How many of the packed files are listed by name; the others are only counted."""
FIRST = 5
"""How many files are listed that may hold secrets, and how many that are left out for other reasons."""


@dataclass(frozen=True)
class Parcel:
    """A job and its code, not yet created."""

    document: Document
    code: Document | None
    """The ConfigMap with the code; None if the image contains all of the code."""
    image: CodeImage | None = None
    """The image with the code, if it goes through a registry."""
    registry: Registry | None = None
    told: tuple[str, ...] = ()
    """Lines to print: what is sent and what is not, and warnings."""
    file: Path | None = None
    """The YAML file that the job was read from; None for a program."""

    def push(self) -> None:
        """Pushes the code to its registry, if it goes through one.

        Raises:
            ClusterError: the registry cannot be reached, or refuses.
        """
        if self.registry is not None and self.image is not None:
            self.registry.push(self.image)


def parcel(given: argparse.Namespace, namespace: str, packed: "PackedProgram | None" = None) -> Parcel:
    """Builds the job that the arguments describe, for a namespace. `packed` is its program, if they do not name it.

    Raises:
        BadInputError: there is no such program, it is too large to send, or an option is wrong.
    """
    if given.include and given.source is None and given.target is None and packed is None:
        raise BadInputError(
            f"{option('include')} is for files of the {option('source')} folder; add {option('source', 'FOLDER')}"
        )
    limit = IN_A_CONFIG_MAP if given.source_registry is None else IN_A_REGISTRY
    folder = read_folder(given.source, given.include, limit) if given.source is not None else None
    entrypoint = _entrypoint(given) if packed is None else packed.entrypoint(given.start_method)
    program_here = folder or (read_file(Path(given.target), given.include) if given.target is not None else None)
    if packed is not None:
        program_here = of_packed(packed, folder, given.include)
    source, packages = with_packages(given, program_here)
    return _parcel(
        entrypoint,
        given,
        namespace,
        source,
        packages,
        works_in_code=program_here is not None,
        already_told=packed.told if packed else (),
    )


def hold_parcel(given: argparse.Namespace, namespace: str) -> Parcel:
    """Builds the job that holds nodes for programs that are sent later.

    Raises:
        BadInputError: an option is wrong.
    """
    if given.idle_timeout > MOST_SECONDS:
        raise BadInputError(f"--idle-timeout: {given.idle_timeout} s is too long; use at most {MOST_SECONDS} s")
    source, packages = with_packages(given, None)
    entrypoint = Entrypoint((SUPERVISE, HOLD, str(given.idle_timeout)), (), given.name)
    made = _parcel(entrypoint, given, namespace, source, packages, works_in_code=False)
    if given.deadline is not None:
        made.document["spec"]["activeDeadlineSeconds"] = given.deadline
    return made


def _parcel(
    entrypoint: Entrypoint,
    given: argparse.Namespace,
    namespace: str,
    source: Source | None,
    packages: Packages,
    *,
    works_in_code: bool,
    already_told: Sequence[str] = (),
) -> Parcel:
    gpus = given.gpus_per_node or 0
    # A launcher needs the number of processes on its command line. For other programs procsPerNode stays unset, so
    # that it defaults to the number of GPUs.
    per_gpu = gpus or None if launcher_of(entrypoint.command) else None
    options = Options(
        image=given.image,
        name=given.name,
        size=Size(given.nodes, given.procs_per_node or per_gpu),
        gpus=gpus * (given.nodes or 1),
        env=given.env,
        max_restarts=given.max_restarts,
        checkpoint=checkpoint_on(given.checkpoint),
        history=given.history,
    )
    registry = None if given.source_registry is None else Registry.at(given.source_registry)
    archive = pack(source.files, IN_A_CONFIG_MAP if registry is None else IN_A_REGISTRY) if source else None
    image = CodeImage.of(archive) if archive and registry else None
    code = config_map(archive, namespace) if archive and image is None else None
    wanted = PodOptions(
        gpus_per_node=given.gpus_per_node,
        cpu=given.cpu,
        memory=given.memory,
        volumes=given.volume,
        image_volumes=given.image_volume,
        secrets=given.env_from,
        queue=given.queue,
        class_name=given.class_name,
        code=_volume(code, None if image is None else f"{registry}@{image.digest}"),
        works_in_code=works_in_code,
        packages=packages.arguments(CODE_DIRECTORY),
    )
    document = with_pod_options(document_of(entrypoint, options), wanted)
    digest = {"annotations": {DIGEST: f"sha256:{archive.digest}"}} if archive else {}
    document["metadata"] |= {"namespace": namespace, **digest}
    told = (*packed_files(source, whole=given.dry_run), *beside(given)) if source else ()
    told += (*already_told, *_readable(given.env))
    return Parcel(document, code, image, registry, told)


def _volume(code: Document | None, reference: str | None) -> dict[str, Any] | None:
    """The volume with the archive: a ConfigMap or an image; None if no code is sent."""
    if code is not None:
        return {"configMap": {"name": code["metadata"]["name"]}}
    return None if reference is None else {"image": {"reference": reference, "pullPolicy": "IfNotPresent"}}


def of_packed(packed: "PackedProgram", folder: Source | None, include: Collection[Path]) -> Source:
    """The files of a program that exists only in memory, besides those of its folder.

    Raises:
        BadInputError: one of them seems to hold a secret.
    """
    files = [File(name, content) for name, content in packed.files.items()]
    included = {path.resolve() for path in include}
    places = {packed.origin / file.name: file for file in files}
    check_holds_no_secret({place: file for place, file in places.items() if place.resolve() not in included})
    return Source([*(folder.files if folder else ()), *files], folder.left_out if folder else {})


def _entrypoint(given: argparse.Namespace) -> Entrypoint:
    """The program that the arguments name, with its path in the pod.

    Raises:
        BadInputError: there is no such program, or it would not be sent.
    """
    words: Sequence[str] = given.program or ()
    if given.module is not None:
        # The module is not checked, because it may exist only in the image.
        return started(module(given.module, words), given.start_method)
    found = program.entrypoint(given)
    if given.target is None:
        _check_travels(words, given.source)
        return found
    path = Path(given.target)
    return replace(
        found, command=(*found.command[:-1], path.name if given.source is None else within(path, given.source))
    )


def _check_travels(words: Sequence[str], source: Path | None) -> None:
    """If the command names a script on this machine, checks that --source is given, so that the script is sent.

    Raises:
        BadInputError: the command names a script on this machine, but --source is not given.
    """
    local = [word for word in words if word.endswith(".py") and not Path(word).is_absolute() and Path(word).is_file()]
    if local and source is None:
        raise BadInputError(f"{local[0]} would not be sent; to send it with its folder: {option('source', '.')}")


def packed_files(source: Source, *, whole: bool) -> Iterator[str]:
    """Lines that list the packed files and the files that are left out: the first of each or, with `whole`, all."""
    names = sorted(file.name for file in source.files)
    size = readable(sum(len(file.content) for file in source.files))
    yield f"packed {counted(len(names), 'file')}, {size}: {listed(names, len(names) if whole else NAMED)}"
    first = len(source.left_out) if whole else FIRST
    secret = sorted(name for name, reason in source.left_out.items() if reason == SUSPECT)
    others = sorted(f"{name} ({reason})" for name, reason in source.left_out.items() if reason != SUSPECT)
    if secret:
        named = listed(secret, first)
        yield f"not packed, because {'they' if len(secret) > 1 else 'it'} may hold secrets ({len(secret)}): {named}"
        yield (
            f"To send one anyway: {option('include', 'FILE')}. Values that only the job should know belong in a"
            f" Secret: {option('env-from', 'SECRET')}"
        )
    if others:
        yield f"not packed: {listed(others, first)}"
    if not (whole or in_python()) and max(len(secret), len(others)) > FIRST:
        yield "To list all of them: --dry-run"


def _readable(env: Sequence[str]) -> Iterator[str]:
    """A warning about variables whose names look secret: everyone who may read the job can read their values."""
    if exposed := [name for name in (variable.partition("=")[0] for variable in env) if SECRET_NAME.search(name)]:
        yield (
            f"everyone who may see the job can read {', '.join(exposed)}; put secret values into a Secret, and name"
            f" it with {option('env-from')}"
        )


def beside(given: argparse.Namespace) -> Iterator[str]:
    """A warning if a script that is sent alone imports modules from its folder."""
    if given.source is not None or given.target is None:
        return
    script = Path(given.target)
    if found := [name for name in sorted(_imported(script)) if _is_module(script.parent / name)]:
        names = listed(found)
        right = option("source", script.parent)
        yield f"{script} imports {names} from its folder, which is not sent; to send it: {right}"


def _imported(script: Path) -> set[str]:
    """The top-level names of the modules that the script imports."""
    nodes = [*ast.walk(ast.parse(script.read_bytes()))]
    plain = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    sources = {node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module and not node.level}
    return {name.partition(".")[0] for name in plain | sources}


def _is_module(path: Path) -> bool:
    return path.with_name(f"{path.name}.py").is_file() or (path / "__init__.py").is_file()
