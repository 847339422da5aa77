"""Collects what a function of a notebook needs: imports, functions, classes and values that it names, and so on.

The syntax trees of the cells tell which names a definition reads from the notebook, and the notebook's present values
tell what these are. A name that is imported becomes that import. A function or a class of a cell is sent as its
source, with what it names in turn. Numbers, strings, and lists and dicts of them are sent as they are now. All else
cannot be sent.
"""

import __future__

import ast
import builtins
import linecache
import symtable
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from types import FunctionType, ModuleType
from typing import Any

from ddpjob_operator.api import BadInputError
from ddpjob_operator.api.secrecy import SECRET_NAME
from ddpjob_operator.client.archive import largest_of, readable

from .json_values import plain
from .modules import imported_names, innermost

MAIN = "__main__"
MODULE = "ddpjob_notebook"
CELLS = "ddpjob_cells"
MOST_BYTES = 64 << 10
"""The largest size of all values of a notebook."""
ANNOTATIONS = __future__.annotations.compiler_flag
NAMED = 3
"""How many of the largest values are named if they are too large."""
SHOWN = 40

NOTEBOOK = '''\
"""DDPJob has made this file, of the parts of a notebook that {name} needs. Their source is in {folder}."""

{imports}from ddpjob_rank.running.cells import define

{values}
define(globals(), {definitions})
'''
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
"""A statement that defines a function or a class."""


@dataclass(frozen=True)
class Cell:
    """A cell that was run."""

    name: str
    """What the user sees before the cell, such as `In[3]`."""
    source: str

    @cached_property
    def body(self) -> list[ast.stmt]:
        """Its statements; none if it is not Python, such as one with a shell command."""
        try:
            return ast.parse(self.source).body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return []

    def lines_of(self, node: Definition) -> list[str]:
        """The lines of a definition in it, with its decorators."""
        return self.source.split("\n")[_begin(node) - 1 : node.end_lineno]


