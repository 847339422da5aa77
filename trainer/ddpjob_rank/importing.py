"""Makes the import of many modules faster, and calls functions after certain modules have been imported."""

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
    """Turns the garbage collector off in the block. Afterwards, exempts all existing objects from collection.

    Otherwise the collector would run hundreds of times while PyTorch is imported, and take a third of that time. Even
    a single collection afterwards would take a tenth of that time, and free only a megabyte.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def once_imported(name: str, act: Act) -> None:
    """Calls `act` with the module `name` as soon as it is imported, or now if it has been imported already."""
    if name in sys.modules:
        act(sys.modules[name])
        return
    finders = (finder for finder in sys.meta_path if isinstance(finder, _OnceImported))
    if waiting := next((finder for finder in finders if finder.name == name), None):
        waiting.acts.append(act)
    else:
        sys.meta_path.insert(0, _OnceImported(name, act))


class _OnceImported(MetaPathFinder):
    """Finds the loader of one module, to make it call functions, and leaves all other imports to Python."""

    def __init__(self, name: str, act: Act) -> None:
        self.name, self.acts = name, [act]

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self.name:
            return None
        sys.meta_path.remove(self)
        spec = PathFinder.find_spec(fullname, path, target)
        if spec and spec.loader:
            _act_after(spec.loader, self.acts)
        return spec


def _act_after(loader: Any, acts: Sequence[Act]) -> None:
    """Makes `loader` call `acts` after it has run the module. Changes `loader` itself, because other code uses it."""
    execute = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        execute(module)
        for act in acts:
            act(module)

    loader.exec_module = exec_module
