"""Modules that a script imports and that are missing, all of them at once, before a rank is started.

It is known for certain, or else nothing is said and the rank reports it: only imports count that come before anything
by which others might be found, whether a change of the search path or a package that makes one.
"""

import ast
import importlib.util
import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ddpjob_rank.failure.traps import not_there
from ddpjob_rank.running.program import Program

HARMLESS = re.compile(
    r"numpy|tqdm(\.auto)?|torchvision(\.(datasets|models|transforms))?|"
    r"torch(\.(cuda|distributed|multiprocessing|nn(\.\w++)*+|optim(\.\w++)*+|utils(\.(data(\.\w++)*+|tensorboard))?))?"
)
"""Scripts begin with these, and none makes others findable: torch.utils.cpp_extension does, by setuptools."""


def check_imports(program: Program) -> None:
    """Checks whether a script's imports exist; this process must have the rank's Python and environment.

    Raises:
        ConfigError: Some are not.
    """
    missing: dict[str, str] = {}
    for name, line in () if program.module else _missing(Path(program.name), Path(program.directory)):
        missing.setdefault(name, f"{program.name}:{line}")
    if missing:
        raise not_there(missing)


def _missing(script: Path, directory: Path) -> Iterator[tuple[str, int]]:
    """Names and lines."""
    with _searching(directory):
        for module, line in _imported(script):
            name = module.partition(".")[0]
            if not _is_there(name):
                yield name, line
            elif not _is_harmless(module, name, directory):
                return


def _imported(script: Path) -> Iterator[tuple[str, int]]:
    """What it imports before it does anything else."""
    try:
        with warnings.catch_warnings(action="ignore"):  # They are reported when it runs.
            body = ast.parse(script.read_bytes()).body
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):  # The last two: an expression too deep.
        return
    for statement in body:
        match statement:
            case ast.Expr(ast.Constant()):  # Its docstring.
                continue
            case ast.Import(names):
                modules = [one.name for one in names]
            case ast.ImportFrom(str(module), level=0):
                modules = [module]
            case _:
                return
        yield from ((module, statement.lineno) for module in modules)


@contextmanager
def _searching(directory: Path) -> Iterator[None]:
    """Python searches where it will in the rank."""
    path = sys.path[:]
    sys.path.insert(0, str(directory))
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path[:] = path


def _is_there(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except Exception:  # noqa: BLE001  A finder of somebody's: what it cannot tell, the rank does.
        return True


def _is_harmless(module: str, name: str, directory: Path) -> bool:
    own = (directory / name).exists() or (directory / f"{name}.py").exists()
    return not own and (name in sys.stdlib_module_names or HARMLESS.fullmatch(module) is not None)