@dataclass
class NotebookParts:
    """What a function of a notebook needs."""

    name: str
    here: bool
    """Whether it stays on this machine, where everything may be read that is in the notebook."""
    postponed: bool
    """Whether annotations are not evaluated: `from __future__ import annotations` counts for all later cells."""
    cells: list[Cell]
    namespace: Mapping[str, Any]
    imports: dict[str, None] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)
    definitions: list[tuple[Cell, Definition]] = field(default_factory=list)
    """In an order in which each comes after those that it needs while it is defined."""
    _seen: set[str] = field(default_factory=set)

    def add(self, name: str, user: str) -> None:
        """Adds what a name of the notebook means, which `user` reads.

        Raises:
            BadInputError: It cannot be sent.
        """
        known = name not in self.namespace and _is_pythons(name)
        if name in self._seen or known or (name.startswith("__") and name.endswith("__")):
            return
        self._seen.add(name)
        if name not in self.namespace:
            why = "only notebooks have" if hasattr(builtins, name) else "the notebook does not define"
            raise BadInputError(f"{user} uses {name}, which {why}")
        value = self.namespace[name]
        found = self._definition(name, value)
        if found is not None:
            cell, node = found
            for needed in _names_read(cell, node):
                self.add(needed, node.name)
            self.definitions.append(found)
        elif imports := [*self._imports(name, value)]:
            self.imports |= dict.fromkeys(imports)
        else:
            self._add_value(name, value, user)

    def _definition(self, name: str, value: Any) -> tuple[Cell, Definition] | None:
        """The cell and the statement that have defined a function or class of the notebook; None for other values."""
        made = _undecorated(value)
        if not isinstance(made, FunctionType | type) or made.__module__ != MAIN:
            return None
        found = self._last_definition(name)
        if found is None or made.__name__ != name:
            self._check_is_not_decorated(name)
            raise BadInputError(
                f"the source of {name} is not kept: write it outside of all blocks of a cell, or import it from a"
                " file"
            )
        self._check_is_the_last(*found, made)
        return found

    def _last_definition(self, name: str) -> tuple[Cell, Definition] | None:
        for cell in reversed(self.cells):
            for node in cell.body:
                if isinstance(node, Definition) and node.name == name:
                    return cell, node
        return None

    def _check_is_not_decorated(self, name: str) -> None:
        """Checks that a name, of which the source is not found, is not what a decorator has made.

        Raises:
            BadInputError: It is.
        """
        found = self._last_definition(name)
        if found is not None and found[1].decorator_list:
            raise BadInputError(
                f"{name} is what a decorator in {found[0].name} has made of the function {name}; let the decorator"
                " use functools.wraps, so that the function is found, or leave it out"
            )

    def _check_is_the_last(self, cell: Cell, node: Definition, value: Any) -> None:
        """Checks that the last definition of a name is what the name means now: its cell may have failed before it.

        Raises:
            BadInputError: It is not.
        """
        code = innermost(value).__code__ if isinstance(value, FunctionType) else None
        other = code is not None and (code.co_name != node.name or code.co_firstlineno != _begin(node))
        if other or _source_of(value) not in {None, cell.source.rstrip()}:
            raise BadInputError(f"{node.name} is not as {cell.name} defines it; run that cell again")

    def _imports(self, name: str, value: Any) -> Iterator[str]:
        """The statements by which a name was imported; if there are none, one by which it can be."""
        for cell in self.cells:
            for node in (node for statement in cell.body for node in ast.walk(statement)):
                if isinstance(node, ast.Import | ast.ImportFrom):
                    yield from _imports_of(node, name, value)
        if isinstance(value, ModuleType):
            yield f"import {value.__name__}" + ("" if value.__name__ == name else f" as {name}")
        elif callable(value) and getattr(value, "__module__", MAIN) not in {MAIN, None, "builtins"}:
            module, own = value.__module__, getattr(value, "__name__", "")
            if getattr(sys.modules.get(module), own, None) is value:
                yield f"from {module} import {own}" + ("" if own == name else f" as {name}")

    def _add_value(self, name: str, value: Any, user: str) -> None:
        try:
            self.values[name] = _literal(value, name)
        except BadInputError as error:
            self._check_is_not_decorated(name)
            raise BadInputError(
                f"{user} uses {name} of the notebook, but {error}. Make it in {user}, or give {user} a parameter for"
                " what it is made from"
            ) from None
        if SECRET_NAME.search(name) and not self.here:
            raise BadInputError(
                f"{user} uses {name}, whose name says that it is secret, and everyone who may read ConfigMaps could"
                " read it; put it into a Secret, name that with env_from=[…], and read the variable"
            )

    def files(self) -> dict[str, bytes]:
        """The files of the module that ranks import."""
        kept: dict[str, list[str]] = {}
        cells = {cell.name: cell for cell, _ in self.definitions}
        for cell, node in self.definitions:
            lines = kept.setdefault(cell.name, [""] * (cell.source.count("\n") + 1))
            lines[_begin(node) - 1 : node.end_lineno] = cell.lines_of(node)
        files = {f"{CELLS}/{_file(cells[name])}": "\n".join(lines).encode() for name, lines in kept.items()}
        order = [(_file(cell), _begin(node)) for cell, node in self.definitions]
        imports = "".join(f"{line}\n" for line in self.imports)
        values = "".join(f"{name} = {value!r}\n" for name, value in self.values.items())
        if (size := len(values.encode())) > MOST_BYTES:
            sizes = {name: len(repr(value).encode()) for name, value in self.values.items()}
            raise BadInputError(
                f"{self.name} uses values of the notebook that take {readable(size)}, but at most"
                f" {readable(MOST_BYTES)} are sent; the largest: {largest_of(sizes)}. Make them in {self.name}, or"
                f" save them in a file that the ranks can read, and give {self.name} its path"
            )
        how = ", postponed=True" if self.postponed else ""
        module = NOTEBOOK.format(
            name=self.name, folder=CELLS, imports=imports, values=values, definitions=f"{order}{how}"
        )
        return {f"{MODULE}.py": module.encode(), **files}

    def imported(self) -> set[str]:
        """The full names of what the imports and the definitions import."""
        trees = [ast.parse("\n".join(self.imports)), *(ast.Module([node], []) for _, node in self.definitions)]
        return {name for tree in trees for name in imported_names(tree, "")}

    def told(self) -> Iterator[str]:
        """Lines that tell what is sent."""
        parts = ", ".join(f"{node.name} ({cell.name})" for cell, node in self.definitions)
        yield f"of the notebook: {parts}"
        if self.values:
            shown = (f"{name}={_short(value)}" for name, value in self.values.items())
            yield f"values of the notebook, as they are now: {', '.join(shown)}"


