"""Finds a file such as `queue.py` beside a program, if it hides a module of Python's standard library."""

import sys
import traceback
from pathlib import Path
from types import ModuleType

from ddpjob_rank.errors import ConfigError


def hidden_module(error: BaseException, directory: str, *, own_code: bool = True) -> ConfigError | None:
    """An error that explains `error`, if the name of a file in `directory` has caused it; otherwise None.

    `own_code` means that code of the program has run, which may also fail for other reasons.
    """
    missed = {str(file) for name in _names(error) for file in _files(name, directory)}
    run = set() if own_code else {frame.filename for frame in traceback.extract_tb(error.__traceback__)}
    files = (file for name in sorted(sys.stdlib_module_names) for file in _files(name, directory))
    found = next((file for file in files if str(file) in missed | run and file.is_file()), None)
    if found is None:
        return None
    return ConfigError(
        f"{found} has the name of a module of Python's standard library, so one of the two is imported in place of"
        " the other, under plain python as well: rename the file"
    )


def _names(error: BaseException) -> set[str]:
    """The module that could not be imported, or that lacks the requested name."""
    if isinstance(error, ImportError):
        return {str(error.name).partition(".")[0]}
    return {error.obj.__name__} if isinstance(error, AttributeError) and isinstance(error.obj, ModuleType) else set()


def _files(module: str, directory: str) -> tuple[Path, Path]:
    return Path(directory, f"{module}.py"), Path(directory, module, "__init__.py")
