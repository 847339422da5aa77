"""Packs a function with the code that it needs, and with its arguments, as a program that ranks run."""

import inspect
import linecache
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from keyword import iskeyword
from pathlib import Path
from types import FunctionType
from typing import Any

from ddpjob_operator.api import BadInputError
from ddpjob_operator.cli.packed import PackedProgram

from .cells import MODULE as NOTEBOOK_MODULE
from .cells import parts_of
from .json_values import json_of
from .modules import check_import_is_harmless, files_of_imports, innermost, module_of
from .public_calls import close_to, shown

Function = Callable[..., Any]

SCRIPT = "ddpjob_call.py"
"""The script that calls the function. Its frames are left out of tracebacks."""
ARGUMENTS = "ddpjob_arguments.json"
MOST_BYTES = 1 << 20

CALL = '''\
"""DDPJob has made this file. It calls {name} with the arguments in {arguments}."""

from ddpjob_rank.running.function_call import call

if __name__ == "__main__":
{path}{imports}
    call(function)
'''
PATH = """\
    import sys

    sys.path.insert(1, {root!r})
"""
"""On this machine, modules are imported from where they are."""
IMPORT = "    from {module} import {name} as function"
IMPORT_BY_NAME = """\
    from importlib import import_module

    function = import_module({module!r}).{name}"""


def program_of(
    target: str | os.PathLike[str] | Function | None,
    arguments: Mapping[str, Any] | None,
    args: Sequence[object],
    *,
    source: Path | None = None,
    here: bool = False,
) -> tuple[PackedProgram | None, str | None]:
    """The program that a target is, if it is a function, else the path of its file; None for neither.

    Raises:
        BadInputError: Ranks cannot call the function, or it is given the arguments of a script, or vice versa.
    """
    if target is None or isinstance(target, str | os.PathLike):
        if arguments is not None:
            raise BadInputError(f"arguments={shown(arguments)} are for a function; a script gets a list: args=[…]")
        return None, None if target is None else os.fspath(target)
    if args:
        raise BadInputError(f"args={shown(args)} is for a script; a function gets a mapping after it: {{'lr': 0.1}}")
    return packed_function(target, arguments, source=source, here=here), None


def packed_function(
    function: Function, arguments: Mapping[str, Any] | None, *, source: Path | None = None, here: bool = False
) -> PackedProgram:
    """Packs a function.

    Args:
        function: The function.
        arguments: Its arguments by name.
        source: The folder that is sent with it, and so need not be packed.
        here: Whether it runs on this machine, where its modules are already.

    Raises:
        BadInputError: Ranks cannot call it, or not with these arguments.
    """
    plain = checked(function)
    given = {} if arguments is None else arguments
    check_arguments(plain, given)
    data = json_of(given, "arguments", MOST_BYTES)
    code = _in_cell(plain, here=here) if is_typed(_file_name(plain)) else _in_file(plain)
    folder = _within(code.root, source)
    script = _script(plain, code, here=here)
    files = {f"{folder}{SCRIPT}": script, f"{folder}{ARGUMENTS}": data}
    files |= {f"{folder}{name}": content for name, content in code.made.items()}
    if not here and source is None:
        files |= {name: path.read_bytes() for name, path in files_of_imports(code.root, code.imports).items()}
    return PackedProgram(files, f"{folder}{SCRIPT}", plain.__name__, code.told, code.root)


@dataclass(frozen=True)
class _Code:
    """Where a function's code is."""

    root: Path
    """The folder from which it, and what it imports, is imported."""
    module: str
    """The full name of its module."""
    imports: Iterable[str]
    """The full names of what has to be imported."""
    made: Mapping[str, bytes] = field(default_factory=dict)
    """Files that do not exist in the folder."""
    told: tuple[str, ...] = ()


def _in_file(function: FunctionType) -> _Code:
    module = module_of(function, file_of(function))
    _check_is_found(function)
    check_import_is_harmless(module, function.__qualname__)
    return _Code(module.root, module.name, [module.name])


def _in_cell(function: FunctionType, *, here: bool) -> _Code:
    parts = parts_of(function, here=here)
    return _Code(Path.cwd(), NOTEBOOK_MODULE, parts.imported(), parts.files(), () if here else (*parts.told(),))


