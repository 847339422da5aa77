"""Finds in the text of a training script which environment variables it sets before it imports PyTorch.

Nothing is executed. Statements are followed in the order in which Python would run them, also into functions and
modules in the script's folder. Statements that this code does not understand, such as `load_dotenv()`, are skipped:
`late_variables` reports their effect while the script runs.
"""

import ast
import os
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import resolve_name
from pathlib import Path
from typing import Any

from ddpjob_rank.running.program import Program

from .expressions import ENVIRON, OS, Function, Names, Values
from .read_at_import import DYNAMO
from .script_environment import UNKNOWN, Environment, Place, Variables

IMPORT_TORCH = frozenset(
    {
        *("torch", "torchvision", "torchaudio", "torchmetrics", "lightning", "pytorch_lightning", "lightning_fabric"),
        *("accelerate", "timm", "deepspeed", "fastai", "ignite"),
    }
)
"""Packages that import PyTorch. If a package that is missing here imports PyTorch, later variables still count,
although PyTorch has already read them."""

IMPORT_DYNAMO = (DYNAMO, "torch._inductor")

FILE_BYTES, ALL_BYTES = 256 << 10, 512 << 10
"""How large one file may be, and all files together, to be parsed. Parsing that much takes half a second."""

NODES, CALLS = 100_000, 10
"""How many statements and expressions are followed, and how deep a chain of calls and imports is followed."""


def variables_of(program: Program, env: Mapping[str, str], *, others: bool = False) -> Variables:
    """The variables that a program sets before PyTorch reads them. `env` is the environment in which its ranks start.

    With `others`, the result includes the values of variables that PyTorch does not read at its import. Code that
    cannot be understood is skipped, and never causes an error.
    """
    environment = Environment(env, others=others)
    # A program may contain anything: even Python's parser can raise RecursionError and MemoryError.
    with suppress(Exception), warnings.catch_warnings(action="ignore"):
        _Reader(program, env, environment).read()
    return environment.variables


class _EnoughError(Exception):
    """Everything relevant has been read, or as much as is worth the time."""


