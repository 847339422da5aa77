"""Finds and checks the script, module or command of `ddpjob run`, and builds a DDPJob from it. Starts nothing."""

import argparse
import ast
import difflib
import importlib.util
import os
import re
import shlex
import shutil
import sys
import warnings
from collections.abc import Iterable, Iterator
from contextlib import suppress
from importlib.machinery import PathFinder
from importlib.metadata import version
from pathlib import Path
from typing import Any

from ddpjob_operator.api import BadInputError
from ddpjob_operator.api.contract import SUPERVISE
from ddpjob_operator.api.entrypoint import (
    NO_HISTORY,
    Entrypoint,
    Options,
    command,
    document_of,
    module,
    script,
    started,
)
from ddpjob_operator.api.launchers import Size
from ddpjob_operator.api.option_names import in_python, option
from ddpjob_operator.api.spec import is_url
from ddpjob_operator.api.words import listed

from .invocation import itself
from .mistakes import PROGRAMS

OPTIONS = (
    "module",
    "nodes",
    "procs_per_node",
    "name",
    "env",
    "max_restarts",
    "start_method",
    "checkpoint",
    "history",
    "program",
)
"""Arguments that cannot be combined with a YAML file, because the file itself contains these values."""

YAML = frozenset({".yaml", ".yml", ".json"})
NOT_PYTHON = {
    ".sh": "is a shell script; run it as a command: {command}",
    ".ipynb": "is a notebook; make a script of it first: jupyter nbconvert --to script {target}",
}
OF_A_SHELL = re.compile(r"[|&;<>()`$]|\A\w+=")
"""Matches shell syntax in a command: pipes and lists, substitutions, and assignments before a program."""

DEFAULT_CHECKPOINT = {"path": "/checkpoints"}
"""`spec.checkpoint` without --checkpoint: a directory of the run, given to the script in DDPJOB_CHECKPOINT_DIR."""


def is_program(arguments: argparse.Namespace) -> bool:
    """Whether the arguments name a script, a module or a command, and not a YAML file.

    Raises:
        BadInputError: they name nothing to run, or both a target and a module.
    """
    target, named = arguments.target, [*filter(None, [arguments.target, arguments.module])]
    if len(named) > 1:
        raise BadInputError(
            f"{target} and {option('module', arguments.module)} are two programs; name only one of them"
        )
    if not named and not arguments.program:
        if in_python():
            raise BadInputError("name a function or a script, a module with module=…, or a command with args=[…]")
        raise BadInputError(
            f"name a script, a module after -m, or a command after --; see: {itself()} {arguments.command} --help"
        )
    return target is None or _is_script(Path(target)) or not Path(target).is_file()


def named(arguments: argparse.Namespace) -> str:
    """The program as its user has named it."""
    if arguments.module is not None:
        return f"-m {arguments.module}"
    return arguments.target or " ".join(arguments.program)


def refuse_options(arguments: argparse.Namespace, options: Iterable[str], why: str) -> None:
    """Checks that none of the `options` is given.

    Raises:
        BadInputError: an option is given; the message consists of its name and `why`.
    """
    for name in options:
        if getattr(arguments, name) not in (None, []):
            raise BadInputError(f"{option(name.replace('_', '-'))} {why}")


def document(
    arguments: argparse.Namespace, gpus: int, checkpoint: dict[str, Any] | None, found: Entrypoint | None = None
) -> dict[str, Any]:
    """The DDPJob that the arguments describe. `found` is its program, if the arguments do not name it.

    Raises:
        BadInputError: there is no such program, it cannot run here, or an option is wrong.
    """
    options = Options(
        image=f"ddpjob-trainer:{version('ddpjob')}",
        name=arguments.name,
        size=Size(arguments.nodes, arguments.procs_per_node),
        gpus=gpus,
        env=arguments.env,
        max_restarts=arguments.max_restarts,
        checkpoint=checkpoint,
        history=_history_in(arguments.history),
    )
    return document_of(found or entrypoint(arguments), options)


def checkpoint_in(address: str | None) -> dict[str, Any]:
    """`spec.checkpoint` for an address: a directory of this machine, a URL or, with None, a directory of the run.

    Raises:
        BadInputError: `address` is a file.
    """
    if address is None:
        return DEFAULT_CHECKPOINT
    if is_url(address):
        return {"path": address}
    directory = Path(address)
    path = str(directory.absolute())
    if directory.exists() and not directory.is_dir():
        raise BadInputError(f"{option('checkpoint')}: {directory} is not a directory")
    return {"path": path, "volume": {"hostPath": {"path": path, "type": "DirectoryOrCreate"}}}


