"""The extra `cli` has all that a supervisor and its ranks import, but torch: that is the one that is there."""

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[3]
PACKAGES = ("ddpjob_rank", "ddpjob_supervisor")
LEFT_OUT = {*PACKAGES, "ddpjob", "torch", *sys.stdlib_module_names}
DISTRIBUTED_AS = {
    "ClusterShell": "clustershell",
    "prometheus_client": "prometheus-client",
    "pynvml": "nvidia-ml-py",
}


def test_what_is_imported_is_in_the_extra_of_the_command() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    # A history in an object store needs the other extra too, and a message says so.
    asked = {re.split(r"[<>=\[]", one)[0] for one in (*project["dependencies"], *extras["cli"], *extras["store"])}
    needed = {DISTRIBUTED_AS.get(module, module) for module in imported() - LEFT_OUT}
    assert needed >= {"aiohttp", "nvidia-ml-py"}, "the search finds both ways to import"
    assert needed <= asked


def imported() -> set[str]:
    """The top of each module that a file of them imports, or has imported by its name."""
    files = (file for package in PACKAGES for file in (ROOT / "trainer" / package).rglob("*.py"))
    trees = (ast.parse(file.read_text(encoding="utf-8")) for file in files)
    return {name.partition(".")[0] for tree in trees for node in ast.walk(tree) for name in names(node)}


def names(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Import(aliases):
            yield from (alias.name for alias in aliases)
        case ast.ImportFrom(str(module), level=0):
            yield module
        case ast.Call(ast.Attribute(attr="import_module"), [ast.Constant(str(module))]):
            yield module
        case ast.Call(args=[ast.Attribute(attr="import_module"), ast.Constant(str(module))]):
            yield module
