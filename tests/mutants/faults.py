"""Which faults can be put into a file: a piece of its text, and another in its place."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

COMPARED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
COMPUTED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Div,
    ast.Mod: ast.Div,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
}
CALLED = {"min": "max", "max": "min", "any": "all", "all": "any"}

TYPES = frozenset({"annotation", "returns"})
"""Fields of the syntax tree that hold types: what is done to them, mypy finds."""

DECLARED = frozenset({"frozen", "slots", "strict"})
"""Arguments that only say what is not done anyway."""

LOGS = ("logger.", "logging.")

SMALL = 10
"""A number up to this one grows by one, a greater one to twice as much: nobody promises 60 seconds rather than 61."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """A file with a fault in it."""

    file: str
    """From the root of the project."""
    source: bytes = field(repr=False)
    """As it is without the fault."""
    lines: range
    """Those that the replaced text stands on, counted from 1."""
    head: range
    """Those of the statement that it is a part of, of a compound one down to its body."""
    start: int
    end: int
    """Where the replaced text stands, in bytes."""
    text: str
    """What is there instead."""

    def __str__(self) -> str:
        return f"{self.file}:{self.lines.start}"

    @property
    def mutated(self) -> bytes:
        """The file with the fault in it."""
        return self.source[: self.start] + self.text.encode() + self.source[self.end :]

    @property
    def is_python(self) -> bool:
        """Whether it can be read at all."""
        try:
            ast.parse(self.mutated)
        except SyntaxError:
            return False
        return True

    @property
    def change(self) -> tuple[str, str]:
        """What was there and what is there instead, for a person: whole lines in one."""
        first, last = self.source.rfind(b"\n", 0, self.start) + 1, self.source.find(b"\n", self.end)
        before, after = self.source[first : self.start].decode(), self.source[self.end : last].decode()
        return _one_line(self.source[first:last].decode()), _one_line(before + self.text + after)


def _one_line(text: str) -> str:
    return " ".join(line.strip() for line in text.splitlines())


def of(file: str, source: bytes) -> Iterator[Mutant]:
    """Each fault that fits into a file."""
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    for head, node, text in _faults(ast.parse(source), range(0)):
        start, end = starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset
        yield Mutant(file, source, range(node.lineno, node.end_lineno + 1), head, start, end, text)


def _faults(node: Any, head: range) -> Iterator[tuple[range, Any, str]]:
    """What of a tree is replaced by what, each with the lines of its statement."""
    if _is_no_code(node):
        return
    if isinstance(node, ast.stmt | ast.ExceptHandler):
        body: list[ast.stmt] | None = getattr(node, "body", None)
        head = range(node.lineno, max(node.lineno, body[0].lineno - 1) + 1 if body else (node.end_lineno or 0) + 1)
    for replaced, text in (*_of_statement(node), *_of_expression(node)):
        yield head, replaced, text
    for name, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and name not in TYPES:
                yield from _faults(child, head)


def _is_no_code(node: ast.AST) -> bool:
    """Whether this is for people, or for those who develop this: messages, logs, what a class declares of itself."""
    match node:
        case ast.JoinedStr() | ast.Assert() | ast.If(test=ast.Name("TYPE_CHECKING")):
            return True
        case ast.Call(func=ast.Name("dataclass")):
            return True
        case ast.Expr(value=ast.Call(func=called)):
            return ast.unparse(called).startswith(LOGS)
        case ast.BinOp(left=left, right=right):
            return any(map(_is_text, (left, right)))
        case ast.keyword(arg=name, value=value):
            return name in DECLARED or _is_text(value)
    return False


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str | bytes))


def _of_statement(node: ast.AST) -> Iterator[tuple[ast.AST, str]]:
    match node:
        case ast.If(test=test) | ast.IfExp(test=test) | ast.match_case(guard=ast.expr() as test):
            yield from ((test, "True"), (test, "False"))
        case ast.While(test=test):
            yield test, "False"
        case ast.comprehension(ifs=tests):
            yield from ((test, "True") for test in tests)
        case ast.For(iter=iterable):
            yield iterable, "()"
        case ast.Break():
            yield node, "continue"
        case ast.Continue():
            yield node, "break"
        case ast.ExceptHandler(type=ast.expr() as caught):
            yield caught, "()"
        case ast.Raise() | ast.AugAssign() | ast.Delete() | ast.Expr(value=ast.Call() | ast.Await()):
            yield node, "pass"
        # A plain name's assignment stays: without it the name is unknown, which any test notices.
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield node, "pass"


def _of_expression(node: ast.AST) -> Iterator[tuple[ast.AST, str]]:
    match node:
        case ast.Compare(left=left, ops=[operator], comparators=right):
            yield node, f"({ast.unparse(ast.Compare(left, [COMPARED[type(operator)]()], right))})"
        case ast.BinOp(left=left, op=operator, right=right) if other := COMPUTED.get(type(operator)):
            yield node, f"({ast.unparse(ast.BinOp(left, other(), right))})"
        case ast.BoolOp(op=operator, values=values):
            yield from ((value, str(isinstance(operator, ast.And))) for value in values)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield node, f"({ast.unparse(operand)})"
        case ast.Name(id=name, ctx=ast.Load()) if name in CALLED:
            yield node, CALLED[name]
        case ast.keyword(arg=str()):  # Its default counts.
            yield node, "**{}"
        case ast.Constant(value=bool(value)):
            yield node, str(not value)
        case ast.Constant(value=int(value) | float(value)):
            yield node, repr(value + 1 if value <= SMALL else value * 2)