def _history_in(address: str | None) -> str | None:
    """`spec.history.path` for a directory of this machine, or for a URL. `off` remains: no history is kept."""
    if address is None or address == NO_HISTORY or is_url(address):
        return address
    return str(Path(address).absolute())


def check_can_run(document: dict[str, Any]) -> None:
    """Checks whether this machine has the program of the job's command, and torch if the supervisor runs a script.

    Raises:
        BadInputError: one of them is missing.
    """
    program, *_ = document["spec"]["template"]["spec"]["containers"][0]["command"]
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    if program == SUPERVISE and importlib.util.find_spec("torch") is None:
        raise BadInputError(
            f"{sys.executable} lacks torch: ddpjob runs scripts with its own Python; install ddpjob in the "
            "environment that has your torch, or torch in this one"
        )
    if shutil.which(program, path=path) is None:
        raise BadInputError(f"{shlex.quote(program)}: no such program on PATH")


def entrypoint(arguments: argparse.Namespace) -> Entrypoint:
    """The script, module or command that the arguments name, after checks on this machine.

    Raises:
        BadInputError: there is no such program, or it cannot run.
    """
    words: list[str] = arguments.program or []
    if arguments.module is not None:
        _check_module(arguments.module)
        return started(module(arguments.module, words), arguments.start_method)
    if arguments.target is not None:
        _check_script(arguments.target, words, arguments.command)
        return started(script(arguments.target, words), arguments.start_method)
    _check_quotes(words, arguments.command)
    if words[0].startswith("-"):
        if in_python():
            raise BadInputError(f"args={words!r:.64} must begin with a program, unless a script or a module is named")
        raise BadInputError(f"{words[0]} comes after --, where a command begins; options go before --")
    if words[0].endswith(".py"):
        raise BadInputError(f"{words[0]} is a script; run it with: {_call(arguments.command, words)}")
    if arguments.start_method:
        raise BadInputError(
            f"{option('start-method')} is for scripts and modules; a command starts its processes itself"
        )
    return command(words)


def _check_quotes(words: list[str], called: str) -> None:
    """Refuses a whole command in quotes, which a shell passes on as one word.

    Raises:
        BadInputError: the first of the words is a command with arguments.
    """
    first, *others = words
    if len(first.split()) < 2 or Path(first).exists():  # noqa: PLR2004  A program and an argument.
        return
    if OF_A_SHELL.search(first):
        right = _call(called, ["bash", "-c", " ".join([first, *map(shlex.quote, others)])])
        raise BadInputError(f"{shlex.quote(first)} is a line for a shell: {right}")
    with suppress(ValueError):  # A quotation mark may be unclosed.
        right = _call(called, [*shlex.split(first), *others])
        raise BadInputError(f"{shlex.quote(first)} is one word; without the quotes it is: {right}")


def _call(called: str, words: list[str]) -> str:
    """The ddpjob command line, or the call in Python, that runs a command, or a script with its arguments."""
    first, *others = words
    if in_python():
        given = [repr(first), *([f"args={others}"] if others else [])] if first.endswith(".py") else [f"args={words}"]
        return f"ddpjob.{called}({', '.join(given)})"
    ours = [first, *(["--", *others] if others else [])] if first.endswith(".py") else ["--", *words]
    return f"{itself()} {shlex.join([called, *ours])}"


def _is_script(file: Path) -> bool:
    """Whether a path is a script, as its suffix or first line shows, or does not exist. All other files are YAML."""
    if file.suffix in {".py", *NOT_PYTHON} or not file.is_file():
        return True
    if file.suffix in YAML:
        return False
    with file.open("rb") as content:
        first = content.readline(256)
    return first.startswith(b"#!") and b"python" in first


