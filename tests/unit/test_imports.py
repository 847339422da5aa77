"""What tests and benches import is there: a name that moves breaks a test of minutes in seconds."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
READERS = ("tests", "bench", "docs")
PACKAGES = [*(ROOT / "operator").glob("ddpjob*"), *(ROOT / "trainer").glob("ddpjob*"), ROOT / "tests", ROOT / "bench"]
ABOVE = {package.name: package.parent for package in PACKAGES}


def test_each_name_that_is_imported_from_here_is_defined_there() -> None:
    files = sorted(file for room in READERS for file in (ROOT / room).rglob("*.py"))
    missing = [
        f"{file.relative_to(ROOT)} imports {name} from {module}"
        for file in files
        for module, name in _imported(file)
        if not _exists(module, name)
    ]
    assert not missing, "\n".join(missing)
    assert len(files) > 500


def _imported(file: Path) -> Iterator[tuple[str, str]]:
    """Module and name of each `from MODULE import NAME` whose package is one of this repository's."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.partition(".")[0] in ABOVE:
            yield from ((node.module, alias.name) for alias in node.names)


@cache
def _exists(module: str, name: str) -> bool:
    found = _find(module)
    return found is not None and (name in _defined(found) or _find(f"{module}.{name}") is not None)


@cache
def _find(module: str) -> Path | None:
    """The module's file, or its directory if that has no `__init__.py`."""
    parts = module.split(".")
    place = ABOVE[parts[0]] / Path(*parts)
    wanted = (place / "__init__.py", place.with_suffix(".py"), place)
    return next((path for path in wanted if path.exists()), None)


@cache
def _defined(file: Path) -> frozenset[str]:
    """The names at the top of a module, also of what stands there under a condition."""
    if file.is_dir():
        return frozenset()
    names, waiting = set[str](), [*ast.parse(file.read_text(encoding="utf-8")).body]
    while waiting:
        match waiting.pop():
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                names.add(name)
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                names |= {alias.asname or alias.name.partition(".")[0] for alias in aliases}
            case ast.Assign() | ast.AnnAssign() as assignment:
                names |= {node.id for node in ast.walk(assignment) if isinstance(node, ast.Name)}
            case other:
                waiting += (node for node in ast.iter_child_nodes(other) if isinstance(node, ast.stmt))
                waiting += (node for handler in getattr(other, "handlers", ()) for node in handler.body)
    return frozenset(names)
