"""Finds the file of a function, and the files beside it that it imports: by their syntax trees, without an import."""

import ast
import inspect
import sys
import sysconfig
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from types import FunctionType

from ddpjob_operator.api import BadInputError
from ddpjob_operator.client.source import fullest_folders

MAIN = "__main__"
SUBMITTING = frozenset({"submit", "run"})
"""Our functions that start jobs."""
INIT = "__init__.py"
MOST_FILES = 5000
INSTALLED = ("site-packages", "dist-packages")
"""Names of the folders into which packages are installed."""


@dataclass(frozen=True)
class ModuleFile:
    """A module in a file."""

    root: Path
    """The folder from which the module is imported: that of the file or, for `package.module`, the one above."""
    name: str
    """Its full name, such as `package.module`; of a script, the name of its file."""
    file: Path


def module_of(function: FunctionType, file: Path) -> ModuleFile:
    """The module of a function that was defined in a file.

    Raises:
        BadInputError: It is part of Python or of an installed package.
    """
    file = file.resolve()
    if _is_installed(file):
        raise BadInputError(
            f"{function.__qualname__} is in an installed package ({file}), which is not sent; write a function of"
            " your own that calls it"
        )
    name = function.__module__
    if name == MAIN:
        spec = getattr(sys.modules[MAIN], "__spec__", None)
        name = file.stem if spec is None else spec.name
    depth = name.count(".") + (file.name == INIT)
    module = ModuleFile(file.parents[depth] if depth < len(file.parents) else file.parent, name, file)
    # Some programs import a file under a name that does not lead to it.
    return module if file in _files_of(module.root, name) else ModuleFile(file.parent, file.stem, file)


def files_of_imports(root: Path, names: Iterable[str]) -> dict[str, Path]:
    """The files below a root that imports of these names run, also indirectly, by their names below it.

    Raises:
        BadInputError: One of them is not Python, or there are too many.
    """
    found: dict[Path, None] = {}
    waiting = [file for name in names for file in _files_of(root, name)]
    while waiting:
        file = waiting.pop()
        if file in found:
            continue
        found[file] = None
        if len(found) > MOST_FILES:
            most = fullest_folders([path.relative_to(root).as_posix() for path in found])
            raise BadInputError(
                f"the function imports more than {MOST_FILES} files of {root}{most}. Import less, or put packages"
                " into the image (image=…, or pip=[…])"
            )
        own = _name_of(file, root)
        package = own if file.name == INIT else own.rpartition(".")[0]
        waiting += [other for name in imported_names(parsed(file), package) for other in _files_of(root, name)]
    return {file.relative_to(root).as_posix(): file for file in sorted(found)}


def parsed(file: Path) -> ast.Module:
    """The syntax tree of a file.

    Raises:
        BadInputError: It cannot be read, or is not Python.
    """
    try:
        with warnings.catch_warnings(action="ignore"):  # Python prints these when the module is imported.
            return ast.parse(file.read_bytes(), str(file))
    except OSError as error:
        raise BadInputError(f"cannot read {file}: {error.strerror}") from None
    except (SyntaxError, ValueError) as error:
        line = f"line {error.lineno}: {error.msg}" if isinstance(error, SyntaxError) and error.lineno else str(error)
        raise BadInputError(f"{file} is not Python: {line}") from None
    except (RecursionError, MemoryError):
        raise BadInputError(f"{file} has an expression that is nested too deeply for Python") from None


def check_import_is_harmless(module: ModuleFile, function: str) -> None:
    """Checks that an import of the module, by which ranks get the function, neither submits a job nor trains.

    Raises:
        BadInputError: It does; the message names the line.
    """
    running = _running_line(module.file)
    for statement in parsed(module.file).body:
        if _is_guard(statement):
            continue
        ends = statement.end_lineno or statement.lineno
        if running is not None and statement.lineno <= running <= ends:
            why = "runs again in each rank, which imports the file"
        elif done := _does(statement, function):
            why = f"{done} when a rank imports the file"
        else:
            continue
        raise BadInputError(
            f"{module.file}, line {statement.lineno}: {why} to get {function}; put it under: if __name__ =="
            ' "__main__":'
        )


def imported_names(tree: ast.AST, package: str) -> Iterator[str]:
    """The full names of what a file imports. The last part of a name may be none of a module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)


def _running_line(file: Path) -> int | None:
    """The line outside functions that this thread is running in a file; None if it runs none."""
    frame = sys._getframe()  # noqa: SLF001  (the documented way to the caller's frames)
    while frame is not None:
        if frame.f_code.co_name == "<module>" and Path(frame.f_code.co_filename).resolve() == file:
            return frame.f_lineno
        frame = frame.f_back  # type: ignore[assignment]
    return None


def _is_guard(statement: ast.stmt) -> bool:
    """Whether a statement is `if __name__ == "__main__":` or the like."""
    return isinstance(statement, ast.If) and any(
        isinstance(node, ast.Name) and node.id == "__name__" for node in ast.walk(statement.test)
    )


def _does(statement: ast.stmt, function: str) -> str:
    """What a statement outside functions does that an import must not do; empty if it does neither."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return ""
    called = [node.func for node in ast.walk(statement) if isinstance(node, ast.Call)]
    names = {callee.id for callee in called if isinstance(callee, ast.Name)}
    attributes = [callee for callee in called if isinstance(callee, ast.Attribute)]
    if any(callee.attr in SUBMITTING and _is_ours(callee.value) for callee in attributes):
        return "submits a job"
    return "trains" if function in names or any(callee.attr == "backward" for callee in attributes) else ""


def _is_ours(node: ast.expr) -> bool:
    """Whether an expression is the name of our package."""
    return isinstance(node, ast.Name) and node.id == "ddpjob"


def _is_installed(file: Path) -> bool:
    paths = sysconfig.get_paths()
    return any(part in INSTALLED for part in file.parts) or file.is_relative_to(Path(paths["stdlib"]).resolve())


def _files_of(root: Path, name: str) -> list[Path]:
    """The files below a root that an import of this name runs: those of its packages, and its own."""
    files = []
    for path in accumulate(name.split("."), lambda folder, part: folder / part, initial=root):
        module = path.with_name(f"{path.name}.py")
        files += [file for file in (path / INIT, module) if path != root and _is_below(file, root)]
    return files


def _is_below(file: Path, root: Path) -> bool:
    """Whether a path is a file below the root, and no link that leads out of it."""
    return file.is_file() and file.resolve().is_relative_to(root) and not _is_installed(file)


def _name_of(file: Path, root: Path) -> str:
    """The full name under which a file below the root is imported."""
    path = file.relative_to(root)
    parts = path.parent.parts if file.name == INIT else path.with_suffix("").parts
    return ".".join(parts)


def innermost(function: FunctionType) -> FunctionType:
    """The function that a decorator has wrapped; the wrapper itself if it has wrapped something else."""
    inner = inspect.unwrap(function, stop=lambda outer: not isinstance(vars(outer)["__wrapped__"], FunctionType))
    return inner if isinstance(inner, FunctionType) else function