def _check_script(target: str, words: list[str], called: str) -> None:
    file = Path(target)
    if file.suffix in NOT_PYTHON and file.is_file():
        right = _call(called, ["bash", target, *words])
        advice = NOT_PYTHON[file.suffix].format(target=shlex.quote(target), command=right)
        raise BadInputError(f"{file} {advice}")
    if file.is_dir():
        raise BadInputError(f"{file} is a directory; name a script in it{_some(file.glob('*.py'))}")
    if file.is_symlink() and not file.exists():
        raise BadInputError(f"{file} is a link to {file.readlink()}, which does not exist")
    if str(file) == "-" or "://" in target or _is_read_once(file):
        raise BadInputError(f"{target} is not a regular file; save its content to a regular file, and name that file")
    if not file.exists():
        _check_quotes([target, *words], called)
        raise BadInputError(f"there is no {file} in {Path.cwd()}{_hint(file, words, called)}")
    try:
        with warnings.catch_warnings(action="ignore"):  # Python prints these warnings when the script runs.
            tree = ast.parse(file.read_bytes(), str(file))
            compile(tree, str(file), "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        line = f"line {error.lineno}: {error.msg}" if isinstance(error, SyntaxError) and error.lineno else str(error)
        raise BadInputError(f"{file} is not Python: {line}") from None
    except (RecursionError, MemoryError):  # The parser raises MemoryError, the compiler RecursionError.
        raise BadInputError(f"{file} has an expression that is nested too deeply for Python") from None
    _check_relative_imports(file, tree)


def _is_read_once(file: Path) -> bool:
    """Whether a file can be read only once, like a pipe. A script must not be such a file: each rank opens it."""
    return file.absolute().is_relative_to("/dev") or file.is_fifo()


def _check_relative_imports(file: Path, tree: ast.Module) -> None:
    """Refuses relative imports at the top level of a script, because a script belongs to no package.

    A relative import inside an `if` or `try` is allowed: the code around it may handle its failure.

    Raises:
        BadInputError: the script has a relative import at the top level.
    """
    relative = next(
        (statement for statement in tree.body if isinstance(statement, ast.ImportFrom) and statement.level), None
    )
    if relative is not None:
        parts = Path(os.path.relpath(file)).with_suffix("").parts
        importable = len(parts) > 1 and all(part.isidentifier() for part in parts)
        how = (
            f"run it as: {option('module', '.'.join(parts))}"
            if importable
            else f"run it with {option('module')}, from a directory where its package can be imported"
        )
        raise BadInputError(f"{file} has a relative import in line {relative.lineno}; {how}")


def _hint(file: Path, words: list[str], called: str) -> str:
    if str(file) in PROGRAMS:
        where = f"into {option('program')}" if in_python() else "after --"
        return f"; put a command {where}, as in: {_call(called, [str(file), *words])}"
    nearby = [*file.parent.glob("*.py"), *file.parent.glob("*.y*ml")]
    names = {name: other for other in nearby for name in (other.name, other.stem)}
    close = difflib.get_close_matches(file.name, names, cutoff=0.75)
    return f"; did you mean {names[close[0]]}?" if close else ""


def _some(files: Iterable[Path]) -> str:
    names = sorted(map(str, files))
    return f": {listed(names)}" if names else ""


def _check_module(name: str) -> None:
    """Looks for a module without importing its package, because an import would run the package's code.

    Raises:
        BadInputError: there is no such module, or it is a package that cannot be run.
    """
    if name.endswith(".py"):
        raise BadInputError(
            f"{option('module', name)}: a script is named without {option('module')}, and a module without .py"
        )
    if not all(part.isidentifier() for part in name.split(".")):
        raise BadInputError(f"{option('module', name)}: must be the name of a module, such as package.train")
    found, places = (
        None,
        [str(Path.cwd()), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)), *sys.path],
    )
    for part in _full_names(name):
        found = PathFinder.find_spec(part, places)
        if found is None:
            raise BadInputError(
                f"{option('module', name)}: there is no module {part} in {Path.cwd()} or for {sys.executable}"
            )
        places = [*(found.submodule_search_locations or [])]
    if (
        found is not None
        and found.submodule_search_locations
        and not PathFinder.find_spec(f"{name}.__main__", places)
    ):
        raise BadInputError(f"{option('module', name)} is a package without __main__; name a module in it")


def _full_names(name: str) -> Iterator[str]:
    """The full names of a module and its packages; for `a.b.c`: `a`, `a.b`, `a.b.c`."""
    parts = name.split(".")
    return (".".join(parts[: end + 1]) for end in range(len(parts)))
