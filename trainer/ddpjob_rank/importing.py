"""Importing a lot, and doing something once a module is imported, which may be now, later, or never."""

import gc
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

Act = Callable[[ModuleType], None]


@contextmanager
def uncollected() -> Iterator[None]:
    """What is imported meanwhile stays: the garbage collector never looks at it.

    It would run hundreds of times while PyTorch is imported, and take a third of that time. A single look afterwards
    would take a tenth, and find a megabyte.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def once_imported(name: str, act: Act) -> None:
    """Does it with the module of this name, at once if it is already imported."""
    if name in sys.modules:
        act(sys.modules[name])
    else:
        sys.meta_path.insert(0, _OnceImported(name, act))


class _OnceImported(MetaPathFinder):
    """Sees a module being imported, and leaves the rest to Python."""

    def __init__(self, name: str, act: Act) -> None:
        self._name, self._act = name, act

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._name:
            return None
        sys.meta_path.remove(self)
        spec = PathFinder.find_spec(fullname, path, target)
        if spec and spec.loader:
            _act_after(spec.loader, self._act)
        return spec


def _act_after(loader: Any, act: Act) -> None:
    """Makes a loader do something with the module that it loads. Otherwise it stays the same: others use it."""
    execute = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        execute(module)
        act(module)

    loader.exec_module = exec_module
