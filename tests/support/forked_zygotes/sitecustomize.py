"""Makes supervisors fork their zygotes from a template; see ../zygotes.py.

Each Python imports a module of this name, if its directory is on PYTHONPATH.
"""

import sys
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

STARTER = "ddpjob_supervisor.node.zygote_process"


class _Finder:
    """Replaces a function of the module that starts zygotes, when it is imported."""

    def find_spec(self, name: str, *_: object) -> ModuleSpec | None:
        if name != STARTER:
            return None
        sys.meta_path.remove(self)
        spec = find_spec(name)
        if spec is None or spec.loader is None:
            return None
        load = spec.loader.exec_module

        def load_and_replace(module: ModuleType) -> None:
            load(module)
            from zygote_client import forking  # noqa: PLC0415  (only supervisors need it)

            replaced: Any = module
            replaced.start = forking(replaced.start, replaced.words_of)

        spec.loader.exec_module = load_and_replace  # type: ignore[method-assign]
        return spec


sys.meta_path.insert(0, _Finder())
