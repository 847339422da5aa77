"""Evaluates a script's expressions as far as its text shows their values, and applies them to the environment."""

import ast
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .script_environment import ROOM, UNKNOWN, Environment, Place

Names = dict[str, Any]


class Method(str):
    """A function that reads or changes the environment, represented by its name as a method of `os.environ`."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Function:
    """A function of the script, or of a module in the script's folder."""

    body: Sequence[ast.stmt]
    names: Names
    file: str
    parameters: Sequence[str] = ()
    others: Sequence["Function"] = ()
    """The functions that may have this name instead, because Python may have skipped this definition."""


ENVIRON = object()
"""Stands for `os.environ`."""

OS: Names = {"environ": ENVIRON, "getenv": Method("get"), "putenv": Method("putenv"), "unsetenv": Method("pop")}
"""The relevant attributes of the module `os`."""

BUILT_IN: Names = {"str": Method("str"), "dict": Method("dict")}


class Values(ast.NodeVisitor):
    """A visitor that returns the value of each expression, or UNKNOWN if the text does not show the value."""

    def __init__(self, environment: Environment) -> None:
        self.environment = environment
        self.names: Names = {}
        self.file = ""
        self.sure = True
        """Whether Python certainly reaches this line after it has reached the previous one."""
        self.left = False
        """Whether Python may have returned from this function before this line."""
        self.raised = False
        """Whether an earlier line of this `try` may have raised an exception that one of its handlers catches."""

    @property
    def certain(self) -> bool:
        """Whether Python certainly reaches this line."""
        return self.sure and not self.left and not self.raised

    @abstractmethod
    def call(self, function: Function) -> None:
        """Follows the statements of a function."""

    def set_variable(self, name: Any, value: Any, node: ast.expr | ast.stmt) -> None:
        """Sets an environment variable."""
        self.environment.set(name, value, Place(self.file, node.lineno), sure=self.certain)

    def update(self, values: Any, node: ast.expr | ast.stmt) -> None:
        """Sets an environment variable for each item of a dict, if the text shows its content."""
        for name, value in values.items() if isinstance(values, dict) else ():
            self.set_variable(name, value, node)

    def remove_variable(self, name: Any, node: ast.expr | ast.stmt) -> None:
        """Removes an environment variable."""
        self.environment.remove(name, Place(self.file, node.lineno))

    def generic_visit(self, node: ast.AST) -> Any:  # noqa: ARG002  (that of ast.NodeVisitor)
        """Returns UNKNOWN for expressions that have no method here."""
        return UNKNOWN

    def visit_Constant(self, node: ast.Constant) -> Any:
        return node.value

    def visit_Name(self, node: ast.Name) -> Any:
        return self.names.get(node.id, BUILT_IN.get(node.id, UNKNOWN))

    def visit_Attribute(self, node: ast.Attribute) -> Any:
        owner = self.visit(node.value)
        if owner is ENVIRON:
            return Method(node.attr)
        return owner.get(node.attr, UNKNOWN) if isinstance(owner, dict) else UNKNOWN

    def visit_Subscript(self, node: ast.Subscript) -> Any:
        key = self.visit(node.slice)
        return self.environment.get(key) if self.visit(node.value) is ENVIRON else UNKNOWN

    def visit_JoinedStr(self, node: ast.JoinedStr) -> Any:
        texts = [self.visit(part) for part in node.values]
        known = all(isinstance(text, str) for text in texts) and sum(map(len, texts)) <= ROOM
        return "".join(texts) if known else UNKNOWN

    def visit_FormattedValue(self, node: ast.FormattedValue) -> Any:
        value = self.visit(node.value)
        plain = node.conversion < 0 and node.format_spec is None
        return str(value) if plain and isinstance(value, str | int) else UNKNOWN

    def visit_Dict(self, node: ast.Dict) -> Any:
        pairs = [
            (self.visit(key), self.visit(value)) for key, value in zip(node.keys, node.values, strict=True) if key
        ]
        return {key: value for key, value in pairs if isinstance(key, str)}

    def visit_UnaryOp(self, node: ast.UnaryOp) -> Any:
        value = self.visit(node.operand)
        return not value if isinstance(node.op, ast.Not) and value is not UNKNOWN else UNKNOWN

    def visit_Compare(self, node: ast.Compare) -> Any:
        left, right = self.visit(node.left), self.visit(node.comparators[-1])
        if len(node.ops) > 1:
            return UNKNOWN
        within = isinstance(node.ops[0], ast.In | ast.NotIn)
        if within and right is ENVIRON:
            left, right, within = self.environment.get(left), None, False
        if within or left is UNKNOWN or right is UNKNOWN:
            return UNKNOWN
        match node.ops[0]:
            case ast.Eq() | ast.Is() | ast.NotIn():
                return left == right
            case ast.NotEq() | ast.IsNot() | ast.In():
                return left != right
        return UNKNOWN

    def visit_Call(self, node: ast.Call) -> Any:
        function = self.visit(node.func)
        given = [self.visit(argument) for argument in node.args]
        named = {keyword.arg or "": self.visit(keyword.value) for keyword in node.keywords}
        match function, given:
            case Function(), _:
                self.call(function)
            case Method("get"), [name, *default]:
                current = self.environment.get(name)
                return current if current is not None else [*default, named.get("default")][0]
            case Method("setdefault"), [name, value]:
                if not self.environment.has(name):
                    self.set_variable(name, value, node)
            case Method("putenv"), [name, value]:
                self.set_variable(name, value, node)
            case Method("pop"), [name, *_]:
                self.remove_variable(name, node)
            case Method("update"), _:
                self.update({**(given[0] if given and isinstance(given[0], dict) else {}), **named}, node)
            case Method("dict"), []:
                return named
            case Method("str"), [str() | int() as value]:
                return str(value)
        return UNKNOWN
