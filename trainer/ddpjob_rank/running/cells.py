"""Runs the definitions of a notebook that were sent with a function, each with the name and the lines of its cell.

The module `ddpjob_notebook`, which DDPJob sends with them, calls `define` when a rank imports it.
"""

import __future__

import ast
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

ANNOTATIONS = __future__.annotations.compiler_flag
CELLS = "ddpjob_cells"
"""The folder with a file for each cell. In it only the lines of the definitions are not empty."""


def define(namespace: dict[str, Any], definitions: Sequence[tuple[str, int]], *, postponed: bool = False) -> None:
    """Adds definitions to a module, in this order.

    Args:
        namespace: The module's namespace, which has the imports and the values of the notebook already.
        definitions: The name of the file of each definition's cell, and the definition's first line.
        postponed: Whether their annotations are not evaluated.
    """
    folder, flags = Path(namespace["__file__"]).parent, ANNOTATIONS if postponed else 0
    for name, line in definitions:
        file = folder / CELLS / name
        statement = _statements(file)[line]
        # The file is the cell's, so that tracebacks have its name, its lines and its source.
        code = compile(ast.Module([statement], []), str(file), "exec", flags, dont_inherit=True)
        exec(code, namespace)  # noqa: S102


@cache
def _statements(file: Path) -> dict[int, ast.stmt]:
    """The statements of a cell by their first lines."""
    return {first_line(statement): statement for statement in ast.parse(file.read_bytes(), str(file)).body}


def first_line(statement: ast.stmt) -> int:
    """The line in which a statement begins, with its decorators."""
    decorators: list[ast.expr] = getattr(statement, "decorator_list", [])
    return min([statement.lineno, *(decorator.lineno for decorator in decorators)])