def checked(function: Function) -> FunctionType:
    """The function, if it is one that ranks can import and call.

    Raises:
        BadInputError: It is none; the message says what would be right.
    """
    name = getattr(function, "__qualname__", None) or shown(function)
    if isinstance(function, partial):
        raise BadInputError("a partial cannot be sent: pass the function, and its arguments as a mapping")
    if inspect.ismethod(function) or (isinstance(function, FunctionType) and _is_in_class(function)):
        raise BadInputError(
            f"{name} is a method; write a function outside the class that makes the object and calls it"
        )
    if not isinstance(function, FunctionType):
        kind = "a class" if isinstance(function, type) else f"of type {type(function).__qualname__}"
        right = "write a function that calls it" if callable(function) else "give a function without calling it"
        raise BadInputError(f"{name} is {kind}, not a Python function; {right}")
    if function.__name__ == "<lambda>":
        raise BadInputError(
            "a lambda cannot be sent, because it has no name to import; write it as a function: def …"
        )
    if "<locals>" in function.__qualname__ and (replaced := _replaced_by(function)):
        raise BadInputError(
            f"a decorator has put {function.__name__} in the place of {replaced}; put @functools.wraps(…) before"
            f" def {function.__name__}, so that {replaced} keeps its name"
        )
    if "<locals>" in function.__qualname__:
        raise BadInputError(
            f"{function.__name__} is defined inside another function, and may use its variables; move it out of it,"
            " and pass what it needs as arguments"
        )
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise BadInputError(f"{name} is a generator function; return one value instead of using yield")
    if inspect.iscoroutinefunction(function):
        raise BadInputError(f"{name} is an async function; write a function that calls asyncio.run({name}(…))")
    return function


def check_arguments(function: FunctionType, arguments: Mapping[str, Any]) -> None:
    """Checks the arguments by the function's signature.

    Raises:
        BadInputError: They are no mapping, or the function does not take them.
    """
    name = function.__name__
    if not isinstance(arguments, Mapping):
        raise BadInputError(
            f"arguments={shown(arguments)}: must be one mapping, of the names of {name}'s parameters to their values"
        )
    signature = inspect.signature(function)
    if others := [key for key in arguments if not isinstance(key, str)]:
        raise BadInputError(f"arguments has the key {shown(others[0])}, but the names of parameters are strings")
    known = [*signature.parameters]
    open_ended = any(parameter.kind is parameter.VAR_KEYWORD for parameter in signature.parameters.values())
    if wrong := next((key for key in arguments if key not in known and not open_ended), None):
        guess = close_to(wrong, known)
        raise BadInputError(
            f"{name}{signature} has no parameter {wrong:.64}{f'; did you mean {guess}?' if guess else ''}"
        )
    try:
        signature.bind(**arguments)
    except TypeError as error:
        raise BadInputError(f"{name}{signature}: {error}") from None


def file_of(function: FunctionType) -> Path:
    """The file in which a function is defined.

    Raises:
        BadInputError: It is in none.
    """
    name = _file_name(function)
    if Path(name).is_file():
        return Path(name)
    raise BadInputError(
        f"the source of {function.__name__} is not kept ({name}); write the function into a file, and import it"
    )


def _check_is_found(function: FunctionType) -> None:
    name = function.__name__
    if _found(function) is not function:
        raise BadInputError(
            f"{function.__module__}.{name} is not the function that was passed, so a rank would import another one;"
            f" give the function a name of its own in its module"
        )


def is_typed(name: str) -> bool:
    """Whether the name of a code's file is one of a cell, whose source only this process has."""
    entry = linecache.cache.get(name)
    return entry is not None and len(entry) > 1 and entry[1] is None


def _file_name(function: FunctionType) -> str:
    return innermost(function).__code__.co_filename


def _replaced_by(function: FunctionType) -> str | None:
    """The name of the function in whose place a decorator has put this one; None if none has."""
    for variable in function.__closure__ or ():
        with suppress(ValueError):  # It has no value yet.
            inner = variable.cell_contents
            if isinstance(inner, FunctionType) and _found(inner) is function:
                return inner.__name__
    return None


def _found(function: FunctionType) -> Any:
    """What the function's module has under its name."""
    return getattr(sys.modules.get(function.__module__), function.__name__, None)


def _is_in_class(function: FunctionType) -> bool:
    return "." in function.__qualname__.rpartition("<locals>.")[2]


def _script(function: FunctionType, code: _Code, *, here: bool) -> bytes:
    """The script that calls the function."""
    parts = code.module.split(".")
    form = IMPORT if all(part.isidentifier() and not iskeyword(part) for part in parts) else IMPORT_BY_NAME
    imports = form.format(module=code.module, name=function.__name__)
    path = PATH.format(root=str(code.root)) if here else ""
    return CALL.format(name=function.__name__, arguments=ARGUMENTS, path=path, imports=imports).encode()


def _within(root: Path, source: Path | None) -> str:
    """The folder from which the module is imported, in the folder that is sent; with a slash at its end."""
    if source is None:
        return ""
    try:
        folder = root.relative_to(source.resolve()).as_posix()
    except ValueError:
        raise BadInputError(
            f"source={str(source)!r} does not contain {root}, from which the function is imported; name a folder that"
            " contains it"
        ) from None
    return "" if folder == "." else f"{folder}/"