def parts_of(function: FunctionType, *, here: bool) -> NotebookParts:
    """What a function of a cell needs.

    Raises:
        BadInputError: It needs something that cannot be sent.
    """
    name = function.__name__
    namespace = sys.modules[MAIN].__dict__
    postponed = bool(innermost(function).__code__.co_flags & ANNOTATIONS)
    parts = NotebookParts(name, here, postponed, run_cells(namespace), namespace)
    if namespace.get(name) is not function:
        raise BadInputError(f"{name} is not what the notebook's {name} is now; run the cell that submits it again")
    parts.add(name, name)
    return parts


def run_cells(namespace: Mapping[str, Any]) -> list[Cell]:
    """The cells that were run, in their order: by IPython's history or, at Python's prompt, by what it has kept."""
    history = namespace.get("In")
    if isinstance(history, list):
        return [Cell(f"In[{number}]", str(source)) for number, source in enumerate(history) if source]
    typed = [(name, entry) for name, entry in linecache.cache.items() if name.startswith("<python-input-")]
    return [Cell(name.strip("<>"), "".join(entry[2])) for name, entry in typed if len(entry) > 1]


def _is_pythons(name: str) -> bool:
    """Whether a name is a builtin of Python. IPython adds some of its own, such as `display`."""
    found = getattr(builtins, name, None)
    return hasattr(builtins, name) and not str(getattr(found, "__module__", "")).startswith("IPython")


def _source_of(value: Any) -> str | None:
    """The source of the cell in which a function or class was defined; None if it is not kept.

    Of a class, a method tells it; those that decorators have added are of no cell.
    """
    members = (innermost(each) for each in vars(value).values() if isinstance(each, FunctionType))
    codes = [innermost(value).__code__] if isinstance(value, FunctionType) else [each.__code__ for each in members]
    entries = (linecache.cache.get(code.co_filename, ()) for code in codes)
    return next(("".join(entry[2]).rstrip() for entry in entries if len(entry) > 1 and entry[1] is None), None)


def _begin(node: Definition) -> int:
    return min(part.lineno for part in (node, *node.decorator_list))


def _file(cell: Cell) -> str:
    return f"{cell.name}.py"


def _literal(value: Any, name: str) -> Any:
    """A value that a literal of Python describes exactly, or a number for a scalar of NumPy.

    Raises:
        BadInputError: It is another value.
    """
    made = plain(value, name)
    if len(repr(value)) > MOST_BYTES:  # It is refused with its size, so it need not be exact.
        return made
    with suppress(ValueError, SyntaxError, RecursionError, MemoryError):
        if (exact := ast.literal_eval(repr(value))) == value:
            return exact
    if isinstance(made, int | float) and not isinstance(value, type(made)):
        return made
    raise BadInputError(f"{name} is or contains what only looks like JSON ({type(value).__qualname__})")


def _undecorated(value: Any) -> Any:
    """The function of which decorators that use `functools.wraps` have made a value; otherwise the value itself."""
    wrapped = getattr(value, "__dict__", {}).get("__wrapped__")
    return innermost(wrapped) if isinstance(wrapped, FunctionType) else value


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"


def _names_read(cell: Cell, node: Definition) -> list[str]:
    """The names that a definition reads from outside, in their order."""
    source = "\n".join(cell.lines_of(node))
    top = symtable.symtable(source, cell.name, "exec")
    found = dict.fromkeys(symbol.get_name() for symbol in top.get_symbols() if symbol.is_referenced())
    waiting = [*top.get_children()]
    while waiting:
        table = waiting.pop(0)
        found |= dict.fromkeys(
            symbol.get_name() for symbol in table.get_symbols() if symbol.is_global() and symbol.is_referenced()
        )
        waiting += table.get_children()
    found.pop(node.name, None)
    return [*found]


def _imports_of(node: ast.Import | ast.ImportFrom, name: str, value: Any) -> Iterator[str]:
    """The part of an import that gives a name its value."""
    for alias in node.names:
        bound = alias.asname or (alias.name.partition(".")[0] if isinstance(node, ast.Import) else alias.name)
        if bound != name:
            continue
        alone = type(node)(**{**dict(ast.iter_fields(node)), "names": [alias]})
        if isinstance(node, ast.Import):
            named = alias.name if alias.asname else bound
            if alias.name in sys.modules and sys.modules.get(named) is value:
                yield ast.unparse(alone)
        elif not node.level and _imported_value(node, alias) is value:
            yield ast.unparse(alone)


def _imported_value(node: ast.ImportFrom, alias: ast.alias) -> Any:
    """What an import gives, as far as its module is imported; None if it gives nothing."""
    module = node.module or ""
    return getattr(sys.modules.get(module), alias.name, sys.modules.get(f"{module}.{alias.name}"))
