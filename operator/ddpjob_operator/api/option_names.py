"""How messages name an option: the command has `--gpus-per-node 8`, the functions in Python have `gpus_per_node=8`.

The same code checks the options of both, so a message asks here how its reader has written an option.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

FLAGS = {"class-name": "--class", "module": "-m", "program": "--"}
"""The flags of options that do not have their option's name."""
PARAMETERS = {"image-volume": "image_volumes", "program": "args", "volume": "volumes"}
"""The parameters of options that do not have their option's name."""
LISTS = frozenset({"env-from", "image-volume", "include", "pip", "program", "volume"})
"""The options that are lists in Python. The command takes them several times."""

_in_python = ContextVar("in_python", default=False)


@contextmanager
def as_parameters() -> Iterator[None]:
    """Within the block, in this thread, options are named as the parameters of a function in Python."""
    token = _in_python.set(True)
    try:
        yield
    finally:
        _in_python.reset(token)


def in_python() -> bool:
    """Whether options are named as the parameters of a function in Python."""
    return _in_python.get()


def this_call() -> str:
    """What the user has called, in words: this command, or this function in Python."""
    return "this call" if _in_python.get() else "this command"


def option(name: str, value: object = None) -> str:
    """An option, with its value if there is one, as the user of the command or of the function writes it.

    Args:
        name: Its name, as the command has it, without dashes at the beginning.
        value: Its value; of a list, one element; of `env`, `NAME=VALUE`.

    Example:
        >>> option("cpu", "lots"), option("volume", "data:/data")
        ('--cpu lots', '--volume data:/data')
        >>> with as_parameters():
        ...     option("cpu", "lots"), option("volume", "data:/data")
        ("cpu='lots'", "volumes=['data:/data']")
    """
    if not _in_python.get():
        flag = FLAGS.get(name, f"--{name}")
        return flag if value is None else f"{flag} {value}"
    parameter = PARAMETERS.get(name, name.replace("-", "_"))
    return parameter if value is None else f"{parameter}={_as_python(name, value)}"


def _as_python(name: str, value: object) -> str:
    if name == "env":
        variable, _, text = str(value).partition("=")
        return repr({variable: text})
    plain = value if isinstance(value, int) else str(value)
    return repr([plain] if name in LISTS else plain)
