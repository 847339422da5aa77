"""What Argo CD thinks of a job: https://argo-cd.readthedocs.io/en/stable/operator-manual/health/."""

from functools import cache
from pathlib import Path
from typing import Any

import yaml
from ddpjob_operator.api.contract import GROUP, KIND
from lupa.lua51 import LuaRuntime

PATCH = Path(__file__).parents[3] / "deploy/argocd-cm.yaml"
LIBRARIES = frozenset(("coroutine", "debug", "io", "jit", "math", "os", "python", "string"))
"""Those of Lua, and one of lupa, that Argo CD does not give to a script. Of `os` it gives the time."""


def health(document: dict[str, Any]) -> tuple[str, str | None]:
    """Status and message."""
    lua, script = _argo_cd()
    lua.globals().obj = lua.table_from(document, recursive=True)
    found = script()
    return found.status, found.message


@cache
def _argo_cd() -> tuple[LuaRuntime, Any]:
    lua = LuaRuntime(register_eval=False, register_builtins=False)
    for name in LIBRARIES:
        lua.globals()[name] = None
    data = yaml.safe_load(PATCH.read_text(encoding="utf-8"))["data"]
    return lua, lua.compile(data[f"resource.customizations.health.{GROUP}_{KIND}"])
