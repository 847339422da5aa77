"""Generates docs/reference/python-library.md from the library's source, without an import: PyTorch is large."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from pathlib import Path
from textwrap import dedent

from .markdown import code, table

ROOT = Path(__file__).resolve().parents[2]
SOURCES = (ROOT / "trainer", ROOT / "operator")
MODULES = ("ddpjob", "ddpjob.data", "ddpjob.integrations.accelerate")
"""The modules whose public names programs use."""

SECTION = re.compile(r"^(Args|Raises):\n((?:    .*\n|\n)+)", re.MULTILINE)
ENTRY = re.compile(r"^    (\w[\w, ]*): (.*(?:\n {8}.*)*)", re.MULTILINE)
EXAMPLE = re.compile(r"^ {4}.+\n(?:\n* {4}.+\n)*", re.MULTILINE)
SIGNATURE_CHARS = 88
"""The longest signature that stands on one line."""

Function = ast.FunctionDef
Definition = ast.FunctionDef | ast.ClassDef


@dataclass(frozen=True, slots=True)
class Doc:
    """A docstring, by its parts."""

    text: str
    """All but the next two, with examples indented by four spaces."""
    arguments: dict[str, str] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, node: Definition) -> "Doc":
        """The docstring of a function or class; empty if it has none."""
        whole = f"{ast.get_docstring(node)}\n"
        parts = {name: dict(ENTRY.findall(text)) for name, text in SECTION.findall(whole)}
        return cls(SECTION.sub("", whole).rstrip() + "\n", parts.get("Args", {}), parts.get("Raises", {}))

    @property
    def examples(self) -> list[str]:
        """The code of its examples."""
        return [dedent(found) for found in EXAMPLE.findall(self.text)]

    @property
    def raised(self) -> list[str]:
        """The names of the errors."""
        return [error for listed in self.errors for error in listed.split(", ")]

    def says(self, argument: str) -> bool:
        """Whether it describes an argument."""
        return argument in self.arguments or f"`{argument}`" in self.text


@dataclass(frozen=True, slots=True)
class Public:
    """A public name of the library."""

    module: str
    name: str
    node: Definition
    """Its definition, of which the docstring and the signature are read."""

    @property
    def path(self) -> str:
        """The name with its module."""
        return f"{self.module}.{self.name}"

    @property
    def summary(self) -> str:
        """The first paragraph of its docstring."""
        return Doc.of(self.node).text.split("\n\n")[0].strip()

    @property
    def is_error(self) -> bool:
        """Whether it is a class of errors."""
        return self.name.endswith("Error")

    @property
    def functions(self) -> dict[str, Function]:
        """What can be called: the function itself, or a class's constructor and its public methods, by name."""
        if isinstance(self.node, Function):
            return {self.name: self.node}
        methods = (item for item in self.node.body if isinstance(item, Function) and not _is_property(item))
        return {item.name: item for item in methods if item.name == "__init__" or not item.name.startswith("_")}

    @property
    def attributes(self) -> Iterator[tuple[str, str, str]]:
        """Name, type and meaning of each public attribute and property of a class."""
        for item in self.node.body if isinstance(self.node, ast.ClassDef) else ():
            if isinstance(item, Function) and _is_property(item):
                assert item.returns, "mypy is strict"
                yield item.name, ast.unparse(item.returns), Doc.of(item).text
        for body in (self.node.body, getattr(self.functions.get("__init__"), "body", [])):
            for item, following in pairwise([*body, ast.Pass()]):
                if isinstance(item, ast.AnnAssign) and isinstance(following, ast.Expr):
                    name = ast.unparse(item.target).removeprefix("self.")
                    if not name.startswith("_"):
                        yield name, ast.unparse(item.annotation), ast.literal_eval(following.value)

    @property
    def examples(self) -> list[str]:
        """The examples in its docstring and in those of its functions."""
        nodes = dict.fromkeys((self.node, *self.functions.values()))
        return [example for node in nodes for example in Doc.of(node).examples]


def public_names() -> list[Public]:
    """The public names, in the order of MODULES and of the alphabet."""
    return [name for module in MODULES for name in _public(module)]


def names() -> str:
    """The functions and classes: a list, and what each is for."""
    known = [name for name in public_names() if not name.is_error]
    rows = ((f"[{code(name.path)}](#{name.path.lower().replace('.', '')})", name.summary) for name in known)
    return "\n".join([table(("Name", "Meaning"), rows), *map(_described, known)])