class _Reader(Values):
    """Follows a program's statements."""

    def __init__(self, program: Program, env: Mapping[str, str], environment: Environment) -> None:
        super().__init__(environment)
        self._program = program
        self._paths = [program.directory, *filter(None, env.get("PYTHONPATH", "").split(os.pathsep))]
        self._modules: dict[str, tuple[Names, Sequence[str]]] = {}
        """The names in each local module, and where its submodules are."""
        self._nodes, self._bytes, self._depth = NODES, ALL_BYTES, 0
        self._main_line = 0
        self._globals: dict[str, Names] = {}
        """The names of each file that is followed."""
        self._outer: Names = {}
        """The names in the scope around the function that is followed."""

    def read(self) -> None:
        """Follows the program up to the import of PyTorch.

        Raises:
            Exception: Enough has been read, or something cannot be understood.
        """
        file, package = self._program.name, ""
        if self._program.module:
            if file.partition(".")[0] in IMPORT_TORCH:
                return
            self._paths += sys.path
            file, package = self._file_of(self._program.name)
        self.names = self._globals[file] = {"__name__": "__main__", "__package__": package}
        with self._within(file):
            for statement in self._parsed(file):
                self._main_line = statement.lineno
                self._follow([statement])

    def _file_of(self, module: str) -> tuple[str, str]:
        """The file that `python -m` would run, and its package. The package's own files are followed first."""
        package = module.rpartition(".")[0]
        if package:
            self._module(package)
        spec = self._spec(module)
        if spec and spec.submodule_search_locations:
            self._module(module)
            return self._file_of(f"{module}.__main__")
        return str(spec and spec.origin), package

    def visit(self, node: ast.AST) -> Any:
        self._nodes -= 1
        if not self._nodes:
            raise _EnoughError
        return super().visit(node)

    def call(self, function: Function) -> None:
        before = self.left, self.sure, self._outer
        self.sure = self.sure and not function.others
        for one in (function, *function.others):
            self._outer = one.names
            with self._within(one.file, {**one.names, **dict.fromkeys(one.parameters, UNKNOWN)}):
                self._follow(one.body)
            self.left = before[0]
        _, self.sure, self._outer = before

    @contextmanager
    def _within(self, file: str, names: Names | None = None) -> Iterator[None]:
        if self._depth == CALLS:
            raise _EnoughError
        before = self.file, self.names
        self.file, self.names = file, self.names if names is None else names
        self._depth += 1
        yield
        self._depth -= 1
        self.file, self.names = before

    def _follow(self, body: Iterable[ast.stmt]) -> None:
        for statement in body:
            self.visit(statement)
            if isinstance(statement, ast.Return | ast.Raise):
                return

    def _follow_perhaps(self, *bodies: Iterable[ast.stmt]) -> None:
        before, self.sure = self.sure, False
        for body in bodies:
            self._follow(body)
        self.sure = before

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            module, first = self._import(alias.name, node), alias.name.partition(".")[0]
            self._bind(alias.asname or first, module if alias.asname else self._import(first, node))

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        try:
            name = resolve_name("." * node.level + (node.module or ""), self.names.get("__package__"))
        except ImportError:  # A script may try this import first, and then the same import without the leading dot.
            return
        module = self._import(name, node)
        known: Names = module if isinstance(module, dict) else {}
        for alias in node.names:
            if alias.name == "*":
                for every in [*known]:
                    self._bind(every, known[every])
            elif alias.name in known or known is not module:
                self._bind(alias.asname or alias.name, known.get(alias.name, UNKNOWN))
            else:
                self._bind(alias.asname or alias.name, self._import(f"{name}.{alias.name}", node))

    def visit_Assign(self, node: ast.Assign) -> None:
        value = self.visit(node.value)
        for target in node.targets:
            self._assign(target, value)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value:
            self._assign(node.target, self.visit(node.value))

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        value = self.visit(node.value)
        if self.visit(node.target) is ENVIRON:
            self.update(value, node)
        else:
            self._assign(node.target, UNKNOWN)

    def visit_Delete(self, node: ast.Delete) -> None:
        for target in node.targets:
            if isinstance(target, ast.Subscript) and self.visit(target.value) is ENVIRON:
                self.remove_variable(self.visit(target.slice), node)

    def visit_NamedExpr(self, node: ast.NamedExpr) -> Any:
        value = self.visit(node.value)
        self._assign(node.target, value)
        return value

    def visit_Return(self, node: ast.Return) -> None:
        if node.value:
            self.visit(node.value)
        self.left = True

    def visit_Expr(self, node: ast.Expr) -> None:
        match node.value:
            case ast.Call(
                ast.Attribute(ast.Attribute(ast.Name("sys"), "path"), "insert"), [_, ast.Constant(str(path))]
            ):
                self._paths.insert(1, path)
            case _:
                self.visit(node.value)

    def visit_If(self, node: ast.If) -> None:
        test = self.visit(node.test)
        if test is UNKNOWN:
            self._follow_perhaps(node.body, node.orelse)
        else:
            self._follow(node.body if test else node.orelse)

    def visit_For(self, node: ast.For) -> None:
        self.visit(node.iter)
        self._assign(node.target, UNKNOWN)
        self._follow_perhaps(node.body, node.orelse)

    def visit_While(self, node: ast.While) -> None:
        self.visit(node.test)
        self._follow_perhaps(node.body, node.orelse)

    def visit_Try(self, node: ast.Try) -> None:
        before = self.raised
        for statement in node.body:
            self._follow([statement])
            self.raised = self.raised or bool(node.handlers)
        self.raised = before
        self._forget(self.names, [handler.name for handler in node.handlers if handler.name])
        self._follow_perhaps(*(handler.body for handler in node.handlers))
        self._follow([*node.orelse, *node.finalbody])

    def visit_With(self, node: ast.With) -> None:
        for item in node.items:
            self.visit(item.context_expr)
            if item.optional_vars:
                self._assign(item.optional_vars, UNKNOWN)
        self._follow(node.body)

    def visit_Match(self, node: ast.Match) -> None:
        patterns = [part for case in node.cases for part in ast.walk(case.pattern)]
        names = [getattr(part, field, None) for part in patterns for field in ("name", "rest")]
        self._forget(self.names, filter(None, names))
        self._follow_perhaps(*(case.body for case in node.cases))

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        parameters = [part.arg for part in ast.walk(node.args) if isinstance(part, ast.arg)]
        self._bind(node.name, Function(node.body, self.names, self.file, parameters))

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self._bind(node.name, UNKNOWN)  # Calling it does not run its body.

    def _bind(self, name: str, value: Any) -> None:
        """Gives a name to a value, or to several possible values if Python does not certainly reach this line."""
        known = self.names.get(name, value)
        if not self.certain and known is not value:
            if isinstance(value, Function) or isinstance(known, Function):
                value, known = (
                    one if isinstance(one, Function) else Function((), {}, self.file) for one in (value, known)
                )
                value = replace(value, others=(replace(known, others=()), *known.others, *value.others)[:CALLS])
            else:
                value = UNKNOWN
        self.names[name] = value

    def visit_Global(self, node: ast.Global) -> None:
        # A function may be called at any time, so the value is unknown from its first call on.
        self._forget(self._globals.get(self.file, {}), node.names)

    def visit_Nonlocal(self, node: ast.Nonlocal) -> None:
        self._forget(self._outer, node.names)

    def _forget(self, names: Names, which: Iterable[str]) -> None:
        for name in which:
            names[name] = self.names[name] = UNKNOWN

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        with self._within(self.file, {**self.names}):
            self._follow(node.body)
        self.names[node.name] = UNKNOWN

    def _assign(self, target: ast.expr, value: Any) -> None:
        match target:
            case ast.Name(name):
                self.names[name] = value if self.certain else UNKNOWN
            case ast.Subscript(of, key) if self.visit(of) is ENVIRON:
                self.set_variable(self.visit(key), value, target)
            case ast.Starred(value=inner):
                self._assign(inner, UNKNOWN)
            case ast.Tuple(parts) | ast.List(parts):
                for part in parts:
                    self._assign(part, UNKNOWN)

    def _import(self, name: str, node: ast.stmt) -> Any:
        """Follows a local module, and returns its names."""
        first = name.partition(".")[0]
        if first in IMPORT_TORCH:
            if self.sure:
                self.environment.import_torch(Place(self.file, node.lineno), self._main_line)
            if self.sure and name.startswith(IMPORT_DYNAMO):
                raise _EnoughError
            return UNKNOWN
        if first in sys.stdlib_module_names:
            return OS if name == "os" else UNKNOWN
        return self._module(name)

    def _module(self, name: str) -> Any:
        """The names in a local module, which is followed at its first import; UNKNOWN if the module is not local."""
        if name in self._modules:
            return self._modules[name][0]
        package, _, last = name.rpartition(".")
        if package and self._module(package) is UNKNOWN:
            return UNKNOWN
        spec = self._spec(name)
        if spec is None:
            return UNKNOWN
        inside = spec.submodule_search_locations
        names: Names = {"__name__": name, "__package__": package if inside is None else name}
        self._modules[name] = names, [*(inside or [])]
        if package:
            self._modules[package][0][last] = names
        if str(spec.origin).endswith(".py"):
            self._globals[str(spec.origin)] = names
            with self._within(str(spec.origin), names):
                self._follow(self._parsed(self.file))
        return names

    def _spec(self, name: str) -> ModuleSpec | None:
        package, _, last = name.rpartition(".")
        # The package's name is left out, because a directory without __init__.py would be looked up in sys.modules.
        return PathFinder.find_spec(last, [*self._modules[package][1]] if package else self._paths)

    def _parsed(self, name: str) -> list[ast.stmt]:
        file = Path(name)
        size = file.stat().st_size if file.is_file() else ALL_BYTES
        if size > min(FILE_BYTES, self._bytes):
            return []
        self._bytes -= size
        with suppress(SyntaxError, ValueError):
            return ast.parse(file.read_bytes()).body
        return []
