"""Reads docstrings of constants from the source, because Python does not keep them."""

import ast
import inspect
from enum import Enum
from itertools import pairwise
from textwrap import dedent
from typing import Any


def meanings(holder: type) -> list[tuple[str, Any, str]]:
    """The name, value and meaning of each constant of a class.

    Raises:
        ValueError: A constant has no docstring.
    """
    (definition,) = ast.parse(dedent(inspect.getsource(holder))).body
    assert isinstance(definition, ast.ClassDef), "a class was given"
    body = [*definition.body, ast.Pass()]
    return [
        (
            constant.targets[0].id,
            _value(holder, constant.targets[0].id),
            _docstring(following, constant.targets[0].id),
        )
        for constant, following in pairwise(body)
        if isinstance(constant, ast.Assign) and isinstance(constant.targets[0], ast.Name)
    ]


def first_paragraph(documented: object) -> str:
    """The first paragraph of a docstring, on one line."""
    return " ".join((inspect.getdoc(documented) or "").split("\n\n")[0].split())


def _value(holder: type, name: str) -> Any:
    value = getattr(holder, name)
    return value.value if isinstance(value, Enum) else value


def _docstring(statement: ast.stmt, name: str) -> str:
    match statement:
        case ast.Expr(value=ast.Constant(value=str(text))):
            return text
        case _:
            raise ValueError(f"{name} has no docstring")