def errors() -> str:
    """The errors: which is a kind of which, what each means, and what raises it."""
    known = public_names()
    raised: dict[str, list[str]] = {}
    for name in known:
        for function, node in name.functions.items():
            for error in Doc.of(node).raised:
                raised.setdefault(error, []).append(code(_called(name, function)))
    rows = [
        (
            code(error.path),
            code(ast.unparse(error.node.bases[0])),
            error.summary,
            ", ".join(raised.get(error.name, [])),
        )
        for error in known
        if error.is_error and isinstance(error.node, ast.ClassDef)
    ]
    return table(("Error", "Is a", "Meaning", "Raised by"), rows)


def _described(name: Public) -> str:
    functions = {**name.functions}
    constructor = functions.pop("__init__", None)
    parts = [f"## {name.path}\n"]
    if isinstance(name.node, Function):
        return "\n".join([*parts, _python(_signature(name.path, name.node)), *_prose(Doc.of(functions[name.name]))])
    parts += [_python(_signature(name.path, constructor))] if constructor else []
    parts += [*_prose(Doc.of(name.node)), *(_prose(Doc.of(constructor)) if constructor else ())]
    if attributes := [(code(attribute), code(kind), text) for attribute, kind, text in name.attributes]:
        parts += [table(("Attribute", "Type", "Meaning"), attributes)]
    for method, node in functions.items():
        parts += [f"### {name.name}.{method}\n", _python(_signature(method, node)), *_prose(Doc.of(node))]
    return "\n".join(parts)


def _prose(doc: Doc) -> Iterator[str]:
    """A docstring as Markdown."""
    yield EXAMPLE.sub(lambda found: _python(dedent(found[0])), doc.text)
    for headings, rows in ((("Argument", "Meaning"), doc.arguments), (("Raises", "When"), doc.errors)):
        if rows:
            yield table(headings, ((", ".join(map(code, names.split(", "))), text) for names, text in rows.items()))


def _signature(name: str, node: Function) -> str:
    shown = [*_parameters(node)]
    returned = f" -> {ast.unparse(node.returns)}" if node.returns and node.name != "__init__" else ""
    if "contextmanager" in _decorators(node):
        returned = returned.replace("Iterator", "AbstractContextManager")
    line = f"{name}({', '.join(shown)}){returned}\n"
    if len(line) <= SIGNATURE_CHARS:
        return line
    return "".join([f"{name}(\n", *(f"    {parameter},\n" for parameter in shown), f"){returned}\n"])


def _parameters(node: Function) -> Iterator[str]:
    """The parameters as in the source, without `self`."""
    given = node.args
    positional = [argument for argument in given.args if argument.arg != "self"]
    defaults = [None] * (len(positional) - len(given.defaults)) + given.defaults
    yield from map(_parameter, positional, defaults)
    if given.kwonlyargs:
        yield "*"
    yield from map(_parameter, given.kwonlyargs, given.kw_defaults)
    if given.kwarg:
        yield f"**{_parameter(given.kwarg)}"


def _parameter(argument: ast.arg, default: ast.expr | None = None) -> str:
    assert argument.annotation, "mypy is strict"
    typed = f"{argument.arg}: {ast.unparse(argument.annotation)}"
    return (typed if default is None else f"{typed} = {ast.unparse(default)}").replace("'", '"')


def _python(text: str) -> str:
    return f"```python\n{text}```\n"


def _called(name: Public, function: str) -> str:
    return name.name if function in {"__init__", name.name} else f"{name.name}.{function}"


def _is_property(node: Function) -> bool:
    return "property" in _decorators(node)


def _decorators(node: Function) -> set[str]:
    return {ast.unparse(decorator) for decorator in node.decorator_list}


def _public(module: str) -> Iterator[Public]:
    """The names in a module's `__all__` or, without it, the classes that it defines."""
    tree = _tree(module)
    homes = {
        alias.name: _home(module, node)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    for name in _exported(tree):
        yield Public(module, name, _defined(_tree(homes.get(name, module)), name))


def _exported(tree: ast.Module) -> list[str]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            listed: list[str] = ast.literal_eval(node.value)
            return listed
    return [node.name for node in tree.body if isinstance(node, ast.ClassDef)]


def _home(module: str, node: ast.ImportFrom) -> str:
    return f"{module}.{node.module}" if node.level else node.module or ""


def _defined(tree: ast.Module, name: str) -> Definition:
    return next(node for node in tree.body if isinstance(node, Definition) and node.name == name)


@cache
def _tree(module: str) -> ast.Module:
    paths = [source.joinpath(*module.split(".")) for source in SOURCES]
    files = (path / "__init__.py" if path.is_dir() else path.with_suffix(".py") for path in paths)
    file = next(file for file in files if file.is_file())
    return ast.parse(file.read_text(encoding="utf-8"))
